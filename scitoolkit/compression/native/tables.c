/* Table-based entropy coder: rANS (Duda 2013, arXiv:1311.2540) with one table for each of a few
 * levels of the magnitudes around a point. Contexts are computed from earlier rows only, so that all
 * contexts of a row are known before its first integer is decoded and the interleaved states are
 * independent. See docs/format/blocks.md.
 */
enum { STATES = 8, SCALE = 12, TOTAL = 1 << SCALE, DIRECT = 24, TOKENS = 80, BUSY = 24 };
enum { MOST_AROUND = 2550 };
static uint8_t busy_of[MOST_AROUND + 1];
__attribute__((constructor)) static void make_busy(void) {
    for (int v = 0; v <= MOST_AROUND; v++) busy_of[v] = (uint8_t)log_bin((uint32_t)v);
}

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
typedef struct { int64_t mx, my, pitch; uint8_t *now, *before, *memory; uint16_t *around; } planes;

static int make_planes(planes *p, int64_t mx, int64_t my) {
    p->pitch = mx + 2;
    p->memory = malloc((size_t)(2 * p->pitch * (my + 2) + 64));
    p->around = malloc(sizeof *p->around * (size_t)(mx + 64));
    return p->memory && p->around;
}
static void free_planes(planes *p) { free(p->memory); free(p->around); }
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
    const uint8_t *const n = p->now + y * p->pitch + 1, *const u = p->before + (y + 1) * p->pitch + 1;
    const uint8_t *const un = u - p->pitch, *const us = u + p->pitch;
    uint16_t *const around = p->around;
    for (int64_t x = 0; x < p->mx; x++)
        around[x] = (uint16_t)(2 * (n[x] + u[x]) + n[x - 1] + n[x + 1] + u[x - 1] + u[x + 1]
                               + un[x] + us[x]);
    for (int64_t x = 0; x < p->mx; x++) busy[x] = busy_of[around[x]];
}
static uint8_t *magnitudes_of(const planes *p, int64_t y) { return p->now + (y + 1) * p->pitch + 1; }
static void note_row(uint8_t *restrict to, const int32_t *restrict q, int64_t n) {
    for (int64_t x = 0; x < n; x++) {
        const uint32_t m = q[x] < 0 ? 0u - (uint32_t)q[x] : (uint32_t)q[x];
        to[x] = (uint8_t)(m < 255 ? m : 255);
    }
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

typedef struct { uint8_t *busy, *token; uint32_t count[BUSY][TOKENS]; bit_writer raw; } counting;
static int count_row(void *with, planes *p, int64_t y, int32_t *q) {
    counting *c = with;
    busy_row(p, y, c->busy);
    note_row(magnitudes_of(p, y), q, p->mx);
    for (int64_t x = 0; x < p->mx; x++) {
        const uint32_t u = zigzag(q[x]);
        const uint8_t t = token_of(u);
        c->token[x] = t;
        c->count[c->busy[x]][t]++;
        if (t >= DIRECT) give_bits(&c->raw, (u - 8) & ((1u << raw_bits(t)) - 1), raw_bits(t));
    }
    c->busy += p->mx;
    c->token += p->mx;
    return 1;
}

/* Upper limit of the coded size of the integers of `count` points. */
static int64_t tables_capacity(int64_t count) { return BUSY * TOKENS * 2 + 256 + 8 * count; }

/* Code the integers of a block; return the bytes written or a SCK_ code. */
static int64_t encode_tables(const grid *g, int32_t *q, uint8_t *out, int64_t cap) {
    const int64_t count = g->count;
    planes p = {0};
    counting *c = calloc(1, sizeof *c);
    uint8_t *const busy = malloc((size_t)count), *const token = malloc((size_t)count);
    uint8_t *const raw = malloc((size_t)(4 * count + 16));
    uint16_t *const words = malloc(sizeof *words * (size_t)(count + 1)), *w = words + count + 1;
    uint16_t freq[BUSY][TOKENS];
    int64_t used = SCK_MEMORY;
    if (make_planes(&p, g->n[2], g->n[1]) && c && busy && token && raw && words) {
        c->busy = busy;
        c->token = token;
        c->raw.at = raw;
        each_row(g, &p, q, count_row, c);
        give_bits(&c->raw, 0, 7);
        /* Division by the frequency f as multiplication by 2^44 / f rounded up, for x < f 2^20. */
        struct { uint64_t inverse; uint32_t freq, start; } code[BUSY][TOKENS];
        uint32_t x[STATES];
        for (int k = 0; k < BUSY; k++) {
            uint32_t sum = 0;
            normalise(c->count[k], freq[k]);
            for (int t = 0; t < TOKENS; t++) {
                const uint32_t f = freq[k][t];
                code[k][t].inverse = f ? ((1ull << 44) + f - 1) / f : 0;
                code[k][t].freq = f;
                code[k][t].start = sum;
                sum += f;
            }
        }
        for (int i = 0; i < STATES; i++) x[i] = 1u << 16;
        for (int64_t i = count; i-- > 0;) {
            const uint32_t f = code[busy[i]][token[i]].freq;
            uint32_t s = x[i % STATES];
            const uint32_t full = s >= (uint64_t)f << (32 - SCALE);
            w[-1] = (uint16_t)s;
            w -= full;
            s >>= 16 * full;
            const uint32_t q = (uint32_t)(s * code[busy[i]][token[i]].inverse >> 44);
            x[i % STATES] = (q << SCALE) + (s - q * f) + code[busy[i]][token[i]].start;
        }
        writer h = {out, out + cap, 0};
        const int64_t num_raw = c->raw.at - raw, num = 2 * (words + count + 1 - w);
        write_frequencies(&h, freq);
        write_varint(&h, (uint64_t)num_raw);
        if (h.bad || h.end - h.at < num_raw + num + 4 * STATES) {
            used = SCK_SPACE;
        } else {
            memcpy(h.at, raw, (size_t)num_raw);
            h.at += num_raw;
            for (int i = 0; i < STATES; i++) write_word(&h, x[i], 4);
            for (; w < words + count + 1; w++) write_word(&h, *w, 2);
            used = h.at - out;
        }
    }
    free_planes(&p);
    free(c); free(busy); free(token); free(raw); free(words);
    return used;
}

typedef struct {
    uint32_t *entries, x[STATES];  /* by level and slot: token, frequency - 1, position in the token */
    const uint8_t *at, *end;
    uint8_t *busy;
    bit_reader raw;
    uint32_t phase;
} decoding;

static inline __attribute__((always_inline)) uint32_t decode_tokens(
    decoding *d, int32_t *q, int64_t n, uint32_t *states, int careful) {
    uint32_t largest = 0, phase = d->phase;
    const uint8_t *at = d->at;
    for (int64_t i = 0; i < n; i++, phase++) {
        uint32_t *const x = &states[phase % STATES];
        const uint32_t e = d->entries[d->busy[i] << SCALE | (*x & (TOTAL - 1))];
        uint32_t s = ((e >> 12 & (TOTAL - 1)) + 1) * (*x >> SCALE) + (e & (TOTAL - 1));
        uint16_t word = 0;
        if (careful) {
            if (s < 1u << 16) {
                if (d->end - at < 2) return TOKENS;
                word = (uint16_t)(at[0] | at[1] << 8);
            }
        } else {
            word = (uint16_t)(at[0] | at[1] << 8);
        }
        const uint32_t need = s < 1u << 16;  /* branchless: half of the branches would be mispredicted */
        s = s << 16 * need | (word & (0u - need));
        at += 2 * need;
        *x = s;
        const uint32_t token = e >> 24;
        q[i] = (int32_t)token;
        largest = largest > token ? largest : token;
    }
    d->phase = phase;
    d->at = at;
    return largest;
}
static int decode_row(void *with, planes *p, int64_t y, int32_t *q) {
    decoding *d = with;
    busy_row(p, y, d->busy);
    const uint32_t largest = d->end - d->at >= 2 * p->mx + 2
        ? decode_tokens(d, q, p->mx, d->x, 0) : decode_tokens(d, q, p->mx, d->x, 1);
    if (largest >= TOKENS) return 0;
    if (largest >= DIRECT)
        for (int64_t x = 0; x < p->mx; x++) {
            if (q[x] < DIRECT) continue;
            const int bits = raw_bits(q[x]);
            const uint32_t top = (uint32_t)(2 + ((q[x] - DIRECT) & 1)) << bits;
            q[x] = (int32_t)((top | take_bits(&d->raw, bits)) + 8);
        }
    for (int64_t x = 0; x < p->mx; x++) q[x] = unzigzag((uint32_t)q[x]);
    note_row(magnitudes_of(p, y), q, p->mx);
    return !d->raw.bad;
}

/* Decode the integers of a block; return 0 or a SCK_ code. Any input bytes are safe. */
static int64_t decode_tables(const grid *g, const uint8_t *data, int64_t size, int32_t *q) {
    reader r = {data, data + size, 0};
    planes p = {0};
    decoding d = {0};
    uint16_t freq[BUSY][TOKENS];
    int64_t status = SCK_DAMAGED;
    read_frequencies(&r, freq);
    const uint64_t raw = read_varint(&r);
    if (r.bad || raw > (uint64_t)(r.end - r.at)) return SCK_DAMAGED;
    d.raw = (bit_reader){0, 0, r.at, r.at + raw, 0};
    r.at += raw;
    for (int i = 0; i < STATES; i++) d.x[i] = (uint32_t)read_word(&r, 4);
    if (r.bad) return SCK_DAMAGED;
    d.at = r.at;
    d.end = r.end;
    d.entries = malloc(sizeof *d.entries * BUSY * TOTAL);
    d.busy = malloc((size_t)g->n[2]);
    if (!make_planes(&p, g->n[2], g->n[1]) || !d.entries || !d.busy) {
        status = SCK_MEMORY;
    } else {
        for (int k = 0; k < BUSY; k++) {
            uint32_t *e = d.entries + (k << SCALE);
            int any = 0;
            for (uint32_t t = 0; t < TOKENS; t++)
                for (uint32_t i = 0; i < freq[k][t]; i++, any = 1)
                    *e++ = t << 24 | (uint32_t)(freq[k][t] - 1) << 12 | i;
            /* Unused levels have no table; a damaged stream that selects one is rejected. */
            for (int i = 0; !any && i < TOTAL; i++) *e++ = (uint32_t)TOKENS << 24;
        }
        if (each_row(g, &p, q, decode_row, &d)) status = 0;
    }
    free_planes(&p);
    free(d.entries);
    free(d.busy);
    return status;
}
