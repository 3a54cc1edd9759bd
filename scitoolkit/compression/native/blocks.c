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

/* Memory for coding a block of a shape: its values, decoded values, integers and tables. */
int64_t NAME(sck_block_workspace)(const int64_t *shape) {
    const grid g = NAME(block_grid)(shape);
    const size_t count = (size_t)g.count;
    return (int64_t)(tables_workspace(&g) + sizeof(NAME(plan)) * NAME(PLANS) + sizeof(int32_t) * count
                     + sizeof(REAL) * (3 * count + (size_t)g.n[2]) + 1024);
}
/* The arrays of a block and, after the decoded values, a row; `block` may be NULL. Return whether the
 * memory suffices. */
static int NAME(lay_out)(NAME(state) *f, REAL **block, workspace *memory) {
    const size_t count = (size_t)f->g.count;
    f->plans.pool = take(memory, sizeof *f->plans.pool * NAME(PLANS));
    f->q = take(memory, sizeof *f->q * count);
    if (block) f->values = *block = take(memory, sizeof(REAL) * count);
    f->decoded = take(memory, sizeof(REAL) * (count + (size_t)f->g.n[2]));
    f->escaped = take(memory, sizeof(REAL) * count);
    return f->plans.pool && f->q && f->decoded && f->escaped && (!block || *block);
}

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
    NAME(samples) s = {.unused = NAME(UNUSED), .most = NAME(FEW_SAMPLES)};
    REAL *block;
    const int64_t room = tables_capacity(f.g.count), bytes = NAME(sck_block_workspace)(shape);
    uint8_t *const coded = malloc((size_t)room), *const all = malloc((size_t)bytes);
    workspace memory = {all, all ? all + bytes : NULL};
    int64_t used = SCK_MEMORY, least = INT64_MAX;
    if (NAME(allocate_samples)(&s) && coded && all && NAME(lay_out)(&f, &block, &memory)) {
        settings set = {.margin = NAME(margin_of)(largest, bound), .axes = f.g.axes};
        NAME(gather)(block, &f.g, values, stride);
        for (set.pair = 0; set.pair < NUM_PAIRS; set.pair++) {
            writer w = {out, out + cap, 0};
            memset(&set.weights, 0, sizeof set.weights);
            NAME(code_block)(&f, &set, &s);
            const int64_t size = encode_tables(&f.g, f.q, coded, room, memory);
            if (size < 0 || size + 8 * f.num_escaped >= least) continue;
            least = size + 8 * f.num_escaped;
            write_settings(&w, &set);
            used = w.bad ? SCK_SPACE : w.at - out;
        }
    }
    NAME(release_samples)(&s);
    free(coded); free(all);
    return used;
}

int64_t NAME(sck_block_capacity)(int64_t count) {
    return tables_capacity(count) + 16 + count * (int64_t)sizeof(REAL);
}

/* Write checksum, escaped values and integers of a block. The integers are decoded again and must
 * be identical. */
static int64_t NAME(write_block)(NAME(state) *f, uint32_t crc, uint8_t *out, int64_t cap,
                                 workspace memory) {
    writer w = {out, out + cap, 0};
    write_word(&w, crc, 4);
    write_varint(&w, (uint64_t)f->num_escaped);
    for (int64_t i = 0; i < f->num_escaped; i++)
        write_word(&w, NAME(bits)(f->escaped[i]), sizeof(REAL));
    if (w.bad) return SCK_SPACE;
    const int64_t used = encode_tables(&f->g, f->q, w.at, w.end - w.at, memory);
    if (used < 0) return used;
    const int64_t status = decode_tables(&f->g, w.at, used, f->q, memory, 1);
    return status < 0 ? status : w.at + used - out;
}

/* Encode one block of a field with the given strides; `decoded` (may be NULL) receives the decoded
 * values, `error` the largest error. `memory` has the bytes that sck_block_workspace states, or those
 * of a larger block. Return the bytes written or a SCK_ code. */
int64_t NAME(sck_encode_block)(const int64_t *shape, const int64_t *stride, const REAL *values,
                               const uint8_t *common, int64_t common_size, double bound,
                               uint8_t *out, int64_t cap, REAL *decoded, double *error,
                               uint8_t *memory, int64_t memory_size) {
    NAME(state) f = {.g = NAME(block_grid)(shape), .bound = bound};
    workspace free_memory = {memory, memory + memory_size};
    settings set;
    REAL *block;
    if (!read_settings(&set, common, common_size)) return SCK_DAMAGED;
    if (!NAME(lay_out)(&f, &block, &free_memory)) return SCK_MEMORY;
    NAME(gather)(block, &f.g, values, stride);
    NAME(code_block)(&f, &set, NULL);
    *error = NAME(largest_error)(block, f.decoded, NULL, f.g.count);
    const uint32_t crc = NAME(scatter)(decoded, &f.g, f.decoded, stride, f.decoded + f.g.count);
    if (f.bad || !(*error <= bound)) return SCK_DAMAGED;
    return NAME(write_block)(&f, crc, out, cap, free_memory);
}

/* Decode one block into a field with the given strides; return 0 or a SCK_ code. Any input bytes
 * are safe. `memory`: as for sck_encode_block. */
int64_t NAME(sck_decode_block)(const int64_t *shape, const int64_t *stride,
                               const uint8_t *common, int64_t common_size, double bound,
                               const uint8_t *data, int64_t size, REAL *decoded,
                               uint8_t *memory, int64_t memory_size) {
    NAME(state) f = {.g = NAME(block_grid)(shape), .bound = bound};
    workspace free_memory = {memory, memory + memory_size};
    settings set;
    reader r = {data, data + size, 0};
    const uint32_t crc = (uint32_t)read_word(&r, 4);
    const uint64_t escapes = read_varint(&r);
    if (r.bad || !read_settings(&set, common, common_size) || escapes > (uint64_t)f.g.count ||
        escapes > (uint64_t)(r.end - r.at) / sizeof(REAL)) return SCK_DAMAGED;
    if (!NAME(lay_out)(&f, NULL, &free_memory)) return SCK_MEMORY;
    for (uint64_t i = 0; i < escapes; i++)
        f.escaped[f.max_escaped++] = NAME(real)(read_word(&r, sizeof(REAL)));
    const int64_t status = decode_tables(&f.g, r.at, r.end - r.at, f.q, free_memory, 0);
    if (status < 0) return status;
    NAME(code_block)(&f, &set, NULL);
    if (f.bad || f.num_escaped != f.max_escaped) return SCK_DAMAGED;
    const uint32_t found = NAME(scatter)(decoded, &f.g, f.decoded, stride, f.decoded + f.g.count);
    return found == crc ? 0 : SCK_DAMAGED;
}
