/* Products of small matrices with SIMD over their columns, the neighbours.

   out[r][v] = (out[r][v] or bias[r] or 0) + sum over k of a(r, k) b[k][v], with rows of `ld` reals
   in b and out. Tiles of ROWS x WIDE vectors stay in registers; the number of rows is a multiple of
   ROWS. Element (r, k) of a is at (r / ROWS) * tile + (r % ROWS) * row + k * step. */

#define ROWS 4
#if BYTES == 64
#define WIDE 6
#else
#define WIDE 3
#endif
#define ROWS_IN_CACHE 32 /* rows of a per loop over all columns */
#define V(p) (*(vecu *)(p))
static inline vec at(const real *p) { return *(const vecu *)p; }

static inline __attribute__((always_inline)) void product_tile(
    int wide, i64 depth, const real *a, i64 row, i64 step, const real *b, i64 ld,
    const real *bias, int add, real *out) {
  vec sum[ROWS][WIDE];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
    for (int v = 0; v < wide; v++) {
      sum[r][v] = (vec){0} + (bias ? bias[r] : 0);
      if (add) sum[r][v] += at(out + r * ld + v * LANES);
    }
  for (i64 k = 0; k < depth; k++, a += step, b += ld) {
    vec x[WIDE];
#pragma GCC unroll 8
    for (int v = 0; v < wide; v++) x[v] = at(b + v * LANES);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
      for (int v = 0; v < wide; v++) sum[r][v] += a[r * row] * x[v];
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
    for (int v = 0; v < wide; v++) V(out + r * ld + v * LANES) = sum[r][v];
}

static inline __attribute__((always_inline)) void product_columns(
    int wide, i64 rows, i64 depth, const real *a, i64 tile, i64 row, i64 step, const real *b,
    i64 ld, const real *bias, int add, real *out) {
  for (i64 r = 0; r < rows; r += ROWS, a += tile, out += ROWS * ld, bias += bias ? ROWS : 0)
    product_tile(wide, depth, a, row, step, b, ld, bias, add, out);
}

static inline __attribute__((always_inline)) void product_any(
    i64 rows, i64 vectors, i64 depth, const real *a, i64 tile, i64 row, i64 step, const real *b,
    i64 ld, const real *bias, int add, real *out) {
  for (i64 first = 0; first < rows; first += ROWS_IN_CACHE) {
    const i64 some = rows - first < ROWS_IN_CACHE ? rows - first : ROWS_IN_CACHE;
    const real *part = a + first / ROWS * tile, *offset = bias ? bias + first : 0;
    real *to = out + first * ld;
    i64 v = 0;
    for (; v + WIDE <= vectors; v += WIDE)
      product_columns(WIDE, some, depth, part, tile, row, step, b + v * LANES, ld, offset, add,
                      to + v * LANES);
    for (; v + 2 <= vectors; v += 2)
      product_columns(2, some, depth, part, tile, row, step, b + v * LANES, ld, offset, add,
                      to + v * LANES);
    for (; v < vectors; v++)
      product_columns(1, some, depth, part, tile, row, step, b + v * LANES, ld, offset, add,
                      to + v * LANES);
  }
}

/* Product with a in panels [rows / ROWS][panel][ROWS], of which `depth` columns are read. */
static void product_panels(i64 rows, i64 vectors, i64 depth, const real *a, i64 panel,
                           const real *b, i64 ld, const real *bias, int add, real *out) {
  product_any(rows, vectors, depth, a, ROWS * panel, 1, ROWS, b, ld, bias, add, out);
}

/* Product with a[k][r] in rows of `ld`. */
static void product_transposed(i64 rows, i64 vectors, i64 depth, const real *a, const real *b,
                               i64 ld, real *out) {
  product_any(rows, vectors, depth, a, ROWS, 1, ld, b, ld, 0, 0, out);
}

/* Product with a[r][k] in rows of `ld`. */
static void product_plain(i64 rows, i64 vectors, i64 depth, const real *a, const real *b, i64 ld,
                          real *out) {
  product_any(rows, vectors, depth, a, ROWS * ld, ld, 1, b, ld, 0, 0, out);
}

/* Transpose of a square matrix of LANES * vectors rows. */
static void transpose_square(i64 vectors, const real *a, i64 ld, real *out) {
  for (i64 r = 0; r < vectors * LANES; r += LANES)
    for (i64 c = 0; c < vectors * LANES; c += LANES) {
      vec block[LANES];
      for (int l = 0; l < LANES; l++) block[l] = at(a + (r + l) * ld + c);
      transpose(block);
      for (int l = 0; l < LANES; l++) V(out + (c + l) * ld + r) = block[l];
    }
}
