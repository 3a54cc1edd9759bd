"""C source of the linear enhancer: features of a row, normal equations, application.

Compiled without floating-point contraction and with a fixed order of operations, so that all IEEE
machines compute the same bits.
"""

SOURCE = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>

enum { TAPS = 10, WIDE = 12, MAX_CLASSES = 16 };

static inline int64_t inside(int64_t i, int64_t n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }

/* Features: sums of neighbours at equal distance minus the centre times their number; edges are
   replicated. */
static void features(const REAL *a, const int64_t *n, int64_t z, int64_t y, REAL scale,
                     REAL *restrict f, REAL *restrict pad) {
    static const int dz[13] = {0, -1, 1, 0, 0, -1, -1, 1, 1, -2, 2, 0, 0};
    static const int dy[13] = {0, 0, 0, -1, 1, -1, 1, -1, 1, 0, 0, -2, 2};
    const int64_t w = n[2], p = w + 4;
    for (int r = 0; r < 13; r++) {
        const REAL *row = a + (inside(z + dz[r], n[0]) * n[1] + inside(y + dy[r], n[1])) * w;
        REAL *to = pad + r * p;
        memcpy(to + 2, row, (size_t)w * sizeof(REAL));
        to[0] = to[1] = row[0];
        to[w + 2] = to[w + 3] = row[w - 1];
    }
    const REAL *c = pad + 2, *z0 = c + p, *z1 = c + 2 * p, *y0 = c + 3 * p, *y1 = c + 4 * p;
    const REAL *k0 = c + 5 * p, *k1 = c + 6 * p, *k2 = c + 7 * p, *k3 = c + 8 * p;
    const REAL *zz0 = c + 9 * p, *zz1 = c + 10 * p, *yy0 = c + 11 * p, *yy1 = c + 12 * p;
    for (int64_t x = 0; x < w; x++) {
        const REAL m = c[x], m2 = 2 * m, m4 = 4 * m;
        f[x] = (c[x - 1] + c[x + 1] - m2) * scale;
        f[w + x] = (y0[x] + y1[x] - m2) * scale;
        f[2 * w + x] = (z0[x] + z1[x] - m2) * scale;
        f[3 * w + x] = (y0[x - 1] + y0[x + 1] + y1[x - 1] + y1[x + 1] - m4) * scale;
        f[4 * w + x] = (z0[x - 1] + z0[x + 1] + z1[x - 1] + z1[x + 1] - m4) * scale;
        f[5 * w + x] = (k0[x] + k1[x] + k2[x] + k3[x] - m4) * scale;
        f[6 * w + x] = (k0[x - 1] + k0[x + 1] + k1[x - 1] + k1[x + 1] + k2[x - 1] + k2[x + 1]
                        + k3[x - 1] + k3[x + 1] - 2 * m4) * scale;
        f[7 * w + x] = (c[x - 2] + c[x + 2] - m2) * scale;
        f[8 * w + x] = (yy0[x] + yy1[x] - m2) * scale;
        f[9 * w + x] = (zz0[x] + zz1[x] - m2) * scale;
    }
}

/* Class of each point of a row: the number of limits that its value or activity reaches. */
static void classify(const REAL *restrict c, const REAL *restrict f, int64_t w, int activity,
                     const REAL *limits, int num, int32_t *restrict cls) {
    for (int64_t x = 0; x < w; x++) {
        const REAL a = f[x] < 0 ? -f[x] : f[x], b = f[w + x] < 0 ? -f[w + x] : f[w + x];
        const REAL d = f[2 * w + x] < 0 ? -f[2 * w + x] : f[2 * w + x];
        const REAL v = activity ? a + b + d : c[x];
        int32_t k = 0;
        for (int i = 0; i < num; i++) k += v >= limits[i];
        cls[x] = k;
    }
}

/* sums[class][TAPS][WIDE]: products of features with features and, at column TAPS, the target. */
int64_t linear_accumulate(const int64_t *n, const REAL *decoded, const REAL *original, double scale,
                          int64_t activity, const REAL *limits, int64_t num, int64_t stride,
                          double *sums) {
    const int64_t w = n[2];
    REAL *f = malloc(sizeof(REAL) * (size_t)(TAPS * w + 13 * (w + 4)));
    int32_t *cls = malloc(sizeof(int32_t) * (size_t)w);
    if (!f || !cls) { free(f); free(cls); return -1; }
    const REAL s = (REAL)scale;
    for (int64_t row = 0; row < n[0] * n[1]; row += stride) {
        const REAL *c = decoded + row * w, *o = original + row * w;
        features(decoded, n, row / n[1], row % n[1], s, f, f + TAPS * w);
        classify(c, f, w, (int)activity, limits, (int)num, cls);
        float part[MAX_CLASSES][TAPS][WIDE];
        memset(part, 0, sizeof(float) * (size_t)((num + 1) * TAPS * WIDE));
        for (int64_t x = 0; x < w; x++) {
            float v[WIDE] = {0};
            for (int i = 0; i < TAPS; i++) v[i] = (float)f[i * w + x];
            v[TAPS] = (float)((o[x] - c[x]) * s);
            float (*p)[WIDE] = part[cls[x]];
            for (int i = 0; i < TAPS; i++)
                for (int j = 0; j < WIDE; j++) p[i][j] += v[i] * v[j];
        }
        const float *from = &part[0][0][0];
        for (int64_t i = 0; i < (num + 1) * TAPS * WIDE; i++) sums[i] += from[i];
    }
    free(f); free(cls);
    return 0;
}

/* out = decoded + correction, the correction clipped to +-clip. */
int64_t linear_apply(const int64_t *n, const REAL *decoded, double scale, int64_t activity,
                     const REAL *limits, int64_t num, const REAL *taps, double clip, REAL *out) {
    const int64_t w = n[2];
    REAL *f = malloc(sizeof(REAL) * (size_t)(TAPS * w + 13 * (w + 4)));
    int32_t *cls = malloc(sizeof(int32_t) * (size_t)w);
    if (!f || !cls) { free(f); free(cls); return -1; }
    const REAL s = (REAL)scale, unit = (REAL)(1 / scale), top = (REAL)(clip * scale);
    for (int64_t row = 0; row < n[0] * n[1]; row++) {
        const REAL *c = decoded + row * w;
        REAL *to = out + row * w;
        features(decoded, n, row / n[1], row % n[1], s, f, f + TAPS * w);
        classify(c, f, w, (int)activity, limits, (int)num, cls);
        /* Evaluates all classes at every point and selects one: faster than gathering taps. */
        for (int64_t k = 0; k <= num; k++) {
            const REAL *t = taps + k * TAPS;
            for (int64_t x = 0; x < w; x++) {
                REAL sum = 0;
                for (int i = 0; i < TAPS; i++) sum += t[i] * f[i * w + x];
                sum = sum > top ? top : sum < -top ? -top : sum;
                const REAL corrected = c[x] + sum * unit;
                to[x] = cls[x] == (int32_t)k ? corrected : to[x];
            }
        }
    }
    free(f); free(cls);
    return 0;
}

/* Largest |x - y| in double; a NaN difference counts as infinite. */
double linear_max_error(int64_t count, const REAL *x, const REAL *y) {
    double most[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int j = 0; j < 8; j++) {
            const double d = fabs((double)x[i + j] - (double)y[i + j]);
            most[j] = d > most[j] || d != d ? (d == d ? d : INFINITY) : most[j];
        }
    for (; i < count; i++) {
        const double d = fabs((double)x[i] - (double)y[i]);
        most[0] = d > most[0] || d != d ? (d == d ? d : INFINITY) : most[0];
    }
    for (int j = 1; j < 8; j++) most[0] = most[j] > most[0] ? most[j] : most[0];
    return most[0];
}
"""
