"""C prelude of the tensor product's kernels: types, vectors, loads and stores."""

from __future__ import annotations

from scitoolkit.ops.codegen.compile import read
from scitoolkit.ops.tensor_product.spec import TensorProductSpec

SIZES = {"float": 4, "double": 8}
WIDEST = 64  # bytes of the widest vectors (AVX-512)
# Size of an output above which non-temporal stores pay: it would be evicted before it is read.
STREAM_BYTES = 4 << 20

TYPES = """
#include <sched.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#define PAUSE __builtin_ia32_pause()
#else
#define PAUSE
#endif
typedef int64_t i64;
typedef {real} real;
typedef {acc} acc;
typedef {acc} num;
typedef {gradw} gradw;
#if defined(BYTES) /* of a vector, set by tests of other widths */
#elif defined(__AVX512F__) && {widest} >= 64
#define BYTES 64
#elif defined(__AVX__) && {widest} >= 32
#define BYTES 32
#else
#define BYTES 16
#endif
#define WIDTH (BYTES / {acc_size})
#define LANES WIDTH /* channels in a vector */
#define PART (LANES * {real_size})
#define TILE {tile}
#ifndef STREAM_BYTES
#define STREAM_BYTES {stream_bytes}
#endif
typedef acc vec __attribute__((vector_size(BYTES), may_alias));
typedef acc vecu __attribute__((vector_size(BYTES), aligned(sizeof(acc)), may_alias));
typedef real part __attribute__((vector_size(PART)));
typedef real partu __attribute__((vector_size(PART), aligned(sizeof(real)), may_alias));
typedef int{bits}_t ivec __attribute__((vector_size(BYTES)));
#define ld(p) __builtin_convertvector(*(const partu *)(p), vec)
#define ld1(p) ((acc)*(p))
#define add(p, v, fits) (*(vecu *)(p) += (v))
#define add1(p, v) (*(p) += (v))
#define put1(p, v) (*(p) = (real)(v))
"""

# Non-temporal stores require aligned vectors: `fits` is the condition on the position within a row,
# which the compiler evaluates, and `stream` that on the array.
STREAMS = """
#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define NONTEMPORAL(p, v) __builtin_nontemporal_store(v, (part *)(p))
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (ivec){{__VA_ARGS__}})
#if !defined(__SSE2__) || PART < 16
#define NONTEMPORAL(p, v) (*(partu *)(p) = (v))
#elif PART == 16
#define NONTEMPORAL(p, v) __builtin_ia32_movnt{kind}(({real} *)(p), v)
#elif PART == 32 && defined(__AVX__)
#define NONTEMPORAL(p, v) __builtin_ia32_movnt{kind}256(({real} *)(p), v)
#elif PART == 64 && defined(__AVX512F__)
#define NONTEMPORAL(p, v) __builtin_ia32_movnt{kind}512(({real} *)(p), v)
#else
#define NONTEMPORAL(p, v) (*(partu *)(p) = (v))
#endif
#endif
#define put(p, v, fits) do {{ const partu v_ = __builtin_convertvector((v), part); \\
  if ((fits) && stream) NONTEMPORAL(p, v_); else *(partu *)(p) = v_; }} while (0)
"""


# Lane l of the result is the sum over the lanes of a[l].
TOTALS = "static inline vec totals(const vec *a) {\n"


def _totals(lanes: int) -> str:
    """Return C that halves the number of vectors per round by adding shuffled pairs."""
    lines = [f"vec v[{lanes}]; for (int l = 0; l < {lanes}; l++) v[l] = a[l];"]
    count = lanes
    while count > 1:
        count //= 2
        low = [
            (lanes if lane // count % 2 else 0) + lane // (2 * count) * 2 * count + lane % count
            for lane in range(lanes)
        ]
        texts = [", ".join(str(lane + shift) for lane in low) for shift in (0, count)]
        for j in range(count):
            pair = f"v[{j}], v[{j + count}]"
            lines.append(f"v[{j}] = SHUFFLE({pair}, {texts[0]}) + SHUFFLE({pair}, {texts[1]});")
    return "\n".join([*lines, "return v[0];"])


def _channels(spec: TensorProductSpec) -> list[int]:
    """Return the number of channels of each path, the dimension of the vectors."""
    return [
        (spec.out[path.out] if path.mode == "uvw" else spec.in1[path.in1]).mul
        for path in spec.paths
    ]


def _steps(spec: TensorProductSpec, acc: str) -> dict[int, int]:
    """Map the number of lanes to the number of vectors and single channels of all paths."""
    widest = WIDEST // SIZES[acc]
    return {
        lanes: sum(mul // lanes + mul % lanes for mul in _channels(spec))
        for lanes in (widest, widest // 2, widest // 4)
    }


def lanes_wanted(spec: TensorProductSpec, acc: str) -> int:
    """Return the number of lanes with the fewest vectors and remaining single channels.

    Example:
        >>> lanes_wanted(TensorProductSpec.channelwise("24x0e", "0e", "0e"), "float")
        8
    """
    steps = _steps(spec, acc)
    return min(steps, key=lambda lanes: (steps[lanes], -lanes))


def steps_over_edges(spec: TensorProductSpec, acc: str) -> tuple[int, float]:
    """Return the steps per edge with vectors over channels and with vectors over edges.

    A step over edges counts as three because of the transposition (measured with AVX2 and 1 to 7
    channels).
    """
    return min(_steps(spec, acc).values()), 3 * sum(_channels(spec)) / (WIDEST // 2 // SIZES[acc])


def prelude(spec: TensorProductSpec, real: str, acc: str, tile: int) -> str:
    """Return the types and functions at the beginning of a kernel.

    Args:
        spec: the tensor product.
        real: float or double, the type of arrays.
        acc: float or double, the type of arithmetic and sums.
        tile: edges of one receiver per tile.
    """
    size = SIZES[acc]
    names = {
        "real": real,
        "acc": acc,
        "gradw": "acc" if spec.shared_weights else "real",
        "acc_size": size,
        "real_size": SIZES[real],
        "bits": 8 * size,
        "kind": {"float": "ps", "double": "pd"}[real],
        "widest": lanes_wanted(spec, acc) * size,
        "tile": tile,
        "stream_bytes": STREAM_BYTES,
    }
    sums = "\n".join(f"#if LANES == {lanes}\n{_totals(lanes)}\n#endif" for lanes in (2, 4, 8, 16))
    return (TYPES + STREAMS).format(**names) + read(__file__, "rows.c") + TOTALS + sums + "\n}\n"
