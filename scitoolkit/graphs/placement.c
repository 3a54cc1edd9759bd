// Passes over ranges of nodes in ascending order. Row v - begin of (pointer, column) contains the
// neighbours of node v along in- and out-edges.
#include <stdint.h>

// Groups pairs (node, neighbour) by node. `cursor` is the start of each row on entry, its end on exit.
void group_pairs(int64_t num_pairs, const int32_t *pair, int64_t begin, int64_t *cursor,
                 int32_t *column) {
  for (int64_t e = 0; e < num_pairs; ++e) column[cursor[pair[2 * e] - begin]++] = pair[2 * e + 1];
}

// Linear deterministic greedy (Stanton and Kliot 2012, eq. 1): a node goes to the part with most of
// its neighbours, weighted by its remaining capacity. `owner` is -1 for nodes not yet placed.
void place_greedily(int64_t num_rows, int64_t begin, const int64_t *pointer, const int32_t *column,
                    const int32_t *weight, int32_t *owner, int64_t *load, int64_t num_parts,
                    int64_t limit, int64_t *near) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t v = begin + row;
    for (int64_t p = 0; p < num_parts; ++p) near[p] = 0;
    for (int64_t e = pointer[row]; e < pointer[row + 1]; ++e)
      if (owner[column[e]] >= 0) ++near[owner[column[e]]];
    int64_t best = 0;
    double best_score = -1e300;
    for (int64_t p = 0; p < num_parts; ++p) {
      const double score = (near[p] + 1e-3) * (1.0 - (double)load[p] / limit);
      if (score > best_score) { best_score = score; best = p; }
    }
    owner[v] = (int32_t)best;
    load[best] += weight[v];
  }
}

// Size-constrained label propagation: a node takes the majority label of its neighbours. `count` has
// one zero per label, `seen` has room for the neighbours of a node.
void take_majority(int64_t num_rows, int64_t begin, const int64_t *pointer, const int32_t *column,
                   const int32_t *weight, int32_t *label, int64_t *load, int64_t limit,
                   int32_t *count, int32_t *seen) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t v = begin + row;
    const int32_t own = label[v];
    int64_t num_seen = 0;
    for (int64_t e = pointer[row]; e < pointer[row + 1]; ++e) {
      if (column[e] == v) continue;
      const int32_t other = label[column[e]];
      if (!count[other]++) seen[num_seen++] = other;
    }
    int32_t best = own, most = count[own];
    for (int64_t i = 0; i < num_seen; ++i) {
      const int32_t other = seen[i];
      if (count[other] > most && load[other] + weight[v] <= limit) {
        most = count[other];
        best = other;
      }
    }
    for (int64_t i = 0; i < num_seen; ++i) count[seen[i]] = 0;
    load[own] -= weight[v];
    load[best] += weight[v];
    label[v] = best;
  }
}
