/* Fluid equations of electrons before ions at rest, with a heat flux that was exported to C.

   n_t = -(n u)_x, u_t = -u u_x - p_x / n - E, p_t = -u p_x - 3 p u_x - q_x, E_t = n u
   in units of Debye length, plasma frequency and thermal speed, in a periodic box of one wavelength.
   Central differences of fourth order, three stages of Shu and Osher's scheme (1988,
   doi:10.1016/0021-9991(88)90177-5). A state is n, u, p and E of all cells. */
#include <stdint.h>
#include <stddef.h>
#include "heat_flux.h"

enum { CELLS = 32, ROW = 3 * CELLS + 1, STATE = 4 * CELLS };

static double slope(const double *f, int i, double k) {
  const double near = f[(i + 1) % CELLS] - f[(i + CELLS - 1) % CELLS];
  const double far = f[(i + 2) % CELLS] - f[(i + CELLS - 2) % CELLS];
  return (8 * near - far) / (12 * 6.283185307179586 / CELLS) * k;
}

static int rates(const double *state, double k, double *rate) {
  static double rows[CELLS * ROW], q[CELLS], current[CELLS];
  static char work[HEAT_FLUX_WORKSPACE];
  const double *n = state, *u = n + CELLS, *p = u + CELLS, *e = p + CELLS;
  for (int i = 0; i < CELLS; i++) {
    double *row = rows + i * ROW;
    for (int j = 0; j < CELLS; j++) {
      const int from = (i + j) % CELLS;
      row[j] = p[from] / n[from] - 1;
      row[CELLS + j] = n[from] - 1;
      row[2 * CELLS + j] = u[from];
    }
    row[3 * CELLS] = k;
    current[i] = n[i] * u[i];
  }
  const int status = heat_flux(CELLS, rows, q, work, sizeof work, NULL);
  for (int i = 0; i < CELLS; i++) {
    const double du = slope(u, i, k), dp = slope(p, i, k);
    rate[i] = -slope(current, i, k);
    rate[CELLS + i] = -u[i] * du - dp / n[i] - e[i];
    rate[2 * CELLS + i] = -u[i] * dp - 3 * p[i] * du - slope(q, i, k);
    rate[3 * CELLS + i] = current[i];
  }
  return status;
}

/* Advance a state of the wave number k by steps; 0, or 2 if a number is no longer finite. */
int advance(int64_t steps, double dt, double k, double *state) {
  double first[STATE], second[STATE], rate[STATE];
  int status = 0;
  for (int64_t m = 0; m < steps && status < 2; m++) {
    status = rates(state, k, rate);
    for (int i = 0; i < STATE; i++) first[i] = state[i] + dt * rate[i];
    rates(first, k, rate);
    for (int i = 0; i < STATE; i++) second[i] = .75 * state[i] + .25 * (first[i] + dt * rate[i]);
    rates(second, k, rate);
    for (int i = 0; i < STATE; i++)
      state[i] = state[i] / 3 + 2. / 3 * (second[i] + dt * rate[i]);
  }
  return status < 2 ? 0 : status;
}
