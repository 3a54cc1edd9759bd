/* SPDX-License-Identifier: Apache-2.0
   ABI of an exported potential, which computes energies and edge gradients of a graph.

   The caller drives a state machine: after each stk_advance it exchanges the requested rows and
   calls again, so that no callback between languages is needed. Without ghosts (owned == all: ASE,
   C, Fortran on one process) no rows are exchanged.

   Nodes 0..owned-1 are atoms of this process, nodes owned..all-1 are ghosts: copies of atoms of
   other processes or periodic images. Edges are sorted by receiver; receivers are owned, senders
   are any nodes; vector = x[sender] - x[receiver], within the cutoff. Energies are those of owned
   atoms. The caller computes force[receiver] += gradient, force[sender] -= gradient and
   virial -= vector (x) gradient. Units: Angstrom, eV. */
#ifndef STK_MODEL_H
#define STK_MODEL_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { STK_ABI = 2 };
enum { /* return values of stk_advance */
  STK_DONE = 0,
  STK_FORWARD = 1,    /* copy rows of owned atoms to their ghosts */
  STK_REVERSE = 2,    /* add rows of ghosts to those of their owners */
  STK_BAD_GRAPH = -1, /* unsorted edges, unknown species, too many neighbours of an atom */
  STK_NOT_FINITE = -2, /* an energy or gradient is not finite */
  STK_COINCIDENT = -3 /* an edge of less than 0.001 Angstrom: two atoms at one place */
};

typedef struct {
  int32_t abi, num_species;
  int32_t widest_row; /* largest number of values in an exchanged row, 0 for strictly local models */
  int32_t real_bytes; /* bytes of a value of these rows: 4 or 8 */
  int32_t device;     /* reserved: 0, the CPU */
  int32_t reserved;
  double cutoff;
  const char *const *species;
  const char *instructions; /* instruction set of the kernels in use */
} stk_info;

typedef struct {
  int64_t owned, all;
  const int64_t *ptr;     /* (owned + 1), index of the first edge of each receiver */
  const int32_t *sender;  /* (edges) */
  const double *vector;   /* (edges, 3) */
  const int32_t *species; /* (all), -1 for an atom that is not part of this model */
} stk_graph;

typedef struct {
  int32_t width; /* values in a row */
  void *rows;    /* (all, width) */
} stk_exchange;

typedef struct stk_model stk_model;
typedef struct stk_run stk_run; /* in the caller's workspace */
typedef struct stk_list stk_list;

#pragma GCC visibility push(default)

/* ABI version of the library; check it before other calls. */
int32_t stk_abi(void);

/* Open a weights file; NULL with a message if it is invalid, damaged or of another model. */
stk_model *stk_open(const char *weights_file, char *message, int64_t message_size);
/* The same for the contents of a file in memory, which are copied. */
stk_model *stk_open_memory(const void *weights, int64_t size, char *message,
                           int64_t message_size);
void stk_close(stk_model *model);
const stk_info *stk_about(const stk_model *model);

/* Size in bytes of the workspace of stk_begin, which must be 64-byte aligned. */
int64_t stk_workspace(const stk_model *model, int64_t owned, int64_t all, int64_t edges,
                      int32_t threads);

/* Arrays must remain valid until STK_DONE; NULL if the graph is invalid.
   energy: (owned), gradient: (edges, 3). */
stk_run *stk_begin(const stk_model *model, const stk_graph *graph, void *workspace,
                   int32_t threads, double *energy, double *gradient);
int32_t stk_advance(stk_run *run, stk_exchange *wanted);

/* Complete evaluation on one process: neighbour list, energies, forces and virial.
   positions: (atoms, 3), species: (atoms), cell: (3, 3) rows are lattice vectors, or NULL;
   periodic: (3), atomic_energy: (atoms) or NULL, forces: (atoms, 3), virial: (3, 3) or NULL.
   Returns 0 or an error of stk_advance. */
int32_t stk_compute(const stk_model *model, int64_t atoms, const double *positions,
                    const int32_t *species, const double *cell, const int32_t *periodic,
                    int32_t threads, double *energy, double *atomic_energy, double *forces,
                    double *virial);

/* Neighbour list and memory that are reused between calls for one moving system. The list reaches
   `skin` Angstrom beyond the cutoff and is rebuilt when an atom has moved by half of it, or the
   atoms, species, cell or boundary conditions change; results equal those of a new list, up to the
   order of sums. stk_list_new returns NULL if the skin is negative or not finite. Free the list
   before the model is closed; calls must not be concurrent. */
stk_list *stk_list_new(const stk_model *model, double skin);
void stk_list_free(stk_list *list);
/* Number of times that the list was built. */
int64_t stk_list_made(const stk_list *list);
/* stk_compute with a reused list. */
int32_t stk_compute_listed(stk_list *list, int64_t atoms, const double *positions,
                           const int32_t *species, const double *cell, const int32_t *periodic,
                           int32_t threads, double *energy, double *atomic_energy, double *forces,
                           double *virial);

/* stk_compute for many systems, one thread for each; system k has atoms first[k]..first[k + 1] - 1.
   The results equal those of stk_compute. first: (systems + 1), cells: (systems, 3, 3) or NULL,
   periodic: (systems, 3) or NULL, energies: (systems), virials: (systems, 3, 3) or NULL; the other
   arrays contain the atoms of all systems. Returns 0 or the lowest error code of the systems. */
int32_t stk_compute_many(const stk_model *model, int64_t systems, const int64_t *first,
                         const double *positions, const int32_t *species, const double *cells,
                         const int32_t *periodic, int32_t threads, double *energies,
                         double *atomic_energy, double *forces, double *virials);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
