/* Many surrogates by name under a budget of bytes, for programs in C, C++ and Fortran.

   The files are those of `scitoolkit export RUN -o NAME.weights`, each beside the code that it
   names. Compile scitoolkit_pool.c into the program (-ldl -lpthread -lm). All functions may be
   called by several threads at once; a call that needs memory which others use waits for them. */
#ifndef SCITOOLKIT_POOL_H
#define SCITOOLKIT_POOL_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct stk_pool stk_pool;

/* 0, 1 and 2 are the statuses of surrogates: computed; computed, but an input is outside the box of
   the training inputs; an input or output is NaN or infinite. */
#define STK_POOL_UNKNOWN 16   /* no surrogate, or no function, of this name */
#define STK_POOL_TAKEN 17     /* the name is in the pool already */
#define STK_POOL_TOO_LARGE 18 /* larger than the budget */
#define STK_POOL_FILE 19      /* no such file, damaged, replaced, or without its code */
#define STK_POOL_ARGUMENTS 20 /* arrays of another number or size, or a null pointer */
#define STK_POOL_MEMORY 21    /* no memory */

/* What went wrong in the last call of this thread that returned 16 or more. */
const char *stk_pool_error(void);

/* Make a pool that holds at most so many bytes of weights. */
int stk_pool_new(int64_t budget, stk_pool **pool);
/* End it: no call may be in progress. */
void stk_pool_free(stk_pool *pool);

/* Add a surrogate; its weights are read when it is first called. */
int stk_pool_add(stk_pool *pool, const char *name, const char *path);
/* Take a surrogate out when the calls in progress have ended. */
int stk_pool_remove(stk_pool *pool, const char *name);

/* Call a function of a surrogate.
   function: "" for the only one, or a name of those in stk_pool_about.
   samples: leading dimension of all arrays but shared ones.
   inputs, outputs: float32 arrays in C order.
   sample_status: one status a sample, or null.
   Returns the largest status of a sample, or one of the above. */
int stk_pool_call(stk_pool *pool, const char *name, const char *function, int64_t samples,
                  const float *const *inputs, int number_of_inputs, float *const *outputs,
                  int number_of_outputs, int32_t *sample_status);

/* Compare the numbers of elements of arrays with those that so many samples of a function take.
   Returns 0, STK_POOL_ARGUMENTS or STK_POOL_UNKNOWN. */
int stk_pool_check(stk_pool *pool, const char *name, const char *function, int64_t samples,
                   const int64_t *inputs, int number_of_inputs, const int64_t *outputs,
                   int number_of_outputs);

/* Description of a surrogate, JSON: functions, arrays, units and boxes; null if unknown. It is valid
   until the surrogate is removed. */
const char *stk_pool_about(stk_pool *pool, const char *name);

typedef struct {
  int64_t calls, hits, loads, evictions, failures, models, resident_bytes, budget_bytes;
} stk_pool_counts;
void stk_pool_statistics(stk_pool *pool, stk_pool_counts *counts);

#ifdef __cplusplus
}
#endif
#endif
