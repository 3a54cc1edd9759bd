/* Prediction, quantisation and the codec's two entry points for one type of value.
 *
 * Included twice: REAL is float or double, NAME(x) appends the suffix of the type. Every point is
 * predicted from points that the decoder has already, in the arithmetic of REAL and in the order
 * written here (no contraction, no reassociation), so that both sides agree bit for bit.
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

/* The prediction of one point anywhere; neighbours outside the field are left out. */
static REAL NAME(predict_point)(const grid *g, const REAL *v, const stencil *st, int64_t z,
                                int64_t y, int64_t x, int64_t s) {
    const int64_t p[3] = {z, y, x}, at = z * g->stride[0] + y * g->stride[1] + x;
    REAL sums[MAX_GROUPS], near = 0;
    int counts[MAX_GROUPS], rest = UNIT;
    for (int k = 0; k < st->groups; k++) {
        counts[k] = 0;
        if (!st->weight[k]) continue;
        sums[k] = 0;
        for (int t = 0; t < st->g[k].count; t++) {
            const int *o = st->g[k].off[t];
            int64_t j = at;
            int inside = 1;
            for (int d = 0; d < 3; d++) {
                const int64_t c = p[d] + o[d] * s;
                inside &= c >= 0 && c < g->n[d];
                j += o[d] * s * g->stride[d];
            }
            if (inside) { sums[k] += v[j]; counts[k]++; }
        }
        if (counts[k]) rest -= st->weight[k];
    }
    for (int i = 0; i < st->num_odd; i++) {
        const int d = st->odd[i];
        const REAL left = v[at - s * g->stride[d]];
        near += left;
        near += p[d] + s < g->n[d] ? v[at + s * g->stride[d]] : left;
    }
    REAL sum = NAME(share)(rest, 2 * st->num_odd) * near;
    for (int k = 0; k < st->groups; k++)
        if (counts[k]) sum += NAME(share)(st->weight[k], counts[k]) * sums[k];
    return sum;
}

/* ---- rows: points [from, to) of a row, whose neighbours along x are all inside ---- */
enum { NAME(BLOCK) = 256 };
typedef struct { int count; int64_t off[MAX_TAPS]; REAL share; } NAME(term);
typedef struct { NAME(term) near, t[MAX_GROUPS], causal; int terms, reach; } NAME(row_plan);

static inline __attribute__((always_inline)) void NAME(add_term_by)(
    REAL *restrict p, const REAL *restrict v, const NAME(term) *t, int count, int num, int64_t step) {
    const REAL *a[MAX_TAPS];
    for (int j = 0; j < count; j++) a[j] = v + t->off[j];
    for (int i = 0; i < num; i++) {
        REAL sum = a[0][i * step];
        for (int j = 1; j < count; j++) sum += a[j][i * step];
        p[i] += t->share * sum;
    }
}
static void NAME(add_term)(REAL *restrict p, const REAL *restrict v, const NAME(term) *t, int num,
                           int64_t step) {
#define WITH(n) \
    case n: if (step == 2) NAME(add_term_by)(p, v, t, n, num, 2); \
            else NAME(add_term_by)(p, v, t, n, num, step); \
            break;
    switch (t->count) { WITH(1) WITH(2) WITH(3) WITH(4) WITH(5) WITH(6) WITH(7) WITH(8) }
#undef WITH
}

/* What is inside of the neighbours of the points of a row, seen from z and y alone. */
static void NAME(plan_row)(NAME(row_plan) *plan, const grid *g, const stencil *st, int64_t z,
                           int64_t y, int64_t s) {
    const int64_t p[2] = {z, y};
    int rest = UNIT;
    memset(plan, 0, sizeof *plan);
    for (int k = 0; k < st->groups; k++) {
        NAME(term) *t = &plan->t[plan->terms];
        if (!st->weight[k]) continue;
        t->count = 0;
        for (int i = 0; i < st->g[k].count; i++) {
            const int *o = st->g[k].off[i];
            int inside = 1;
            for (int d = 0; d < 2; d++) {
                const int64_t c = p[d] + o[d] * s;
                inside &= c >= 0 && c < g->n[d];
            }
            if (!inside) continue;
            t->off[t->count++] = s * (o[0] * g->stride[0] + o[1] * g->stride[1] + o[2]);
            if (abs(o[2]) > plan->reach) plan->reach = abs(o[2]);
        }
        if (!t->count) continue;
        rest -= st->weight[k];
        t->share = NAME(share)(st->weight[k], t->count);
        const int *o = st->g[k].off[0];
        if (st->g[k].causal && o[2]) plan->causal = *t;
        else plan->terms++;
    }
    for (int i = 0; i < st->num_odd; i++) {
        const int d = st->odd[i];
        const int64_t step = s * g->stride[d];
        plan->near.off[plan->near.count++] = -step;
        plan->near.off[plan->near.count++] = d == 2 || p[d] + s < g->n[d] ? step : -step;
        if (d == 2 && !plan->reach) plan->reach = 1;
    }
    plan->near.share = NAME(share)(rest, 2 * st->num_odd);
}

/* ---- quantisation ---- */
typedef struct {
    grid g;
    const REAL *values;         /* what is encoded, NULL when decoding */
    const uint8_t *mask;        /* points that are not coded; may be NULL */
    REAL *decoded;
    int32_t *q;
    double bound;
    REAL *escaped;              /* values that are stored as they are, in the order of the scan */
    int64_t num_escaped, max_escaped;
    int bad;
} NAME(state);

static REAL NAME(settle)(NAME(state) *f, int64_t i, REAL p, double step, double inverse) {
    if (f->mask && f->mask[i]) { f->q[i] = 0; return p; }
    if (!f->values) {
        if (f->q[i] != SCK_ESCAPE && f->q[i] != -SCK_ESCAPE)
            return (REAL)((double)p + (double)f->q[i] * step);
        if (f->num_escaped < f->max_escaped) return f->escaped[f->num_escaped++];
        f->bad = 1;
        return 0;
    }
    const double value = f->values[i], wanted = (value - (double)p) * inverse;
    if (fabs(wanted) < SCK_ESCAPE / 2) {
        /* Rounding to REAL may break the bound by an ulp; the next integer may well keep it. */
        const double near = rint(wanted), other = near + (wanted > near ? 1 : -1);
        const REAL v = (REAL)((double)p + near * step), w = (REAL)((double)p + other * step);
        if (fabs((double)v - value) <= f->bound) { f->q[i] = (int32_t)near; return v; }
        if (fabs((double)w - value) <= f->bound) { f->q[i] = (int32_t)other; return w; }
    }
    f->q[i] = SCK_ESCAPE;
    f->escaped[f->num_escaped++] = f->values[i];
    return f->values[i];
}

/* A run of points that were predicted independently of each other. */
static void NAME(settle_run)(NAME(state) *f, int64_t at, const REAL *restrict p, int num,
                             int64_t move, double step, double inverse) {
    int plain = !f->mask;
    if (plain && f->values) {
        const REAL *restrict a = f->values + at;
        REAL *restrict out = f->decoded + at;
        int32_t *restrict q = f->q + at;
        int good = 1;
        for (int i = 0; i < num; i++) {
            const double value = a[i * move], w = rint((value - (double)p[i]) * inverse);
            const double c = w < -(1 << 28) ? -(1 << 28) : w > 1 << 28 ? 1 << 28 : w;
            const REAL v = (REAL)((double)p[i] + c * step);
            q[i * move] = (int32_t)c;
            out[i * move] = v;
            good &= fabs((double)v - value) <= f->bound;
        }
        if (good) return;
    } else if (plain) {
        REAL *restrict out = f->decoded + at;
        const int32_t *restrict q = f->q + at;
        int good = 1;
        for (int i = 0; i < num; i++) {
            const int32_t k = q[i * move];
            out[i * move] = (REAL)((double)p[i] + (double)k * step);
            good &= k < SCK_ESCAPE && k > -SCK_ESCAPE;
        }
        if (good) return;
    }
    for (int i = 0; i < num; i++)
        f->decoded[at + i * move] = NAME(settle)(f, at + i * move, p[i], step, inverse);
}

static void NAME(code_row)(NAME(state) *f, const stencil *st, int64_t z, int64_t y, int64_t x0,
                           int64_t s, double step) {
    const grid *g = &f->g;
    const int64_t row = z * g->stride[0] + y * g->stride[1], move = 2 * s;
    const double inverse = 1 / step;
    NAME(row_plan) plan;
    NAME(plan_row)(&plan, g, st, z, y, s);
    const int64_t reach = plan.reach * s;
    int64_t x = x0;
    for (; x < g->n[2] && x < reach; x += move)
        f->decoded[row + x] = NAME(settle)(f, row + x,
            NAME(predict_point)(g, f->decoded, st, z, y, x, s), step, inverse);
    while (x + reach < g->n[2]) {
        REAL p[NAME(BLOCK)];
        int64_t left = (g->n[2] - reach - x + move - 1) / move;
        const int num = left < NAME(BLOCK) ? (int)left : NAME(BLOCK);
        const REAL *v = f->decoded + row + x;
        memset(p, 0, sizeof p[0] * (size_t)num);
        NAME(add_term)(p, v, &plan.near, num, move);
        for (int k = 0; k < plan.terms; k++) NAME(add_term)(p, v, &plan.t[k], num, move);
        if (plan.causal.count) {
            for (int i = 0; i < num; i++) {
                const int64_t at = row + x + i * move;
                const REAL c = plan.causal.share * f->decoded[at + plan.causal.off[0]];
                f->decoded[at] = NAME(settle)(f, at, p[i] + c, step, inverse);
            }
        } else {
            NAME(settle_run)(f, row + x, p, num, move, step, inverse);
        }
        x += num * move;
    }
    for (; x < g->n[2]; x += move)
        f->decoded[row + x] = NAME(settle)(f, row + x,
            NAME(predict_point)(g, f->decoded, st, z, y, x, s), step, inverse);
}

static void NAME(code_class)(NAME(state) *f, const stencil *st, int cls, int64_t s, double step) {
    if (!cls) {  /* the one point at the origin of the coarsest level */
        f->decoded[0] = NAME(settle)(f, 0, 0, step, 1 / step);
        return;
    }
    for (int64_t z = first(cls, 0, s); z < f->g.n[0]; z += 2 * s)
        for (int64_t y = first(cls, 1, s); y < f->g.n[1]; y += 2 * s)
            NAME(code_row)(f, st, z, y, first(cls, 2, s), s, step);
}

/* ---- weights, fitted by the encoder to what the decoder will see ---- */
enum { NAME(SAMPLES) = 6000, NAME(ROUNDS) = 3 };
typedef struct { int groups, num; double *v, *target; double noise[MAX_GROUPS]; } NAME(samples);

static int NAME(take_samples)(NAME(samples) *out, const NAME(state) *f, const stencil *st, int cls,
                              int64_t s, double eb) {
    const grid *g = &f->g;
    const int64_t points = points_of(g, cls, s), every = points / NAME(SAMPLES) + 1;
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
            const int64_t at = z * g->stride[0] + y * g->stride[1] + x;
            int inside = !(f->mask && f->mask[at]);
            for (int d = 0; d < 3 && inside; d++)
                inside = g->n[d] == 1 || (p[d] >= 3 * s && p[d] + 3 * s < g->n[d]);
            if (!inside) continue;
            double m = 0, *row = out->v + (int64_t)out->num * st->groups;
            for (int i = 0; i < st->num_odd; i++) {
                const int64_t o = s * g->stride[st->odd[i]];
                m += .5 * ((double)f->decoded[at - o] + (double)f->decoded[at + o]);
            }
            m /= st->num_odd;
            for (int k = 0; k < st->groups; k++) {
                const REAL *from = st->g[k].causal ? f->values : f->decoded;
                double sum = 0;
                for (int t = 0; t < st->g[k].count; t++) {
                    const int *o = st->g[k].off[t];
                    sum += from[at + s * (o[0] * g->stride[0] + o[1] * g->stride[1] + o[2])];
                }
                row[k] = sum / st->g[k].count - m;
            }
            out->target[out->num++] = (double)f->values[at] - m;
        }
        seen += nx;
    }
    return out->num;
}

/* About the bits that the residuals of the samples cost beyond zero. */
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

/* Least squares with the weights 1 / (r^2 + eb^2) of the residuals so far: less of log |r|. */
static int NAME(fit_round)(const NAME(samples) *s, const int *before, int *weight, double eb) {
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

/* Replace the cubic weights by fitted ones where they pay; returns whether they do. */
static int NAME(fit)(NAME(samples) *s, const NAME(state) *f, stencil *st, int cls, int64_t level,
                     double eb) {
    if (NAME(take_samples)(s, f, st, cls, level, eb) < 20 * st->groups) return 0;
    const double scale = (double)points_of(&f->g, cls, level) / s->num;
    double best = scale * NAME(cost_of)(s, st->weight, eb);
    int found = 0, weight[MAX_GROUPS], before[MAX_GROUPS];
    for (int round = 0; round < NAME(ROUNDS); round++) {
        if (!NAME(fit_round)(s, round ? before : NULL, weight, eb)) break;
        const double cost = scale * NAME(cost_of)(s, weight, eb) + 9.0 * st->groups;
        if (cost < best) {
            best = cost;
            found = 1;
            memcpy(st->weight, weight, sizeof weight);
        }
        memcpy(before, weight, sizeof weight);
    }
    return found;
}

/* ---- one field ---- */
enum { NAME(FITTED_POINTS) = 2000 };

/* All levels, by one pair of ALPHA and BETA; `w` takes (encoding) or `r` gives the weights. */
static void NAME(code_field)(NAME(state) *f, double inner, int pair, writer *w, reader *r,
                             NAME(samples) *samples) {
    const int64_t top = top_level(&f->g);
    double power = 1;
    for (int64_t s = 1; s < top; s *= 2) power *= ALPHA[pair];
    for (int64_t s = top; s >= 1; s /= 2, power /= ALPHA[pair])
        for (int o = s == top ? 0 : 1; o < 8; o++) {
            const int cls = ORDER[o];
            const int64_t points = points_of(&f->g, cls, s);
            const double eb = inner / (power < BETA[pair] ? power : BETA[pair]);
            stencil st;
            if (!points) continue;
            make_stencil(&st, &f->g, cls);
            cubic_weights(&st);
            if (cls && points >= NAME(FITTED_POINTS)) {
                if (w) {
                    const int fitted = NAME(fit)(samples, f, &st, cls, s, eb);
                    write_byte(w, fitted);
                    for (int k = 0; fitted && k < st.groups; k++) {
                        const int v = st.weight[k];
                        write_varint(w, (uint64_t)(v < 0 ? -2 * v - 1 : 2 * v));
                    }
                } else {
                    const int fitted = read_byte(r);
                    if (fitted > 1) r->bad = 1;
                    for (int k = 0; fitted && k < st.groups; k++) {
                        const uint64_t v = read_varint(r);
                        if (v > 2 * MAX_WEIGHT) r->bad = 1;
                        if (r->bad) return;
                        st.weight[k] = v & 1 ? -(int)(v / 2) - 1 : (int)(v / 2);
                    }
                    if (r->bad) return;
                }
            }
            NAME(code_class)(f, &st, cls, s, 2 * eb);
        }
}
