/* Vectors of the generated kernels: a lane is a cell of v. Included after the types of a vector. */
#ifdef _OPENMP
#include <omp.h>
#endif

#define LOAD(p) (*(const vecu *)(p))
#define STORE(p, v) (*(vecu *)(p) = (v))

static inline real across(vec v) {
  real sum = 0;
  for (int l = 0; l < LANES; l++) sum += v[l];
  return sum;
}
