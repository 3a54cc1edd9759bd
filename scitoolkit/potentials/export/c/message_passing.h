/* Message passing over blocks of receivers, shared by the drivers of equivariant models.

   Every layer but the last is evaluated forward for all blocks, then features are exchanged. The
   last layer is evaluated forward and backward block by block, because its energies are local, so
   its weights are computed once. The other layers are evaluated backward for all blocks, from the
   rows that each layer stores. Radial weights are recomputed. A thread processes one block;
   contributions to senders' gradients are summed in the order of the blocks, so the bits do not
   depend on the number of threads.

   Rows are (components, C): features of a node, all irreps in order, channels last; DEGREES has the
   degree of each irrep. A driver defines `messages`, `outputs` and `outputs_back`, and settings.h has STK_STORED, the number of
   rows that it stores for the backward pass of a layer. */
#ifndef STK_MESSAGE_PASSING_H
#define STK_MESSAGE_PASSING_H
#include "stk_internal.h"
#include "pair_repulsion.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum {
  T = STK_NUM_SPECIES, C = STK_CHANNELS, LAST = STK_LAYERS - 1,
  HARMONICS = (STK_LMAX + 1) * (STK_LMAX + 1), HIDDEN = STK_HIDDEN,
  TARGET = 768, MOST = 2048, /* edges of a block: target, and limit of one receiver */
  NODES = 64                 /* largest number of receivers of a block */
};
#define LANES ((int)(STK_BYTES / sizeof(real)))
#if defined(__AVX512F__)
#define STK_BYTES 64
#elif defined(__AVX__)
#define STK_BYTES 32
#else
#define STK_BYTES 16
#endif
typedef real vec __attribute__((vector_size(STK_BYTES), aligned(sizeof(real)), may_alias));

#define STK_GRAPH                                                                            \
  int64_t nodes, int64_t num_edges, int64_t chunks, const int64_t *chunk_ptr,                \
      const int64_t *ptr, const int64_t *order, const int64_t *sender, const int64_t *slot,  \
      const int64_t *slot_ptr, const int64_t *slot_node
typedef void stk_convolve(STK_GRAPH, const real *x, const real *y, const real *w, real *z,
                          int64_t threads);
typedef void stk_convolve_back(STK_GRAPH, const real *x, const real *y, const real *w,
                               const real *g, real *gx, real *gy, real *gw, real *own,
                               int64_t own_size, int64_t threads);
typedef void stk_contract(int64_t species, int64_t channels, const int64_t *ptr,
                          const int64_t *order, const real *x, const real *w, real *z,
                          int64_t threads);
typedef void stk_contract_back(int64_t species, int64_t channels, const int64_t *ptr,
                               const int64_t *order, const real *x, const real *w, const real *g,
                               real *gx, int64_t threads);
typedef struct {
  int weights, rows, width; /* of an edge; segments of a message; values in a sender's row */
  int last_out, last_kept, residual, readout_width; /* last irrep of the output, of the shortcut */
  int copies[8]; /* segments of each irrep */
  /* Numbers of arrays; those of a kind of layer that the model lacks are 0 and not read. */
  int up, up_t, down, down_t, shortcut, shortcut_t, contraction, mix, mix_t, readout, table;
  int gates, gates_t, gates_shortcut, gates_shortcut_t, density;
  int reads_out, has_density;
  stk_convolve *forward;
  stk_convolve_back *backward;
  stk_contract *product;
  stk_contract_back *product_back;
} stk_layer;
#include "layers.h"

#define harmonics(name) STK_OF(harmonics_##name)
#define table(name) STK_OF(table_##name)
void harmonics(forward)(int64_t n, const real *x, real *y, int64_t threads);
void harmonics(backward)(int64_t n, const real *x, const real *g, real *gx, int64_t threads);
void table(values)(int64_t bins, int64_t width, const int64_t *ptr, const int64_t *order,
    const real *local, const real *coefficients, real *out, int64_t threads);
void table(slopes)(int64_t bins, int64_t width, const int64_t *ptr, const int64_t *order,
    const real *local, const real *coefficients, const real *g, real *out, int64_t threads);

/* ---- dense layers ---- */

/* out[r] (+)= a[r] w for the rows r of a list (NULL: 0..n-1); w is (C, C). */
static void gemm(int64_t n, const int32_t *list, const real *a, int64_t lda, const real *w,
                 real *out, int64_t ldo, int add) {
#define ROW_OF(p, ld, k) ((p) + (list ? list[k] : (k)) * (ld))
  for (int64_t i = 0; i < n; i += 4) {
    const int64_t k[4] = {i, i + 1 < n ? i + 1 : i, i + 2 < n ? i + 2 : i, i + 3 < n ? i + 3 : i};
    const real *a0 = ROW_OF(a, lda, k[0]), *a1 = ROW_OF(a, lda, k[1]);
    const real *a2 = ROW_OF(a, lda, k[2]), *a3 = ROW_OF(a, lda, k[3]);
    const int rows = n - i < 4 ? (int)(n - i) : 4;
    int j = 0;
    for (; j + 2 * LANES <= C; j += 2 * LANES) {
      vec s[4][2] = {{{0}}};
      for (int r = 0; add && r < rows; r++)
        for (int v = 0; v < 2; v++)
          s[r][v] = *(const vec *)(ROW_OF(out, ldo, k[r]) + j + v * LANES);
      for (int c = 0; c < C; c++) {
        const vec b0 = *(const vec *)(w + c * C + j), b1 = *(const vec *)(w + c * C + j + LANES);
        s[0][0] += a0[c] * b0, s[0][1] += a0[c] * b1;
        s[1][0] += a1[c] * b0, s[1][1] += a1[c] * b1;
        s[2][0] += a2[c] * b0, s[2][1] += a2[c] * b1;
        s[3][0] += a3[c] * b0, s[3][1] += a3[c] * b1;
      }
      for (int r = 0; r < rows; r++)
        for (int v = 0; v < 2; v++)
          *(vec *)(ROW_OF(out, ldo, k[r]) + j + v * LANES) = s[r][v];
    }
    for (; j < C; j++)
      for (int r = 0; r < rows; r++) {
        const real *x = ROW_OF(a, lda, k[r]);
        real *o = ROW_OF(out, ldo, k[r]) + j, sum = add ? *o : 0;
        for (int c = 0; c < C; c++) sum += x[c] * w[c * C + j];
        *o = sum;
      }
  }
#undef ROW_OF
}

/* Mix channels within each irrep up to `last`; the `copies` segments of an irrep are contiguous. */
static void mix(int64_t n, int last, const int *copies, const real *x, int64_t rows_x,
                const real *w, real *out, int64_t rows_out) {
  int at = 0, to = 0;
  for (int k = 0; k <= last; to += 2 * DEGREES[k++] + 1)
    for (int copy = 0, l = DEGREES[k]; copy < (copies ? copies[k] : 1);
         copy++, w += C * C, at += 2 * l + 1)
      for (int m = 0; m <= 2 * l; m++)
        gemm(n, NULL, x + (at + m) * C, rows_x * C, w, out + (to + m) * C, rows_out * C, copy);
}

/* The transpose: gradients of x from those of out; w holds the transposed matrices. */
static void mix_back(int64_t n, int last, const int *copies, const real *g, int64_t rows_g,
                     const real *w, real *gx, int64_t rows_x, int add) {
  int at = 0, from = 0;
  for (int k = 0; k <= last; from += 2 * DEGREES[k++] + 1)
    for (int copy = 0, l = DEGREES[k]; copy < (copies ? copies[k] : 1);
         copy++, w += C * C, at += 2 * l + 1)
      for (int m = 0; m <= 2 * l; m++)
        gemm(n, NULL, g + (from + m) * C, rows_g * C, w, gx + (at + m) * C, rows_x * C, add);
}

/* Mix by the weights of each node's species; `ptr` and `list` have the nodes by species. */
static void mix_species(const int64_t *ptr, const int32_t *list, int last, const real *x,
                        int64_t rows_x, const real *w, real *out, int64_t rows_out, int add) {
  for (int k = 0, at = 0; k <= last; at += 2 * DEGREES[k++] + 1)
    for (int t = 0; t < T; t++, w += C * C)
      for (int m = at; m <= at + 2 * DEGREES[k]; m++)
        gemm(ptr[t + 1] - ptr[t], list + ptr[t], x + m * C, rows_x * C, w, out + m * C,
             rows_out * C, add);
}

/* ---- state ---- */

typedef struct {
  int64_t nodes, edges, slots, first; /* receivers, edges, senders; the first receiver */
  int64_t *ptr, *order, *sender, *slot, *identity, *place;
  int32_t *node_of_slot, *stamp, *slot_of_node;
  int64_t *bin_ptr, *bin_order, *bin;
  real *vector, *y, *gy, *gv, *local, *gt;
  double *inverse; /* 1 / distance */
  real *w, *gw, *own, *gx;
  int64_t *species_ptr, *species_order;
  int32_t *species_list;
  real *z, *a, *ga, *gsums, *product, *gproduct, *x, *gout;
  real *density, *gdensity; /* of each edge, in a layer with a density */
  double *number;           /* of neighbours of a receiver, if a layer has a density */
  int32_t stamp_now;
} bench;

typedef struct {
  stk_run common;
  int64_t num_blocks;
  int32_t *block;      /* (blocks + 1) first receivers */
  real *a[STK_LAYERS]; /* (owned, STK_STORED, C), of all layers but the last */
  real *x[STK_LAYERS]; /* (owned, HIDDEN, C): input of a layer, from the second on */
  real *dx[STK_LAYERS];
  real *u[STK_LAYERS], *du[STK_LAYERS]; /* (all, HIDDEN, C): mixed input, exchanged */
  char *scratch;
  int32_t layer;
} state;

static void lay_out_bench(bench *b, arena *from, int64_t all) {
#define REALS(name, many) b->name = take(from, (int64_t)(many) * sizeof(real))
#define WHOLES(name, many) b->name = take(from, (int64_t)(many) * 8)
#define INDICES(name, many) b->name = take(from, (int64_t)(many) * 4)
  WHOLES(ptr, NODES + 1), WHOLES(order, MOST), WHOLES(sender, MOST), WHOLES(slot, MOST);
  WHOLES(identity, MOST + T), WHOLES(place, MOST);
  INDICES(node_of_slot, MOST), INDICES(stamp, all), INDICES(slot_of_node, all);
  WHOLES(bin_ptr, STK_BINS + 1), WHOLES(bin_order, MOST), WHOLES(bin, MOST);
  REALS(vector, 3 * MOST), REALS(y, HARMONICS * MOST), REALS(gy, HARMONICS * MOST);
  REALS(gv, 3 * MOST), REALS(local, MOST), REALS(gt, MOST), WHOLES(inverse, MOST);
  REALS(w, (int64_t)STK_MOST_WEIGHTS * MOST), REALS(gw, (int64_t)STK_MOST_WEIGHTS * MOST);
  REALS(own, (MOST + T) * HIDDEN * C + 64), REALS(gx, (MOST + T) * HIDDEN * C);
  WHOLES(species_ptr, T + 1), WHOLES(species_order, NODES), INDICES(species_list, NODES);
  REALS(z, NODES * STK_MOST_ROWS * C), REALS(a, NODES * STK_STORED * C);
  REALS(ga, NODES * STK_STORED * C), REALS(product, NODES * HIDDEN * C);
  REALS(gsums, NODES * STK_STORED * C);
  REALS(density, MOST), REALS(gdensity, MOST), WHOLES(number, NODES);
  REALS(gproduct, NODES * HIDDEN * C), REALS(x, NODES * HIDDEN * C), REALS(gout, NODES * HIDDEN * C);
}

static void lay_out(state *s, arena *from, int64_t owned, int64_t all) {
  s->block = take(from, 4 * (owned + 1));
  for (int k = 0; k < STK_LAYERS; k++) {
    if (k < LAST) s->a[k] = take(from, owned * STK_STORED * C * sizeof(real));
    if (k == 0) continue;
    s->x[k] = take(from, owned * HIDDEN * C * sizeof(real));
    s->dx[k] = take(from, owned * HIDDEN * C * sizeof(real));
    s->u[k] = take(from, all * HIDDEN * C * sizeof(real));
    s->du[k] = take(from, all * HIDDEN * C * sizeof(real));
  }
}

static int64_t bench_bytes(int64_t all) {
  bench b;
  arena from = {NULL, 0};
  lay_out_bench(&b, &from, all);
  return from.used;
}

static int64_t workspace(const stk_model *model, int64_t owned, int64_t all, int64_t edges,
                         int32_t threads) {
  state s;
  arena from = {NULL, 0};
  (void)model, (void)edges;
  take(&from, sizeof(state));
  lay_out(&s, &from, owned, all);
  return from.used + threads * bench_bytes(all);
}

static stk_run *begin(const stk_model *model, const stk_graph *g, void *at, int32_t threads,
                      double *energy, double *gradient) {
  state *s = at;
  arena from = {at, 0};
  memset(s, 0, sizeof *s);
  take(&from, sizeof(state));
  s->common = (stk_run){model, *g, energy, gradient, threads, 0};
  lay_out(s, &from, g->owned, g->all);
  s->scratch = (char *)at + from.used;
  int64_t many = 0;
  for (int64_t i = 0; i < g->owned;) {
    const int64_t first = i;
    s->block[many++] = (int32_t)i;
    if (g->ptr[i + 1] - g->ptr[i] > MOST) return NULL;
    do i++;
    while (i < g->owned && i - first < NODES && g->ptr[i + 1] - g->ptr[first] <= TARGET);
  }
  s->block[many] = (int32_t)g->owned;
  s->num_blocks = many;
  for (int64_t i = 0; i < g->owned; i++)
    energy[i] = g->species[i] < 0 ? 0 : ((const double *)STK_WEIGHTS(model, shift))[g->species[i]];
  for (int k = 1; k < STK_LAYERS; k++)
    memset(s->du[k], 0, g->all * HIDDEN * C * sizeof(real));
  return &s->common;
}

/* ---- one block ---- */

/* Interval of the tables that contains a distance. */
static void place_edge(bench *b, int64_t e, double r, int receiver, int sender) {
  const double at = r / STK_STEP;
  const int64_t intervals = STK_BINS / STK_TABLES;
  int64_t k = at < intervals - 1 ? (int64_t)at : intervals - 1;
  b->local[e] = (real)(at - (double)k - 0.5);
  if (k == intervals - 1) b->local[e] = 0;
  b->bin[e] = (STK_TABLES > 1 ? receiver * T + sender : 0) * intervals + k;
}

/* The edges of a block's receivers, with the senders' rows that the layer reads. */
static void gather(const state *s, bench *b, int64_t number, int layer) {
  const stk_graph *g = &s->common.graph;
  b->first = s->block[number];
  b->nodes = s->block[number + 1] - b->first;
  b->edges = 0, b->slots = layer ? 0 : T;
  b->stamp_now++;
  for (int64_t k = 0; k < b->nodes; k++) {
    const int64_t i = b->first + k;
    b->ptr[k] = b->edges;
    for (int64_t e = g->ptr[i]; g->species[i] >= 0 && e < g->ptr[i + 1]; e++) {
      const int32_t j = g->sender[e];
      const double *d = g->vector + 3 * e, r = sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]);
      if (g->species[j] < 0 || r >= STK_CUTOFF) continue;
      const int64_t n = b->edges++;
      b->place[n] = e, b->inverse[n] = 1 / r;
      for (int c = 0; c < 3; c++) b->vector[3 * n + c] = (real)-d[c];
      place_edge(b, n, r, g->species[i], g->species[j]);
      if (layer && b->stamp[j] != b->stamp_now) {
        b->stamp[j] = b->stamp_now, b->slot_of_node[j] = (int32_t)b->slots;
        b->node_of_slot[b->slots++] = j;
      }
      b->sender[n] = layer ? j : g->species[j];
      b->slot[n] = layer ? b->slot_of_node[j] : g->species[j];
    }
  }
  b->ptr[b->nodes] = b->edges;
  memset(b->bin_ptr, 0, (STK_BINS + 1) * 8);
  for (int64_t e = 0; e < b->edges; e++) b->bin_ptr[b->bin[e] + 1]++;
  for (int64_t k = 0; k < STK_BINS; k++) b->bin_ptr[k + 1] += b->bin_ptr[k];
  for (int64_t e = b->edges - 1; e >= 0; e--) b->bin_order[--b->bin_ptr[b->bin[e] + 1]] = e;
  memmove(b->bin_ptr, b->bin_ptr + 1, STK_BINS * 8);
  b->bin_ptr[STK_BINS] = b->edges;
  int64_t many = 0;
  for (int t = 0; t < T; t++) {
    b->species_ptr[t] = many;
    for (int64_t k = 0; k < b->nodes; k++)
      if (g->species[b->first + k] == t)
        b->species_order[many] = k, b->species_list[many++] = (int32_t)k;
  }
  b->species_ptr[T] = many;
}

/* Harmonics, radial weights and, if the layer has one, the density of the block's edges. */
static void edge_values(const state *s, bench *b, int layer) {
  const stk_layer *at = LAYERS + layer;
  harmonics(forward)(b->edges, b->vector, b->y, 1);
  table(values)(STK_BINS, at->weights, b->bin_ptr, b->bin_order, b->local,
                s->common.model->arrays[at->table], b->w, 1);
  if (!at->has_density) return;
  table(values)(STK_BINS, 1, b->bin_ptr, b->bin_order, b->local,
                s->common.model->arrays[at->density], b->density, 1);
  for (int64_t k = 0; k < b->nodes; k++) {
    b->number[k] = 1;
    for (int64_t e = b->ptr[k]; e < b->ptr[k + 1]; e++) b->number[k] += (double)b->density[e];
  }
}

static const real *features(const state *s, int layer) {
  return layer ? s->u[layer] : STK_WEIGHTS(s->common.model, embedded);
}

static double activation(double z, double *slope) {
  if (STK_GATE == 1) return *slope = 1, z;
  if (STK_GATE == 2) return *slope = z > 0 ? 1 : z < 0 ? -1 : 0, fabs(z);
  if (STK_GATE == 3) {
    const double t = tanh(z);
    return *slope = 1 - t * t, t;
  }
  const double sigmoid = 1 / (1 + exp(-z));
  return *slope = sigmoid * (1 + z * (1 - sigmoid)), z * sigmoid;
}

/* Add the energy of a node's scalars x (C) and, times its species' scale, its gradient to g. */
static double readout(const state *s, int layer, int species, const real *x, real *g) {
  const stk_layer *at = LAYERS + layer;
  if (!at->reads_out) return 0;
  const real *w = s->common.model->arrays[at->readout];
  const double scale = ((const double *)STK_WEIGHTS(s->common.model, scale))[species];
  double energy = 0;
  if (!at->readout_width) {
    for (int c = 0; c < C; c++) energy += (double)w[c] * x[c], g[c] += (real)(scale * w[c]);
    return scale * energy;
  }
  const real *last = w + C * at->readout_width;
  for (int h = 0; h < at->readout_width; h++) {
    double z = 0, slope;
    for (int c = 0; c < C; c++) z += (double)w[c * at->readout_width + h] * x[c];
    energy += last[h] * STK_GATE_SCALE * activation(z, &slope);
    const double factor = scale * last[h] * STK_GATE_SCALE * slope;
    for (int c = 0; c < C; c++) g[c] += (real)(factor * w[c * at->readout_width + h]);
  }
  return scale * energy;
}

/* From the stored rows to the layer's output rows (nodes, rows of its degrees, C). */
static void outputs(const state *s, bench *b, int layer, const real *a, real *out);
/* From the sums of messages b->z to the stored rows. */
static void stored_rows(const state *s, bench *b, int layer, real *a);
/* From gradients of the outputs b->gout (nodes, rows, C) to those of b->z and of the layer's input. */
static void outputs_back(state *s, bench *b, int layer, const real *a);

/* Sums of messages of the block, and the rows that the layer stores. */
static void messages(const state *s, bench *b, int layer, real *a) {
  const stk_layer *at = LAYERS + layer;
  const int64_t chunk[2] = {0, b->nodes}, slots[2] = {0, b->slots};
  edge_values(s, b, layer);
  at->forward(b->nodes, 0, 1, chunk, b->ptr, b->identity, b->sender, b->slot, slots, b->identity,
              features(s, layer), b->y, b->w, b->z, 1);
  stored_rows(s, b, layer, a);
}

/* From gradients of the outputs b->gout to those of edges, senders and inputs. */
static void backward(state *s, bench *b, int layer, const real *a) {
  const stk_layer *at = LAYERS + layer;
  const void *const *weights = s->common.model->arrays;
  const int64_t chunk[2] = {0, b->nodes}, slots[2] = {0, b->slots};
  if (layer) memset(s->dx[layer] + b->first * HIDDEN * C, 0, b->nodes * HIDDEN * C * sizeof(real));
  outputs_back(s, b, layer, a);
  const int64_t own = b->slots * at->width;
  memset(b->gx, 0, own * sizeof(real));
  at->backward(b->nodes, 0, 1, chunk, b->ptr, b->identity, b->sender, b->slot, slots, b->identity,
               features(s, layer), b->y, b->w, b->z, b->gx, b->gy, b->gw, b->own,
               (own + 63) / 64 * 64, 1);
  harmonics(backward)(b->edges, b->vector, b->gy, b->gv, 1);
  table(slopes)(STK_BINS, at->weights, b->bin_ptr, b->bin_order, b->local, weights[at->table],
                b->gw, b->gt, 1);
  if (at->has_density) {
    table(slopes)(STK_BINS, 1, b->bin_ptr, b->bin_order, b->local, weights[at->density],
                  b->gdensity, b->density, 1);
    for (int64_t e = 0; e < b->edges; e++) b->gt[e] += b->density[e];
  }
  for (int64_t e = 0; e < b->edges; e++) {
    const double slope = (double)b->gt[e] / STK_STEP * b->inverse[e];
    const double *d = s->common.graph.vector + 3 * b->place[e];
    double *g = s->common.gradient + 3 * b->place[e];
    for (int c = 0; c < 3; c++) g[c] += slope * d[c] - (double)b->gv[3 * e + c];
  }
}

/* A block of a layer before the last: outputs, energies, and the next layer's inputs. */
static void forward_block(state *s, bench *b, int layer) {
  const stk_layer *next = LAYERS + layer + 1;
  real *a = s->a[layer] + b->first * STK_STORED * C, *x = s->x[layer + 1] + b->first * HIDDEN * C;
  real unused[C] = {0};
  messages(s, b, layer, a);
  outputs(s, b, layer, a, x);
  for (int64_t k = 0; k < b->nodes; k++) {
    const int species = s->common.graph.species[b->first + k];
    if (species >= 0)
      s->common.energy[b->first + k] += readout(s, layer, species, x + k * HIDDEN * C, unused);
  }
  mix(b->nodes, STK_LAST_HIDDEN, NULL, x, HIDDEN, s->common.model->arrays[next->up],
      s->u[layer + 1] + b->first * HIDDEN * C, HIDDEN);
}

/* A block of the last layer, forward and backward. */
static void last_block(state *s, bench *b) {
  messages(s, b, LAST, b->a);
  outputs(s, b, LAST, b->a, b->x);
  memset(b->gout, 0, b->nodes * C * sizeof(real));
  for (int64_t k = 0; k < b->nodes; k++) {
    const int species = s->common.graph.species[b->first + k];
    if (species >= 0)
      s->common.energy[b->first + k] += readout(s, LAST, species, b->x + k * C, b->gout + k * C);
  }
  backward(s, b, LAST, b->a);
}

/* Backward pass of a block of a layer before the last, which recomputes its weights. */
static void backward_block(state *s, bench *b, int layer) {
  const stk_layer *next = LAYERS + layer + 1;
  const int64_t first = b->first * HIDDEN * C;
  edge_values(s, b, layer);
  memcpy(b->gout, s->dx[layer + 1] + first, b->nodes * HIDDEN * C * sizeof(real));
  mix_back(b->nodes, STK_LAST_HIDDEN, NULL, s->du[layer + 1] + first, HIDDEN,
           s->common.model->arrays[next->up_t], b->gout, HIDDEN, 1);
  for (int64_t k = 0; k < b->nodes; k++) {
    const int species = s->common.graph.species[b->first + k];
    const real *x = s->x[layer + 1] + first + k * HIDDEN * C;
    if (species >= 0) readout(s, layer, species, x, b->gout + k * HIDDEN * C);
  }
  backward(s, b, layer, s->a[layer] + b->first * STK_STORED * C);
}

static void add_senders(state *s, const bench *b, int layer) {
  for (int64_t k = 0; layer && k < b->slots; k++) {
    real *to = s->du[layer] + (int64_t)b->node_of_slot[k] * HIDDEN * C;
    for (int c = 0; c < HIDDEN * C; c++) to[c] += b->gx[k * HIDDEN * C + c];
  }
}

enum { FORWARD, BOTH, BACKWARD };

static void over_blocks(state *s, int layer, int what) {
  const int64_t all = s->common.graph.all;
#pragma omp parallel num_threads(s->common.threads)
  {
    int thread = 0;
#ifdef _OPENMP
    thread = omp_get_thread_num();
#endif
    bench b = {0};
    arena from = {s->scratch + thread * bench_bytes(all), 0};
    lay_out_bench(&b, &from, all);
    memset(b.stamp, 0, all * sizeof *b.stamp);
    for (int64_t k = 0; k < MOST + T; k++) b.identity[k] = k;
#pragma omp for ordered schedule(monotonic : dynamic, 1)
    for (int64_t k = 0; k < s->num_blocks; k++) {
      gather(s, &b, k, layer);
      if (what == FORWARD) forward_block(s, &b, layer);
      if (what == BOTH) last_block(s, &b);
      if (what == BACKWARD) backward_block(s, &b, layer);
#pragma omp ordered
      if (what != FORWARD) add_senders(s, &b, layer);
    }
  }
}

static int32_t advance(stk_run *run, stk_exchange *wanted) {
  state *s = (state *)run;
  const int stage = run->stage++;
  wanted->width = HIDDEN * C;
  if (stage < LAST) {
    over_blocks(s, stage, FORWARD);
    wanted->rows = s->u[stage + 1];
    return STK_FORWARD;
  }
  const int layer = 2 * LAST - stage; /* LAST, then down to 0 */
  over_blocks(s, layer, layer == LAST ? BOTH : BACKWARD);
  if (layer > 0) {
    wanted->rows = s->du[layer];
    return STK_REVERSE;
  }
  add_repulsion(run);
  return STK_DONE;
}

static void *prepare(const stk_model *model) {
  (void)model;
  return malloc(1);
}

const stk_variant STK_OF(stk_variant) = {
  STK_TEXT(STK_VARIANT), prepare, free, workspace, begin, advance};
#endif
