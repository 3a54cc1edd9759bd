/* Transpose the rows of WIDTH edges into one vector per element of a row. */
static void gather_rows(vec *to, const real *const *rows, i64 size) {
  i64 j = 0;
  for (; j + WIDTH <= size; j += WIDTH) {
    for (int l = 0; l < WIDTH; l++) to[j + l] = ld(rows[l] + j);
    transpose(to + j);
  }
  for (; j < size; j++) for (int l = 0; l < WIDTH; l++) to[j][l] = rows[l][j];
}
/* The inverse for the first `count` edges: put_rows stores rows, add_rows adds them one by one,
   because several edges may have the same row. */
#define BACK(name, type, WHOLE, ONE) \
static void name(type *const *rows, const vec *from, i64 size, int count) { \
  i64 j = 0; \
  for (; j + WIDTH <= size; j += WIDTH) { \
    vec v[WIDTH]; \
    for (int l = 0; l < WIDTH; l++) v[l] = from[j + l]; \
    transpose(v); \
    for (int l = 0; l < count; l++) WHOLE; \
  } \
  for (; j < size; j++) for (int l = 0; l < count; l++) ONE; \
}
BACK(put_rows, real, *(partu *)(rows[l] + j) = __builtin_convertvector(v[l], part),
     rows[l][j] = (real)from[j][l])
BACK(add_rows, acc, *(vecu *)(rows[l] + j) += v[l], rows[l][j] += from[j][l])
