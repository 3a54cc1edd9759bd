/* Driver of exported Deep Potentials with any descriptors: se_e2_a, se_e2_r, se_atten or several.

   All are strictly local. A thread computes one block of consecutive atoms: the moments of each
   descriptor from the neighbours within its cutoff, the fitting net over all of them, and the
   derivatives with respect to the edges; the bits of an atom do not depend on the number of
   threads. Models of one se_e2_a have a faster driver, deep_potential.c. */
#include "stk_internal.h"
#include "pair_repulsion.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = STK_NUM_SPECIES, BLOCK = 12, /* atoms, whose attention fits in the cache */ LINE = 64 };

typedef int64_t stk_kept_rows(const int64_t *whole, int64_t most);
typedef void stk_attention(int64_t n, const int64_t *atoms, const int64_t *pointer,
    const int64_t *types, const int64_t *pair, const real *vectors, const real *deviation,
    const real *embedding, const real *first_bias, const real *factors, const int64_t *whole,
    const real *numbers, const real *weights, int64_t most, int64_t ld, real *memory, real *out,
    int64_t threads);
typedef void stk_attention_back(int64_t n, const int64_t *atoms, const int64_t *pointer,
    const int64_t *types, const real *deviation, const int64_t *whole, const real *numbers,
    const real *weights, int64_t most, int64_t ld, real *memory, const real *cotangent, real *out,
    int64_t threads);

typedef struct {
  int basis, axis, columns; /* moments (basis, columns); axis: of D, 0 if D is the moments */
  int constant;             /* number of inputs of the fitting net that depend on the type alone */
  int one_side;             /* whether networks depend on the neighbour's type alone */
  int embedding_layers, widths[8], network; /* of the embedding nets; reals of one */
  double cutoff, cutoff_smooth, sel_sum;
  /* Numbers of arrays; those that a kind of descriptor lacks are 0 and not read. */
  int mean, deviation, embedding, absent, empty, sel, excluded, of_type;
  int first_bias, factors, numbers, attention;
  int64_t whole[8]; /* settings of the attention kernels, whose functions are NULL for pairs */
  stk_kept_rows *kept_rows;
  stk_attention *moments;
  stk_attention_back *slopes;
} stk_descriptor;
#include "descriptors.h"

typedef struct {
  int64_t edges;                /* of the block within the cutoff and not excluded */
  int64_t ptr[BLOCK + 1];
  int64_t *place, *pair;        /* (edges): index in the graph; other type, or pair of types */
  int32_t missing[BLOCK][T], out[BLOCK][T]; /* kept and excluded neighbours by type */
  real *vectors, *gradient;     /* (edges, 3) */
  real *values, *cotangent;     /* (BLOCK, basis, columns) */
  real *g, *dg;                 /* (edges, basis): basis functions, and their slopes */
  real *kept;                   /* of the attention kernels */
  int64_t most, ld;
} part;

typedef struct {
  stk_run common;
} state;

/* Reals in a row of the attention kernels: an odd number of cache lines. */
static int64_t leading(int64_t most) {
  const int64_t line = LINE / sizeof(real), lanes = (most < 1 ? 16 : (most + 15) / 16 * 16);
  return ((lanes + line - 1) / line | 1) * line;
}

static void lay_out(part *parts, arena *from, int64_t most_of_block, int64_t most_of_atom) {
  for (int d = 0; d < STK_DESCRIPTORS; d++) {
    const stk_descriptor *of = DESCRIPTORS + d;
    part *p = parts + d;
    const int64_t values = (int64_t)BLOCK * of->basis * of->columns;
    p->place = take(from, most_of_block * 8), p->pair = take(from, most_of_block * 8);
    p->vectors = take(from, most_of_block * 3 * sizeof(real));
    p->gradient = take(from, most_of_block * 3 * sizeof(real));
    p->values = take(from, values * sizeof(real)), p->cotangent = take(from, values * sizeof(real));
    if (of->kept_rows) {
      p->most = most_of_atom, p->ld = leading(most_of_atom);
      p->kept = take(from, BLOCK * of->kept_rows(of->whole, p->most) * p->ld * sizeof(real));
    } else {
      p->g = take(from, most_of_block * of->basis * sizeof(real));
      p->dg = take(from, most_of_block * of->basis * sizeof(real));
    }
  }
}

/* The edges of the block within the cutoff of a descriptor. */
static void gather(const stk_run *run, const stk_descriptor *of, int64_t first, int64_t n, part *p) {
  const stk_graph *g = &run->graph;
  const real *banned = run->model->arrays[of->excluded];
  p->edges = 0;
  memset(p->missing, 0, sizeof p->missing), memset(p->out, 0, sizeof p->out);
  for (int64_t k = 0; k < n; k++) {
    const int own = g->species[first + k];
    p->ptr[k] = p->edges;
    for (int64_t e = g->ptr[first + k]; own >= 0 && e < g->ptr[first + k + 1]; e++) {
      const int other = g->species[g->sender[e]];
      const double *d = g->vector + 3 * e;
      if (other < 0 || d[0] * d[0] + d[1] * d[1] + d[2] * d[2] >= of->cutoff * of->cutoff) continue;
      if (banned[own * T + other] != 0) {
        p->out[k][other]++;
        continue;
      }
      p->missing[k][other]++;
      for (int c = 0; c < 3; c++) p->vectors[3 * p->edges + c] = (real)d[c];
      p->pair[p->edges] = of->one_side ? other : own * T + other;
      p->place[p->edges++] = e;
    }
  }
  p->ptr[n] = p->edges;
}

/* ---- se_e2_a and se_e2_r ---- */

/* s = w(r) / r and its slope. */
static double inverse_distance(const stk_descriptor *of, double r, double *slope) {
  const double width = of->cutoff - of->cutoff_smooth, t = (r - of->cutoff_smooth) / width;
  const double u = t < 0 ? 0 : t > 1 ? 1 : t;
  const double w = (1 - u) * (1 - u) * (1 - u) * (1 + u * (3 + 6 * u));
  *slope = -30 * u * u * (1 - u) * (1 - u) / width / r - w / (r * r);
  return w / r;
}

/* Basis functions of a normalised s and their slopes; layers of weights (in, out), bias and step. */
static void embed(const stk_descriptor *of, const real *w, real s, real *g, real *dg) {
  real h[STK_WIDEST], dh[STK_WIDEST], z[STK_WIDEST], dz[STK_WIDEST];
  int in = 1;
  h[0] = s, dh[0] = 1;
  for (int layer = 0; layer < of->embedding_layers; layer++) {
    const int out = of->widths[layer];
    const real *bias = w + in * out, *step = bias + out;
    memcpy(z, bias, out * sizeof(real)), memset(dz, 0, out * sizeof(real));
    for (int i = 0; i < in; i++)
      for (int j = 0; j < out; j++) z[j] += h[i] * w[i * out + j], dz[j] += dh[i] * w[i * out + j];
    for (int j = 0; j < out; j++) {
      const real t = (real)tanh((double)z[j]);
      z[j] = t * step[j], dz[j] = (1 - t * t) * dz[j] * step[j];
      if (out == in || out == 2 * in) z[j] += h[j % in], dz[j] += dh[j % in];
    }
    memcpy(h, z, out * sizeof(real)), memcpy(dh, dz, out * sizeof(real));
    w = step + out, in = out;
  }
  memcpy(g, h, in * sizeof(real)), memcpy(dg, dh, in * sizeof(real));
}

/* Rows (s, s x / r, s y / r, s z / r) of the environment, normalised; a single s for se_e2_r. */
static void row_of(const stk_descriptor *of, const real *mean, const real *deviation,
                   const real *vector, real *row) {
  double r = 0, slope;
  for (int c = 0; c < 3; c++) r += (double)vector[c] * vector[c];
  r = sqrt(r);
  const double s = inverse_distance(of, r, &slope);
  for (int c = 0; c < of->columns; c++)
    row[c] = (real)(((c ? s * vector[c - 1] / r : s) - mean[c]) / deviation[c]);
}

static void pair_moments(const stk_run *run, const stk_descriptor *of, int64_t first, int64_t n,
                         part *p) {
  const void *const *arrays = run->model->arrays;
  const int M = of->basis, K = of->columns;
  const real *absent = arrays[of->absent], *empty = arrays[of->empty], *sel = arrays[of->sel];
  for (int64_t k = 0; k < n; k++) {
    const int type = run->graph.species[first + k], own = type < 0 ? 0 : type;
    const real *mean = (const real *)arrays[of->mean] + own * K;
    const real *deviation = (const real *)arrays[of->deviation] + own * K;
    real *out = p->values + k * M * K;
    memset(out, 0, M * K * sizeof(real));
    for (int64_t e = p->ptr[k]; e < p->ptr[k + 1]; e++) {
      real row[4], *g = p->g + e * M;
      row_of(of, mean, deviation, p->vectors + 3 * e, row);
      embed(of, (const real *)arrays[of->embedding] + p->pair[e] * of->network, row[0], g,
            p->dg + e * M);
      if (K == 1) row[0] = (real)STK_RADIAL_FACTOR;
      for (int m = 0; m < M; m++)
        for (int c = 0; c < K; c++) out[m * K + c] += g[m] * row[c];
    }
    for (int m = 0; m < M * K; m++) out[m] = (real)(out[m] / of->sel_sum);
    for (int t = 0; t < T; t++) {
      const int64_t at = ((int64_t)own * T + t) * M * K;
      const real missing = sel[t] - (real)p->missing[k][t], excluded = (real)p->out[k][t];
      for (int m = 0; m < M * K; m++)
        out[m] += missing * absent[at + m] + excluded * empty[at + m];
    }
  }
}

static void pair_slopes(const stk_run *run, const stk_descriptor *of, int64_t first, int64_t n,
                        part *p) {
  const void *const *arrays = run->model->arrays;
  const int M = of->basis, K = of->columns;
  for (int64_t k = 0; k < n; k++) {
    const int type = run->graph.species[first + k], own = type < 0 ? 0 : type;
    const real *mean = (const real *)arrays[of->mean] + own * K;
    const real *deviation = (const real *)arrays[of->deviation] + own * K;
    const real *cotangent = p->cotangent + k * M * K;
    for (int64_t e = p->ptr[k]; e < p->ptr[k + 1]; e++) {
      const real *d = p->vectors + 3 * e, *g = p->g + e * M, *dg = p->dg + e * M;
      real row[4];
      double by_row[4] = {0}, by_s = 0, r = 0, slope;
      row_of(of, mean, deviation, d, row);
      for (int m = 0; m < M; m++) {
        double by_basis = K == 1 ? cotangent[m] * STK_RADIAL_FACTOR : 0;
        for (int c = 0; K > 1 && c < K; c++) {
          by_basis += (double)cotangent[m * K + c] * row[c];
          by_row[c] += (double)cotangent[m * K + c] * g[m];
        }
        by_s += by_basis * dg[m];
      }
      by_row[0] += by_s;
      for (int c = 0; c < K; c++) by_row[c] /= deviation[c] * of->sel_sum;
      for (int c = 0; c < 3; c++) r += (double)d[c] * d[c];
      r = sqrt(r);
      const double s = inverse_distance(of, r, &slope);
      double along = by_row[0], across = 0;
      for (int c = 0; c < K - 1; c++) along += by_row[1 + c] * d[c] / r;
      for (int c = 0; c < K - 1; c++) across += by_row[1 + c] * s * d[c] / r;
      for (int c = 0; c < 3; c++) {
        const double unit = d[c] / r, turn = K > 1 ? by_row[1 + c] * s - across * unit : 0;
        p->gradient[3 * e + c] = (real)(along * slope * unit + turn / r);
      }
    }
  }
}

/* ---- se_atten ---- */

static void attention_moments(const stk_run *run, const stk_descriptor *of, int64_t n,
                              const int64_t *atoms, const int64_t *types, part *p) {
  const void *const *a = run->model->arrays;
  of->moments(n, atoms, p->ptr, types, p->pair, p->vectors, a[of->deviation], a[of->embedding],
              a[of->first_bias], a[of->factors], of->whole, a[of->numbers], a[of->attention],
              p->most, p->ld, p->kept, p->values, 1);
}

static void attention_slopes(const stk_run *run, const stk_descriptor *of, int64_t n,
                             const int64_t *atoms, const int64_t *types, part *p) {
  const void *const *a = run->model->arrays;
  of->slopes(n, atoms, p->ptr, types, a[of->deviation], of->whole, a[of->numbers],
             a[of->attention], p->most, p->ld, p->kept, p->cotangent, p->gradient, 1);
}

/* ---- fitting net ---- */

/* D of a descriptor's moments, followed by the inputs that depend on the type; return their number. */
static int inputs_of(const stk_run *run, const stk_descriptor *of, int type, const real *moments,
                     real *x) {
  const int M = of->basis, K = of->columns, width = of->axis ? M * of->axis : M * K;
  if (!of->axis) memcpy(x, moments, width * sizeof(real));
  for (int m = 0; m < M; m++)
    for (int a = 0; a < of->axis; a++) {
      real sum = 0;
      for (int c = 0; c < K; c++) sum += moments[m * K + c] * moments[a * K + c];
      x[m * of->axis + a] = sum;
    }
  if (of->constant)
    memcpy(x + width, (const real *)run->model->arrays[of->of_type] + type * of->constant,
           of->constant * sizeof(real));
  return width + of->constant;
}

static int inputs_back(const stk_descriptor *of, const real *moments, const real *g, real *out) {
  const int M = of->basis, K = of->columns, width = of->axis ? M * of->axis : M * K;
  if (!of->axis) memcpy(out, g, width * sizeof(real));
  else memset(out, 0, M * K * sizeof(real));
  for (int m = 0; m < M; m++)
    for (int a = 0; a < of->axis; a++)
      for (int c = 0; c < K; c++) {
        out[m * K + c] += g[m * of->axis + a] * moments[a * K + c];
        out[a * K + c] += g[m * of->axis + a] * moments[m * K + c];
      }
  return width + of->constant;
}

/* The output of a net and its derivative g (with room for the inputs). */
static double fit(const real *net, const real *x, real *g) {
  static const int widths[] = {STK_INPUTS, STK_FITTING_WIDTHS};
  enum { LAYERS = sizeof widths / sizeof *widths - 1 };
  real h[STK_HIDDEN_TOTAL], slope[STK_HIDDEN_TOTAL], back[STK_WIDEST_FITTING];
  const real *in = x, *weights[LAYERS];
  int at = 0;
  for (int layer = 0; layer < LAYERS; layer++) {
    const int rows = widths[layer], columns = widths[layer + 1];
    const real *w = net, *bias = net + (int64_t)rows * columns, *step = bias + columns;
    real *restrict out = h + at;
    memcpy(out, bias, columns * sizeof(real));
    for (int i = 0; i < rows; i++) {
      const real value = in[i];
#pragma omp simd
      for (int j = 0; j < columns; j++) out[j] += value * w[(int64_t)i * columns + j];
    }
    for (int j = 0; j < columns; j++) {
      const real t = (real)tanh((double)out[j]);
      slope[at + j] = (1 - t * t) * step[j];
      out[j] = t * step[j];
      if (columns == rows || columns == 2 * rows) out[j] += in[j % rows];
    }
    weights[layer] = w, in = out, at += columns, net = step + columns;
  }
  const int last = widths[LAYERS];
  double energy = net[last];
  for (int j = 0; j < last; j++) energy += (double)in[j] * net[j], back[j] = net[j];
  for (int layer = LAYERS - 1; layer >= 0; layer--) {
    const int rows = widths[layer], columns = widths[layer + 1];
    const real *w = weights[layer];
    at -= columns;
    for (int i = 0; i < rows; i++) g[i] = 0;
    for (int j = 0; j < columns; j++) {
      if (columns == rows || columns == 2 * rows) g[j % rows] += back[j];
      back[j] *= slope[at + j];
    }
    for (int i = 0; i < rows; i++) {
      real sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int j = 0; j < columns; j++) sum += w[(int64_t)i * columns + j] * back[j];
      g[i] += sum;
    }
    if (layer) memcpy(back, g, rows * sizeof(real));
  }
  return energy;
}

/* ---- blocks ---- */

static void block(stk_run *run, int64_t first, int64_t n, part *parts) {
  const double *shift = STK_WEIGHTS(run->model, shift);
  int64_t atoms[BLOCK], types[BLOCK];
  for (int64_t k = 0; k < n; k++) {
    const int type = run->graph.species[first + k];
    atoms[k] = k, types[k] = type < 0 ? 0 : type;
  }
  for (int d = 0; d < STK_DESCRIPTORS; d++) {
    const stk_descriptor *of = DESCRIPTORS + d;
    gather(run, of, first, n, parts + d);
    if (of->kept_rows) attention_moments(run, of, n, atoms, types, parts + d);
    else pair_moments(run, of, first, n, parts + d);
  }
  for (int64_t k = 0; k < n; k++) {
    real x[STK_INPUTS], g[STK_WIDEST_FITTING];
    int at = 0;
    for (int d = 0; d < STK_DESCRIPTORS; d++) {
      const int64_t size = DESCRIPTORS[d].basis * DESCRIPTORS[d].columns;
      at += inputs_of(run, DESCRIPTORS + d, types[k], parts[d].values + k * size, x + at);
    }
    const real *nets = STK_WEIGHTS(run->model, fitting);
    const double energy = fit(nets + (STK_ONE_FITTING ? 0 : types[k]) * (int64_t)STK_FITTING, x, g);
    run->energy[first + k] = run->graph.species[first + k] < 0 ? 0 : energy + shift[types[k]];
    at = 0;
    for (int d = 0; d < STK_DESCRIPTORS; d++) {
      const int64_t size = DESCRIPTORS[d].basis * DESCRIPTORS[d].columns;
      at += inputs_back(DESCRIPTORS + d, parts[d].values + k * size, g + at,
                        parts[d].cotangent + k * size);
    }
  }
  for (int d = 0; d < STK_DESCRIPTORS; d++) {
    const stk_descriptor *of = DESCRIPTORS + d;
    part *p = parts + d;
    if (of->kept_rows) attention_slopes(run, of, n, atoms, types, p);
    else pair_slopes(run, of, first, n, p);
    for (int64_t e = 0; e < p->edges; e++)
      for (int c = 0; c < 3; c++)
        run->gradient[3 * p->place[e] + c] += (double)p->gradient[3 * e + c];
  }
}

static int32_t advance(stk_run *run, stk_exchange *wanted) {
  const stk_graph *g = &run->graph;
  int64_t most_of_block = 1, most_of_atom = 1, failed = 0;
  (void)wanted;
  for (int64_t i = 0; i < g->owned; i++) {
    const int64_t end = i + BLOCK < g->owned ? i + BLOCK : g->owned;
    const int64_t here = g->ptr[i + 1] - g->ptr[i], blocked = g->ptr[end] - g->ptr[i];
    most_of_atom = here > most_of_atom ? here : most_of_atom;
    most_of_block = blocked > most_of_block ? blocked : most_of_block;
  }
  const int64_t blocks = (g->owned + BLOCK - 1) / BLOCK;
#pragma omp parallel num_threads(run->threads) reduction(+ : failed)
  {
    part parts[STK_DESCRIPTORS];
    arena from = {NULL, 0};
    lay_out(parts, &from, most_of_block, most_of_atom);
    char *memory = aligned_alloc(LINE, from.used);
    from = (arena){memory, 0};
    if (memory) lay_out(parts, &from, most_of_block, most_of_atom);
    failed += !memory;
#pragma omp for schedule(dynamic, 1)
    for (int64_t k = 0; k < blocks; k++) {
      const int64_t first = k * BLOCK, left = g->owned - first;
      if (memory) block(run, first, left < BLOCK ? left : BLOCK, parts);
    }
    free(memory);
  }
  if (failed) return STK_BAD_GRAPH;
  add_repulsion(run);
  return STK_DONE;
}

static int64_t workspace(const stk_model *model, int64_t owned, int64_t all, int64_t edges,
                         int32_t threads) {
  (void)model, (void)owned, (void)all, (void)edges, (void)threads;
  return STK_ROUND(sizeof(state));
}

static stk_run *begin(const stk_model *model, const stk_graph *g, void *at, int32_t threads,
                      double *energy, double *gradient) {
  state *s = at;
  s->common = (stk_run){model, *g, energy, gradient, threads, 0};
  return &s->common;
}

static void *prepare(const stk_model *model) {
  (void)model;
  return malloc(1);
}

const stk_variant STK_OF(stk_variant) = {
  STK_TEXT(STK_VARIANT), prepare, free, workspace, begin, advance};
