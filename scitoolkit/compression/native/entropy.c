/* Context-mixing entropy coder of integers: every binary decision is coded with a probability mixed
 * from six adaptive counters, which are selected by the magnitudes of previously coded integers
 * (Mahoney 2005, PAQ). The coder depends on integer arithmetic only, so all machines decode alike.
 */

/* Inlining gives one copy of the coder per direction, without the branches of the other one. */
/* Iterations of the next loop do not depend on each other. */
#ifdef __clang__
#define UNORDERED _Pragma("clang loop vectorize(assume_safety)")
#else
#define UNORDERED _Pragma("GCC ivdep")
#endif
#define INLINE static inline __attribute__((always_inline))

/* ---- binary arithmetic coder: 32-bit range, 16-bit probabilities ---- */
typedef struct { uint32_t low, high, x; uint8_t *buf; int64_t pos, cap; int decoding; } coder;

static inline uint32_t big_endian(uint32_t word) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return word;
#else
    return __builtin_bswap32(word);
#endif
}
static inline uint32_t next_byte(coder *c) {
    const uint32_t byte = c->pos < c->cap ? c->buf[c->pos] : 0;
    c->pos++;
    return byte;
}
static inline void put_byte(coder *c, uint32_t byte) {
    if (c->pos < c->cap) c->buf[c->pos] = (uint8_t)byte;
    c->pos++;
}
/* Shift out the leading bytes that low and high share. */
INLINE void shift_out(coder *c) {
    const uint32_t apart = c->low ^ c->high;
    const int n = (apart ? __builtin_clz(apart) : 32) / 8;
    if (c->pos + 4 <= c->cap) {  /* branchless, because the number of bytes is unpredictable */
        uint32_t word;
        if (c->decoding) {
            memcpy(&word, c->buf + c->pos, 4);
            c->x = (uint32_t)(((uint64_t)c->x << 32 | big_endian(word)) << 8 * n >> 32);
        } else {
            word = big_endian(c->high);
            memcpy(c->buf + c->pos, &word, 4);
        }
        c->pos += n;
    } else {
        for (int i = 0; i < n; i++)
            if (c->decoding) c->x = c->x << 8 | next_byte(c);
            else put_byte(c, c->high >> (24 - 8 * i) & 255);
    }
    c->low = (uint32_t)((uint64_t)c->low << 8 * n);
    c->high = (uint32_t)(((uint64_t)c->high + 1) << 8 * n) - 1;
}
INLINE int code_bit(coder *c, int bit, uint32_t p1) {
    const uint32_t mid = c->low + (uint32_t)(((uint64_t)(c->high - c->low) * p1) >> 16);
    if (c->decoding) bit = c->x <= mid;
    const uint32_t up = 0u - (uint32_t)bit;  /* branchless, because bits are unpredictable */
    c->high = (mid & up) | (c->high & ~up);
    c->low = (c->low & up) | ((mid + 1) & ~up);
    shift_out(c);
    return bit;
}
static coder start_coder(uint8_t *buf, int64_t cap, int decoding) {
    coder c = {0, 0xffffffffu, 0, buf, 0, cap, decoding};
    if (decoding) for (int i = 0; i < 4; i++) c.x = c.x << 8 | next_byte(&c);
    return c;
}
/* Two bytes identify the final interval; the decoder reads zeros past the end. */
static int64_t end_coder(coder *c) {
    put_byte(c, c->high >> 24);
    put_byte(c, c->high >> 16 & 255);
    int64_t used = c->pos;
    while (used > 0 && used <= c->cap && c->buf[used - 1] == 0) used--;
    return used;
}

/* ---- probabilities ---- */
enum { INPUTS = 6, REACH = 3072, KNOT = 32, KINDS = 3, SETS = 28, CONTEXTS = 32 * 16 * 16 };
/* 65536 / (1 + exp(-x / 256)) at x = -3072, -3040, ..., 3072. */
static const uint16_t KNOTS[2 * REACH / KNOT + 1] = {
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6, 6, 7, 8, 9, 10, 12, 13, 15,
    17, 19, 22, 25, 28, 32, 36, 41, 47, 53, 60, 68, 77, 87, 98, 111, 126, 143, 162, 184, 208, 236,
    267, 302, 342, 387, 439, 497, 562, 636, 720, 815, 922, 1042, 1179, 1333, 1506, 1701, 1921,
    2168, 2446, 2758, 3108, 3500, 3938, 4427, 4971, 5577, 6249, 6992, 7812, 8714, 9702, 10782,
    11955, 13226, 14595, 16062, 17625, 19282, 21025, 22849, 24743, 26695, 28693, 30723, 32768,
    34813, 36843, 38841, 40793, 42687, 44511, 46254, 47911, 49474, 50941, 52310, 53581, 54754,
    55834, 56822, 57724, 58544, 59287, 59959, 60565, 61109, 61598, 62036, 62428, 62778, 63090,
    63368, 63615, 63835, 64030, 64203, 64357, 64494, 64614, 64721, 64816, 64900, 64974, 65039,
    65097, 65149, 65194, 65234, 65269, 65300, 65328, 65352, 65374, 65393, 65410, 65425, 65438,
    65449, 65459, 65468, 65476, 65483, 65489, 65495, 65500, 65504, 65508, 65511, 65514, 65517,
    65519, 65521, 65523, 65524, 65526, 65527, 65528, 65529, 65530, 65530, 65531, 65532, 65532,
    65533, 65533, 65533, 65534, 65534, 65534, 65534, 65535, 65535, 65535, 65535, 65535, 65535,
    65535, 65535, 65535, 65535, 65535};
/* exp(-2^k / 256), k = 0, 1, ..., 11. */
static const double POWERS[12] = {0x1.fe00ffaabffbcp-1, 0x1.fc03fd56aa225p-1, 0x1.f80feabfeefa5p-1,
    0x1.f03f56a88b5d8p-1, 0x1.e0fabfbc702a4p-1, 0x1.c3d6a24ed8222p-1, 0x1.8ebef9eac820bp-1,
    0x1.368b2fc6f960ap-1, 0x1.78b56362cef38p-2, 0x1.152aaa3bf81ccp-3, 0x1.2c155b8213cf4p-6,
    0x1.5fc21041027adp-12};
typedef struct { uint16_t squash[2 * REACH + 1]; int16_t stretch[4096]; } curve;
/* Logistic function, piecewise linear between knots (interpolation) and exact (dyadic). */
static curve knotted, smooth;
/* Adaptation rate of a counter after n bits: 65536 / (n + 2), rounded down. */
static uint16_t rates[1024];

static void invert(curve *c) {
    int next = 0;
    for (int i = -2047; i <= 2047; i++)
        for (const int v = c->squash[i + REACH] >> 4; next <= v; next++) c->stretch[next] = (int16_t)i;
    for (; next < 4096; next++) c->stretch[next] = 2047;
}
__attribute__((constructor)) static void make_tables(void) {
    for (int i = 0; i < 2 * REACH; i++) {
        const uint32_t f = (uint32_t)i % KNOT;
        knotted.squash[i] = (uint16_t)((KNOTS[i / KNOT] * (KNOT - f) + KNOTS[i / KNOT + 1] * f
                                        + KNOT / 2) / KNOT);
    }
    knotted.squash[2 * REACH] = KNOTS[2 * REACH / KNOT];
    /* Products of constants instead of libm, whose rounding differs between machines. */
    for (int i = -REACH; i <= REACH; i++) {
        double e = 1;
        for (int k = 0; k < 12; k++) if (abs(i) >> k & 1) e *= POWERS[k];
        const double p = floor(65536.0 * (i < 0 ? e / (1 + e) : 1 / (1 + e)) + 0.5);
        smooth.squash[i + REACH] = (uint16_t)(p < 1 ? 1 : p > 65535 ? 65535 : p);
    }
    invert(&knotted);
    invert(&smooth);
    for (int n = 0; n < 1024; n++) rates[n] = (uint16_t)(65536 / (n + 2));
}

/* With shorter vectors the scalar operations are as fast. */
#ifdef __AVX2__
#define VECTORS 1
#else
#define VECTORS 0
#endif
/* Vectors of the inputs, the constant input at INPUTS and a zero at INPUTS + 1. */
typedef int32_t lanes8 __attribute__((vector_size(32)));
typedef uint32_t u_lanes8 __attribute__((vector_size(32)));
typedef float floats8 __attribute__((vector_size(32)));
static const lanes8 NEW_WEIGHTS = {18000, 18000, 18000, 18000, 18000, 18000, 0, 0};
typedef struct {
    uint32_t *counters;  /* tables of all inputs */
    lanes8 weights[KINDS * SETS];
    const curve *curve;
    int longest;  /* maximum number of bits of an integer's exponent */
} model;
/* Prediction of one bit and what is necessary to learn from it. */
typedef struct { const uint32_t *ctx; uint32_t *table; lanes8 *w, st, counters; int p16, dot; } guess;

/* `size`: distance of the tables of two inputs. */
INLINE guess predict_bit(const model *m, const uint32_t *ctx, int set, int64_t size) {
    guess g = {.ctx = ctx, .table = m->counters, .w = (lanes8 *)&m->weights[set]};
#define COUNT(i) (int32_t)m->counters[i * size + ctx[i]]
#define STRETCH(i) m->curve->stretch[m->counters[i * size + ctx[i]] >> 20]
    g.counters = (lanes8){COUNT(0), COUNT(1), COUNT(2), COUNT(3), COUNT(4), COUNT(5), 0, 0};
    g.st = (lanes8){STRETCH(0), STRETCH(1), STRETCH(2), STRETCH(3), STRETCH(4), STRETCH(5), 256, 0};
#undef COUNT
#undef STRETCH
    /* The sum of products of 45 bits over 2^16, rounded down. */
#if VECTORS
    const lanes8 low = (*g.w << 16) >> 16, high = (*g.w - low) >> 16;
    const lanes8 a = low * g.st, b = high * g.st;
    lanes8 sums = SHUFFLE(int32_t, a, b, 0, 8, 1, 9, 4, 12, 5, 13)
                  + SHUFFLE(int32_t, a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    sums += SHUFFLE(int32_t, sums, sums, 4, 5, 6, 7, 0, 1, 2, 3);
    const int dot = sums[1] + sums[3] + ((sums[0] + sums[2]) >> 16);
#else
    int64_t sum = 0;
    for (int i = 0; i <= INPUTS; i++) sum += (int64_t)(*g.w)[i] * g.st[i];
    const int dot = (int)(sum >> 16);
#endif
    g.dot = dot > REACH ? REACH : dot < -REACH ? -REACH : dot;
    g.p16 = m->curve->squash[g.dot + REACH];
    return g;
}
INLINE void learn(const guess *g, int bit, uint32_t limit, int64_t size) {
    const int error = ((bit << 16) - g->p16) >> 4;
    /* A counter moves by a product of 37 bits over 2^16, rounded down; vectors take it in two parts. */
#if VECTORS
    *g->w += (g->st * (error * 6) + 0x2000) >> 14;
    const lanes8 n = g->counters & 1023, p = (lanes8)((u_lanes8)g->counters >> 10);
    const lanes8 apart = (bit ? 4194303 : 0) - p;
    const floats8 rate_of = 65536.0f / __builtin_convertvector(n + 2, floats8);
    const lanes8 rate = __builtin_convertvector(rate_of, lanes8);
    const lanes8 by = ((apart >> 8) * rate + (((apart & 255) * rate) >> 8)) >> 8;
    const lanes8 next = (p + by) << 10 | (n - (n < (int32_t)limit));
    for (int i = 0; i < INPUTS; i++) g->table[i * size + g->ctx[i]] = (uint32_t)next[i];
#else
    for (int i = 0; i <= INPUTS; i++) (*g->w)[i] += (g->st[i] * error * 6 + 0x2000) >> 14;
    for (int i = 0; i < INPUTS; i++) {
        const uint32_t c = (uint32_t)g->counters[i], n = c & 1023;
        const int64_t p = c >> 10, apart = (bit ? 4194303 : 0) - p;
        const uint32_t next = (uint32_t)(p + ((apart * rates[n]) >> 16)) << 10;
        g->table[i * size + g->ctx[i]] = next | (n < limit ? n + 1 : n);
    }
#endif
}
INLINE int code_mixed(model *m, coder *c, int bit, const uint32_t *ctx, int set, uint32_t limit,
                      int64_t size) {
    const guess g = predict_bit(m, ctx, set, size);
    bit = code_bit(c, bit, (uint32_t)g.p16);
    learn(&g, bit, limit, size);
    return bit;
}

static void free_models(model *models) {
    if (models) free(models[0].counters);
    free(models);
}
/* Settings of the codecs that share this coder. */
typedef struct {
    int32_t (*choose)(const void *wanted, int64_t i, double weight, int dot);
    const void *wanted;
    double weight;
} quantiser;
typedef struct { const curve *curve; int longest; const quantiser *quantise; } mixing;

static const mixing PLAIN = {&knotted, 29, NULL};

static model *make_models(mixing m) {
    model *models = aligned_alloc(sizeof(lanes8), sizeof(model) * KINDS);
    uint32_t *pool = malloc(sizeof(uint32_t) * KINDS * INPUTS * CONTEXTS);
    if (!models || !pool) { free(models); free(pool); return NULL; }
    for (int64_t i = 0; i < KINDS * INPUTS * CONTEXTS; i++) pool[i] = 1u << 31;
    for (int k = 0; k < KINDS; k++) {
        models[k].curve = m.curve;
        models[k].longest = m.longest;
        models[k].counters = pool + k * INPUTS * CONTEXTS;
        for (int j = 0; j < KINDS * SETS; j++)
            models[k].weights[j] = NEW_WEIGHTS;
    }
    return models;
}

/* ---- contexts ---- */
static const uint8_t BINS[64] = {0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8,
    9, 9, 9, 9, 9, 9, 9, 9, 9, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 11, 11,
    11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11};
static uint8_t bins[321];
__attribute__((constructor)) static void make_bins(void) {
    for (int v = 0; v <= 320; v++)
        bins[v] = v < 64 ? BINS[v] : v < 96 ? 12 : v < 160 ? 13 : v < 320 ? 14 : 15;
}
static inline uint32_t at_most(uint32_t v, uint32_t top) { return v < top ? v : top; }
static inline uint32_t bin16(uint32_t v) { return bins[at_most(v, 320)]; }
/* Twice the binary logarithm of v + 1, at most 31. */
static inline uint32_t log_bin(uint32_t v) {
    v++;
    const int e = 31 - __builtin_clz(v);
    return at_most(2 * (uint32_t)e + (e > 0 ? v >> (e - 1) & 1 : 0), 31);
}

typedef struct { uint32_t ctx[INPUTS], near, total; int set; } context;
/* Sums of previously coded magnitudes around the points of a row, at x / s. */
typedef struct { uint32_t *north, *up, *around, *beyond, *other, *parent, *nearest, *sides, *memory; } seen;

static int make_seen(seen *v, int64_t n) {
    enum { ARRAYS = 8, BORDER = 2 };
    const int64_t room = n + 2 * BORDER;
    uint32_t *const memory = calloc((size_t)(ARRAYS * room), sizeof *memory);
    uint32_t **const array[ARRAYS] = {&v->north, &v->up, &v->around, &v->beyond, &v->other, &v->parent,
                                      &v->nearest, &v->sides};
    for (int i = 0; memory && i < ARRAYS; i++) *array[i] = memory + i * room + BORDER;
    v->memory = memory;
    return memory != NULL;
}

/* Return a row of magnitudes, or zeros for a row outside of the field. */
static const uint16_t *row_at(const grid *g, const uint16_t *mag, const uint16_t *zeros, int64_t z,
                              int64_t y) {
    const int inside = z >= 0 && y >= 0 && z < g->n[0] && y < g->n[1];
    return inside ? mag + z * g->stride[0] + y * g->stride[1] : zeros;
}

/* Sums of magnitudes in the class itself, other classes and the parent, for a row of a class. */
INLINE void see_points(const seen *v, const grid *g, const uint16_t *mag, const uint16_t *zeros,
                       int64_t z, int64_t y, int64_t s, int cls) {
    const int64_t S = 2 * s, nx = g->n[2];
#define ROW(i, j) row_at(g, mag, zeros, z + (i), y + (j))
    const uint16_t *const c = ROW(0, 0), *const n = ROW(0, -S), *const u = ROW(-S, 0);
    const uint16_t *const un = ROW(-S, -S), *const us = ROW(-S, S);
    const uint16_t *const nn = ROW(0, -2 * S), *const uu = ROW(-2 * S, 0);
    const uint16_t *const a[4] = {ROW(0, -s), ROW(0, s), ROW(-s, 0), ROW(s, 0)};
    const uint16_t *const b[4] = {ROW(-s, -s), ROW(-s, s), ROW(s, -s), ROW(s, s)};
#undef ROW
    const uint16_t *const parent = row_at(g, mag, zeros, z / (2 * S) * (2 * S) + (cls & 4 ? S : 0),
                                          y / (2 * S) * (2 * S) + (cls & 2 ? S : 0));
    const int64_t num = (nx + s - 1) / s, odd = cls & 1 ? S : 0;
#define AT(row) (uint32_t)(row)[k * s]
    UNORDERED
    for (int64_t k = 0; k < num; k++) {
        const uint32_t sides = AT(a[0]) + AT(a[1]) + AT(a[2]) + AT(a[3]);
        v->north[k] = AT(n);
        v->up[k] = AT(u);
        v->around[k] = AT(un) + AT(us);
        v->nearest[k] = AT(n) + AT(u);
        v->beyond[k] = AT(nn) + AT(uu);
        v->other[k] = AT(b[0]) + AT(b[1]) + AT(b[2]) + AT(b[3]) + 2 * sides;
        v->sides[k] = 2 * AT(c) + sides;
    }
#undef AT
    /* What a longer row of a finer level left behind the end must be zero. */
    for (int64_t k = num; k < num + 2; k++) v->nearest[k] = v->sides[k] = 0;
    UNORDERED
    for (int64_t k = 0; k < num; k++) {
        v->around[k] += v->nearest[k - 2] + v->nearest[k + 2];
        v->other[k] += v->sides[k - 1] + v->sides[k + 1];
    }
    for (int64_t k = first(cls, 2, s) / s, px; k < num; k += 2) {
        px = k / 4 * (2 * S) + odd;
        v->parent[k] = px < nx ? parent[px] : 0;
    }
}
static void see_row(const seen *v, const grid *g, const uint16_t *mag, const uint16_t *zeros,
                    int64_t z, int64_t y, int64_t s, int cls) {
    if (s == 1) see_points(v, g, mag, zeros, z, y, 1, cls);
    else see_points(v, g, mag, zeros, z, y, s, cls);
}

/* Contexts of a point; `row` has the magnitudes of its row, as far as they are coded. */
static inline void level_context(context *out, const seen *v, const uint16_t *row, int64_t x,
                                 int64_t k, int64_t s, int cls, int level) {
    const uint32_t W = x >= 2 * s ? row[x - 2 * s] : 0, N = v->north[k], U = v->up[k], A = v->around[k];
    const uint32_t D = v->beyond[k] + (x >= 4 * s ? row[x - 4 * s] : 0), B = v->other[k], P = v->parent[k];
    const uint32_t near = 2 * (W + N + U) + A, lg = (uint32_t)(level < 3 ? level : 3);
    const uint32_t band = lg * 8 + (uint32_t)cls;
    out->near = near;
    out->total = near + B + D;
    out->set = (cls ? cls - 1 : 0) * 4 + (int)lg;
    out->ctx[0] = (band * 16 + bin16(near)) * 4 + at_most(P, 3);
    out->ctx[1] = (band * 16 + bin16(B)) * 4 + at_most(P, 3);
    out->ctx[2] = ((lg ? 1 : 0) * 16 + bin16(near + D)) * 64 + bin16(B) * 4 + bin16(P) / 2 % 4;
    out->ctx[3] = (uint32_t)cls
                  + 8 * (at_most(W, 3) + 4 * at_most(N, 3) + 16 * at_most(U, 3) + 64 * at_most(A, 2));
    out->ctx[4] = (band * 16 + bin16((near + B + 2 * P) / 2)) * 4 + at_most(D, 3);
    out->ctx[5] = (band * 16 + bin16(near + B + 2 * D + 2 * P)) * 16 + bin16(P);
}

/* Contexts of an integer in a 1-D field, from the four integers before it. */
static inline void line_context(context *out, const uint16_t *mag, int64_t i) {
    const uint32_t a = i > 0 ? mag[i - 1] : 0, b = i > 1 ? mag[i - 2] : 0;
    const uint32_t c = (i > 2 ? mag[i - 3] : 0) + (i > 3 ? mag[i - 4] : 0u);
    out->near = 2 * a + b;
    out->total = 2 * (a + b) + c;
    out->set = 0;
    out->ctx[0] = log_bin(a);
    out->ctx[1] = log_bin(a + b);
    out->ctx[2] = 0;
    out->ctx[3] = at_most(a, 15) * 16 + at_most(b, 15);
    out->ctx[4] = log_bin(out->total);
    out->ctx[5] = log_bin(a) * 32 + log_bin(b);
}

/* ---- one integer: zero?, sign, above 1?, then exponent and mantissa of the rest ---- */
INLINE int32_t code_rest(model *m, coder *c, int32_t v, const context *x) {
    const uint32_t u = (uint32_t)v + 1, a = log_bin(x->total), b = log_bin(x->near);
    const uint32_t set = (uint32_t)x->set;
    uint32_t ctx[INPUTS];
    const int bits = c->decoding ? 0 : 31 - __builtin_clz(u);
    int e = 0;
    for (; e < m->longest; e++) {
        const uint32_t place = at_most((uint32_t)e, 15);
        ctx[0] = place * 32 + a;
        ctx[1] = place * 32 + b;
        ctx[2] = place;
        ctx[3] = place * 32 + set;
        ctx[4] = (place * 16 + at_most(a / 2, 15)) * 16 + at_most(b / 2, 15);
        ctx[5] = place * 32 + log_bin(x->total - x->near);
        if (!code_mixed(m, c, e < bits, ctx, 2 * SETS + x->set, 255, CONTEXTS)) break;
    }
    uint32_t got = 1;
    for (int i = e - 1; i >= 0; i--) {
        int bit = (int)(u >> i & 1);
        if (e - 1 - i < 3) {
            const uint32_t place = 1 + at_most((uint32_t)e, 15) * 8 + (got & 7);
            const uint32_t base = 16 * 32 + place * 33;
            ctx[0] = base + a;
            ctx[1] = base + b;
            ctx[2] = 16 + place;
            ctx[3] = base + set;
            ctx[4] = 4096 + place;
            ctx[5] = base;
            bit = code_mixed(m, c, bit, ctx, 2 * SETS + x->set, 500, CONTEXTS);
        } else {
            bit = code_bit(c, bit, 32768);
        }
        got = got * 2 + (uint32_t)bit;
    }
    return (int32_t)(got - 1);
}
/* Code an integer after `models[0]` has predicted whether it is zero. */
INLINE int32_t code_predicted(model *models, coder *c, int32_t q, const context *x,
                              const guess *zero) {
    const int negative = q < 0;
    if (negative) q = -q;
    const int nonzero = code_bit(c, q != 0, (uint32_t)zero->p16);
    learn(zero, nonzero, 1000, CONTEXTS);
    if (!nonzero) return 0;
    const int sign = code_bit(c, negative, 32768);
    const int more = code_mixed(&models[1], c, q > 1, x->ctx, SETS + x->set, 500, CONTEXTS);
    q = more ? 2 + code_rest(&models[2], c, q - 2, x) : 1;
    return sign ? -q : q;
}

static inline uint16_t magnitude(int32_t q) {
    const uint32_t m = q < 0 ? (uint32_t)-q : (uint32_t)q;
    return (uint16_t)at_most(m, 65535);
}

/* Code the integers of all levels, coarse to fine; masked points (mask may be NULL) are zero and
 * not coded. A quantiser chooses each integer given the cost of a zero. `PART` decodes the bytes
 * that there are: the integer for which one is missing and all after it are zero. */
enum { WHOLE_STREAM = 1, PART = 2 };
INLINE int code_levels(model *models, coder *c, const grid *g, const uint8_t *mask, int32_t *q,
                       uint16_t *mag, const quantiser *chosen) {
    seen around = {0};
    uint16_t *zeros = calloc((size_t)g->n[2], sizeof *zeros);
    if (!make_seen(&around, g->n[2]) || !zeros) { free(around.memory); free(zeros); return SCK_MEMORY; }
    int level = 0;
    const int64_t top = top_level(g);
    for (int64_t s = top; s > 1; s /= 2) level++;
    for (int64_t s = top; s >= 1; s /= 2, level--)
        for (int o = s == top ? 0 : 1; o < 8; o++) {
            const int cls = ORDER[o];
            for (int64_t z = first(cls, 0, s); z < g->n[0]; z += 2 * s)
            for (int64_t y = first(cls, 1, s); y < g->n[1]; y += 2 * s) {
                const int64_t start = z * g->stride[0] + y * g->stride[1];
                see_row(&around, g, mag, zeros, z, y, s, cls);
                for (int64_t x = first(cls, 2, s), k = x / s; x < g->n[2]; x += 2 * s, k += 2) {
                    const int64_t i = start + x;
                    context ctx;
                    if (c->decoding == PART && c->pos > c->cap) { q[i] = 0; continue; }
                    if (mask && mask[i]) { q[i] = 0; continue; }
                    level_context(&ctx, &around, mag + start, x, k, s, cls, level);
                    const guess zero = predict_bit(&models[0], ctx.ctx, ctx.set, CONTEXTS);
                    if (chosen)
                        q[i] = chosen->choose(chosen->wanted, i, chosen->weight, zero.dot);
                    q[i] = code_predicted(models, c, q[i], &ctx, &zero);
                    if (c->decoding == PART && c->pos > c->cap) q[i] = 0;
                    mag[i] = magnitude(q[i]);
                }
            }
        }
    free(around.memory);
    free(zeros);
    return 0;
}
INLINE void code_line(model *models, coder *c, int64_t count, const uint8_t *mask, int32_t *q,
                      uint16_t *mag) {
    for (int64_t i = 0; i < count; i++) {
        context ctx;
        if (mask && mask[i]) { q[i] = 0; continue; }
        line_context(&ctx, mag, i);
        const guess zero = predict_bit(&models[0], ctx.ctx, ctx.set, CONTEXTS);
        q[i] = code_predicted(models, c, q[i], &ctx, &zero);
        mag[i] = magnitude(q[i]);
    }
}

INLINE int64_t code_all(const grid *g, const uint8_t *mask, int32_t *q, uint8_t *buf, int64_t cap,
                        model *models, uint16_t *mag, const quantiser *chosen, int as_line,
                        int decoding) {
    coder c = start_coder(buf, cap, decoding);
    int status = 0;
    if (as_line) code_line(models, &c, g->count, mask, q, mag);
    else status = code_levels(models, &c, g, mask, q, mag, chosen);
    return status < 0 ? status : decoding ? c.pos : end_coder(&c);
}
/* Code or decode all integers; return the bytes used or a negative SCK_ code. */
static int64_t code_integers(const grid *g, const uint8_t *mask, int32_t *q, uint8_t *buf,
                             int64_t cap, mixing m, int as_line, int decoding) {
    uint16_t *mag = calloc((size_t)g->count, sizeof *mag);
    model *models = make_models(m);
    int64_t used = SCK_MEMORY;
    if (mag && models) {
        used = as_line ? code_all(g, mask, q, buf, cap, models, mag, NULL, 1, decoding)
            : decoding == PART ? code_all(g, mask, q, buf, cap, models, mag, NULL, 0, PART)
            : decoding ? code_all(g, mask, q, buf, cap, models, mag, NULL, 0, WHOLE_STREAM)
            : m.quantise ? code_all(g, mask, q, buf, cap, models, mag, m.quantise, 0, 0)
            : code_all(g, mask, q, buf, cap, models, mag, NULL, 0, 0);
        if (decoding == PART) used = used < cap ? used : cap;
        if (decoding ? used > cap + 8 : used > cap) used = decoding ? SCK_DAMAGED : SCK_SPACE;
    }
    free(mag);
    free_models(models);
    return used;
}
