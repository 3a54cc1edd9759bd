// Molecular dynamics at constant energy with an exported potential: velocity Verlet in C++17, with
// the library of `scitoolkit export` and nothing else.
//
//   molecular_dynamics WEIGHTS START.xyz END.xyz STEPS TIMESTEP_FS [EVERY [THREADS]]
//
// START.xyz is extended XYZ with species, pos, masses and, if the atoms move at the start, momenta,
// in ASE's units (Å, amu, eV): atoms.write("START.xyz", columns=["symbols", "positions", "masses",
// "momenta"]). END.xyz has the same columns, so that a run can be continued.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iomanip>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "stk_model.h"

namespace {

constexpr double kFemtosecond = 0.09822694788464063;  // in Å sqrt(amu / eV)
constexpr double kBoltzmann = 8.617330337217213e-05;  // eV / K
constexpr double kSkin = 0.5;                         // Å

using Columns = std::map<std::string, std::pair<int, int>>;  // name -> first field, number

struct Atoms {
  std::vector<std::string> symbols;
  std::vector<double> positions, masses, momenta;
  double cell[9] = {0};
  int32_t periodic[3] = {0, 0, 0};
};

// The value of key=value or key="value" in the comment of extended XYZ.
std::string value_of(const std::string& line, const std::string& key) {
  const auto at = line.find(key + "=");
  if (at == std::string::npos) return "";
  const auto begin = at + key.size() + 1;
  if (line[begin] == '"') return line.substr(begin + 1, line.find('"', begin + 1) - begin - 1);
  return line.substr(begin, line.find(' ', begin) - begin);
}

Columns columns_of(const std::string& properties) {
  Columns found;
  std::istringstream parts(properties);
  std::string name, kind, number;
  for (int at = 0; std::getline(parts, name, ':') && std::getline(parts, kind, ':') &&
                   std::getline(parts, number, ':');) {
    found[name] = {at, std::stoi(number)};
    at += std::stoi(number);
  }
  return found;
}

Atoms read_xyz(const std::string& path) {
  std::ifstream file(path);
  std::string line, comment;
  if (!std::getline(file, line) || !std::getline(file, comment))
    throw std::runtime_error(path + ": no extended XYZ");
  const Columns columns = columns_of(value_of(comment, "Properties"));
  for (const char* name : {"species", "pos", "masses"})
    if (!columns.count(name)) throw std::runtime_error(path + ": no column " + name);
  Atoms atoms;
  std::istringstream lattice(value_of(comment, "Lattice")), pbc(value_of(comment, "pbc"));
  for (double& each : atoms.cell) lattice >> each;
  std::string flag;
  for (int k = 0; k < 3 && pbc >> flag; k++) atoms.periodic[k] = flag == "T";
  const auto take = [&](const std::vector<std::string>& fields, const char* name,
                        std::vector<double>& out, int number) {
    const auto column = columns.find(name);
    for (int k = 0; k < number; k++)
      out.push_back(column == columns.end() ? 0.0 : std::stod(fields.at(column->second.first + k)));
  };
  for (int64_t left = std::stoll(line); left > 0; left--) {
    if (!std::getline(file, line)) throw std::runtime_error(path + ": atoms are missing");
    std::istringstream words(line);
    std::vector<std::string> fields;
    for (std::string word; words >> word;) fields.push_back(word);
    atoms.symbols.push_back(fields.at(columns.at("species").first));
    take(fields, "pos", atoms.positions, 3);
    take(fields, "masses", atoms.masses, 1);
    take(fields, "momenta", atoms.momenta, 3);
  }
  return atoms;
}

void write_xyz(const std::string& path, const Atoms& atoms) {
  std::ofstream file(path);
  file << std::setprecision(17) << atoms.symbols.size() << "\nLattice=\"";
  for (int k = 0; k < 9; k++) file << (k ? " " : "") << atoms.cell[k];
  file << "\" Properties=species:S:1:pos:R:3:masses:R:1:momenta:R:3 pbc=\"";
  for (int k = 0; k < 3; k++) file << (k ? " " : "") << (atoms.periodic[k] ? 'T' : 'F');
  file << "\"\n";
  for (std::size_t i = 0; i < atoms.symbols.size(); i++) {
    file << atoms.symbols[i];
    for (int k = 0; k < 3; k++) file << ' ' << atoms.positions[3 * i + k];
    file << ' ' << atoms.masses[i];
    for (int k = 0; k < 3; k++) file << ' ' << atoms.momenta[3 * i + k];
    file << '\n';
  }
  if (!file.flush()) throw std::runtime_error(path + ": cannot be written");
}

// The potential of some atoms that move; its neighbour list is kept while nobody has moved far.
class Potential {
 public:
  Potential(const std::string& weights, const Atoms& atoms, int threads)
      : threads_(threads), forces_(atoms.positions.size()) {
    char message[512] = "";
    model_.reset(stk_open(weights.c_str(), message, sizeof message));
    if (!model_) throw std::runtime_error(message);
    const stk_info* about = stk_about(model_.get());
    for (const std::string& symbol : atoms.symbols) {
      int32_t place = 0;
      while (place < about->num_species && symbol != about->species[place]) place++;
      if (place == about->num_species)
        throw std::runtime_error("the potential has no element " + symbol);
      species_.push_back(place);
    }
    list_.reset(stk_list_new(model_.get(), kSkin));
  }

  // The energy in eV; `forces` are then those of these atoms.
  double energy(const Atoms& atoms) {
    double energy = 0;
    const int32_t state = stk_compute_listed(
        list_.get(), static_cast<int64_t>(species_.size()), atoms.positions.data(),
        species_.data(), atoms.cell, atoms.periodic, threads_, &energy, nullptr, forces_.data(),
        nullptr);
    if (state == STK_NOT_FINITE) throw std::runtime_error("not finite: is the time step too long?");
    if (state != STK_DONE) throw std::runtime_error("the potential refuses the atoms or the cell");
    return energy;
  }

  const std::vector<double>& forces() const { return forces_; }
  int64_t lists_made() const { return stk_list_made(list_.get()); }

 private:
  struct CloseModel {
    void operator()(stk_model* model) const { stk_close(model); }
  };
  struct FreeList {
    void operator()(stk_list* list) const { stk_list_free(list); }
  };
  int threads_;
  std::vector<int32_t> species_;
  std::vector<double> forces_;
  std::unique_ptr<stk_model, CloseModel> model_;
  std::unique_ptr<stk_list, FreeList> list_;  // freed before the model
};

double kinetic_energy(const Atoms& atoms) {
  double twice = 0;
  for (std::size_t k = 0; k < atoms.momenta.size(); k++)
    twice += atoms.momenta[k] * atoms.momenta[k] / atoms.masses[k / 3];
  return 0.5 * twice;
}

void half_kick(Atoms& atoms, const std::vector<double>& forces, double timestep) {
  for (std::size_t k = 0; k < forces.size(); k++) atoms.momenta[k] += 0.5 * timestep * forces[k];
}

void run(Atoms& atoms, Potential& potential, long steps, double femtoseconds, long every) {
  const double timestep = femtoseconds * kFemtosecond;
  double energy = potential.energy(atoms);
  std::printf("%8s %12s %12s %20s %20s\n", "step", "time/fs", "T/K", "potential/eV", "total/eV");
  for (long step = 0;; step++) {
    if (step % every == 0 || step == steps) {
      const double kinetic = kinetic_energy(atoms);
      const double temperature = 2 * kinetic / (3 * atoms.masses.size() * kBoltzmann);
      std::printf("%8ld %12.3f %12.3f %20.10f %20.10f\n", step, step * femtoseconds, temperature,
                  energy, energy + kinetic);
    }
    if (step == steps) return;
    half_kick(atoms, potential.forces(), timestep);
    for (std::size_t k = 0; k < atoms.positions.size(); k++)
      atoms.positions[k] += timestep * atoms.momenta[k] / atoms.masses[k / 3];
    energy = potential.energy(atoms);
    half_kick(atoms, potential.forces(), timestep);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: %s WEIGHTS START.xyz END.xyz STEPS TIMESTEP_FS [EVERY [THREADS]]\n",
                 argv[0]);
    return 2;
  }
  try {
    Atoms atoms = read_xyz(argv[2]);
    Potential potential(argv[1], atoms, argc > 7 ? std::atoi(argv[7]) : 1);
    const long every = argc > 6 ? std::atol(argv[6]) : 100;
    run(atoms, potential, std::atol(argv[4]), std::atof(argv[5]), every > 0 ? every : 1);
    write_xyz(argv[3], atoms);
    std::printf("neighbour lists made: %lld\n", static_cast<long long>(potential.lists_made()));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "molecular_dynamics: %s\n", error.what());
    return 1;
  }
}
