/* Dot products of quantised weights and integer inputs, L outputs at a time, by instruction set.

   stk_bytes: 4 inputs of L outputs, codes unsigned (4 L bytes), inputs signed (4 in an int32).
   stk_octets: as stk_bytes for codes of 8 bits, with sums of 32 bits.
   stk_words: 2 inputs of L outputs, codes signed (2 L bytes), inputs of 16 bits (2 in an int32).
   All variants return equal integers. stk_bytes may accumulate pairs of 16-bit sums, which
   stk_pairs widens before they overflow. */
#if defined(__AVX2__)
#include <immintrin.h>
#endif
typedef int32_t stk_int __attribute__((may_alias, aligned(1)));
typedef int32_t vec_i __attribute__((vector_size(4 * LANES_float), aligned(4), may_alias));
typedef uint16_t vec_h __attribute__((vector_size(4 * LANES_float), aligned(1), may_alias));
typedef int8_t vec_b __attribute__((vector_size(4 * LANES_float), aligned(1), may_alias));
#define STK_DEFINED static inline __attribute__((always_inline))
STK_DEFINED vec_float stk_floats(vec_i s) { return __builtin_convertvector(s, vec_float); }
#if defined(__AVX512VNNI__) && LANES_float == 16
#define STK_EXACT 1
STK_DEFINED vec_i stk_bytes(vec_i s, vec_h codes, int32_t x) {
  return (vec_i)_mm512_dpbusd_epi32((__m512i)s, (__m512i)codes, _mm512_set1_epi32(x));
}
#elif defined(__AVXVNNI__) && LANES_float == 8
#define STK_EXACT 1
STK_DEFINED vec_i stk_bytes(vec_i s, vec_h codes, int32_t x) {
  return (vec_i)_mm256_dpbusd_avx_epi32((__m256i)s, (__m256i)codes, _mm256_set1_epi32(x));
}
#elif defined(__AVX512BW__) && LANES_float == 16
#define STK_EXACT 0
STK_DEFINED vec_i stk_bytes(vec_i s, vec_h codes, int32_t x) {
  return (vec_i)_mm512_add_epi16((__m512i)s, _mm512_maddubs_epi16((__m512i)codes, _mm512_set1_epi32(x)));
}
STK_DEFINED vec_i stk_pairs(vec_i s) {
  return (vec_i)_mm512_madd_epi16((__m512i)s, _mm512_set1_epi16(1));
}
#elif defined(__AVX2__) && LANES_float == 8
#define STK_EXACT 0
STK_DEFINED vec_i stk_bytes(vec_i s, vec_h codes, int32_t x) {
  return (vec_i)_mm256_add_epi16((__m256i)s, _mm256_maddubs_epi16((__m256i)codes, _mm256_set1_epi32(x)));
}
STK_DEFINED vec_i stk_pairs(vec_i s) {
  return (vec_i)_mm256_madd_epi16((__m256i)s, _mm256_set1_epi16(1));
}
#else
#define STK_EXACT 1
STK_DEFINED vec_i stk_bytes(vec_i s, vec_h codes, int32_t x) {
  const uint8_t *c = (const uint8_t *)&codes;
  const int8_t *a = (const int8_t *)&x;
  for (int l = 0; l < LANES_float; l++)
    s[l] += c[4 * l] * a[0] + c[4 * l + 1] * a[1] + c[4 * l + 2] * a[2] + c[4 * l + 3] * a[3];
  return s;
}
#endif
#if STK_EXACT
STK_DEFINED vec_i stk_pairs(vec_i s) { return s; }
STK_DEFINED vec_i stk_octets(vec_i s, vec_h codes, int32_t x) { return stk_bytes(s, codes, x); }
#elif defined(__AVX512BW__) && LANES_float == 16
STK_DEFINED vec_i stk_octets(vec_i s, vec_h codes, int32_t x) {
  const __m512i all = _mm512_set1_epi32(x), odd = _mm512_srai_epi16(all, 8);
  const __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(all, 8), 8);
  return s + (vec_i)_mm512_madd_epi16((__m512i)(codes & 255), even) +
         (vec_i)_mm512_madd_epi16((__m512i)(codes >> 8), odd);
}
#else
STK_DEFINED vec_i stk_octets(vec_i s, vec_h codes, int32_t x) {
  const __m256i all = _mm256_set1_epi32(x), odd = _mm256_srai_epi16(all, 8);
  const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(all, 8), 8);
  return s + (vec_i)_mm256_madd_epi16((__m256i)(codes & 255), even) +
         (vec_i)_mm256_madd_epi16((__m256i)(codes >> 8), odd);
}
#endif
#if defined(__AVX512BW__) && LANES_float == 16
STK_DEFINED vec_i stk_wide(const int8_t *p) {
  return (vec_i)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p));
}
STK_DEFINED vec_i stk_words(vec_i s, vec_i codes, int32_t x) {
#if defined(__AVX512VNNI__)
  return (vec_i)_mm512_dpwssd_epi32((__m512i)s, (__m512i)codes, _mm512_set1_epi32(x));
#else
  return s + (vec_i)_mm512_madd_epi16((__m512i)codes, _mm512_set1_epi32(x));
#endif
}
#elif defined(__AVX2__) && LANES_float == 8
STK_DEFINED vec_i stk_wide(const int8_t *p) {
  return (vec_i)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
}
STK_DEFINED vec_i stk_words(vec_i s, vec_i codes, int32_t x) {
  return s + (vec_i)_mm256_madd_epi16((__m256i)codes, _mm256_set1_epi32(x));
}
#else
typedef union { vec_i all; int16_t each[2 * LANES_float]; } stk_halves;
STK_DEFINED vec_i stk_wide(const int8_t *p) {
  stk_halves out;
  for (int l = 0; l < 2 * LANES_float; l++) out.each[l] = p[l];
  return out.all;
}
STK_DEFINED vec_i stk_words(vec_i s, vec_i codes, int32_t x) {
  const stk_halves c = {.all = codes};
  const union { int32_t all; int16_t each[2]; } a = {.all = x};
  for (int l = 0; l < LANES_float; l++)
    s[l] += c.each[2 * l] * a.each[0] + c.each[2 * l + 1] * a.each[1];
  return s;
}
#endif
/* Quantise one row of n inputs with a scale per group, padded with 0 to whole groups.
   scale[g] is the value of one step, sum[g] the sum of the integers of the group. The scale of a
   group with NaN or infinity is NaN: sizes are compared by their bits, where NaN is the largest. */
#define STK_ROUND(name, integer)                                                                   \
  STK_DEFINED void name(const float *x, int64_t n, int64_t group, float most,                      \
                        integer *out, float *scale, float *sum) {                                  \
    for (int64_t g = 0; g * group < n; g++) {                                                      \
      const float *p = x + g * group;                                                              \
      const stk_bits_float *bits = (const stk_bits_float *)p;                                      \
      integer *q = out + g * group;                                                                \
      const int64_t m = n - g * group < group ? n - g * group : group;                             \
      int32_t size = 0;                                                                            \
      _Pragma("omp simd reduction(max : size)") for (int64_t k = 0; k < m; k++) {                  \
        const int32_t own = (int32_t)(bits[k] & 0x7fffffffu);                                      \
        size = own > size ? own : size;                                                            \
      }                                                                                            \
      const union { int32_t i; float f; } largest = {.i = size};                                   \
      const int wrong = size >= 0x7f800000;                                                        \
      /* Smaller numbers are 0: a step of them is no normal number. */                             \
      const float to = !wrong && largest.f > 1e-33f ? most / largest.f : 0;                        \
      int32_t total = 0;                                                                           \
      if (to == 0)                                                                                 \
        for (int64_t k = 0; k < m; k++) q[k] = 0;                                                  \
      else {                                                                                       \
        _Pragma("omp simd reduction(+ : total)") for (int64_t k = 0; k < m; k++) {                 \
          const int32_t i = (int32_t)rintf(p[k] * to);                                             \
          total += i;                                                                              \
          q[k] = (integer)i;                                                                       \
        }                                                                                          \
      }                                                                                            \
      for (int64_t k = m; k < group; k++) q[k] = 0;                                                \
      scale[g] = wrong ? NAN : largest.f / most;                                                   \
      sum[g] = (float)total;                                                                       \
    }                                                                                              \
  }
STK_ROUND(stk_round_bytes, int8_t)
STK_ROUND(stk_round_words, int16_t)
