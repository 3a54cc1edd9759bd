/* Derivative of the normalised rows along a tangent u of the edge vectors. */
static inline void moved_rows(const vec *restrict geo, const REAL *restrict u, int many,
                              const REAL *restrict deviation, vec *restrict rows) {
  vec d[3] = {{0}, {0}, {0}};
  for (int l = 0; l < many; l++)
    for (int c = 0; c < 3; c++) d[c][l] = u[3 * l + c];
  vec along = geo[4] * d[0] + geo[5] * d[1] + geo[6] * d[2];
  rows[0] = geo[7] * along / deviation[0];
  for (int c = 0; c < 3; c++)
    rows[1 + c] = ((geo[7] - geo[8]) * along * geo[4 + c] + geo[8] * d[c]) / deviation[1 + c];
}

/* Derivative of the moments along a tangent u of the edge vectors. */
void moments_jvp(int64_t n, const int64_t *atoms, const int64_t *starts,
                   const int64_t *segments, const int64_t *types, const REAL *deviation,
                   const vec *act, int64_t act_stride, const vec *geo, const REAL *u,
                   REAL *out, int64_t slots, int64_t threads) {
#pragma omp parallel num_threads(threads)
  {
    vec *moved = 0, *slope = 0;
    int64_t room = 0;
#pragma omp for schedule(dynamic, 4)
    for (int64_t k = 0; k < n; k++) {
      int64_t i = atoms[k], first = starts[k] - starts[0], blocks = starts[k + 1] - starts[k];
      if (blocks > room) {
        free(moved); free(slope);
        room = blocks;
        moved = aligned_alloc(64, (4 * sizeof(vec) * room + 63) / 64 * 64);
        slope = aligned_alloc(64, (4 * sizeof(vec) * room + 63) / 64 * 64);
      }
      int64_t b = 0;
      for (int t = 0; t < TYPES; t++)
        for (int64_t e = segments[i * TYPES + t]; e < segments[i * TYPES + t + 1];
             e += LANES, b++) {
          int64_t left = segments[i * TYPES + t + 1] - e;
          const vec *r = geo + (first + b) * GEO;
          moved_rows(r, u + 3 * e, left < LANES ? left : LANES, deviation + 4 * types[i],
                     moved + 4 * b);
          for (int c = 0; c < 4; c++) slope[4 * b + c] = moved[4 * b] * r[c];
        }
      contract(blocks, act + first * act_stride, act_stride, moved, 4, slope, (REAL)1 / slots,
               out + k * 4 * M);
    }
    free(moved); free(slope);
  }
}

/* Gradients (NUM_CHUNKS, NETWORKS, PARAMETERS) of <hat, T> + <cotangent, derivative of T along u> with
   respect to the weights; without u those of the first term. */
void weight_gradients(int64_t n, const int64_t *atoms, const int64_t *starts,
                      const int64_t *segments, const int64_t *types, const REAL *deviation,
                      const REAL *weights, const vec *act, int64_t act_stride, const vec *geo,
                      const REAL *hat, const REAL *cotangent, const REAL *u, REAL *out,
                      int64_t slots, int64_t threads) {
  REAL *packed = malloc(sizeof(REAL) * PACKED * NETWORKS);
  for (int t = 0; t < NETWORKS; t++) pack(weights + t * PARAMETERS, packed + t * PACKED);
  memset(out, 0, sizeof(REAL) * NUM_CHUNKS * NETWORKS * PARAMETERS);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int chunk = 0; chunk < NUM_CHUNKS; chunk++) {
    vec *cot = aligned_alloc(64, sizeof(vec) * 4 * SUPER * WIDEST);
    REAL *rows = aligned_alloc(64, sizeof(REAL) * SUPER * 2 * LANES * ((WIDEST + 15) / 8 * 8));
    for (int net = 0; net < NETWORKS; net++) {
      REAL *g = out + (chunk * NETWORKS + net) * PARAMETERS;
      const REAL *w = weights + net * PARAMETERS, *p = packed + net * PACKED;
      const vec *held[SUPER];
      vec s[SUPER], first[2 * FIRST];
      memset(first, 0, sizeof first);
      int many = 0;
      for (int64_t k = n * chunk / NUM_CHUNKS; k < n * (chunk + 1) / NUM_CHUNKS; k++) {
        int64_t i = atoms[k], at = starts[k] - starts[0];
        for (int t = 0; t < TYPES; t++) {
          int mine = NETWORK(types[i], t) == net;
          for (int64_t e = segments[i * TYPES + t]; e < segments[i * TYPES + t + 1];
               e += LANES, at++) {
            if (!mine) continue;
            const vec *r = geo + at * GEO;
            int64_t left = segments[i * TYPES + t + 1] - e;
            vec moved[4] = {{0}, {0}, {0}, {0}};
            if (u)
              moved_rows(r, u + 3 * e, left < LANES ? left : LANES, deviation + 4 * types[i],
                         moved);
            const REAL *h = hat + k * 4 * M, *c = cotangent + k * 4 * M;
            vec *own = cot + many * 2 * WIDEST, slope = moved[0] / (REAL)slots;
            vec r0 = r[0] / (REAL)slots, r1 = r[1] / (REAL)slots;
            vec r2 = r[2] / (REAL)slots, r3 = r[3] / (REAL)slots;
            for (int j = 0; j < 4; j++) moved[j] /= (REAL)slots;
            if (u)
              for (int m = 0; m < M; m++, h += 4, c += 4) {
                own[2 * m] = h[0] * r0 + h[1] * r1 + h[2] * r2 + h[3] * r3
                  + c[0] * moved[0] + c[1] * moved[1] + c[2] * moved[2] + c[3] * moved[3];
                own[2 * m + 1] = slope * (c[0] * r[0] + c[1] * r[1] + c[2] * r[2] + c[3] * r[3]);
              }
            else
              for (int m = 0; m < M; m++, h += 4) {
                own[2 * m] = h[0] * r0 + h[1] * r1 + h[2] * r2 + h[3] * r3;
                own[2 * m + 1] = (vec){0};
              }
            held[many] = act + at * act_stride;
            s[many++] = r[0];
            if (many == SUPER) {
              embed_gradient(w, p, many, held, s, cot, cot + 2 * SUPER * WIDEST, rows, g, first);
              many = 0;
            }
          }
        }
      }
      if (many) embed_gradient(w, p, many, held, s, cot, cot + 2 * SUPER * WIDEST, rows, g, first);
      for (int m = 0; m < FIRST; m++) {
        g[m] += total(first[2 * m]);
        g[FIRST + m] += total(first[2 * m + 1]);
      }
    }
    free(cot); free(rows);
  }
  free(packed);
}
