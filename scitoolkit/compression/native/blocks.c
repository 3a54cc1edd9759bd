/* Coding of one block of a field; blocks are independent, so that they can be coded in parallel and
 * decoded separately. Weights and other settings are shared by all blocks of a field. See
 * docs/format/blocks.md. Included twice, like predict.c.
 */
enum { NAME(UNUSED) = 1 << CROSS | 1 << LONG_CROSS | 1 << TWICE };

/* Grid of a block, whose rows have the points of even x first. */
static grid NAME(block_grid)(const int64_t *shape) {
    grid g = grid_of(shape);
    g.half = (g.n[2] + 1) / 2;
    return g;
}
static void NAME(split_row)(REAL *restrict to, const REAL *restrict from, int64_t n) {
    REAL *restrict odd = to + (n + 1) / 2;
    for (int64_t i = 0; i < n / 2; i++) { to[i] = from[2 * i]; odd[i] = from[2 * i + 1]; }
    if (n & 1) to[n / 2] = from[n - 1];
}
static void NAME(join_row)(REAL *restrict to, const REAL *restrict from, int64_t n) {
    const REAL *restrict odd = from + (n + 1) / 2;
    for (int64_t i = 0; i < n / 2; i++) { to[2 * i] = from[i]; to[2 * i + 1] = odd[i]; }
    if (n & 1) to[n - 1] = from[n / 2];
}
/* `stride`: distances between planes and between rows of the field that contains the block. */
static void NAME(gather)(REAL *to, const grid *g, const REAL *from, const int64_t *stride) {
    for (int64_t z = 0; z < g->n[0]; z++)
        for (int64_t y = 0; y < g->n[1]; y++, to += g->n[2])
            NAME(split_row)(to, from + z * stride[0] + y * stride[1], g->n[2]);
}
/* Return the checksum of the values in little-endian order. `to` may be NULL. */
static uint32_t NAME(scatter)(REAL *to, const grid *g, const REAL *from, const int64_t *stride,
                              REAL *row) {
    uint32_t crc = 0;
    for (int64_t z = 0; z < g->n[0]; z++)
        for (int64_t y = 0; y < g->n[1]; y++, from += g->n[2]) {
            NAME(join_row)(row, from, g->n[2]);
            if (to) memcpy(to + z * stride[0] + y * stride[1], row, sizeof *row * (size_t)g->n[2]);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
            for (int64_t x = 0; x < g->n[2]; x++) {
                uint8_t little[sizeof(REAL)];
                const uint64_t word = NAME(bits)(row[x]);
                for (size_t i = 0; i < sizeof(REAL); i++) little[i] = (uint8_t)(word >> 8 * i);
                crc = crc32c(crc, little, sizeof little);
            }
#else
            crc = crc32c(crc, row, (int64_t)sizeof *row * g->n[2]);
#endif
        }
    return crc;
}

#ifndef SCK_SETTINGS
#define SCK_SETTINGS
typedef struct { int pair, margin, axes; shared_weights weights; } settings;

static void write_settings(writer *w, const settings *set) {
    const grid g = {.axes = set->axes};
    write_byte(w, set->pair);
    write_byte(w, set->margin);
    write_byte(w, set->axes);
    for (int level = 0; level < SHARED_LEVELS; level++)
        for (int o = 1; o < 8; o++) {
            stencil st;
            make_stencil(&st, &g, ORDER[o]);
            memcpy(st.weight, set->weights.weight[level][ORDER[o]], sizeof st.weight);
            write_weights(w, &st, set->weights.fitted[level][ORDER[o]]);
        }
}
static int read_settings(settings *set, const uint8_t *data, int64_t size) {
    reader r = {data, data + size, 0};
    memset(set, 0, sizeof *set);
    set->pair = read_byte(&r);
    set->margin = read_byte(&r);
    set->axes = read_byte(&r);
    const grid g = {.axes = set->axes};
    for (int level = 0; level < SHARED_LEVELS && !r.bad; level++)
        for (int o = 1; o < 8 && !r.bad; o++) {
            stencil st;
            make_stencil(&st, &g, ORDER[o]);
            memset(st.weight, 0, sizeof st.weight);
            set->weights.fitted[level][ORDER[o]] = read_weights(&r, &st);
            memcpy(set->weights.weight[level][ORDER[o]], st.weight, sizeof st.weight);
        }
    return !r.bad && r.at == r.end && set->pair < NUM_PAIRS && set->axes < 8;
}
#endif

/* Predict and quantise one block; q receives the integers in scan order. */
static void NAME(code_block)(NAME(state) *f, settings *set, NAME(samples) *samples) {
    NAME(weighing) weights = {.samples = samples, .shared = &set->weights};
    f->num_escaped = 0;
    f->dense = f->q;
    f->g.axes = set->axes;
    NAME(code_field)(f, NAME(inner)(f->bound, set->margin), set->pair, &weights);
}

/* Choose the settings by coding one block; `largest` is the largest magnitude in the field. */
int64_t NAME(sck_fit_blocks)(const int64_t *shape, const int64_t *stride, const REAL *values,
                             double largest, double bound, uint8_t *out, int64_t cap) {
    NAME(state) f = {.g = NAME(block_grid)(shape), .bound = bound};
    NAME(samples) s;
    REAL *const block = malloc(sizeof(REAL) * 2 * (size_t)f.g.count);
    const int64_t room = tables_capacity(f.g.count);
    uint8_t *const coded = malloc((size_t)room);
    int64_t used = SCK_MEMORY, least = INT64_MAX;
    if (NAME(allocate)(&f, &s) && block && coded) {
        settings set = {.margin = NAME(margin_of)(largest, bound), .axes = f.g.axes};
        s.unused = NAME(UNUSED);
        s.most = NAME(FEW_SAMPLES);
        NAME(gather)(block, &f.g, values, stride);
        f.values = block;
        f.decoded = block + f.g.count;
        for (set.pair = 0; set.pair < NUM_PAIRS; set.pair++) {
            writer w = {out, out + cap, 0};
            memset(&set.weights, 0, sizeof set.weights);
            NAME(code_block)(&f, &set, &s);
            const int64_t size = encode_tables(&f.g, f.q, coded, room);
            if (size < 0 || size + 8 * f.num_escaped >= least) continue;
            least = size + 8 * f.num_escaped;
            write_settings(&w, &set);
            used = w.bad ? SCK_SPACE : w.at - out;
        }
    }
    NAME(release)(&f, &s);
    free(block); free(coded);
    return used;
}

int64_t NAME(sck_block_capacity)(int64_t count) {
    return tables_capacity(count) + 16 + count * (int64_t)sizeof(REAL);
}

/* Write checksum, escaped values and integers of a block. The integers are decoded again and must
 * be identical. */
static int64_t NAME(write_block)(NAME(state) *f, uint32_t crc, uint8_t *out, int64_t cap) {
    writer w = {out, out + cap, 0};
    write_word(&w, crc, 4);
    write_varint(&w, (uint64_t)f->num_escaped);
    for (int64_t i = 0; i < f->num_escaped; i++)
        write_word(&w, NAME(bits)(f->escaped[i]), sizeof(REAL));
    if (w.bad) return SCK_SPACE;
    const int64_t used = encode_tables(&f->g, f->q, w.at, w.end - w.at);
    if (used < 0) return used;
    int32_t *const again = malloc(sizeof *again * (size_t)f->g.count);
    int64_t status = again ? decode_tables(&f->g, w.at, used, again) : SCK_MEMORY;
    if (!status && memcmp(again, f->q, sizeof *again * (size_t)f->g.count)) status = SCK_DAMAGED;
    free(again);
    return status < 0 ? status : w.at + used - out;
}

/* Encode one block of a field with the given strides; `decoded` (may be NULL) receives the decoded
 * values, `error` the largest error. Return the bytes written or a SCK_ code. */
int64_t NAME(sck_encode_block)(const int64_t *shape, const int64_t *stride, const REAL *values,
                               const uint8_t *common, int64_t common_size, double bound,
                               uint8_t *out, int64_t cap, REAL *decoded, double *error) {
    NAME(state) f = {.g = NAME(block_grid)(shape), .bound = bound};
    settings set;
    if (!read_settings(&set, common, common_size)) return SCK_DAMAGED;
    REAL *const block = malloc(sizeof(REAL) * (2 * (size_t)f.g.count + (size_t)f.g.n[2]));
    int64_t used = SCK_MEMORY;
    if (NAME(allocate)(&f, NULL) && block) {
        NAME(gather)(block, &f.g, values, stride);
        f.values = block;
        f.decoded = block + f.g.count;
        NAME(code_block)(&f, &set, NULL);
        *error = NAME(largest_error)(block, f.decoded, NULL, f.g.count);
        const uint32_t crc = NAME(scatter)(decoded, &f.g, f.decoded, stride, block + 2 * f.g.count);
        used = f.bad || !(*error <= bound) ? SCK_DAMAGED : NAME(write_block)(&f, crc, out, cap);
    }
    NAME(release)(&f, NULL);
    free(block);
    return used;
}

/* Decode one block into a field with the given strides; return 0 or a SCK_ code. Any input bytes
 * are safe. */
int64_t NAME(sck_decode_block)(const int64_t *shape, const int64_t *stride,
                               const uint8_t *common, int64_t common_size, double bound,
                               const uint8_t *data, int64_t size, REAL *decoded) {
    NAME(state) f = {.g = NAME(block_grid)(shape), .bound = bound};
    settings set;
    reader r = {data, data + size, 0};
    const uint32_t crc = (uint32_t)read_word(&r, 4);
    const uint64_t escapes = read_varint(&r);
    if (r.bad || !read_settings(&set, common, common_size) || escapes > (uint64_t)f.g.count ||
        escapes > (uint64_t)(r.end - r.at) / sizeof(REAL)) return SCK_DAMAGED;
    int64_t status = SCK_MEMORY;
    REAL *const block = malloc(sizeof(REAL) * (size_t)(f.g.count + f.g.n[2]));
    if (NAME(allocate)(&f, NULL) && block) {
        f.decoded = block;
        for (uint64_t i = 0; i < escapes; i++)
            f.escaped[f.max_escaped++] = NAME(real)(read_word(&r, sizeof(REAL)));
        status = decode_tables(&f.g, r.at, r.end - r.at, f.q);
        if (status >= 0) {
            NAME(code_block)(&f, &set, NULL);
            status = f.bad || f.num_escaped != f.max_escaped ? SCK_DAMAGED : 0;
        }
        if (status >= 0 &&
            NAME(scatter)(decoded, &f.g, block, stride, block + f.g.count) != crc)
            status = SCK_DAMAGED;
    }
    NAME(release)(&f, NULL);
    free(block);
    return status;
}
