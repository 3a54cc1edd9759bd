/* Vectors of LANES elements of type REAL, and their tanh. The generator defines REAL, LANES and
   IS_DOUBLE. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <omp.h>
#if IS_DOUBLE
typedef int64_t whole;
#else
typedef int32_t whole;
#endif
typedef REAL vec __attribute__((vector_size(LANES * sizeof(REAL))));
typedef whole ivec __attribute__((vector_size(LANES * sizeof(REAL))));

/* tanh(x) = (e^2x - 1)/(e^2x + 1) with e^2x = 2^n (Q + rP)/(Q - rP), |r| <= ln(2)/2, where P and Q are
   those of the rational approximation of exp in Cephes. One division; no cancellation near 0, where
   n = 0. */
static inline vec vtanh(vec x) {
#if IS_DOUBLE
  const REAL most = 20.0, magic = 6755399441055744.0;
  const REAL ln2_high = 6.93145751953125e-1, ln2_low = 1.42860682030941723212e-6;
  const whole bias = 1023, shift = 52;
#else
  const REAL most = 10.0f, magic = 12582912.0f;
  const REAL ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  const whole bias = 127, shift = 23;
#endif
  ivec above = x > most, below = x < -most;
  vec high = (vec){0} + most;
  x = (vec)((((ivec)x) & ~(above | below)) | (((ivec)high) & above) | (((ivec)-high) & below));
  vec y = x + x;
  vec n = y * (REAL)1.44269504088896340736 + magic;
  ivec power = (ivec)n;
  n -= magic;
  vec r = y - n * ln2_high;
  r -= n * ln2_low;
  power = ((power - (ivec)((vec){0} + magic)) + bias) << shift;
  vec scale = (vec)power, r2 = r * r;
#if IS_DOUBLE
  vec P = ((r2 * 1.26177193074810590878e-4 + 3.02994407707441961300e-2) * r2
           + 9.99999999999999999910e-1) * r;
  vec Q = ((r2 * 3.00198505138664455042e-6 + 2.52448340349684104192e-3) * r2
           + 2.27265548208155028766e-1) * r2 + 2.00000000000000000005;
#else
  vec P = (r2 * 3.02994407707441961300e-2f + 1.0f) * r;
  vec Q = (r2 * 2.52448340349684104192e-3f + 2.27265548208155028766e-1f) * r2 + 2.0f;
#endif
  vec less = scale - 1, more = scale + 1;
  return (Q * less + P * more) / (Q * more + P * less);
}

void tanh_array(int64_t n, const REAL *x, REAL *y) {
  int64_t i = 0;
  vec v;
  for (; i + LANES <= n; i += LANES) {
    memcpy(&v, x + i, sizeof v);
    v = vtanh(v);
    memcpy(y + i, &v, sizeof v);
  }
  if (i < n) {
    v = (vec){0};
    memcpy(&v, x + i, (n - i) * sizeof(REAL));
    v = vtanh(v);
    memcpy(y + i, &v, (n - i) * sizeof(REAL));
  }
}

static inline REAL total(vec v) {
  REAL sum = 0;
  for (int l = 0; l < LANES; l++) sum += v[l];
  return sum;
}
