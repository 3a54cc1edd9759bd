#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "NaN must stay NaN: compile without -Ofast, -ffast-math and -ffinite-math-only; with Intel's compilers and clang use -ffp-model=precise"
#endif
/* Elementary functions without branches, which compilers turn into vector code. */
/* NaN in the first argument is propagated. */
#define stk_max(a, b) ((a) < (b) ? (b) : (a))
#define stk_min(a, b) ((a) > (b) ? (b) : (a))
/* NaN in any argument is propagated. */
#define stk_larger(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))
#define stk_smaller(a, b) ((a) != (a) || (a) < (b) ? (a) : (b))
/* Whether a number is NaN or infinite, read from its bits, which no flag of a compiler changes. */
typedef uint32_t stk_bits_float __attribute__((may_alias));
static inline int stk_wrong_float(const float *x, int64_t n) {
  const stk_bits_float *bits = (const stk_bits_float *)x;
  int wrong = 0;
  #pragma omp simd reduction(|:wrong)
  for (int64_t i = 0; i < n; i++) wrong |= (bits[i] & 0x7f800000u) == 0x7f800000u;
  return wrong;
}
typedef uint64_t stk_bits_double __attribute__((may_alias));
static inline int stk_wrong_double(const double *x, int64_t n) {
  const stk_bits_double *bits = (const stk_bits_double *)x;
  int wrong = 0;
  #pragma omp simd reduction(|:wrong)
  for (int64_t i = 0; i < n; i++)
    wrong |= (bits[i] & UINT64_C(0x7ff0000000000000)) == UINT64_C(0x7ff0000000000000);
  return wrong;
}
static inline float stk_exp_float(float x) {
  /* Cephes: 2^n e^r, |r| <= ln(2)/2; 0 below -104 and infinite above 88.73 after rounding. */
  const float c = stk_min(stk_max(x, -104.0f), 89.0f);
  const float n = rintf(c * 1.44269504f);
  const float r = c - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  /* Two factors, as 2^n of -150 <= n <= 128 is not always a float. */
  const int32_t whole = (int32_t)n, half = whole >> 1;
  union { int32_t i; float f; } one = {.i = (half + 127) * 8388608};
  union { int32_t i; float f; } other = {.i = (whole - half + 127) * 8388608};
  return (p * r * r + r + 1) * one.f * other.f;
}
static inline float stk_tanh_float(float x) {
  /* A rational function of odd degree 13 over even degree 6, as Eigen's. */
  const float c = stk_min(stk_max(x, -7.90531111f), 7.90531111f), s = c * c;
  float p = -2.76076847742355e-16f;
  p = p * s + 2.00018790482477e-13f;
  p = p * s - 8.60467152213735e-11f;
  p = p * s + 5.12229709037114e-08f;
  p = p * s + 1.48572235717979e-05f;
  p = p * s + 6.37261928875436e-04f;
  p = p * s + 4.89352455891786e-03f;
  float q = 1.19825839466702e-06f;
  q = q * s + 1.18534705686654e-04f;
  q = q * s + 2.26843463243900e-03f;
  q = q * s + 4.89352518554385e-03f;
  return c * p / q;
}
static inline float stk_erf_float(float x) {
  /* A rational function of odd degree 13 over even degree 8, as Eigen's. */
  const float c = stk_min(stk_max(x, -4.0f), 4.0f), s = c * c;
  float p = -2.72614225801306e-10f;
  p = p * s + 2.77068142495902e-08f;
  p = p * s - 2.10102402082508e-06f;
  p = p * s - 5.69250639462346e-05f;
  p = p * s - 7.34990630326855e-04f;
  p = p * s - 2.95459980854025e-03f;
  p = p * s - 1.60960333262415e-02f;
  float q = -1.45660718464996e-05f;
  q = q * s - 2.13374055278905e-04f;
  q = q * s - 1.68282697438203e-03f;
  q = q * s - 7.37332916720468e-03f;
  q = q * s - 1.42647390514189e-02f;
  return c * p / q;
}
static inline float stk_sigmoid_float(float x) { return 1 / (1 + stk_exp_float(-x)); }
static inline float stk_gelu_float(float x) { return 0.5f * x * (1 + stk_erf_float(x * 0.70710678f)); }
static inline float stk_gelu_tanh_float(float x) {
  return x * stk_sigmoid_float(1.59576912f * (x + 0.044715f * x * x * x));
}
static inline double stk_sigmoid_double(double x) { return 1 / (1 + exp(-x)); }
static inline double stk_gelu_double(double x) { return 0.5 * x * (1 + erf(x * 0.70710678118654752)); }
static inline double stk_gelu_tanh_double(double x) {
  return x * stk_sigmoid_double(1.5957691216057308 * (x + 0.044715 * x * x * x));
}
static inline double stk_erfinv(double x) {
  /* Winitzki's approximation and Newton steps. */
  if (!(fabs(x) < 1)) return fabs(x) == 1 ? copysign(INFINITY, x) : NAN;
  const double l = log1p(-x * x), m = 4.3307467508 + l / 2;
  double y = copysign(sqrt(sqrt(m * m - l / 0.147) - m), x);
  for (int k = 0; k < 4; k++) y -= (erf(y) - x) * 0.88622692545275801 * exp(y * y);
  return y;
}
static inline double stk_digamma(double x) {
  /* Reflection, recurrence to 10 and an asymptotic series. */
  double more = 0;
  if (x == 0) return copysign(INFINITY, -x);
  if (x < 0) {
    if (x == floor(x)) return NAN;
    /* From the nearest integer, as x - floor(x) of a small x is rounded to 1. */
    more = -3.14159265358979324 / tan(3.14159265358979324 * (x - rint(x)));
    x = 1 - x;
  }
  for (; x < 10; x++) more -= 1 / x;
  const double s = 1 / (x * x);
  return more + log(x) - 0.5 / x
       - s * (1. / 12 - s * (1. / 120 - s * (1. / 252 - s * (1. / 240 - s / 132))));
}
/* exp(-|x|) I(x), the modified Bessel function of order 0 or 1: the power series, of which no term
   cancels another, and the asymptotic series from 30. */
static inline double stk_bessel_scaled(double x, int order) {
  const double size = fabs(x);
  double term = 1, total;
  if (size < 30) {
    if (order) term = size / 2;
    total = term;
    for (int k = 1; term > 1e-17 * total; k++) {
      term *= size * size / (4. * k * (k + order));
      total += term;
    }
    total *= exp(-size);
  } else {
    total = 1;
    for (int k = 1; k < 30; k++) {
      term *= ((2. * k - 1) * (2. * k - 1) - 4 * order) / (8 * k * size);
      total += term;
    }
    total /= sqrt(6.283185307179586 * size);
  }
  return order && x < 0 ? -total : total;
}
static inline double stk_bessel(double x, int order) {
  /* exp(|x|) may be infinite where I(x) is not. */
  const double half = exp(fabs(x) / 2);
  return stk_bessel_scaled(x, order) * half * half;
}
/* exp(x^2) erfc(x), by its asymptotic series from 25, where factors leave the range. */
static inline double stk_erfcx(double x) {
  const double square = x * x, s = 0.5 / square;
  /* A rounded square changes its exponential by as much. */
  const double rest = fabs(x) < 27 ? fma(x, x, -square) : 0;
  if (x < 25) return exp(square) * (1 + rest) * erfc(x);
  return (1 - s * (1 - 3 * s * (1 - 5 * s * (1 - 7 * s * (1 - 9 * s))))) / (1.772453850905516 * x);
}
/* Gaussian elimination with row pivots: b (n, m) becomes the solution of a (n, n) x = b, and the
   determinant of a is sign exp(logarithm). NaN, and infinity for a singular matrix, go on. */
static inline void stk_eliminate(double *a, int64_t n, double *b, int64_t m, double *sign,
                                 double *logarithm) {
  *sign = 1;
  *logarithm = 0;
  for (int64_t k = 0; k < n; k++) {
    int64_t pivot = k;
    for (int64_t i = k + 1; i < n; i++)
      if (fabs(a[i * n + k]) > fabs(a[pivot * n + k])) pivot = i;
    if (pivot != k) {
      for (int64_t j = 0; j < n; j++) {
        const double t = a[k * n + j];
        a[k * n + j] = a[pivot * n + j];
        a[pivot * n + j] = t;
      }
      for (int64_t j = 0; j < m; j++) {
        const double t = b[k * m + j];
        b[k * m + j] = b[pivot * m + j];
        b[pivot * m + j] = t;
      }
      *sign = -*sign;
    }
    const double p = a[k * n + k];
    *sign *= p > 0 ? 1 : p < 0 ? -1 : p; /* 0 and NaN stay */
    *logarithm += log(fabs(p));
    for (int64_t i = k + 1; i < n && m == 0 && p == 0; i++) a[i * n + k] = 0;
    if (m == 0 && p == 0) continue; /* a determinant of 0 needs no further column */
    for (int64_t i = k + 1; i < n; i++) {
      const double f = a[i * n + k] / p;
      for (int64_t j = k + 1; j < n; j++) a[i * n + j] -= f * a[k * n + j];
      for (int64_t j = 0; j < m; j++) b[i * m + j] -= f * b[k * m + j];
    }
  }
  for (int64_t k = n; k-- > 0;)
    for (int64_t j = 0; j < m; j++) {
      double total = b[k * m + j];
      for (int64_t i = k + 1; i < n; i++) total -= a[k * n + i] * b[i * m + j];
      b[k * m + j] = total / a[k * n + k];
    }
}
/* The lower factor l of a symmetric matrix a = l l^T, in its place; NaN if a is not positive. */
static inline void stk_cholesky(double *a, int64_t n) {
  for (int64_t k = 0; k < n; k++)
    for (int64_t i = 0; i < n; i++) {
      double total = a[i * n + k];
      for (int64_t j = 0; j < k; j++) total -= a[i * n + j] * a[k * n + j];
      a[i * n + k] = i < k ? 0 : i == k ? sqrt(total) : total / a[k * n + k];
    }
}
/* Order of n numbers, stable, NaN as the largest; spare has n entries. */
#define STK_SORT(type)                                                                             \
  static inline int stk_before_##type(type a, type b, int falling) {                               \
    return falling ? a > b || (a != a && b == b) : a < b || (b != b && a == a);                    \
  }                                                                                                \
  static inline void stk_sort_##type(const type *x, int64_t n, int falling, int64_t *order,        \
                                     int64_t *spare) {                                             \
    for (int64_t k = 0; k < n; k++) order[k] = k;                                                  \
    for (int64_t width = 1; width < n; width *= 2) {                                               \
      for (int64_t start = 0; start < n; start += 2 * width) {                                     \
        const int64_t middle = start + width < n ? start + width : n;                              \
        const int64_t end = start + 2 * width < n ? start + 2 * width : n;                         \
        int64_t a = start, b = middle;                                                             \
        for (int64_t k = start; k < end; k++) {                                                    \
          const int right = a == middle ||                                                         \
            (b < end && stk_before_##type(x[order[b]], x[order[a]], falling));                     \
          spare[k] = right ? order[b++] : order[a++];                                              \
        }                                                                                          \
      }                                                                                            \
      for (int64_t k = 0; k < n; k++) order[k] = spare[k];                                         \
    }                                                                                              \
  }
STK_SORT(float)
STK_SORT(double)
STK_SORT(int64_t)
STK_SORT(int32_t)
#define stk_exp(x) _Generic((x), float: stk_exp_float, default: exp)(x)
#define stk_tanh(x) _Generic((x), float: stk_tanh_float, default: tanh)(x)
#define stk_erf(x) _Generic((x), float: stk_erf_float, default: erf)(x)
#define stk_sigmoid(x) _Generic((x), float: stk_sigmoid_float, default: stk_sigmoid_double)(x)
#define stk_gelu(x) _Generic((x), float: stk_gelu_float, default: stk_gelu_double)(x)
#define stk_gelu_tanh(x) _Generic((x), float: stk_gelu_tanh_float, default: stk_gelu_tanh_double)(x)
/* Divisions as torch has them: the remainder has the sign of b, and is exact as fmod is. */
static inline double stk_remainder(double a, double b) {
  const double r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static inline double stk_floor_divided(double a, double b) {
  const double r = fmod(a, b), q = (a - r) / b - (r != 0 && (r < 0) != (b < 0));
  const double whole = floor(q) + (q - floor(q) > 0.5);
  return b == 0 ? a / b : q == 0 ? copysign(0.0, a / b) : whole;
}
static inline int64_t stk_remainder_whole(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0; /* the least number divided by -1 traps */
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
/* Whole numbers, which double holds only to 2^53; they wrap as in torch. Division by 0 is refused. */
static inline int64_t stk_absolute_whole(int64_t a) { return a < 0 ? (int64_t)-(uint64_t)a : a; }
static inline int64_t stk_power_whole(int64_t a, int64_t b) {
  uint64_t power = 1, base = (uint64_t)a;
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
  for (; b > 0; b >>= 1, base *= base) power *= b & 1 ? base : 1;
  return (int64_t)power;
}
static inline int64_t stk_divided_whole(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? (int64_t)-(uint64_t)a : a / b;
}
static inline int64_t stk_floor_divided_whole(int64_t a, int64_t b) {
  return stk_divided_whole(a, b) - (b != 0 && b != -1 && a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t stk_fmod_whole(int64_t a, int64_t b) {
  return b == 0 || b == -1 ? 0 : a % b;
}
/* An index as in torch, where negative ones count from the end; clamped to the array. */
static inline int64_t stk_within(int64_t i, int64_t size) {
  i += i < 0 ? size : 0;
  return i < 0 ? 0 : i >= size ? size - 1 : i;
}
