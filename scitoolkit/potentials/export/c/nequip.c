/* Driver of an exported NequIP; see message_passing.h. A layer stores its rows before the
   nonlinearities: those of all irreps, then one row of gates for each irrep of a degree above 0. */
#include "message_passing.h"

enum { GATES = STK_STORED - HIDDEN };

/* The activation of scalars and gates, normalised, and its derivative. */
static double silu(double z, double *slope) {
  const double sigmoid = 1 / (1 + exp(-z));
  *slope = STK_GATE_SCALE * sigmoid * (1 + z * (1 - sigmoid));
  return STK_GATE_SCALE * z * sigmoid;
}

/* The same of pseudoscalars, which must stay odd. */
static double odd(double z, double *slope) {
  const double t = tanh(z);
  *slope = STK_ODD_SCALE * (1 - t * t);
  return STK_ODD_SCALE * t;
}

/* Add the shortcut of the first layer, whose input depends on the species alone: `table` has
   `count` rows of each species. */
static void add_embedded(const state *s, const bench *b, const real *table, int count, real *out) {
  for (int64_t k = 0; k < b->nodes; k++) {
    const int t = s->common.graph.species[b->first + k];
    const real *row = table + (int64_t)t * count * C;
    for (int c = 0; t >= 0 && c < count * C; c++) out[k * STK_STORED * C + c] += row[c];
  }
}

static void stored_rows(const state *s, bench *b, int layer, real *a) {
  const stk_layer *at = LAYERS + layer;
  const void *const *weights = s->common.model->arrays;
  const int gates = layer < LAST ? GATES : 0;
  const real *input = layer ? s->x[layer] + b->first * HIDDEN * C : NULL;
  memset(a, 0, b->nodes * STK_STORED * C * sizeof(real));
  mix(b->nodes, at->last_out, at->copies, b->z, at->rows, weights[at->down], a, STK_STORED);
  if (layer)
    mix_species(b->species_ptr, b->species_list, at->last_kept, input, HIDDEN,
                weights[at->shortcut], a, STK_STORED, 1);
  else
    add_embedded(s, b, weights[at->shortcut], 1, a);
  for (int gate = 0; gate < gates; gate++) {
    real *out = a + (HIDDEN + gate) * C;
    for (int copy = 0; copy < at->copies[0]; copy++)
      gemm(b->nodes, NULL, b->z + copy * C, at->rows * C,
           (const real *)weights[at->gates] + (gate * at->copies[0] + copy) * C * C, out,
           STK_STORED * C, copy);
    if (layer)
      mix_species(b->species_ptr, b->species_list, 0, input, HIDDEN,
                  (const real *)weights[at->gates_shortcut] + gate * T * C * C, out, STK_STORED, 1);
  }
  if (gates && !layer)
    add_embedded(s, b, weights[at->gates_shortcut], gates, a + HIDDEN * C);
}

static void outputs(const state *s, bench *b, int layer, const real *a, real *out) {
  const int last = LAYERS[layer].last_out, rows = last ? HIDDEN : 1;
  double unused;
  (void)s;
  for (int64_t k = 0; k < b->nodes; k++) {
    const real *from = a + k * STK_STORED * C, *gates = from + HIDDEN * C;
    real *to = out + k * rows * C;
    for (int c = 0; c < C; c++) to[c] = (real)silu(from[c], &unused);
    for (int n = 1, at = 1; n <= last; at += 2 * DEGREES[n++] + 1) {
      for (int c = 0; c < C; c++) {
        if (!DEGREES[n]) to[at * C + c] = (real)odd(from[at * C + c], &unused);
        const double gate = DEGREES[n] ? silu(gates[c], &unused) : 0;
        for (int m = at; DEGREES[n] && m <= at + 2 * DEGREES[n]; m++)
          to[m * C + c] = (real)(gate * from[m * C + c]);
      }
      if (DEGREES[n]) gates += C;
    }
  }
}

/* Gradients of the stored rows, in b->ga. */
static void nonlinear_back(bench *b, int last, const real *a) {
  const int rows = last ? HIDDEN : 1;
  memset(b->ga, 0, b->nodes * STK_STORED * C * sizeof(real));
  for (int64_t k = 0; k < b->nodes; k++) {
    const real *from = a + k * STK_STORED * C, *g = b->gout + k * rows * C;
    real *to = b->ga + k * STK_STORED * C;
    int64_t place = HIDDEN * C;
    double slope;
    for (int c = 0; c < C; c++) silu(from[c], &slope), to[c] = (real)(slope * g[c]);
    for (int n = 1, at = 1; n <= last; at += 2 * DEGREES[n++] + 1) {
      for (int c = 0; c < C; c++) {
        if (!DEGREES[n]) {
          odd(from[at * C + c], &slope), to[at * C + c] = (real)(slope * g[at * C + c]);
          continue;
        }
        const double gate = silu(from[place + c], &slope);
        double sum = 0;
        for (int m = at; m <= at + 2 * DEGREES[n]; m++) {
          to[m * C + c] = (real)(gate * g[m * C + c]);
          sum += (double)from[m * C + c] * g[m * C + c];
        }
        to[place + c] = (real)(slope * sum);
      }
      if (DEGREES[n]) place += C;
    }
  }
}

static void outputs_back(state *s, bench *b, int layer, const real *a) {
  const stk_layer *at = LAYERS + layer;
  const void *const *weights = s->common.model->arrays;
  const int gates = layer < LAST ? GATES : 0;
  real *input = layer ? s->dx[layer] + b->first * HIDDEN * C : NULL;
  nonlinear_back(b, at->last_out, a);
  mix_back(b->nodes, at->last_out, at->copies, b->ga, STK_STORED, weights[at->down_t], b->z,
           at->rows, 0);
  if (layer)
    mix_species(b->species_ptr, b->species_list, at->last_kept, b->ga, STK_STORED,
                weights[at->shortcut_t], input, HIDDEN, 0);
  for (int gate = 0; gate < gates; gate++) {
    const real *g = b->ga + (HIDDEN + gate) * C;
    for (int copy = 0; copy < at->copies[0]; copy++)
      gemm(b->nodes, NULL, g, STK_STORED * C,
           (const real *)weights[at->gates_t] + (gate * at->copies[0] + copy) * C * C,
           b->z + copy * C, at->rows * C, 1);
    if (layer)
      mix_species(b->species_ptr, b->species_list, 0, g, STK_STORED,
                  (const real *)weights[at->gates_shortcut_t] + gate * T * C * C, input, HIDDEN, 1);
  }
}
