/* Encoder and decoder of one field; included twice, like predict.c. See docs/format. */

/* Part of the bound used by quantisation; the rest, in units of 2^-20, is reserved for rounding. */
static double NAME(inner)(double bound, int margin) {
    return bound * ((double)(1048574 - 256 * margin) / 1048576.0);
}
static int NAME(margin_of)(double largest, double bound) {
    const double rounding = ldexp(largest, sizeof(REAL) == 4 ? -24 : -50) / bound;
    const double wanted = ceil(rounding * 4096 - 1e-3);
    return wanted < 0 ? 0 : wanted > 255 ? 255 : (int)wanted;
}
static int NAME(margin)(const grid *g, const REAL *values, const uint8_t *mask, double bound) {
    double largest = 0;
    for (int64_t i = 0; i < g->count; i++)
        if (!(mask && mask[i]) && fabs((double)values[i]) > largest) largest = fabs((double)values[i]);
    return NAME(margin_of)(largest, bound);
}

static int NAME(allocate_samples)(NAME(samples) *s) {
    s->v = malloc(sizeof(double) * MAX_GROUPS * (NAME(SAMPLES) + 1));
    s->target = malloc(sizeof(double) * (NAME(SAMPLES) + 1));
    return s->v && s->target;
}
static void NAME(release_samples)(NAME(samples) *s) { free(s->v); free(s->target); }
static int NAME(allocate)(NAME(state) *f, NAME(samples) *s) {
    f->q = malloc(sizeof *f->q * (size_t)f->g.count);
    f->escaped = malloc(sizeof(REAL) * (size_t)f->g.count);
    f->plans.pool = malloc(sizeof *f->plans.pool * NAME(PLANS));
    if (s) *s = (NAME(samples)){.most = NAME(SAMPLES)};
    return (!s || NAME(allocate_samples)(s)) && f->q && f->escaped && f->plans.pool;
}
static void NAME(release)(NAME(state) *f, NAME(samples) *s) {
    free(f->q);
    free(f->escaped);
    free(f->plans.pool);
    if (s) NAME(release_samples)(s);
}

/* Integers of a 1-D field: differences of order 0, 1 or 2 of the quantised values. */
static void NAME(code_series)(NAME(state) *f, int order, double offset, double step) {
    int64_t last = 0, before = 0;
    for (int64_t i = 0; i < f->g.count; i++) {
        const int64_t p = order == 0 ? 0 : order == 1 ? last : 2 * last - before;
        int64_t k = p;
        if (f->mask && f->mask[i]) {
            f->q[i] = 0;
            f->decoded[i] = (REAL)(offset + (double)p * step);
        } else if (f->values) {
            const double value = f->values[i], w = rint((value - offset) / step);
            f->q[i] = SCK_ESCAPE;
            if (fabs(w) < SCK_ESCAPE / 8) {
                const REAL v = (REAL)(offset + w * step);
                if (fabs((double)v - value) <= f->bound) {
                    k = (int64_t)w;
                    f->q[i] = (int32_t)(k - p);
                    f->decoded[i] = v;
                }
            }
            if (f->q[i] == SCK_ESCAPE) f->decoded[i] = f->escaped[f->num_escaped++] = f->values[i];
        } else if (f->q[i] == SCK_ESCAPE || f->q[i] == -SCK_ESCAPE) {
            if (f->num_escaped >= f->max_escaped) { f->bad = 1; return; }
            f->decoded[i] = f->escaped[f->num_escaped++];
        } else {
            k = p + f->q[i];
            /* Encoders stay within these limits; larger integers could overflow. */
            if (k > SCK_ESCAPE || k < -SCK_ESCAPE) { f->bad = 1; return; }
            f->decoded[i] = (REAL)(offset + (double)k * step);
        }
        before = last;
        last = k;
    }
}

/* Largest error of the points that are not masked. */
/* Largest |a - b|; `b` may be NULL, for zeros. A NaN is larger than all. */
static double NAME(largest_error)(const REAL *a, const REAL *b, const uint8_t *mask, int64_t count) {
    double largest = 0;
    int64_t i = 0;
    four_words four = {0};  /* bits of positive doubles, which have their order */
    for (; !mask && i + 4 <= count; i += 4) {
        NAME(four) from, to = {0};
        memcpy(&from, a + i, sizeof from);
        if (b) memcpy(&to, b + i, sizeof to);
        const four_words error = (four_words)(NAME(widen)(from) - NAME(widen)(to)) & INT64_MAX;
        const four_words above = error > four;
        four = (error & above) | (four & ~above);
    }
    for (int k = 0; k < 4; k++) {
        const double error = ((four_doubles)four)[k];
        if (error > largest || error != error) largest = error;
    }
    for (; i < count; i++) {
        const double error = mask && mask[i] ? 0 : fabs((double)a[i] - (b ? (double)b[i] : 0));
        if (error > largest || error != error) largest = error;
    }
    return largest;
}
int64_t NAME(sck_largest)(const REAL *values, int64_t count, double *largest) {
    *largest = NAME(largest_error)(values, NULL, NULL, count);
    return 0;
}

/* Set the options of a method; return 0..3 for a pair of ALPHA and BETA, 4..6 for differences. */
static int NAME(choose)(grid *g, int method) {
    g->fit_from = method >= FEW ? FEW_POINTS : FITTED_POINTS;
    g->whole = method >= WHOLE;
    return method >= FEW ? method % NUM_PAIRS : method;
}
static int64_t NAME(encode_by)(NAME(state) *f, NAME(samples) *s, int method, int margin,
                               uint8_t *out, int64_t cap, int again) {
    writer w = {out, out + cap, 0};
    const double inner = NAME(inner)(f->bound, margin);
    f->num_escaped = 0;
    write_byte(&w, method);
    write_byte(&w, margin);
    method = NAME(choose)(&f->g, method);
    if (method < NUM_PAIRS) {
        NAME(code_field)(f, inner, method, &(NAME(weighing)){.samples = s, .w = &w});
    } else {
        double sum = 0;
        int64_t count = 0;
        for (int64_t i = 0; i < f->g.count; i++)
            if (!(f->mask && f->mask[i])) { sum += (double)f->values[i]; count++; }
        const float offset = count ? (float)(sum / (double)count) : 0;
        uint32_t word;
        memcpy(&word, &offset, 4);
        write_word(&w, word, 4);
        NAME(code_series)(f, method - NUM_PAIRS, offset, 2 * inner);
    }
    write_varint(&w, (uint64_t)f->num_escaped);
    for (int64_t i = 0; i < f->num_escaped; i++)
        write_word(&w, NAME(bits)(f->escaped[i]), sizeof(REAL));
    if (w.bad) return SCK_SPACE;
    const int64_t head = w.at - out;
    int64_t used = code_integers(&f->g, f->mask, f->q, w.at, w.end - w.at, PLAIN,
                                 method >= NUM_PAIRS, 0);
    if (used >= 0 && again) {
        int32_t *const q = malloc(sizeof *q * (size_t)f->g.count);
        int64_t status = q ? code_integers(&f->g, f->mask, q, w.at, used, PLAIN,
                                           method >= NUM_PAIRS, 1) : SCK_MEMORY;
        if (status >= 0 && memcmp(q, f->q, sizeof *q * (size_t)f->g.count)) status = SCK_DAMAGED;
        free(q);
        if (status < 0) return status;
    }
    return used < 0 ? used : head + used;
}

/* Return the range of the values in a block. */
static double NAME(range_of)(const grid *g, const REAL *values, const uint8_t *mask,
                             const int64_t *from, const int64_t *shape) {
    double low = 0, high = 0;
    int any = 0;
    for (int64_t z = 0; z < shape[0]; z++)
        for (int64_t y = 0; y < shape[1]; y++) {
            const int64_t at = ((from[0] + z) * g->n[1] + from[1] + y) * g->n[2] + from[2];
            for (int64_t i = at; i < at + shape[2]; i++) {
                if (mask && mask[i]) continue;
                if (!any || values[i] < low) low = values[i];
                if (!any || values[i] > high) high = values[i];
                any = 1;
            }
        }
    return high - low;
}

/* Return a block from the middle of a large field, on which methods are compared; of 27 places the
 * one with the largest range if the middle says nothing, being within the bound of one value. */
static REAL *NAME(middle)(const grid *g, const REAL *values, const uint8_t *mask, double bound,
                          int64_t *shape, uint8_t **block_mask) {
    const int dims = (g->n[0] > 1) + (g->n[1] > 1) + (g->n[2] > 1);
    const int64_t side = dims == 3 ? 48 : dims == 2 ? 320 : 1 << 17;
    int64_t from[3], count = 1;
    for (int d = 0; d < 3; d++) {
        shape[d] = g->n[d] < side ? g->n[d] : side;
        from[d] = (g->n[d] - shape[d]) / 2;
        count *= shape[d];
    }
    double widest = NAME(range_of)(g, values, mask, from, shape);
    for (int place = 0; widest <= 2 * bound && place < 27; place++) {
        int64_t other[3];
        for (int d = 0, rest = place; d < 3; d++, rest /= 3)
            other[d] = (g->n[d] - shape[d]) * (rest % 3) / 2;
        const double range = NAME(range_of)(g, values, mask, other, shape);
        if (range > widest) { widest = range; memcpy(from, other, sizeof from); }
    }
    REAL *block = malloc(sizeof(REAL) * (size_t)count), *to = block;
    uint8_t *m = *block_mask = mask ? malloc((size_t)count) : NULL;
    if (!block || (mask && !m)) { free(block); free(m); return NULL; }
    for (int64_t z = 0; z < shape[0]; z++)
        for (int64_t y = 0; y < shape[1]; y++, to += shape[2]) {
            const int64_t at = ((from[0] + z) * g->n[1] + from[1] + y) * g->n[2] + from[2];
            memcpy(to, values + at, sizeof(REAL) * (size_t)shape[2]);
            if (mask) memcpy(m + (to - block), mask + at, (size_t)shape[2]);
        }
    return block;
}

/* Code a field with all methods and set the best. Of a block, coded sizes are taken to have one
 * minimum over the pairs, and small classes are not tried, which the field itself does not have.
 * `levels` leaves out differences of a line, of which a part is no coarse picture. */
static int64_t NAME(best_method)(const int64_t *shape, const REAL *values, const uint8_t *mask,
                                 double bound, int block, int levels, uint8_t *out, int64_t cap,
                                 REAL *decoded, int *method) {
    NAME(state) f = {.g = grid_of(shape), .values = values, .mask = mask, .decoded = decoded,
                     .bound = bound};
    NAME(samples) s;
    int64_t best = SCK_MEMORY;
    const int margin = NAME(margin)(&f.g, values, mask, bound);
    const int line = f.g.n[0] == 1 && f.g.n[1] == 1 && !levels;
    int pair = 0, last_pair = NUM_PAIRS - 1;
    if (NAME(allocate)(&f, &s))
        for (int k = 0; k < NUM_METHODS; k++) {
            const int of_pair = k < NUM_PAIRS;
            if (of_pair ? k > last_pair : k < FEW ? !line || k == NUM_PAIRS + 3
                : k % NUM_PAIRS != pair || (block && k < WHOLE)) continue;
            const int64_t used = NAME(encode_by)(&f, &s, k, margin, out, cap, 0);
            if (used < 0 || (best >= 0 && used >= best)) {
                if (block && of_pair) last_pair = k;
                continue;
            }
            best = used;
            *method = k;
            if (of_pair) pair = k;
        }
    NAME(release)(&f, &s);
    return best;
}

/* A block has more edges than its field: encode with whole groups and without, and keep the smaller;
 * only without for a large field, where edges are few. */
enum { NAME(EDGES_UP_TO) = 1 << 19 };
static int64_t NAME(encode_edges)(NAME(state) *f, NAME(samples) *s, int method, int margin,
                                  uint8_t *out, int64_t cap, int again) {
    const size_t bytes = sizeof(REAL) * (size_t)f->g.count;
    const int64_t whole = f->g.count > NAME(EDGES_UP_TO) ? SCK_SPACE
        : NAME(encode_by)(f, s, method, margin, out, cap, again);
    uint8_t *const kept = whole >= 0 ? malloc((size_t)whole + bytes) : NULL;
    if (kept) {
        memcpy(kept, f->decoded, bytes);
        memcpy(kept + bytes, out, (size_t)whole);
    }
    int64_t used = NAME(encode_by)(f, s, method % NUM_PAIRS, margin, out, cap, again);
    if (kept && (used < 0 || whole < used)) {
        memcpy(f->decoded, kept, bytes);
        memcpy(out, kept + bytes, (size_t)(used = whole));
    }
    free(kept);
    return used;
}

/* Upper limit of the coded size of `count` values. */
int64_t NAME(sck_capacity)(int64_t count) { return (1 << 14) + count * (8 + (int64_t)sizeof(REAL)); }

/* Encode a field within an absolute bound; `decoded` receives the decoded values.
 * All values must be finite; those marked in `mask` (may be NULL) decode to arbitrary values.
 * `effort` 0 tries all methods on a block of the field, THOROUGH on the whole field; with LEVELS only
 * those that code coarse levels first.
 * `error` (may be NULL) receives the largest error; the integers are then decoded again and must be
 * identical.
 * Return the bytes written to `out`, or a negative SCK_ code. */
int64_t NAME(sck_encode)(const int64_t *shape, const REAL *values, const uint8_t *mask, double bound,
                         int64_t effort, uint8_t *out, int64_t cap, REAL *decoded,
                         double *error) {
    NAME(state) f = {.g = grid_of(shape), .values = values, .mask = mask, .decoded = decoded,
                     .bound = bound};
    NAME(samples) s;
    int method = 0;
    const int thorough = effort & THOROUGH, levels = effort & LEVELS;
    int64_t block_shape[3], found;
    uint8_t *block_mask = NULL;
    if (thorough) {
        found = NAME(best_method)(shape, values, mask, bound, 0, levels, out, cap, decoded,
                                  &method);
    } else {
        REAL *block = NAME(middle)(&f.g, values, mask, bound, block_shape, &block_mask);
        found = block ? NAME(best_method)(block_shape, block, block_mask, bound, 1, levels, out,
                                          cap, decoded, &method) : SCK_MEMORY;
        free(block);
        free(block_mask);
    }
    if (found < 0) return found;
    if (NAME(allocate)(&f, &s)) {
        const int margin = NAME(margin)(&f.g, values, mask, bound);
        found = !thorough && method >= WHOLE
            ? NAME(encode_edges)(&f, &s, method, margin, out, cap, error != NULL)
            : NAME(encode_by)(&f, &s, method, margin, out, cap, error != NULL);
    } else {
        found = SCK_MEMORY;
    }
    NAME(release)(&f, &s);
    if (found >= 0 && error) {
        *error = NAME(largest_error)(values, decoded, mask, f.g.count);
        if (!(*error <= bound)) found = SCK_DAMAGED;
    }
    return found;
}

static void NAME(skip_weights)(const grid *g, reader *r) {
    const int64_t top = top_level(g);
    for (int64_t s = top; s >= 1; s /= 2)
        for (int o = 1; o < 8; o++) {
            stencil st;
            if (points_of(g, ORDER[o], s) < g->fit_from) continue;
            make_stencil(&st, g, ORDER[o]);
            read_weights(r, &st);
        }
}

/* Decode the output of `sck_encode`; return 0 or a negative SCK_ code. Any input bytes are safe.
 * With `part` PART the data may end anywhere after the weights and verbatim values; points whose
 * integers are missing take their prediction. */
static int64_t NAME(decode)(const int64_t *shape, const uint8_t *mask, double bound,
                            const uint8_t *data, int64_t size, REAL *decoded, int part) {
    NAME(state) f = {.g = grid_of(shape), .mask = mask, .decoded = decoded, .bound = bound};
    reader r = {data, data + size, 0};
    int method = read_byte(&r);
    const int margin = read_byte(&r);
    if (r.bad || method >= NUM_METHODS || method == NUM_PAIRS + 3) return SCK_DAMAGED;
    if (part == PART && method >= NUM_PAIRS && method < FEW) return SCK_DAMAGED;
    method = NAME(choose)(&f.g, method);
    if (!NAME(allocate)(&f, NULL)) { NAME(release)(&f, NULL); return SCK_MEMORY; }
    const uint8_t *head = r.at;
    float offset = 0;
    if (method < NUM_PAIRS) {
        /* Skip the weights, which precede the integers; they are read below. */
        NAME(skip_weights)(&f.g, &r);
    } else {
        const uint32_t word = (uint32_t)read_word(&r, 4);
        memcpy(&offset, &word, 4);
    }
    const uint64_t escapes = read_varint(&r);
    if (r.bad || escapes > (uint64_t)f.g.count ||
        escapes > (uint64_t)(r.end - r.at) / sizeof(REAL)) f.bad = 1;
    for (uint64_t i = 0; !f.bad && i < escapes; i++)
        f.escaped[f.max_escaped++] = NAME(real)(read_word(&r, sizeof(REAL)));
    int64_t status = f.bad ? SCK_DAMAGED : code_integers(&f.g, mask, f.q, (uint8_t *)r.at,
                                                         r.end - r.at, PLAIN, method >= NUM_PAIRS, part);
    if (status >= 0) {
        const double inner = NAME(inner)(bound, margin);
        reader again = {head, r.at, 0};
        if (method < NUM_PAIRS)
            NAME(code_field)(&f, inner, method, &(NAME(weighing)){.r = &again});
        else NAME(code_series)(&f, method - NUM_PAIRS, offset, 2 * inner);
        const int all = part == PART || f.num_escaped == f.max_escaped;
        status = f.bad || again.bad || !all ? SCK_DAMAGED : 0;
    }
    NAME(release)(&f, NULL);
    return status;
}
int64_t NAME(sck_decode)(const int64_t *shape, const uint8_t *mask, double bound,
                         const uint8_t *data, int64_t size, REAL *decoded) {
    return NAME(decode)(shape, mask, bound, data, size, decoded, WHOLE_STREAM);
}
int64_t NAME(sck_decode_part)(const int64_t *shape, const uint8_t *mask, double bound,
                              const uint8_t *data, int64_t size, REAL *decoded) {
    return NAME(decode)(shape, mask, bound, data, size, decoded, PART);
}
