/* CALL(function, arrays), a call with one sample, is defined before this file is included. */
#include <omp.h>
#include <time.h>

/* A single thread is timed in CPU time, which excludes other processes. */
static double now(void) {
  struct timespec t;
  clock_gettime(omp_get_max_threads() > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* Update `seconds` with the time of one call of each function if it is shorter.
   Before a call, `sweep` bytes of `swept` are read, so that weights are no closer in the caches
   than after a call of the whole model, and then the inputs, which a model has just written.
   The overhead of reading the clock is subtracted. */
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
