/* Time steps of 1X1V or 1X2V Vlasov species coupled by a longitudinal field.
   Included after the generated functions x_faces, v_faces, cells and density, and the constants N, M,
   F, DEGREE, EDGE, PARITY and RISE. A distribution is f[x][vy][mode][v], v contiguous with PAD on each
   side; in 1X1V there is one row of cells in vy, and hy is 1. */
enum { PERIODIC, REFLECTING, ABSORBING };
enum { AMPERE, POISSON, GIVEN };

typedef struct {
  i64 nx, nv, left, right, field, threads, ny;
  real hx, dt, penalty;
} grid_t;
typedef struct {
  real hv, charge_mass, charge, v_max, hy;
} species_t;

/* The column outside a wall: mirrored in x and v, or empty. */
static void ghost(const real *restrict f, i64 wall, i64 nv, i64 ny, real *restrict out) {
  const i64 S = nv + 2 * PAD;
  for (i64 y = 0; y < ny; y++)
    for (int m = 0; m < N; m++, f += S, out += S)
      for (i64 v = 0; v < nv; v++)
        out[PAD + v] = wall == REFLECTING ? PARITY[m] * f[PAD + nv - 1 - v] : 0;
}

/* out = ca f0 + cb (f + dt L f), and the current modes of f in J[x][M]. */
static void stage(const grid_t *g, const species_t *s, const real *f0, const real *f, real *out,
                  const real *E, real *J, const real *vc, real ca, real cb, real *ghosts,
                  real *scratch) {
  const i64 nx = g->nx, nv = g->nv, ny = g->ny, S = nv + 2 * PAD, R = (i64)N * S, B = ny * R;
  const i64 part = F * (2 * nv + S);
  const real *before = f + (nx - 1) * B, *after = f;
  if (g->left != PERIODIC) {
    ghost(f, g->left, nv, ny, ghosts);
    ghost(f + (nx - 1) * B, g->right, nv, ny, ghosts + B);
    before = ghosts;
    after = ghosts + B;
  }
#pragma omp parallel num_threads(g->threads) if (g->threads > 1)
  {
#ifdef _OPENMP
    const i64 t = omp_get_thread_num(), T = omp_get_num_threads();
#else
    const i64 t = 0, T = 1;
#endif
    const i64 first = nx * t / T, last = nx * (t + 1) / T;
    real *left = scratch + t * part, *right = left + F * nv, *v = right + F * nv;
    for (i64 x = first; x < last; x++)
      for (int k = 0; k < M; k++) J[x * M + k] = 0;
    for (i64 y = 0; y < ny; y++) {
      const i64 row = y * R + PAD;
      if (first < last)
        x_faces((first ? f + (first - 1) * B : before) + row, f + first * B + row, vc, s->hv, nv, S,
                left);
      for (i64 x = first; x < last; x++) {
        real a[M], current[M], tau = 0;
        for (int k = 0; k < M; k++) {
          a[k] = s->charge_mass * E[x * M + k];
          tau += (a[k] < 0 ? -a[k] : a[k]) * EDGE[k];
        }
        const real *c = f + x * B + row;
        x_faces(c, (x + 1 < nx ? f + (x + 1) * B : after) + row, vc, s->hv, nv, S, right);
        v_faces(c, a, g->penalty * tau, nv, S, v);
        cells(f0 + x * B + row, c, out + x * B + row, a, left, right, v, vc,
              cb * g->dt / g->hx, cb * g->dt / s->hv, s->hv, ca, cb, nv, S, current);
        for (int k = 0; k < M; k++) J[x * M + k] += s->hy * current[k];
        real *swap = left;
        left = right;
        right = swap;
      }
    }
  }
}

/* The field of the charge density, exactly integrated. It is zero at a reflecting wall; otherwise its
   mean is: a periodic potential, or walls of one potential. */
static void poisson(const grid_t *g, const real *rho, real *E) {
  real mean = 0, edge = 0, sum = 0;
  const real root = 1.4142135623730951;
  if (g->left != ABSORBING && g->right != ABSORBING) { /* a background makes the box neutral */
    for (i64 x = 0; x < g->nx; x++) mean += rho[x * M];
    mean /= g->nx;
  }
  for (i64 x = 0; x < g->nx; x++) {
    real r[M];
    for (int k = 0; k < M; k++) r[k] = rho[x * M + k] - (k ? 0 : mean);
    for (int k = 0; k < M; k++) {
      real e = k ? 0 : root * edge;
      for (int j = 0; j < M; j++) e += g->hx * RISE[k][j] * r[j];
      E[x * M + k] = e;
    }
    edge += g->hx * root * r[0];
    sum += E[x * M];
  }
  const real offset = g->left == REFLECTING ? 0 : g->right == REFLECTING ? root * edge : sum / g->nx;
  for (i64 x = 0; x < g->nx; x++) E[x * M] -= offset;
}

/* The modes of the charge density of all species. */
static void charge(const grid_t *g, i64 count, const species_t *species, real *const *f, real *rho) {
  const i64 S = g->nv + 2 * PAD, R = (i64)N * S;
  memset(rho, 0, g->nx * M * sizeof(real));
  for (i64 s = 0; s < count; s++)
    for (i64 x = 0; x < g->nx; x++)
      for (i64 y = 0; y < g->ny; y++)
        density(f[s] + (x * g->ny + y) * R + PAD, species[s].charge * species[s].hv * species[s].hy,
                g->nv, S, rho + x * M);
}

void solve_poisson(const i64 *sizes, const real *numbers, const real *about, real *const *f,
                   real *E, real *rho) {
  const grid_t g = {sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6], sizes[8],
                    numbers[0]};
  charge(&g, sizes[0], (const species_t *)about, f, rho);
  poisson(&g, rho, E);
}

/* Largest |a| over the faces, bounded by the modes. */
static real steepest(const grid_t *g, const real *E) {
  real most = 0;
  for (i64 x = 0; x < g->nx; x++) {
    real e = 0;
    for (int k = 0; k < M; k++) e += (E[x * M + k] < 0 ? -E[x * M + k] : E[x * M + k]) * EDGE[k];
    most = e > most ? e : most;
  }
  return most;
}

/* SSP-RK3 steps; returns how many were made: fewer where the next one would be unstable.
   f holds three buffers a species and E three; the state is in the first, and after an odd number
   of steps in the second. energies[i] is the field energy after step i. */
i64 advance(const i64 *sizes, const real *numbers, const real *about, real *const *buffers,
            real *const *vc, real *const *fields, real *J, real *ghosts, real *scratch,
            real *energies) {
  const i64 count = sizes[0], steps = sizes[7];
  const grid_t g = {sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6], sizes[8],
                    numbers[0], numbers[1], numbers[2]};
  const species_t *species = (const species_t *)about;
  const real ca[3] = {0, 0.75, 1.0 / 3}, cb[3] = {1, 0.25, 2.0 / 3};
  const i64 size = g.nx * M;
  real *field[3] = {fields[0], fields[1], fields[2]};
  for (i64 step = 0; step < steps; step++) {
    const real most = steepest(&g, field[0]);
    for (i64 s = 0; s < count; s++) {
      const real a = most * (species[s].charge_mass < 0 ? -species[s].charge_mass
                                                        : species[s].charge_mass);
      const real rate = species[s].v_max / (2 * g.hx) + a / (2 * species[s].hv);
      if (!((2 * DEGREE + 1) * rate * g.dt <= 1 + 1e-9)) return step;
    }
    const int odd = step & 1;
    for (int k = 0; k < 3; k++) {
      /* f -> a -> b -> a, then f and a change places */
      const int from = k == 0 ? 0 : k == 1 ? 1 : 2, to = k == 1 ? 2 : 1;
      const real *E = field[from];
      memset(J, 0, size * sizeof(real));
      for (i64 s = 0; s < count; s++) {
        real *b[3] = {buffers[3 * s + odd], buffers[3 * s + 1 - odd], buffers[3 * s + 2]};
        stage(&g, &species[s], b[0], b[from], b[to], E, J + size, vc[s], ca[k], cb[k], ghosts,
              scratch);
        for (i64 i = 0; i < size; i++) J[i] += species[s].charge * J[size + i];
      }
      if (g.field == AMPERE) {
        /* A periodic potential has no mean field: a background carries the mean current. */
        real mean = 0;
        for (i64 x = 0; x < g.nx; x++) mean += J[x * M];
        if (g.left == PERIODIC)
          for (i64 x = 0; x < g.nx; x++) J[x * M] -= mean / g.nx;
        for (i64 i = 0; i < size; i++)
          field[to][i] = ca[k] * field[0][i] + cb[k] * (E[i] - g.dt * J[i]);
      } else if (g.field == GIVEN)
        memcpy(field[to], field[0], size * sizeof(real));
      else {
        const real *f[count];
        for (i64 s = 0; s < count; s++) f[s] = buffers[3 * s + (to == 2 ? 2 : 1 - odd)];
        charge(&g, count, species, (real *const *)f, J);
        poisson(&g, J, field[to]);
      }
    }
    real *swap = field[0], energy = 0;
    field[0] = field[1];
    field[1] = swap;
    for (i64 i = 0; i < size; i++) energy += field[0][i] * field[0][i];
    energies[step] = 0.5 * g.hx * energy;
  }
  return steps;
}
