/* Dropout with random numbers of splitmix64 from (seed, row, column). The generator defines `real`,
   GOLDEN, MIX_1 and MIX_2. */
#include <stdint.h>
static inline uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * MIX_1;
  z = (z ^ (z >> 27)) * MIX_2;
  return z ^ (z >> 31);
}
void node_dropout(int64_t rows, int64_t width, const int64_t *restrict row, int64_t seed,
                  int64_t threshold, const real *restrict scale, const real *restrict x,
                  real *restrict out, int64_t threads) {
  #pragma omp parallel for num_threads(threads) if(threads > 1)
  for (int64_t i = 0; i < rows; ++i) {
    const uint64_t begin = mix(((uint64_t)row[i] + 1) * GOLDEN + (uint64_t)seed);
    for (int64_t k = 0; k < width; ++k) {
      const int64_t bits = mix(begin + (uint64_t)(k + 1) * GOLDEN) >> 40;
      out[i * width + k] = bits >= threshold ? x[i * width + k] * *scale : (real)0;
    }
  }
}
