"""C source of the dyadic codec; see `dyadic` for what it does and why.

`REAL` (float or double) is the type of the field. Everything that steers the decoder is integer
arithmetic, and the floating-point code is compiled without contraction, so that every IEEE
machine decodes the same bits.
"""

SOURCE = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>

/* ---- binary arithmetic coder: 32-bit range, 16-bit probabilities ---- */
typedef struct { uint32_t lo, hi, x; uint8_t *buf; int64_t pos, cap; int decoding; } coder;

static inline uint32_t next_byte(coder *c) {
    uint32_t byte = c->pos < c->cap ? c->buf[c->pos] : 0;
    c->pos++;
    return byte;
}
static inline void put_byte(coder *c, uint32_t byte) {
    if (c->pos < c->cap) c->buf[c->pos] = (uint8_t)byte;
    c->pos++;
}
static inline int code_bit(coder *c, int bit, uint32_t p1) {
    uint32_t mid = c->lo + (uint32_t)(((uint64_t)(c->hi - c->lo) * p1) >> 16);
    if (c->decoding) bit = c->x <= mid;
    if (bit) c->hi = mid; else c->lo = mid + 1;
    while (((c->lo ^ c->hi) & 0xff000000u) == 0) {
        if (c->decoding) c->x = (c->x << 8) | next_byte(c);
        else put_byte(c, c->hi >> 24);
        c->lo <<= 8;
        c->hi = (c->hi << 8) | 255;
    }
    return bit;
}

/* ---- probabilities: adaptive counters mixed in the logistic domain (Mahoney, PAQ) ---- */
enum { INPUTS = 6, REACH = 3072, KINDS = 3, SETS = 28 };
static uint16_t squash_table[2 * REACH + 1];
static int16_t stretch_table[4096];
static int tables_ready = 0;

void dyadic_init(void) {
    if (tables_ready) return;
    for (int i = -REACH; i <= REACH; i++) {
        double p = floor(65536.0 / (1.0 + exp(-i / 256.0)) + 0.5);
        squash_table[i + REACH] = (uint16_t)(p < 1 ? 1 : p > 65535 ? 65535 : p);
    }
    int next = 0;
    for (int i = -2047; i <= 2047; i++) {
        int v = squash_table[i + REACH] >> 4;
        for (; next <= v; next++) stretch_table[next] = (int16_t)i;
    }
    for (; next < 4096; next++) stretch_table[next] = 2047;
    tables_ready = 1;
}

typedef struct {
    uint32_t *counters[INPUTS];
    int32_t weights[KINDS * SETS][INPUTS + 1];
    uint32_t *at[INPUTS];
    int st[INPUTS + 1], p16, dot;
    int32_t *w;
} model;

static const uint16_t recip[32] = {32768, 21845, 16384, 13107, 10922, 9362, 8192, 7281, 6553, 5957,
    5461, 5041, 4681, 4369, 4096, 3855, 3640, 3449, 3276, 3120, 2978, 2849, 2730, 2621, 2520, 2427,
    2340, 2259, 2184, 2114, 2048, 1985};

static inline void predict(model *m, const uint32_t *ctx, int set) {
    int64_t dot = 0;
    m->w = m->weights[set];
    for (int i = 0; i < INPUTS; i++) {
        m->at[i] = m->counters[i] + ctx[i];
        m->st[i] = stretch_table[*m->at[i] >> 20];
        dot += (int64_t)m->w[i] * m->st[i];
    }
    m->st[INPUTS] = 256;
    dot += (int64_t)m->w[INPUTS] * 256;
    m->dot = (int)(dot >> 16);
    if (m->dot > REACH) m->dot = REACH;
    if (m->dot < -REACH) m->dot = -REACH;
    m->p16 = squash_table[m->dot + REACH];
}
static inline void learn(model *m, int bit, int limit) {
    int error = ((bit << 16) - m->p16) >> 4;
    for (int i = 0; i <= INPUTS; i++)
        m->w[i] += (m->st[i] * error * 6 + 0x2000) >> 14;
    for (int i = 0; i < INPUTS; i++) {
        uint32_t c = *m->at[i], n = c & 1023;
        int64_t p = c >> 10, target = bit ? 4194303 : 0;
        int64_t step = (target - p) * (n < 32 ? recip[n] : 65536 / (n + 2));
        p += step >> 16;
        if (n < (uint32_t)limit) n++;
        *m->at[i] = (uint32_t)(p << 10) | n;
    }
}
static inline int code(model *m, coder *c, int bit, const uint32_t *ctx, int set, int limit) {
    predict(m, ctx, set);
    bit = code_bit(c, bit, (uint32_t)m->p16);
    learn(m, bit, limit);
    return bit;
}

/* ---- contexts ---- */
static const uint8_t bins[64] = {0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8,
    9, 9, 9, 9, 9, 9, 9, 9, 9, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 11, 11,
    11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11};
static inline uint32_t bin12(uint32_t v) {
    return v < 64 ? bins[v] : v < 96 ? 12 : v < 160 ? 13 : v < 320 ? 14 : 15;
}
static inline uint32_t low(uint32_t v, uint32_t top) { return v < top ? v : top; }

typedef struct { int64_t n[3], stride[3]; const uint16_t *mag; } grid;

static inline uint32_t mag_at(const grid *g, int64_t z, int64_t y, int64_t x) {
    if ((uint64_t)z >= (uint64_t)g->n[0] || (uint64_t)y >= (uint64_t)g->n[1] ||
        (uint64_t)x >= (uint64_t)g->n[2]) return 0;
    return g->mag[(z * g->n[1] + y) * g->n[2] + x];
}

/* Magnitudes already coded around (z, y, x): same band, other bands of the level, parent. */
static inline void contexts(const grid *g, int64_t z, int64_t y, int64_t x, int64_t s, int cls,
                            int level, uint32_t *ctx, uint32_t *around,
                            uint32_t *total) {
    const int64_t S = 2 * s;
    uint32_t W, N, U, A, B, P, D;
    const int64_t row = g->n[2], slab = g->n[1] * g->n[2];
    if (z >= 2 * S && y >= 2 * S && x >= 2 * S && z + S < g->n[0] && y + S < g->n[1] &&
        x + S < g->n[2]) {
        const uint16_t *m = g->mag + z * slab + y * row + x;
        W = m[-S]; N = m[-S * row]; U = m[-S * slab];
        A = m[-S * row - S] + m[-S * row + S] + m[-S * slab - S] + m[-S * slab + S]
            + m[-S * slab - S * row] + m[-S * slab + S * row];
        D = m[-2 * S] + m[-2 * S * row] + m[-2 * S * slab];
        B = 2 * (m[-s] + m[s] + m[-s * row] + m[s * row] + m[-s * slab] + m[s * slab]);
        B += m[-s * row - s] + m[-s * row + s] + m[s * row - s] + m[s * row + s];
        B += m[-s * slab - s] + m[-s * slab + s] + m[s * slab - s] + m[s * slab + s];
        B += m[-s * slab - s * row] + m[-s * slab + s * row] + m[s * slab - s * row]
            + m[s * slab + s * row];
    } else {
        W = mag_at(g, z, y, x - S); N = mag_at(g, z, y - S, x); U = mag_at(g, z - S, y, x);
        A = mag_at(g, z, y - S, x - S) + mag_at(g, z, y - S, x + S) + mag_at(g, z - S, y, x - S)
            + mag_at(g, z - S, y, x + S) + mag_at(g, z - S, y - S, x) + mag_at(g, z - S, y + S, x);
        D = mag_at(g, z, y, x - 2 * S) + mag_at(g, z, y - 2 * S, x) + mag_at(g, z - 2 * S, y, x);
        B = 2 * (mag_at(g, z, y, x - s) + mag_at(g, z, y, x + s) + mag_at(g, z, y - s, x)
                 + mag_at(g, z, y + s, x) + mag_at(g, z - s, y, x) + mag_at(g, z + s, y, x));
        for (int i = -1; i <= 1; i += 2)
            for (int j = -1; j <= 1; j += 2)
                B += mag_at(g, z, y + i * s, x + j * s) + mag_at(g, z + i * s, y, x + j * s)
                    + mag_at(g, z + i * s, y + j * s, x);
    }
    int64_t pz = z / (2 * S) * (2 * S) + (cls & 4 ? S : 0);
    int64_t py = y / (2 * S) * (2 * S) + (cls & 2 ? S : 0);
    int64_t px = x / (2 * S) * (2 * S) + (cls & 1 ? S : 0);
    P = mag_at(g, pz, py, px);
    const uint32_t near = 2 * (W + N + U) + A, lg = (uint32_t)(level < 3 ? level : 3);
    const uint32_t band = lg * 8 + (uint32_t)cls;
    *around = near;
    *total = near + B + D;
    ctx[0] = (band * 16 + bin12(near)) * 4 + low(P, 3);
    ctx[1] = (band * 16 + bin12(B)) * 4 + low(P, 3);
    ctx[2] = ((lg ? 1 : 0) * 16 + bin12(near + D)) * 64 + bin12(B) * 4 + bin12(P) / 2 % 4;
    ctx[3] = (uint32_t)cls + 8 * (low(W, 3) + 4 * low(N, 3) + 16 * low(U, 3) + 64 * low(A, 2));
    ctx[4] = (band * 16 + bin12((near + B + 2 * P) / 2)) * 4 + low(D, 3);
    ctx[5] = (band * 16 + bin12(near + B + 2 * D + 2 * P)) * 16 + bin12(P);
}
enum { CONTEXTS = 32 * 16 * 16 };

/* Twice the binary logarithm of v + 1, below 32. */
static inline uint32_t log_bin(uint32_t v) {
    v++;
    int e = 31 - __builtin_clz(v);
    uint32_t half = e > 0 ? (v >> (e - 1)) & 1 : 0;
    return low(2 * (uint32_t)e + half, 31);
}

/* ---- one coefficient: zero?, sign, > 1?, then exponent and mantissa of the rest ---- */
static inline int32_t code_tail(model *m, coder *c, int32_t v, uint32_t near, uint32_t total,
                                int set) {
    const uint32_t u = (uint32_t)v + 1, a = log_bin(total), b = log_bin(near);
    uint32_t ctx[INPUTS];
    int bits = 0, e = 0;
    if (!c->decoding) bits = 31 - __builtin_clz(u);
    for (; e < 30; e++) {
        const uint32_t place = (uint32_t)low((uint32_t)e, 15);
        ctx[0] = place * 32 + a;
        ctx[1] = place * 32 + b;
        ctx[2] = place;
        ctx[3] = place * 32 + (uint32_t)set;
        ctx[4] = (place * 16 + low(a / 2, 15)) * 16 + low(b / 2, 15);
        ctx[5] = place * 32 + log_bin(total - near);
        if (!code(m, c, e < bits, ctx, 2 * SETS + set, 255)) break;
    }
    uint32_t got = 1;
    for (int i = e - 1; i >= 0; i--) {
        int bit = (int)(u >> i) & 1;
        if (e - 1 - i < 3) {
            const uint32_t place = 1 + (uint32_t)low((uint32_t)e, 15) * 8 + (got & 7);
            const uint32_t base = 16 * 32 + place * 33;
            ctx[0] = base + a;
            ctx[1] = base + b;
            ctx[2] = 16 + place;
            ctx[3] = base + (uint32_t)set;
            ctx[4] = 4096 + place;
            ctx[5] = base;
            bit = code(m, c, bit, ctx, 2 * SETS + set, 500);
        } else {
            bit = code_bit(c, bit, 32768);
        }
        got = got * 2 + (uint32_t)bit;
    }
    return (int32_t)(got - 1);
}

static inline int32_t code_value(model models[KINDS], coder *c, const grid *g, int64_t z, int64_t y,
                                 int64_t x, int64_t s, int cls, int level, double wanted,
                                 double lambda) {
    uint32_t ctx[INPUTS], near, total;
    contexts(g, z, y, x, s, cls, level, ctx, &near, &total);
    const int set = (cls ? cls - 1 : 0) * 4 + (level < 3 ? level : 3);
    predict(&models[0], ctx, set);
    int32_t q = 0;
    double size = fabs(wanted);
    if (!c->decoding) {
        q = (int32_t)(size + 0.5);
        /* Rate-distortion: one step towards zero when the bits saved are worth the error. */
        if (q == 1 && lambda > 0) {
            double bits = models[0].dot * (-1.4426950408889634 / 256) + 1.3;
            if (2 * size - 1 < lambda * bits) q = 0;
        } else if (q > 1 && lambda > 0) {
            double off = size - (q - 1);
            if (off * off - (off - 1) * (off - 1) < lambda * 1.1) q--;
        }
    }
    int nonzero = code_bit(c, q != 0, (uint32_t)models[0].p16);
    learn(&models[0], nonzero, 1000);
    if (!nonzero) return 0;
    int negative = code_bit(c, wanted < 0, 32768);
    int more = code(&models[1], c, q > 1, ctx, SETS + set, 500);
    q = more ? 2 + code_tail(&models[2], c, q - 2, near, total, set) : 1;
    return negative ? -q : q;
}

/* ---- the scan: level by level, band by band ---- */
/* `wanted` are coefficients over the step (encoding, else NULL); `q` takes the integers.
   Returns the bytes written or read, -1 when out of memory. */
int64_t dyadic_scan(const int64_t *shape, const REAL *wanted, int32_t *q, double lambda,
                    uint8_t *buf, int64_t cap, int64_t decoding) {
    dyadic_init();
    grid g;
    for (int d = 0; d < 3; d++) g.n[d] = shape[d];
    g.stride[0] = g.n[1] * g.n[2]; g.stride[1] = g.n[2]; g.stride[2] = 1;
    const int64_t count = g.n[0] * g.stride[0];
    uint16_t *mag = calloc((size_t)count, 2);
    model *models = malloc(sizeof(model) * KINDS);
    uint32_t *pool = malloc(sizeof(uint32_t) * KINDS * INPUTS * CONTEXTS);
    if (!mag || !models || !pool) { free(mag); free(models); free(pool); return -1; }
    for (int64_t i = 0; i < KINDS * INPUTS * CONTEXTS; i++) pool[i] = 1u << 31;
    for (int k = 0; k < KINDS; k++) {
        for (int i = 0; i < INPUTS; i++) models[k].counters[i] = pool + (k * INPUTS + i) * CONTEXTS;
        for (int j = 0; j < KINDS * SETS; j++)
            for (int i = 0; i <= INPUTS; i++) models[k].weights[j][i] = i < INPUTS ? 18000 : 0;
    }
    g.mag = mag;
    coder c = {0, 0xffffffffu, 0, buf, 0, cap, (int)decoding};
    if (decoding) for (int i = 0; i < 4; i++) c.x = (c.x << 8) | next_byte(&c);
    int64_t top = 1;
    int level = 0;
    while (2 * top < g.n[0] || 2 * top < g.n[1] || 2 * top < g.n[2]) { top *= 2; level++; }
    for (int64_t s = top; s >= 1; s /= 2, level--) {
        static const int order[8] = {0, 1, 2, 4, 3, 5, 6, 7};
        for (int o = s == top ? 0 : 1; o < 8; o++) {
            const int cls = order[o];
            const int64_t z0 = cls & 4 ? s : 0, y0 = cls & 2 ? s : 0, x0 = cls & 1 ? s : 0;
            for (int64_t z = z0; z < g.n[0]; z += 2 * s)
            for (int64_t y = y0; y < g.n[1]; y += 2 * s)
            for (int64_t x = x0; x < g.n[2]; x += 2 * s) {
                const int64_t i = z * g.stride[0] + y * g.stride[1] + x;
                int32_t got = code_value(models, &c, &g, z, y, x, s, cls, level,
                                         decoding ? 0 : (double)wanted[i], lambda);
                int32_t m = got < 0 ? -got : got;
                mag[i] = (uint16_t)(m < 65535 ? m : 65535);
                q[i] = got;
            }
        }
    }
    if (!decoding) {
        put_byte(&c, c.hi >> 24);
        put_byte(&c, (c.hi >> 16) & 255);
    }
    free(mag); free(models); free(pool);
    return c.pos;
}

/* ---- CDF 9/7 by lifting (Daubechies & Sweldens 1998), in place, near-orthonormal ---- */
static const double LIFT[4] = {-1.586134342059924, -0.052980118572961, 0.882911075530934,
                               0.443506852043971};
static const double GAIN = 1.149604398860241;

/* One lifting step along an axis of `n` points: points of parity `odd` gain c * (left + right). */
static void lift(REAL *a, int64_t n, int64_t st, int64_t odd, double c, int64_t inner,
                 int64_t inner_st) {
    const REAL k = (REAL)c;
    for (int64_t i = odd; i < n; i += 2) {
        const REAL *l = a + (i > 0 ? i - 1 : i + 1 < n ? i + 1 : i) * st;
        const REAL *r = a + (i + 1 < n ? i + 1 : i - 1) * st;
        REAL *p = a + i * st;
        if (inner_st == 1)
            for (int64_t j = 0; j < inner; j++) p[j] += k * (l[j] + r[j]);
        else
            for (int64_t j = 0; j < inner * inner_st; j += inner_st) p[j] += k * (l[j] + r[j]);
    }
}
static void scale(REAL *a, int64_t n, int64_t st, double even, double odd, int64_t inner,
                  int64_t inner_st) {
    for (int64_t i = 0; i < n; i++) {
        const REAL k = (REAL)(i & 1 ? odd : even);
        for (int64_t j = 0; j < inner * inner_st; j += inner_st) a[i * st + j] *= k;
    }
}
static void along(REAL *a, int64_t n, int64_t st, int64_t inner, int64_t inner_st, int inverse) {
    if (n < 2) return;
    if (!inverse) {
        for (int k = 0; k < 4; k++) lift(a, n, st, !(k & 1), LIFT[k], inner, inner_st);
        scale(a, n, st, GAIN, 1 / GAIN, inner, inner_st);
    } else {
        scale(a, n, st, 1 / GAIN, GAIN, inner, inner_st);
        for (int k = 3; k >= 0; k--) lift(a, n, st, !(k & 1), -LIFT[k], inner, inner_st);
    }
}
void dyadic_wavelet(const int64_t *shape, REAL *a, int64_t inverse) {
    const int64_t n0 = shape[0], n1 = shape[1], n2 = shape[2];
    int64_t top = 1;
    while (2 * top < n0 || 2 * top < n1 || 2 * top < n2) top *= 2;
    for (int64_t s = inverse ? top : 1; inverse ? s >= 1 : s <= top; s = inverse ? s / 2 : s * 2) {
        const int64_t m0 = (n0 + s - 1) / s, m1 = (n1 + s - 1) / s, m2 = (n2 + s - 1) / s;
        const int64_t sz = n1 * n2 * s, sy = n2 * s;
        for (int pass = 0; pass < 3; pass++) {
            const int axis = inverse ? pass : 2 - pass;
            if (axis == 0)
                for (int64_t y = 0; y < m1; y++) along(a + y * sy, m0, sz, m2, s, (int)inverse);
            else if (axis == 1)
                for (int64_t z = 0; z < m0; z++) along(a + z * sz, m1, sy, m2, s, (int)inverse);
            else
                for (int64_t z = 0; z < m0; z++)
                    for (int64_t y = 0; y < m1; y++)
                        along(a + z * sz + y * sy, m2, s, 1, 1, (int)inverse);
        }
    }
}

/* ---- from coefficients to integers and back ---- */
void dyadic_dequantise(int64_t count, const int32_t *q, REAL *out, double step, double one,
                       double more) {
    for (int64_t i = 0; i < count; i++) {
        const double m = q[i] < 0 ? -(double)q[i] : (double)q[i];
        const double v = m == 0 ? 0 : (m - (m == 1 ? one : more)) * step;
        out[i] = (REAL)(q[i] < 0 ? -v : v);
    }
}
/* sums: (m - |wanted|) and count, for magnitude 1 and for more */
void dyadic_centroids(int64_t count, const REAL *wanted, const int32_t *q, double *sums) {
    for (int64_t i = 0; i < count; i++) {
        if (!q[i]) continue;
        const double m = q[i] < 0 ? -(double)q[i] : (double)q[i];
        const int k = m == 1 ? 0 : 2;
        sums[k] += m - fabs((double)wanted[i]);
        sums[k + 1] += 1;
    }
}
"""
