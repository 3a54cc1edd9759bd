/* Internal declarations shared by the units of an exported potential. */
#ifndef STK_INTERNAL_H
#define STK_INTERNAL_H
#include "settings.h"
#include "stk_model.h"

/* One translation unit per kernel and variant: names have the variant as suffix. */
#define STK_PASTE_(a, b) a##_##b
#define STK_PASTE(a, b) STK_PASTE_(a, b)
#define STK_OF(name) STK_PASTE(name, STK_VARIANT)
#define STK_TEXT_(a) #a
#define STK_TEXT(a) STK_TEXT_(a)
#define STK_ROUND(bytes) (((int64_t)(bytes) + 63) / 64 * 64)

typedef STK_REAL real;

/* Arrays of the weights file, listed by STK_ARRAYS as X(name, count, type). */
#define STK_NUMBER_OF(name, count, type) STK_ARRAY_##name,
enum { STK_ARRAYS(STK_NUMBER_OF) STK_NUM_ARRAYS };

/* Functions of one instruction set. */
typedef struct {
  const char *instructions;
  void *(*prepare)(const stk_model *); /* packed parameters, NULL on failure */
  void (*release)(void *prepared);
  int64_t (*workspace)(const stk_model *, int64_t, int64_t, int64_t, int32_t);
  stk_run *(*begin)(const stk_model *, const stk_graph *, void *, int32_t, double *, double *);
  int32_t (*advance)(stk_run *, stk_exchange *);
} stk_variant;

struct stk_model {
  stk_info info;
  const stk_variant *variant;
  const void *arrays[STK_NUM_ARRAYS];
  void *file, *prepared;
};

/* First member of every run, with which stk_advance finds its variant. */
struct stk_run {
  const stk_model *model;
  stk_graph graph;
  double *energy, *gradient;
  int32_t threads, stage;
};

/* A workspace, or its size in bytes while `base` is NULL. */
typedef struct {
  char *base;
  int64_t used;
} arena;

/* The next part of a workspace, on a cache line; NULL while it is only measured. */
static inline void *take(arena *from, int64_t bytes) {
  void *part = from->base ? from->base + from->used : NULL;
  from->used += STK_ROUND(bytes);
  return part;
}

#define STK_WEIGHTS(model, name) ((model)->arrays[STK_ARRAY_##name])
#endif
