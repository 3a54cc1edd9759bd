/* Additive attention (GATv2) with the scores
   s = sum over c of vector[c] LeakyReLU(left[i, c] + x[j, c]). */

typedef whole ivec __attribute__((vector_size(LANES * sizeof(real)), aligned(sizeof(real))));

static inline vec positive_part(vec t) { return (vec)((ivec)t & (ivec)(t > (vec){0})); }

static inline void read_scores(const real *restrict left, const real *restrict x,
                               const real *restrict vector, real slope, real *restrict score) {
  for (int h = 0; h < HEADS; h++) {
    vec sum = {0};
    for (int k = h * WIDTH; k < (h + 1) * WIDTH; k += LANES) {
      const vec t = *(const vec *)(left + k) + *(const vec *)(x + k);
      sum += *(const vec *)(vector + k) * (slope * t + (1 - slope) * positive_part(t));
    }
    score[h] = total_of(sum);
  }
}

/* by[h, c] += change[h] vector[h, c] LeakyReLU'(left + x) */
static inline void add_slopes(const real *restrict left, const real *restrict x,
                              const real *restrict vector, real slope,
                              const real *restrict change, real *restrict by) {
  for (int h = 0; h < HEADS; h++)
    for (int k = h * WIDTH; k < (h + 1) * WIDTH; k += LANES) {
      const vec t = *(const vec *)(left + k) + *(const vec *)(x + k);
      const vec one = (vec){0} + (real)1;
      const vec steep = slope + (1 - slope) * (vec)((ivec)one & (ivec)(t > (vec){0}));
      *(vec *)(by + k) += change[h] * *(const vec *)(vector + k) * steep;
    }
}

static void attend(int64_t begin, int64_t end, int64_t last, const int32_t *restrict column,
                   const real *restrict left, const real *restrict x,
                   const real *restrict vector, real slope, real *restrict out,
                   real *restrict norm) {
  softmax sums;
  real less[HEADS], score[BLOCK * HEADS], scale[HEADS];
  begin_softmax(&sums);
  memset(out, 0, ROW * sizeof(real));
  for (int64_t e = begin; e < end; e += BLOCK) {
    const int count = end - e < BLOCK ? (int)(end - e) : BLOCK;
    for (int b = 0; b < BLOCK && e + count + b < last; b++)
      ask_for(x + (int64_t)column[e + count + b] * ROW, ROW);
    for (int b = 0; b < count; b++)
      read_scores(left, x + (int64_t)column[e + b] * ROW, vector, slope, score + b * HEADS);
    if (add_scores(&sums, score, count, less)) scale_row(out, less);
    add_rows(out, score, count, column + e, x);
  }
  end_softmax(&sums, end == begin, scale, norm);
  scale_row(out, scale);
}

void attention(int64_t rows, const int64_t *restrict pointer, const int32_t *restrict column,
               const real *restrict left, const real *restrict x, const real *restrict vector,
               const real *restrict slope, real *restrict out, real *restrict norm,
               int64_t threads) {
  #pragma omp parallel for schedule(dynamic, ROWS_PER_TASK) num_threads(threads) if(threads > 1)
  for (int64_t i = 0; i < rows; i++)
    attend(pointer[i], pointer[i + 1], pointer[rows], column, left + i * ROW, x, vector, *slope,
           out + i * ROW, norm + i * HEADS);
}

/* Weight of an edge, and the derivative with respect to its score. */
static inline void weigh(const real *restrict left, const real *restrict x,
                         const real *restrict vector, real slope, const real *restrict norm,
                         const real *restrict mean, const real *restrict grad,
                         real *restrict weight, real *restrict change) {
  read_scores(left, x, vector, slope, weight);
  for (int h = 0; h < HEADS; h++) weight[h] = exponential(weight[h] - norm[h]);
  for (int h = 0; h < HEADS; h++)
    change[h] = weight[h] * (dot(grad + h * WIDTH, x + h * WIDTH) - mean[h]);
}

/* Derivatives with respect to `left` and, summed over ROWS_PER_TASK rows, to the vector. */
void attention_rows(int64_t rows, const int64_t *restrict pointer, const int32_t *restrict column,
                    const real *restrict left, const real *restrict x,
                    const real *restrict vector, const real *restrict slope,
                    const real *restrict out, const real *restrict norm,
                    const real *restrict grad, real *restrict mean, real *restrict by_left,
                    real *restrict by_vector, int64_t threads) {
  const int64_t last = pointer[rows];
  #pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if(threads > 1)
  for (int64_t task = 0; task < (rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK; task++) {
    real *restrict by = by_vector + task * ROW;
    memset(by, 0, ROW * sizeof(real));
    const int64_t stop = (task + 1) * ROWS_PER_TASK < rows ? (task + 1) * ROWS_PER_TASK : rows;
    for (int64_t i = task * ROWS_PER_TASK; i < stop; i++) {
      const real *restrict l = left + i * ROW, *restrict g = grad + i * ROW;
      for (int h = 0; h < HEADS; h++)
        mean[i * HEADS + h] = dot(g + h * WIDTH, out + i * ROW + h * WIDTH);
      memset(by_left + i * ROW, 0, ROW * sizeof(real));
      for (int64_t e = pointer[i]; e < pointer[i + 1]; e++) {
        if (e + BLOCK < last) ask_for(x + (int64_t)column[e + BLOCK] * ROW, ROW);
        const real *restrict r = x + (int64_t)column[e] * ROW;
        real weight[HEADS], change[HEADS];
        weigh(l, r, vector, *slope, norm + i * HEADS, mean + i * HEADS, g, weight, change);
        add_slopes(l, r, vector, *slope, change, by_left + i * ROW);
        for (int h = 0; h < HEADS; h++)
          for (int k = h * WIDTH; k < (h + 1) * WIDTH; k += LANES) {
            const vec t = *(const vec *)(l + k) + *(const vec *)(r + k);
            *(vec *)(by + k) += change[h] * (*slope * t + (1 - *slope) * positive_part(t));
          }
      }
    }
  }
}

/* Derivative with respect to x; pointer and row are those of the transposed pattern. */
void attention_columns(int64_t columns, const int64_t *restrict pointer,
                       const int32_t *restrict row, const real *restrict left,
                       const real *restrict x, const real *restrict vector,
                       const real *restrict slope, const real *restrict norm,
                       const real *restrict mean, const real *restrict grad,
                       real *restrict by_x, int64_t threads) {
  const int64_t last = pointer[columns];
  #pragma omp parallel for schedule(dynamic, ROWS_PER_TASK) num_threads(threads) if(threads > 1)
  for (int64_t j = 0; j < columns; j++) {
    real *restrict by = by_x + j * ROW;
    memset(by, 0, ROW * sizeof(real));
    for (int64_t e = pointer[j]; e < pointer[j + 1]; e++) {
      const int64_t i = row[e], soon = row[e + BLOCK < last ? e + BLOCK : last - 1];
      ask_for(left + soon * ROW, ROW);
      ask_for(grad + soon * ROW, ROW);
      real weight[HEADS], change[HEADS];
      weigh(left + i * ROW, x + j * ROW, vector, *slope, norm + i * HEADS, mean + i * HEADS,
            grad + i * ROW, weight, change);
      add_slopes(left + i * ROW, x + j * ROW, vector, *slope, change, by);
      add_rows(by, weight, 1, row + e, grad);
    }
  }
}
