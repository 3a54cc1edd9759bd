/* Graph attention (GAT) with the scores LeakyReLU(left[i] + right[j]). */

static void attend(int64_t begin, int64_t end, int64_t last, const int32_t *restrict column,
                   const real *restrict left, const real *restrict right, const real *restrict x,
                   real slope, real *restrict out, real *restrict norm, real *restrict positive,
                   real *restrict share) {
  softmax sums;
  real above[HEADS] = {0}, less[HEADS], score[BLOCK * HEADS], rising[BLOCK * HEADS];
  begin_softmax(&sums);
  memset(out, 0, ROW * sizeof(real));
  memset(positive, 0, ROW * sizeof(real));
  for (int64_t e = begin; e < end; e += BLOCK) {
    const int count = end - e < BLOCK ? (int)(end - e) : BLOCK;
    for (int b = 0; b < BLOCK; b++) {
      const int64_t soon = e + count + b;
      if (soon < last) {
        ask_for(x + (int64_t)column[soon] * ROW, ROW);
        ask_for(right + (int64_t)column[soon] * HEADS, HEADS);
      }
    }
    for (int b = 0; b < count; b++)
      for (int h = 0; h < HEADS; h++) {
        const real s = left[h] + right[(int64_t)column[e + b] * HEADS + h];
        rising[b * HEADS + h] = s > 0;
        score[b * HEADS + h] = s > 0 ? s : slope * s;
      }
    if (add_scores(&sums, score, count, less)) {
      for (int h = 0; h < HEADS; h++) above[h] *= less[h];
      scale_row(out, less);
      scale_row(positive, less);
    }
    for (int k = 0; k < count * HEADS; k++) rising[k] *= score[k];
    for (int b = 0; b < count; b++)
      for (int h = 0; h < HEADS; h++) above[h] += rising[b * HEADS + h];
    add_rows(out, score, count, column + e, x);
    add_rows(positive, rising, count, column + e, x);
  }
  real scale[HEADS];
  end_softmax(&sums, end == begin, scale, norm);
  scale_row(out, scale);
  scale_row(positive, scale);
  for (int h = 0; h < HEADS; h++) share[h] = above[h] * scale[h];
}

void attention(int64_t rows, const int64_t *restrict pointer, const int32_t *restrict column,
               const real *restrict left, const real *restrict right, const real *restrict x,
               const real *restrict slope, real *restrict out, real *restrict norm,
               real *restrict positive, real *restrict share, int64_t threads) {
  #pragma omp parallel for schedule(dynamic, ROWS_PER_TASK) num_threads(threads) if(threads > 1)
  for (int64_t i = 0; i < rows; i++)
    attend(pointer[i], pointer[i + 1], pointer[rows], column, left + i * HEADS, right, x, *slope,
           out + i * ROW, norm + i * HEADS, positive + i * ROW, share + i * HEADS);
}

/* Inputs of attention_columns per row, and the derivative with respect to `left`. */
void attention_rows(int64_t rows, const real *restrict left, const real *restrict out,
                    const real *restrict norm, const real *restrict positive,
                    const real *restrict share, const real *restrict grad,
                    const real *restrict slope, real *restrict of_rows, real *restrict by_left,
                    int64_t threads) {
  #pragma omp parallel for schedule(static) num_threads(threads) if(threads > 1)
  for (int64_t i = 0; i < rows; i++)
    for (int h = 0; h < HEADS; h++) {
      const int64_t k = i * HEADS + h;
      const real mean = dot(grad + k * WIDTH, out + k * WIDTH);
      real *row = of_rows + i * 3 * HEADS + h;
      row[0] = left[k];
      row[HEADS] = norm[k];
      row[2 * HEADS] = mean;
      by_left[k] = (1 - *slope) * (dot(grad + k * WIDTH, positive + k * WIDTH) - mean * share[k]);
    }
}

static void attended(int64_t begin, int64_t end, int64_t last, const int32_t *restrict row,
                     const real *restrict right, const real *restrict x,
                     const real *restrict of_rows, const real *restrict grad, real slope,
                     real *restrict by_right, real *restrict by_x) {
  real weight[BLOCK * HEADS], steep[BLOCK * HEADS], product[BLOCK * HEADS];
  memset(by_right, 0, HEADS * sizeof(real));
  memset(by_x, 0, ROW * sizeof(real));
  for (int64_t e = begin; e < end; e += BLOCK) {
    const int count = end - e < BLOCK ? (int)(end - e) : BLOCK;
    for (int b = 0; b < BLOCK; b++) {
      const int64_t soon = e + count + b;
      if (soon < last) {
        ask_for(grad + (int64_t)row[soon] * ROW, ROW);
        ask_for(of_rows + (int64_t)row[soon] * 3 * HEADS, 3 * HEADS);
      }
    }
    for (int b = 0; b < count; b++) {
      const real *restrict of = of_rows + (int64_t)row[e + b] * 3 * HEADS;
      const real *restrict g = grad + (int64_t)row[e + b] * ROW;
      for (int h = 0; h < HEADS; h++) {
        const real s = of[h] + right[h];
        weight[b * HEADS + h] = (s > 0 ? s : slope * s) - of[HEADS + h];
        steep[b * HEADS + h] = s > 0 ? 1 : slope;
      }
      for (int h = 0; h < HEADS; h++)
        product[b * HEADS + h] = dot(g + h * WIDTH, x + h * WIDTH) - of[2 * HEADS + h];
    }
    for (int k = 0; k < count * HEADS; k++) weight[k] = exponential(weight[k]);
    for (int b = 0; b < count; b++)
      for (int h = 0; h < HEADS; h++)
        by_right[h] += weight[b * HEADS + h] * product[b * HEADS + h] * steep[b * HEADS + h];
    add_rows(by_x, weight, count, row + e, grad);
  }
}

/* Derivatives with respect to `right` and `x`; pointer and row are of the transposed pattern. */
void attention_columns(int64_t columns, const int64_t *restrict pointer,
                       const int32_t *restrict row, const real *restrict right,
                       const real *restrict x, const real *restrict of_rows,
                       const real *restrict grad, const real *restrict slope,
                       real *restrict by_right, real *restrict by_x, int64_t threads) {
  #pragma omp parallel for schedule(dynamic, ROWS_PER_TASK) num_threads(threads) if(threads > 1)
  for (int64_t j = 0; j < columns; j++)
    attended(pointer[j], pointer[j + 1], pointer[columns], row, right + j * HEADS, x + j * ROW,
             of_rows, grad, *slope, by_right + j * HEADS, by_x + j * ROW);
}
