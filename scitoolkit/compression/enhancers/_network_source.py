"""C source of the enhancer networks' inference: stencil, hidden layer and output, row by row.

Multiply-adds are explicit fused operations, which round identically with and without the
instruction; nothing else is contracted. All IEEE machines therefore compute the same bits.
"""

SOURCE = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { INPUTS = 32, ROWS = 13, MAX_HIDDEN = 64, BLOCK = 32 };

static inline int64_t inside(int64_t i, int64_t n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }

/* Differences to the 26 neighbours and to the six at distance two, in units of 1 / scale. */
static void stencil(const REAL *a, const int64_t *n, int64_t z, int64_t y, REAL scale,
                    REAL *restrict f, REAL *restrict pad) {
    static const int dz[ROWS] = {0, -1, -1, -1, 0, 0, 1, 1, 1, -2, 2, 0, 0};
    static const int dy[ROWS] = {0, -1, 0, 1, -1, 1, -1, 0, 1, 0, 0, -2, 2};
    const int64_t w = n[2], p = w + 4;
    for (int r = 0; r < ROWS; r++) {
        const REAL *row = a + (inside(z + dz[r], n[0]) * n[1] + inside(y + dy[r], n[1])) * w;
        REAL *to = pad + r * p;
        memcpy(to + 2, row, (size_t)w * sizeof(REAL));
        to[0] = to[1] = row[0];
        to[w + 2] = to[w + 3] = row[w - 1];
    }
    const REAL *c = pad + 2;
    int k = 0;
    for (int r = 0; r < ROWS; r++) {
        const int reach = r == 0 ? 2 : r < 9 ? 1 : 0;
        for (int dx = -reach; dx <= reach; dx++) {
            if (r == 0 && dx == 0) continue;
            const REAL *from = c + r * p + dx;
            REAL *to = f + k++ * w;
            for (int64_t x = 0; x < w; x++) to[x] = (from[x] - c[x]) * scale;
        }
    }
}

/* Stencils of all points of the given rows, for training: out[point][INPUTS]. */
int64_t network_gather(const int64_t *n, const REAL *a, double scale, int64_t num,
                       const int64_t *rows, float *out) {
    const int64_t w = n[2];
    REAL *f = malloc(sizeof(REAL) * (size_t)(INPUTS * w + ROWS * (w + 4)));
    if (!f) return -1;
    for (int64_t r = 0; r < num; r++) {
        stencil(a, n, rows[r] / n[1], rows[r] % n[1], (REAL)scale, f, f + INPUTS * w);
        for (int64_t x = 0; x < w; x++)
            for (int k = 0; k < INPUTS; k++) out[(r * w + x) * INPUTS + k] = (float)f[k * w + x];
    }
    free(f);
    return 0;
}

/* Per group: first[hidden][INPUTS], bias[hidden], second[hidden]. */
int64_t network_apply(const int64_t *n, const REAL *a, double scale, const REAL *limits,
                      int64_t groups, int64_t hidden, const REAL *first, const REAL *bias,
                      const REAL *second, double clip, REAL *out) {
    const int64_t w = n[2];
    REAL *f = malloc(sizeof(REAL) * (size_t)(INPUTS * w + ROWS * (w + 4) + w));
    if (!f) return -1;
    REAL *pad = f + INPUTS * w, *sum = pad + ROWS * (w + 4);
    const REAL one = (REAL)(1 / scale), top = (REAL)(clip * scale);
    for (int64_t row = 0; row < n[0] * n[1]; row++) {
        const REAL *c = a + row * w;
        REAL *to = out + row * w, least = c[0], most = c[0];
        stencil(a, n, row / n[1], row % n[1], (REAL)scale, f, pad);
        for (int64_t x = 0; x < w; x++) {
            least = c[x] < least ? c[x] : least;
            most = c[x] > most ? c[x] : most;
        }
        for (int64_t g = 0; g < groups; g++) {
            if ((g > 0 && most < limits[g - 1]) || (g + 1 < groups && least >= limits[g])) continue;
            const REAL *w1 = first + g * hidden * INPUTS, *b = bias + g * hidden;
            const REAL *w2 = second + g * hidden;
            /* Blocks with points innermost keep states in registers and loads contiguous. */
            for (int64_t start = 0; start < w; start += BLOCK) {
                const int m = w - start < BLOCK ? (int)(w - start) : BLOCK;
                REAL total[BLOCK] = {0}, in[INPUTS][BLOCK];
                for (int k = 0; k < INPUTS; k++)
                    for (int x = 0; x < BLOCK; x++)
                        in[k][x] = x < m ? f[k * w + start + x] : 0;
                for (int64_t h = 0; h < hidden; h++) {
                    REAL s[BLOCK];
                    for (int x = 0; x < BLOCK; x++) s[x] = b[h];
                    for (int k = 0; k < INPUTS; k++) {
                        const REAL weight = w1[h * INPUTS + k];
                        for (int x = 0; x < BLOCK; x++) s[x] = FUSED(weight, in[k][x], s[x]);
                    }
                    for (int x = 0; x < BLOCK; x++)
                        total[x] = FUSED(w2[h], s[x] > 0 ? s[x] : 0, total[x]);
                }
                for (int x = 0; x < m; x++) sum[start + x] = total[x];
            }
            for (int64_t x = 0; x < w; x++) {
                const int here = (g == 0 || c[x] >= limits[g - 1])
                    & (g + 1 == groups || c[x] < limits[g < groups - 1 ? g : 0]);
                const REAL s = sum[x] > top ? top : sum[x] < -top ? -top : sum[x];
                to[x] = here ? c[x] + s * one : to[x];
            }
        }
    }
    free(f);
    return 0;
}
"""
