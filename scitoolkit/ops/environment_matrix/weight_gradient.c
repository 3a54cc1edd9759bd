/* g[k][m] += sum over edges of h[k] z[m] + h'[k] z'[m] for @MB@ rows k at a time. */
static void weight_gradient@MB@(int blocks, const vec *const *restrict act, int at, int k0,
    int rows_here, const REAL *restrict rows, int width, int stride, REAL *restrict g) {
  for (int m = 0; m < width; m += 2 * LANES) {
    vec a[@MB@][2];
    for (int r = 0; r < @MB@; r++) { a[r][0] = (vec){0}; a[r][1] = (vec){0}; }
    int second = m + LANES < stride;
    for (int b = 0; b < blocks; b++) {
      const REAL *x = (const REAL *)(act[b] + at + 2 * k0);
      const REAL *y = rows + b * 2 * LANES * stride + m;
      for (int j = 0; j < 2 * LANES; j++, y += stride) {
        vec y0, y1 = {0};
        memcpy(&y0, y, sizeof(vec));
        if (second) memcpy(&y1, y + LANES, sizeof(vec));
#pragma GCC unroll 8
        for (int r = 0; r < @MB@; r++) {
          REAL scalar = x[r * 2 * LANES + j];
          a[r][0] += scalar * y0; a[r][1] += scalar * y1;
        }
      }
    }
    for (int r = 0; r < rows_here; r++)
      for (int v = 0; v < 2; v++)
        for (int l = 0; l < LANES && m + v * LANES + l < width; l++)
          g[(k0 + r) * width + m + v * LANES + l] += a[r][v][l];
  }
}
