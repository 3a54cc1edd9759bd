/* exponential(a) for a <= 0: 2^k times a polynomial. within(a, outside): 0 where outside. */
static inline vec within(vec a, ivec outside) { return (vec)((ivec)a & ~outside); }
static inline vec exponential(vec a) {
  vec k = a * 0x1.71547652b82fep+0 + 0x1.8p52;
  const vec whole = k - 0x1.8p52;
  const vec f = (a - whole * 0x1.62e42fefa39efp-1) - whole * 0x1.abc9e3b39803fp-56;
  vec s = (vec){0} + 1.0 / 6227020800.0;
  const double c[] = {479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0, 720.0,
                      120.0, 24.0, 6.0, 2.0, 1.0, 1.0};
  for (int i = 0; i < 13; i++) s = s * f + 1.0 / c[i];
  const ivec bits = ((ivec)k << 52) + ((ivec)((vec){0} + 1.0));
  const vec scale = (vec)bits;
  return (vec)((ivec)(s * scale) & ~(a <= -700.0));
}

/* Rows have the type `element` of the tensors; vectors are in float64. */
static inline void load(vec *v, const element *p, int width) {
  for (int j = 0; j < width; j++) for (int l = 0; l < LANES; l++) v[j][l] = p[l * width + j];
}
static inline void store(element *p, const vec *v, int width) {
  for (int j = 0; j < width; j++) for (int l = 0; l < LANES; l++) p[l * width + j] = v[j][l];
}
