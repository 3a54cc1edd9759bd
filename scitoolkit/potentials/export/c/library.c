/* Weights file, selection of the kernels' variant, and complete evaluation on one process. */
#include "stk_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- SHA-256 (FIPS 180-4) ---- */

typedef struct {
  uint32_t state[8];
  uint8_t block[64];
  uint64_t length;
} sha256;

static const uint32_t SHA_K[64] = {
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
  0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
  0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
  0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
  0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
  0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
  0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha_block(sha256 *s) {
  uint32_t w[64], v[8];
  for (int i = 0; i < 16; i++)
    w[i] = (uint32_t)s->block[4 * i] << 24 | s->block[4 * i + 1] << 16 | s->block[4 * i + 2] << 8 |
           s->block[4 * i + 3];
  for (int i = 16; i < 64; i++)
    w[i] = w[i - 16] + w[i - 7] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) +
           (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
  memcpy(v, s->state, sizeof v);
  for (int i = 0; i < 64; i++) {
    const uint32_t a = v[0], e = v[4];
    const uint32_t t = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) +
                       ((e & v[5]) ^ (~e & v[6])) + SHA_K[i] + w[i];
    const uint32_t u = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) +
                       ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
    memmove(v + 1, v, 7 * sizeof *v);
    v[4] += t;
    v[0] = t + u;
  }
  for (int i = 0; i < 8; i++) s->state[i] += v[i];
}

static void sha_add(sha256 *s, const uint8_t *bytes, int64_t many) {
  while (many > 0) {
    const int64_t at = s->length % 64, here = many < 64 - at ? many : 64 - at;
    memcpy(s->block + at, bytes, here);
    s->length += here, bytes += here, many -= here;
    if (s->length % 64 == 0) sha_block(s);
  }
}

static void sha_end(sha256 *s, uint8_t digest[32]) {
  static const uint8_t padding[64] = {0x80};
  uint8_t bits[8];
  for (int i = 0; i < 8; i++) bits[i] = (uint8_t)(8 * s->length >> (56 - 8 * i));
  sha_add(s, padding, 1 + (119 - s->length % 64) % 64);
  sha_add(s, bits, 8);
  for (int i = 0; i < 32; i++) digest[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

/* ---- the weights file; docs/format/potential-weights.md ---- */

enum { HEADER = 96, CHECKSUM_AT = 64 };

typedef struct {
  char magic[8];
  int32_t version, real_bytes;
  int64_t file_bytes;
  int32_t num_arrays, reserved;
  uint8_t model[32], checksum[32];
} header;

typedef struct {
  char name[40];
  int64_t offset, count;
  int32_t number_bytes, reserved;
} entry;

static const char *const NAMES[] = {
#define STK_NAME_OF(name, count, type) #name,
  STK_ARRAYS(STK_NAME_OF)};
static const int64_t COUNTS[] = {
#define STK_COUNT_OF(name, count, type) count,
  STK_ARRAYS(STK_COUNT_OF)};
static const int32_t BYTES[] = {
#define STK_BYTES_OF(name, count, type) sizeof(type),
  STK_ARRAYS(STK_BYTES_OF)};
static const char *const SPECIES[] = {STK_SPECIES};

/* Return the problem with the contents of a weights file, or NULL. */
static const char *wrong(const uint8_t *file, int64_t size, const void **arrays) {
  const header *head = (const header *)file;
  static const uint8_t model[32] = {STK_MODEL};
  uint8_t digest[32];
  sha256 sum = {{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
                 0x5be0cd19}};
  if (size < HEADER || memcmp(head->magic, "STKPOTW\n", 8)) return "it is no weights file";
  if (head->version != STK_ABI) return "it has another version: export the model again";
  if (head->file_bytes != size) return "it is truncated, or longer than it says";
  sha_add(&sum, file, CHECKSUM_AT);
  sha_add(&sum, file + HEADER, size - HEADER);
  sha_end(&sum, digest);
  if (memcmp(digest, head->checksum, 32)) return "its checksum is wrong: the file is damaged";
  if (memcmp(head->model, model, 32) || head->num_arrays != STK_NUM_ARRAYS)
    return "it is of another model than this library: export both again";
  for (int i = 0; i < STK_NUM_ARRAYS; i++) {
    const entry *e = (const entry *)(file + HEADER) + i;
    if (strncmp(e->name, NAMES[i], sizeof e->name) || e->count != COUNTS[i] ||
        e->number_bytes != BYTES[i] || e->offset < 0 || e->offset % 64 ||
        e->offset > size - e->count * e->number_bytes)
      return "its arrays are not those of this library";
    arrays[i] = file + e->offset;
  }
  return NULL;
}

static uint8_t *contents(const char *name, int64_t *size) {
  FILE *file = fopen(name, "rb");
  if (!file) return NULL;
  uint8_t *found = NULL;
  if (!fseek(file, 0, SEEK_END) && (*size = ftell(file)) >= 0 && !fseek(file, 0, SEEK_SET)) {
    found = aligned_alloc(64, STK_ROUND(*size + 1));
    if (found && fread(found, 1, *size, file) != (size_t)*size) free(found), found = NULL;
  }
  fclose(file);
  return found;
}

/* ---- variants ---- */

#define STK_EXTERN(name) extern const stk_variant stk_variant_##name;
STK_VARIANTS(STK_EXTERN)

#if defined(__x86_64__)
static int runs_v3(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi2");
}
static int runs_v4(void) {
  return runs_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
#endif
static inline int runs_base(void) { return 1; }

/* Variants are listed from the narrowest to the widest instructions. */
static const stk_variant *choose(void) {
  const stk_variant *best = NULL;
  const char *wanted = getenv("STK_VARIANT");
#define STK_TRY(name)                                                                   \
  if (runs_##name() && (!wanted || !strcmp(wanted, #name))) best = &stk_variant_##name;
  STK_VARIANTS(STK_TRY)
  return best;
}

int32_t stk_abi(void) { return STK_ABI; }

/* Create a model that takes ownership of a file's contents; NULL with the problem. */
static stk_model *opened(uint8_t *file, int64_t size, const char **problem) {
  stk_model *model = calloc(1, sizeof *model);
  *problem = !model || !file ? "it cannot be read" : wrong(file, size, model->arrays);
  if (!*problem) {
    model->file = file;
    model->info = (stk_info){.abi = STK_ABI, .num_species = STK_NUM_SPECIES,
                             .widest_row = STK_WIDEST_ROW, .real_bytes = sizeof(real),
                             .cutoff = STK_CUTOFF, .species = SPECIES};
    model->variant = choose();
    if (!model->variant) *problem = "this processor has none of the instructions it was built for";
    else if (!(model->prepared = model->variant->prepare(model))) *problem = "no memory is left";
    else model->info.instructions = model->variant->instructions;
  }
  if (!*problem) return model;
  free(file), free(model);
  return NULL;
}

static stk_model *or_message(stk_model *model, const char *name, const char *problem,
                             char *message, int64_t message_size) {
  if (!model && message && message_size > 0)
    snprintf(message, message_size, "%s: %s", name, problem);
  return model;
}

stk_model *stk_open(const char *weights_file, char *message, int64_t message_size) {
  int64_t size = 0;
  const char *problem;
  uint8_t *file = contents(weights_file, &size);
  stk_model *model = opened(file, size, &problem);
  return or_message(model, weights_file, problem, message, message_size);
}

stk_model *stk_open_memory(const void *weights, int64_t size, char *message,
                           int64_t message_size) {
  const char *problem;
  uint8_t *copy = size < 0 ? NULL : aligned_alloc(64, STK_ROUND(size + 1));
  if (copy) memcpy(copy, weights, size);
  stk_model *model = opened(copy, size, &problem);
  return or_message(model, "weights in memory", problem, message, message_size);
}

void stk_close(stk_model *model) {
  if (!model) return;
  model->variant->release(model->prepared);
  free(model->file), free(model);
}

const stk_info *stk_about(const stk_model *model) { return &model->info; }

int64_t stk_workspace(const stk_model *model, int64_t owned, int64_t all, int64_t edges,
                      int32_t threads) {
  return model->variant->workspace(model, owned, all, edges, threads < 1 ? 1 : threads);
}

static int good(const stk_graph *g) {
  if (g->owned < 0 || g->all < g->owned || g->ptr[0] != 0) return 0;
  for (int64_t i = 0; i < g->owned; i++)
    if (g->ptr[i + 1] < g->ptr[i]) return 0;
  for (int64_t j = 0; j < g->all; j++)
    if (g->species[j] < -1 || g->species[j] >= STK_NUM_SPECIES) return 0;
  for (int64_t e = 0; e < g->ptr[g->owned]; e++)
    if (g->sender[e] < 0 || g->sender[e] >= g->all) return 0;
  return 1;
}

stk_run *stk_begin(const stk_model *model, const stk_graph *graph, void *workspace,
                   int32_t threads, double *energy, double *gradient) {
  if (!good(graph)) return NULL;
  memset(gradient, 0, sizeof(double) * 3 * graph->ptr[graph->owned]);
  return model->variant->begin(model, graph, workspace, threads < 1 ? 1 : threads, energy,
                               gradient);
}

/* Angstrom; `neighbour_edges` in Python has the same limit. */
#define NEAREST 1e-3

int32_t stk_advance(stk_run *run, stk_exchange *wanted) {
  const int32_t state = run->model->variant->advance(run, wanted);
  if (state != STK_DONE) return state;
  const int64_t edges = run->graph.ptr[run->graph.owned];
  for (const double *v = run->graph.vector; v < run->graph.vector + 3 * edges; v += 3)
    if (v[0] * v[0] + v[1] * v[1] + v[2] * v[2] < NEAREST * NEAREST) return STK_COINCIDENT;
  for (int64_t i = 0; i < run->graph.owned; i++)
    if (!isfinite(run->energy[i])) return STK_NOT_FINITE;
  for (int64_t k = 0; k < 3 * edges; k++)
    if (!isfinite(run->gradient[k])) return STK_NOT_FINITE;
  return STK_DONE;
}

/* ---- one process ---- */

int64_t neighbour_list(int64_t atoms, int64_t types, const double *positions, const int64_t *kind,
                       const double *cell, const double *inverse, const double *height,
                       const int64_t *periodic, const double *cutoff, int64_t capacity,
                       int64_t *centre, int64_t *neighbour, double *shift, int64_t *segments,
                       double *closest, int64_t threads);

/* Tasks that sum forces into separate arrays, so that bits do not depend on the threads. */
enum { PARTS = 8 };

typedef struct {
  void *data;
  int64_t bytes;
} block;

struct stk_list {
  const stk_model *model;
  double skin;
  int64_t atoms, made; /* atoms < 0 before the first list */
  double cell[9];
  int64_t periodic[3];
  /* The stored list: edges within cutoff and skin by receiver, and the system it was built for. */
  block far_ptr, far_sender, far_shift, reference, kind;
  /* The edges currently within the cutoff, and results. */
  block ptr, sender, vector, gradient, energy, parts, workspace;
};

/* Return memory of at least `bytes` that is reused between calls; its contents are undefined. */
static void *room(block *b, int64_t bytes) {
  if (b->bytes < bytes) {
    free(b->data);
    b->bytes = STK_ROUND(bytes + bytes / 16);
    b->data = aligned_alloc(64, b->bytes);
  }
  return b->data;
}

static void empty(stk_list *l) {
  block *all[] = {&l->far_ptr, &l->far_sender, &l->far_shift, &l->reference, &l->kind, &l->ptr,
                  &l->sender, &l->vector, &l->gradient, &l->energy, &l->parts, &l->workspace};
  for (size_t k = 0; k < sizeof all / sizeof *all; k++) free(all[k]->data);
}

stk_list *stk_list_new(const stk_model *model, double skin) {
  stk_list *list = isfinite(skin) && skin >= 0 ? calloc(1, sizeof *list) : NULL;
  if (list) *list = (stk_list){.model = model, .skin = skin, .atoms = -1};
  return list;
}

void stk_list_free(stk_list *list) {
  if (!list) return;
  empty(list), free(list);
}

int64_t stk_list_made(const stk_list *list) { return list->made; }

/* The inverse of a cell and the distances between its opposite faces; 0 for a singular cell. */
static int invert(const double *c, double *inverse, double *height) {
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) {
      const int a = (j + 1) % 3, b = (j + 2) % 3, p = (i + 1) % 3, q = (i + 2) % 3;
      inverse[3 * i + j] = c[3 * a + p] * c[3 * b + q] - c[3 * a + q] * c[3 * b + p];
    }
  const double volume = c[0] * inverse[0] + c[1] * inverse[3] + c[2] * inverse[6];
  if (!(fabs(volume) > 1e-12)) return 0;
  for (int k = 0; k < 9; k++) inverse[k] /= volume;
  for (int j = 0; j < 3; j++)
    height[j] = 1 / sqrt(inverse[j] * inverse[j] + inverse[3 + j] * inverse[3 + j] +
                         inverse[6 + j] * inverse[6 + j]);
  return 1;
}

/* Whether the stored list contains all pairs within the cutoff. */
static int valid(const stk_list *l, int64_t atoms, const double *positions, const int32_t *species,
                 const double *cell, const int64_t *periodic, int32_t threads) {
  if (!(l->skin > 0) || l->atoms != atoms || memcmp(l->cell, cell, sizeof l->cell) ||
      memcmp(l->periodic, periodic, sizeof l->periodic))
    return 0;
  const double *before = l->reference.data;
  const int64_t *kind = l->kind.data;
  int64_t changed = 0;
  (void)threads;
#pragma omp parallel for num_threads(threads) reduction(+ : changed)
  for (int64_t i = 0; i < atoms; i++) {
    double square = 0;
    for (int k = 0; k < 3; k++) {
      const double d = positions[3 * i + k] - before[3 * i + k];
      square += d * d;
    }
    changed += !(square < 0.25 * l->skin * l->skin) || kind[i] != species[i];
  }
  return !changed;
}

/* Rebuild the stored list; return 0 or an error. */
static int32_t make(stk_list *l, int64_t atoms, const double *positions, const int32_t *species,
                    const double *cell, const int64_t *periodic, int32_t threads) {
  double inverse[9], height[3], closest[3];
  const double reach = STK_CUTOFF + l->skin;
  l->atoms = -1;
  if (atoms < 0 || !invert(cell, inverse, height)) return STK_BAD_GRAPH;
  int64_t *kind = room(&l->kind, 8 * (atoms + 1));
  for (int64_t i = 0; i < atoms; i++) {
    if (species[i] < 0 || species[i] >= STK_NUM_SPECIES) return STK_BAD_GRAPH;
    kind[i] = species[i];
    for (int k = 0; k < 3; k++)
      if (!isfinite(positions[3 * i + k])) return STK_NOT_FINITE;
  }
  int64_t *segments = malloc(8 * (atoms * STK_NUM_SPECIES + 1)), edges = 64 * atoms + 64;
  for (int64_t many = -1; many != edges;) {
    if (many >= 0) edges = many;
    int64_t *centre = malloc(8 * edges), *neighbour = malloc(8 * edges);
    double *shift = room(&l->far_shift, 24 * edges);
    many = neighbour_list(atoms, STK_NUM_SPECIES, positions, kind, cell, inverse, height, periodic,
                          &reach, edges, centre, neighbour, shift, segments, closest, threads);
    if (many <= edges) {
      edges = many;
      int32_t *sender = room(&l->far_sender, 4 * (edges + 1));
      for (int64_t e = 0; e < edges; e++) sender[e] = (int32_t)neighbour[e];
    }
    free(centre), free(neighbour);
  }
  int64_t *ptr = room(&l->far_ptr, 8 * (atoms + 1));
  for (int64_t i = 0; i <= atoms; i++) ptr[i] = segments[i * STK_NUM_SPECIES];
  free(segments);
  memcpy(room(&l->reference, 24 * atoms + 8), positions, 24 * atoms);
  memcpy(l->cell, cell, sizeof l->cell), memcpy(l->periodic, periodic, sizeof l->periodic);
  l->atoms = atoms, l->made++;
  return 0;
}

static double edge(const stk_list *l, const double *positions, int64_t i, int64_t e, double *v) {
  const int64_t j = ((const int32_t *)l->far_sender.data)[e];
  const double *shift = (const double *)l->far_shift.data + 3 * e;
  for (int k = 0; k < 3; k++) v[k] = positions[3 * j + k] - positions[3 * i + k] + shift[k];
  return v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
}

/* Return the graph of the edges currently within the cutoff. */
static stk_graph near_edges(stk_list *l, const double *positions, const int32_t *species,
                            int32_t threads) {
  const int64_t atoms = l->atoms, *far_ptr = l->far_ptr.data;
  const int32_t *far_sender = l->far_sender.data;
  int64_t *ptr = room(&l->ptr, 8 * (atoms + 1));
  (void)threads;
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < atoms; i++) {
    double v[3];
    ptr[i + 1] = 0;
    for (int64_t e = far_ptr[i]; e < far_ptr[i + 1]; e++)
      ptr[i + 1] += edge(l, positions, i, e, v) < STK_CUTOFF * STK_CUTOFF;
  }
  ptr[0] = 0;
  for (int64_t i = 0; i < atoms; i++) ptr[i + 1] += ptr[i];
  int32_t *sender = room(&l->sender, 4 * (ptr[atoms] + 1));
  double *vector = room(&l->vector, 24 * (ptr[atoms] + 1));
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < atoms; i++) {
    int64_t at = ptr[i];
    for (int64_t e = far_ptr[i]; e < far_ptr[i + 1]; e++) {
      double v[3];
      if (!(edge(l, positions, i, e, v) < STK_CUTOFF * STK_CUTOFF)) continue;
      memcpy(vector + 3 * at, v, sizeof v);
      sender[at++] = far_sender[e];
    }
  }
  return (stk_graph){atoms, atoms, ptr, sender, vector, species};
}

static void sums(stk_list *l, const stk_graph *g, int32_t threads, double *forces, double *virial) {
  const int64_t atoms = g->owned, parts = atoms < 64 * PARTS ? 1 : PARTS;
  const double *gradient = l->gradient.data;
  double *part = room(&l->parts, 8 * parts * (3 * atoms + 9));
  (void)threads;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64_t p = 0; p < parts; p++) {
    double *f = part + p * (3 * atoms + 9), *w = f + 3 * atoms;
    memset(f, 0, 8 * (3 * atoms + 9));
    for (int64_t i = atoms * p / parts; i < atoms * (p + 1) / parts; i++)
      for (int64_t e = g->ptr[i]; e < g->ptr[i + 1]; e++)
        for (int k = 0; k < 3; k++) {
          const double d = gradient[3 * e + k];
          f[3 * i + k] += d;
          f[3 * (int64_t)g->sender[e] + k] -= d;
          for (int c = 0; c < 3; c++) w[3 * c + k] -= g->vector[3 * e + c] * d;
        }
  }
#pragma omp parallel for num_threads(threads)
  for (int64_t k = 0; k < 3 * atoms; k++) {
    double sum = 0;
    for (int64_t p = 0; p < parts; p++) sum += part[p * (3 * atoms + 9) + k];
    forces[k] = sum;
  }
  for (int k = 0; virial && k < 9; k++) {
    virial[k] = 0;
    for (int64_t p = 0; p < parts; p++) virial[k] += part[p * (3 * atoms + 9) + 3 * atoms + k];
  }
}

int32_t stk_compute_listed(stk_list *list, int64_t atoms, const double *positions,
                           const int32_t *species, const double *cell, const int32_t *periodic,
                           int32_t threads, double *energy, double *atomic_energy, double *forces,
                           double *virial) {
  static const double unit[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  const int64_t pbc[3] = {periodic && periodic[0], periodic && periodic[1],
                          periodic && periodic[2]};
  const double *c = cell && (pbc[0] || pbc[1] || pbc[2]) ? cell : unit;
  threads = threads < 1 ? 1 : threads;
  if (!valid(list, atoms, positions, species, c, pbc, threads)) {
    const int32_t state = make(list, atoms, positions, species, c, pbc, threads);
    if (state < 0) return state;
  }
  const stk_graph graph = near_edges(list, positions, species, threads);
  const int64_t edges = graph.ptr[atoms];
  double *each = room(&list->energy, 8 * (atoms + 1));
  void *workspace = room(&list->workspace,
                         stk_workspace(list->model, atoms, atoms, edges, threads));
  stk_run *run = stk_begin(list->model, &graph, workspace, threads, each,
                           room(&list->gradient, 24 * (edges + 1)));
  stk_exchange none;
  int32_t state = STK_BAD_GRAPH;
  if (run)
    do state = stk_advance(run, &none);
    while (state > 0);
  if (state < 0) return state;
  *energy = 0;
  for (int64_t i = 0; i < atoms; i++) *energy += each[i];
  if (atomic_energy) memcpy(atomic_energy, each, 8 * atoms);
  sums(list, &graph, threads, forces, virial);
  return 0;
}

int32_t stk_compute(const stk_model *model, int64_t atoms, const double *positions,
                    const int32_t *species, const double *cell, const int32_t *periodic,
                    int32_t threads, double *energy, double *atomic_energy, double *forces,
                    double *virial) {
  stk_list list = {.model = model, .atoms = -1};
  const int32_t state = stk_compute_listed(&list, atoms, positions, species, cell, periodic,
                                           threads, energy, atomic_energy, forces, virial);
  empty(&list);
  return state;
}

int32_t stk_compute_many(const stk_model *model, int64_t systems, const int64_t *first,
                         const double *positions, const int32_t *species, const double *cells,
                         const int32_t *periodic, int32_t threads, double *energies,
                         double *atomic_energy, double *forces, double *virials) {
  int32_t worst = STK_DONE;
  (void)threads;
#pragma omp parallel for num_threads(threads < 1 ? 1 : threads) schedule(dynamic, 1)               \
    reduction(min : worst)
  for (int64_t k = 0; k < systems; k++) {
    const int64_t at = first[k];
    const int32_t state = stk_compute(
      model, first[k + 1] - at, positions + 3 * at, species + at, cells ? cells + 9 * k : NULL,
      periodic ? periodic + 3 * k : NULL, 1, energies + k, atomic_energy ? atomic_energy + at : NULL,
      forces + 3 * at, virials ? virials + 9 * k : NULL);
    worst = state < worst ? state : worst;
  }
  return worst;
}
