/* Prediction, quantisation and fitting of weights for one type of value.
 *
 * Included twice: REAL is float or double, NAME(x) appends the suffix of the type. Every point is
 * predicted from points that are already decoded, in the arithmetic of REAL and in the order of the
 * source (no contraction, no reassociation), so that encoder and decoder agree bit for bit.
 */

static uint64_t NAME(bits)(REAL v) {
    uint64_t word = 0;
    if (sizeof v == 4) { uint32_t w; memcpy(&w, &v, 4); word = w; }
    else memcpy(&word, &v, 8);
    return word;
}
static REAL NAME(real)(uint64_t word) {
    REAL v;
    const uint32_t w = (uint32_t)word;
    if (sizeof v == 4) memcpy(&v, &w, 4);
    else memcpy(&v, &word, 8);
    return v;
}

/* weight / UNIT, shared by `count` neighbours. */
static inline REAL NAME(share)(int weight, int count) {
    return (REAL)((double)weight / (double)(UNIT * count));
}

/* ---- plans: neighbours of a point inside the field, as distances in memory ---- */
enum { NAME(BLOCK) = 256, NAME(PLANS) = 128, NAME(LANES) = LANES_OF_REAL };
typedef REAL NAME(lanes) __attribute__((vector_size(32)));
#ifndef SCK_FOUR
#define SCK_FOUR
typedef double four_doubles __attribute__((vector_size(32)));
typedef int64_t four_words __attribute__((vector_size(32)));
typedef int32_t four_ints __attribute__((vector_size(16)));
typedef float four_floats __attribute__((vector_size(16)));
/* GCC converts halves, where processors have an instruction for four. */
#if defined(__AVX__) && !defined(__clang__)
static inline four_doubles widen_32(four_floats v) { return __builtin_ia32_cvtps2pd256(v); }
static inline four_doubles doubles_of(four_ints v) { return __builtin_ia32_cvtdq2pd256(v); }
#else
static inline four_doubles widen_32(four_floats v) { return __builtin_convertvector(v, four_doubles); }
static inline four_doubles doubles_of(four_ints v) { return __builtin_convertvector(v, four_doubles); }
#endif
static inline four_doubles widen_64(four_doubles v) { return v; }
#endif
typedef struct { int count; int64_t off[MAX_TAPS]; REAL share; } NAME(term);
/* `causal`: neighbour in the same row and class, which prevents vectorisation along the row. */
typedef struct { NAME(term) t[MAX_GROUPS + 7], causal; int terms; } NAME(plan);
typedef struct { NAME(plan) *pool; int used; int16_t of[1 << 12]; } NAME(plans);

static void NAME(forget_plans)(NAME(plans) *p) {
    p->used = 0;
    memset(p->of, 0xff, sizeof p->of);
}
static int NAME(inside)(const grid *g, const int64_t *p, const int *off, int64_t s) {
    int inside = 1;
    for (int d = 0; d < 3; d++)
        inside &= p[d] + off[d] * s >= 0 && p[d] + off[d] * s < g->n[d];
    return inside;
}
static int64_t NAME(beside)(const grid *g, const int64_t *p, const int *off, int64_t s) {
    return s * (off[0] * g->stride[0] + off[1] * g->stride[1]) + move_by(g, p[2], off[2] * s);
}
/* Neighbours at +-1 along the odd axes: the axes that have both if `whole` and there are some, else
 * all, the point at -1 taken twice where there is none at +1. Return the number of axes. */
static int NAME(nearest)(NAME(term) *near, const grid *g, const stencil *st, const int64_t *p,
                         int64_t s, int whole) {
    near->count = 0;
    for (int i = 0; i < st->num_odd; i++) {
        const int d = st->odd[i], both = p[d] + s < g->n[d];
        if (whole && !both) continue;
        for (int sign = -1; sign <= 1; sign += 2) {
            const int64_t by = both ? sign * s : -s;
            near->off[near->count++] = d == 2 ? move_by(g, p[2], by) : by * g->stride[d];
        }
    }
    return near->count / 2;
}
/* Of a pair at -3 and +3 of which one is outside, the inner one and the line through the points at
 * -1 and +1 continued outwards: their sum is 2 v[3] - 3 v[1] + 3 v[-1] for an outer point at -3. */
static void NAME(add_one_sided)(NAME(plan) *plan, const grid *g, const group *pair, const int64_t *p,
                                int64_t s, int weight) {
    const int *off = pair->off[NAME(inside)(g, p, pair->off[0], s) ? 0 : 1];
    static const int STEPS[3] = {3, 1, -1}, TIMES[3] = {2, -3, 3};
    for (int i = 0; i < 3; i++) {
        NAME(term) *t = &plan->t[plan->terms++];
        const int at[3] = {off[0] / 3 * STEPS[i], off[1] / 3 * STEPS[i], off[2] / 3 * STEPS[i]};
        t->count = 1;
        t->off[0] = NAME(beside)(g, p, at, s);
        t->share = NAME(share)(TIMES[i] * weight, 2);
    }
}
static void NAME(make_plan)(NAME(plan) *plan, const grid *g, const stencil *st, const int64_t *p,
                            int64_t s) {
    int rest = UNIT;
    NAME(term) *near = &plan->t[0];
    int axes = g->whole ? NAME(nearest)(near, g, st, p, s, 1) : 0;
    const int whole = axes > 0;
    if (!whole) axes = NAME(nearest)(near, g, st, p, s, 0);
    plan->terms = 1;
    plan->causal.count = 0;
    for (int k = 0; k < st->groups; k++) {
        const group *const from = &st->g[k];
        NAME(term) *t = &plan->t[plan->terms];
        if (!st->weight[k]) continue;
        t->count = 0;
        for (int i = 0; i < from->count; i++)
            if (NAME(inside)(g, p, from->off[i], s))
                t->off[t->count++] = NAME(beside)(g, p, from->off[i], s);
        if (!t->count) continue;
        if (whole && t->count < from->count) {
            const int *o = from->off[0], one[3] = {abs(o[0]) / 3, abs(o[1]) / 3, abs(o[2]) / 3};
            if (from->rule != FAR || !NAME(inside)(g, p, one, s)) continue;
            NAME(add_one_sided)(plan, g, from, p, s, st->weight[k]);
            rest -= st->weight[k];
            continue;
        }
        rest -= st->weight[k];
        t->share = NAME(share)(st->weight[k], t->count);
        if (from->causal && from->off[0][2]) plan->causal = *t;
        else plan->terms++;
    }
    near->share = NAME(share)(rest, 2 * axes);
}
static const NAME(plan) *NAME(plan_for)(NAME(plans) *plans, const grid *g, const stencil *st,
                                        const int64_t *p, int64_t s) {
    int key = 0;
    for (int d = 0; d < 3; d++) key = key << 4 | room(p[d], g->n[d], s);
    if (plans->of[key] < 0) {
        if (plans->used == NAME(PLANS)) NAME(forget_plans)(plans);
        plans->of[key] = (int16_t)plans->used++;
        NAME(make_plan)(&plans->pool[plans->of[key]], g, st, p, s);
    }
    return &plans->pool[plans->of[key]];
}

static inline REAL NAME(predict_point)(const NAME(plan) *plan, const REAL *v, int terms) {
    REAL p = 0;
    for (int k = 0; k < terms; k++) {
        const NAME(term) *t = &plan->t[k];
        REAL sum = v[t->off[0]];
        for (int j = 1; j < t->count; j++) sum += v[t->off[j]];
        p += t->share * sum;
    }
    return p;
}
/* Load a vector of consecutive or every second values, without reading past the last. */
static inline NAME(lanes) NAME(load)(const REAL *v, int64_t step) {
    NAME(lanes) a, b;
    memcpy(&a, v, sizeof a);
    if (step == 1) return a;
    memcpy(&b, v + NAME(LANES) - 1, sizeof b);
#if LANES_OF_REAL == 8
    return SHUFFLE(int32_t, a, b, 0, 2, 4, 6, 9, 11, 13, 15);
#else
    return SHUFFLE(int64_t, a, b, 0, 2, 5, 7);
#endif
}
/* Predict `vectors` vectors of points at once, which is constant; the last one ends at the last point
 * and may overlap the one before. */
static inline __attribute__((always_inline)) void NAME(predict_vectors)(
    const NAME(plan) *plan, const REAL *v, REAL *p, int num, int64_t step, int vectors) {
    NAME(lanes) all[4] = {{0}};
    const REAL *from[4];
    for (int i = 0; i < vectors; i++)
        from[i] = v + step * (i < vectors - 1 ? i * NAME(LANES) : num - NAME(LANES));
    for (int k = 0; k < plan->terms; k++) {
        const NAME(term) *t = &plan->t[k];
        NAME(lanes) sum[4];
        for (int i = 0; i < vectors; i++) sum[i] = NAME(load)(from[i] + t->off[0], step);
        for (int j = 1; j < t->count; j++)
            for (int i = 0; i < vectors; i++) sum[i] += NAME(load)(from[i] + t->off[j], step);
        for (int i = 0; i < vectors; i++) all[i] += t->share * sum[i];
    }
    for (int i = 0; i < vectors; i++)
        memcpy(p + (from[i] - v) / step, &all[i], sizeof all[i]);
}
static inline __attribute__((always_inline)) void NAME(predict_lanes)(
    const NAME(plan) *plan, const REAL *v, REAL *p, int num, int64_t step) {
    int i = 0;
    for (; num - i >= 8 * NAME(LANES); i += 4 * NAME(LANES))
        NAME(predict_vectors)(plan, v + i * step, p + i, 4 * NAME(LANES), step, 4);
    for (int left; (left = num - i) > 0;) {
        const int at = left < NAME(LANES) ? num - NAME(LANES) : i;
        const int vectors = (left + NAME(LANES) - 1) / NAME(LANES);
        const REAL *const from = v + at * step;
        if (vectors >= 4) NAME(predict_vectors)(plan, from, p + at, left < 4 * NAME(LANES) ? left : 4 * NAME(LANES), step, 4);
        else if (vectors == 3) NAME(predict_vectors)(plan, from, p + at, left, step, 3);
        else if (vectors == 2) NAME(predict_vectors)(plan, from, p + at, left, step, 2);
        else NAME(predict_vectors)(plan, from, p + at, NAME(LANES), step, 1);
        i += 4 * NAME(LANES);
    }
}
/* Without the causal term, which requires the previous point. */
static void NAME(predict_run)(const NAME(plan) *plan, const REAL *v, REAL *p, int num,
                              int64_t step) {
    if (step == 1 && num >= NAME(LANES)) NAME(predict_lanes)(plan, v, p, num, 1);
    else if (step == 2 && num >= NAME(LANES)) NAME(predict_lanes)(plan, v, p, num, 2);
    else for (int i = 0; i < num; i++) p[i] = NAME(predict_point)(plan, v + i * step, plan->terms);
}

/* ---- quantisation ---- */
typedef struct {
    grid g;
    const REAL *values;         /* values to encode, NULL when decoding */
    const uint8_t *mask;        /* points that are not coded; may be NULL */
    REAL *decoded;
    int32_t *q;
    int32_t *dense;             /* integer of the next point, if q is in scan order */
    double bound;
    REAL *escaped;              /* values stored verbatim, in scan order */
    int64_t num_escaped, max_escaped;
    int bad;
    NAME(plans) plans;
} NAME(state);

static REAL NAME(settle)(NAME(state) *f, int64_t i, int32_t *q, REAL p, double step,
                         double inverse) {
    if (f->mask && f->mask[i]) { *q = 0; return p; }
    if (!f->values) {
        if (*q != SCK_ESCAPE && *q != -SCK_ESCAPE)
            return (REAL)((double)p + (double)*q * step);
        if (f->num_escaped < f->max_escaped) return f->escaped[f->num_escaped++];
        f->bad = 1;
        return 0;
    }
    const double value = f->values[i], wanted = (value - (double)p) * inverse;
    if (fabs(wanted) < SCK_ESCAPE / 2) {
        /* Rounding to REAL may exceed the bound by an ulp; the next integer often keeps it. */
        const double near = rint(wanted), other = near + (wanted > near ? 1 : -1);
        const REAL v = (REAL)((double)p + near * step), w = (REAL)((double)p + other * step);
        if (fabs((double)v - value) <= f->bound) { *q = (int32_t)near; return v; }
        if (fabs((double)w - value) <= f->bound) { *q = (int32_t)other; return w; }
    }
    *q = SCK_ESCAPE;
    f->escaped[f->num_escaped++] = f->values[i];
    return f->values[i];
}

/* Quantise a run of independently predicted points, four at once; the last four end at the last point.
 * Return whether all keep the bound; NULL for `a` when decoding. */
typedef REAL NAME(four) __attribute__((vector_size(4 * sizeof(REAL))));
static int NAME(settle_vectors)(const REAL *restrict a, int32_t *restrict q, const REAL *restrict p,
                                REAL *restrict v, int num, double bound, double step) {
    /* Adding 1.5 2^52 rounds a double to the nearest integer, ties to even as rint does, which is then
     * in its low bits. */
    const double inverse = 1 / step, shift = 0x1.8p52;
    const four_words all_but_sign = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
    four_words bad = {0};
    for (int i = 0; i < num; i += 4) {
        const int from = i + 4 <= num ? i : num - 4;
        NAME(four) predicted, decoded;
        four_ints k;
        memcpy(&predicted, p + from, sizeof predicted);
        const four_doubles base = NAME(widen)(predicted);
        if (a) {
            NAME(four) values;
            memcpy(&values, a + from, sizeof values);
            const four_doubles value = NAME(widen)(values);
            const four_doubles wanted = (value - base) * inverse, shifted = wanted + shift;
            k = __builtin_convertvector((four_words)shifted, four_ints);
            decoded = __builtin_convertvector(base + (shifted - shift) * step, NAME(four));
            const four_doubles error = NAME(widen)(decoded) - value;
            bad |= ~((four_doubles)((four_words)error & all_but_sign) <= bound);
            bad |= ~((four_doubles)((four_words)wanted & all_but_sign) <= SCK_ESCAPE / 2);
            memcpy(q + from, &k, sizeof k);
        } else {
            memcpy(&k, q + from, sizeof k);
            decoded = __builtin_convertvector(base + doubles_of(k) * step,
                                              NAME(four));
            bad |= __builtin_convertvector((k >= SCK_ESCAPE) | (k <= -SCK_ESCAPE), four_words);
        }
        memcpy(v + from, &decoded, sizeof decoded);
    }
    return !(bad[0] | bad[1] | bad[2] | bad[3]);
}
/* Runs whose values or integers are not adjacent pass through a buffer. */
static int NAME(settle_apart)(NAME(state) *f, int64_t at, int32_t *q, const REAL *p, int num,
                              int64_t move, int64_t jump, double step) {
    REAL values[NAME(BLOCK)], decoded[NAME(BLOCK)];
    int32_t k[NAME(BLOCK)];
    if (f->values) for (int i = 0; i < num; i++) values[i] = f->values[at + i * move];
    else for (int i = 0; i < num; i++) k[i] = q[i * jump];
    if (!NAME(settle_vectors)(f->values ? values : NULL, k, p, decoded, num, f->bound, step)) return 0;
    if (f->values) for (int i = 0; i < num; i++) q[i * jump] = k[i];
    for (int i = 0; i < num; i++) f->decoded[at + i * move] = decoded[i];
    return 1;
}
static void NAME(settle_run)(NAME(state) *f, int64_t at, int32_t *q, const REAL *p, int num,
                             int64_t move, int64_t jump, double step, double inverse) {
    const int good = f->mask || num < 4 ? 0
        : move != 1 || jump != 1 ? NAME(settle_apart)(f, at, q, p, num, move, jump, step)
        : NAME(settle_vectors)(f->values ? f->values + at : NULL, q, p, f->decoded + at, num,
                               f->bound, step);
    for (int i = 0; !good && i < num; i++)
        f->decoded[at + i * move] = NAME(settle)(f, at + i * move, q + i * jump, p[i], step, inverse);
}

/* `alike`: the neighbours of a point do not depend on its place in the row. */
static void NAME(code_row)(NAME(state) *f, const stencil *st, int64_t z, int64_t y, int64_t x0,
                           int64_t s, double step, int alike) {
    const grid *g = &f->g;
    const int64_t row = z * g->stride[0] + y * g->stride[1], nx = g->n[2];
    const int64_t move = g->half && s > 1 ? s : g->half ? 1 : 2 * s, jump = f->dense ? 1 : move;
    const double inverse = 1 / step;
    int64_t p[3] = {z, y, x0}, at = row + place_of(g, x0);
    int32_t *q = f->dense ? f->dense : f->q + at;
    while (p[2] < nx) {
        const int64_t inner = alike ? nx - p[2] : nx - 3 * s - p[2];
        const NAME(plan) *plan = NAME(plan_for)(&f->plans, g, st, p, s);
        int num = 1;
        if ((alike || p[2] >= 3 * s) && inner > 2 * s) {
            const int64_t left = (inner + 2 * s - 1) / (2 * s);
            REAL run[NAME(BLOCK)];
            num = left < NAME(BLOCK) ? (int)left : NAME(BLOCK);
            NAME(predict_run)(plan, f->decoded + at, run, num, move);
            if (!plan->causal.count)
                NAME(settle_run)(f, at, q, run, num, move, jump, step, inverse);
            else
                for (int i = 0; i < num; i++) {
                    REAL *const v = f->decoded + at + i * move;
                    const REAL value = run[i] + plan->causal.share * v[plan->causal.off[0]];
                    *v = NAME(settle)(f, at + i * move, q + i * jump, value, step, inverse);
                }
        } else {
            REAL value = NAME(predict_point)(plan, f->decoded + at, plan->terms);
            if (plan->causal.count)
                value += plan->causal.share * f->decoded[at + plan->causal.off[0]];
            f->decoded[at] = NAME(settle)(f, at, q, value, step, inverse);
        }
        p[2] += num * 2 * s;
        at += num * move;
        q += num * jump;
    }
    if (f->dense) f->dense = q;
}

#ifndef SCK_ACROSS
#define SCK_ACROSS
/* Return whether all neighbours with a weight are at the point's own x. */
static int all_across(const stencil *st) {
    int across = !st->num_odd || st->odd[st->num_odd - 1] != 2;
    for (int k = 0; k < st->groups; k++)
        for (int i = 0; st->weight[k] && i < st->g[k].count; i++) across &= !st->g[k].off[i][2];
    return across;
}
#endif
static void NAME(code_class)(NAME(state) *f, const stencil *st, int cls, int64_t s, double step) {
    if (!cls) {  /* the single point at the origin, on the coarsest level */
        f->decoded[0] = NAME(settle)(f, 0, f->dense ? f->dense : f->q, 0, step, 1 / step);
        if (f->dense) f->dense++;
        return;
    }
    NAME(forget_plans)(&f->plans);
    const int alike = all_across(st);
    for (int64_t z = first(cls, 0, s); z < f->g.n[0]; z += 2 * s)
        for (int64_t y = first(cls, 1, s); y < f->g.n[1]; y += 2 * s)
            NAME(code_row)(f, st, z, y, first(cls, 2, s), s, step, alike);
}

/* ---- weights, fitted by the encoder to decoded values ---- */
enum { NAME(SAMPLES) = 6000, NAME(FEW_SAMPLES) = 1500, NAME(ROUNDS) = 3 };
/* Groups of rules whose bit in `unused` is set get no weight. */
typedef struct {
    int groups, num, unused, most;
    double *v, *target, noise[MAX_GROUPS];
} NAME(samples);

static int NAME(take_samples)(NAME(samples) *out, const NAME(state) *f, const stencil *st, int cls,
                              int64_t s, double eb) {
    const grid *g = &f->g;
    const int64_t points = points_of(g, cls, s), every = points / out->most + 1;
    int64_t seen = 0;
    out->groups = st->groups;
    out->num = 0;
    for (int k = 0; k < st->groups; k++)
        out->noise[k] = st->g[k].causal ? eb * eb / 3 / st->g[k].count : 0;
    for (int64_t z = first(cls, 0, s); z < g->n[0]; z += 2 * s)
    for (int64_t y = first(cls, 1, s); y < g->n[1]; y += 2 * s) {
        const int64_t nx = points_along(g, cls, 2, s), skip = (every - seen % every) % every;
        for (int64_t j = skip; j < nx; j += every) {
            const int64_t x = first(cls, 2, s) + 2 * s * j, p[3] = {z, y, x};
            const int64_t at = z * g->stride[0] + y * g->stride[1] + place_of(g, x);
            int inside = !(f->mask && f->mask[at]);
            for (int d = 0; d < 3 && inside; d++)
                inside = g->n[d] == 1 || (p[d] >= 3 * s && p[d] + 3 * s < g->n[d]);
            if (!inside) continue;
            double m = 0, *row = out->v + (int64_t)out->num * st->groups;
            for (int i = 0; i < st->num_odd; i++) {
                const int d = st->odd[i];
                const int64_t left = d == 2 ? move_by(g, x, -s) : -s * g->stride[d];
                const int64_t right = d == 2 ? move_by(g, x, s) : s * g->stride[d];
                m += .5 * ((double)f->decoded[at + left] + (double)f->decoded[at + right]);
            }
            m /= st->num_odd;
            for (int k = 0; k < st->groups; k++) {
                row[k] = 0;
                if (out->unused >> st->g[k].rule & 1) continue;
                const REAL *from = st->g[k].causal ? f->values : f->decoded;
                double sum = 0;
                for (int t = 0; t < st->g[k].count; t++) {
                    const int *o = st->g[k].off[t];
                    sum += from[at + s * (o[0] * g->stride[0] + o[1] * g->stride[1])
                                + move_by(g, x, s * o[2])];
                }
                row[k] = sum / st->g[k].count - m;
            }
            out->target[out->num++] = (double)f->values[at] - m;
        }
        seen += nx;
    }
    return out->num;
}

/* Estimate of the bits of the samples' residuals. */
static double NAME(cost_of)(const NAME(samples) *s, const int *weight, double eb) {
    double cost = 0, noise = 0;
    for (int k = 0; k < s->groups; k++)
        noise += s->noise[k] * weight[k] * weight[k] / (UNIT * UNIT);
    for (int i = 0; i < s->num; i++) {
        double r = s->target[i];
        const double *v = s->v + (int64_t)i * s->groups;
        for (int k = 0; k < s->groups; k++) r -= v[k] * weight[k] * (1.0 / UNIT);
        cost += log2(1 + (r * r + noise) / (eb * eb));
    }
    return .5 * cost;
}

/* Least squares with weights 1 / (r^2 + eb^2) of the previous residuals, which reduces log |r|.
 * The group `without` (-1 for none) gets no weight. */
static int NAME(fit_round)(const NAME(samples) *s, const int *before, int *weight, double eb,
                           int without) {
    double A[MAX_GROUPS][MAX_GROUPS] = {{0}}, b[MAX_GROUPS] = {0}, total = 0, trace = 0;
    const int G = s->groups;
    for (int i = 0; i < s->num; i++) {
        const double *v = s->v + (int64_t)i * G;
        double w = 1;
        if (before) {
            double r = s->target[i];
            for (int k = 0; k < G; k++) r -= v[k] * before[k] * (1.0 / UNIT);
            w = 1 / (r * r + eb * eb);
        }
        total += w;
        for (int j = 0; j < G; j++) {
            const double c = w * v[j];
            b[j] += c * s->target[i];
            for (int k = 0; k <= j; k++) A[j][k] += c * v[k];
        }
    }
    for (int j = 0; j < G; j++) trace += A[j][j];
    if (without >= 0) {
        for (int j = 0; j < without; j++) A[without][j] = 0;
        for (int j = without; j < G; j++) A[j][without] = 0;
        b[without] = 0;
    }
    for (int j = 0; j < G; j++) A[j][j] += total * s->noise[j] + 1e-9 * trace + 1e-300;
    for (int j = 0; j < G; j++)
        for (int k = 0; k <= j; k++) {  /* Cholesky */
            double sum = A[j][k];
            for (int l = 0; l < k; l++) sum -= A[j][l] * A[k][l];
            if (j != k) A[j][k] = sum / A[k][k];
            else if (sum > 0) A[j][j] = sqrt(sum);
            else return 0;
        }
    for (int j = 0; j < G; j++) {
        for (int k = 0; k < j; k++) b[j] -= A[j][k] * b[k];
        b[j] /= A[j][j];
    }
    for (int j = G - 1; j >= 0; j--) {
        for (int k = j + 1; k < G; k++) b[j] -= A[k][j] * b[k];
        b[j] /= A[j][j];
        const double w = rint(UNIT * b[j]);
        if (!(fabs(w) <= 1e6)) return 0;
        weight[j] = w > MAX_WEIGHT ? MAX_WEIGHT : w < -MAX_WEIGHT ? -MAX_WEIGHT : (int)w;
    }
    return 1;
}

/* Replace the cubic weights by fitted ones if these save bits; return whether they do. */
static int NAME(fit)(NAME(samples) *s, const NAME(state) *f, stencil *st, int cls, int64_t level,
                     double eb) {
    if (NAME(take_samples)(s, f, st, cls, level, eb) < 20 * st->groups) return 0;
    const double scale = (double)points_of(&f->g, cls, level) / s->num;
    double best = scale * NAME(cost_of)(s, st->weight, eb);
    int found = 0, weight[MAX_GROUPS], before[MAX_GROUPS], serial = -1;
    for (int k = 0; k < st->groups; k++)
        if (st->g[k].causal && st->g[k].off[0][2]) serial = k;
    /* The neighbour in the same row prevents vectorisation, so it must save half a per cent. */
    for (int without = serial; without >= -1; without = without < 0 ? -2 : -1)
        for (int round = 0; round < NAME(ROUNDS); round++) {
            if (!NAME(fit_round)(s, round ? before : NULL, weight, eb, without)) break;
            const double cost = scale * NAME(cost_of)(s, weight, eb) + 9.0 * st->groups;
            if (cost < best * (serial >= 0 && without < 0 ? 0.995 : 1)) {
                best = cost;
                found = 1;
                memcpy(st->weight, weight, sizeof weight);
            }
            memcpy(before, weight, sizeof weight);
        }
    return found;
}

/* ---- one field ---- */
/* Source or destination of a field's weights; they are fitted if there are `samples`. */
typedef struct {
    NAME(samples) *samples;
    writer *w;
    reader *r;
    shared_weights *shared;
} NAME(weighing);

static void NAME(weigh)(NAME(weighing) *from, const NAME(state) *f, stencil *st, int cls, int64_t s,
                        double eb) {
    if (from->shared) {
        const int level = shared_level(s);
        if (level < 0) return;
        int *const fitted = &from->shared->fitted[level][cls];
        int *const weight = from->shared->weight[level][cls];
        if (from->samples) {
            *fitted = NAME(fit)(from->samples, f, st, cls, s, eb);
            memcpy(weight, st->weight, sizeof st->weight);
        } else if (*fitted) {
            memcpy(st->weight, weight, sizeof st->weight);
        }
    } else if (points_of(&f->g, cls, s) >= f->g.fit_from) {
        if (from->r) read_weights(from->r, st);
        else write_weights(from->w, st, NAME(fit)(from->samples, f, st, cls, s, eb));
    }
}

/* Code all levels with one pair of ALPHA and BETA. */
static void NAME(code_field)(NAME(state) *f, double inner, int pair, NAME(weighing) *weights) {
    const int64_t top = top_level(&f->g);
    double power = 1;
    for (int64_t s = 1; s < top; s *= 2) power *= ALPHA[pair];
    for (int64_t s = top; s >= 1; s /= 2, power /= ALPHA[pair])
        for (int o = s == top ? 0 : 1; o < 8; o++) {
            const int cls = ORDER[o];
            const double eb = inner / (power < BETA[pair] ? power : BETA[pair]);
            stencil st;
            if (!points_of(&f->g, cls, s)) continue;
            make_stencil(&st, &f->g, cls);
            cubic_weights(&st);
            if (cls) NAME(weigh)(weights, f, &st, cls, s, eb);
            if (weights->r && weights->r->bad) return;
            NAME(code_class)(f, &st, cls, s, 2 * eb);
        }
}
