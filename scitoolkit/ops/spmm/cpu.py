"""Generator of C kernels for the product of a sparse CSR matrix and a dense matrix.

The width of the dense matrix is a constant of the generated code, so that a row of the result stays
in registers during the loop over its nonzeros. Rows of the dense matrix are scattered in memory and
are prefetched, which is decisive for graphs whose features exceed the cache. The prefetch distance
in nonzeros decreases with the width, so that the number of cache lines in flight is about constant.
Threads process blocks of rows; one thread sums a row in stored order, so the result does not depend
on the number of threads.
"""

from __future__ import annotations

from scitoolkit.ops.codegen.compile import read
from scitoolkit.ops.codegen.emit import banner

AVX512_BYTES, VECTOR_BYTES = 64, 32
LINE_BYTES = 64
REGISTERS = 8  # accumulators per pass: half of the AVX2 registers, the others hold operands
LINES_AHEAD, LEAST_AHEAD = 64, 12  # cache lines in flight; minimum prefetch distance in nonzeros
ROWS_PER_BLOCK = 128

_HEAD = """\
#include <stdint.h>
#include <string.h>
typedef {real} real;
typedef real vec __attribute__((vector_size({vector_bytes}), aligned({align})));
#define W {width}
#define AHEAD {ahead}
"""

_PRODUCT = """
static inline void row_pass{index}(const int64_t begin, const int64_t end, const int64_t last,
    const int32_t *restrict column, const real *restrict value, const real *restrict x,
    real *restrict out, const int accumulate) {{
  {declare}
  if (accumulate) {{
    {load}
  }}
  for (int64_t e = begin; e < end; ++e) {{
    const int64_t soon = e + AHEAD < last ? e + AHEAD : last - 1;
    const char *next = (const char *)(x + (int64_t)column[soon] * W + {offset});
    {prefetch}
    const real v = value ? value[e] : (real)1;
    const real *restrict row = x + (int64_t)column[e] * W + {offset};
    {fma}
  }}
  {store}
}}
"""

_DRIVER = """
void spmm(int64_t rows, const int64_t *restrict pointer, const int32_t *restrict column,
          const real *restrict value, const real *restrict x, const real *restrict bias,
          real *restrict out, int64_t accumulate, int64_t threads) {{
  const int64_t last = pointer[rows];
  #pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if(threads > 1)
  for (int64_t block = 0; block < (rows + {block} - 1) / {block}; ++block) {{
    const int64_t stop = (block + 1) * {block} < rows ? (block + 1) * {block} : rows;
    for (int64_t i = block * {block}; i < stop; ++i) {{
      real *restrict y = out + i * W;
      const int64_t begin = pointer[i], end = pointer[i + 1];
      if (bias) {{
        if (accumulate) for (int k = 0; k < W; ++k) y[k] += bias[k];
        else memcpy(y, bias, W * sizeof(real));
      }}
      {passes}
    }}
  }}
}}
"""


def generate(width: int, real: str) -> str:
    """Return C source with `spmm` and `sddmm` for dense matrices of `width` columns.

    Args:
        width: columns of the dense matrices, at least 1.
        real: "float" or "double".

    Example:
        >>> "void spmm(" in generate(16, "float")
        True
    """
    wide, narrow = (_source(width, real, size) for size in (AVX512_BYTES, VECTOR_BYTES))
    title = banner(f"sparse product and sampled product of {width} columns, {real}")
    return f"{title}\n#ifdef __AVX512F__\n{wide}\n#else\n{narrow}\n#endif\n"


def _source(width: int, real: str, vector_bytes: int) -> str:
    size = 4 if real == "float" else 8
    lanes = vector_bytes // size
    ahead = max(LEAST_AHEAD, LINES_AHEAD // -(-width * size // LINE_BYTES))
    head = _HEAD.format(real=real, vector_bytes=vector_bytes, align=size, width=width, ahead=ahead)
    passes = _passes(width, lanes)
    bodies = [
        f"\n{banner(_description(index, offset, vectors, tail, lanes))}"
        + _PRODUCT.format(index=index, offset=offset, **_pass(vectors, tail, lanes, size))
        for index, (offset, vectors, tail) in enumerate(passes)
    ]
    calls = "\n      ".join(
        f"row_pass{index}(begin, end, last, column, value, x, y + {offset}, accumulate || bias);"
        for index, (offset, _, _) in enumerate(passes)
    )
    driver = _DRIVER.format(block=ROWS_PER_BLOCK, passes=calls)
    sizes = f"#define BLOCK {ROWS_PER_BLOCK}\n#define LINE {LINE_BYTES}\n#define LANES {lanes}\n"
    return head + "".join(bodies) + driver + sizes + read(__file__, "sddmm.c")


def _description(index: int, offset: int, vectors: int, tail: int, lanes: int) -> str:
    last = offset + vectors * lanes + tail - 1
    return f"pass {index}: columns {offset}..{last}, {vectors} vectors of {lanes}, {tail} single"


def _passes(width: int, lanes: int) -> list[tuple[int, int, int]]:
    """Return passes (offset, full vectors, remaining columns) that fit into registers."""
    out, offset = [], 0
    while offset < width:
        vectors = min(REGISTERS, (width - offset) // lanes)
        rest = width - offset - vectors * lanes
        tail = rest if rest < lanes else 0
        out.append((offset, vectors, tail))
        offset += vectors * lanes + tail
    return out


def _pass(vectors: int, tail: int, lanes: int, size: int) -> dict[str, str]:
    base = vectors * lanes
    lines = range(0, (base + tail) * size, LINE_BYTES)

    def statements(vector: str, scalar: str, indentation: int = 4) -> str:
        """Return the statements of all accumulators; `{i}` is the number and `{k}` the column."""
        parts = [vector.format(i=i, k=i * lanes) for i in range(vectors)]
        parts += [scalar.format(i=i, k=base + i) for i in range(tail)]
        return f"\n{indentation * ' '}".join(parts)

    return {
        "declare": statements("vec a{i} = {{0}};", "real t{i} = 0;", 2),
        "load": statements("a{i} = *(const vec *)(out + {k});", "t{i} = out[{k}];"),
        "prefetch": "\n    ".join(f"__builtin_prefetch(next + {byte});" for byte in lines),
        "fma": statements("a{i} += v * *(const vec *)(row + {k});", "t{i} += v * row[{k}];"),
        "store": statements("*(vec *)(out + {k}) = a{i};", "out[{k}] = t{i};", 2),
    }
