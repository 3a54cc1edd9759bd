// Times symmetrix' MACE on a given graph: symmetrix_peer MODEL.json GRAPH RESULT ROUNDS.
//
// GRAPH, native numbers: int64 atoms and edges; int32 type of each atom, number of its neighbours,
// neighbour and its type of each edge; float64 vectors (edges, 3) from atom to neighbour, lengths.
// RESULT: float64 energies (atoms) and derivatives (edges, 3). Prints CPU seconds of each round.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <span>
#include <vector>

#include "mace.hpp"

template <typename T> static std::vector<T> take(std::ifstream &file, int64_t many) {
  std::vector<T> found(many);
  file.read(reinterpret_cast<char *>(found.data()), many * sizeof(T));
  if (!file) std::exit(2);
  return found;
}

int main(int argc, char **argv) {
  if (argc != 5) return 1;
  std::ifstream file(argv[2], std::ios::binary);
  const auto sizes = take<int64_t>(file, 2);
  const auto types = take<int>(file, sizes[0]), counts = take<int>(file, sizes[0]);
  const auto neighbours = take<int>(file, sizes[1]), neighbour_types = take<int>(file, sizes[1]);
  const auto vectors = take<double>(file, 3 * sizes[1]), lengths = take<double>(file, sizes[1]);
  MACE model(argv[1]);
  for (int round = 0; round < std::atoi(argv[4]); round++) {
    const std::clock_t start = std::clock();
    model.compute_node_energies_forces((int)sizes[0], types, counts, neighbours, neighbour_types,
                                       vectors, lengths);
    std::printf("%.6f\n", double(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::ofstream result(argv[3], std::ios::binary);
  result.write(reinterpret_cast<const char *>(model.node_energies.data()), 8 * sizes[0]);
  result.write(reinterpret_cast<const char *>(model.node_forces.data()), 24 * sizes[1]);
  return result ? 0 : 3;
}
