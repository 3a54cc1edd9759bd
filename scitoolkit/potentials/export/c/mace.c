/* Driver of an exported MACE; see message_passing.h. A layer stores the sums of messages A after
   the first channel mixing, divided by the number of neighbours: its average, which the weights
   include, or 1 and a learned density. */
#include "message_passing.h"

static void stored_rows(const state *s, bench *b, int layer, real *a) {
  const stk_layer *at = LAYERS + layer;
  const void *const *weights = s->common.model->arrays;
  real *sums = at->residual ? a : b->ga;
  mix(b->nodes, STK_LMAX, at->copies, b->z, at->rows, weights[at->down], sums, HARMONICS);
  for (int64_t k = 0; at->has_density && k < b->nodes; k++)
    for (int c = 0; c < HARMONICS * C; c++)
      sums[k * HARMONICS * C + c] = (real)(sums[k * HARMONICS * C + c] / b->number[k]);
  if (!at->residual)
    mix_species(b->species_ptr, b->species_list, STK_LMAX, sums, HARMONICS, weights[at->shortcut],
                a, HARMONICS, 0);
}

static void outputs(const state *s, bench *b, int layer, const real *a, real *out) {
  const stk_layer *at = LAYERS + layer;
  const void *const *weights = s->common.model->arrays;
  const int rows = (at->last_out + 1) * (at->last_out + 1);
  memset(out, 0, b->nodes * rows * C * sizeof(real));
  memset(b->product, 0, b->nodes * rows * C * sizeof(real));
  at->product(T, C, b->species_ptr, b->species_order, a, weights[at->contraction], b->product, 1);
  mix(b->nodes, at->last_out, NULL, b->product, rows, weights[at->mix], out, rows);
  if (!at->residual) return;
  if (layer)
    mix_species(b->species_ptr, b->species_list, at->last_kept,
                s->x[layer] + b->first * HIDDEN * C, HIDDEN, weights[at->shortcut], out, rows, 1);
  else
    for (int64_t k = 0; k < b->nodes; k++) {
      const int t = s->common.graph.species[b->first + k];
      const real *row = (const real *)weights[at->shortcut] + (int64_t)t * C;
      for (int c = 0; t >= 0 && c < C; c++) out[k * rows * C + c] += row[c];
    }
}

/* Divide the gradients of sums of messages by the number of neighbours n, and return those of the
   density: A is proportional to 1 / n, so that dE/dn = -<A, dE/dA> / n. */
static void density_back(bench *b, const real *a, const real *ga, real *gsums) {
  for (int64_t k = 0; k < b->nodes; k++) {
    double product = 0;
    for (int c = 0; c < HARMONICS * C; c++)
      product += (double)a[k * HARMONICS * C + c] * ga[k * HARMONICS * C + c];
    for (int64_t e = b->ptr[k]; e < b->ptr[k + 1]; e++)
      b->gdensity[e] = (real)(-product / b->number[k]);
    for (int c = 0; c < HARMONICS * C; c++)
      gsums[k * HARMONICS * C + c] = (real)(gsums[k * HARMONICS * C + c] / b->number[k]);
  }
}

static void outputs_back(state *s, bench *b, int layer, const real *a) {
  const stk_layer *at = LAYERS + layer;
  const void *const *weights = s->common.model->arrays;
  const int rows = (at->last_out + 1) * (at->last_out + 1);
  mix_back(b->nodes, at->last_out, NULL, b->gout, rows, weights[at->mix_t], b->gproduct, rows, 0);
  memset(b->ga, 0, b->nodes * HARMONICS * C * sizeof(real));
  at->product_back(T, C, b->species_ptr, b->species_order, a, weights[at->contraction], b->gproduct,
                   b->ga, 1);
  real *sums = b->ga;
  if (!at->residual) {
    sums = b->gsums;
    memset(sums, 0, b->nodes * HARMONICS * C * sizeof(real));
    mix_species(b->species_ptr, b->species_list, STK_LMAX, b->ga, HARMONICS,
                weights[at->shortcut_t], sums, HARMONICS, 0);
  } else if (layer) {
    mix_species(b->species_ptr, b->species_list, at->last_kept, b->gout, rows,
                weights[at->shortcut_t], s->dx[layer] + b->first * HIDDEN * C, HIDDEN, 0);
  }
  if (at->has_density) density_back(b, a, b->ga, sums);
  mix_back(b->nodes, STK_LMAX, at->copies, sums, HARMONICS, weights[at->down_t], b->z, at->rows, 0);
}
