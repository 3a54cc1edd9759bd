/* out[e] = <left[row], right[column]> for each nonzero e. */
void sddmm(int64_t rows, const int64_t *restrict pointer, const int32_t *restrict column,
           const real *restrict left, const real *restrict right, real *restrict out,
           int64_t threads) {
  const int64_t last = pointer[rows];
  #pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if(threads > 1)
  for (int64_t block = 0; block < (rows + BLOCK - 1) / BLOCK; ++block) {
    const int64_t stop = (block + 1) * BLOCK < rows ? (block + 1) * BLOCK : rows;
    for (int64_t i = block * BLOCK; i < stop; ++i) {
      const real *restrict l = left + i * W;
      for (int64_t e = pointer[i]; e < pointer[i + 1]; ++e) {
        const int64_t soon = e + AHEAD < last ? e + AHEAD : last - 1;
        const char *next = (const char *)(right + (int64_t)column[soon] * W);
        for (int b = 0; b < W * (int)sizeof(real); b += LINE) __builtin_prefetch(next + b);
        const real *restrict r = right + (int64_t)column[e] * W;
        vec sum = {0};
        for (int k = 0; k + LANES <= W; k += LANES)
          sum += *(const vec *)(l + k) * *(const vec *)(r + k);
        real total = 0;
        for (int k = 0; k < LANES; ++k) total += sum[k];
        for (int k = W - W % LANES; k < W; ++k) total += l[k] * r[k];
        out[e] = total;
      }
    }
  }
}
