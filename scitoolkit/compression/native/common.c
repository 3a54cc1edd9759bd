/* Definitions shared by all parts of the codec library: grids, levels and classes of points.
 *
 * A field has three extents (z, y, x); missing ones are 1. Level s (a power of two) holds the
 * points whose coordinates are multiples of s; the class of such a point is the parity of its
 * coordinates in units of s, bit 2 for z, bit 1 for y, bit 0 for x. docs/format/interpolation.md
 * specifies everything that a decoder requires.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__clang__)
#define SHUFFLE(integer, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(integer, a, b, ...) \
    __builtin_shuffle(a, b, (integer __attribute__((vector_size(32)))){__VA_ARGS__})
#endif

enum { SCK_DAMAGED = -1, SCK_MEMORY = -2, SCK_SPACE = -3 };
/* A coded integer of this magnitude marks a value that is stored verbatim. */
enum { SCK_ESCAPE = 1 << 29 };
enum { MAX_GROUPS = 24, MAX_TAPS = 8, UNIT = 256, MAX_WEIGHT = 1023, NUM_PAIRS = 4 };
/* Methods: one for each pair of ALPHA and BETA, three orders of differences of a line, and the pairs
 * with weights fitted to small classes (FEW), with whole groups as well (WHOLE). */
enum { FEW = 8, WHOLE = 12, NUM_METHODS = 16, FITTED_POINTS = 2000, FEW_POINTS = 200 };
/* Flags of the effort to find a method. */
enum { THOROUGH = 1, LEVELS = 2 };

/* Order in which the classes of a level are coded. */
static const int ORDER[8] = {0, 1, 2, 4, 3, 5, 6, 7};
static const int PLACE[8] = {0, 1, 2, 4, 3, 5, 6, 7};
/* Bound of level s = 2^l: the bound over min(ALPHA^l, BETA). */
static const double ALPHA[NUM_PAIRS] = {1, 1.25, 1.5, 2}, BETA[NUM_PAIRS] = {1, 2, 3, 4};

/* `axes`: bits 2, 1, 0 are set if the field has more than one point along z, y, x.
 * `half`: number of points of even x if rows have these first, else 0.
 * `fit_from`: least number of points of a class whose weights are fitted.
 * `whole`: near an edge, groups of neighbours of which a part is outside have no weight. */
typedef struct { int64_t n[3], stride[3], count, half; int axes, fit_from, whole; } grid;

static grid grid_of(const int64_t *shape) {
    grid g;
    g.axes = 0;
    for (int d = 0; d < 3; d++) {
        g.n[d] = shape[d];
        if (shape[d] > 1) g.axes |= 4 >> d;
    }
    g.stride[2] = 1;
    g.stride[1] = g.n[2];
    g.stride[0] = g.n[1] * g.n[2];
    g.count = g.n[0] * g.stride[0];
    g.half = 0;
    g.fit_from = FITTED_POINTS;
    g.whole = 0;
    return g;
}

/* Position of a point in its row, and the distance in memory to the point at x + move. */
static int64_t place_of(const grid *g, int64_t x) {
    return !g->half ? x : x & 1 ? g->half + x / 2 : x / 2;
}
static int64_t move_by(const grid *g, int64_t x, int64_t move) {
    return place_of(g, x + move) - place_of(g, x);
}

static int64_t top_level(const grid *g) {
    int64_t s = 1;
    while (2 * s < g->n[0] || 2 * s < g->n[1] || 2 * s < g->n[2]) s *= 2;
    return s;
}

static int64_t first(int cls, int axis, int64_t s) { return cls >> (2 - axis) & 1 ? s : 0; }

static int64_t points_along(const grid *g, int cls, int axis, int64_t s) {
    const int64_t start = first(cls, axis, s);
    return start < g->n[axis] ? (g->n[axis] - start + 2 * s - 1) / (2 * s) : 0;
}

static int64_t points_of(const grid *g, int cls, int64_t s) {
    return points_along(g, cls, 0, s) * points_along(g, cls, 1, s) * points_along(g, cls, 2, s);
}

/* Numbers of steps to the left and right of a point that are inside, at most three each. */
static int room(int64_t c, int64_t n, int64_t s) {
    const int64_t right = n - 1 - c;  /* compared, because a division takes longer than a point */
    return ((c >= s) + (c >= 2 * s) + (c >= 3 * s)) << 2
        | ((right >= s) + (right >= 2 * s) + (right >= 3 * s));
}

/* ---- stencils: sets of mirrored neighbours that share one weight ---- */
/* Rule of docs/format/interpolation.md that defines a group of neighbours. */
enum { NEAR, FAR, PAIR, TRIPLE, CROSS, LONG_CROSS, TWICE };
typedef struct { int count, off[MAX_TAPS][3], causal, rule; } group;
typedef struct {
    int groups, weight[MAX_GROUPS], num_odd, odd[3];
    group g[MAX_GROUPS];
} stencil;

/* Return whether the point at an offset (in units of s) is decoded before the points of the class. */
static int decoded_before(int cls, const int *off) {
    int other = cls;
    for (int d = 0; d < 3; d++) if (off[d] & 1) other ^= 4 >> d;
    if (other == cls) return off[0] < 0 || (off[0] == 0 && (off[1] < 0 || (!off[1] && off[2] < 0)));
    return PLACE[other] < PLACE[cls];
}

/* Add the offsets +-steps[i] along axes[i] with all signs, if they are decoded before the class. */
static void add_group(stencil *st, int cls, int num, const int *axes, const int *steps, int rule) {
    group *g = &st->g[st->groups];
    g->rule = rule;
    g->count = 0;
    for (int signs = 0; signs < 1 << num; signs++) {
        int off[3] = {0, 0, 0};
        for (int i = 0; i < num; i++)
            off[axes[i]] = signs >> (num - 1 - i) & 1 ? steps[i] : -steps[i];
        if (decoded_before(cls, off)) memcpy(g->off[g->count++], off, sizeof off);
    }
    g->causal = num == 1 && !(steps[0] & 1);
    if (g->count) st->groups++;
}

/* The groups of a class, in the order in which weights are stored and products are added. */
static void make_stencil(stencil *st, const grid *g, int cls) {
    memset(st, 0, sizeof *st);
    int even[3], num_even = 0;
    for (int d = 0; d < 3; d++) {
        if (cls & 4 >> d) st->odd[st->num_odd++] = d;
        else if (g->axes & 4 >> d) even[num_even++] = d;
    }
    const int one[3] = {1, 1, 1}, three[1] = {3}, two[1] = {2}, one_two[2] = {1, 2};
    for (int i = 0; i < st->num_odd; i++) {
        add_group(st, cls, 1, &st->odd[i], one, NEAR);
        add_group(st, cls, 1, &st->odd[i], three, FAR);
    }
    for (int i = 0; i < st->num_odd; i++)
        for (int j = i + 1; j < st->num_odd; j++)
            add_group(st, cls, 2, (int[2]){st->odd[i], st->odd[j]}, one, PAIR);
    if (st->num_odd == 3) add_group(st, cls, 3, st->odd, one, TRIPLE);
    for (int i = 0; i < st->num_odd; i++)
        for (int j = 0; j < num_even; j++) {
            add_group(st, cls, 2, (int[2]){st->odd[i], even[j]}, one, CROSS);
            add_group(st, cls, 2, (int[2]){st->odd[i], even[j]}, one_two, LONG_CROSS);
        }
    for (int d = 0; d < 3; d++) if (g->axes & 4 >> d) add_group(st, cls, 1, &d, two, TWICE);
}

/* Cubic interpolation along each odd axis, averaged: (-1, 9, 9, -1) / 16. */
static void cubic_weights(stencil *st) {
    for (int k = 0; k < st->groups; k++) {
        const int *o = st->g[k].off[0];
        const int far = abs(o[0]) == 3 || abs(o[1]) == 3 || abs(o[2]) == 3;
        st->weight[k] = far ? -(UNIT / 8 + st->num_odd / 2) / st->num_odd : 0;
    }
}

/* Weights of the finest levels (4, 2, 1) that all blocks of a field share. */
enum { SHARED_LEVELS = 3 };
typedef struct { int fitted[SHARED_LEVELS][8], weight[SHARED_LEVELS][8][MAX_GROUPS]; } shared_weights;
static int shared_level(int64_t s) { return s == 4 ? 0 : s == 2 ? 1 : s == 1 ? 2 : -1; }

/* ---- CRC-32C (Castagnoli), for which processors have an instruction ---- */
static void fill_crc_table(uint32_t *table, uint32_t polynomial) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (polynomial & -(c & 1));
        table[i] = c;
    }
}
static uint32_t castagnoli[256];
__attribute__((constructor)) static void make_castagnoli(void) {
    fill_crc_table(castagnoli, 0x82f63b78u);
}
static uint32_t crc32c(uint32_t crc, const void *data, int64_t n) {
    const uint8_t *p = data;
    uint64_t c = (uint32_t)~crc;
#ifdef __SSE4_2__
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        c = __builtin_ia32_crc32di(c, word);
    }
#endif
    while (n-- > 0) c = c >> 8 ^ castagnoli[(c ^ *p++) & 255];
    return ~(uint32_t)c;
}

/* ---- reading and writing of the payload's header ---- */
typedef struct { const uint8_t *at, *end; int bad; } reader;
typedef struct { uint8_t *at, *end; int bad; } writer;

static int read_byte(reader *r) {
    if (r->at < r->end) return *r->at++;
    r->bad = 1;
    return 0;
}
static void write_byte(writer *w, int byte) {
    if (w->at < w->end) *w->at++ = (uint8_t)byte;
    else w->bad = 1;
}
static uint64_t read_varint(reader *r) {
    uint64_t v = 0;
    for (int shift = 0; shift < 63; shift += 7) {
        const int byte = read_byte(r);
        v |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return v;
    }
    r->bad = 1;
    return 0;
}
static void write_varint(writer *w, uint64_t v) {
    for (; v >= 128; v >>= 7) write_byte(w, (int)(v & 127) | 128);
    write_byte(w, (int)v);
}
/* Little-endian words of 4 or 8 bytes, on any machine. */
static uint64_t read_word(reader *r, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint64_t)read_byte(r) << (8 * i);
    return v;
}
static void write_word(writer *w, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) write_byte(w, (int)(v >> (8 * i) & 255));
}

/* ---- enhancers: numbers of taps, classes and inputs ---- */
enum { TAPS = 10, WIDE = 12, MAX_CLASSES = 16 };
enum { NET_INPUTS = 32, NET_ROWS = 13, MAX_HIDDEN = 64, NET_BLOCK = 32 };
static inline int64_t nearest_inside(int64_t i, int64_t n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }

/* ---- weights ---- */
static void write_weights(writer *w, const stencil *st, int fitted) {
    write_byte(w, fitted);
    for (int k = 0; fitted && k < st->groups; k++) {
        const int v = st->weight[k];
        write_varint(w, (uint64_t)(v < 0 ? -2 * v - 1 : 2 * v));
    }
}
static int read_weights(reader *r, stencil *st) {
    const int fitted = read_byte(r);
    if (fitted > 1) r->bad = 1;
    for (int k = 0; fitted && !r->bad && k < st->groups; k++) {
        const uint64_t v = read_varint(r);
        if (v > 2 * MAX_WEIGHT) r->bad = 1;
        else st->weight[k] = v & 1 ? -(int)(v / 2) - 1 : (int)(v / 2);
    }
    return fitted;
}
