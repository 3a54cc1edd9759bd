/* Loads, stores and sums of rows and vectors. */
static inline vec gather(const real *p, int stride) {
  vec v; for (int l = 0; l < LANES; l++) v[l] = p[l*stride]; return v;
}
#define put_scatter(p, stride, v) do { const vec v_ = (v); \
  for (int l = 0; l < LANES; l++) (p)[l*(stride)] = (real)v_[l]; } while (0)
#define add_scatter(p, stride, v) do { const vec v_ = (v); \
  for (int l = 0; l < LANES; l++) (p)[l*(stride)] += v_[l]; } while (0)
static inline void prefetch(const void *p, i64 bytes) {
  for (i64 b = 0; b < bytes; b += 64) __builtin_prefetch((const char *)p + b);
}
static inline void add_row(acc *restrict to, const acc *restrict from, i64 size) {
  i64 i = 0;
  for (; i + LANES <= size; i += LANES) *(vecu *)(to + i) += *(const vecu *)(from + i);
  for (; i < size; i++) to[i] += from[i];
}
static inline void store_row(real *restrict to, const acc *restrict from, i64 size, int stream) {
  i64 i = 0;
  for (; i + LANES <= size; i += LANES) put(to + i, *(const vecu *)(from + i), 1);
  for (; i < size; i++) put1(to + i, from[i]);
}
static inline acc total(vec v) { acc s = 0; for (int l = 0; l < LANES; l++) s += v[l]; return s; }
