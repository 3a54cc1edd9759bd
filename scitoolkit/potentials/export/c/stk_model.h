/* SPDX-License-Identifier: Apache-2.0
   ABI of an exported potential: a graph in, energies and edge gradients out.

   The caller drives a state machine: after each stk_advance it exchanges the rows that were asked
   for and calls again, so that no callback crosses a language. Without ghosts (owned == all: ASE,
   C, Fortran on one process) there is nothing to exchange.

   Nodes 0..owned-1 are this process's atoms, owned..all-1 ghosts: copies of others' atoms or
   periodic images. Edges are sorted by receiver; receivers are owned, senders any node;
   vector = x[sender] - x[receiver], within the cutoff. Energies are those of owned atoms. Caller's
   sums: force[receiver] += gradient, force[sender] -= gradient, virial -= vector (x) gradient.
   Units: Angstrom, eV. */
#ifndef STK_MODEL_H
#define STK_MODEL_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { STK_ABI = 2 };
enum { /* results of stk_advance */
  STK_DONE = 0,
  STK_FORWARD = 1,    /* copy owners' rows to their ghosts */
  STK_REVERSE = 2,    /* add ghosts' rows to their owners' */
  STK_BAD_GRAPH = -1, /* unsorted edges, unknown species, too many neighbours of an atom */
  STK_NOT_FINITE = -2 /* an energy or gradient that is no number */
};

typedef struct {
  int32_t abi, num_species;
  int32_t widest_row; /* most numbers of a row that is exchanged, 0 for strictly local models */
  int32_t real_bytes; /* of a number of these rows: 4 or 8 */
  int32_t device;     /* reserved: 0, the processor */
  int32_t reserved;
  double cutoff;
  const char *const *species;
  const char *instructions; /* which variant of the kernels runs here */
} stk_info;

typedef struct {
  int64_t owned, all;
  const int64_t *ptr;     /* (owned + 1), where the edges of each receiver begin */
  const int32_t *sender;  /* (edges) */
  const double *vector;   /* (edges, 3) */
  const int32_t *species; /* (all), -1 for an atom that is not of this model */
} stk_graph;

typedef struct {
  int32_t width; /* numbers of a row */
  void *rows;    /* (all, width) */
} stk_exchange;

typedef struct stk_model stk_model;
typedef struct stk_run stk_run; /* within the caller's workspace */
typedef struct stk_list stk_list;

#pragma GCC visibility push(default)

/* The ABI of the library; ask it before anything else. */
int32_t stk_abi(void);

/* Open a weights file; NULL with a message if it is none, damaged or of another model. */
stk_model *stk_open(const char *weights_file, char *message, int64_t message_size);
/* The same of a file's contents in memory, which are copied. */
stk_model *stk_open_memory(const void *weights, int64_t size, char *message,
                           int64_t message_size);
void stk_close(stk_model *model);
const stk_info *stk_about(const stk_model *model);

/* Bytes of workspace, 64-byte aligned, that stk_begin needs. */
int64_t stk_workspace(const stk_model *model, int64_t owned, int64_t all, int64_t edges,
                      int32_t threads);

/* Arrays must stay in place until DONE; NULL if the graph is refused.
   energy: (owned), gradient: (edges, 3). */
stk_run *stk_begin(const stk_model *model, const stk_graph *graph, void *workspace,
                   int32_t threads, double *energy, double *gradient);
int32_t stk_advance(stk_run *run, stk_exchange *wanted);

/* Everything for one process: neighbour list, energies, forces and virial.
   positions: (atoms, 3), species: (atoms), cell: (3, 3) rows are lattice vectors, NULL without;
   periodic: (3), atomic_energy: (atoms) or NULL, forces: (atoms, 3), virial: (3, 3) or NULL.
   Returns 0 or an error of stk_advance. */
int32_t stk_compute(const stk_model *model, int64_t atoms, const double *positions,
                    const int32_t *species, const double *cell, const int32_t *periodic,
                    int32_t threads, double *energy, double *atomic_energy, double *forces,
                    double *virial);

/* A neighbour list, and all memory, kept between calls for one system that moves. The list reaches
   `skin` Angstrom beyond the cutoff and is made anew when an atom has moved by half of it, or the
   atoms, species, cell or boundaries are others; results are those of a new list, up to the order
   of sums. stk_list_new returns NULL for a skin that is negative or no
   number. Free it before the model is closed; one call at a time. */
stk_list *stk_list_new(const stk_model *model, double skin);
void stk_list_free(stk_list *list);
/* How often it was made. */
int64_t stk_list_made(const stk_list *list);
/* stk_compute with a kept list. */
int32_t stk_compute_listed(stk_list *list, int64_t atoms, const double *positions,
                           const int32_t *species, const double *cell, const int32_t *periodic,
                           int32_t threads, double *energy, double *atomic_energy, double *forces,
                           double *virial);

/* The same as stk_compute of many systems, each on one thread: atoms first[k]..first[k + 1] - 1 are system k.
   Every number is that of stk_compute. first: (systems + 1), cells: (systems, 3, 3) or NULL,
   periodic: (systems, 3) or NULL, energies: (systems), virials: (systems, 3, 3) or NULL; the other
   arrays hold the atoms of all systems. Returns 0 or the least of the systems' errors. */
int32_t stk_compute_many(const stk_model *model, int64_t systems, const int64_t *first,
                         const double *positions, const int32_t *species, const double *cells,
                         const int32_t *periodic, int32_t threads, double *energies,
                         double *atomic_energy, double *forces, double *virials);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
