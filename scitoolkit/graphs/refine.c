/* One sweep of partition refinement; see refine.py. */
#include <stdint.h>

// For each node u, count[u * P + p] = number of edges from u into part p; part p needs the row of u if
// that is positive and p does not own u.
void refine(int64_t n, int64_t P, const int64_t *in_ptr, const int32_t *in,
               const int64_t *order, int64_t *owner, int32_t *count, int64_t *received,
               int64_t *load, int64_t limit) {
  for (int64_t step = 0; step < n; ++step) {
    const int64_t v = order[step], a = owner[v];
    const int64_t weight = in_ptr[v + 1] - in_ptr[v] + 1;
    int32_t *cv = count + v * P;
    // Moving v out of a: rows that a needed only for v are no longer received.
    int64_t saved = 0;
    for (int64_t e = in_ptr[v]; e < in_ptr[v + 1]; ++e) {
      const int64_t u = in[e];
      if (u != v && owner[u] != a && count[u * P + a] == 1) ++saved;
    }
    const int64_t own_needed = cv[a] > 0;  // a still needs the row of v
    double best = 0; int64_t to = -1, best_new = 0;
    for (int64_t b = 0; b < P; ++b) {
      if (b == a || load[b] + weight > limit) continue;
      int64_t added = 0;
      for (int64_t e = in_ptr[v]; e < in_ptr[v + 1]; ++e) {
        const int64_t u = in[e];
        if (u != v && owner[u] != b && count[u * P + b] == 0) ++added;
      }
      const double at_a = (double)received[a], at_b = (double)received[b];
      const double new_a = at_a - saved + own_needed;
      const double new_b = at_b + added - (cv[b] > 0);
      const double gain = at_a * at_a + at_b * at_b - new_a * new_a - new_b * new_b;
      if (gain > best) { best = gain; to = b; best_new = added; }
    }
    if (to < 0) continue;
    const int64_t b = to;
    received[a] += own_needed - saved;
    received[b] += best_new - (cv[b] > 0);
    for (int64_t e = in_ptr[v]; e < in_ptr[v + 1]; ++e) {
      const int64_t u = in[e];
      count[u * P + a] -= 1; count[u * P + b] += 1;
    }
    load[a] -= weight; load[b] += weight; owner[v] = b;
  }
}
