/* Coding of one chunk of an HDF5 or Zarr array: any rank and byte order, special values (NaN, Inf,
 * fill values) restored bit for bit, framed with checksums. See docs/format/chunk.md.
 */
enum { CHUNK_HEAD = 20, CHUNK_VERSION = 1, VERBATIM = 0, CODED = 1, MAX_RANK = 32 };
enum { PARAMETERS = 0x53434b01, FIXED_WORDS = 7 };
enum { IS_DOUBLE = 1, IS_BIG = 2, HAS_FILL = 4 };
/* netCDF's default fill value as float32 and float64. */
static const uint32_t FILL_32 = 0x7cf00000u;
static const uint64_t FILL_64 = 0x479e000000000000ull;

typedef struct {
    int size, big, has_fill;
    double bound;
    uint64_t fill;
    int64_t shape[3], count;
} chunk;

static uint32_t crc_table[256];
__attribute__((constructor)) static void make_crc_table(void) {
    fill_crc_table(crc_table, 0xedb88320u);
}
static uint32_t crc_of(uint32_t crc, const uint8_t *p, int64_t n) {
    uint32_t c = ~crc;
    while (n-- > 0) c = c >> 8 ^ crc_table[(c ^ *p++) & 255];
    return ~c;
}
static uint32_t word_at(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static void put_word(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (8 * i));
}

/* Parameters: {PARAMETERS, flags, bound low, high, fill low, high, rank, extents...}. */
static int read_parameters(chunk *c, const unsigned *words, size_t num) {
    if (num < FIXED_WORDS + 1 || words[0] != PARAMETERS || words[1] > 7 || words[6] < 1 ||
        words[6] > MAX_RANK || num != FIXED_WORDS + (size_t)words[6]) return 0;
    const uint64_t bound = (uint64_t)words[3] << 32 | words[2];
    c->size = words[1] & IS_DOUBLE ? 8 : 4;
    c->big = (words[1] & IS_BIG) != 0;
    c->has_fill = (words[1] & HAS_FILL) != 0;
    c->fill = (uint64_t)words[5] << 32 | words[4];
    memcpy(&c->bound, &bound, 8);
    int64_t kept[MAX_RANK];
    int num_kept = 0;
    c->count = 1;
    for (unsigned i = 0; i < words[6]; i++) {
        const int64_t n = words[FIXED_WORDS + i];
        if (n < 1 || c->count > ((int64_t)1 << 31) / n) return 0;
        c->count *= n;
        if (n > 1) kept[num_kept++] = n;
    }
    for (int d = 0; d < 3; d++) c->shape[d] = 1;
    for (int i = 0; i < num_kept; i++) {
        const int d = 3 - num_kept + i;
        c->shape[d < 0 ? 0 : d] *= kept[i];
    }
    return c->bound > 0 && c->bound <= 1.7976931348623157e308;
}

static uint64_t raw_at(const chunk *c, const uint8_t *p) {
    uint64_t v = 0;
    for (int i = 0; i < c->size; i++)
        v |= (uint64_t)p[c->big ? c->size - 1 - i : i] << (8 * i);
    return v;
}
static void put_raw(const chunk *c, uint8_t *p, uint64_t v) {
    for (int i = 0; i < c->size; i++)
        p[c->big ? c->size - 1 - i : i] = (uint8_t)(v >> (8 * i));
}
static int is_special(const chunk *c, uint64_t raw) {
    if (c->has_fill && raw == c->fill) return 1;
    if (c->size == 4) return raw == FILL_32 || (raw & 0x7f800000u) == 0x7f800000u;
    return raw == FILL_64 || (raw & 0x7ff0000000000000ull) == 0x7ff0000000000000ull;
}

/* ---- positions and bits of special values ---- */
static int code_adaptive(coder *c, uint16_t *p, int bit) {
    bit = code_bit(c, bit, *p);
    *p = (uint16_t)(bit ? *p + ((65535 - *p) >> 5) : *p - ((*p - 1) >> 5));
    return bit;
}
static int64_t code_specials(const chunk *k, uint8_t *mask, uint64_t *raw, uint8_t *buf,
                             int64_t cap, int decoding) {
    coder c = start_coder(buf, cap, decoding);
    const int64_t row = k->shape[2], slab = row * k->shape[1];
    uint16_t p[64], same = 32768;
    uint64_t last = k->has_fill ? k->fill : k->size == 4 ? FILL_32 : FILL_64;
    for (int i = 0; i < 64; i++) p[i] = 32768;
    for (int64_t i = 0; i < k->count && c.pos <= cap + 8; i++) {
        const int64_t x = i % row, y = i / row % k->shape[1], z = i / slab;
        int ctx = 0;
        if (x) ctx |= mask[i - 1];
        if (y) ctx |= mask[i - row] << 1;
        if (z) ctx |= mask[i - slab] << 2;
        if (x && y) ctx |= mask[i - row - 1] << 3;
        if (y && x + 1 < row) ctx |= mask[i - row + 1] << 4;
        if (x > 1) ctx |= mask[i - 2] << 5;
        mask[i] = (uint8_t)code_adaptive(&c, &p[ctx], mask[i]);
        if (!mask[i]) continue;
        if (!code_adaptive(&c, &same, raw[i] == last)) {
            uint64_t v = 0;
            for (int b = 8 * k->size - 1; b >= 0; b--)
                v = v << 1 | (uint64_t)code_bit(&c, (int)(raw[i] >> b & 1), 32768);
            last = v;
        }
        raw[i] = last;
    }
    if (decoding) return c.pos > cap + 8 ? SCK_DAMAGED : c.pos;
    const int64_t used = end_coder(&c);
    return used > cap ? SCK_SPACE : used;
}

/* ---- values of a chunk in native byte order ---- */
typedef struct { void *values, *decoded; uint64_t *raw; uint8_t *mask; int64_t specials; } work;

static int make_work(work *w, const chunk *c) {
    w->values = malloc((size_t)(c->count * c->size));
    w->decoded = malloc((size_t)(c->count * c->size));
    w->raw = calloc((size_t)c->count, 8);
    w->mask = calloc((size_t)c->count, 1);
    w->specials = 0;
    return w->values && w->decoded && w->raw && w->mask;
}
static void free_work(work *w) { free(w->values); free(w->decoded); free(w->raw); free(w->mask); }

static void set_value(const chunk *c, void *to, int64_t i, uint64_t raw) {
    if (c->size == 4) ((float *)to)[i] = real_32(raw);
    else ((double *)to)[i] = real_64(raw);
}
/* Read a chunk; special points are filled with the last value before them, which codes cheaply. */
static void load_chunk(work *w, const chunk *c, const uint8_t *in) {
    uint64_t last = 0;
    for (int64_t i = 0; i < c->count; i++) {
        w->raw[i] = raw_at(c, in + i * c->size);
        if (!w->mask[i]) w->mask[i] = (uint8_t)is_special(c, w->raw[i]);
        w->specials += w->mask[i];
        if (!w->mask[i]) last = w->raw[i];
        set_value(c, w->values, i, last);
    }
}
static void store_chunk(const work *w, const chunk *c, uint8_t *out) {
    for (int64_t i = 0; i < c->count; i++) {
        const uint64_t raw = w->mask[i] ? w->raw[i] : c->size == 4
            ? bits_32(((float *)w->decoded)[i]) : bits_64(((double *)w->decoded)[i]);
        put_raw(c, out + i * c->size, raw);
    }
}

static int64_t encode_coded(const chunk *c, work *w, uint8_t *out, int64_t cap) {
    writer head = {out, out + cap, 0};
    uint8_t *buf = NULL;
    write_byte(&head, w->specials > 0);
    if (w->specials) {
        const int64_t room = c->count * 9 + 64;
        if (!(buf = malloc((size_t)room))) return SCK_MEMORY;
        const int64_t used = code_specials(c, w->mask, w->raw, buf, room, 0);
        if (used >= 0) write_varint(&head, (uint64_t)used);
        if (used < 0 || head.bad || used > head.end - head.at) { free(buf); return SCK_SPACE; }
        memcpy(head.at, buf, (size_t)used);
        head.at += used;
        free(buf);
    }
    const uint8_t *mask = w->specials ? w->mask : NULL;
    if (head.bad) return SCK_SPACE;
    const int64_t used = c->size == 4
        ? sck_encode_32(c->shape, w->values, mask, c->bound, 0, head.at, head.end - head.at,
                        w->decoded, NULL)
        : sck_encode_64(c->shape, w->values, mask, c->bound, 0, head.at, head.end - head.at,
                        w->decoded, NULL);
    return used < 0 ? used : head.at - out + used;
}
static int64_t decode_coded(const chunk *c, work *w, const uint8_t *data, int64_t size) {
    reader r = {data, data + size, 0};
    const int special = read_byte(&r);
    if (special > 1) return SCK_DAMAGED;
    if (special) {
        const uint64_t used = read_varint(&r);
        if (r.bad || used > (uint64_t)(r.end - r.at)) return SCK_DAMAGED;
        if (code_specials(c, w->mask, w->raw, (uint8_t *)r.at, (int64_t)used, 1) < 0)
            return SCK_DAMAGED;
        r.at += used;
    }
    if (r.bad) return SCK_DAMAGED;
    const uint8_t *mask = special ? w->mask : NULL;
    return c->size == 4 ? sck_decode_32(c->shape, mask, c->bound, r.at, r.end - r.at, w->decoded)
                        : sck_decode_64(c->shape, mask, c->bound, r.at, r.end - r.at, w->decoded);
}

/* Mark points whose decoded value is a special value as special; return their number. */
static int64_t turned_special(const chunk *c, work *w) {
    int64_t found = 0;
    for (int64_t i = 0; i < c->count; i++) {
        const uint64_t raw = c->size == 4 ? bits_32(((float *)w->decoded)[i])
                                          : bits_64(((double *)w->decoded)[i]);
        if (!w->mask[i] && is_special(c, raw)) { w->mask[i] = 1; found++; }
    }
    return found;
}

static uint32_t frame_crc(const uint8_t *out, int64_t size) {
    return crc_of(crc_of(0, out, 12), out + 16, size - 16);
}

int64_t sck_chunk_capacity(int64_t nbytes) { return (1 << 15) + 5 * nbytes; }

/* Decode a framed chunk into `out`, whose size is given by the parameters; return 0 or a SCK_ code. */
int64_t sck_chunk_decode(const unsigned *words, size_t num, const uint8_t *data, int64_t size,
                         uint8_t *out, int64_t nbytes) {
    chunk c;
    work w = {0};
    if (!read_parameters(&c, words, num) || nbytes != c.count * c.size || size < CHUNK_HEAD ||
        memcmp(data, "SciK", 4) || data[4] != CHUNK_VERSION || data[5] > CODED ||
        data[6] || data[7] || word_at(data + 8) != (uint32_t)nbytes ||
        word_at(data + 12) != frame_crc(data, size)) return SCK_DAMAGED;
    int64_t status = 0;
    if (data[5] == VERBATIM) {
        if (size != CHUNK_HEAD + nbytes) return SCK_DAMAGED;
        memcpy(out, data + CHUNK_HEAD, (size_t)nbytes);
    } else {
        status = make_work(&w, &c) ? decode_coded(&c, &w, data + CHUNK_HEAD, size - CHUNK_HEAD)
                                   : SCK_MEMORY;
        if (status >= 0) store_chunk(&w, &c, out);
        free_work(&w);
    }
    if (status < 0) return status;
    return crc_of(0, out, nbytes) == word_at(data + 16) ? 0 : SCK_DAMAGED;
}

/* Encode a chunk and verify it by decoding, or store it verbatim if that is smaller; return the
 * bytes written. */
int64_t sck_chunk_encode(const unsigned *words, size_t num, const uint8_t *in, int64_t nbytes,
                         uint8_t *out, int64_t cap) {
    chunk c;
    work w = {0};
    if (!read_parameters(&c, words, num) || nbytes != c.count * c.size) return SCK_DAMAGED;
    if (cap < CHUNK_HEAD + nbytes) return SCK_SPACE;
    int64_t used = SCK_MEMORY;
    const uint8_t head[8] = {'S', 'c', 'i', 'K', CHUNK_VERSION, CODED, 0, 0};
    memcpy(out, head, sizeof head);
    put_word(out + 8, (uint32_t)nbytes);
    uint8_t *check = malloc((size_t)nbytes);
    if (check && make_work(&w, &c))
        for (int round = 0; round < 3; round++) {
            w.specials = 0;
            load_chunk(&w, &c, in);
            used = encode_coded(&c, &w, out + CHUNK_HEAD, cap - CHUNK_HEAD);
            if (used < 0 || !turned_special(&c, &w)) break;
            used = SCK_SPACE;
        }
    if (used >= 0 && used < nbytes) {
        store_chunk(&w, &c, check);
        put_word(out + 16, crc_of(0, check, nbytes));
        put_word(out + 12, frame_crc(out, CHUNK_HEAD + used));
        if (sck_chunk_decode(words, num, out, CHUNK_HEAD + used, check, nbytes) < 0) used = SCK_SPACE;
    }
    free_work(&w);
    free(check);
    if (used < 0 || used >= nbytes) {
        used = nbytes;
        out[5] = VERBATIM;
        memcpy(out + CHUNK_HEAD, in, (size_t)nbytes);
        put_word(out + 16, crc_of(0, in, nbytes));
        put_word(out + 12, frame_crc(out, CHUNK_HEAD + used));
    }
    return CHUNK_HEAD + used;
}
