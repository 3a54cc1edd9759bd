/* out[r] = sum over k of w[k][r] x[k] for @MB@ rows r of values and tangents. */
static inline __attribute__((always_inline)) void micro@MB@(
    int depth, const vec *restrict x, const REAL *restrict w, vec (*restrict out)[2]) {
  vec a[@MB@][2];
  for (int r = 0; r < @MB@; r++) { a[r][0] = (vec){0}; a[r][1] = (vec){0}; }
  for (int k = 0; k < depth; k++, w += @MB@) {
    vec x0 = x[2 * k], x1 = x[2 * k + 1];
#pragma GCC unroll 8
    for (int r = 0; r < @MB@; r++) { a[r][0] += w[r] * x0; a[r][1] += w[r] * x1; }
  }
  for (int r = 0; r < @MB@; r++) { out[r][0] = a[r][0]; out[r][1] = a[r][1]; }
}
