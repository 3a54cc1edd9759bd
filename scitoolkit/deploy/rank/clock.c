/* CALL(function, arrays) is defined before this: a call of one sample with so many arrays. */
#include <omp.h>
#include <time.h>

/* One thread is timed by its own clock, which stands still while other programs have the core. */
static double now(void) {
  struct timespec t;
  clock_gettime(omp_get_max_threads() > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* Write the seconds of one call of each function into `seconds`, where shorter than what is there.
   Before a call, `sweep` bytes of `swept` are read, so that weights come from where they are when
   a whole model has been computed since, and then the inputs, which a model has just written.
   The least time of looking at the clock is left out. */
float measure(int64_t functions, void **calls, void ***arrays, const int64_t *sizes, void *work,
              int64_t bytes, const float *swept, int64_t sweep, double *seconds) {
  float sum = 0;
  double idle = 1;
  for (int k = 0; k < 100; k++) {
    const double start = now(), taken = now() - start;
    if (taken < idle) idle = taken;
  }
  for (int64_t f = 0; f < functions; f++) {
    for (int64_t k = 0; k < sweep / 4; k += 16) sum += swept[k];
    for (int64_t k = 0; k < sizes[f]; k += 16) sum += ((const float *)arrays[f][0])[k];
    const double start = now();
    CALL(calls[f], arrays[f]);
    const double taken = now() - start - idle;
    if (taken < seconds[f]) seconds[f] = taken > 1e-9 ? taken : 1e-9;
  }
  return sum;
}
