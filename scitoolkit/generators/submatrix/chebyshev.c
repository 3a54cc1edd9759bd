/* Lanczos steps and Chebyshev series of a sparse matrix times WIDTH columns; a row of the columns is
   contiguous. */
#include <math.h>
#include <stdint.h>
#define WIDTH 16
#ifdef __AVX512F__
#define LANES 8
#else
#define LANES 4
#endif
#define PARTS (WIDTH / LANES)
typedef double vec __attribute__((vector_size(8 * LANES), aligned(8)));

/* out = scale A x - out; A has the rows [0, n). */
static void product(int64_t n, const int32_t *restrict pointer, const int32_t *restrict column,
                    const double *restrict value, double scale, const double *restrict x,
                    double *restrict out) {
  for (int64_t i = 0; i < n; i++) {
    vec sum[PARTS];
    for (int p = 0; p < PARTS; p++) sum[p] = (vec){0};
    for (int32_t e = pointer[i]; e < pointer[i + 1]; e++) {
      const vec *row = (const vec *)(x + (int64_t)column[e] * WIDTH);
      for (int p = 0; p < PARTS; p++) sum[p] += value[e] * row[p];
    }
    vec *y = (vec *)(out + i * WIDTH);
    for (int p = 0; p < PARTS; p++) y[p] = scale * sum[p] - y[p];
  }
}

static double inner(int64_t n, const double *restrict a, const double *restrict b) {
  vec sum[PARTS];
  for (int p = 0; p < PARTS; p++) sum[p] = (vec){0};
  for (int64_t i = 0; i < n; i++)
    for (int p = 0; p < PARTS; p++)
      sum[p] += *(const vec *)(a + i * WIDTH + p * LANES) * *(const vec *)(b + i * WIDTH + p * LANES);
  double total = 0;
  for (int p = 0; p < PARTS; p++)
    for (int l = 0; l < LANES; l++) total += sum[p][l];
  return total;
}

static void add(int64_t n, double factor, const double *restrict t, double *restrict out) {
  for (int64_t i = 0; i < n * WIDTH; i++) out[i] += factor * t[i];
}

static void divide(int64_t n, double by, double *restrict out) {
  for (int64_t i = 0; i < n * WIDTH; i++) out[i] /= by;
}

/* Lanczos steps on all columns as one vector; b was 0, and a, of norm 1, and b are overwritten.
   Returns the steps made: fewer where the vectors span an invariant space. beta[k] is the norm that
   step k leaves over. */
int64_t lanczos(int64_t n, const int32_t *pointer, const int32_t *column, const double *value,
                int64_t steps, double smallest, double *a, double *b, double *alpha, double *beta) {
  for (int64_t k = 0; k < steps; k++) {
    if (k) /* b is the vector before a */
      for (int64_t i = 0; i < n * WIDTH; i++) b[i] *= beta[k - 1];
    product(n, pointer, column, value, 1.0, a, b);
    alpha[k] = inner(n, a, b);
    add(n, -alpha[k], a, b);
    beta[k] = sqrt(inner(n, b, b));
    if (!(beta[k] > smallest)) return k + 1;
    divide(n, beta[k], b);
    double *swap = a;
    a = b;
    b = swap;
  }
  return steps;
}

/* out += sum over k of factors[k] T_k B, for k <= degree; a was B and b 0, and both are overwritten. */
void series(int64_t n, const int32_t *pointer, const int32_t *column, const double *value,
            int64_t degree, const double *factors, double *a, double *b, double *out) {
  product(n, pointer, column, value, 1.0, a, b); /* b was 0 */
  add(n, factors[0], a, out);
  if (degree > 0) add(n, factors[1], b, out);
  for (int64_t k = 2; k <= degree; k++) {
    product(n, pointer, column, value, 2.0, b, a);
    add(n, factors[k], a, out);
    double *swap = a;
    a = b;
    b = swap;
  }
}
