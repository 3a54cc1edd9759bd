/* HEADS, WIDTH (columns a head), LANES (a divisor of WIDTH), BLOCK, IS_DOUBLE and the type `real` are
   defined by the generator. A row is summed by one thread in stored order, so the result does not
   depend on the number of threads. */

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

/* exp(x) for x <= 0, to the last two bits; NaN stays. Cephes' approximations. */
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

static inline real dot(const real *restrict a, const real *restrict b) {
  vec sum = {0};
  for (int v = 0; v < VECTORS; v++) sum += *(const vec *)(a + v * LANES) * *(const vec *)(b + v * LANES);
  real part[LANES];
  memcpy(part, &sum, sizeof part);
  for (int step = LANES / 2; step; step /= 2)
    for (int l = 0; l < step; l++) part[l] += part[l + step];
  return part[0];
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

static void attend(int64_t begin, int64_t end, int64_t last, const int32_t *restrict column,
                   const real *restrict left, const real *restrict right, const real *restrict x,
                   real slope, real *restrict out, real *restrict norm, real *restrict positive,
                   real *restrict share) {
  real top[HEADS], total[HEADS], above[HEADS], score[BLOCK * HEADS], rising[BLOCK * HEADS];
  for (int h = 0; h < HEADS; h++) { top[h] = -INFINITY; total[h] = above[h] = 0; }
  memset(out, 0, ROW * sizeof(real));
  memset(positive, 0, ROW * sizeof(real));
  for (int64_t e = begin; e < end; e += BLOCK) {
    const int count = end - e < BLOCK ? (int)(end - e) : BLOCK;
    for (int b = 0; b < BLOCK; b++) {
      const int64_t soon = e + count + b;
      if (soon < last) {
        ask_for(x + (int64_t)column[soon] * ROW, ROW);
        ask_for(right + (int64_t)column[soon] * HEADS, HEADS);
      }
    }
    real largest[HEADS];
    memcpy(largest, top, sizeof top);
    for (int b = 0; b < count; b++)
      for (int h = 0; h < HEADS; h++) {
        const real s = left[h] + right[(int64_t)column[e + b] * HEADS + h];
        const real leaky = s > 0 ? s : slope * s;
        rising[b * HEADS + h] = s > 0;
        score[b * HEADS + h] = leaky;
        largest[h] = leaky > largest[h] ? leaky : largest[h];
      }
    /* A larger score than all before: what is summed so far becomes smaller against it. */
    if (memcmp(largest, top, sizeof top)) {
      for (int h = 0; h < HEADS; h++) {
        const real less = exponential(top[h] - largest[h]);
        total[h] *= less;
        above[h] *= less;
        for (int c = h * WIDTH; c < (h + 1) * WIDTH; c++) { out[c] *= less; positive[c] *= less; }
        top[h] = largest[h];
      }
    }
    for (int b = 0; b < count; b++)
      for (int h = 0; h < HEADS; h++) score[b * HEADS + h] -= top[h];
    for (int k = 0; k < count * HEADS; k++) score[k] = exponential(score[k]);
    for (int k = 0; k < count * HEADS; k++) rising[k] *= score[k];
    for (int b = 0; b < count; b++)
      for (int h = 0; h < HEADS; h++) {
        total[h] += score[b * HEADS + h];
        above[h] += rising[b * HEADS + h];
      }
    add_rows(out, score, count, column + e, x);
    add_rows(positive, rising, count, column + e, x);
  }
  for (int h = 0; h < HEADS; h++) {
    const real scale = end > begin ? 1 / total[h] : 0;
    for (int c = h * WIDTH; c < (h + 1) * WIDTH; c++) { out[c] *= scale; positive[c] *= scale; }
    share[h] = above[h] * scale;
    norm[h] = end > begin ? top[h] + (real)log(total[h]) : 0;
  }
}

void attention(int64_t rows, const int64_t *restrict pointer, const int32_t *restrict column,
               const real *restrict left, const real *restrict right, const real *restrict x,
               const real *restrict slope, real *restrict out, real *restrict norm,
               real *restrict positive, real *restrict share, int64_t threads) {
  #pragma omp parallel for schedule(dynamic, ROWS_PER_TASK) num_threads(threads) if(threads > 1)
  for (int64_t i = 0; i < rows; i++)
    attend(pointer[i], pointer[i + 1], pointer[rows], column, left + i * HEADS, right, x, *slope,
           out + i * ROW, norm + i * HEADS, positive + i * ROW, share + i * HEADS);
}

/* What the columns read of a row, and the derivative by `left`. */
void attention_rows(int64_t rows, const real *restrict left, const real *restrict out,
                    const real *restrict norm, const real *restrict positive,
                    const real *restrict share, const real *restrict grad,
                    const real *restrict slope, real *restrict of_rows, real *restrict by_left,
                    int64_t threads) {
  #pragma omp parallel for schedule(static) num_threads(threads) if(threads > 1)
  for (int64_t i = 0; i < rows; i++)
    for (int h = 0; h < HEADS; h++) {
      const int64_t k = i * HEADS + h;
      const real mean = dot(grad + k * WIDTH, out + k * WIDTH);
      real *row = of_rows + i * 3 * HEADS + h;
      row[0] = left[k];
      row[HEADS] = norm[k];
      row[2 * HEADS] = mean;
      by_left[k] = (1 - *slope) * (dot(grad + k * WIDTH, positive + k * WIDTH) - mean * share[k]);
    }
}

static void attended(int64_t begin, int64_t end, int64_t last, const int32_t *restrict row,
                     const real *restrict right, const real *restrict x,
                     const real *restrict of_rows, const real *restrict grad, real slope,
                     real *restrict by_right, real *restrict by_x) {
  real weight[BLOCK * HEADS], steep[BLOCK * HEADS], product[BLOCK * HEADS];
  memset(by_right, 0, HEADS * sizeof(real));
  memset(by_x, 0, ROW * sizeof(real));
  for (int64_t e = begin; e < end; e += BLOCK) {
    const int count = end - e < BLOCK ? (int)(end - e) : BLOCK;
    for (int b = 0; b < BLOCK; b++) {
      const int64_t soon = e + count + b;
      if (soon < last) {
        ask_for(grad + (int64_t)row[soon] * ROW, ROW);
        ask_for(of_rows + (int64_t)row[soon] * 3 * HEADS, 3 * HEADS);
      }
    }
    for (int b = 0; b < count; b++) {
      const real *restrict of = of_rows + (int64_t)row[e + b] * 3 * HEADS;
      const real *restrict g = grad + (int64_t)row[e + b] * ROW;
      for (int h = 0; h < HEADS; h++) {
        const real s = of[h] + right[h];
        weight[b * HEADS + h] = (s > 0 ? s : slope * s) - of[HEADS + h];
        steep[b * HEADS + h] = s > 0 ? 1 : slope;
      }
      for (int h = 0; h < HEADS; h++)
        product[b * HEADS + h] = dot(g + h * WIDTH, x + h * WIDTH) - of[2 * HEADS + h];
    }
    for (int k = 0; k < count * HEADS; k++) weight[k] = exponential(weight[k]);
    for (int b = 0; b < count; b++)
      for (int h = 0; h < HEADS; h++)
        by_right[h] += weight[b * HEADS + h] * product[b * HEADS + h] * steep[b * HEADS + h];
    add_rows(by_x, weight, count, row + e, grad);
  }
}

/* The derivatives by `right` and `x`; pointer and row are those of the transposed pattern. */
void attention_columns(int64_t columns, const int64_t *restrict pointer,
                       const int32_t *restrict row, const real *restrict right,
                       const real *restrict x, const real *restrict of_rows,
                       const real *restrict grad, const real *restrict slope,
                       real *restrict by_right, real *restrict by_x, int64_t threads) {
  #pragma omp parallel for schedule(dynamic, ROWS_PER_TASK) num_threads(threads) if(threads > 1)
  for (int64_t j = 0; j < columns; j++)
    attended(pointer[j], pointer[j + 1], pointer[columns], row, right + j * HEADS, x + j * ROW,
             of_rows, grad, *slope, by_right + j * HEADS, by_x + j * ROW);
}
