/* Enhancers of decoded fields, for one type of value: linear filters and small networks.
 *
 * Included twice, like predict.c. The order of operations is fixed and nothing is contracted;
 * multiply-adds of networks are explicit fused operations, which round alike with and without the
 * instruction. All IEEE machines therefore compute the same bits. docs/format/chunk.md has the bytes
 * of an enhancer.
 */

/* ---- linear filters ---- */
/* Features: sums of neighbours at equal distance minus the centre times their number; edges are
   replicated. */
static void NAME(features)(const REAL *a, const int64_t *n, int64_t z, int64_t y, REAL scale,
                     REAL *restrict f, REAL *restrict pad) {
    static const int dz[13] = {0, -1, 1, 0, 0, -1, -1, 1, 1, -2, 2, 0, 0};
    static const int dy[13] = {0, 0, 0, -1, 1, -1, 1, -1, 1, 0, 0, -2, 2};
    const int64_t w = n[2], p = w + 4;
    for (int r = 0; r < 13; r++) {
        const REAL *row = a + (nearest_inside(z + dz[r], n[0]) * n[1] + nearest_inside(y + dy[r], n[1])) * w;
        REAL *to = pad + r * p;
        memcpy(to + 2, row, (size_t)w * sizeof(REAL));
        to[0] = to[1] = row[0];
        to[w + 2] = to[w + 3] = row[w - 1];
    }
    const REAL *c = pad + 2, *z0 = c + p, *z1 = c + 2 * p, *y0 = c + 3 * p, *y1 = c + 4 * p;
    const REAL *k0 = c + 5 * p, *k1 = c + 6 * p, *k2 = c + 7 * p, *k3 = c + 8 * p;
    const REAL *zz0 = c + 9 * p, *zz1 = c + 10 * p, *yy0 = c + 11 * p, *yy1 = c + 12 * p;
    for (int64_t x = 0; x < w; x++) {
        const REAL m = c[x], m2 = 2 * m, m4 = 4 * m;
        f[x] = (c[x - 1] + c[x + 1] - m2) * scale;
        f[w + x] = (y0[x] + y1[x] - m2) * scale;
        f[2 * w + x] = (z0[x] + z1[x] - m2) * scale;
        f[3 * w + x] = (y0[x - 1] + y0[x + 1] + y1[x - 1] + y1[x + 1] - m4) * scale;
        f[4 * w + x] = (z0[x - 1] + z0[x + 1] + z1[x - 1] + z1[x + 1] - m4) * scale;
        f[5 * w + x] = (k0[x] + k1[x] + k2[x] + k3[x] - m4) * scale;
        f[6 * w + x] = (k0[x - 1] + k0[x + 1] + k1[x - 1] + k1[x + 1] + k2[x - 1] + k2[x + 1]
                        + k3[x - 1] + k3[x + 1] - 2 * m4) * scale;
        f[7 * w + x] = (c[x - 2] + c[x + 2] - m2) * scale;
        f[8 * w + x] = (yy0[x] + yy1[x] - m2) * scale;
        f[9 * w + x] = (zz0[x] + zz1[x] - m2) * scale;
    }
}

/* Class of each point of a row: the number of limits that its value or activity reaches. */
static void NAME(classify)(const REAL *restrict c, const REAL *restrict f, int64_t w, int activity,
                     const REAL *limits, int num, int32_t *restrict cls) {
    for (int64_t x = 0; x < w; x++) {
        const REAL a = f[x] < 0 ? -f[x] : f[x], b = f[w + x] < 0 ? -f[w + x] : f[w + x];
        const REAL d = f[2 * w + x] < 0 ? -f[2 * w + x] : f[2 * w + x];
        const REAL v = activity ? a + b + d : c[x];
        int32_t k = 0;
        for (int i = 0; i < num; i++) k += v >= limits[i];
        cls[x] = k;
    }
}

/* sums[class][TAPS][WIDE]: products of features with features and, at column TAPS, the target. */
int64_t NAME(linear_accumulate)(const int64_t *n, const REAL *decoded, const REAL *original, double scale,
                          int64_t activity, const REAL *limits, int64_t num, int64_t stride,
                          double *sums) {
    const int64_t w = n[2];
    REAL *f = malloc(sizeof(REAL) * (size_t)(TAPS * w + 13 * (w + 4)));
    int32_t *cls = malloc(sizeof(int32_t) * (size_t)w);
    if (!f || !cls) { free(f); free(cls); return SCK_MEMORY; }
    const REAL s = (REAL)scale;
    for (int64_t row = 0; row < n[0] * n[1]; row += stride) {
        const REAL *c = decoded + row * w, *o = original + row * w;
        NAME(features)(decoded, n, row / n[1], row % n[1], s, f, f + TAPS * w);
        NAME(classify)(c, f, w, (int)activity, limits, (int)num, cls);
        float part[MAX_CLASSES][TAPS][WIDE];
        memset(part, 0, sizeof(float) * (size_t)((num + 1) * TAPS * WIDE));
        for (int64_t x = 0; x < w; x++) {
            float v[WIDE] = {0};
            for (int i = 0; i < TAPS; i++) v[i] = (float)f[i * w + x];
            v[TAPS] = (float)((o[x] - c[x]) * s);
            float (*p)[WIDE] = part[cls[x]];
            for (int i = 0; i < TAPS; i++)
                for (int j = 0; j < WIDE; j++) p[i][j] += v[i] * v[j];
        }
        const float *from = &part[0][0][0];
        for (int64_t i = 0; i < (num + 1) * TAPS * WIDE; i++) sums[i] += from[i];
    }
    free(f); free(cls);
    return 0;
}

/* out = decoded + correction, the correction clipped to +-clip. */
int64_t NAME(linear_apply)(const int64_t *n, const REAL *decoded, double scale, int64_t activity,
                     const REAL *limits, int64_t num, const REAL *taps, double clip, REAL *out) {
    const int64_t w = n[2];
    REAL *f = malloc(sizeof(REAL) * (size_t)(TAPS * w + 13 * (w + 4)));
    int32_t *cls = malloc(sizeof(int32_t) * (size_t)w);
    if (!f || !cls) { free(f); free(cls); return SCK_MEMORY; }
    const REAL s = (REAL)scale, unit = (REAL)(1 / scale), top = (REAL)(clip * scale);
    for (int64_t row = 0; row < n[0] * n[1]; row++) {
        const REAL *c = decoded + row * w;
        REAL *to = out + row * w;
        NAME(features)(decoded, n, row / n[1], row % n[1], s, f, f + TAPS * w);
        NAME(classify)(c, f, w, (int)activity, limits, (int)num, cls);
        /* Evaluates all classes at every point and selects one: faster than gathering taps. */
        for (int64_t k = 0; k <= num; k++) {
            const REAL *t = taps + k * TAPS;
            for (int64_t x = 0; x < w; x++) {
                REAL sum = 0;
                for (int i = 0; i < TAPS; i++) sum += t[i] * f[i * w + x];
                sum = sum > top ? top : sum < -top ? -top : sum;
                const REAL corrected = c[x] + sum * unit;
                to[x] = cls[x] == (int32_t)k ? corrected : to[x];
            }
        }
    }
    free(f); free(cls);
    return 0;
}

/* Largest |x - y| in double; a NaN difference counts as infinite. */
int64_t NAME(linear_max_error)(int64_t count, const REAL *x, const REAL *y, double *largest) {
    double most[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int j = 0; j < 8; j++) {
            const double d = fabs((double)x[i + j] - (double)y[i + j]);
            most[j] = d > most[j] || d != d ? (d == d ? d : INFINITY) : most[j];
        }
    for (; i < count; i++) {
        const double d = fabs((double)x[i] - (double)y[i]);
        most[0] = d > most[0] || d != d ? (d == d ? d : INFINITY) : most[0];
    }
    for (int j = 1; j < 8; j++) most[0] = most[j] > most[0] ? most[j] : most[0];
    *largest = most[0];
    return 0;
}

/* ---- networks ---- */
static inline REAL NAME(fused)(REAL a, REAL b, REAL c) {
    return sizeof(REAL) == 4 ? (REAL)__builtin_fmaf((float)a, (float)b, (float)c)
                             : (REAL)__builtin_fma((double)a, (double)b, (double)c);
}
/* Differences to the 26 neighbours and to the six at distance two, in units of 1 / scale. */
static void NAME(differences)(const REAL *a, const int64_t *n, int64_t z, int64_t y, REAL scale,
                    REAL *restrict f, REAL *restrict pad) {
    static const int dz[NET_ROWS] = {0, -1, -1, -1, 0, 0, 1, 1, 1, -2, 2, 0, 0};
    static const int dy[NET_ROWS] = {0, -1, 0, 1, -1, 1, -1, 0, 1, 0, 0, -2, 2};
    const int64_t w = n[2], p = w + 4;
    for (int r = 0; r < NET_ROWS; r++) {
        const REAL *row = a + (nearest_inside(z + dz[r], n[0]) * n[1] + nearest_inside(y + dy[r], n[1])) * w;
        REAL *to = pad + r * p;
        memcpy(to + 2, row, (size_t)w * sizeof(REAL));
        to[0] = to[1] = row[0];
        to[w + 2] = to[w + 3] = row[w - 1];
    }
    const REAL *c = pad + 2;
    int k = 0;
    for (int r = 0; r < NET_ROWS; r++) {
        const int reach = r == 0 ? 2 : r < 9 ? 1 : 0;
        for (int dx = -reach; dx <= reach; dx++) {
            if (r == 0 && dx == 0) continue;
            const REAL *from = c + r * p + dx;
            REAL *to = f + k++ * w;
            for (int64_t x = 0; x < w; x++) to[x] = (from[x] - c[x]) * scale;
        }
    }
}

/* Stencils of all points of the given rows, for training: out[point][NET_INPUTS]. */
int64_t NAME(network_gather)(const int64_t *n, const REAL *a, double scale, int64_t num,
                       const int64_t *rows, float *out) {
    const int64_t w = n[2];
    REAL *f = malloc(sizeof(REAL) * (size_t)(NET_INPUTS * w + NET_ROWS * (w + 4)));
    if (!f) return SCK_MEMORY;
    for (int64_t r = 0; r < num; r++) {
        NAME(differences)(a, n, rows[r] / n[1], rows[r] % n[1], (REAL)scale, f, f + NET_INPUTS * w);
        for (int64_t x = 0; x < w; x++)
            for (int k = 0; k < NET_INPUTS; k++) out[(r * w + x) * NET_INPUTS + k] = (float)f[k * w + x];
    }
    free(f);
    return 0;
}

/* Per group: first[hidden][NET_INPUTS], bias[hidden], second[hidden]. */
int64_t NAME(network_apply)(const int64_t *n, const REAL *a, double scale, const REAL *limits,
                      int64_t groups, int64_t hidden, const REAL *first, const REAL *bias,
                      const REAL *second, double clip, REAL *out) {
    const int64_t w = n[2];
    REAL *f = malloc(sizeof(REAL) * (size_t)(NET_INPUTS * w + NET_ROWS * (w + 4) + w));
    if (!f) return SCK_MEMORY;
    REAL *pad = f + NET_INPUTS * w, *sum = pad + NET_ROWS * (w + 4);
    const REAL one = (REAL)(1 / scale), top = (REAL)(clip * scale);
    for (int64_t row = 0; row < n[0] * n[1]; row++) {
        const REAL *c = a + row * w;
        REAL *to = out + row * w, least = c[0], most = c[0];
        NAME(differences)(a, n, row / n[1], row % n[1], (REAL)scale, f, pad);
        for (int64_t x = 0; x < w; x++) {
            least = c[x] < least ? c[x] : least;
            most = c[x] > most ? c[x] : most;
        }
        /* Values that belong to no group, as NaN may, stay as they are. */
        memcpy(to, c, sizeof(REAL) * (size_t)w);
        for (int64_t g = 0; g < groups; g++) {
            if ((g > 0 && most < limits[g - 1]) || (g + 1 < groups && least >= limits[g])) continue;
            const REAL *w1 = first + g * hidden * NET_INPUTS, *b = bias + g * hidden;
            const REAL *w2 = second + g * hidden;
            /* Blocks with points innermost keep states in registers and loads contiguous. */
            for (int64_t start = 0; start < w; start += NET_BLOCK) {
                const int m = w - start < NET_BLOCK ? (int)(w - start) : NET_BLOCK;
                REAL total[NET_BLOCK] = {0}, in[NET_INPUTS][NET_BLOCK];
                for (int k = 0; k < NET_INPUTS; k++)
                    for (int x = 0; x < NET_BLOCK; x++)
                        in[k][x] = x < m ? f[k * w + start + x] : 0;
                for (int64_t h = 0; h < hidden; h++) {
                    REAL s[NET_BLOCK];
                    for (int x = 0; x < NET_BLOCK; x++) s[x] = b[h];
                    for (int k = 0; k < NET_INPUTS; k++) {
                        const REAL weight = w1[h * NET_INPUTS + k];
                        for (int x = 0; x < NET_BLOCK; x++) s[x] = NAME(fused)(weight, in[k][x], s[x]);
                    }
                    for (int x = 0; x < NET_BLOCK; x++)
                        total[x] = NAME(fused)(w2[h], s[x] > 0 ? s[x] : 0, total[x]);
                }
                for (int x = 0; x < m; x++) sum[start + x] = total[x];
            }
            for (int64_t x = 0; x < w; x++) {
                const int here = (g == 0 || c[x] >= limits[g - 1])
                    & (g + 1 == groups || c[x] < limits[g < groups - 1 ? g : 0]);
                const REAL s = sum[x] > top ? top : sum[x] < -top ? -top : sum[x];
                to[x] = here ? c[x] + s * one : to[x];
            }
        }
    }
    free(f);
    return 0;
}

/* ---- serialised enhancers ---- */
static REAL NAME(read_float)(reader *r) {
    const uint32_t word = (uint32_t)read_word(r, 4);
    float v;
    memcpy(&v, &word, 4);
    return (REAL)v;
}
static int64_t NAME(enhance_linear)(const int64_t *shape, reader *r, double bound, double clip,
                                    const REAL *decoded, REAL *out) {
    REAL limits[MAX_CLASSES], taps[MAX_CLASSES * TAPS];
    const int num = read_byte(r), kind = read_byte(r), exponent = read_byte(r), width = read_byte(r);
    if (r->bad || num < 1 || num > MAX_CLASSES || kind < 2 || kind > 3 || exponent > 13 ||
        width < 2 || width > 16) return SCK_DAMAGED;
    for (int i = 0; i + 1 < num; i++) limits[i] = NAME(read_float)(r);
    uint32_t bits = 0;
    int have = 0;
    for (int i = 0; i < num * TAPS; i++) {
        for (; have < width; have += 8) bits |= (uint32_t)read_byte(r) << have;
        const int tap = (int)(bits & ((1u << width) - 1)) - (1 << (width - 1));
        taps[i] = (REAL)ldexp(tap, -exponent);
        bits >>= width;
        have -= width;
    }
    return r->bad || r->at != r->end ? SCK_DAMAGED
        : NAME(linear_apply)(shape, decoded, 1 / bound, kind - 2, limits, num - 1, taps, clip, out);
}
static int64_t NAME(enhance_network)(const int64_t *shape, reader *r, double bound, double clip,
                                     const REAL *decoded, REAL *out) {
    const int64_t groups = read_byte(r), hidden = read_byte(r);
    if (r->bad || groups < 1 || groups > MAX_CLASSES || hidden < 1 || hidden > MAX_HIDDEN)
        return SCK_DAMAGED;
    REAL unit[3], limits[MAX_CLASSES];
    const int64_t sizes[3] = {groups * hidden * NET_INPUTS, groups * hidden, groups * hidden};
    REAL *const weights = malloc(sizeof(REAL) * (size_t)(sizes[0] + sizes[1] + sizes[2])), *to = weights;
    if (!weights) return SCK_MEMORY;
    for (int i = 0; i < 3; i++) unit[i] = NAME(read_float)(r);
    for (int i = 0; i + 1 < groups; i++) limits[i] = NAME(read_float)(r);
    for (int part = 0; part < 3; part++)
        for (int64_t i = 0; i < sizes[part]; i++) *to++ = (REAL)(int8_t)read_byte(r) * unit[part];
    const int64_t status = r->bad || r->at != r->end ? SCK_DAMAGED
        : NAME(network_apply)(shape, decoded, 1 / bound, limits, groups, hidden, weights,
                              weights + sizes[0], weights + sizes[0] + sizes[1], clip, out);
    free(weights);
    return status;
}
/* Add the correction of a serialised enhancer, of at most `clip`; return 0 or a SCK_ code. */
static int64_t NAME(enhance)(int linear, const int64_t *shape, reader *r, double bound, double clip,
                             const REAL *decoded, REAL *out) {
    return linear ? NAME(enhance_linear)(shape, r, bound, clip, decoded, out)
                  : NAME(enhance_network)(shape, r, bound, clip, decoded, out);
}
