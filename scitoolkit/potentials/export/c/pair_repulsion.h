/* ZBL repulsion and mean interaction energies in double precision, added to energies and edge
   gradients.

   The receiver has half of a pair's energy charge/r phi(scale r) w(r); both directions of a pair are
   edges. phi is a sum of four exponentials (Ziegler, Biersack, Littmark 1985); w decreases to zero
   at `outer`, by a quintic from `inner` on or as a polynomial cutoff of r / outer. */
#ifndef STK_PAIR_REPULSION_H
#define STK_PAIR_REPULSION_H
#include "stk_internal.h"
#include <math.h>

typedef struct {
  double charge, scale, inner, outer;
  const double *amplitudes, *decays;
  int power; /* of the polynomial cutoff, 0 for the quintic */
} stk_pair;

/* w and dw/dr. */
static inline double pair_switch(const stk_pair *p, double r, double *slope) {
  if (p->power) {
    const double n = p->power, u = r / p->outer, v = pow(u, n - 1);
    *slope = -n * (n + 1) * (n + 2) / 2 * v * (1 - u) * (1 - u) / p->outer;
    return 1 - v * u * ((n + 1) * (n + 2) / 2 - n * (n + 2) * u + n * (n + 1) / 2 * u * u);
  }
  const double width = p->outer - p->inner, t = (r - p->inner) / width, u = t < 0 ? 0 : t;
  *slope = -30 * u * u * (1 - u) * (1 - u) / width;
  return (1 - u) * (1 - u) * (1 - u) * (1 + u * (3 + 6 * u));
}

/* Energy of a pair and its derivative with respect to r. */
static inline double pair_energy(const stk_pair *p, double r, double *slope) {
  double phi = 0, fall = 0, steep;
  for (int k = 0; k < 4; k++) {
    const double each = p->amplitudes[k] * exp(-p->decays[k] * p->scale * r);
    phi += each, fall += p->decays[k] * each;
  }
  const double energy = p->charge / r * phi, w = pair_switch(p, r, &steep);
  *slope = w * (-energy / r - p->charge / r * p->scale * fall) + steep * energy;
  return w * energy;
}

/* `table`: charge, scale, inner, outer of each pair of species, (4, T, T); amplitudes; decays. */
static inline void add_pairs(stk_run *run, const double *table, int power) {
  enum { T = STK_NUM_SPECIES, PAIRS = T * T };
  const stk_graph *g = &run->graph;
#pragma omp parallel for schedule(static) num_threads(run->threads)
  for (int64_t i = 0; i < g->owned; i++)
    for (int64_t e = g->ptr[i]; g->species[i] >= 0 && e < g->ptr[i + 1]; e++) {
      const int other = g->species[g->sender[e]];
      if (other < 0) continue;
      const double *at = table + g->species[i] * T + other, *d = g->vector + 3 * e;
      const stk_pair pair = {at[0], at[PAIRS], at[2 * PAIRS], at[3 * PAIRS], table + 4 * PAIRS,
                             table + 4 * PAIRS + 4, power};
      const double r = sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]);
      if (r >= pair.outer) continue;
      double slope;
      run->energy[i] += 0.5 * pair_energy(&pair, r, &slope);
      for (int c = 0; c < 3; c++) run->gradient[3 * e + c] += 0.5 * slope * d[c] / r;
    }
}

/* Mean interaction energies M (1 - exp(-(n / n_0)^2)) with n = sum_j (1 - (r_j / cutoff)^2)^3.
   `table`: n_0, cutoff, M of each species. */
static inline void add_mean_interaction(stk_run *run, const double *table) {
  const stk_graph *g = &run->graph;
  const double inverse = 1 / (table[1] * table[1]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
  for (int64_t i = 0; i < g->owned; i++) {
    if (g->species[i] < 0) continue;
    double density = 0;
    for (int64_t e = g->ptr[i]; e < g->ptr[i + 1]; e++) {
      const double *d = g->vector + 3 * e;
      const double left = 1 - (d[0] * d[0] + d[1] * d[1] + d[2] * d[2]) * inverse;
      if (g->species[g->sender[e]] >= 0 && left > 0) density += left * left * left;
    }
    const double relative = density / table[0], energy = table[2 + g->species[i]];
    const double slope = energy * 2 * relative / table[0] * exp(-relative * relative);
    run->energy[i] -= energy * expm1(-relative * relative);
    for (int64_t e = g->ptr[i]; e < g->ptr[i + 1]; e++) {
      const double *d = g->vector + 3 * e;
      const double left = 1 - (d[0] * d[0] + d[1] * d[1] + d[2] * d[2]) * inverse;
      if (g->species[g->sender[e]] < 0 || left <= 0) continue;
      for (int c = 0; c < 3; c++)
        run->gradient[3 * e + c] -= slope * 6 * inverse * left * left * d[c];
    }
  }
}

static inline void add_repulsion(stk_run *run) {
#ifdef STK_ZBL
  add_pairs(run, STK_WEIGHTS(run->model, zbl), 0);
#endif
#ifdef STK_INTERACTION
  add_mean_interaction(run, STK_WEIGHTS(run->model, interaction));
#endif
#ifdef STK_PAIR_REPULSION
  add_pairs(run, STK_WEIGHTS(run->model, pair_repulsion), STK_PAIR_REPULSION);
#endif
  (void)run;
}
#endif
