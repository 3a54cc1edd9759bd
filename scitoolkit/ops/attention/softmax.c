/* Online softmax of the scores of a row. The generator defines HEADS, WIDTH (columns per head),
   LANES (a divisor of WIDTH), BLOCK, IS_DOUBLE and the type `real`. One thread sums a row in stored
   order, so the result does not depend on the number of threads. */

#include <math.h>
#include <stdint.h>
#include <string.h>
#define ROW (HEADS * WIDTH)
#define VECTORS (WIDTH / LANES)
#define LINE 64
#define ROWS_PER_TASK 64
typedef real vec __attribute__((vector_size(LANES * sizeof(real)), aligned(sizeof(real))));
#if IS_DOUBLE
typedef int64_t whole;
#else
typedef int32_t whole;
#endif

/* exp(x) for x <= 0, exact up to the last two bits, NaN for NaN. Approximations of Cephes. */
static inline real exponential(real x) {
#if IS_DOUBLE
  const real least = -708.0, high = 6.93145751953125e-1, low = 1.42860682030941723212e-6;
  const whole bias = 1023, shift = 52;
#else
  const real least = -87.0f, high = 0.693359375f, low = -2.12194440e-4f;
  const whole bias = 127, shift = 23;
#endif
  x = x < least ? least : x;
  const real magic = (real)(IS_DOUBLE ? 6755399441055744.0 : 12582912.0);
  const real shifted = x * (real)1.44269504088896340736 + magic, n = shifted - magic;
  const real r = x - n * high - n * low, r2 = r * r;
  whole power, base;
  memcpy(&power, &shifted, sizeof power);
  memcpy(&base, &magic, sizeof base);
  power = (whole)((uint64_t)(power - base + bias) << shift);
  real scale;
  memcpy(&scale, &power, sizeof scale);
#if IS_DOUBLE
  const real p = r * ((r2 * 1.26177193074810590878e-4 + 3.02994407707441961300e-2) * r2
                      + 9.99999999999999999910e-1);
  const real q = ((r2 * 3.00198505138664455042e-6 + 2.52448340349684104192e-3) * r2
                  + 2.27265548208155028766e-1) * r2 + 2.00000000000000000005;
  return scale * (1 + 2 * p / (q - p));
#else
  const real p = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r
                   + 4.1665795894e-2f) * r + 1.6666665459e-1f) * r + 5.0000001201e-1f;
  return scale * (p * r2 + r + 1);
#endif
}

static inline real total_of(vec sum) {
  real part[LANES];
  memcpy(part, &sum, sizeof part);
  for (int step = LANES / 2; step; step /= 2)
    for (int l = 0; l < step; l++) part[l] += part[l + step];
  return part[0];
}

static inline real dot(const real *restrict a, const real *restrict b) {
  vec sum = {0};
  for (int v = 0; v < WIDTH; v += LANES) sum += *(const vec *)(a + v) * *(const vec *)(b + v);
  return total_of(sum);
}

static inline void ask_for(const real *row, int numbers) {
  for (int byte = 0; byte < numbers * (int)sizeof(real); byte += LINE)
    __builtin_prefetch((const char *)row + byte);
}

/* sum[h] += sum over b of weight[b, h] x[place[b], h] */
static inline void add_rows(real *restrict sum, const real *restrict weight, int count,
                            const int32_t *restrict place, const real *restrict x) {
  for (int h = 0; h < HEADS; h++) {
    vec a[VECTORS];
    memcpy(a, sum + h * WIDTH, sizeof a);
    for (int b = 0; b < count; b++) {
      const real *restrict row = x + (int64_t)place[b] * ROW + h * WIDTH;
      for (int v = 0; v < VECTORS; v++) a[v] += weight[b * HEADS + h] * *(const vec *)(row + v * LANES);
    }
    memcpy(sum + h * WIDTH, a, sizeof a);
  }
}

/* State of the online softmax: the largest score so far, and the sum of exp(score - largest). */
typedef struct { real top[HEADS], total[HEADS]; } softmax;

static inline void begin_softmax(softmax *s) {
  for (int h = 0; h < HEADS; h++) { s->top[h] = -INFINITY; s->total[h] = 0; }
}

/* Replace the scores of a block by exp(score - largest so far). If the largest score grows, return 1;
   all previous sums must then be multiplied by `less`. */
static inline int add_scores(softmax *s, real *restrict score, int count, real *restrict less) {
  real largest[HEADS];
  memcpy(largest, s->top, sizeof largest);
  for (int b = 0; b < count; b++)
    for (int h = 0; h < HEADS; h++)
      largest[h] = score[b * HEADS + h] > largest[h] ? score[b * HEADS + h] : largest[h];
  const int grows = memcmp(largest, s->top, sizeof largest) != 0;
  if (grows)
    for (int h = 0; h < HEADS; h++) {
      less[h] = exponential(s->top[h] - largest[h]);
      s->total[h] *= less[h];
      s->top[h] = largest[h];
    }
  for (int b = 0; b < count; b++)
    for (int h = 0; h < HEADS; h++) score[b * HEADS + h] -= largest[h];
  for (int k = 0; k < count * HEADS; k++) score[k] = exponential(score[k]);
  for (int b = 0; b < count; b++)
    for (int h = 0; h < HEADS; h++) s->total[h] += score[b * HEADS + h];
  return grows;
}

/* x[h, c] *= factor[h] */
static inline void scale_row(real *restrict x, const real *restrict factor) {
  for (int h = 0; h < HEADS; h++)
    for (int c = h * WIDTH; c < (h + 1) * WIDTH; c++) x[c] *= factor[h];
}

/* Compute 1 / total and the logarithm of the sum of exp(score), both 0 for an empty row. */
static inline void end_softmax(const softmax *s, int empty, real *restrict scale,
                               real *restrict norm) {
  for (int h = 0; h < HEADS; h++) {
    scale[h] = empty ? 0 : 1 / s->total[h];
    norm[h] = empty ? 0 : s->top[h] + (real)log(s->total[h]);
  }
}
