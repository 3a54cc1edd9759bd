/* Driver of an exported Deep Potential (se_e2_a), which is strictly local: one pass over the atoms.

   Atoms are processed by type in blocks whose activations fit in the cache, one block per thread;
   the result of an atom does not depend on the number of threads. Edges are sorted by the sender's
   type, as the kernels require. */
#include "stk_internal.h"
#include "pair_repulsion.h"
#include <math.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include <stdlib.h>
#include <string.h>

enum { BLOCK = STK_TABLE ? 288 : 96, T = STK_NUM_SPECIES, ROW = 4 * STK_BASIS };
/* Largest number of lane blocks of an atom block, which limits the neighbours of an atom. */
enum { MOST = 6144, LANES = 32 / sizeof(real) };
#define ACTIVATION ((int64_t)2 * STK_BASIS * LANES)
#define GEOMETRY ((int64_t)9 * LANES)

#define environment(name) STK_OF(environment_##name)
#define fitting(name) STK_OF(fitting_##name)
void environment(moments)(int64_t n, const int64_t *atoms, const int64_t *starts,
    const int64_t *segments, const int64_t *types, const real *vectors, const real *mean,
    const real *deviation, const real *weights, real *act, int64_t act_stride, real *geo,
    real *out, int64_t slots, int64_t training, int64_t threads);
void environment(edge_gradients)(int64_t n, const int64_t *atoms, const int64_t *starts,
    const int64_t *segments, const int64_t *types, const real *deviation, const real *act,
    int64_t act_stride, const real *geo, const real *cotangent, real *out, int64_t slots,
    int64_t threads);
void environment(table_moments)(int64_t n, const int64_t *atoms, const int64_t *segments,
    const int64_t *types, const real *vectors, const real *mean, const real *deviation,
    const real *weights, const real *table, int64_t pieces, const real *range, real *out,
    int64_t slots, int64_t threads);
void environment(table_edge_gradients)(int64_t n, const int64_t *atoms, const int64_t *segments,
    const int64_t *types, const real *vectors, const real *mean, const real *deviation,
    const real *weights, const real *table, int64_t pieces, const real *range,
    const real *cotangent, real *out, int64_t slots, int64_t threads);
int64_t fitting(packed_size)(void);
void fitting(pack_parameters)(const real *flat, real *packed);
void fitting(fitting)(int64_t n, const real *moments, const real *packed, real *energy,
    real *cotangent, int64_t threads);

typedef struct {
  stk_run common;
  int64_t *segments, *types, *order, *place; /* of the edges: (owned T + 1); (owned); (owned); (edges) */
  int64_t first[T + 1];                      /* atoms of each type in `order` */
  int32_t *excluded;                         /* (owned, T) */
  real *vectors, *slopes;                    /* (edges, 3) */
  char *scratch;                             /* of each thread */
  int failed;
} state;

typedef struct {
  real *moments, *cotangent, *energy, *act, *geo;
  int64_t *starts;
} bench;

#define MOMENTS STK_ROUND(BLOCK * ROW * sizeof(real))
#define ENERGIES STK_ROUND(BLOCK * sizeof(real))
#define STARTS STK_ROUND((BLOCK + 1) * sizeof(int64_t))

static int64_t lane_blocks(int64_t owned, int64_t edges) {
  const int64_t most = edges / LANES + owned * T + 1;
  return STK_TABLE ? 0 : most < MOST ? most : MOST;
}

static int64_t bench_bytes(int64_t owned, int64_t edges) {
  return 2 * MOMENTS + ENERGIES + STARTS +
         STK_ROUND(lane_blocks(owned, edges) * (ACTIVATION + GEOMETRY) * sizeof(real));
}

static int64_t workspace(const stk_model *model, int64_t owned, int64_t all, int64_t edges,
                         int32_t threads) {
  (void)model, (void)all;
  return STK_ROUND(sizeof(state)) + STK_ROUND((owned * T + 1) * 8) + 2 * STK_ROUND(owned * 8) +
         STK_ROUND(edges * 8) + STK_ROUND(owned * T * 4) +
         2 * STK_ROUND(3 * edges * sizeof(real)) + threads * bench_bytes(owned, edges);
}

/* Edges by sender's type within each receiver, without those between excluded types. */
static void sort(state *s) {
  const stk_graph *g = &s->common.graph;
  const real *banned = STK_WEIGHTS(s->common.model, excluded);
  int64_t at = 0;
  memset(s->excluded, 0, g->owned * T * sizeof(int32_t));
  for (int64_t i = 0; i < g->owned; i++) {
    const int own = g->species[i];
    s->types[i] = own < 0 ? 0 : own;
    for (int t = 0; t < T; t++) {
      s->segments[i * T + t] = at;
      if (own < 0) continue;
      for (int64_t e = g->ptr[i]; e < g->ptr[i + 1]; e++) {
        const double *d = g->vector + 3 * e;
        if (g->species[g->sender[e]] != t) continue;
        if (d[0] * d[0] + d[1] * d[1] + d[2] * d[2] >= STK_CUTOFF * STK_CUTOFF) continue;
        if (banned[own * T + t] != 0) {
          s->excluded[i * T + t]++;
          continue;
        }
        for (int c = 0; c < 3; c++) s->vectors[3 * at + c] = (real)d[c];
        s->place[at++] = e;
      }
    }
  }
  s->segments[g->owned * T] = at;
  int64_t many = 0;
  for (int t = 0; t < T; t++) {
    s->first[t] = many;
    for (int64_t i = 0; i < g->owned; i++)
      if (g->species[i] == t) s->order[many++] = i;
  }
  s->first[T] = many;
}

/* Add the contributions of absent and excluded neighbours to the moments of an atom. */
static void add_absent(const state *s, int64_t i, int type, real *moments) {
  const real *absent = STK_WEIGHTS(s->common.model, absent);
  const real *empty = STK_WEIGHTS(s->common.model, empty);
  const real *sel = STK_WEIGHTS(s->common.model, sel);
  for (int t = 0; t < T; t++) {
    const int64_t *segment = s->segments + i * T + t;
    const real missing = sel[t] - (real)(segment[1] - segment[0]), out = s->excluded[i * T + t];
    const real *a = absent + (type * T + t) * ROW, *b = empty + (type * T + t) * ROW;
    for (int m = 0; m < ROW; m++) moments[m] += missing * a[m] + out * b[m];
  }
}

/* Number of atoms from `first` on that fit in a bench, and the starts of their lane blocks. */
static int64_t fill(const state *s, int64_t first, int64_t end, bench *b, int64_t room) {
  int64_t n = 0;
  b->starts[0] = 0;
  for (; n < BLOCK && first + n < end; n++) {
    const int64_t *segment = s->segments + s->order[first + n] * T;
    int64_t blocks = 0;
    for (int t = 0; t < T; t++) blocks += (segment[t + 1] - segment[t] + LANES - 1) / LANES;
    if (!STK_TABLE && b->starts[n] + blocks > room) break;
    b->starts[n + 1] = b->starts[n] + blocks;
  }
  return n;
}

static void block(const state *s, int type, int64_t first, int64_t n, const bench *b) {
  const stk_model *model = s->common.model;
  const int64_t *atoms = s->order + first;
  const real *mean = STK_WEIGHTS(model, mean), *deviation = STK_WEIGHTS(model, deviation);
  const real *weights = STK_WEIGHTS(model, embedding);
  const double *shift = STK_WEIGHTS(model, shift);
#if STK_TABLE
  environment(table_moments)(n, atoms, s->segments, s->types, s->vectors, mean, deviation, weights,
      STK_WEIGHTS(model, table), STK_TABLE, STK_WEIGHTS(model, table_range), b->moments, STK_SLOTS, 1);
#else
  environment(moments)(n, atoms, b->starts, s->segments, s->types, s->vectors, mean, deviation,
      weights, b->act, 2 * STK_BASIS, b->geo, b->moments, STK_SLOTS, 0, 1);
#endif
  for (int64_t k = 0; k < n; k++) add_absent(s, atoms[k], type, b->moments + k * ROW);
  const int net = STK_ONE_FITTING ? 0 : type;
  fitting(fitting)(n, b->moments, (const real *)model->prepared + net * fitting(packed_size)(),
      b->energy, b->cotangent, 1);
#if STK_TABLE
  environment(table_edge_gradients)(n, atoms, s->segments, s->types, s->vectors, mean, deviation,
      weights, STK_WEIGHTS(model, table), STK_TABLE, STK_WEIGHTS(model, table_range), b->cotangent,
      s->slopes, STK_SLOTS, 1);
#else
  environment(edge_gradients)(n, atoms, b->starts, s->segments, s->types, deviation, b->act,
      2 * STK_BASIS, b->geo, b->cotangent, s->slopes, STK_SLOTS, 1);
#endif
  for (int64_t k = 0; k < n; k++) {
    const int64_t i = atoms[k];
    s->common.energy[i] = (double)b->energy[k] + shift[type];
    for (int64_t p = s->segments[i * T]; p < s->segments[i * T + T]; p++)
      for (int c = 0; c < 3; c++)
        s->common.gradient[3 * s->place[p] + c] = (double)s->slopes[3 * p + c];
  }
}

/* Cut the atoms of each type into parts of one block; the parts of a type differ by one atom. */
static int64_t num_parts(const state *s, int type) {
  return (s->first[type + 1] - s->first[type] + BLOCK - 1) / BLOCK;
}

static void part(state *s, int type, int64_t number, bench *b, int64_t room) {
  const int64_t parts = num_parts(s, type), many = s->first[type + 1] - s->first[type];
  int64_t at = s->first[type] + number * many / parts;
  const int64_t end = s->first[type] + (number + 1) * many / parts;
  while (at < end) {
    const int64_t n = fill(s, at, end, b, room);
    if (n == 0) { /* an atom with more neighbours than fit in a bench */
      s->failed = 1;
      return;
    }
    block(s, type, at, n, b);
    at += n;
  }
}

static bench take_bench(char *at, int64_t blocks) {
  bench b = {.moments = (real *)at, .cotangent = (real *)(at + MOMENTS),
             .energy = (real *)(at + 2 * MOMENTS), .starts = (int64_t *)(at + 2 * MOMENTS + ENERGIES)};
  b.geo = (real *)(at + 2 * MOMENTS + ENERGIES + STARTS);
  b.act = b.geo + blocks * GEOMETRY;
  return b;
}

static int32_t advance(stk_run *run, stk_exchange *wanted) {
  state *s = (state *)run;
  const int64_t owned = run->graph.owned, edges = run->graph.ptr[owned];
  const int64_t room = lane_blocks(owned, edges);
  (void)wanted;
  int64_t parts[T + 1] = {0};
  for (int t = 0; t < T; t++) parts[t + 1] = parts[t] + num_parts(s, t);
#pragma omp parallel num_threads(run->threads)
  {
    int thread = 0;
#ifdef _OPENMP
    thread = omp_get_thread_num();
#endif
    bench b = take_bench(s->scratch + thread * bench_bytes(owned, edges), room);
#pragma omp for schedule(dynamic, 1)
    for (int64_t p = 0; p < parts[T]; p++) {
      int t = 0;
      while (p >= parts[t + 1]) t++;
      part(s, t, p - parts[t], &b, room);
    }
  }
  for (int64_t i = 0; i < owned; i++)
    if (run->graph.species[i] < 0) run->energy[i] = 0;
  add_repulsion(run);
  return s->failed ? STK_BAD_GRAPH : STK_DONE;
}

static stk_run *begin(const stk_model *model, const stk_graph *g, void *at_, int32_t threads,
                      double *energy, double *gradient) {
  char *at = at_;
  const int64_t edges = g->ptr[g->owned];
  state *s = (state *)at;
  at += STK_ROUND(sizeof(state));
  memset(s, 0, sizeof *s);
  s->common = (stk_run){model, *g, energy, gradient, threads, 0};
  s->segments = (int64_t *)at, at += STK_ROUND((g->owned * T + 1) * 8);
  s->types = (int64_t *)at, at += STK_ROUND(g->owned * 8);
  s->order = (int64_t *)at, at += STK_ROUND(g->owned * 8);
  s->place = (int64_t *)at, at += STK_ROUND(edges * 8);
  s->excluded = (int32_t *)at, at += STK_ROUND(g->owned * T * 4);
  s->vectors = (real *)at, at += STK_ROUND(3 * edges * sizeof(real));
  s->slopes = (real *)at, at += STK_ROUND(3 * edges * sizeof(real));
  s->scratch = at;
  sort(s);
  return &s->common;
}

static void *prepare(const stk_model *model) {
  const int64_t size = fitting(packed_size)();
  real *packed = aligned_alloc(64, STK_ROUND(STK_NETWORKS * size * sizeof(real)));
  const real *flat = STK_WEIGHTS(model, fitting);
  for (int n = 0; packed && n < STK_NETWORKS; n++)
    fitting(pack_parameters)(flat + n * (int64_t)STK_FITTING, packed + n * size);
  return packed;
}

const stk_variant STK_OF(stk_variant) = {STK_TEXT(STK_VARIANT), prepare, free, workspace, begin, advance};
