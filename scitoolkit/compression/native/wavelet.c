/* Wavelet codec `dyadic`: CDF 9/7 by lifting (Daubechies & Sweldens 1998), rate-distortion
 * quantiser, and the entropy coder of entropy.c. Included twice, like predict.c.
 */

#ifndef SCK_LIFT
#define SCK_LIFT
static const double LIFT[4] = {-1.586134342059924, -0.052980118572961, 0.882911075530934,
                               0.443506852043971};
static const double GAIN = 1.149604398860241;
#endif

/* Lifting step along an axis of `n` points: add c * (left + right) to points of parity `odd`. */
static void NAME(lift)(REAL *a, int64_t n, int64_t st, int64_t odd, double c, int64_t inner,
                             int64_t inner_st) {
    const REAL k = (REAL)c;
    for (int64_t i = odd; i < n; i += 2) {
        const REAL *l = a + (i > 0 ? i - 1 : i + 1 < n ? i + 1 : i) * st;
        const REAL *r = a + (i + 1 < n ? i + 1 : i - 1) * st;
        REAL *p = a + i * st;
        if (inner_st == 1)
            for (int64_t j = 0; j < inner; j++) p[j] += k * (l[j] + r[j]);
        else
            for (int64_t j = 0; j < inner * inner_st; j += inner_st) p[j] += k * (l[j] + r[j]);
    }
}
static void NAME(scale)(REAL *a, int64_t n, int64_t st, double even, double odd, int64_t inner,
                  int64_t inner_st) {
    for (int64_t i = 0; i < n; i++) {
        const REAL k = (REAL)(i & 1 ? odd : even);
        for (int64_t j = 0; j < inner * inner_st; j += inner_st) a[i * st + j] *= k;
    }
}
static void NAME(along)(REAL *a, int64_t n, int64_t st, int64_t inner, int64_t inner_st,
                        int inverse) {
    if (n < 2) return;
    if (!inverse) {
        for (int k = 0; k < 4; k++) NAME(lift)(a, n, st, !(k & 1), LIFT[k], inner, inner_st);
        NAME(scale)(a, n, st, GAIN, 1 / GAIN, inner, inner_st);
    } else {
        NAME(scale)(a, n, st, 1 / GAIN, GAIN, inner, inner_st);
        for (int k = 3; k >= 0; k--) NAME(lift)(a, n, st, !(k & 1), -LIFT[k], inner, inner_st);
    }
}
void NAME(sck_wavelet)(const int64_t *shape, REAL *a, int64_t inverse) {
    const int64_t n0 = shape[0], n1 = shape[1], n2 = shape[2];
    int64_t top = 1;
    while (2 * top < n0 || 2 * top < n1 || 2 * top < n2) top *= 2;
    for (int64_t s = inverse ? top : 1; inverse ? s >= 1 : s <= top; s = inverse ? s / 2 : s * 2) {
        const int64_t m0 = (n0 + s - 1) / s, m1 = (n1 + s - 1) / s, m2 = (n2 + s - 1) / s;
        const int64_t sz = n1 * n2 * s, sy = n2 * s;
        for (int pass = 0; pass < 3; pass++) {
            const int axis = inverse ? pass : 2 - pass;
            if (axis == 0)
                for (int64_t y = 0; y < m1; y++) NAME(along)(a + y * sy, m0, sz, m2, s, (int)inverse);
            else if (axis == 1)
                for (int64_t z = 0; z < m0; z++) NAME(along)(a + z * sz, m1, sy, m2, s, (int)inverse);
            else
                for (int64_t z = 0; z < m0; z++)
                    for (int64_t y = 0; y < m1; y++)
                        NAME(along)(a + z * sz + y * sy, m2, s, 1, 1, (int)inverse);
        }
    }
}

/* ---- quantisation of coefficients ---- */
void NAME(sck_dequantise)(int64_t count, const int32_t *q, REAL *out, double step,
                           double one, double more) {
    for (int64_t i = 0; i < count; i++) {
        const double m = q[i] < 0 ? -(double)q[i] : (double)q[i];
        const double v = m == 0 ? 0 : (m - (m == 1 ? one : more)) * step;
        out[i] = (REAL)(q[i] < 0 ? -v : v);
    }
}
/* sums: of (m - |wanted|) and count, for magnitude 1 and for larger magnitudes */
void NAME(sck_centroids)(int64_t count, const REAL *wanted, const int32_t *q,
                          double *sums) {
    for (int64_t i = 0; i < count; i++) {
        if (!q[i]) continue;
        const double m = q[i] < 0 ? -(double)q[i] : (double)q[i];
        const int k = m == 1 ? 0 : 2;
        sums[k] += m - fabs((double)wanted[i]);
        sums[k + 1] += 1;
    }
}

/* Rate-distortion quantiser: one step towards zero if the saved bits are worth the error. */
static int32_t NAME(quantised)(const void *wanted, int64_t i, double weight, int dot) {
    const double value = ((const REAL *)wanted)[i], size = fabs(value);
    int32_t q = (int32_t)(size + 0.5);
    if (q == 1 && weight > 0) {
        const double bits = dot * (-1.4426950408889634 / 256) + 1.3;
        if (2 * size - 1 < weight * bits) q = 0;
    } else if (q > 1 && weight > 0) {
        const double off = size - (q - 1);
        if (off * off - (off - 1) * (off - 1) < weight * 1.1) q--;
    }
    return value < 0 ? -q : q;
}

/* Code the coefficients `wanted`, in units of the step, or decode if NULL; `q` receives the
 * integers. Return the bytes written or read, or a negative SCK_ code. */
int64_t NAME(sck_scan)(const int64_t *shape, const REAL *wanted, int32_t *q, double weight,
                       uint8_t *buf, int64_t cap) {
    const grid g = grid_of(shape);
    const quantiser choose = {NAME(quantised), wanted, weight};
    const mixing m = {&smooth, 30, wanted ? &choose : NULL};
    return code_integers(&g, NULL, q, buf, cap, m, 0, !wanted);
}
