/* Attention among the neighbours of an atom: moments of refined basis functions, and gradients.

   All arrays of an atom have its neighbours along the SIMD lanes, in rows of `ld` reals. Lanes after
   the last neighbour repeat it with R = 0, so that they do not contribute to the moments and their
   cotangents are zero. Attention matrices are stored transposed: row j is the key, lane i the
   query. */

#define LOGIT_SHIFT ((real)20) /* as in deepmd-kit: a neighbour at the cutoff has the logit -20 */

enum {
  ROW0, ROW1, ROW2, ROW3, UNIT0, UNIT1, UNIT2, GATE0, GATE1, GATE2, GATE_LENGTH, GATE_SLOPE,
  FADE, FADE_SLOPE, S_SLOPE, INVERSE, GEOMETRY
};

typedef struct {
  i64 layers, query, value, normalize, smooth, angular, stripped, sel;
  real cutoff, cutoff_smooth, scale, epsilon, gate_floor;
  const real *weights; /* of all layers */
} Settings;

typedef struct {
  const real *project, *project_bias, *project_back, *mix, *mix_bias, *mix_back, *gain, *offset;
} Layer;

#define PADDED_M ((M + ROWS - 1) / ROWS * ROWS)

static inline i64 projected(const Settings *s) { return 2 * s->query + s->value; }
static inline i64 vectors_of(i64 count) { return (count + LANES - 1) / LANES; }
static inline i64 square_rows(i64 count) {
  const i64 lanes = vectors_of(count) * LANES, rows = (count + ROWS - 1) / ROWS * ROWS;
  return lanes > rows ? lanes : rows;
}

static Settings settings_of(const i64 *whole, const real *numbers, const real *weights) {
  return (Settings){whole[0], whole[1], whole[2], whole[3], whole[4], whole[5], whole[6], whole[7],
                    numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], weights};
}

static Layer layer_of(const Settings *s, i64 number) {
  const i64 wide = projected(s), heavy = wide * (M + 1 + PADDED_M);
  const i64 light = s->value * (PADDED_M + M) + PADDED_M + 2 * M;
  const real *w = s->weights + number * (heavy + light);
  Layer out = {w, w + wide * M, w + wide * (M + 1), w + heavy};
  out.mix_bias = out.mix + s->value * PADDED_M;
  out.mix_back = out.mix_bias + PADDED_M;
  out.gain = out.mix_back + s->value * M;
  out.offset = out.gain + M;
  return out;
}

/* Data of an atom stored between the two passes, in rows. */
typedef struct { real *geometry, *slope, *basis; } Kept;
typedef struct { real *project, *inverse, *logit, *power, *normal, *spread; } KeptLayer;

static inline i64 kept_rows_of_layer(const Settings *s, i64 most) {
  return projected(s) + 3 + 2 * square_rows(most) + PADDED_M + 1;
}
static inline i64 kept_rows_of(const Settings *s, i64 most) {
  return GEOMETRY + 2 * PADDED_M + s->layers * kept_rows_of_layer(s, most);
}
static inline Kept kept(real *p, i64 ld) {
  return (Kept){p, p + GEOMETRY * ld, p + (GEOMETRY + PADDED_M) * ld};
}
static inline KeptLayer kept_layer(const Settings *s, real *p, i64 number, i64 most, i64 ld) {
  p += (GEOMETRY + 2 * PADDED_M + number * kept_rows_of_layer(s, most)) * ld;
  KeptLayer out = {p, p + projected(s) * ld};
  out.logit = out.inverse + 3 * ld;
  out.power = out.logit + square_rows(most) * ld;
  out.normal = out.power + square_rows(most) * ld;
  out.spread = out.normal + PADDED_M * ld;
  return out;
}

i64 kept_rows(const i64 *whole, i64 most) {
  const Settings s = settings_of(whole, (real[5]){0}, 0);
  return kept_rows_of(&s, most);
}

static inline vec larger(vec a, vec b) {
  const ivec mask = a > b;
  return (vec)(((ivec)a & mask) | ((ivec)b & ~mask));
}

/* exp(x) for x <= 0 with the rational approximation of vtanh; clamped at the smallest result. */
static inline vec vexp(vec x) {
#if IS_DOUBLE
  const real least = -700, magic = 6755399441055744.0;
  const real ln2_high = 6.93145751953125e-1, ln2_low = 1.42860682030941723212e-6;
  const whole bias = 1023, shift = 52;
#else
  const real least = -87, magic = 12582912.0f;
  const real ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  const whole bias = 127, shift = 23;
#endif
  x = larger(x, (vec){0} + least);
  vec n = x * (real)1.44269504088896340736 + magic;
  ivec power = (ivec)n;
  n -= magic;
  vec r = x - n * ln2_high;
  r -= n * ln2_low;
  power = ((power - (ivec)((vec){0} + magic)) + bias) << shift;
  const vec r2 = r * r;
#if IS_DOUBLE
  const vec P = ((r2 * 1.26177193074810590878e-4 + 3.02994407707441961300e-2) * r2
                 + 9.99999999999999999910e-1) * r;
  const vec Q = ((r2 * 3.00198505138664455042e-6 + 2.52448340349684104192e-3) * r2
                 + 2.27265548208155028766e-1) * r2 + 2.00000000000000000005;
#else
  const vec P = (r2 * 3.02994407707441961300e-2f + 1.0f) * r;
  const vec Q = (r2 * 2.52448340349684104192e-3f + 2.27265548208155028766e-1f) * r2 + 2.0f;
#endif
  return (vec)power * (Q + P) / (Q - P);
}

static inline vec inverse_root(vec x) {
  vec out;
  for (int l = 0; l < LANES; l++) out[l] = 1 / sqrt(x[l]);
  return out;
}

/* Compute rows, directions, switching function and slopes of the neighbours, and s of all lanes. */
static void geometry_of(const Settings *set, i64 count, i64 lanes, const real *vectors,
                        const real *deviation, real *g, i64 ld, real *s) {
  for (i64 l = 0; l < lanes; l++) {
    const real *v = vectors + 3 * (l < count ? l : count - 1);
    const real r = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]), inverse = 1 / r;
    const real width = set->cutoff - set->cutoff_smooth, u = (r - set->cutoff_smooth) / width;
    real w = 1, dw = 0;
    if (u >= 1) w = 0;
    else if (u > 0) {
      w = (1 - u) * (1 - u) * (1 - u) * (1 + u * (3 + 6 * u)); /* no digits cancel near 1 */
      dw = -30 * u * u * (u - 1) * (u - 1) / width;
    }
    const real part = l < count ? 1 : 0;
    const real slope = (dw - w * inverse) * inverse; /* of w / r */
    real gate = 1, gate_slope = 0;
    if (set->gate_floor > 0 && w * inverse < set->gate_floor * deviation[1]) {
      gate = w * inverse / (set->gate_floor * deviation[1]);
      gate_slope = slope / (set->gate_floor * deviation[1]);
    }
    s[l] = w * inverse / deviation[0];
    g[ROW0 * ld + l] = part * s[l];
    for (int c = 0; c < 3; c++) {
      g[(UNIT0 + c) * ld + l] = v[c] * inverse;
      g[(GATE0 + c) * ld + l] = gate * v[c] * inverse;
      g[(ROW1 + c) * ld + l] = part * w * inverse * v[c] * inverse / deviation[1 + c];
    }
    g[FADE * ld + l] = w;
    g[FADE_SLOPE * ld + l] = dw;
    g[S_SLOPE * ld + l] = slope;
    g[GATE_LENGTH * ld + l] = gate;
    g[GATE_SLOPE * ld + l] = gate_slope;
    g[INVERSE * ld + l] = inverse;
  }
}

/* Compute basis functions of the pairs of types and their derivatives by the distance. */
static void basis_of(const Settings *set, i64 count, i64 lanes, const i64 *pair, const real *s,
                     const real *g, i64 ld, real deviation, const real *w, const real *panels,
                     const real *bias, const real *factors, real *basis, real *slope) {
  for (i64 b = 0; b < lanes; b += LANES) {
    vec act[2 * M], first[FIRST_WIDTH], scratch[2 * WIDEST * 8];
    i64 kind[LANES];
    for (int l = 0; l < LANES; l++) kind[l] = pair[b + l < count ? b + l : count - 1];
    for (int m = 0; m < FIRST_WIDTH; m++)
      for (int l = 0; l < LANES; l++)
        first[m][l] = bias[(set->stripped ? 0 : kind[l]) * FIRST_WIDTH + m];
    embed(w, panels, at(s + b), first, act, scratch);
    const vec ds = at(g + S_SLOPE * ld + b) / deviation;
    const vec fade = set->smooth ? at(g + FADE * ld + b) : (vec){0} + 1;
    const vec fade_slope = set->smooth ? at(g + FADE_SLOPE * ld + b) : (vec){0};
    for (int m = 0; m < M; m++) {
      vec value = act[2 * m], change = act[2 * m + 1] * ds;
      if (set->stripped) {
        vec factor;
        for (int l = 0; l < LANES; l++) factor[l] = factors[kind[l] * M + m];
        change = change * (1 + factor * fade) + value * factor * fade_slope;
        value *= 1 + factor * fade;
      }
      V(basis + m * ld + b) = value;
      V(slope + m * ld + b) = change;
    }
  }
}

/* Normalise columns over the rows to length 1; the inverse of their length is written to `inverse`. */
static void to_unit_length(i64 rows, i64 lanes, real *x, i64 ld, real *inverse) {
  for (i64 b = 0; b < lanes; b += LANES) {
    vec sum = {0};
    for (i64 r = 0; r < rows; r++) sum += at(x + r * ld + b) * at(x + r * ld + b);
    const vec factor = inverse_root(sum);
    V(inverse + b) = factor;
    for (i64 r = 0; r < rows; r++) V(x + r * ld + b) *= factor;
  }
}

/* Vector-Jacobian product of to_unit_length, in place. */
static void unit_length_vjp(i64 rows, i64 lanes, const real *x, i64 ld, const real *inverse,
                            real *cotangent) {
  for (i64 b = 0; b < lanes; b += LANES) {
    vec along = {0};
    for (i64 r = 0; r < rows; r++) along += at(x + r * ld + b) * at(cotangent + r * ld + b);
    for (i64 r = 0; r < rows; r++)
      V(cotangent + r * ld + b) =
          (at(cotangent + r * ld + b) - at(x + r * ld + b) * along) * at(inverse + b);
  }
}

static inline vec cosine(const Settings *s, const real *g, i64 ld, i64 j, i64 b) {
  if (!s->angular) return (vec){0} + 1;
  return g[GATE0 * ld + j] * at(g + GATE0 * ld + b) + g[GATE1 * ld + j] * at(g + GATE1 * ld + b)
         + g[GATE2 * ld + j] * at(g + GATE2 * ld + b);
}

/* Compute attention weights from products of queries and keys; scaled logits and the softmax are
   stored for the backward pass. `rows` is scratch of three rows. */
static void weights_of(const Settings *s, i64 count, i64 lanes, const real *g, i64 ld, real *logit,
                       real *power, real *weight, real *rows) {
  real *most = rows, *sum = rows + ld;
  const real *fade = g + FADE * ld;
  for (i64 b = 0; b < lanes; b += LANES) {
    V(most + b) = (vec){0} - (s->smooth ? LOGIT_SHIFT : (real)1e30);
    V(sum + b) = (vec){0};
  }
  for (i64 j = 0; j < count; j++)
    for (i64 b = 0; b < lanes; b += LANES) {
      const vec x = at(logit + j * ld + b) * s->scale;
      const vec pair = fade[j] * at(fade + b);
      const vec faded = s->smooth ? (x + LOGIT_SHIFT) * pair - LOGIT_SHIFT : x;
      V(logit + j * ld + b) = x;
      V(power + j * ld + b) = faded;
      V(most + b) = larger(faded, at(most + b));
    }
  for (i64 j = 0; j < count; j++)
    for (i64 b = 0; b < lanes; b += LANES) {
      const vec p = vexp(at(power + j * ld + b) - at(most + b));
      V(power + j * ld + b) = p;
      V(sum + b) += p;
    }
  for (i64 b = 0; b < lanes; b += LANES) {
    vec all = at(sum + b);
    if (s->smooth) all += vexp(-LOGIT_SHIFT - at(most + b)) * (real)(s->sel - count);
    V(sum + b) = 1 / all;
  }
  for (i64 j = 0; j < count; j++)
    for (i64 b = 0; b < lanes; b += LANES) {
      const vec p = at(power + j * ld + b) * at(sum + b);
      const vec pair = s->smooth ? fade[j] * at(fade + b) : (vec){0} + 1;
      V(power + j * ld + b) = p;
      V(weight + j * ld + b) = p * pair * cosine(s, g, ld, j, b);
    }
}

/* Vector-Jacobian product of weights_of, in place. Recomputes the weights, and adds to the cotangents
   of switching function and directions. `rows` is scratch of one row. */
static void weights_vjp(const Settings *s, i64 count, i64 lanes, const real *g, i64 ld,
                        const real *logit, const real *power, real *weight, real *cotangent,
                        real *fade_cotangent, real *gate_cotangent, real *rows) {
  const real *fade = g + FADE * ld;
  real *mean = rows;
  for (i64 b = 0; b < lanes; b += LANES) V(mean + b) = (vec){0};
  for (i64 j = 0; j < count; j++)
    for (i64 b = 0; b < lanes; b += LANES) {
      const vec p = at(power + j * ld + b), gate = cosine(s, g, ld, j, b);
      const vec pair = s->smooth ? fade[j] * at(fade + b) : (vec){0} + 1;
      const vec all = p * pair * gate;
      V(weight + j * ld + b) = all;
      V(mean + b) += all * at(cotangent + j * ld + b);
    }
  for (i64 j = 0; j < count; j++) {
    vec fade_sum = {0}, gate_sum[3] = {{0}, {0}, {0}};
    for (i64 b = 0; b < lanes; b += LANES) {
      const vec p = at(power + j * ld + b), d = at(cotangent + j * ld + b);
      const vec gate = cosine(s, g, ld, j, b);
      const vec pair = s->smooth ? fade[j] * at(fade + b) : (vec){0} + 1;
      const vec change = p * (d * pair * gate - at(mean + b));
      if (s->smooth) {
        const vec by_pair = d * p * gate + change * (at(logit + j * ld + b) + LOGIT_SHIFT);
        V(fade_cotangent + b) += by_pair * fade[j];
        fade_sum += by_pair * at(fade + b);
      }
      if (s->angular) {
        const vec by_gate = d * p * pair;
        for (int c = 0; c < 3; c++) {
          V(gate_cotangent + c * ld + b) += by_gate * g[(GATE0 + c) * ld + j];
          gate_sum[c] += by_gate * at(g + (GATE0 + c) * ld + b);
        }
      }
      V(cotangent + j * ld + b) = change * pair * s->scale;
    }
    if (s->smooth) fade_cotangent[j] += total(fade_sum);
    if (s->angular)
      for (int c = 0; c < 3; c++) gate_cotangent[c * ld + j] += total(gate_sum[c]);
  }
}

/* Layer normalisation of basis + mixed over the basis functions. */
static void normalise(const Settings *s, i64 lanes, const Layer *layer, real *basis,
                      const real *mixed, i64 ld, real *normal, real *spread) {
  for (i64 b = 0; b < lanes; b += LANES) {
    vec mean = {0}, square = {0};
    for (int m = 0; m < M; m++) {
      const vec x = at(basis + m * ld + b) + at(mixed + m * ld + b);
      V(normal + m * ld + b) = x;
      mean += x;
    }
    mean /= (real)M;
    for (int m = 0; m < M; m++) {
      const vec x = at(normal + m * ld + b) - mean;
      V(normal + m * ld + b) = x;
      square += x * x;
    }
    const vec factor = inverse_root(square / (real)M + s->epsilon);
    V(spread + b) = factor;
    for (int m = 0; m < M; m++) {
      const vec x = at(normal + m * ld + b) * factor;
      V(normal + m * ld + b) = x;
      V(basis + m * ld + b) = x * layer->gain[m] + layer->offset[m];
    }
  }
}

static void normalise_vjp(i64 lanes, const Layer *layer, const real *normal, const real *spread,
                          i64 ld, real *cotangent) {
  for (i64 b = 0; b < lanes; b += LANES) {
    vec mean = {0}, along = {0};
    for (int m = 0; m < M; m++) {
      const vec x = at(cotangent + m * ld + b) * layer->gain[m];
      V(cotangent + m * ld + b) = x;
      mean += x;
      along += x * at(normal + m * ld + b);
    }
    mean /= (real)M;
    along /= (real)M;
    for (int m = 0; m < M; m++)
      V(cotangent + m * ld + b) =
          (at(cotangent + m * ld + b) - mean - at(normal + m * ld + b) * along) * at(spread + b);
  }
}

/* Allocate the scratch of a thread, large enough for both passes. */
static real *scratch_of(const Settings *s, i64 most, i64 ld) {
  const i64 rows = 2 * PADDED_M + projected(s) + 2 * s->value + 4 * square_rows(most) + 16;
  return aligned_alloc(64, (sizeof(real) * rows * ld + 63) / 64 * 64);
}

/* Moments (n, M, 4) of the atoms in `atoms`. */
void attention_moments(i64 n, const i64 *atoms, const i64 *pointer, const i64 *types,
                       const i64 *pair, const real *vectors, const real *deviation,
                       const real *embedding, const real *bias, const real *factors,
                       const i64 *whole, const real *numbers, const real *weights, i64 most,
                       i64 ld, real *memory, real *out, i64 threads) {
  const Settings s = settings_of(whole, numbers, weights);
  const i64 stride = kept_rows_of(&s, most) * ld;
  real *panels = malloc(sizeof(real) * PACKED);
  pack(embedding, panels);
#pragma omp parallel num_threads(threads)
  {
    real *scratch = scratch_of(&s, most, ld);
    real *mixed = scratch, *values = mixed + PADDED_M * ld, *weight = values + s.value * ld;
    real *rows = weight + square_rows(most) * ld;
#pragma omp for schedule(dynamic, 1)
    for (i64 k = 0; k < n; k++) {
      const i64 i = atoms[k], begin = pointer[i], count = pointer[i + 1] - begin;
      memset(out + k * 4 * M, 0, sizeof(real) * 4 * M);
      if (!count) continue;
      const i64 v = vectors_of(count), lanes = v * LANES;
      Kept own = kept(memory + k * stride, ld);
      real *g = own.geometry;
      geometry_of(&s, count, lanes, vectors + 3 * begin, deviation + 4 * types[i], g, ld, rows);
      basis_of(&s, count, lanes, pair + begin, rows, g, ld, deviation[4 * types[i]], embedding,
               panels, bias, factors, own.basis, own.slope);
      for (i64 l = 0; l < s.layers; l++) {
        const Layer layer = layer_of(&s, l);
        const KeptLayer x = kept_layer(&s, memory + k * stride, l, most, ld);
        const real *query = x.project, *key = query + s.query * ld, *value = key + s.query * ld;
        product_panels(projected(&s), v, M, layer.project, M, own.basis, ld, layer.project_bias, 0,
                       x.project);
        if (s.normalize) {
          to_unit_length(s.query, lanes, x.project, ld, x.inverse);
          to_unit_length(s.query, lanes, x.project + s.query * ld, ld, x.inverse + ld);
          to_unit_length(s.value, lanes, x.project + 2 * s.query * ld, ld, x.inverse + 2 * ld);
        }
        product_transposed((count + ROWS - 1) / ROWS * ROWS, v, s.query, key, query, ld, x.logit);
        weights_of(&s, count, lanes, g, ld, x.logit, x.power, weight, rows);
        product_plain(s.value, v, count, value, weight, ld, values);
        product_panels(PADDED_M, v, s.value, layer.mix, s.value, values, ld, layer.mix_bias, 0,
                       mixed);
        normalise(&s, lanes, &layer, own.basis, mixed, ld, x.normal, x.spread);
      }
      for (int m = 0; m < M; m++)
        for (int c = 0; c < 4; c++) {
          vec sum = {0};
          for (i64 b = 0; b < lanes; b += LANES)
            sum += at(own.basis + m * ld + b) * at(g + (ROW0 + c) * ld + b);
          out[k * 4 * M + 4 * m + c] = total(sum) / s.sel;
        }
    }
    free(scratch);
  }
  free(panels);
}

/* d(sum of cotangent * moments)/d(edge vectors), after `attention_moments` of the same atoms. */
void attention_slopes(i64 n, const i64 *atoms, const i64 *pointer, const i64 *types,
                      const real *deviation, const i64 *whole, const real *numbers,
                      const real *weights, i64 most, i64 ld, real *memory, const real *cotangent,
                      real *out, i64 threads) {
  const Settings s = settings_of(whole, numbers, weights);
  const i64 stride = kept_rows_of(&s, most) * ld, square = square_rows(most) * ld;
#pragma omp parallel num_threads(threads)
  {
    real *scratch = scratch_of(&s, most, ld);
    real *by_basis = scratch, *by_project = by_basis + PADDED_M * ld;
    real *by_values = by_project + projected(&s) * ld, *weight = by_values + s.value * ld;
    real *by_weight = weight + square, *turned = by_weight + square, *rows = turned + square;
    real *by_row = rows, *by_gate = rows + 4 * ld, *by_fade = rows + 7 * ld, *free_row = rows + 8 * ld;
#pragma omp for schedule(dynamic, 1)
    for (i64 k = 0; k < n; k++) {
      const i64 i = atoms[k], begin = pointer[i], count = pointer[i + 1] - begin;
      if (!count) continue;
      const i64 v = vectors_of(count), lanes = v * LANES;
      const Kept own = kept(memory + k * stride, ld);
      const real *g = own.geometry, *change = cotangent + k * 4 * M;
      memset(rows, 0, sizeof(real) * 8 * ld);
      for (int m = 0; m < M; m++) {
        const real *c = change + 4 * m;
        for (i64 b = 0; b < lanes; b += LANES) {
          const vec basis = at(own.basis + m * ld + b);
          vec sum = {0};
          for (int d = 0; d < 4; d++) {
            sum += c[d] * at(g + (ROW0 + d) * ld + b);
            V(by_row + d * ld + b) += c[d] * basis;
          }
          V(by_basis + m * ld + b) = sum;
        }
      }
      for (i64 l = s.layers - 1; l >= 0; l--) {
        const Layer layer = layer_of(&s, l);
        const KeptLayer x = kept_layer(&s, memory + k * stride, l, most, ld);
        const real *query = x.project, *key = query + s.query * ld, *value = key + s.query * ld;
        real *by_query = by_project, *by_key = by_query + s.query * ld;
        real *by_value = by_key + s.query * ld;
        normalise_vjp(lanes, &layer, x.normal, x.spread, ld, by_basis);
        product_panels(s.value, v, M, layer.mix_back, M, by_basis, ld, 0, 0, by_values);
        product_transposed((count + ROWS - 1) / ROWS * ROWS, v, s.value, value, by_values, ld,
                           by_weight);
        weights_vjp(&s, count, lanes, g, ld, x.logit, x.power, weight, by_weight, by_fade, by_gate,
                    free_row);
        product_plain(s.query, v, count, key, by_weight, ld, by_query);
        for (i64 j = count; j < lanes; j++) {
          memset(weight + j * ld, 0, sizeof(real) * lanes);
          memset(by_weight + j * ld, 0, sizeof(real) * lanes);
        }
        transpose_square(v, weight, ld, turned);
        product_plain(s.value, v, count, by_values, turned, ld, by_value);
        transpose_square(v, by_weight, ld, turned);
        product_plain(s.query, v, count, query, turned, ld, by_key);
        if (s.normalize) {
          unit_length_vjp(s.query, lanes, query, ld, x.inverse, by_query);
          unit_length_vjp(s.query, lanes, key, ld, x.inverse + ld, by_key);
          unit_length_vjp(s.value, lanes, value, ld, x.inverse + 2 * ld, by_value);
        }
        product_panels(PADDED_M, v, projected(&s), layer.project_back, projected(&s), by_project,
                       ld, 0, 1, by_basis);
      }
      const real *dev = deviation + 4 * types[i], part = (real)1 / s.sel;
      for (i64 b = 0; b < lanes; b += LANES) {
        vec unit[3], turn[3], across = {0}, by_length = {0}, by_s = at(by_row + b) / dev[0];
        const vec inverse = at(g + INVERSE * ld + b), level = at(g + FADE * ld + b) * inverse;
        for (int c = 0; c < 3; c++) {
          unit[c] = at(g + (UNIT0 + c) * ld + b);
          const vec by = at(by_row + (1 + c) * ld + b) / dev[1 + c];
          by_s += by * unit[c];
          const vec by_direction = at(by_gate + c * ld + b);
          turn[c] = by * level + by_direction * at(g + GATE_LENGTH * ld + b);
          by_length += by_direction * unit[c];
          across += turn[c] * unit[c];
        }
        vec along = by_s * at(g + S_SLOPE * ld + b)
                    + at(by_fade + b) * at(g + FADE_SLOPE * ld + b)
                    + by_length * at(g + GATE_SLOPE * ld + b);
        for (int m = 0; m < M; m++)
          along += at(by_basis + m * ld + b) * at(own.slope + m * ld + b);
        for (int c = 0; c < 3; c++) {
          const vec x = (along * unit[c] + (turn[c] - unit[c] * across) * inverse) * part;
          for (int l = 0; l < LANES && b + l < count; l++) out[3 * (begin + b + l) + c] = x[l];
        }
      }
    }
    free(scratch);
  }
}
