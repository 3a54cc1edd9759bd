// SPDX-License-Identifier: GPL-2.0-only
// LAMMPS plugin: pair_style scitoolkit FOLDER [FOLDER ...]; pair_coeff * * ELEMENT ...
//
// This file includes headers of LAMMPS and is under LAMMPS' licence, the GNU General Public License
// version 2; it is compiled on the user's machine. The exported potential is loaded by dlopen.
// Classes of LAMMPS change their layout between updates of one release, so the plugin is bound to
// the commit that it was built for.
#include "atom.h"
#include "comm.h"
#include "error.h"
#include "force.h"
#include "lammps.h"
#include "memory.h"
#include "neigh_list.h"
#include "neighbor.h"
#include "pair.h"
#include "stk_model.h"
#include "update.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <vector>

using namespace LAMMPS_NS;

namespace {
struct Plugin {  // lammpsplugin_t, whose header is not installed with LAMMPS
  const char *version, *style, *name, *info, *author;
  void *create, *handle;
};
typedef void (*Register)(Plugin *, void *);

// An uninitialised workspace: pages that no thread touches occupy no memory.
class Workspace {
 public:
  ~Workspace() { free(memory); }
  void *reserve(size_t bytes) {
    if (bytes > size) {
      free(memory);
      size = (bytes + bytes / 4 + 63) / 64 * 64;
      memory = aligned_alloc(64, size);
    }
    return memory;
  }
  size_t bytes() const { return size; }

 private:
  void *memory = nullptr;
  size_t size = 0;
};

class PairScitoolkit : public Pair {
 public:
  PairScitoolkit(LAMMPS *lmp) : Pair(lmp) {
    single_enable = 0;  // no energy of a pair
    restartinfo = 0;    // the model is named in the input, not in restart files
    one_coeff = 1;      // pair_coeff * *
    manybody_flag = 1;
    centroidstressflag = CENTROID_NOTAVAIL;  // with messages an edge has no unique atom
  }

  ~PairScitoolkit() override {
    if (allocated) {
      memory->destroy(setflag);
      memory->destroy(cutsq);
    }
    release();
  }

  // The model is opened here, not in coeff: pair hybrid reads comm_forward after settings().
  void settings(int narg, char **arg) override {
    if (narg != 1) error->all(FLERR, "pair_style scitoolkit takes one folder of an exported potential");
    release();
    const std::string folder = arg[0], path = folder + "/libmodel.so";
    check_whole(path);
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
      error->all(FLERR, "cannot open the potential {}: {}", path, dlerror());
    const int abi = find<int32_t()>("stk_abi")();
    if (abi != STK_ABI)
      error->all(FLERR, "{} has ABI {}, pair scitoolkit reads {}: export the potential again", path,
                 abi, (int) STK_ABI);
    open = find<decltype(stk_open)>("stk_open");
    close = find<decltype(stk_close)>("stk_close");
    begin = find<decltype(stk_begin)>("stk_begin");
    advance = find<decltype(stk_advance)>("stk_advance");
    workspace_size = find<decltype(stk_workspace)>("stk_workspace");
    char message[512] = "";
    model = open((folder + "/weights.stk").c_str(), message, sizeof message);
    if (!model) error->all(FLERR, "cannot open the potential: {}", message);
    about = find<decltype(stk_about)>("stk_about")(model);
    comm_forward = comm_reverse = (about->widest_row * about->real_bytes + 7) / 8;
  }

  void coeff(int narg, char **arg) override {
    const int n = atom->ntypes;
    if (narg != n + 2 || strcmp(arg[0], "*") != 0 || strcmp(arg[1], "*") != 0)
      error->all(FLERR, "pair_coeff of scitoolkit must be * * and one element for each of {} atom types",
                 n);
    if (!allocated) {
      memory->create(setflag, n + 1, n + 1, "pair:setflag");
      memory->create(cutsq, n + 1, n + 1, "pair:cutsq");
      allocated = 1;
    }
    species.assign(n + 1, -1);
    for (int t = 1; t <= n; t++) {
      for (int s = 0; s < about->num_species; s++)
        if (strcmp(arg[t + 1], about->species[s]) == 0) species[t] = s;
      if (species[t] < 0 && strcmp(arg[t + 1], "NULL") != 0)
        error->all(FLERR, "the potential has no element {}; it has{}", arg[t + 1], elements());
    }
    for (int i = 1; i <= n; i++)
      for (int j = i; j <= n; j++) setflag[i][j] = species[i] >= 0 && species[j] >= 0;
  }

  void init_style() override {
    if (strcmp(update->unit_style, "metal") != 0)
      error->all(FLERR, "pair scitoolkit works in eV and Angstrom, not in units {}: units metal",
                 update->unit_style);
    if (!force->newton_pair)
      error->all(FLERR, "pair scitoolkit adds forces to ghost atoms: newton on");
    for (int k = 1; k < 4; k++)
      if (atom->molecular != Atom::ATOMIC && force->special_lj[k] == 0 &&
          force->special_coul[k] == 0)
        error->all(FLERR, "special_bonds deletes bonded neighbours from the list of pair scitoolkit: "
                          "special_bonds lj/coul 1.0 1.0 1.0");
    neighbor->add_request(this, NeighConst::REQ_FULL);  // ghosts need no neighbours of their own
  }

  double init_one(int i, int j) override {
    if (setflag[i][j] == 0) error->all(FLERR, "All pair coeffs are not set");
    return about->cutoff;  // ghosts reach one cutoff and skin, whatever the number of layers
  }

  void compute(int eflag, int vflag) override {
    ev_init(eflag, vflag);
    make_graph();
    const int owned = atom->nlocal, all = owned + atom->nghost;
    const int64_t edges = sender.size();
    energy.resize(owned + 1);
    gradient.resize(3 * edges + 1);
    void *space = workspace.reserve(workspace_size(model, owned, all, edges, comm->nthreads) + 64);
    const stk_graph graph = {owned, all, ptr.data(), sender.data(), vector.data(), node.data()};
    // No early return, even without atoms: every rank takes part in every exchange.
    stk_run *run = begin(model, &graph, space, comm->nthreads, energy.data(), gradient.data());
    if (!run)
      error->one(FLERR, "invalid neighbour list: too many neighbours of one atom");
    int state;
    while ((state = advance(run, &exchange)) > 0) {
      row = (size_t) exchange.width * about->real_bytes;
      numbers = (int) ((row + 7) / 8);
      if (state == STK_FORWARD)
        comm->forward_comm(this, numbers);
      else
        comm->reverse_comm(this, numbers);
    }
    if (state == STK_COINCIDENT) refuse_coincident();
    if (state == STK_NOT_FINITE) refuse_not_finite();
    if (state < 0) error->one(FLERR, "the potential failed with status {}", state);
    add_results();
  }

  // Rows are exchanged as bytes, which halves the traffic of float32 features.
  int pack_forward_comm(int n, int *nodes, double *buffer, int, int *) override {
    for (int k = 0; k < n; k++) memcpy(buffer + (size_t) k * numbers, at(nodes[k]), row);
    return n * numbers;
  }
  void unpack_forward_comm(int n, int first, double *buffer) override {
    for (int k = 0; k < n; k++) memcpy(at(first + k), buffer + (size_t) k * numbers, row);
  }
  int pack_reverse_comm(int n, int first, double *buffer) override {
    for (int k = 0; k < n; k++) memcpy(buffer + (size_t) k * numbers, at(first + k), row);
    return n * numbers;
  }
  void unpack_reverse_comm(int n, int *nodes, double *buffer) override {
    for (int k = 0; k < n; k++) {
      const void *from = buffer + (size_t) k * numbers;
      if (about->real_bytes == 8)
        add((double *) at(nodes[k]), (const double *) from);
      else
        add((float *) at(nodes[k]), (const float *) from);
    }
  }

  double memory_usage() override {
    return Pair::memory_usage() + (double) workspace.bytes() + 16. * vector.capacity() +
        4. * sender.capacity();
  }

 private:
  // Rows are ordered by atom index; the list may have another order or omit atoms.
  void make_graph() {
    const int owned = atom->nlocal, all = owned + atom->nghost;
    const double most = about->cutoff * about->cutoff;
    double **x = atom->x;
    ptr.assign(owned + 1, 0);
    sender.clear();
    vector.clear();
    node.resize(all + 1);
    for (int j = 0; j < all; j++) node[j] = species[atom->type[j]];
    place.assign(owned, -1);
    for (int ii = 0; ii < list->inum; ii++) place[list->ilist[ii]] = ii;
    for (int i = 0; i < owned; i++) {
      const int count = place[i] < 0 ? 0 : list->numneigh[i];
      if (place[i] < 0) node[i] = -1;
      for (int jj = 0; jj < count; jj++) {
        const int j = list->firstneigh[i][jj] & NEIGHMASK;
        const double d[3] = {x[j][0] - x[i][0], x[j][1] - x[i][1], x[j][2] - x[i][2]};
        const double square = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
        if (!std::isfinite(square)) refuse_position(i);
        if (square >= most || node[j] < 0) continue;  // the list has a skin
        sender.push_back(j);
        vector.insert(vector.end(), d, d + 3);
      }
      ptr[i + 1] = sender.size();
    }
  }

  void add_results() {
    double **f = atom->f;
    for (int i = 0; i < atom->nlocal; i++) {
      if (eflag_global) eng_vdwl += energy[i];
      if (eflag_atom) eatom[i] += energy[i];
      for (int64_t e = ptr[i]; e < ptr[i + 1]; e++) {
        const double *g = &gradient[3 * e], *d = &vector[3 * e];
        const int j = sender[e];
        for (int k = 0; k < 3; k++) f[i][k] += g[k], f[j][k] -= g[k];
        if (!vflag_global && !vflag_atom) continue;
        const double v[6] = {-d[0] * g[0], -d[1] * g[1], -d[2] * g[2],
                             -.5 * (d[0] * g[1] + d[1] * g[0]), -.5 * (d[0] * g[2] + d[2] * g[0]),
                             -.5 * (d[1] * g[2] + d[2] * g[1])};
        for (int k = 0; k < 6; k++) {
          if (vflag_global) virial[k] += v[k];
          if (vflag_atom) vatom[i][k] += .5 * v[k], vatom[j][k] += .5 * v[k];
        }
      }
    }
    if (vflag_fdotr) virial_fdotr_compute();
  }

  void refuse_position(int i) {
    error->one(FLERR, "the position of atom {} or of a neighbour is not finite: a time step too long, "
                      "or overlapping atoms", atom->tag[i]);
  }
  void refuse_coincident() {
    const double *d = vector.data();
    for (int i = 0; i < atom->nlocal; i++)
      for (int64_t e = ptr[i]; e < ptr[i + 1]; e++)
        if (d[3 * e] * d[3 * e] + d[3 * e + 1] * d[3 * e + 1] + d[3 * e + 2] * d[3 * e + 2] < 1e-6)
          error->one(FLERR, "atoms {} and {} are less than 0.001 Angstrom apart", atom->tag[i],
                     atom->tag[sender[e]]);
  }
  void refuse_not_finite() {
    for (int i = 0; i < atom->nlocal; i++)
      if (!std::isfinite(energy[i]))
        error->one(FLERR, "the energy of atom {} is not finite: positions or weights are not",
                   atom->tag[i]);
    error->one(FLERR, "forces are not finite: overlapping atoms, or weights that are not");
  }

  // A truncated library would crash when it is loaded.
  void check_whole(const std::string &path) {
    FILE *file = fopen(path.c_str(), "rb");
    if (!file) error->all(FLERR, "no potential in {}: scitoolkit export RUN -o FOLDER", path);
    unsigned char head[64] = {0};
    const size_t read = fread(head, 1, 64, file);
    fseek(file, 0, SEEK_END);
    const uint64_t size = ftell(file);
    fclose(file);
    uint64_t sections;
    uint16_t each, number;
    memcpy(&sections, head + 40, 8), memcpy(&each, head + 58, 2), memcpy(&number, head + 60, 2);
    if (read < 64 || memcmp(head, "\177ELF", 4) != 0 || sections + each * number > size)
      error->all(FLERR, "{} is truncated or no library: export the potential again", path);
  }

  std::string elements() const {
    std::string found;
    for (int s = 0; s < about->num_species; s++) found += std::string(" ") + about->species[s];
    return found;
  }

  void release() {
    if (model) close(model);
    if (library) dlclose(library);
    model = nullptr, library = nullptr;
  }

  template <class F> F *find(const char *name) {
    void *found = dlsym(library, name);
    if (!found) error->all(FLERR, "the potential's library has no function {}", name);
    return (F *) found;
  }
  char *at(int j) const { return (char *) exchange.rows + (size_t) j * row; }
  template <class F> void add(F *to, const F *from) const {
    for (int c = 0; c < exchange.width; c++) to[c] += from[c];
  }

  void *library = nullptr;
  stk_model *model = nullptr;
  const stk_info *about = nullptr;
  decltype(stk_open) *open = nullptr;
  decltype(stk_close) *close = nullptr;
  decltype(stk_begin) *begin = nullptr;
  decltype(stk_advance) *advance = nullptr;
  decltype(stk_workspace) *workspace_size = nullptr;
  std::vector<int> species, place;
  std::vector<int32_t> sender, node;
  std::vector<int64_t> ptr;
  std::vector<double> vector, gradient, energy;
  Workspace workspace;
  stk_exchange exchange{};
  size_t row = 0;
  int numbers = 0;
};

Pair *create(LAMMPS *lmp) { return new PairScitoolkit(lmp); }
}  // namespace

extern "C" void lammpsplugin_init(void *lmp, void *handle, void *registers) {
  LAMMPS *lammps = (LAMMPS *) lmp;
  // A release that was compiled outside a git repository is known by its version alone.
  const bool unknown = strcmp(LAMMPS::git_descriptor(), "(unknown)") == 0;
  const char *running = unknown ? lammps->version : LAMMPS::git_descriptor();
  if (strcmp(running, STK_BUILT_FOR) != 0)
    lammps->error->all(FLERR, "pair scitoolkit was built for LAMMPS {}, this is {}: scitoolkit lammps build",
                       STK_BUILT_FOR, running);
  Plugin plugin = {lammps->version, "pair", "scitoolkit", "exported potentials", "scitoolkit",
                   (void *) &create, handle};
  ((Register) registers)(&plugin, lmp);
}
