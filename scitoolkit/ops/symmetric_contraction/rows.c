/* Loads and stores of rows of channels; conversion between weights of paths and coefficients of
   monomials. */
static inline vec load(const real *p, int width) {
  if (width == LANES) return *(const vecu *)p;
  vec v = {0}; memcpy(&v, p, width * sizeof(real)); return v;
}
static inline void store(real *p, vec v, int width) {
  if (width == LANES) *(vecu *)p = v; else memcpy(p, &v, width * sizeof(real));
}
static void load_all(vec *v, const real *p, int count, i64 C, int width) {
  for (int i = 0; i < count; i++) v[i] = load(p + i * C, width);
}
static void store_all(real *p, const vec *v, int count, i64 C, int width) {
  for (int i = 0; i < count; i++) store(p + i * C, v[i], width);
}
static void mix(const real *W, i64 C, int width, vec *c) {
  memset(c, 0, ROWS * sizeof(vec));
  for (int i = 0; i < ENTRIES; i++) c[row[i]] += value[i] * load(W + path[i] * C, width);
}
static void unmix(const vec *gc, real *GW, i64 C, int width) {
  vec gw[PATHS]; memset(gw, 0, sizeof(gw));
  for (int i = 0; i < ENTRIES; i++) gw[path[i]] += value[i] * gc[row[i]];
  store_all(GW, gw, PATHS, C, width);
}
