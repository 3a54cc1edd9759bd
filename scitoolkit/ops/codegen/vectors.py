"""C source shared by kernels over independent rows: vector types, loads, stores, loops over blocks.

A kernel with independent rows (one row per edge) computes a block of LANES rows at a time, one row
per SIMD lane. The blocks do not depend on the number of threads, so results are bit-identical.
"""

from __future__ import annotations

PRELUDE = """
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
typedef int64_t i64;
typedef {real} real;
typedef {element} element;
#ifdef __AVX512F__
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define LANES ((int)(BYTES / sizeof(real)))
typedef real vec __attribute__((vector_size(BYTES)));
typedef real vecu __attribute__((vector_size(BYTES), aligned(sizeof(real)), may_alias));
typedef {integer} ivec __attribute__((vector_size(BYTES)));
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (ivec){{__VA_ARGS__}})
#endif
"""

BLOCKS = """
/* Transpose LANES rows into one vector per column, and back; inlined with a constant `width`. */
static inline __attribute__((always_inline)) void load_rows(vec *v, const real *p, int width) {
  int j = 0;
  for (; j + LANES <= width; j += LANES) {
    for (int l = 0; l < LANES; l++) v[j + l] = *(const vecu *)(p + l * width + j);
    transpose(v + j);
  }
  for (; j < width; j++) for (int l = 0; l < LANES; l++) v[j][l] = p[l * width + j];
}
static inline __attribute__((always_inline)) void store_rows(real *p, vec *v, int width) {
  int j = 0;
  for (; j + LANES <= width; j += LANES) {
    transpose(v + j);
    for (int l = 0; l < LANES; l++) *(vecu *)(p + l * width + j) = v[j + l];
  }
  for (; j < width; j++) for (int l = 0; l < LANES; l++) p[l * width + j] = v[j][l];
}
static void take(element *to, const element *from, int count, int width) {
  for (int l = 0; l < LANES; l++)
    memcpy(to + l * width, from + (l < count ? l : count - 1) * width, width * sizeof(element));
}
"""


def transposed_in_place(lanes: int) -> str:
    """Return C that transposes the lanes x lanes values of a[] in log2(lanes) rounds."""
    lines, step = [], 1
    # A round exchanges the blocks off the diagonal of 2 step x 2 step tiles: log2(lanes) rounds of
    # two-register shuffles, which every instruction set has, instead of gathers.
    while step < lanes:
        low = [lane if not lane & step else lanes + (lane ^ step) for lane in range(lanes)]
        high = [lane ^ step if not lane & step else lanes + lane for lane in range(lanes)]
        for i in range(lanes):
            if not i & step:
                pair = f"a[{i}], a[{i + step}]"
                text = [", ".join(map(str, bound)) for bound in (low, high)]
                lines.append(
                    f"{{ const vec lo = SHUFFLE({pair}, {text[0]}), "
                    f"hi = SHUFFLE({pair}, {text[1]}); a[{i}] = lo; a[{i + step}] = hi; }}"
                )
        step *= 2
    return "\n".join(lines)


def prelude(real: str, element: str | None = None) -> str:
    """Return the types and functions at the beginning of every kernel over blocks of rows.

    Args:
        real: float or double, the type of the arithmetic.
        element: the type of the rows in memory, by default `real`.

    Example:
        >>> "typedef float real;" in prelude("float")
        True
    """
    width = {"float": 4, "double": 8}[real]
    cases = "\n".join(
        f"#if BYTES == {size}\n{transposed_in_place(size // width)}\n#endif"
        for size in (16, 32, 64)
    )
    transpose = (
        f"static inline __attribute__((always_inline)) void transpose(vec *a) {{\n{cases}\n}}"
    )
    integer = f"int{8 * width}_t"
    head = PRELUDE.format(real=real, element=element or real, integer=integer)
    return head + transpose + BLOCKS


def over_blocks(name: str, inputs: dict[str, int], outputs: dict[str, int], body: str) -> str:
    """Return a C function that executes `body` for every block of LANES rows in parallel.

    A partial last block is copied and padded with its last row.

    Args:
        name: name of the function, called as `name(N, *inputs, *outputs, threads)`.
        inputs: name and number of columns of each input array.
        outputs: name and number of columns of each output array.
        body: statements in which each name points to the first row of the block.
    """
    widths = {**inputs, **outputs}
    types = {array: "const element" if array in inputs else "element" for array in widths}
    parameters = ", ".join(f"{kind} *{array}" for array, kind in types.items())
    rows = ", ".join(f"{kind} *restrict {array}" for array, kind in types.items())
    buffers = "\n".join(f"element t_{k}[LANES*{max(w, 1)}];" for k, w in widths.items())
    fill = "\n".join(f"take(t_{k}, {k} + first*{w}, count, {w});" for k, w in inputs.items())
    empty = "\n".join(
        f"memcpy({k} + first*{w}, t_{k}, count*{w}*sizeof(element));" for k, w in outputs.items()
    )
    whole = ", ".join(f"{k} + first*{w}" for k, w in widths.items())
    return f"""
static void {name}_block({rows}) {{
{body}
}}
void {name}(i64 N, {parameters}, i64 threads) {{
const i64 blocks = (N + LANES - 1) / LANES;
#pragma omp parallel for num_threads(threads) if(threads > 1 && blocks > 16) schedule(static)
for (i64 block = 0; block < blocks; block++) {{
const i64 first = block * LANES;
const i64 count = N - first;
if (count >= LANES) {{ {name}_block({whole}); continue; }}
{buffers}
{fill}
{name}_block({", ".join(f"t_{array}" for array in widths)});
{empty}
}}
}}
"""
