/* Coding of one chunk of an HDF5 or Zarr array: any rank and byte order, special values (NaN, Inf,
 * fill values) restored bit for bit, framed with checksums. See docs/format/chunk.md.
 */
enum { VERBATIM, CODED, CONSTANT, LOSSLESS, POINTWISE, ENHANCED, LATTICE, NUM_KINDS };
/* HDF5 and netCDF read at most 256 parameters of a filter. */
enum { CHUNK_HEAD = 20, MAX_RANK = 32, MAX_FILLS = 8, MOST_WORDS = 256 };
/* The oldest version of the format that has a kind of chunk. */
static const uint8_t VERSION_OF[NUM_KINDS] = {1, 1, 2, 2, 3, 3, 4};
/* Chunks of up to THOROUGH_POINTS choose their method on all of their points, as streams do. */
enum { PROBED = 1 << 13, THOROUGH_POINTS = 1 << 18 };
enum { PARAMETERS = 0x53434b01, EXTENDED = 0x53434b02, FIXED_WORDS = 7 };
enum { IS_DOUBLE = 1, IS_BIG = 2, HAS_FILL = 4 };
/* Items of the tail of extended parameters. */
enum { ITEM_RELATIVE = 1, ITEM_FILLS = 2, ITEM_ENHANCER = 3 };
/* netCDF's default fill value as float32 and float64. */
static const uint32_t FILL_32 = 0x7cf00000u;
static const uint64_t FILL_64 = 0x479e000000000000ull;

typedef struct {
    int size, big, has_fill, num_fills;
    int relative;              /* the bound is a fraction of every value */
    double bound;
    uint64_t fill, fills[MAX_FILLS];
    int64_t shape[3], count;
    int64_t rows;              /* the first extent, before dims are folded */
    const unsigned *enhancer;  /* kind and number of bytes, then the bytes; NULL if there is none */
    size_t enhancer_words;
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

enum { LINEAR = 1, NETWORK = 2 };
/* Return whether the limits between the classes of an enhancer rise, as a search among them takes for
 * granted; NaN does not. Other faults of its bytes are found where they are applied. */
static int limits_rise(const unsigned *words) {
    const unsigned size = words[0] & 0xffffff, classes = size ? words[1] & 255 : 0;
    const unsigned from = words[0] >> 24 == LINEAR ? 4 : 14;
    float last = 0;
    for (unsigned k = 0; k + 1 < classes && from + 4 * (k + 1) <= size; k++) {
        uint32_t bits = 0;
        for (unsigned i = 0; i < 4; i++) {
            const unsigned at = from + 4 * k + i;
            bits |= (words[1 + at / 4] >> (8 * (at % 4)) & 255) << (8 * i);
        }
        const float limit = real_32(bits);
        if (k ? !(limit > last) : limit != limit) return 0;
        last = limit;
    }
    return 1;
}

/* Items {kind << 24 | number of words, words...} of the tail of extended parameters. */
static int read_tail(chunk *c, const unsigned *words, size_t num) {
    c->relative = c->num_fills = 0;
    c->enhancer = NULL;
    c->enhancer_words = 0;
    for (size_t i = 0; i < num;) {
        const unsigned kind = words[i] >> 24, n = words[i] & 0xffffff, *const w = words + i + 1;
        if (n > num - i - 1) return 0;
        if (kind == ITEM_RELATIVE && !n) {
            c->relative = 1;
        } else if (kind == ITEM_FILLS && n % 2 == 0 && n <= 2 * MAX_FILLS) {
            c->num_fills = (int)n / 2;
            for (unsigned k = 0; k < n / 2; k++)
                c->fills[k] = (uint64_t)w[2 * k + 1] << 32 | w[2 * k];
        } else if (kind == ITEM_ENHANCER && n && n == 1 + ((w[0] & 0xffffff) + 3) / 4 &&
                   limits_rise(w)) {
            c->enhancer = w;
            c->enhancer_words = n;
        } else {
            return 0;
        }
        i += 1 + n;
    }
    return !c->relative || (!c->enhancer && c->bound < 1);
}

/* Parameters: {PARAMETERS, flags, bound low, high, fill low, high, rank, extents...}, and a tail if
 * they are EXTENDED. */
static int read_parameters(chunk *c, const unsigned *words, size_t num) {
    const int extended = num && words[0] == EXTENDED;
    if (num < FIXED_WORDS + 1 || num > MOST_WORDS || (words[0] != PARAMETERS && !extended) || words[1] > 7 ||
        words[6] < 1 || words[6] > MAX_RANK) return 0;
    const size_t fixed = FIXED_WORDS + (size_t)words[6];
    if (extended ? num < fixed : num != fixed) return 0;
    const uint64_t bound = (uint64_t)words[3] << 32 | words[2];
    c->size = words[1] & IS_DOUBLE ? 8 : 4;
    c->big = (words[1] & IS_BIG) != 0;
    c->has_fill = (words[1] & HAS_FILL) != 0;
    c->fill = (uint64_t)words[5] << 32 | words[4];
    memcpy(&c->bound, &bound, 8);
    c->rows = words[FIXED_WORDS];
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
    return c->bound >= 0 && c->bound <= 1.7976931348623157e308 &&
        read_tail(c, words + fixed, num - fixed);
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
    const uint64_t sign = 1ull << (8 * c->size - 1), tiny = c->size == 4 ? 1ull << 23 : 1ull << 52;
    if (c->has_fill && (raw == c->fill || !((raw | c->fill) & ~sign))) return 1;  /* -0 equals 0 */
    for (int i = 0; i < c->num_fills; i++)
        if (raw == c->fills[i] || !((raw | c->fills[i]) & ~sign)) return 1;
    if (c->relative && (raw & ~sign) < tiny) return 1;  /* no relative error of zero and subnormals */
    if (c->size == 4) return raw == FILL_32 || (raw & 0x7f800000u) == 0x7f800000u;
    return raw == FILL_64 || (raw & 0x7ff0000000000000ull) == 0x7ff0000000000000ull;
}

/* ---- positions and bits of special values ---- */
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

/* Flag and section of the special points. */
static void write_specials(writer *to, const chunk *c, const work *w) {
    write_byte(to, w->specials > 0);
    if (!w->specials) return;
    const int64_t room = c->count * 9 + 64;
    uint8_t *buf = malloc((size_t)room);
    const int64_t used = buf ? code_specials(c, w->mask, w->raw, buf, room, 0) : SCK_MEMORY;
    if (used >= 0) write_varint(to, (uint64_t)used);
    if (used < 0 || to->bad || used > to->end - to->at) {
        to->bad = 1;
    } else {
        memcpy(to->at, buf, (size_t)used);
        to->at += used;
    }
    free(buf);
}
static void read_specials(reader *r, const chunk *c, work *w) {
    const int special = read_byte(r);
    if (special > 1) r->bad = 1;
    if (r->bad || !special) return;
    const uint64_t used = read_varint(r);
    if (r->bad || used > (uint64_t)(r->end - r->at) ||
        code_specials(c, w->mask, w->raw, (uint8_t *)r->at, (int64_t)used, 1) < 0) {
        r->bad = 1;
        return;
    }
    r->at += used;
    w->specials = 1;
}

/* Interpolation payload of the values within a bound. */
static int64_t encode_payload(const chunk *c, work *w, double bound, uint8_t *out, int64_t cap) {
    const uint8_t *mask = w->specials ? w->mask : NULL;
    const int64_t effort = c->count <= THOROUGH_POINTS ? THOROUGH : 0;
    return c->size == 4
        ? sck_encode_32(c->shape, w->values, mask, bound, effort, out, cap, w->decoded, NULL)
        : sck_encode_64(c->shape, w->values, mask, bound, effort, out, cap, w->decoded, NULL);
}
static int64_t decode_payload(const chunk *c, work *w, double bound, reader *r) {
    const uint8_t *mask = w->specials ? w->mask : NULL;
    return c->size == 4 ? sck_decode_32(c->shape, mask, bound, r->at, r->end - r->at, w->decoded)
                        : sck_decode_64(c->shape, mask, bound, r->at, r->end - r->at, w->decoded);
}
static int64_t encode_coded(const chunk *c, work *w, double bound, uint8_t *out, int64_t cap) {
    writer head = {out, out + cap, 0};
    write_specials(&head, c, w);
    if (head.bad) return SCK_SPACE;
    const int64_t used = encode_payload(c, w, bound, head.at, head.end - head.at);
    return used < 0 ? used : head.at - out + used;
}
static int64_t decode_coded(const chunk *c, work *w, double bound, const uint8_t *data, int64_t size) {
    reader r = {data, data + size, 0};
    read_specials(&r, c, w);
    return r.bad ? SCK_DAMAGED : decode_payload(c, w, bound, &r);
}

static double decoded_at(const chunk *c, const work *w, int64_t i) {
    return c->size == 4 ? (double)((float *)w->decoded)[i] : ((double *)w->decoded)[i];
}
static double value_at(const chunk *c, const work *w, int64_t i) {
    return c->size == 4 ? (double)((float *)w->values)[i] : ((double *)w->values)[i];
}

/* ---- chunks that are written in parts ----
 * HDF5 and Zarr decode a chunk, replace some rows and code it again. Values that are coded within the
 * bound each time drift from what was written by a bound each time. Values that are first rounded to
 * the multiples of a spacing, and then coded without loss, are the same after every further round. */
static double spacing(const chunk *c) { return 2 * c->bound * (1 - 0x1p-12); }
/* A value as its type has it. */
static double typed(const chunk *c, double v) { return c->size == 4 ? (double)(float)v : v; }
static double on_lattice(const chunk *c, double v) {
    return typed(c, rint(v / spacing(c)) * spacing(c));
}
static double number_of(const chunk *c, uint64_t raw) {
    return c->size == 4 ? (double)real_32(raw) : real_64(raw);
}
static uint64_t raw_of(const chunk *c, double v) {
    return c->size == 4 ? bits_32((float)v) : bits_64(v);
}
/* Number of last bits of the mantissa that rounding within a relative bound sets to 0. */
static int spare_bits(const chunk *c) {
    int n = 0;
    const int digits = c->size == 4 ? 23 : 52;
    while (n < digits && ldexp(1, n - digits) <= c->bound * (1 - 1e-9)) n++;
    return n;
}
/* Bits of a value rounded within the bound, such that rounding again changes nothing; of one for which
 * there is no such number, its own. */
static uint64_t rounded(const chunk *c, uint64_t raw) {
    const double v = number_of(c, raw);
    uint64_t other;
    if (c->relative) {
        const uint64_t unit = 1ull << spare_bits(c);
        other = (raw + (unit >> 1)) & ~(unit - 1);
    } else {
        other = raw_of(c, on_lattice(c, v));
        if (raw_of(c, on_lattice(c, number_of(c, other))) != other) return raw;
    }
    const double error = fabs(number_of(c, other) - v);
    const double allowed = c->relative ? c->bound * (1 - 1e-12) * fabs(v) : c->bound;
    return error <= allowed && !is_special(c, other) ? other : raw;
}
/* Return n for a value that is a rounded one by chance with probability 2^-n. */
static double evidence(const chunk *c, double v) {
    const double last = fabs(v) * (c->size == 4 ? 0x1p-23 : 0x1p-52);
    if (v == 0) return 0;
    return c->relative ? spare_bits(c) : spacing(c) > last ? log2(spacing(c) / last) : 0;
}
/* Return whether row r (of the first extent) is of one value, as rows not yet written are. Of less than
 * four points that is only told from a fill value or 0 at either end of the chunk. */
static int is_constant(const chunk *c, const uint8_t *in, int64_t r, int64_t length) {
    const uint8_t *const row = in + r * length * c->size;
    const uint64_t first = raw_at(c, row);
    for (int64_t i = 1; i < length; i++) if (raw_at(c, row + i * c->size) != first) return 0;
    return length >= 4 || ((r == 0 || r == c->rows - 1) &&
                           (is_special(c, first) || number_of(c, first) == 0));
}
/* Return whether a chunk is written in parts: some rows, but not all, are of one value, or neighbouring
 * rows are rounded already. By chance that is so in less than 2 % of the chunks, which then take a few
 * bytes more. */
static int in_parts(const chunk *c, const uint8_t *in) {
    const int64_t length = c->count / c->rows, row = length * c->size;
    int64_t constant = 0;
    double proof = 0;
    if (c->rows < 2 || !(c->bound > 0)) return 0;
    for (int64_t r = 0; r < c->rows; r++) constant += is_constant(c, in, r, length);
    if (constant) return constant < c->rows;
    const double enough = 6 + log2((double)c->rows);
    for (int64_t r = 0; r < c->rows && proof < enough; r++)
        for (int64_t i = 0; i < length; i++) {
            const uint64_t raw = raw_at(c, in + r * row + i * c->size);
            if (is_special(c, raw)) continue;
            if (rounded(c, raw) != raw) { proof = 0; break; }
            proof += evidence(c, number_of(c, raw));
        }
    return proof >= enough;
}
/* Rounded values, coded within half a spacing: the decoder rounds again. */
static int64_t round_decoded(const chunk *c, work *w) {
    for (int64_t i = 0; i < c->count; i++) {
        const double v = on_lattice(c, decoded_at(c, w, i));
        if (c->size == 4) ((float *)w->decoded)[i] = (float)v;
        else ((double *)w->decoded)[i] = v;
    }
    return 0;
}
static int64_t encode_lattice(const chunk *c, work *w, uint8_t *out, int64_t cap) {
    const int64_t used = encode_coded(c, w, 0.49 * spacing(c), out, cap);
    if (used >= 0) round_decoded(c, w);
    return used;
}
static int64_t decode_lattice(const chunk *c, work *w, const uint8_t *data, int64_t size) {
    if (c->relative || !(c->bound > 0)) return SCK_DAMAGED;
    const int64_t status = decode_coded(c, w, 0.49 * spacing(c), data, size);
    return status < 0 ? status : round_decoded(c, w);
}

/* ---- fields with an enhancer, coded within a tighter bound to leave room for it ---- */
static double inner_bound(const chunk *c) { return c->bound / 1.5 * (1 - 1e-6); }
static uint32_t enhancer_crc(const chunk *c) {
    uint32_t crc = 0;
    for (size_t i = 0; i < c->enhancer_words; i++) {
        uint8_t bytes[4];
        put_word(bytes, c->enhancer[i]);
        crc = crc_of(crc, bytes, 4);
    }
    return crc;
}
/* Add the enhancer's correction, of at most half the inner bound, to the decoded values. */
static int64_t enhance(const chunk *c, work *w) {
    const int64_t size = c->enhancer[0] & 0xffffff;
    const int kind = (int)(c->enhancer[0] >> 24);
    uint8_t *const bytes = malloc((size_t)(4 * c->enhancer_words));
    void *const out = malloc((size_t)(c->count * c->size));
    int64_t status = SCK_MEMORY;
    if (bytes && out) {
        for (size_t i = 1; i < c->enhancer_words; i++) put_word(bytes + 4 * (i - 1), c->enhancer[i]);
        reader r = {bytes, bytes + size, 0};
        const double clip = 0.5 * inner_bound(c);
        status = kind != LINEAR && kind != NETWORK ? SCK_DAMAGED : c->size == 4
            ? enhance_32(kind == LINEAR, c->shape, &r, c->bound, clip, w->decoded, out)
            : enhance_64(kind == LINEAR, c->shape, &r, c->bound, clip, w->decoded, out);
        if (status >= 0) memcpy(w->decoded, out, (size_t)(c->count * c->size));
    }
    free(bytes);
    free(out);
    return status;
}
/* Sum of the squares of errors in units of the bound; negative if one exceeds the bound. */
static double squares(const chunk *c, const work *w) {
    double sum = 0;
    for (int64_t i = 0; i < c->count; i++) {
        if (w->mask[i]) continue;
        const double error = fabs(decoded_at(c, w, i) - value_at(c, w, i));
        if (!(error <= c->bound)) return -1;
        sum += error / c->bound * (error / c->bound);
    }
    return sum;
}
static int64_t encode_enhanced(const chunk *c, work *w, uint8_t *out, int64_t cap) {
    writer head = {out, out + cap, 0};
    write_word(&head, enhancer_crc(c), 4);
    write_specials(&head, c, w);
    if (head.bad) return SCK_SPACE;
    const int64_t used = encode_payload(c, w, inner_bound(c), head.at, head.end - head.at);
    if (used < 0) return used;
    const int64_t status = enhance(c, w);
    return status < 0 ? status : squares(c, w) < 0 ? SCK_SPACE : head.at - out + used;
}
static int64_t decode_enhanced(const chunk *c, work *w, const uint8_t *data, int64_t size) {
    reader r = {data, data + size, 0};
    if (!c->enhancer || (uint32_t)read_word(&r, 4) != enhancer_crc(c)) return SCK_DAMAGED;
    read_specials(&r, c, w);
    const int64_t status = r.bad ? SCK_DAMAGED : decode_payload(c, w, inner_bound(c), &r);
    return status < 0 ? status : enhance(c, w);
}

/* ---- bounds relative to every value: logarithms within an absolute bound, and signs ----
 * Logarithm and exponential consist of additions, multiplications and divisions in a fixed order,
 * which round alike on all machines; math libraries do not. */
static double log2_of(double x) {
    const uint64_t bits = bits_64(x);
    int e = (int)(bits >> 52 & 2047) - 1023;
    double m = real_64((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
    if (m > 1.4142135623730951) { m *= 0.5; e++; }
    /* ln m = 2 artanh f = 2 (f + f^3 / 3 + ...) with f = (m - 1) / (m + 1), |f| < 0.172 */
    const double f = (m - 1) / (m + 1), s = f * f;
    double sum = 1.0 / 21;
    for (int k = 19; k >= 1; k -= 2) sum = sum * s + 1.0 / k;
    return (double)e + 2 * f * sum * 1.4426950408889634;
}
static double exp2_of(double y) {
    if (!(y > -1022 && y < 1024)) return y > 0 ? INFINITY : 0;
    const double n = rint(y), t = (y - n) * 0.6931471805599453;
    double sum = 1;
    for (int k = 14; k >= 1; k--) sum = sum * t / k + 1;
    return n > 1023 ? sum * 2 * 8.98846567431158e307 : sum * real_64((uint64_t)((int64_t)n + 1023) << 52);
}
/* Bound of the logarithms: what rounding to the type of the values may add is left out. */
static double log_bound(const chunk *c) {
    return log2_of(1 + (c->bound * (1 - 1e-9) - (c->size == 4 ? 0x1p-23 : 0x1p-49)));
}
enum { ALL_POSITIVE, MIXED_SIGNS, ALL_NEGATIVE };
/* Signs of the points that are not special, each with the probability of its neighbours' signs. */
static int64_t code_signs(const chunk *k, const uint8_t *mask, uint8_t *negative, uint8_t *buf,
                          int64_t cap, int decoding) {
    coder c = start_coder(buf, cap, decoding);
    const int64_t row = k->shape[2];
    uint16_t p[8];
    for (int i = 0; i < 8; i++) p[i] = 32768;
    for (int64_t i = 0; i < k->count && c.pos <= cap + 8; i++) {
        const int64_t slab = row * k->shape[1];
        const int ctx = (i ? negative[i - 1] : 0) | (i >= row ? negative[i - row] << 1 : 0)
            | (i >= slab ? negative[i - slab] << 2 : 0);
        if (mask[i]) negative[i] = i ? negative[i - 1] : 0;
        else negative[i] = (uint8_t)code_adaptive(&c, &p[ctx], negative[i]);
    }
    if (decoding) return c.pos > cap + 8 ? SCK_DAMAGED : c.pos;
    const int64_t used = end_coder(&c);
    return used > cap ? SCK_SPACE : used;
}
/* Decoded values from their logarithms. */
static void restore_logs(const chunk *c, work *w, const double *logs, const uint8_t *negative) {
    for (int64_t i = 0; i < c->count; i++) {
        const double magnitude = exp2_of(logs[i]), v = negative[i] ? -magnitude : magnitude;
        if (c->size == 4) ((float *)w->decoded)[i] = (float)v;
        else ((double *)w->decoded)[i] = v;
    }
}
static int64_t encode_relative(const chunk *c, work *w, uint8_t *out, int64_t cap) {
    const double bound = log_bound(c);
    writer head = {out, out + cap, 0};
    double *const logs = malloc(sizeof(double) * (size_t)c->count);
    double *const decoded = malloc(sizeof(double) * (size_t)c->count);
    uint8_t *const negative = malloc((size_t)c->count);
    int64_t used = SCK_MEMORY, minus = 0, plus = 0;
    if (logs && decoded && negative && bound > 0.5 * c->bound) {
        for (int64_t i = 0; i < c->count; i++) {
            const double v = value_at(c, w, i);
            negative[i] = w->mask[i] ? 0 : v < 0;
            minus += negative[i];
            plus += !w->mask[i] && !negative[i];
            logs[i] = w->mask[i] ? (i ? logs[i - 1] : 0) : log2_of(fabs(v));
        }
        write_specials(&head, c, w);
        write_byte(&head, !minus ? ALL_POSITIVE : plus ? MIXED_SIGNS : ALL_NEGATIVE);
        const int64_t room = c->count / 4 + 64;
        uint8_t *const buf = malloc((size_t)room);
        const int64_t size = !buf ? SCK_MEMORY : minus && plus
            ? code_signs(c, w->mask, negative, buf, room, 0) : 0;
        if (size > 0 || (minus && plus)) write_varint(&head, size < 0 ? 0 : (uint64_t)size);
        if (size < 0 || head.bad || size > head.end - head.at) {
            used = SCK_SPACE;
        } else {
            if (size) memcpy(head.at, buf, (size_t)size);
            head.at += size;
            used = sck_encode_64(c->shape, logs, w->specials ? w->mask : NULL, bound,
                                 c->count <= THOROUGH_POINTS ? THOROUGH : 0, head.at,
                                 head.end - head.at, decoded, NULL);
            if (used >= 0) restore_logs(c, w, decoded, negative);
        }
        free(buf);
    } else if (logs && decoded && negative) {
        used = SCK_SPACE;  /* the bound is below the precision of the type */
    }
    free(logs);
    free(decoded);
    free(negative);
    return used < 0 ? used : head.at - out + used;
}
static int64_t decode_relative(const chunk *c, work *w, const uint8_t *data, int64_t size) {
    reader r = {data, data + size, 0};
    read_specials(&r, c, w);
    const int signs = read_byte(&r);
    const uint64_t length = signs == MIXED_SIGNS ? read_varint(&r) : 0;
    if (r.bad || !c->relative || signs > ALL_NEGATIVE || length > (uint64_t)(r.end - r.at))
        return SCK_DAMAGED;
    double *const logs = malloc(sizeof(double) * (size_t)c->count);
    uint8_t *const negative = malloc((size_t)c->count);
    int64_t status = SCK_MEMORY;
    if (logs && negative) {
        memset(negative, signs == ALL_NEGATIVE, (size_t)c->count);
        status = signs == MIXED_SIGNS
            ? code_signs(c, w->mask, negative, (uint8_t *)r.at, (int64_t)length, 1) : 0;
        r.at += length;
        if (status >= 0)
            status = sck_decode_64(c->shape, w->specials ? w->mask : NULL, log_bound(c), r.at,
                                   r.end - r.at, logs);
        if (status >= 0) restore_logs(c, w, logs, negative);
    }
    free(logs);
    free(negative);
    return status;
}

/* ---- chunks of one value besides special ones ---- */
static int64_t encode_constant(const chunk *c, work *w, uint8_t *out, int64_t cap) {
    writer to = {out, out + cap, 0};
    uint64_t value = 0;
    int64_t others = 0;
    for (int64_t i = 0; i < c->count; i++) {
        if (w->mask[i]) continue;
        if (!others++) value = w->raw[i];
        if (w->raw[i] != value) return SCK_SPACE;
    }
    write_specials(&to, c, w);
    write_word(&to, value, c->size);
    return to.bad ? SCK_SPACE : to.at - out;
}
static int64_t decode_constant(const chunk *c, work *w, const uint8_t *data, int64_t size) {
    reader r = {data, data + size, 0};
    read_specials(&r, c, w);
    const uint64_t value = read_word(&r, c->size);
    for (int64_t i = 0; i < c->count; i++) set_value(c, w->decoded, i, value);
    return r.bad || r.at != r.end ? SCK_DAMAGED : 0;
}

/* ---- all bits of all values ---- */
static int64_t encode_lossless(const chunk *c, work *w, const uint8_t *in, uint8_t *out,
                               int64_t cap) {
    for (int64_t i = 0; i < c->count; i++) w->raw[i] = raw_at(c, in + i * c->size);
    return code_lossless(c->shape, c->size, w->raw, out, cap, 0);
}
static int64_t decode_lossless(const chunk *c, work *w, const uint8_t *data, int64_t size) {
    const int64_t used = code_lossless(c->shape, c->size, w->raw, (uint8_t *)data, size, 1);
    memset(w->mask, 1, (size_t)c->count);
    return used;
}

/* Mark points whose decoded value is a special value, outside of a relative bound, or another than the
 * rounded one, as special; return their number. */
static int64_t turned_special(const chunk *c, work *w, int kind) {
    int64_t marked = 0;
    for (int64_t i = 0; i < c->count; i++) {
        const uint64_t raw = c->size == 4 ? bits_32(((float *)w->decoded)[i])
                                          : bits_64(((double *)w->decoded)[i]);
        if (w->mask[i]) continue;
        const double value = c->relative ? value_at(c, w, i) : 0;
        const int outside = c->relative && !(fabs(decoded_at(c, w, i) - value)
                                             <= c->bound * (1 - 1e-12) * fabs(value));
        const int other = kind == LATTICE && decoded_at(c, w, i) != value_at(c, w, i);
        if (outside || other || is_special(c, raw)) { w->mask[i] = 1; marked++; }
    }
    return marked;
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
        memcmp(data, "SciK", 4) || data[5] >= NUM_KINDS || data[4] != VERSION_OF[data[5]] ||
        data[6] || data[7] || word_at(data + 8) != (uint32_t)nbytes ||
        word_at(data + 12) != frame_crc(data, size)) return SCK_DAMAGED;
    int64_t status = 0;
    if (data[5] == VERBATIM) {
        if (size != CHUNK_HEAD + nbytes) return SCK_DAMAGED;
        memcpy(out, data + CHUNK_HEAD, (size_t)nbytes);
    } else {
        const uint8_t *const body = data + CHUNK_HEAD;
        const int64_t left = size - CHUNK_HEAD;
        status = !make_work(&w, &c) ? SCK_MEMORY
            : data[5] == CODED ? decode_coded(&c, &w, c.bound, body, left)
            : data[5] == CONSTANT ? decode_constant(&c, &w, body, left)
            : data[5] == POINTWISE ? decode_relative(&c, &w, body, left)
            : data[5] == ENHANCED ? decode_enhanced(&c, &w, body, left)
            : data[5] == LATTICE ? decode_lattice(&c, &w, body, left)
            : decode_lossless(&c, &w, body, left);
        if (status >= 0) store_chunk(&w, &c, out);
        free_work(&w);
    }
    if (status < 0) return status;
    return crc_of(0, out, nbytes) == word_at(data + 16) ? 0 : SCK_DAMAGED;
}

/* Encode a chunk as `kind`; return the size of the frame's body or a negative SCK_ code. */
static int64_t encode_as(int kind, const chunk *c, work *w, const uint8_t *in, uint8_t *out,
                         int64_t cap) {
    if (kind == LOSSLESS) return encode_lossless(c, w, in, out, cap);
    memset(w->mask, 0, (size_t)c->count);
    for (int round = 0; round < 3; round++) {
        w->specials = 0;
        load_chunk(w, c, in);
        const int64_t used = kind == CONSTANT ? encode_constant(c, w, out, cap)
            : kind == POINTWISE ? encode_relative(c, w, out, cap)
            : kind == ENHANCED ? encode_enhanced(c, w, out, cap)
            : kind == LATTICE ? encode_lattice(c, w, out, cap) : encode_coded(c, w, c->bound, out, cap);
        if (used < 0 || kind == CONSTANT || !turned_special(c, w, kind)) return used;
    }
    return SCK_SPACE;
}
static void put_head(uint8_t *out, int kind, int64_t nbytes) {
    const uint8_t head[8] = {'S', 'c', 'i', 'K', VERSION_OF[kind], (uint8_t)kind, 0, 0};
    memcpy(out, head, sizeof head);
    put_word(out + 8, (uint32_t)nbytes);
}
/* Complete a frame with the checksums of its values, which are decoded once more. */
static int64_t verified(const chunk *c, work *w, int kind, const unsigned *words, size_t num,
                        const uint8_t *in, int64_t nbytes, uint8_t *out, int64_t used,
                        uint8_t *check) {
    put_head(out, kind, nbytes);
    const int lossy = kind != CONSTANT && kind != LOSSLESS;
    if (lossy) store_chunk(w, c, check);
    put_word(out + 16, crc_of(0, lossy ? check : in, nbytes));
    put_word(out + 12, frame_crc(out, CHUNK_HEAD + used));
    return sck_chunk_decode(words, num, out, CHUNK_HEAD + used, check, nbytes) < 0 ? SCK_SPACE : used;
}

/* Return whether lossless coding may be smaller than `best` bytes, from a part of the chunk. */
static int may_gain(const chunk *c, work *w, const uint8_t *in, int64_t best) {
    const int64_t nbytes = c->count * c->size, part = c->count < PROBED ? c->count : PROBED;
    if (best < 0 || c->count <= PROBED) return best < 0 || best > nbytes / 8;
    if (best <= nbytes / 8) return 0;
    const int64_t shape[3] = {1, 1, part}, from = (c->count - part) / 2, room = part * c->size;
    for (int64_t i = 0; i < part; i++) w->raw[i] = raw_at(c, in + (from + i) * c->size);
    uint8_t *buf = malloc((size_t)room);
    const int64_t used = buf ? code_lossless(shape, c->size, w->raw, buf, room, 0) : SCK_MEMORY;
    free(buf);
    /* The part codes a little worse than the whole, which has more to learn from. */
    return used >= 0 && (double)used / (double)room < 1.25 * (double)best / (double)nbytes;
}

/* Replace a coded chunk by one with the enhancer if its mean square error is smaller than that of
 * the coded chunk would be with as many bytes: a bit per value divides it by four. */
static int64_t enhanced_if_better(const chunk *c, work *w, const unsigned *words, size_t num,
                                  const uint8_t *in, int64_t nbytes, uint8_t *out, int64_t coded,
                                  uint8_t *check) {
    const double before = squares(c, w);
    uint8_t *const other = malloc((size_t)(CHUNK_HEAD + nbytes));
    int64_t used = !other ? SCK_MEMORY
        : encode_as(ENHANCED, c, w, in, other + CHUNK_HEAD, nbytes);
    const double after = used >= 0 ? squares(c, w) : -1;
    const double more = 8.0 * (double)(used - coded) / (double)c->count;
    if (after > 0 && before > 0 && log2(before / after) > 2 * more) {
        used = verified(c, w, ENHANCED, words, num, in, nbytes, other, used, check);
        if (used >= 0) memcpy(out, other, (size_t)(CHUNK_HEAD + (coded = used)));
    }
    free(other);
    return coded;
}

/* Encode a chunk and verify it by decoding; return the bytes written. One value besides special ones
 * is a constant; other values are coded within the bound, and with the enhancer, if there is one, where
 * that is better. Without an enhancer, and where the bound cannot be kept, the chunk is also coded
 * losslessly if `may_gain` does not rule it out, and the smaller is kept. What nothing makes smaller
 * is stored verbatim. Of a chunk that is written in parts, only the rounded values are coded. */
int64_t sck_chunk_encode(const unsigned *words, size_t num, const uint8_t *in, int64_t nbytes,
                         uint8_t *out, int64_t cap) {
    chunk c;
    work w = {0};
    if (!read_parameters(&c, words, num) || nbytes != c.count * c.size) return SCK_DAMAGED;
    if (cap < CHUNK_HEAD + nbytes) return SCK_SPACE;
    uint8_t *check = malloc((size_t)nbytes), *other = NULL, *parts = NULL;
    int64_t best = SCK_MEMORY;
    const int usable = check && make_work(&w, &c);
    int kind = CONSTANT;
    if (usable) best = encode_as(CONSTANT, &c, &w, in, out + CHUNK_HEAD, nbytes);
    const int rounds = usable && best < 0 && in_parts(&c, in);
    if (rounds && (parts = malloc((size_t)nbytes))) {
        for (int64_t i = 0; i < c.count; i++) {
            const uint64_t raw = raw_at(&c, in + i * c.size);
            put_raw(&c, parts + i * c.size, is_special(&c, raw) ? raw : rounded(&c, raw));
        }
        in = parts;
    }
    if (usable && (parts || !rounds)) {
        if (best < 0 && c.bound > 0 && !(rounds && c.relative))
            best = encode_as(kind = rounds ? LATTICE : c.relative ? POINTWISE : CODED, &c, &w, in,
                             out + CHUNK_HEAD, cap - CHUNK_HEAD);
        if (best >= nbytes) best = SCK_SPACE;
        if (best >= 0) best = verified(&c, &w, kind, words, num, in, nbytes, out, best, check);
        if (best >= 0 && kind == CODED && c.enhancer && c.bound >= 0x1p-60 && c.bound <= 0x1p60)
            best = enhanced_if_better(&c, &w, words, num, in, nbytes, out, best, check);
        else if (may_gain(&c, &w, in, best) && (other = malloc((size_t)(CHUNK_HEAD + nbytes)))) {
            const int64_t room = best < 0 ? nbytes : best;
            int64_t used = encode_as(LOSSLESS, &c, &w, in, other + CHUNK_HEAD, room);
            if (used >= 0 && used < room)
                used = verified(&c, &w, LOSSLESS, words, num, in, nbytes, other, used, check);
            if (used >= 0 && used < room) memcpy(out, other, (size_t)(CHUNK_HEAD + (best = used)));
        }
    }
    if (best < 0) {
        best = nbytes;
        put_head(out, VERBATIM, nbytes);
        memcpy(out + CHUNK_HEAD, in, (size_t)nbytes);
        put_word(out + 16, crc_of(0, in, nbytes));
        put_word(out + 12, frame_crc(out, CHUNK_HEAD + best));
    }
    free_work(&w);
    free(check);
    free(other);
    free(parts);
    return CHUNK_HEAD + best;
}
