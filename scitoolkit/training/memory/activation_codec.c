/* Activation codec: 8 x 8 cosine transform, quantisation, packing; exact zeros. REAL: float or double.
 *
 * The coefficients of a block are rounded to multiples of one step and written as (run of zeros,
 * size, sign) in adaptive Exp-Golomb codes. The transform is orthonormal, so the 2-norm error of a
 * block is that of its rounded coefficients. The mask of exact zeros (a ReLU produces many) is
 * written as its difference from a prediction by the decoded block, which takes a few bits along
 * the border of the zero region; encoder and decoder run the same inverse transform.
 */
#include <stdint.h>
#include <string.h>
#include <math.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif
typedef float v8 __attribute__((vector_size(32)));
typedef float v8u __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t i8 __attribute__((vector_size(32)));
typedef uint64_t u64;
typedef int64_t i64;
#define INLINE static inline __attribute__((always_inline))
/* Coefficients below this fraction of a step are dropped (dead zone): fewer bits, same error. */
#define DEAD 0.6f
/* Threshold, in steps, above which a decoded value is predicted to be nonzero. */
#define GUESS 0.18f

static v8 cosine[8], cosine_t[8];
static uint8_t order[64];      /* zigzag position -> row-major position */
static u64 spread[8][256];     /* row of a row-major bit mask -> zigzag bit mask */

__attribute__((constructor)) static void tables(void) {
    for (int k = 0; k < 8; k++)
        for (int n = 0; n < 8; n++) {
            const double c = (k ? 0.5 : sqrt(0.125)) * cos(M_PI * (2 * n + 1) * k / 16);
            cosine[k][n] = cosine_t[n][k] = (float)c;
        }
    int at = 0;
    for (int s = 0; s < 15; s++)
        for (int i = 0; i < 8; i++) {
            const int row = s & 1 ? i : s - i, col = s - row;
            if (row >= 0 && row < 8 && col >= 0 && col < 8) order[at++] = (uint8_t)(8 * row + col);
        }
    memset(spread, 0, sizeof spread);
    for (int p = 0; p < 64; p++)
        for (int byte = 0; byte < 256; byte++)
            if (byte >> (order[p] & 7) & 1) spread[order[p] >> 3][byte] |= 1ull << p;
}

INLINE int bits_of(i8 truth) {
#ifdef __AVX2__
    return _mm256_movemask_ps((__m256)truth);
#else
    int bits = 0;
    for (int j = 0; j < 8; j++) bits |= (truth[j] & 1) << j;
    return bits;
#endif
}

/* to = left . from . right, all 8 x 8. */
INLINE void product(v8 *to, const v8 *from, const v8 *left, const v8 *right) {
    for (int i = 0; i < 8; i++) {
        const float *l = (const float *)(left + i);
        v8 row = l[0] * from[0];
        for (int k = 1; k < 8; k++) row += l[k] * from[k];
        float r[8] __attribute__((aligned(32)));
        *(v8 *)r = row;
        v8 sum = r[0] * right[0];
        for (int k = 1; k < 8; k++) sum += r[k] * right[k];
        to[i] = sum;
    }
}
/* Not inlined, so that encoder and decoder produce the same bits. */
static __attribute__((noinline)) void inverse(v8 *restrict to, const v8 *from) {
    product(to, from, cosine_t, cosine);
}
static __attribute__((noinline)) u64 guess(const v8 *x, float step) {
    u64 bits = 0;
    for (int i = 0; i < 8; i++) bits |= (u64)(unsigned)bits_of(x[i] > GUESS * step) << (8 * i);
    return bits;
}

typedef struct { uint8_t *p; u64 word; int fill; } writer;
INLINE void put(writer *o, u64 bits, int count) { /* at most 56 bits */
    o->word |= bits << o->fill;
    o->fill += count;
    memcpy(o->p, &o->word, 8);
    o->p += o->fill >> 3;
    o->word >>= o->fill & 56;
    o->fill &= 7;
}
/* Exp-Golomb code of order k: a prefix of zeros, a one, then the low bits of v + 2^k. */
INLINE void put_golomb(writer *o, uint32_t v, int k) {
    const u64 u = (u64)v + (1u << k);
    const int top = 63 - __builtin_clzll(u), zeros = top - k;
    put(o, 1ull << zeros | (u & ((1ull << top) - 1)) << (zeros + 1), zeros + 1 + top);
}
typedef struct { const uint8_t *p; i64 at; } reader;
INLINE u64 peek(const reader *r) {
    u64 word;
    memcpy(&word, r->p + (r->at >> 3), 8);
    return word >> (r->at & 7);
}
INLINE u64 get(reader *r, int count) {
    const u64 bits = peek(r) & ((1ull << count) - 1);
    r->at += count;
    return bits;
}
INLINE uint32_t golomb_of(u64 *word, i64 *at, int k) {
    const int zeros = __builtin_ctzll(*word | 1ull << 40), top = zeros + k;
    const u64 low = *word >> (zeros + 1) & ((1ull << top) - 1);
    *word >>= zeros + 1 + top;
    *at += zeros + 1 + top;
    return (uint32_t)(low + (1ull << top) - (1u << k));
}
INLINE uint32_t get_golomb(reader *r, int k) {
    u64 word = peek(r);
    return golomb_of(&word, &r->at, k);
}
/* Running mean of coded numbers in 16ths, and the Exp-Golomb order for it. */
INLINE int order_of(int mean) { return mean < 16 ? 0 : 27 - __builtin_clz((unsigned)mean); }
INLINE int moved(int mean, uint32_t v) {
    return mean + (((int)(v > 1u << 20 ? 1u << 20 : v) * 16 - mean) >> 3);
}

typedef struct { int32_t dc; int dc_mean, count_mean; } context;
static const context START = {0, 128, 64};

static void put_block(writer *o, context *c, const v8 *x, u64 zero, float step, int has_zeros) {
    if (has_zeros) {
        const int state = zero == ~0ull ? 0 : zero == 0 ? 1 : 2;
        put(o, (u64)state, 2);
        if (!state) return;
    }
    v8 coefficients[8];
    product(coefficients, x, cosine, cosine_t);
    int32_t q[64] __attribute__((aligned(32)));
    const float magic = 12582912.0f; /* adding 1.5 2^23 rounds to an integer */
    u64 mask = 0;
    for (int i = 0; i < 8; i++) {
        const v8 t = coefficients[i] * (1 / step), r = (t + magic) - magic;
        const i8 kept = (t > DEAD) | (t < -DEAD);
        const i8 n = __builtin_convertvector(r, i8) & kept;
        *(i8 *)(q + 8 * i) = n;
        mask |= spread[i][bits_of(n != 0)];
    }
    const int32_t dc = q[0] = (int32_t)lrintf(coefficients[0][0] / step);
    const int32_t change = dc - c->dc;
    const uint32_t folded = (uint32_t)(change << 1) ^ (uint32_t)(change >> 31);
    put_golomb(o, folded, order_of(c->dc_mean));
    c->dc = dc;
    c->dc_mean = moved(c->dc_mean, folded);
    mask &= ~1ull;
    const int count = __builtin_popcountll(mask);
    put_golomb(o, (uint32_t)count, order_of(c->count_mean));
    c->count_mean = moved(c->count_mean, (uint32_t)count);
    int last = 0;
    for (u64 left = mask; left; left &= left - 1) {
        const int p = __builtin_ctzll(left);
        const int32_t v = q[order[p]];
        put_golomb(o, (uint32_t)(p - last - 1), 0);
        put_golomb(o, (uint32_t)((v < 0 ? -v : v) - 1) << 1 | (v < 0), 1);
        last = p;
    }
    if (!has_zeros || zero == 0) return;
    v8 back[8], rounded[8];
    for (int i = 0; i < 8; i++) rounded[i] = __builtin_convertvector(*(i8 *)(q + 8 * i), v8) * step;
    inverse(back, rounded);
    u64 wrong = guess(back, step) ^ ~zero;
    const int many = __builtin_popcountll(wrong);
    put(o, many > 11, 1);
    if (many > 11) {
        put(o, zero & 0xffffffffu, 32);
        put(o, zero >> 32, 32);
        return;
    }
    put_golomb(o, (uint32_t)many, 1);
    for (last = -1; wrong; wrong &= wrong - 1) {
        const int p = __builtin_ctzll(wrong);
        put_golomb(o, (uint32_t)(p - last - 1), 2);
        last = p;
    }
}

/* Return whether the block has nonzero values. */
static int get_block(reader *r, context *c, v8 *x, float step, int has_zeros, int positive) {
    int state = 1;
    if (has_zeros) {
        state = (int)get(r, 2);
        if (!state) return 0;
    }
    float q[64] __attribute__((aligned(32)));
    const uint32_t folded = get_golomb(r, order_of(c->dc_mean));
    c->dc += (int32_t)(folded >> 1) ^ -(int32_t)(folded & 1);
    c->dc_mean = moved(c->dc_mean, folded);
    const int count = (int)get_golomb(r, order_of(c->count_mean));
    c->count_mean = moved(c->count_mean, (uint32_t)count);
    if (!count && state == 1) {
        const float value = (float)c->dc * step * 0.125f;
        for (int i = 0; i < 8; i++) x[i] = value - (v8){0};
    } else {
        memset(q, 0, sizeof q);
        q[0] = (float)c->dc * step;
        int p = 0;
        for (int i = 0; i < count; i++) {
            u64 word = peek(r);
            p += 1 + (int)golomb_of(&word, &r->at, 0);
            const uint32_t v = golomb_of(&word, &r->at, 1);
            const float size = (float)((v >> 1) + 1) * step;
            q[order[p & 63]] = v & 1 ? -size : size;
        }
        inverse(x, (v8 *)q);
    }
    const float least = 0.125f * step;
    if (state == 2) {
        u64 zero;
        if (get(r, 1)) {
            zero = get(r, 32);
            zero |= get(r, 32) << 32;
        } else {
            u64 wrong = 0;
            int left = (int)get_golomb(r, 1);
            for (int p = -1; left > 0; left--) {
                p += 1 + (int)get_golomb(r, 2);
                wrong |= 1ull << (p & 63);
            }
            zero = ~(guess(x, step) ^ wrong);
        }
        const i8 bit = {1, 2, 4, 8, 16, 32, 64, 128};
        for (int i = 0; i < 8; i++) {
            const i8 kept = ((i8){0} + (int)(zero >> (8 * i) & 255) & bit) == 0;
            const i8 low = positive ? x[i] < least : x[i] == 0;
            const v8 y = (v8)((i8)x[i] & ~low | (i8)(least - (v8){0}) & low);
            x[i] = (v8)((i8)y & kept);
        }
    } else if (positive || has_zeros) {
        for (int i = 0; i < 8; i++) {
            const i8 low = positive ? x[i] < least : x[i] == 0;
            x[i] = (v8)((i8)x[i] & ~low | (i8)(least - (v8){0}) & low);
        }
    }
    return 1;
}

INLINE i64 least_of(i64 a, i64 b) { return a < b ? a : b; }

/* found = sum of squares, minimum, largest absolute value, number of zeros. */
void comet_measure(const REAL *x, i64 count, double *found) {
    double total = 0, low = INFINITY, high = 0;
    i64 zeros = 0;
    for (i64 start = 0; start < count; start += 4096) {
        const i64 end = least_of(count, start + 4096);
        float sum[16] = {0}, least[16], most[16] = {0};
        int32_t none[16] = {0};
        for (int j = 0; j < 16; j++) least[j] = INFINITY;
        i64 i = start;
        for (; i + 16 <= end; i += 16)
            for (int j = 0; j < 16; j++) {
                const float v = (float)x[i + j], a = fabsf(v);
                sum[j] += v * v;
                least[j] = v < least[j] ? v : least[j];
                most[j] = a > most[j] ? a : most[j];
                none[j] += v == 0;
            }
        for (; i < end; i++) {
            const float v = (float)x[i], a = fabsf(v);
            sum[0] += v * v;
            least[0] = v < least[0] ? v : least[0];
            most[0] = a > most[0] ? a : most[0];
            none[0] += v == 0;
        }
        for (int j = 0; j < 16; j++) {
            total += sum[j];
            low = least[j] < low ? least[j] : low;
            high = most[j] > high ? most[j] : high;
            zeros += none[j];
        }
    }
    found[0] = total; found[1] = low; found[2] = high; found[3] = (double)zeros;
}

/* Encode planes first..last of height h and width w; return bytes written, or -1 if out of room. */
static i64 pack_part(const REAL *x, i64 first, i64 last, i64 h, i64 w, float step, int has_zeros,
                     uint8_t *out, i64 room) {
    writer o = {out, 0, 0};
    context c = START;
    for (i64 plane = first; plane < last; plane++)
        for (i64 y = 0; y < h; y += 8)
            for (i64 z = 0; z < w; z += 8) {
                if (o.p - out + 1024 > room) return -1;
                v8 block[8];
                u64 zero = 0;
                const REAL *from = x + (plane * h + y) * w + z;
                if (y + 8 <= h && z + 8 <= w)
                    for (int i = 0; i < 8; i++)
                        for (int j = 0; j < 8; j++) block[i][j] = (float)from[i * w + j];
                else
                    for (int i = 0; i < 8; i++)
                        for (int j = 0; j < 8; j++)
                            block[i][j] = (float)from[least_of(i, h - 1 - y) * w
                                                      + least_of(j, w - 1 - z)];
                if (has_zeros)
                    for (int i = 0; i < 8; i++)
                        zero |= (u64)(unsigned)bits_of(block[i] == 0) << (8 * i);
                put_block(&o, &c, block, zero, step, has_zeros);
            }
    memset(o.p + 1, 0, 8);
    return o.p - out + 9;
}

static void unpack_part(const uint8_t *in, i64 first, i64 last, i64 h, i64 w, float step,
                        int has_zeros, int positive, REAL *x) {
    reader r = {in, 0};
    context c = START;
    for (i64 plane = first; plane < last; plane++)
        for (i64 y = 0; y < h; y += 8)
            for (i64 z = 0; z < w; z += 8) {
                v8 block[8];
                if (!get_block(&r, &c, block, step, has_zeros, positive))
                    memset(block, 0, sizeof block);
                REAL *to = x + (plane * h + y) * w + z;
                const int rows = (int)least_of(8, h - y), columns = (int)least_of(8, w - z);
                if (rows == 8 && columns == 8)
                    for (int i = 0; i < 8; i++)
                        for (int j = 0; j < 8; j++) to[i * w + j] = (REAL)block[i][j];
                else
                    for (int i = 0; i < rows; i++)
                        for (int j = 0; j < columns; j++) to[i * w + j] = (REAL)block[i][j];
            }
}

/* Each part writes at most `room` bytes at out + part * room; sizes[part] is -1 on overflow. */
void comet_pack(const REAL *x, i64 planes, i64 h, i64 w, double step, i64 has_zeros, i64 parts,
                uint8_t *out, i64 room, i64 *sizes) {
#pragma omp parallel for num_threads(parts) if(parts > 1) schedule(static)
    for (i64 part = 0; part < parts; part++)
        sizes[part] = pack_part(x, planes * part / parts, planes * (part + 1) / parts, h, w,
                                (float)step, (int)has_zeros, out + part * room, room);
}

void comet_unpack(const uint8_t *in, const i64 *sizes, i64 planes, i64 h, i64 w, double step,
                  i64 has_zeros, i64 positive, i64 parts, REAL *x) {
    i64 starts[256] = {0};
    for (i64 part = 1; part < parts; part++) starts[part] = starts[part - 1] + sizes[part - 1];
#pragma omp parallel for num_threads(parts) if(parts > 1) schedule(static)
    for (i64 part = 0; part < parts; part++)
        unpack_part(in + starts[part], planes * part / parts, planes * (part + 1) / parts, h, w,
                    (float)step, (int)has_zeros, (int)positive, x);
}
