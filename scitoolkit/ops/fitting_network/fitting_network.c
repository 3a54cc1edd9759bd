#define TILE (3 * LANES)
#define TILES 6 /* per block: weights are read once per block */
#define INPUTS (M * AXIS - AXIS * (AXIS - 1) / 2)
#define UP(n) (((n) + ROWS - 1) / ROWS * ROWS)
#define DEPTH 96 /* features per product: tile and panel stay in the L1 cache */
#define GROUP 30  /* panels per product: they stay in the L2 cache */

#define MICRO(NV)                                                                        \
  static void micro##NV(int depth, const REAL *restrict w, const vec *restrict x,         \
                        vec *restrict out) {                                             \
    vec a[ROWS][NV];                                                                     \
    for (int r = 0; r < ROWS; r++)                                                       \
      for (int v = 0; v < NV; v++) a[r][v] = out[3 * r + v];                             \
    for (int k = 0; k < depth; k++, w += ROWS, x += 3) {                                 \
      vec b[NV];                                                                         \
      for (int v = 0; v < NV; v++) b[v] = x[v];                                          \
      _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                             \
          _Pragma("GCC unroll 3") for (int v = 0; v < NV; v++) a[r][v] += w[r] * b[v];   \
    }                                                                                    \
    for (int r = 0; r < ROWS; r++)                                                       \
      for (int v = 0; v < NV; v++) out[3 * r + v] = a[r][v];                             \
  }
MICRO(1)
MICRO(2)
MICRO(3)

/* Product with the transpose of panels: out[row] += w[row][o] x[o] for ROWS inputs. */
#define BACK(NV)                                                                         \
  static void back##NV(int panels, int64_t stride, const REAL *restrict w,               \
                       const vec *restrict x, vec *restrict out) {                       \
    vec a[ROWS][NV];                                                                     \
    for (int r = 0; r < ROWS; r++)                                                       \
      for (int v = 0; v < NV; v++) a[r][v] = out[3 * r + v];                             \
    for (int p = 0; p < panels; p++, w += stride) {                                      \
      for (int r = 0; r < ROWS; r++) __builtin_prefetch(w + (ROWS + r) * ROWS);          \
      for (int o = 0; o < ROWS; o++, x += 3) {                                           \
        vec b[NV];                                                                       \
        for (int v = 0; v < NV; v++) b[v] = x[v];                                        \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                           \
            _Pragma("GCC unroll 3") for (int v = 0; v < NV; v++)                         \
                a[r][v] += w[r * ROWS + o] * b[v];                                       \
      }                                                                                  \
    }                                                                                    \
    for (int r = 0; r < ROWS; r++)                                                       \
      for (int v = 0; v < NV; v++) out[3 * r + v] = a[r][v];                             \
  }
BACK(1)
BACK(2)
BACK(3)

/* out[t][row][3] += w[row][k] x[t][k][3]; w as panels [k / DEPTH][row / ROWS][k % DEPTH][ROWS],
   in the order of use. */
static void multiply(int tiles, int last, int rows, int depth, const REAL *w,
                     const vec *x, int64_t x_stride, vec *out, int64_t out_stride) {
  int panels = UP(rows) / ROWS;
  for (int k = 0; k < depth; k += DEPTH) {
    int here = depth - k < DEPTH ? depth - k : DEPTH;
    for (int p0 = 0; p0 < panels; p0 += GROUP)
      for (int t = 0; t < tiles; t++)
        for (int p = p0; p < panels && p < p0 + GROUP; p++) {
          const REAL *panel = w + ((int64_t)k * panels + (int64_t)p * here) * ROWS;
          const vec *b = x + t * x_stride + 3 * k;
          vec *c = out + t * out_stride + 3 * p * ROWS;
          int vectors = t == tiles - 1 ? last : 3;
          if (vectors == 3) micro3(here, panel, b, c);
          else if (vectors == 2) micro2(here, panel, b, c);
          else micro1(here, panel, b, c);
        }
  }
}

/* out[t][k][3] += w[row][k] x[t][row][3] with the same panels. */
static void multiply_back(int tiles, int last, int rows, int depth, const REAL *w,
                          const vec *x, int64_t x_stride, vec *out, int64_t out_stride) {
  int panels = UP(rows) / ROWS, most = DEPTH / ROWS;
  for (int k = 0; k < depth; k += DEPTH) {
    int here = depth - k < DEPTH ? depth - k : DEPTH;
    for (int p = 0; p < panels; p += most)
      for (int t = 0; t < tiles; t++)
        for (int r = 0; r < here; r += ROWS) {
          const REAL *first = w + (int64_t)k * panels * ROWS + ((int64_t)p * here + r) * ROWS;
          const vec *b = x + t * x_stride + 3 * p * ROWS;
          vec *c = out + t * out_stride + 3 * (k + r);
          int many = panels - p < most ? panels - p : most;
          int vectors = t == tiles - 1 ? last : 3;
          if (vectors == 3) back3(many, here * ROWS, first, b, c);
          else if (vectors == 2) back2(many, here * ROWS, first, b, c);
          else back1(many, here * ROWS, first, b, c);
        }
  }
}

typedef struct {
  vec t[TILES][M * 4][3], g[TILES][M * 4][3];
  vec inputs[TILES][DEPTH][3];
  vec value[LAYERS][TILES][UP(WIDEST)][3], slope[LAYERS][TILES][UP(WIDEST)][3];
  vec back[2][TILES][UP(WIDEST)][3], through[TILES][UP(WIDEST)][3];
  int16_t first[INPUTS], second[INPUTS]; /* the a and the m of each input */
} bench;

static _Thread_local bench *kept;

static bench *own_bench(void) {
  if (!kept) {
    kept = aligned_alloc(64, (sizeof(bench) + 63) / 64 * 64);
    memset(kept, 0, sizeof(bench));
    int k = 0;
    for (int a = 0; a < AXIS; a++)
      for (int m = a; m < M; m++, k++) {
        kept->first[k] = a;
        kept->second[k] = m;
      }
  }
  return kept;
}

/* Number of packed parameters of layer l: panels, bias, step. */
static int64_t layer_size(int l) {
  int in = SIZE[l], out = SIZE[l + 1];
  return (int64_t)UP(out) * UP(in) + 2 * out;
}

int64_t packed_size(void) {
  int64_t total = WIDEST + 1;
  for (int l = 0; l < LAYERS; l++) total += layer_size(l);
  return total;
}

/* Pack flat parameters: weights (in, out), bias and step of each layer, then the linear output and
   its offset. Panels are padded with zeros. */
void pack_parameters(const REAL *flat, REAL *packed) {
  memset(packed, 0, sizeof(REAL) * packed_size());
  for (int l = 0; l < LAYERS; l++) {
    int in = SIZE[l], out = SIZE[l + 1];
    for (int k0 = 0; k0 < UP(in); k0 += DEPTH) {
      int here = UP(in) - k0 < DEPTH ? UP(in) - k0 : DEPTH;
      for (int p = 0; p < UP(out); p += ROWS)
        for (int k = k0; k < k0 + here; k++)
          for (int r = 0; r < ROWS; r++, packed++)
            if (k < in && p + r < out) *packed = flat[(int64_t)k * out + p + r];
    }
    flat += (int64_t)in * out;
    memcpy(packed, flat, sizeof(REAL) * 2 * out);
    flat += 2 * out;
    packed += 2 * out;
  }
  memcpy(packed, flat, sizeof(REAL) * SIZE[LAYERS]);
  packed[WIDEST] = flat[SIZE[LAYERS]];
}

/* First layer: the descriptor, and below its derivative, is computed for DEPTH inputs at a time. */
static void first_layer(bench *b, int tiles, int last, const REAL *w) {
  for (int k0 = 0; k0 < UP(INPUTS); k0 += DEPTH) {
    int here = UP(INPUTS) - k0 < DEPTH ? UP(INPUTS) - k0 : DEPTH;
    for (int t = 0; t < tiles; t++)
      for (int k = 0; k < here; k++)
        for (int v = 0; v < 3; v++) {
          vec sum = {0};
          if (k0 + k < INPUTS) {
            vec(*x)[3] = b->t[t] + 4 * b->first[k0 + k], (*y)[3] = b->t[t] + 4 * b->second[k0 + k];
            for (int c = 0; c < 4; c++) sum += x[c][v] * y[c][v];
          }
          b->inputs[t][k][v] = sum;
        }
    multiply(tiles, last, SIZE[1], here, w + (int64_t)k0 * UP(SIZE[1]), b->inputs[0][0],
             3 * DEPTH, b->value[0][0][0], 3 * UP(WIDEST));
  }
}

static void first_layer_back(bench *b, int tiles, int last, const REAL *w) {
  memset(b->g, 0, sizeof(b->g[0]) * tiles);
  for (int k0 = 0; k0 < UP(INPUTS); k0 += DEPTH) {
    int here = UP(INPUTS) - k0 < DEPTH ? UP(INPUTS) - k0 : DEPTH;
    memset(b->inputs, 0, sizeof(b->inputs[0]) * tiles);
    multiply_back(tiles, last, SIZE[1], here, w + (int64_t)k0 * UP(SIZE[1]), b->through[0][0],
                  3 * UP(WIDEST), b->inputs[0][0], 3 * DEPTH);
    for (int t = 0; t < tiles; t++)
      for (int k = 0; k < here && k0 + k < INPUTS; k++) {
        int i = 4 * b->first[k0 + k], j = 4 * b->second[k0 + k];
        for (int v = 0; v < 3; v++) {
          vec d = b->inputs[t][k][v];
          for (int c = 0; c < 4; c++) {
            b->g[t][j + c][v] += d * b->t[t][i + c][v];
            b->g[t][i + c][v] += d * b->t[t][j + c][v];
          }
        }
      }
  }
}

static void block(bench *b, int many, const REAL *moments, const REAL *packed, REAL *energy,
                  REAL *cotangent) {
  int tiles = (many + TILE - 1) / TILE, last = (many - (tiles - 1) * TILE + LANES - 1) / LANES;
  for (int t = 0; t < tiles; t++) {
    REAL *rows = (REAL *)b->t[t];
    for (int l = 0; l < TILE; l++) {
      int atom = t * TILE + l;
      for (int j = 0; j < 4 * M; j++)
        rows[j * TILE + l] = atom < many ? moments[atom * 4 * M + j] : 0;
    }
  }
  const REAL *at[LAYERS], *w = packed;
  for (int l = 0; l < LAYERS; l++) {
    int in = SIZE[l], out = SIZE[l + 1];
    at[l] = w;
    const REAL *bias = w + (int64_t)UP(out) * UP(in), *step = bias + out;
    for (int t = 0; t < tiles; t++)
      for (int o = 0; o < UP(out); o++)
        for (int v = 0; v < 3; v++) b->value[l][t][o][v] = (vec){0} + (o < out ? bias[o] : 0);
    if (l)
      multiply(tiles, last, out, UP(in), w, b->value[l - 1][0][0], 3 * UP(WIDEST),
               b->value[l][0][0], 3 * UP(WIDEST));
    else
      first_layer(b, tiles, last, w);
    for (int t = 0; t < tiles; t++)
      for (int o = 0; o < out; o++)
        for (int v = 0; v < 3; v++) {
          vec y = vtanh(b->value[l][t][o][v]);
          b->slope[l][t][o][v] = (1 - y * y) * step[o];
          y *= step[o];
          if (SHORTCUT[l]) y += b->value[l - 1][t][o % in][v];
          b->value[l][t][o][v] = y;
        }
    w += layer_size(l);
  }
  int top = SIZE[LAYERS];
  vec(*back)[UP(WIDEST)][3] = b->back[0], (*next)[UP(WIDEST)][3] = b->back[1];
  for (int t = 0; t < tiles; t++) {
    vec sum[3];
    for (int v = 0; v < 3; v++) sum[v] = (vec){0} + w[WIDEST];
    for (int o = 0; o < top; o++)
      for (int v = 0; v < 3; v++) {
        sum[v] += w[o] * b->value[LAYERS - 1][t][o][v];
        back[t][o][v] = (vec){0} + w[o];
      }
    for (int l = 0; l < TILE && t * TILE + l < many; l++)
      energy[t * TILE + l] = sum[l / LANES][l % LANES];
  }
  for (int l = LAYERS - 1; l >= 0; l--) {
    int in = SIZE[l], out = SIZE[l + 1];
    for (int t = 0; t < tiles; t++) {
      for (int o = 0; o < out; o++)
        for (int v = 0; v < 3; v++)
          b->through[t][o][v] = back[t][o][v] * b->slope[l][t][o][v];
      memset(b->through[t][out], 0, sizeof(vec) * 3 * (UP(out) - out));
      if (!l) continue;
      memset(next[t], 0, sizeof(vec) * 3 * UP(in));
      if (SHORTCUT[l])
        for (int o = 0; o < out; o++)
          for (int v = 0; v < 3; v++) next[t][o % in][v] += back[t][o][v];
    }
    if (!l) break;
    multiply_back(tiles, last, out, UP(in), at[l], b->through[0][0], 3 * UP(WIDEST), next[0][0],
                  3 * UP(WIDEST));
    vec(*swap)[UP(WIDEST)][3] = back;
    back = next;
    next = swap;
  }
  first_layer_back(b, tiles, last, at[0]);
  for (int t = 0; t < tiles; t++) {
    const REAL *rows = (const REAL *)b->g[t];
    for (int l = 0; l < TILE && t * TILE + l < many; l++)
      for (int j = 0; j < 4 * M; j++)
        cotangent[(t * TILE + l) * 4 * M + j] = rows[j * TILE + l];
  }
}

/* Energies (n,) and their derivatives with respect to the moments (n, M, 4). */
void fitting(int64_t n, const REAL *moments, const REAL *packed, REAL *energy, REAL *cotangent,
             int64_t threads) {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int64_t i = 0; i < n; i += TILES * TILE)
    block(own_bench(), n - i < TILES * TILE ? n - i : TILES * TILE, moments + i * 4 * M, packed,
          energy + i, cotangent + i * 4 * M);
}
