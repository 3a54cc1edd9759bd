/* Tabulated embedding: quintic polynomials instead of a network.

The basis functions of an edge are polynomials in x = s - start of its piece. Coefficients are stored
in groups of 2 LANES basis functions, [piece][group][power][function], so that an edge reads whole
cache lines in order. Beyond the end of the table the network itself is evaluated; its value and
slope are the constant and linear coefficients of a temporary piece. There is no clamping and no
extrapolation.
*/

#define GROUP (2 * LANES)
#define GROUPS ((M + GROUP - 1) / GROUP)
#define PIECE (GROUPS * 6 * GROUP)

/* Input of the polynomials of one edge. */
typedef struct { const REAL *piece; REAL x, row[4], n[3], slope, side; } edge;

typedef struct { edge *edges; REAL *outside; int64_t room, outside_room; } bench;

static void make_room(bench *b, int64_t edges) {
  if (edges <= b->room) return;
  free(b->edges);
  b->room = 2 * edges;
  b->edges = malloc(sizeof(edge) * b->room);
}

static void locate(bench *b, int64_t i, const int64_t *segments, const int64_t *types,
                   const REAL *vectors, const REAL *mean, const REAL *deviation,
                   const REAL *weights, const REAL *packed, const REAL *table, int64_t pieces,
                   REAL lower, REAL step) {
  int64_t begin = segments[i * TYPES], end = segments[(i + 1) * TYPES], outside = 0;
  make_room(b, end - begin);
  const REAL *average = mean + 4 * types[i], *spread_ = deviation + 4 * types[i];
  for (int64_t e = begin; e < end; e++) {
    const REAL *v = vectors + 3 * e;
    edge *g = b->edges + (e - begin);
    REAL r = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]), inverse = 1 / r;
    REAL u = (r - SMOOTH) / (CUTOFF - SMOOTH), w = 1, dw = 0;
    if (u >= 1) w = 0;
    else if (u > 0) {
      w = (1 - u) * (1 - u) * (1 - u) * (1 + u * (3 + 6 * u)); /* no digits cancel near 1 */
      dw = -30 * u * u * (u - 1) * (u - 1) / (CUTOFF - SMOOTH);
    }
    REAL s = w * inverse;
    g->row[0] = (s - average[0]) / spread_[0];
    for (int c = 0; c < 3; c++) {
      g->n[c] = v[c] * inverse;
      g->row[1 + c] = (s * g->n[c] - average[1 + c]) / spread_[1 + c];
    }
    g->slope = dw * inverse - s * inverse;
    g->side = s * inverse;
    g->piece = 0;
    if (!((g->row[0] - lower) / step < (REAL)pieces)) outside++;
  }
  if (outside > b->outside_room) {
    free(b->outside);
    b->outside_room = 2 * outside;
    b->outside = malloc(sizeof(REAL) * PIECE * b->outside_room);
  }
  outside = 0;
  for (int t = 0; t < TYPES; t++) {
    int net = NETWORK(types[i], t);
    for (int64_t e = segments[i * TYPES + t]; e < segments[i * TYPES + t + 1]; e++) {
      edge *g = b->edges + (e - begin);
      REAL place = (g->row[0] - lower) / step;
      if (place < (REAL)pieces) {
        int64_t k = place > 0 ? (int64_t)place : 0;
        g->piece = table + (net * pieces + k) * PIECE;
        g->x = g->row[0] - (lower + k * step);
        continue;
      }
      vec top[2 * M], scratch[2 * WIDEST * 8], s = (vec){0} + g->row[0];
      embed(weights + net * PARAMETERS, packed + net * PACKED, s, top, scratch);
      REAL *own = b->outside + PIECE * outside++;
      memset(own, 0, sizeof(REAL) * PIECE);
      for (int m = 0; m < M; m++) {
        REAL *c = own + m / GROUP * 6 * GROUP + m % GROUP;
        c[0] = top[2 * m][0];
        c[GROUP] = top[2 * m + 1][0];
      }
      g->piece = own;
      g->x = 0;
    }
  }
}

static inline vec at(const REAL *p) { vec v; memcpy(&v, p, sizeof v); return v; }

/* Moments of the atoms in `atoms` from the table (NETWORKS, pieces, GROUPS, 6, GROUP). */
void table_moments(int64_t n, const int64_t *atoms, const int64_t *segments,
                   const int64_t *types, const REAL *vectors, const REAL *mean,
                   const REAL *deviation, const REAL *weights, const REAL *table,
                   int64_t pieces, const REAL *range, REAL *out, int64_t slots,
                   int64_t threads) {
  REAL *packed = malloc(sizeof(REAL) * PACKED * NETWORKS);
  for (int t = 0; t < NETWORKS; t++) pack(weights + t * PARAMETERS, packed + t * PACKED);
#pragma omp parallel num_threads(threads)
  {
    bench b = {0};
#pragma omp for schedule(dynamic, 4)
    for (int64_t k = 0; k < n; k++) {
      int64_t i = atoms[k], many = segments[(i + 1) * TYPES] - segments[i * TYPES];
      locate(&b, i, segments, types, vectors, mean, deviation, weights, packed, table, pieces,
             range[0], range[1]);
      for (int g = 0; g < GROUPS; g++) {
        vec t[4][2];
        for (int c = 0; c < 4; c++) { t[c][0] = (vec){0}; t[c][1] = (vec){0}; }
        for (int64_t e = 0; e < many; e++) {
          const edge *own = b.edges + e;
          const REAL *p = own->piece + g * 6 * GROUP;
          REAL x = own->x;
          vec a = at(p + 5 * GROUP), d = at(p + 5 * GROUP + LANES);
#pragma GCC unroll 5
          for (int q = 4; q >= 0; q--) {
            a = a * x + at(p + q * GROUP);
            d = d * x + at(p + q * GROUP + LANES);
          }
          for (int c = 0; c < 4; c++) { t[c][0] += own->row[c] * a; t[c][1] += own->row[c] * d; }
        }
        for (int c = 0; c < 4; c++)
          for (int l = 0; l < GROUP && g * GROUP + l < M; l++)
            out[(k * M + g * GROUP + l) * 4 + c] = t[c][l / LANES][l % LANES] / slots;
      }
    }
    free(b.edges); free(b.outside);
  }
  free(packed);
}

/* d(sum of cotangent * moments)/d(edge vectors), from the table. */
void table_edge_gradients(int64_t n, const int64_t *atoms, const int64_t *segments,
                          const int64_t *types, const REAL *vectors, const REAL *mean,
                          const REAL *deviation, const REAL *weights, const REAL *table,
                          int64_t pieces, const REAL *range, const REAL *cotangent, REAL *out,
                          int64_t slots, int64_t threads) {
  REAL *packed = malloc(sizeof(REAL) * PACKED * NETWORKS);
  for (int t = 0; t < NETWORKS; t++) pack(weights + t * PARAMETERS, packed + t * PACKED);
#pragma omp parallel num_threads(threads)
  {
    bench b = {0};
    REAL turned[4][GROUPS * GROUP];
    memset(turned, 0, sizeof turned);
#pragma omp for schedule(dynamic, 4)
    for (int64_t k = 0; k < n; k++) {
      int64_t i = atoms[k], begin = segments[i * TYPES];
      int64_t many = segments[(i + 1) * TYPES] - begin;
      const REAL *dev = deviation + 4 * types[i];
      locate(&b, i, segments, types, vectors, mean, deviation, weights, packed, table, pieces,
             range[0], range[1]);
      for (int m = 0; m < M; m++)
        for (int c = 0; c < 4; c++) turned[c][m] = cotangent[(k * M + m) * 4 + c] / slots;
      for (int64_t e = 0; e < many; e++) {
        const edge *own = b.edges + e;
        REAL x = own->x;
        vec q[4] = {{0}, {0}, {0}, {0}}, rise = {0};
        for (int g = 0; g < GROUPS; g++)
          for (int half = 0; half < 2; half++) {
            const REAL *p = own->piece + g * 6 * GROUP + half * LANES;
            int m = g * GROUP + half * LANES;
            vec a = at(p + 5 * GROUP), d = a;
            a = a * x + at(p + 4 * GROUP);
#pragma GCC unroll 4
            for (int power = 3; power >= 0; power--) {
              d = d * x + a;
              a = a * x + at(p + power * GROUP);
            }
            vec along = {0};
            for (int c = 0; c < 4; c++) {
              vec y = at(turned[c] + m);
              q[c] += a * y;
              along += own->row[c] * y;
            }
            rise += d * along;
          }
        REAL s = total(q[0] + rise) / dev[0], y[3], radial = 0;
        for (int c = 0; c < 3; c++) {
          y[c] = total(q[1 + c]) / dev[1 + c];
          radial += y[c] * own->n[c];
        }
        radial = s * own->slope + (own->slope - own->side) * radial;
        for (int c = 0; c < 3; c++)
          out[3 * (begin + e) + c] = radial * own->n[c] + own->side * y[c];
      }
    }
    free(b.edges); free(b.outside);
  }
  free(packed);
}
