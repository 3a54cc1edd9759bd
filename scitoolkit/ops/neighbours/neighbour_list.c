/* Neighbour list by cell lists: atoms are sorted into bins by type, and the bins around each centre
are searched.

Bins are about half a cutoff wide. Along periodic directions bins repeat, so that cells smaller than
the cutoff include their images; along the others bins cover the extent of the atoms. The atoms of a
bin are sorted by type, and the loop over types is the outer one, so the edges of a centre are
grouped by type without a sort.

Threads search the centres of a few bins at a time and store edges in a compact form. After all
edges are counted, each is written to its final position. The list is therefore the same for any
number of threads.
*/

#include <stdint.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>

typedef struct { int64_t number[3], reach[3]; double low[3], width[3]; } grid;

/* Input of the search: atoms sorted by bin and type. */
typedef struct {
  grid g;
  int64_t atoms, types, around;
  const int64_t *bin, *start, *order, *wrap, *periodic;
  const double *x, *cell;
  double limit;
} sorted_atoms;

/* The nonempty bins around a centre. */
typedef struct { int64_t *bin, *image; double *move; } nearby;

/* An edge: index of the neighbour in `x`, and index of its bin among those around the centre. */
typedef struct { int32_t place, near; } short_edge;

enum { CENTRES = 64 }; /* per task */

/* Consecutive centres in `x`, searched by one thread. */
typedef struct {
  int64_t number, room;
  short_edge *edges;
  double square; /* of the closest pair's distance */
  int64_t one, other;
} task;

static inline int64_t floor_div(int64_t a, int64_t b) {
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}

static int64_t bins_around(const sorted_atoms *s, int64_t i, nearby *near) {
  const grid *g = &s->g;
  const int64_t home[3] = {s->bin[i] / (g->number[1] * g->number[2]),
                           s->bin[i] / g->number[2] % g->number[1], s->bin[i] % g->number[2]};
  int64_t many = 0;
  for (int64_t a = -g->reach[0]; a <= g->reach[0]; a++)
    for (int64_t b = -g->reach[1]; b <= g->reach[1]; b++)
      for (int64_t c = -g->reach[2]; c <= g->reach[2]; c++) {
        int64_t off[3] = {a, b, c}, index = 0, image[3];
        int inside = 1;
        for (int d = 0; d < 3; d++) {
          int64_t k = home[d] + off[d];
          image[d] = floor_div(k, g->number[d]);
          if (image[d] && !s->periodic[d]) inside = 0;
          index = index * g->number[d] + (k - image[d] * g->number[d]);
        }
        if (!inside || s->start[index * s->types] == s->start[(index + 1) * s->types]) continue;
        near->bin[many] = index;
        for (int e = 0; e < 3; e++) {
          near->image[3 * many + e] = image[e];
          near->move[3 * many + e] =
            image[0] * s->cell[e] + image[1] * s->cell[3 + e] + image[2] * s->cell[6 + e];
        }
        many++;
      }
  return many;
}

/* Find the edges of a task's centres; their numbers are written to `counts` (atoms, types). */
static void search(const sorted_atoms *s, int64_t first, nearby *near, task *found,
                   int64_t *counts) {
  int64_t many = 0, last = first + CENTRES < s->atoms ? first + CENTRES : s->atoms;
  for (int64_t place = first; place < last; place++) {
    const int64_t i = s->order[place];
    const double *own = s->x + 3 * place;
    if (place == first || s->bin[i] != s->bin[s->order[place - 1]]) many = bins_around(s, i, near);
    for (int64_t t = 0; t < s->types; t++) {
      const int64_t before = found->number;
      for (int64_t k = 0; k < many; k++) {
        const double *move = near->move + 3 * k;
        const int64_t *image = near->image + 3 * k, *bin = s->start + near->bin[k] * s->types + t;
        const double ox = own[0] - move[0], oy = own[1] - move[1], oz = own[2] - move[2];
        const int self = !image[0] && !image[1] && !image[2];
        if (found->number + bin[1] - bin[0] > found->room) {
          found->room = 2 * (found->number + bin[1] - bin[0]) + 32 * CENTRES;
          found->edges = realloc(found->edges, sizeof(short_edge) * found->room);
        }
        for (int64_t p = bin[0]; p < bin[1]; p++) {
          const double dx = s->x[3 * p] - ox, dy = s->x[3 * p + 1] - oy, dz = s->x[3 * p + 2] - oz;
          const double square = dx * dx + dy * dy + dz * dz;
          if (square >= s->limit || (self && p == place)) continue;
          found->edges[found->number++] = (short_edge){(int32_t)p, (int32_t)k};
          if (square < found->square || (square == found->square && i < found->one))
            found->square = square, found->one = i, found->other = s->order[p];
        }
      }
      counts[i * s->types + t] = found->number - before;
    }
  }
}

/* Write a task's edges to the positions given by `segments`. */
static void expand(const sorted_atoms *s, int64_t first, nearby *near, const task *found,
                   const int64_t *segments, int64_t *centre, int64_t *neighbour, double *shift) {
  const short_edge *edge = found->edges;
  const int64_t last = first + CENTRES < s->atoms ? first + CENTRES : s->atoms;
  for (int64_t place = first; place < last; place++) {
    const int64_t i = s->order[place];
    if (place == first || s->bin[i] != s->bin[s->order[place - 1]]) bins_around(s, i, near);
    for (int64_t at = segments[i * s->types]; at < segments[(i + 1) * s->types]; at++, edge++) {
      const int64_t j = s->order[edge->place], *image = near->image + 3 * edge->near;
      centre[at] = i;
      neighbour[at] = j;
      for (int e = 0; e < 3; e++) {
        double v = 0;
        for (int d = 0; d < 3; d++)
          v += (image[d] + s->wrap[3 * i + d] - s->wrap[3 * j + d]) * s->cell[3 * d + e];
        shift[3 * at + e] = v;
      }
    }
  }
}

/* Return the number of edges, which are written if there are at most `capacity`. `inverse` is the
   inverse of the cell (rows are lattice vectors), `height` are the distances between its opposite
   faces. `closest` receives the distance and the atoms of the closest pair. */
int64_t neighbour_list(int64_t atoms, int64_t types, const double *positions, const int64_t *kind,
                       const double *cell, const double *inverse, const double *height,
                       const int64_t *periodic, const double *cutoff_, int64_t capacity,
                       int64_t *centre, int64_t *neighbour, double *shift, int64_t *segments,
                       double *closest, int64_t threads) {
  double cutoff = *cutoff_;
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
  int64_t around = 1;
  for (int d = 0; d < 3; d++) around *= 2 * g.reach[d] + 1;
  const sorted_atoms sorted = {g, atoms, types, around, bin, start, order, wrap, periodic, x, cell,
                               cutoff * cutoff};
  const int64_t tasks = (atoms + CENTRES - 1) / CENTRES;
  task *found = calloc(tasks + 1, sizeof(task));
  int64_t edges = 0;
  #pragma omp parallel num_threads(threads) if(tasks > 1)
  {
    nearby near = {malloc(sizeof(int64_t) * around), malloc(sizeof(int64_t) * 3 * around),
                   malloc(sizeof(double) * 3 * around)};
    #pragma omp for schedule(dynamic, 1)
    for (int64_t t = 0; t < tasks; t++) {
      found[t].square = INFINITY;
      search(&sorted, t * CENTRES, &near, found + t, segments);
    }
    #pragma omp single
    {
      for (int64_t k = 0; k < atoms * types; k++) {
        const int64_t number = segments[k];
        segments[k] = edges;
        edges += number;
      }
      segments[atoms * types] = edges;
    }
    if (edges <= capacity) {
      #pragma omp for schedule(dynamic, 1)
      for (int64_t t = 0; t < tasks; t++)
        expand(&sorted, t * CENTRES, &near, found + t, segments, centre, neighbour, shift);
    }
    free(near.bin); free(near.image); free(near.move);
  }
  task least = {.square = INFINITY};
  for (int64_t t = 0; t < tasks; t++) {
    if (found[t].square < least.square ||
        (found[t].square == least.square && found[t].one < least.one))
      least = found[t];
    free(found[t].edges);
  }
  closest[0] = sqrt(least.square), closest[1] = least.one, closest[2] = least.other;
  free(fraction); free(wrap); free(bin); free(start); free(fill); free(order); free(x);
  free(found);
  return edges;
}
