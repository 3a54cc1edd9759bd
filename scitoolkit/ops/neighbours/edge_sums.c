/* Edge vectors of positions; forces and virials of gradients with respect to edge vectors. */
#include <stdint.h>
void edge_vectors(int64_t edges, const int64_t *index, const double *positions,
                  const double *shift, double *out) {
  for (int64_t e = 0; e < edges; e++) {
    const double *a = positions + 3 * index[e], *b = positions + 3 * index[edges + e];
    for (int c = 0; c < 3; c++) out[3 * e + c] = b[c] - a[c] + shift[3 * e + c];
  }
}

void edge_sums(int64_t edges, const int64_t *index, const int64_t *frame, const double *vectors,
               const double *gradient, double *force, double *virial) {
  for (int64_t e = 0; e < edges; e++) {
    int64_t i = index[e], j = index[edges + e];
    const double *g = gradient + 3 * e, *v = vectors + 3 * e;
    double *w = virial + 9 * frame[i];
    for (int c = 0; c < 3; c++) {
      force[3 * i + c] += g[c];
      force[3 * j + c] -= g[c];
      for (int d = 0; d < 3; d++) w[3 * c + d] -= v[c] * g[d];
    }
  }
}
