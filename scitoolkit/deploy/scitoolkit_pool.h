/* Pool of surrogates with a memory budget, for programs in C, C++, Fortran and Python.

   The files are those of `scitoolkit export RUN -o NAME.weights`, with their code in the same
   folder. Compile scitoolkit_pool.c into the program (-ldl -lpthread -lm). All functions are
   thread-safe, except stk_pool_free; a call waits if other calls use the memory that it needs. */
#ifndef SCITOOLKIT_POOL_H
#define SCITOOLKIT_POOL_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct stk_pool stk_pool;

/* Statuses 0, 1 and 2 are those of surrogates: computed; computed, but an input is outside the box
   of the training inputs; an input or output is NaN or infinite. */
#define STK_POOL_UNKNOWN 16   /* no surrogate, or no function, of this name */
#define STK_POOL_TAKEN 17     /* the name is in use */
#define STK_POOL_TOO_LARGE 18 /* larger than the budget */
#define STK_POOL_FILE 19      /* no such file, damaged, replaced, or without its code */
#define STK_POOL_ARGUMENTS 20 /* wrong number or size of arrays, or a null pointer */
#define STK_POOL_MEMORY 21    /* no memory */

#define STK_POOL_MOST_ARRAYS 64 /* inputs and outputs of a function */

/* Message of the last call of this thread that returned 16 or more. */
const char *stk_pool_error(void);

/* Create a pool with a budget of bytes for the weights in memory. */
int stk_pool_new(int64_t budget, stk_pool **pool);
/* Free a pool; no call may be in progress. */
void stk_pool_free(stk_pool *pool);

/* Add a surrogate; its weights are read when it is first called. */
int stk_pool_add(stk_pool *pool, const char *name, const char *path);
/* Remove a surrogate after calls in progress have ended. */
int stk_pool_remove(stk_pool *pool, const char *name);

/* Read surrogates in advance, in the order of future calls, in a thread of the pool. A prefetched
   surrogate stays in memory until it is called or another call needs the memory; surrogates that do
   not fit yet are read as earlier ones are called. No names: forget those that were not read yet.
   Returns 0, STK_POOL_UNKNOWN, STK_POOL_ARGUMENTS or STK_POOL_MEMORY, then without any effect. */
int stk_pool_prefetch(stk_pool *pool, const char *const *names, int number_of_names);

/* Call a function of a surrogate.
   function: its name in stk_pool_about, "" if there is only one.
   samples: leading dimension of all arrays except shared ones.
   inputs, outputs: float32 arrays in C order.
   sample_status: one status per sample, or null.
   Returns the largest status of a sample, or one of the above. */
int stk_pool_call(stk_pool *pool, const char *name, const char *function, int64_t samples,
                  const float *const *inputs, int number_of_inputs, float *const *outputs,
                  int number_of_outputs, int32_t *sample_status);

/* Check the numbers of elements of arrays for a number of samples.
   Returns 0, STK_POOL_ARGUMENTS or STK_POOL_UNKNOWN. */
int stk_pool_check(stk_pool *pool, const char *name, const char *function, int64_t samples,
                   const int64_t *inputs, int number_of_inputs, const int64_t *outputs,
                   int number_of_outputs);

/* JSON description of a surrogate: functions, arrays, units and boxes; null if unknown. It is valid
   until the surrogate is removed, and describes the file that was read last. */
const char *stk_pool_about(stk_pool *pool, const char *name);

/* held_bytes: of weights in memory (resident_bytes) and of memory kept for others of their size. */
typedef struct {
  int64_t calls, hits, loads, evictions, failures, models, resident_bytes, held_bytes, budget_bytes;
} stk_pool_counts;
void stk_pool_statistics(stk_pool *pool, stk_pool_counts *counts);

#ifdef __cplusplus
}
#endif
#endif
