"""Generator of the C kernels of the environment matrix.

A block is up to LANES edges of one centre and one neighbour type. SIMD is over the edges of a
block, so layers of any width are efficient. Since the input of the embedding is a scalar s, its
derivative with respect to s is propagated forward together with the value (`micro`), and forces
need no reverse pass over activations.

Per block the kernels store `act`, pairs of vectors (value, tangent) for each layer, the last layer
first, and `geo`, nine vectors: the four normalised rows R, the unit vector n, ds/dr and s/r. Lanes
without an edge have R = 0 and contribute nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from scitoolkit.ops.codegen import vectors
from scitoolkit.ops.codegen.compile import read
from scitoolkit.ops.codegen.emit import banner
from scitoolkit.ops.environment_matrix.spec import EnvironmentSpec

# Letters of the generated code: s the switched inverse distance, R the row
# (s, s x/r, s y/r, s z/r) after normalisation, n the unit vector,
# M the width of the last layer. Lanes fill AVX2.
LANES = {"double": 4, "float": 8}
GEO = 9
SUPER = 8  # blocks whose weight gradients are summed in registers before they are added to memory
NUM_CHUNKS = 8  # partial sums of weight gradients, for any number of threads


def refusal(spec: EnvironmentSpec) -> str:
    """Return why there are no kernels for a spec, empty if there are."""
    if spec.radial:
        return "there is no kernel for the radial descriptor (se_e2_r)"
    if spec.widths[0] <= 2 or len(spec.widths) > 8:
        return "there is no kernel for embeddings of a first width below 3 or of over 8 layers"
    return ""


def activation_vectors(spec: EnvironmentSpec, *, training: bool) -> int:
    """Return the number of vectors of a block's activations."""
    return 2 * (sum(spec.widths) if training else spec.widths[-1])


def embedding_source(widths: Sequence[int], *, bias_by_lane: bool = False) -> list[str]:
    """Return the C functions `embed`, the embedding of LANES distances, and `pack` for its weights.

    The source also defines M, WIDEST, PARAMETERS and PACKED. It requires vtanh.c.

    Args:
        widths: widths of the layers.
        bias_by_lane: give `embed` an argument with the first layer's bias of each lane, for edges
            of different pairs of types in one vector.
    """
    offsets, total, packed, forward_at, backward_at = _places(widths)
    return [
        f"#define M {widths[-1]}",
        f"#define WIDEST {max(widths)}",
        f"#define PARAMETERS {total}",
        f"#define PACKED {max(packed, 1)}",
        read(__file__, "panels.c"),
        *_tiles("micro.c", widths),
        banner("Packed weights of all layers."),
        _pack(widths, offsets, forward_at, backward_at),
        banner(f"Embedding of widths {' x '.join(map(str, widths))}: values and tangents."),
        _embed(widths, offsets, forward_at, _above(widths), bias_by_lane=bias_by_lane),
    ]


def generate(spec: EnvironmentSpec, real: str, *, training: bool = True) -> str:
    """Return the C source of the kernels of a spec.

    Args:
        spec: the operation.
        real: float or double.
        training: include the derivatives needed for training.
    """
    network = "(other)" if spec.type_one_side else "(own) * TYPES + (other)"
    shape = f"{spec.num_types} types, widths {' x '.join(map(str, spec.widths))}"
    lines = [
        banner(f"environment matrix, {shape}, cutoff {spec.cutoff:g}, {real}"),
        f"#define REAL {real}",
        f"#define LANES {LANES[real]}",
        f"#define IS_DOUBLE {int(real == 'double')}",
        f"#define TYPES {spec.num_types}",
        f"#define NETWORKS {spec.num_networks}",
        f"#define NETWORK(own, other) ({network})",
        f"#define CUTOFF ((REAL){spec.cutoff!r})",
        f"#define SMOOTH ((REAL){spec.cutoff_smooth!r})",
        f"#define GEO {GEO}",
        f"#define SUPER {SUPER}",
        f"#define NUM_CHUNKS {NUM_CHUNKS}",
        read(vectors.__file__, "vtanh.c"),
        *embedding_source(spec.widths),
        read(__file__, "kernels.c"),
        read(__file__, "table.c"),
    ]
    if training:
        offsets, *_, backward_at = _places(spec.widths)
        lines += [
            *_tiles("weight_gradient.c", spec.widths),
            banner("Gradients of the embedding's weights for SUPER blocks."),
            _embed_gradient(spec.widths, offsets, backward_at, _above(spec.widths)),
            read(__file__, "training.c"),
        ]
    return "\n".join(lines)


def _places(widths: Sequence[int]) -> tuple[list[int], int, int, list[int], list[int]]:
    """Return offsets of parameters.

    Returns:
        Offsets of the layers in the flat parameters, number of these, number of packed parameters,
        and offsets of the layers' packed weights for the forward and for the backward product.
    """
    offsets, total = [], 0
    for fan_in, fan_out in pairwise((1, *widths)):
        offsets.append(total)
        total += fan_in * fan_out + fan_out
    packed, forward_at, backward_at = 0, [0], [0]
    for k in range(1, len(widths)):
        forward_at.append(packed)
        packed += widths[k - 1] * _padded(widths[k])
        backward_at.append(packed)
        packed += widths[k] * _padded(widths[k - 1])
    return offsets, total, packed, forward_at, backward_at


def _above(widths: Sequence[int]) -> list[int]:
    """Return the offset of each layer's activation vectors in a block."""
    return [2 * sum(widths[k + 1 :]) for k in range(len(widths))]


def _tiles(name: str, widths: Sequence[int]) -> list[str]:
    """Return the functions of a C file for each required height of a register tile."""
    text = read(__file__, name)
    return [text.replace("@MB@", str(mb)) for mb in sorted({_rows(w) for w in widths})]


def _rows(width: int) -> int:
    """Return the rows of a register tile: 4 to 6, with the least padding."""
    return min((6, 5, 4), key=lambda mb: -(-width // mb) * mb)


def _padded(width: int) -> int:
    mb = _rows(width)
    return -(-width // mb) * mb


def _pack(widths, offsets, forward_at, backward_at) -> str:
    body = []
    for k in range(1, len(widths)):
        fan_in, fan_out = widths[k - 1], widths[k]
        body.append(
            f"  pack_panels(w + {offsets[k]}, {fan_in}, {fan_out}, {_rows(fan_out)}, 0, "
            f"p + {forward_at[k]});\n"
            f"  pack_panels(w + {offsets[k]}, {fan_in}, {fan_out}, {_rows(fan_in)}, 1, "
            f"p + {backward_at[k]});"
        )
    return "static void pack(const REAL *w, REAL *p) {\n" + "\n".join(body) + "\n}\n"


def _embed(widths, offsets, forward_at, above, *, bias_by_lane) -> str:
    """Return the C function of the embedding of one block, with values and tangents."""
    last = len(widths) - 1
    argument = " const vec *restrict first," if bias_by_lane else ""
    bias = "first[m]" if bias_by_lane else f"w[{widths[0]} + m]"
    lines = [
        f"static void embed(const REAL *restrict w, const REAL *restrict p, vec s,{argument}",
        "                  vec *restrict act, vec *restrict lower) {",
        f"  vec *h0 = {'act' if last == 0 else f'lower + {above[0] - 2 * widths[-1]}'};",
        f"  for (int m = 0; m < {widths[0]}; m++) {{",
        f"    vec t = vtanh(w[m] * s + {bias});",
        "    h0[2 * m] = t; h0[2 * m + 1] = (1 - t * t) * w[m];",
        "  }",
    ]
    for k in range(1, len(widths)):
        fan_in, fan_out, mb = widths[k - 1], widths[k], _rows(widths[k])
        target = "act" if k == last else f"lower + {above[k] - 2 * widths[-1]}"
        bias = offsets[k] + fan_in * fan_out
        lines += [
            f"  vec *h{k} = {target};",
            f"  for (int m0 = 0; m0 < {fan_out}; m0 += {mb}) {{",
            f"    vec z[{mb}][2];",
            f"    micro{mb}({fan_in}, h{k - 1}, p + {forward_at[k]} + m0 * {fan_in}, z);",
            f"    int rows = {fan_out} - m0 < {mb} ? {fan_out} - m0 : {mb};",
            "    for (int r = 0; r < rows; r++) {",
            "      int m = m0 + r;",
            f"      vec t = vtanh(z[r][0] + w[{bias} + m]), d = (1 - t * t) * z[r][1];",
            *_skip_lines(fan_in, fan_out, k),
            f"      h{k}[2 * m] = t; h{k}[2 * m + 1] = d;",
            "    }",
            "  }",
        ]
    return "\n".join([*lines, "}", ""])


def _skip_lines(fan_in: int, fan_out: int, k: int) -> list[str]:
    if fan_out not in (fan_in, 2 * fan_in):
        return []
    source = "m" if fan_out == fan_in else f"(m < {fan_in} ? m : m - {fan_in})"
    return [
        f"      int from = {source};",
        f"      t += h{k - 1}[2 * from]; d += h{k - 1}[2 * from + 1];",
    ]


def _embed_gradient(widths, offsets, backward_at, above) -> str:
    """Return the C function of the gradients of weights for SUPER blocks.

    Let p, q be the cotangents of the value h = skip + t and of the tangent
    h' = skip' + (1 - t²) z' of a layer. Those of the pre-activation and its tangent are
    pz = p (1 - t²) - 2 t q (1 - t²) z' and qz = q (1 - t²).
    """
    last = len(widths) - 1
    lines = [
        "static void embed_gradient(const REAL *restrict w, const REAL *restrict p, int blocks,",
        "    const vec *const *restrict act, const vec *restrict s, vec *restrict cot,",
        "    vec *restrict cot2, REAL *restrict rows, REAL *restrict g, vec *restrict first) {",
        "  vec *top = cot, *next = cot2, *swap;",
    ]
    for k in range(last, 0, -1):
        fan_in, fan_out, mb = widths[k - 1], widths[k], _rows(widths[k - 1])
        skip = fan_out in (fan_in, 2 * fan_in)
        source = "m" if fan_out == fan_in else f"(m < {fan_in} ? m : m - {fan_in})"
        stride = -(-fan_out // 8) * 8
        lines += [
            "  for (int b = 0; b < blocks; b++) {",
            f"    const vec *h = act[b] + {above[k]}, *x = act[b] + {above[k - 1]};",
            "    vec *c = top + b * 2 * WIDEST, *n = next + b * 2 * WIDEST;",
            "    vec z[2 * WIDEST];",
            f"    for (int m = 0; m < {fan_out}; m++) {{",
            "      vec t = h[2 * m], dz = h[2 * m + 1];",
            *(
                [f"      int from = {source};", "      t -= x[2 * from]; dz -= x[2 * from + 1];"]
                if skip
                else []
            ),
            "      vec d = 1 - t * t, q = c[2 * m + 1];",
            "      z[2 * m] = c[2 * m] * d - 2 * t * q * dz;",
            "      z[2 * m + 1] = q * d;",
            "    }",
            f"    spread(z, {fan_out}, {stride}, rows + b * 2 * LANES * {stride});",
            f"    for (int m0 = 0; m0 < {fan_in}; m0 += {mb}) {{",
            f"      vec y[{mb}][2];",
            f"      micro{mb}({fan_out}, z, p + {backward_at[k]} + m0 * {fan_out}, y);",
            f"      int rows_ = {fan_in} - m0 < {mb} ? {fan_in} - m0 : {mb};",
            "      for (int r = 0; r < rows_; r++) {",
            "        n[2 * (m0 + r)] = y[r][0]; n[2 * (m0 + r) + 1] = y[r][1];",
            "      }",
            "    }",
        ]
        if skip:
            lines += [
                f"    for (int m = 0; m < {fan_out}; m++) {{",
                f"      int from = {source};",
                "      n[2 * from] += c[2 * m]; n[2 * from + 1] += c[2 * m + 1];",
                "    }",
            ]
        lines += [
            "  }",
            f"  for (int k0 = 0; k0 < {fan_in}; k0 += {mb}) {{",
            f"    int rows_ = {fan_in} - k0 < {mb} ? {fan_in} - k0 : {mb};",
            f"    weight_gradient{mb}(blocks, act, {above[k - 1]}, k0, rows_, rows, {fan_out}, "
            f"{stride}, g + {offsets[k]});",
            "  }",
            f"  bias_gradient(blocks, rows, {fan_out}, {stride}, "
            f"g + {offsets[k] + fan_in * fan_out});",
            "  swap = top; top = next; next = swap;",
        ]
    lines += [
        "  for (int b = 0; b < blocks; b++) {",
        f"    const vec *h = act[b] + {above[0]};",
        "    vec *c = top + b * 2 * WIDEST;",
        f"    for (int m = 0; m < {widths[0]}; m++) {{",
        "      vec t = h[2 * m], d = 1 - t * t, q = c[2 * m + 1];",
        "      vec pz = c[2 * m] * d - 2 * t * q * h[2 * m + 1];",
        "      first[2 * m] += pz * s[b] + q * d;",
        "      first[2 * m + 1] += pz;",
        "    }",
        "  }",
        "}",
        f"#define FIRST {widths[0]}",
        "",
    ]
    return "\n".join(lines)
