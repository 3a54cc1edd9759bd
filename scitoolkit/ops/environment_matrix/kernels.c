/* Normalised rows and their derivatives of up to LANES edges. */
static inline void geometry(const REAL *restrict vectors, int many, const REAL *restrict mean,
                            const REAL *restrict deviation, vec *restrict geo) {
  REAL x[9][LANES];
  for (int l = 0; l < LANES; l++) {
    if (l >= many) {
      for (int c = 0; c < 9; c++) x[c][l] = 0;
      continue;
    }
    const REAL *v = vectors + 3 * l;
    REAL r = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]), inverse = 1 / r;
    REAL u = (r - SMOOTH) / (CUTOFF - SMOOTH), w = 1, dw = 0;
    if (u >= 1) w = 0;
    else if (u > 0) {
      w = (1 - u) * (1 - u) * (1 - u) * (1 + u * (3 + 6 * u)); /* no digits cancel near 1 */
      dw = -30 * u * u * (u - 1) * (u - 1) / (CUTOFF - SMOOTH);
    }
    REAL s = w * inverse;
    x[0][l] = (s - mean[0]) / deviation[0];
    for (int c = 0; c < 3; c++) {
      x[4 + c][l] = v[c] * inverse;
      x[1 + c][l] = (s * x[4 + c][l] - mean[1 + c]) / deviation[1 + c];
    }
    x[7][l] = dw * inverse - s * inverse;
    x[8][l] = s * inverse;
  }
  memcpy(geo, x, sizeof x);
}

/* out[m][c] = scale * sum over blocks and lanes of G[m] a[c] + G'[m] b[c]. */
static void contract(int64_t blocks, const vec *restrict act, int64_t stride,
                     const vec *restrict a, int a_stride, const vec *restrict b,
                     REAL scale, REAL *restrict out) {
  for (int m = 0; m < M; m++) {
    vec t[4] = {{0}, {0}, {0}, {0}};
    const vec *g = act + 2 * m;
    for (int64_t k = 0; k < blocks; k++, g += stride) {
      const vec *x = a + k * a_stride;
      for (int c = 0; c < 4; c++) t[c] += g[0] * x[c];
      if (b) {
        const vec *y = b + k * 4;
        for (int c = 0; c < 4; c++) t[c] += g[1] * y[c];
      }
    }
    for (int c = 0; c < 4; c++) out[4 * m + c] = scale * total(t[c]);
  }
}

static inline int64_t blocks_of(int64_t edges) { return (edges + LANES - 1) / LANES; }

/* Moments of the atoms in `atoms`; the blocks of atom k begin at starts[k] - starts[0]. */
void moments(int64_t n, const int64_t *atoms, const int64_t *starts, const int64_t *segments,
             const int64_t *types, const REAL *vectors, const REAL *mean, const REAL *deviation,
             const REAL *weights, vec *act, int64_t act_stride, vec *geo, REAL *out,
             int64_t slots, int64_t training, int64_t threads) {
  REAL *packed = malloc(sizeof(REAL) * PACKED * NETWORKS);
  for (int t = 0; t < NETWORKS; t++) pack(weights + t * PARAMETERS, packed + t * PACKED);
#pragma omp parallel for schedule(dynamic, 4) num_threads(threads)
  for (int64_t k = 0; k < n; k++) {
    vec scratch[2 * WIDEST * 8];
    int64_t i = atoms[k], at = starts[k] - starts[0], first = at;
    for (int t = 0; t < TYPES; t++) {
      const REAL *w = weights + NETWORK(types[i], t) * PARAMETERS;
      const REAL *p = packed + NETWORK(types[i], t) * PACKED;
      for (int64_t e = segments[i * TYPES + t]; e < segments[i * TYPES + t + 1]; e += LANES, at++) {
        int64_t left = segments[i * TYPES + t + 1] - e;
        vec *own = act + at * act_stride, *rows = geo + at * GEO;
        geometry(vectors + 3 * e, left < LANES ? left : LANES, mean + 4 * types[i],
                 deviation + 4 * types[i], rows);
        embed(w, p, rows[0], own, training ? own + 2 * M : scratch);
      }
    }
    contract(at - first, act + first * act_stride, act_stride, geo + first * GEO, GEO, 0,
             (REAL)1 / slots, out + k * 4 * M);
  }
  free(packed);
}

/* d(sum of cotangent * moments)/d(edge vectors). */
void edge_gradients(int64_t n, const int64_t *atoms, const int64_t *starts,
                    const int64_t *segments, const int64_t *types, const REAL *deviation,
                    const vec *act, int64_t act_stride, const vec *geo, const REAL *cotangent,
                    REAL *out, int64_t slots, int64_t threads) {
#pragma omp parallel for schedule(dynamic, 4) num_threads(threads)
  for (int64_t k = 0; k < n; k++) {
    int64_t i = atoms[k], at = starts[k] - starts[0];
    const REAL *g = cotangent + k * 4 * M, *dev = deviation + 4 * types[i];
    for (int t = 0; t < TYPES; t++)
      for (int64_t e = segments[i * TYPES + t]; e < segments[i * TYPES + t + 1]; e += LANES, at++) {
        const vec *a = act + at * act_stride, *r = geo + at * GEO;
        vec q0 = {0}, q1 = {0}, q2 = {0}, q3 = {0}, gs = {0}, gs2 = {0};
        for (int m = 0; m < M; m++) {
          vec value = a[2 * m], tangent = a[2 * m + 1];
          REAL g0 = g[4 * m], g1 = g[4 * m + 1], g2 = g[4 * m + 2], g3 = g[4 * m + 3];
          q0 += value * g0; q1 += value * g1; q2 += value * g2; q3 += value * g3;
          gs += tangent * (r[0] * g0 + r[1] * g1);
          gs2 += tangent * (r[2] * g2 + r[3] * g3);
        }
        q0 = (q0 + gs + gs2) / dev[0];
        q1 /= dev[1]; q2 /= dev[2]; q3 /= dev[3];
        vec along = q1 * r[4] + q2 * r[5] + q3 * r[6];
        vec radial = (q0 * r[7] + (r[7] - r[8]) * along) / (REAL)slots, side = r[8] / (REAL)slots;
        vec x = radial * r[4] + side * q1, y = radial * r[5] + side * q2;
        vec z = radial * r[6] + side * q3;
        int64_t left = segments[i * TYPES + t + 1] - e;
        for (int l = 0; l < LANES && l < left; l++) {
          out[3 * (e + l)] = x[l]; out[3 * (e + l) + 1] = y[l]; out[3 * (e + l) + 2] = z[l];
        }
      }
  }
}
