/* The neighbour list: atoms sorted into bins by type, bins around a centre searched.

Bins are about half a cutoff wide. Along a periodic direction bins repeat, so a small cell meets
its own images; along the others they cover the atoms' extent. Atoms of a bin are stored by type,
and types are the outer loop, so a centre's edges come out grouped by type without sorting.
*/

#include <stdint.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>

typedef struct { int64_t number[3], reach[3]; double low[3], width[3]; } grid;

static inline int64_t floor_div(int64_t a, int64_t b) {
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}

/* Returns the number of edges, of which at most `capacity` are written. `inverse` is the inverse of
   the cell (rows are lattice vectors), `height` the distances between its opposite faces. */
int64_t neighbour_list(int64_t atoms, int64_t types, const double *positions, const int64_t *kind,
                       const double *cell, const double *inverse, const double *height,
                       const int64_t *periodic, const double *cutoff_, int64_t capacity,
                       int64_t *centre, int64_t *neighbour, double *shift, int64_t *segments,
                       double *closest) {
  double cutoff = *cutoff_, limit = cutoff * cutoff, least = INFINITY;
  double *fraction = malloc(sizeof(double) * 3 * (atoms + 1));
  int64_t *wrap = malloc(sizeof(int64_t) * 3 * (atoms + 1));
  int64_t *bin = malloc(sizeof(int64_t) * (atoms + 1));
  grid g;
  double high[3];
  for (int d = 0; d < 3; d++) { g.low[d] = INFINITY; high[d] = -INFINITY; }
  for (int64_t i = 0; i < atoms; i++)
    for (int d = 0; d < 3; d++) {
      double f = 0;
      for (int c = 0; c < 3; c++) f += positions[3 * i + c] * inverse[3 * c + d];
      double w = periodic[d] ? floor(f) : 0;
      f -= w;
      if (periodic[d] && f >= 1) { f -= 1; w += 1; }
      fraction[3 * i + d] = f;
      wrap[3 * i + d] = (int64_t)w;
      if (f < g.low[d]) g.low[d] = f;
      if (f > high[d]) high[d] = f;
    }
  int64_t bins = 1, most = (int64_t)(8 * pow(atoms + 1.0, 1.0 / 3)) + 8;
  for (int d = 0; d < 3; d++) {
    double extent = periodic[d] ? 1 : high[d] - g.low[d] + 1e-9;
    if (periodic[d]) g.low[d] = 0;
    int64_t number = (int64_t)floor(2 * extent * height[d] / cutoff);
    g.number[d] = number < 1 ? 1 : number > most ? most : number;
    g.width[d] = extent / g.number[d];
    g.reach[d] = (int64_t)ceil(cutoff / (g.width[d] * height[d]) - 1e-12);
    if (!periodic[d] && g.reach[d] >= g.number[d]) g.reach[d] = g.number[d] - 1;
    bins *= g.number[d];
  }
  int64_t *start = calloc(bins * types + 1, sizeof(int64_t));
  for (int64_t i = 0; i < atoms; i++) {
    int64_t b = 0;
    for (int d = 0; d < 3; d++) {
      int64_t k = (int64_t)((fraction[3 * i + d] - g.low[d]) / g.width[d]);
      if (k >= g.number[d]) k = g.number[d] - 1;
      if (k < 0) k = 0;
      b = b * g.number[d] + k;
    }
    bin[i] = b;
    start[b * types + kind[i] + 1]++;
  }
  for (int64_t k = 0; k < bins * types; k++) start[k + 1] += start[k];
  int64_t *fill = malloc(sizeof(int64_t) * (bins * types + 1));
  int64_t *order = malloc(sizeof(int64_t) * (atoms + 1));
  double *x = malloc(sizeof(double) * 3 * (atoms + 1)); /* wrapped, by bin and type */
  memcpy(fill, start, sizeof(int64_t) * bins * types);
  for (int64_t i = 0; i < atoms; i++) {
    int64_t at = fill[bin[i] * types + kind[i]]++;
    order[at] = i;
    for (int c = 0; c < 3; c++) {
      double v = positions[3 * i + c];
      for (int d = 0; d < 3; d++) v -= wrap[3 * i + d] * cell[3 * d + c];
      x[3 * at + c] = v;
    }
  }
  /* Places of the atoms in `x`, to know a centre's own wrapped position. */
  int64_t *place = malloc(sizeof(int64_t) * (atoms + 1));
  for (int64_t k = 0; k < atoms; k++) place[order[k]] = k;
  int64_t around = 1;
  for (int d = 0; d < 3; d++) around *= 2 * g.reach[d] + 1;
  int64_t *near = malloc(sizeof(int64_t) * around), *image = malloc(sizeof(int64_t) * 3 * around);
  double *move = malloc(sizeof(double) * 3 * around);
  int64_t edges = 0;
  for (int64_t i = 0; i < atoms; i++) {
    int64_t home[3] = {bin[i] / (g.number[1] * g.number[2]), bin[i] / g.number[2] % g.number[1],
                       bin[i] % g.number[2]}, many = 0;
    const double *own = x + 3 * place[i];
    for (int64_t a = -g.reach[0]; a <= g.reach[0]; a++)
      for (int64_t b = -g.reach[1]; b <= g.reach[1]; b++)
        for (int64_t c = -g.reach[2]; c <= g.reach[2]; c++) {
          int64_t off[3] = {a, b, c}, index = 0, s[3];
          int inside = 1;
          for (int d = 0; d < 3; d++) {
            int64_t k = home[d] + off[d];
            s[d] = floor_div(k, g.number[d]);
            if (s[d] && !periodic[d]) inside = 0;
            index = index * g.number[d] + (k - s[d] * g.number[d]);
          }
          if (!inside || start[index * types] == start[(index + 1) * types]) continue;
          near[many] = index;
          for (int e = 0; e < 3; e++) {
            image[3 * many + e] = s[e];
            move[3 * many + e] = s[0] * cell[e] + s[1] * cell[3 + e] + s[2] * cell[6 + e];
          }
          many++;
        }
    for (int64_t t = 0; t < types; t++) {
      segments[i * types + t] = edges;
      for (int64_t k = 0; k < many; k++) {
        double ox = own[0] - move[3 * k], oy = own[1] - move[3 * k + 1];
        double oz = own[2] - move[3 * k + 2];
        int self = !image[3 * k] && !image[3 * k + 1] && !image[3 * k + 2];
        for (int64_t p = start[near[k] * types + t]; p < start[near[k] * types + t + 1]; p++) {
          double dx = x[3 * p] - ox, dy = x[3 * p + 1] - oy, dz = x[3 * p + 2] - oz;
          double r2 = dx * dx + dy * dy + dz * dz;
          if (r2 >= limit || (self && order[p] == i)) continue;
          if (r2 < least) { least = r2; closest[1] = i; closest[2] = order[p]; }
          if (edges < capacity) {
            int64_t j = order[p];
            centre[edges] = i;
            neighbour[edges] = j;
            for (int e = 0; e < 3; e++) {
              double v = 0;
              for (int d = 0; d < 3; d++)
                v += (image[3 * k + d] + wrap[3 * i + d] - wrap[3 * j + d]) * cell[3 * d + e];
              shift[3 * edges + e] = v;
            }
          }
          edges++;
        }
      }
    }
  }
  segments[atoms * types] = edges;
  closest[0] = sqrt(least);
  free(fraction); free(wrap); free(bin); free(start); free(fill); free(order); free(x);
  free(place); free(near); free(image); free(move);
  return edges;
}
