/* Table-based entropy coder: rANS (Duda 2013, arXiv:1311.2540) with one table for each of a few
 * levels of the magnitudes around a point. Contexts are computed from earlier rows only, so that all
 * contexts of a row are known before its first integer is decoded and the interleaved states are
 * independent. See docs/format/blocks.md.
 */
enum { STATES = 8, SCALE = 12, TOTAL = 1 << SCALE, DIRECT = 24, TOKENS = 80, BUSY = 24 };

/* Small integers are tokens. The token of a larger one is its exponent and second bit; the other
 * bits are stored raw. */
static inline uint32_t zigzag(int32_t q) { return (uint32_t)q << 1 ^ (uint32_t)(q >> 31); }
static inline int32_t unzigzag(uint32_t u) { return (int32_t)(u >> 1) ^ -(int32_t)(u & 1); }
static inline uint8_t token_of(uint32_t u) {
    if (u < DIRECT) return (uint8_t)u;
    const int e = 31 - __builtin_clz(u - 8);
    return (uint8_t)(DIRECT + 2 * (e - 4) + ((u - 8) >> (e - 1) & 1));
}
static inline int raw_bits(int token) { return (token - DIRECT) / 2 + 3; }

/* Magnitudes of two planes of a class, with a border of zeros. */
typedef struct { int64_t mx, my, pitch; uint8_t *now, *before, *memory; } planes;

/* Memory of one block's coder, which a caller reuses: fresh pages would take longer than the coding. */
typedef struct { uint8_t *at, *end; } workspace;
static void *take(workspace *from, size_t bytes) {
    uint8_t *const taken = from->at;
    bytes = (bytes + 127) / 64 * 64;  /* the loops over a row may read a vector past its end */
    if ((size_t)(from->end - taken) < bytes) return NULL;
    from->at += bytes;
    return taken;
}
static size_t planes_bytes(const grid *g) { return (size_t)(2 * (g->n[2] + 2) * (g->n[1] + 2)); }
static void start_class(planes *p, int64_t mx, int64_t my) {
    p->mx = mx;
    p->my = my;
    p->pitch = mx + 2;
    memset(p->memory, 0, (size_t)(2 * p->pitch * (my + 2)));
    p->now = p->memory;
    p->before = p->memory + p->pitch * (my + 2);
}
static void next_plane(planes *p) {
    uint8_t *const swap = p->now;
    p->now = p->before;
    p->before = swap;
}
/* Activity level around the points of a row, which is not coded yet. */
static void busy_row(const planes *p, int64_t y, uint8_t *busy) {
    enum { PART = 64 };
    for (int64_t from = 0; from < p->mx; from += PART) {
        const uint8_t *const n = p->now + y * p->pitch + 1 + from;
        const uint8_t *const u = p->before + (y + 1) * p->pitch + 1 + from;
        const uint8_t *const un = u - p->pitch, *const us = u + p->pitch;
        const int num = p->mx - from < PART ? (int)(p->mx - from) : PART;
        float above[PART];
        uint32_t word[PART];
        for (int x = 0; x < num; x++)
            above[x] = (float)(2 * (n[x] + u[x]) + n[x - 1] + n[x + 1] + u[x - 1] + u[x + 1] + un[x]
                               + us[x] + 1);
        /* log_bin: the exponent of a float and the first bit of its mantissa; 127 is that of 1. */
        memcpy(word, above, sizeof word[0] * (size_t)num);
        for (int x = 0; x < num; x++) busy[from + x] = (uint8_t)((word[x] >> 22) - 2 * 127);
    }
}
static uint8_t *magnitudes_of(const planes *p, int64_t y) { return p->now + (y + 1) * p->pitch + 1; }
/* Position of the first token from x on that has raw bits, n if there is none; zeros follow the row. */
static inline int64_t next_large(const uint8_t *token, int64_t x, int64_t n) {
    while (x < n) {
        uint64_t word;
        memcpy(&word, token + x, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
#endif
        /* Adding 128 - DIRECT to each byte sets its highest bit if it is DIRECT or more. */
        const uint64_t large = (word + 0x0101010101010101u * (128 - DIRECT)) & 0x8080808080808080u;
        if (large) return x + __builtin_ctzll(large) / 8;
        x += 8;
    }
    return n;
}

/* ---- frequencies ---- */
/* Frequencies with sum TOTAL, nonzero for tokens that occur. */
static void normalise(const uint32_t *count, uint16_t *freq) {
    uint64_t sum = 0;
    int left = TOTAL, most = 0;
    for (int t = 0; t < TOKENS; t++) sum += count[t];
    for (int t = 0; t < TOKENS; t++) {
        const uint32_t f = sum ? (uint32_t)(((uint64_t)count[t] * TOTAL + sum / 2) / sum) : 0;
        freq[t] = (uint16_t)(count[t] && !f ? 1 : f);
        left -= freq[t];
        if (freq[t] > freq[most]) most = t;
    }
    while (sum && left) {  /* the most frequent tokens absorb the rounding */
        const int by = left < 0 && -left > freq[most] / 2 ? -(freq[most] / 2) : left;
        freq[most] = (uint16_t)(freq[most] + by);
        left -= by;
        for (int t = 0; t < TOKENS; t++) if (freq[t] > freq[most]) most = t;
    }
}
static void write_frequencies(writer *w, uint16_t freq[BUSY][TOKENS]) {
    for (int k = 0; k < BUSY; k++) {
        int num = TOKENS;
        while (num && !freq[k][num - 1]) num--;
        write_byte(w, num);
        for (int t = 0; t < num; t++) write_varint(w, freq[k][t]);
    }
}
static void read_frequencies(reader *r, uint16_t freq[BUSY][TOKENS]) {
    memset(freq, 0, sizeof(uint16_t) * BUSY * TOKENS);
    for (int k = 0; k < BUSY; k++) {
        const int num = read_byte(r);
        uint64_t sum = 0;
        for (int t = 0; t < num && !r->bad; t++) {
            const uint64_t f = t < TOKENS ? read_varint(r) : TOTAL + 1;
            if (f > TOTAL) { r->bad = 1; return; }
            freq[k][t] = (uint16_t)f;
            sum += f;
        }
        if (num && sum != TOTAL) r->bad = 1;
    }
}

/* ---- raw bits, least significant first ---- */
typedef struct { uint64_t bits; int num; const uint8_t *at, *end; int bad; } bit_reader;
static uint32_t take_bits(bit_reader *b, int num) {
    while (b->num < num) {
        if (b->at >= b->end) { b->bad = 1; return 0; }
        b->bits |= (uint64_t)*b->at++ << b->num;
        b->num += 8;
    }
    const uint32_t v = (uint32_t)(b->bits & ((1ull << num) - 1));
    b->bits >>= num;
    b->num -= num;
    return v;
}
typedef struct { uint64_t bits; int num; uint8_t *at; } bit_writer;
static void give_bits(bit_writer *b, uint32_t v, int num) {
    b->bits |= (uint64_t)v << b->num;
    for (b->num += num; b->num >= 8; b->num -= 8, b->bits >>= 8) *b->at++ = (uint8_t)b->bits;
}

/* ---- all classes of a block ---- */
typedef int (*row_action)(void *with, planes *p, int64_t y, int32_t *q);

/* Iteration over the rows of a block in scan order. */
static int each_row(const grid *g, planes *p, int32_t *q, row_action act, void *with) {
    const int64_t top = top_level(g);
    for (int64_t s = top; s >= 1; s /= 2)
        for (int o = s == top ? 0 : 1; o < 8; o++) {
            const int cls = ORDER[o];
            const int64_t mz = points_along(g, cls, 0, s), my = points_along(g, cls, 1, s);
            const int64_t mx = points_along(g, cls, 2, s);
            if (!mz || !my || !mx) continue;
            start_class(p, mx, my);
            for (int64_t z = 0; z < mz; z++, next_plane(p))
                for (int64_t y = 0; y < my; y++, q += mx)
                    if (!act(with, p, y, q)) return 0;
        }
    return 1;
}

/* `index`: level and token of each point, as TOKENS * level + token. Neighbouring points are counted in
 * different tables: an addition would wait for the one before it in the same place. */
typedef struct {
    uint8_t *busy, *token;
    uint16_t *index;
    uint32_t count[2][BUSY * TOKENS];
    bit_writer raw;
} counting;
static int count_row(void *with, planes *p, int64_t y, int32_t *q) {
    counting *c = with;
    const int64_t n = p->mx;
    uint8_t *restrict const token = c->token, *restrict const busy = c->busy;
    uint8_t *restrict const magnitude = magnitudes_of(p, y);
    uint16_t *restrict const index = c->index;
    busy_row(p, y, busy);
    for (int64_t x = 0; x < n; x++) {
        const uint32_t u = zigzag(q[x]);
        token[x] = (uint8_t)(u < DIRECT ? u : DIRECT);
        magnitude[x] = (uint8_t)((u < 509 ? u + 1 : 510) / 2);
    }
    memset(token + n, 0, 8);
    for (int64_t x = next_large(token, 0, n); x < n; x = next_large(token, x + 1, n)) {
        const uint32_t u = zigzag(q[x]);
        const uint8_t t = token[x] = token_of(u);
        give_bits(&c->raw, (u - 8) & ((1u << raw_bits(t)) - 1), raw_bits(t));
    }
    for (int64_t x = 0; x < n; x++) index[x] = (uint16_t)(busy[x] * TOKENS + token[x]);
    for (int64_t x = 0; x + 1 < n; x += 2) { c->count[0][index[x]]++; c->count[1][index[x + 1]]++; }
    if (n & 1) c->count[0][index[n - 1]]++;
    c->index += n;
    return 1;
}

/* Upper limits of the coded size of the integers of `count` points, and of the memory for coding. */
static int64_t tables_capacity(int64_t count) { return BUSY * TOKENS * 2 + 256 + 8 * count; }
static size_t tables_workspace(const grid *g) {
    return planes_bytes(g) + sizeof(counting) + sizeof(uint32_t) * BUSY * TOTAL
        + 8 * (size_t)g->count + 8 * (size_t)g->n[2] + 4096;
}

/* Division by the frequency f as multiplication by 2^44 / f rounded up, for x < f 2^20. */
typedef struct { uint64_t inverse; uint32_t freq, start; } token_code;

static inline __attribute__((always_inline)) uint16_t *push_token(uint32_t *x, const token_code *code,
                                                                  uint16_t *w) {
    const uint32_t f = code->freq, full = *x >> (32 - SCALE) >= f;
    w[-1] = (uint16_t)*x;
    const uint32_t s = full ? *x >> 16 : *x, q = (uint32_t)(s * code->inverse >> 44);
    *x = s + code->start + q * (TOTAL - f);  /* (q << SCALE) + (s - q f) + start */
    return w - full;
}
/* GCC would put the eight states into vectors and take them out again one by one. */
#if defined(__GNUC__) && !defined(__clang__)
#define IN_REGISTERS __attribute__((optimize("no-tree-slp-vectorize")))
#else
#define IN_REGISTERS
#endif

/* Code tokens from the last to the first; return the first of the words, which end at `w`. */
IN_REGISTERS static uint16_t *push_tokens(uint32_t *states, const token_code *code, const uint16_t *index,
                             int64_t count, uint16_t *w) {
    uint32_t x[STATES];
    int64_t i = count;
    for (; i % STATES; i--) w = push_token(&states[(i - 1) % STATES], &code[index[i - 1]], w);
    memcpy(x, states, sizeof x);
    for (; i; i -= STATES)
#pragma GCC unroll 8
        for (int j = STATES - 1; j >= 0; j--)
            w = push_token(&x[j], &code[index[i - STATES + j]], w);
    memcpy(states, x, sizeof x);
    return w;
}

/* Code the integers of a block; return the bytes written or a SCK_ code. */
static int64_t encode_tables(const grid *g, int32_t *q, uint8_t *out, int64_t cap, workspace memory) {
    const int64_t count = g->count;
    planes p = {.memory = take(&memory, planes_bytes(g))};
    counting *const c = take(&memory, sizeof *c);
    uint16_t *const index = take(&memory, sizeof *index * (size_t)count);
    uint16_t *const words = take(&memory, sizeof *words * (size_t)(count + 1)), *w = words + count + 1;
    uint8_t *const raw = take(&memory, (size_t)(4 * count + 16));
    uint8_t *const busy = take(&memory, (size_t)g->n[2]), *const token = take(&memory, (size_t)g->n[2]);
    uint16_t freq[BUSY][TOKENS];
    token_code code[BUSY * TOKENS];
    uint32_t x[STATES];
    if (!token || !busy || !raw) return SCK_MEMORY;
    memset(c, 0, sizeof *c);
    c->busy = busy;
    c->token = token;
    c->index = index;
    c->raw.at = raw;
    each_row(g, &p, q, count_row, c);
    give_bits(&c->raw, 0, 7);
    for (int i = 0; i < BUSY * TOKENS; i++) c->count[0][i] += c->count[1][i];
    for (int k = 0; k < BUSY; k++) {
        uint32_t sum = 0;
        normalise(c->count[0] + k * TOKENS, freq[k]);
        for (int t = 0; t < TOKENS; t++) {
            const uint32_t f = freq[k][t];
            code[k * TOKENS + t] = (token_code){f ? ((1ull << 44) + f - 1) / f : 0, f, sum};
            sum += f;
        }
    }
    for (int i = 0; i < STATES; i++) x[i] = 1u << 16;
    w = push_tokens(x, code, index, count, w);
    writer h = {out, out + cap, 0};
    const int64_t num_raw = c->raw.at - raw, num = 2 * (words + count + 1 - w);
    write_frequencies(&h, freq);
    write_varint(&h, (uint64_t)num_raw);
    if (h.bad || h.end - h.at < num_raw + num + 4 * STATES) return SCK_SPACE;
    memcpy(h.at, raw, (size_t)num_raw);
    h.at += num_raw;
    for (int i = 0; i < STATES; i++) write_word(&h, x[i], 4);
    for (; w < words + count + 1; w++) write_word(&h, *w, 2);
    return h.at - out;
}

/* `expected`: the decoded integers are compared with those of the block, which stay as they are. */
typedef struct {
    uint32_t *entries, x[STATES];  /* by level and slot: frequency, token (7 bits), position in it (12) */
    const uint8_t *at, *end;
    uint8_t *busy, *token;
    int32_t *row;
    bit_reader raw;
    uint32_t phase;
    int expected;
} decoding;

static inline __attribute__((always_inline)) const uint8_t *pop_token(
    uint32_t *x, const uint32_t *entries, uint32_t busy, const uint8_t *at, uint8_t *token) {
    const uint32_t e = entries[busy << SCALE | (*x & (TOTAL - 1))];
    const uint32_t s = (e >> 19) * (*x >> SCALE) + (e & (TOTAL - 1));
    uint16_t word;
    memcpy(&word, at, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap16(word);
#endif
    /* Without a branch: half of the branches would be mispredicted. */
    const uint32_t need = s < 1u << 16;
    *x = s << 16 * need | (word & (0u - need));
    *token = (uint8_t)(e >> 12);
    return at + 2 * need;
}
/* Decode the tokens of a row; return whether the words suffice. */
IN_REGISTERS static int pop_tokens(decoding *d, int64_t n) {
    const uint8_t *at = d->at, *const busy = d->busy;
    uint8_t *const token = d->token;
    const uint32_t *const entries = d->entries;
    uint32_t phase = d->phase;
    int64_t i = 0;
    if (d->end - at < 2 * n) {
        for (uint8_t last[2]; i < n; i++, phase++) {
            const int64_t left = d->end - at;
            last[0] = last[1] = 0;
            if (left > 0) memcpy(last, at, left < 2 ? 1 : 2);
            at += pop_token(&d->x[phase % STATES], entries, busy[i], last, token + i) - last;
        }
        d->at = at;
        d->phase = phase;
        return at <= d->end;
    }
    for (; i < n && phase % STATES; i++, phase++)
        at = pop_token(&d->x[phase % STATES], entries, busy[i], at, token + i);
    if (n - i >= STATES) {
        uint32_t x[STATES];
        memcpy(x, d->x, sizeof x);
        for (; n - i >= STATES; i += STATES, phase += STATES)
#pragma GCC unroll 8
            for (int j = 0; j < STATES; j++)
                at = pop_token(&x[j], entries, busy[i + j], at, token + i + j);
        memcpy(d->x, x, sizeof x);
    }
    for (; i < n; i++, phase++)
        at = pop_token(&d->x[phase % STATES], entries, busy[i], at, token + i);
    d->at = at;
    d->phase = phase;
    return 1;
}
static int decode_row(void *with, planes *p, int64_t y, int32_t *q) {
    decoding *d = with;
    const int64_t n = p->mx;
    uint8_t *restrict const token = d->token;
    uint8_t *restrict const magnitude = magnitudes_of(p, y);
    int32_t *restrict const row = d->expected ? d->row : q;
    busy_row(p, y, d->busy);
    if (!pop_tokens(d, n)) return 0;
    for (int64_t x = 0; x < n; x++) {
        token[x] &= 127;  /* the bit above is one of the frequency */
        row[x] = unzigzag(token[x]);
        magnitude[x] = (uint8_t)((token[x] + 1) / 2);
    }
    memset(token + n, 0, 8);
    for (int64_t x = next_large(token, 0, n); x < n; x = next_large(token, x + 1, n)) {
        if (token[x] >= TOKENS) return 0;
        const int bits = raw_bits(token[x]);
        const uint32_t top = (uint32_t)(2 + ((token[x] - DIRECT) & 1)) << bits;
        const uint32_t u = (top | take_bits(&d->raw, bits)) + 8;
        row[x] = unzigzag(u);
        magnitude[x] = (uint8_t)((u < 509 ? u + 1 : 510) / 2);
    }
    return !d->raw.bad && !(d->expected && memcmp(row, q, sizeof *q * (size_t)n));
}

/* Decode the integers of a block, or compare them with q if they are `expected` to be q; return 0 or a
 * SCK_ code. Any input bytes are safe. */
static int64_t decode_tables(const grid *g, const uint8_t *data, int64_t size, int32_t *q,
                             workspace memory, int expected) {
    reader r = {data, data + size, 0};
    planes p = {.memory = take(&memory, planes_bytes(g))};
    decoding d = {.expected = expected};
    uint16_t freq[BUSY][TOKENS];
    read_frequencies(&r, freq);
    const uint64_t raw = read_varint(&r);
    if (r.bad || raw > (uint64_t)(r.end - r.at)) return SCK_DAMAGED;
    d.raw = (bit_reader){0, 0, r.at, r.at + raw, 0};
    r.at += raw;
    for (int i = 0; i < STATES; i++) d.x[i] = (uint32_t)read_word(&r, 4);
    if (r.bad) return SCK_DAMAGED;
    d.at = r.at;
    d.end = r.end;
    d.entries = take(&memory, sizeof *d.entries * BUSY * TOTAL);
    d.busy = take(&memory, (size_t)g->n[2]);
    d.token = take(&memory, (size_t)g->n[2]);
    d.row = take(&memory, sizeof *d.row * (size_t)g->n[2]);
    if (!d.row) return SCK_MEMORY;
    for (int k = 0; k < BUSY; k++) {
        uint32_t *e = d.entries + (k << SCALE);
        int any = 0;
        for (uint32_t t = 0; t < TOKENS; t++)
            for (uint32_t i = 0; i < freq[k][t]; i++, any = 1)
                *e++ = (uint32_t)freq[k][t] << 19 | t << 12 | i;
        /* Unused levels have no table; a damaged stream that selects one is rejected. */
        for (int i = 0; !any && i < TOTAL; i++) *e++ = (uint32_t)TOKENS << 12;
    }
    return each_row(g, &p, q, decode_row, &d) ? 0 : SCK_DAMAGED;
}
