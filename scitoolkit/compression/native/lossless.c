/* Lossless coding of floating-point numbers as integers of the same order: every bit of every byte,
 * the most significant first, is coded with a probability mixed from six adaptive counters, which are
 * selected by the value's own higher bits, its neighbours, their linear extrapolation, and what
 * followed the same neighbours before. See docs/format/chunk.md.
 */
enum { SURE = 2, MATCH_STATES = 3, LEAST_TABLE = 10, MOST_TABLE = 18, LEARNED = 1000 };

/* Unsigned integers in the order of the numbers, so that differences of near numbers are small. */
static inline uint64_t ordered(uint64_t raw, int bits) {
    const uint64_t sign = 1ull << (bits - 1), all = bits == 64 ? ~0ull : (1ull << bits) - 1;
    return raw & sign ? ~raw & all : raw | sign;
}
static inline uint64_t unordered(uint64_t v, int bits) {
    const uint64_t sign = 1ull << (bits - 1), all = bits == 64 ? ~0ull : (1ull << bits) - 1;
    return v & sign ? v & ~sign : ~v & all;
}
static inline uint32_t hashed(uint64_t a, uint64_t b) {
    const uint64_t h = (a + 0x9e3779b97f4a7c15ull * (b + 1)) * 0xbf58476d1ce4e5b9ull;
    return (uint32_t)(h >> 32);
}

/* `repeats` are the probabilities that a value is the expected one, by the length of the match. */
typedef struct { model m; uint32_t *pool, *last; uint16_t repeats[64]; int bits, width; } lossless;

static int make_lossless(lossless *k, int64_t count, int width) {
    memset(k, 0, sizeof *k);
    k->width = width;
    k->bits = LEAST_TABLE;
    while (k->bits < MOST_TABLE && ((int64_t)1 << k->bits) < count * width) k->bits++;
    const size_t entries = (size_t)1 << k->bits;
    k->pool = malloc(sizeof(uint32_t) * INPUTS * entries);
    k->last = calloc(entries, sizeof(uint32_t));
    if (!k->pool || !k->last) return 0;
    for (size_t i = 0; i < INPUTS * entries; i++) k->pool[i] = 1u << 31;
    k->m.counters = k->pool;
    for (int j = 0; j < KINDS * SETS; j++) k->m.weights[j] = NEW_WEIGHTS;
    k->m.curve = &knotted;
    for (int i = 0; i < 64; i++) k->repeats[i] = 32768;
    return 1;
}
static void free_lossless(lossless *k) { free(k->pool); free(k->last); }

/* Neighbours of a value; those outside of the array are the value before them, or 0. */
typedef struct { uint64_t west, north, line, expected; int match; } around;

static inline int code_adaptive(coder *c, uint16_t *p, int bit) {
    bit = code_bit(c, bit, *p);
    *p = (uint16_t)(bit ? *p + ((65535 - *p) >> 5) : *p - ((*p - 1) >> 5));
    return bit;
}

INLINE uint64_t code_value(lossless *k, coder *c, uint64_t v, const around *a) {
    uint64_t got = 0;
    for (int b = k->width - 1; b >= 0; b--) {
        const int shift = 8 * b;
        const uint64_t west = a->west >> shift, north = a->north >> shift, line = a->line >> shift;
        const uint64_t next = a->expected >> shift, place = (uint64_t)b;
        const uint64_t same = (got == west >> 8) | (uint64_t)(got == north >> 8) << 1;
        const uint64_t side = got < line >> 8 ? 0 : got == line >> 8 ? 1 : 2;
        const int match = a->match && got == next >> 8 ? a->match : 0;
        const uint32_t base[INPUTS] = {
            hashed(got, place),
            hashed(place << 16 | same << 8 | (west & 255), 11),
            hashed(place << 16 | side << 8 | (line & 255), 12),
            hashed(place << 24 | same << 16 | (north & 255) << 8 | (west & 255), 13),
            hashed(a->west, got << 3 | place),
            hashed(place << 16 | (uint64_t)match << 8 | (match ? next & 255 : 0), 14),
        };
        const int set = b * MATCH_STATES + (match > 3 ? 2 : match > 0);
        uint32_t half = 0;
        for (int high = 4; high >= 0; high -= 4) {  /* the counters of half a byte are one cache line */
            uint32_t line[INPUTS], ctx[INPUTS], node = 1;
            for (int j = 0; j < INPUTS; j++)
                line[j] = ((base[j] + half * 0x9e3779b1u) * 0x85ebca6bu) >> (36 - k->bits) << 4;
            for (int i = 3; i >= 0; i--) {
                for (int j = 0; j < INPUTS; j++) ctx[j] = line[j] | node;
                const int bit = (int)(v >> (shift + high + i) & 1);
                node = node << 1 | (uint32_t)code_mixed(&k->m, c, bit, ctx, set, LEARNED,
                                                           (int64_t)1 << k->bits);
            }
            got = got << 4 | (node & 15);
            half = node;
        }
    }
    return got;
}

/* Code or decode `count` values of `width` bytes; return the bytes used or a negative SCK_ code. */
static int64_t code_lossless(const int64_t *shape, int width, uint64_t *raw, uint8_t *buf,
                             int64_t cap, int decoding) {
    const int64_t row = shape[2], slab = row * shape[1], count = slab * shape[0];
    const int bits = 8 * width;
    lossless k;
    if (!make_lossless(&k, count, width)) { free_lossless(&k); return SCK_MEMORY; }
    coder c = start_coder(buf, cap, decoding);
    int64_t from = 0;  /* one past the position that followed the same values before */
    int length = 0;
    for (int64_t i = 0; i < count && c.pos <= cap + 8; i++) {
        around a = {0};
        a.west = i ? raw[i - 1] : 0;
        a.north = i % slab >= row ? raw[i - row] : i >= slab ? raw[i - slab] : a.west;
        const int inside = i % row && (i % slab >= row || i >= slab);
        const uint64_t corner = !inside ? 0 : i % slab >= row ? raw[i - row - 1] : raw[i - slab - 1];
        a.line = inside ? a.west + a.north - corner : i > 1 ? 2 * a.west - raw[i - 2] : a.west;
        if (bits < 64) a.line &= (1ull << bits) - 1;
        if (from && from < i) { a.expected = raw[from]; a.match = length < 6 ? length + 1 : 7; }
        const uint64_t v = decoding ? 0 : ordered(raw[i], bits);
        const int repeated = length >= SURE && code_adaptive(&c, &k.repeats[log_bin((uint32_t)length)],
                                                            v == a.expected);
        raw[i] = repeated ? a.expected : code_value(&k, &c, v, &a);
        /* Values after i are raw bits when encoding; those before are ordered integers. */
        length = a.match && raw[from] == raw[i] ? length + 1 : 0;
        from = length ? from + 1 : 0;
        if (i < 2) continue;
        uint32_t *const slot = k.last + (hashed(raw[i] ^ raw[i - 1] << 1, raw[i - 2]) >> (32 - k.bits));
        if (!length) from = *slot;
        *slot = (uint32_t)(i + 1);
    }
    for (int64_t i = 0; i < count; i++) raw[i] = unordered(raw[i], bits);
    int64_t used = c.pos;
    if (!decoding) used = end_coder(&c);
    free_lossless(&k);
    if (decoding) return used > cap + 8 ? SCK_DAMAGED : used;
    return used > cap ? SCK_SPACE : used;
}
