/* Pack weights (in, out), or their transpose, as panels [out / mb][in][mb]. */
static void pack_panels(const REAL *w, int in, int out, int mb, int transpose, REAL *p) {
  int rows = transpose ? in : out, depth = transpose ? out : in;
  for (int m0 = 0; m0 < rows; m0 += mb)
    for (int k = 0; k < depth; k++)
      for (int r = 0; r < mb; r++)
        *p++ = m0 + r < rows ? (transpose ? w[(m0 + r) * out + k] : w[k * out + m0 + r]) : 0;
}

/* Transpose z[m][value, tangent] into rows [value, tangent][lane][m], padded with zeros. */
static inline void spread(const vec *z, int width, int stride, REAL *rows) {
  for (int m = 0; m < width; m++)
    for (int l = 0; l < LANES; l++) {
      rows[l * stride + m] = z[2 * m][l];
      rows[(LANES + l) * stride + m] = z[2 * m + 1][l];
    }
  for (int m = width; m < stride; m++)
    for (int l = 0; l < 2 * LANES; l++) rows[l * stride + m] = 0;
}

static inline void bias_gradient(int blocks, const REAL *rows, int width, int stride, REAL *g) {
  for (int b = 0; b < blocks; b++)
    for (int l = 0; l < LANES; l++)
      for (int m = 0; m < width; m++) g[m] += rows[(b * 2 * LANES + l) * stride + m];
}
