/* Burgers' equation on a coarse periodic grid, with a closure of the flux that was exported to C.

   u_t + f_x = 0 at the centres of cells, f = (a a + a b + b b) / 6 - nu (b - a) / dx + closure at
   the face between the cells a and b, which conserves energy without viscosity and closure; three
   stages of Shu and Osher's scheme (1988, doi:10.1016/0021-9991(88)90177-5). */
#include <stdint.h>
#include <string.h>
#include "closure.h"

enum { MOST = 1024, POINTS = 6 };

static int rates(int64_t cells, float dx, float nu, const float *u, float *rate) {
  static float stencils[MOST * POINTS], extra[MOST], flux[MOST];
  static char work[CLOSURE_WORKSPACE];
  for (int64_t i = 0; i < cells; i++)
    for (int64_t k = 0; k < POINTS; k++)
      stencils[i * POINTS + k] = u[(i + k - POINTS / 2 + 1 + cells) % cells];
  const int status = closure(cells, stencils, extra, work, sizeof work, NULL);
  for (int64_t i = 0; i < cells; i++) {
    const float a = u[i], b = u[(i + 1) % cells];
    flux[i] = (a * a + a * b + b * b) / 6 - nu * (b - a) / dx + extra[i];
  }
  for (int64_t i = 0; i < cells; i++) rate[i] = (flux[(i + cells - 1) % cells] - flux[i]) / dx;
  return status;
}

/* Advance u by steps; 0, or 2 if a number is no longer finite. */
int advance(int64_t cells, int64_t steps, float dx, float dt, float nu, float *u) {
  float first[MOST], second[MOST], rate[MOST];
  int status = 0;
  for (int64_t n = 0; n < steps && status < 2; n++) {
    status = rates(cells, dx, nu, u, rate);
    for (int64_t i = 0; i < cells; i++) first[i] = u[i] + dt * rate[i];
    rates(cells, dx, nu, first, rate);
    for (int64_t i = 0; i < cells; i++) second[i] = .75f * u[i] + .25f * (first[i] + dt * rate[i]);
    rates(cells, dx, nu, second, rate);
    for (int64_t i = 0; i < cells; i++) u[i] = u[i] / 3 + 2.f / 3 * (second[i] + dt * rate[i]);
  }
  return status < 2 ? 0 : status;
}
