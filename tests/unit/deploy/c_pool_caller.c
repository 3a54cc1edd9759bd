/* Calls surrogates of a folder from several threads under a small budget, and compares each answer
   with that of a pool which holds all of them; then what is refused. Prints one line of counts. */
#define _XOPEN_SOURCE 700
#include "scitoolkit_pool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MODELS = 6, INPUTS = 7, OUTPUTS = 5, CALLS = 400, THREADS = 4 };
static stk_pool *small, *whole;
static int wrong[THREADS];

static int call(stk_pool *pool, int model, float first, float *y) {
  char name[8];
  float x[INPUTS];
  for (int k = 0; k < INPUTS; k++) x[k] = first + 0.1f * (float)k;
  sprintf(name, "m%d", model);
  const float *in[] = {x};
  float *out[] = {y};
  int32_t status = -1;
  const int returned = stk_pool_call(pool, name, "", 1, in, 1, out, 1, &status);
  if (returned >= 16) fprintf(stderr, "%s\n", stk_pool_error());
  return returned == status ? returned : -1;
}

static void *work(void *given) {
  const int thread = *(int *)given;
  unsigned seed = (unsigned)thread + 1;
  for (int k = 0; k < CALLS; k++) {
    seed = seed * 1103515245u + 12345u;
    const int model = (int)(seed >> 16) % MODELS;
    float a[OUTPUTS], b[OUTPUTS];
    const float first = (float)(k % 10) * 0.2f;
    const int one = call(small, model, first, a), other = call(whole, model, first, b);
    if (one != other || one > 1 || memcmp(a, b, sizeof a)) wrong[thread]++;
  }
  return NULL;
}

#define EXPECT(made, status)                                                                       \
  do {                                                                                             \
    const int found = (made);                                                                      \
    if (found != (status)) return printf("line %d: %d\n", __LINE__, found), 1;                     \
    if (found >= 16 && !*stk_pool_error()) return printf("line %d: no reason\n", __LINE__), 1;     \
  } while (0)

int main(int count, char **given) {
  const char *folder = count > 1 ? given[1] : ".";
  const int64_t budget = atoll(given[2]);
  char path[4096], name[8];
  pthread_t threads[THREADS];
  int numbers[THREADS];
  EXPECT(stk_pool_new(0, &small), STK_POOL_ARGUMENTS);
  EXPECT(stk_pool_new(budget, &small), 0);
  EXPECT(stk_pool_new(1 << 30, &whole), 0);
  for (int k = 0; k < MODELS; k++) {
    sprintf(name, "m%d", k);
    snprintf(path, sizeof path, "%s/%s.weights", folder, name);
    EXPECT(stk_pool_add(small, name, path), 0);
    EXPECT(stk_pool_add(whole, name, path), 0);
  }
  const char *order[] = {"m5", "m2", "m9"};
  EXPECT(stk_pool_prefetch(whole, order, 3), STK_POOL_UNKNOWN);
  EXPECT(stk_pool_prefetch(whole, NULL, 1), STK_POOL_ARGUMENTS);
  stk_pool_counts counts = {0};
  stk_pool_statistics(whole, &counts);
  if (counts.loads) return printf("read in spite of a wrong name\n"), 1;
  EXPECT(stk_pool_prefetch(whole, order, 2), 0);
  for (int k = 0; k < 10000 && counts.loads < 2; k++) { /* ten seconds at most */
    nanosleep(&(struct timespec){0, 1000000}, NULL);
    stk_pool_statistics(whole, &counts);
  }
  float ahead[OUTPUTS];
  if (call(whole, 5, 0, ahead) || call(whole, 2, 0, ahead)) return printf("not computed\n"), 1;
  stk_pool_statistics(whole, &counts);
  if (counts.loads != 2 || counts.hits != 2) return printf("not read in advance\n"), 1;
  EXPECT(stk_pool_prefetch(whole, NULL, 0), 0);
  for (int k = 0; k < THREADS; k++) {
    numbers[k] = k;
    pthread_create(&threads[k], NULL, work, &numbers[k]);
  }
  for (int k = 0; k < THREADS; k++) pthread_join(threads[k], NULL);
  stk_pool_statistics(small, &counts);
  if (counts.resident_bytes > counts.held_bytes || counts.held_bytes > counts.budget_bytes)
    return printf("over the budget\n"), 1;

  float y[OUTPUTS], x[INPUTS] = {0};
  const float *in[] = {x, x};
  float *out[] = {y}, *none[] = {NULL};
  EXPECT(stk_pool_add(small, "m0", path), STK_POOL_TAKEN);
  EXPECT(stk_pool_add(small, "new", "/no/such/file.weights"), STK_POOL_FILE);
  snprintf(path, sizeof path, "%s/damaged.weights", folder);
  EXPECT(stk_pool_add(small, "damaged", path), 0);
  EXPECT(stk_pool_call(small, "damaged", "", 1, in, 1, out, 1, NULL), STK_POOL_FILE);
  snprintf(path, sizeof path, "%s/cut.weights", folder);
  EXPECT(stk_pool_add(small, "cut", path), STK_POOL_FILE);
  snprintf(path, sizeof path, "%s/header.weights", folder);
  EXPECT(stk_pool_add(small, "header", path), STK_POOL_FILE);
  EXPECT(stk_pool_call(small, "m9", "", 1, in, 1, out, 1, NULL), STK_POOL_UNKNOWN);
  EXPECT(stk_pool_call(small, "m0", "step", 1, in, 1, out, 1, NULL), STK_POOL_UNKNOWN);
  EXPECT(stk_pool_call(small, "m0", "", 1, in, 2, out, 1, NULL), STK_POOL_ARGUMENTS);
  EXPECT(stk_pool_call(small, "m0", "", 1, in, 1, none, 1, NULL), STK_POOL_ARGUMENTS);
  EXPECT(stk_pool_remove(small, "m0"), 0);
  EXPECT(stk_pool_call(small, "m0", "", 1, in, 1, out, 1, NULL), STK_POOL_UNKNOWN);
  EXPECT(stk_pool_about(small, "m1") && strstr(stk_pool_about(small, "m1"), "\"level\"") ? 0 : 1, 0);
  EXPECT(stk_pool_about(small, "m0") ? 1 : 0, 0);
  stk_pool *tiny;
  EXPECT(stk_pool_new(100, &tiny), 0);
  snprintf(path, sizeof path, "%s/m1.weights", folder);
  EXPECT(stk_pool_add(tiny, "m1", path), STK_POOL_TOO_LARGE);
  stk_pool_free(tiny);

  x[0] = 0.0f / 0.0f;
  EXPECT(stk_pool_call(small, "m1", "", 1, in, 1, out, 1, NULL), 2);
  x[0] = 0.5f;
  EXPECT(stk_pool_call(small, "m1", "", 1, in, 1, out, 1, NULL), 0);
  int all = 0;
  for (int k = 0; k < THREADS; k++) all += wrong[k];
  printf("calls %lld hits %lld loads %lld evictions %lld wrong %d y", (long long)counts.calls,
         (long long)counts.hits, (long long)counts.loads, (long long)counts.evictions, all);
  for (int k = 0; k < OUTPUTS; k++) printf(" %.9g", (double)y[k]);
  printf("\n");
  stk_pool_free(small);
  stk_pool_free(whole);
  return 0;
}
