"""Register tiles for quantised weights: R rows of integer inputs times V vectors of outputs.

Bytes: codes of 2 or 4 bits times inputs of 8 bits, 4 inputs of an output in 32 bits; codes of
several steps share a byte. Octets: codes of 8 bits, plus 128, times inputs of 8 bits. Words: codes
of 8 bits times inputs of 16 bits. Integer arithmetic is
exact, so that the result does not depend on the instruction set; each group of inputs ends in one
floating-point multiply-add.
"""

from __future__ import annotations

import itertools

import numpy as np

STEP = {8: 4, 16: 2}
"""Inputs of an output that are multiplied and added in one step, by their bits."""
FLUSH = {2: 43, 4: 8, 8: 1 << 20}
"""Steps after which 16-bit sums are widened: 2 x 127 x largest code x steps < 32768. Octets have
sums of 32 bits."""


def tile_name(bits: int, input_bits: int, rows: int, vectors: int) -> str:
    """Return the name of a kernel."""
    return f"stk_bits{bits}_{input_bits}_{rows}x{vectors}"


def pack(codes: np.ndarray, bits: int, input_bits: int, vectors: int, lanes: int) -> np.ndarray:
    """Pack codes (inputs, outputs) into bytes in the order in which tiles read them.

    The numbers of inputs and outputs are multiples of a group and of a vector. Blocks of `vectors`
    vectors are ordered by step of inputs, vector, output, input of the step; codes of several steps
    share a byte.

    Example:
        >>> pack(np.arange(16).reshape(8, 2), 4, 8, 1, 2).tolist()
        [128, 162, 196, 230, 145, 179, 213, 247]
    """
    inputs, outputs = codes.shape
    step, shared = STEP[input_bits], 8 // bits
    out = []
    for first in range(0, outputs, vectors * lanes):
        part = codes[:, first : first + vectors * lanes]
        wide = part.shape[1] // lanes
        steps = part.reshape(inputs // step // shared, shared, step, wide, lanes)
        joined = np.zeros((steps.shape[0], step, wide, lanes), np.uint8)
        for place in range(shared):
            joined |= (steps[:, place].astype(np.int16) << bits * place).astype(np.uint8)
        out.append(joined.transpose(0, 2, 3, 1).ravel())
    return np.concatenate(out)


def tile_source(bits: int, input_bits: int, rows: int, vectors: int) -> str:
    """Return the C function of one tile.

    Rows of integers are `row` elements apart, scales and sums of the groups of a row `groups`
    elements. Inlining with constant arguments specialises each call.
    """
    at = list(itertools.product(range(rows), range(vectors)))
    words = input_bits == 16
    middle = 128.0 if bits == 8 else (2**bits - 1) / 2
    lines = [
        f"static inline __attribute__((always_inline)) void "
        f"{tile_name(bits, input_bits, rows, vectors)}(",
        f"    const int{input_bits}_t *x, int64_t row, const float *scale, const float *sum,",
        "    int64_t groups, int64_t group, const int8_t *w, const float *step, const float *bias,",
        "    float *out, int64_t out_row) {",
        "  const vec_float none = {0};",
        *(
            f"  vec_float f{r}_{v} = bias ? *(const vec_float *)(bias + {v} * LANES_float) : none;"
            for r, v in at
        ),
        "  for (int64_t g = 0; g < groups; g++) {",
        *(f"    vec_i s{r}_{v} = {{0}};" for r, v in at),
        *(_words(rows, vectors) if words else _bytes(bits, rows, vectors)),
        *(
            f"    f{r}_{v} += (stk_floats(s{r}_{v})"
            + ("" if words else f" - sum[{r} * groups + g] * {middle}f")
            + f") * (scale[{r} * groups + g] * *(const vec_float *)(step + {v} * LANES_float));"
            for r, v in at
        ),
        f"    step += {vectors} * LANES_float;",
        "    x += group;",
        "  }",
        *(f"  *(vec_float *)(out + {r} * out_row + {v} * LANES_float) = f{r}_{v};" for r, v in at),
        "}",
    ]
    return "\n".join(lines)


def _words(rows: int, vectors: int) -> list[str]:
    return [
        "    for (int64_t k = 0; k < group; k += 2) {",
        *(f"      const vec_i w{v} = stk_wide(w + {v} * 2 * LANES_float);" for v in range(vectors)),
        f"      w += {vectors} * 2 * LANES_float;",
        *(
            f"      const int32_t x{r} = *(const stk_int *)(x + {r} * row + k);"
            for r in range(rows)
        ),
        *(
            f"      s{r}_{v} = stk_words(s{r}_{v}, w{v}, x{r});"
            for r in range(rows)
            for v in range(vectors)
        ),
        "    }",
    ]


def _bytes(bits: int, rows: int, vectors: int) -> list[str]:
    """Return the loop over a group with 16-bit sums, widened before they overflow."""
    shared, mask = 8 // bits, (2**bits - 1) * 0x0101
    most = 4 * shared * (FLUSH[bits] // shared)
    at = list(itertools.product(range(rows), range(vectors)))
    dot, widened = ("stk_octets", "") if bits == 8 else ("stk_bytes", "stk_pairs")
    lines = [
        f"    for (int64_t first = 0; first < group; first += {most}) {{",
        f"      const int64_t last = group - first < {most} ? group : first + {most};",
        *(f"      vec_i p{r}_{v} = {{0}};" for r, v in at),
        f"      for (int64_t k = first; k < last; k += {4 * shared}) {{",
    ]
    for v in range(vectors):
        lines.append(f"        const vec_h c{v} = *(const vec_h *)(w + {v} * 4 * LANES_float);")
    for place in range(shared):
        lines.append("        {")
        lines += [
            f"          const int32_t x{r} = *(const stk_int *)(x + {r} * row + k + {4 * place});"
            for r in range(rows)
        ]
        for v in range(vectors):
            lines.append(f"          const vec_h u{v} = (c{v} >> {bits * place}) & {mask};")
            lines += [f"          p{r}_{v} = {dot}(p{r}_{v}, u{v}, x{r});" for r in range(rows)]
        lines.append("        }")
    return [
        *lines,
        f"        w += {vectors} * 4 * LANES_float;",
        "      }",
        *(f"      s{r}_{v} += {widened}(p{r}_{v});" for r, v in at),
        "    }",
    ]
