"""Generator of the C kernels: gather + tensor product + scatter, unrolled over the constants.

Four functions per spec, all linear in the same two building blocks of a path,

    a[i, k] = sum_j C[i, j, k] y[j]          (scalars of one edge, hoisted out of the channels)
    out[k]  = w sum_i a[i, k] x[i]           (vectors over channels)

`forward` and `double_nodes` own a receiver and walk its incoming edges; `backward` and
`double_edges` own a sender and walk its outgoing edges. Whoever owns a node is the only one to
write its row, in the order of its edges, so there are no atomics and the result does not depend
on the number of threads. Vector types of the compiler (not its auto-vectoriser) carry the
channels; a remainder runs through the same text with scalar types.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scitoolkit.ops.tensor_product.spec import CG_ZERO, Path, TensorProductSpec

# Nodes are cut into this many chunks whatever the number of threads: partial sums of shared
# weights are per chunk, so their order of summation is fixed too.
NUM_CHUNKS = 64
SUPPORTED_MODES = ("uvu", "uvw")

PRELUDE = """
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif
typedef int64_t i64;
typedef {real} real;
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
static inline real sum(vec v) {{
  real s = 0; for (int l = 0; l < LANES; l++) s += v[l]; return s;
}}
/* Fresh outputs are faulted in page by page; huge pages make that 512 times fewer faults. */
static void huge_pages(const void *p, i64 bytes) {{
#ifdef __linux__
  uintptr_t lo = ((uintptr_t)p + 4095) & ~(uintptr_t)4095;
  if (bytes > (1 << 22)) madvise((void *)lo, bytes - 4096, MADV_HUGEPAGE);
#endif
}}
"""

GRAPH = "i64 N, const i64 *ptr, const i64 *order, const i64 *other"
# The arguments of each function after the graph's. Cotangents DX, DY, DW come with a row stride,
# 0 for a single row of zeros that stands for a missing one.
SIGNATURES = {
    "forward": "const real *X, const real *Y, const real *W, real *Z",
    "backward": (
        "const real *X, const real *Y, const real *W, const real *G, real *GX, real *GY, real *GW"
    ),
    "double_nodes": (
        "const real *X, const real *Y, const real *W, const real *DX, i64 sdx, "
        "const real *DY, i64 sdy, const real *DW, i64 sdw, real *Z"
    ),
    "double_edges": (
        "const real *X, const real *Y, const real *W, const real *G, const real *DX, i64 sdx, "
        "const real *DY, i64 sdy, const real *DW, i64 sdw, real *GX, real *GY, real *GW"
    ),
}


@dataclass(frozen=True)
class Lane:
    """How a body of code reads and writes: whole vectors of channels, or one at a time."""

    type: str
    step: str

    def load(self, address: str) -> str:
        return f"(*(const {'vecu' if self.type == 'vec' else 'real'} *)({address}))"

    def store(self, address: str) -> str:
        return f"(*({'vecu' if self.type == 'vec' else 'real'} *)({address}))"

    @property
    def zero(self) -> str:
        return "(vec){0}" if self.type == "vec" else "0"


VECTOR, SCALAR = Lane("vec", "LANES"), Lane("real", "1")


@dataclass(frozen=True)
class Term:
    """The non-zero constants of one path, with the places it reads and writes."""

    spec: TensorProductSpec
    path: Path

    def __post_init__(self) -> None:
        constants = self.spec.coefficients(self.path)
        shape = constants.shape
        entries = [
            (i, j, k, float(constants[i, j, k]))
            for i in range(shape[0])
            for j in range(shape[1])
            for k in range(shape[2])
            if abs(constants[i, j, k]) > CG_ZERO * max(self.path.scale, 1e-30)
        ]
        object.__setattr__(self, "entries", entries)
        object.__setattr__(self, "pairs", sorted({(i, k) for i, _, k, _ in entries}))

    @property
    def muls(self) -> tuple[int, int, int]:
        spec, path = self.spec, self.path
        return spec.in1[path.in1].mul, spec.in2[path.in2].mul, spec.out[path.out].mul

    @property
    def rows(self) -> list[int]:
        return sorted({i for i, _ in self.pairs})

    @property
    def columns(self) -> list[int]:
        return sorted({k for _, k in self.pairs})

    @property
    def attributes(self) -> list[int]:
        return sorted({j for _, j, _, _ in self.entries})

    def x(self, i: int) -> int:
        segment = self.spec.in1[self.path.in1]
        return segment.offset + i * segment.mul

    def y(self, j: int) -> str:
        segment = self.spec.in2[self.path.in2]
        return f"{segment.offset + j * segment.mul}+v"

    def z(self, k: int) -> int:
        segment = self.spec.out[self.path.out]
        return segment.offset + k * segment.mul

    def hoisted(self, name: str, attributes: str) -> str:
        """Declare name_i_k = sum_j C[i, j, k] attributes[j] for every pair."""
        lines = []
        for i, k in self.pairs:
            parts = [
                f"(real){c.hex()}*{attributes}[{self.y(j)}]"
                for ii, j, kk, c in self.entries
                if (ii, kk) == (i, k)
            ]
            lines.append(f"const real {name}_{i}_{k} = {' + '.join(parts)};")
        return "\n".join(lines)

    def over_rows(self, k: int, name: str, factor: str) -> str:
        return _plus(f"{name}_{i}_{k}*{factor}{i}" for i, kk in self.pairs if kk == k)

    def over_columns(self, i: int, name: str, factor: str) -> str:
        return _plus(f"{name}_{i}_{k}*{factor}{k}" for ii, k in self.pairs if ii == i)

    def attribute_sums(self, left: str, right: str) -> str:
        """Add sum_ik C[i, j, k] left_i right_k to s_j, each product of a pair formed once."""
        lines = [f"const T p{i}_{k} = {left}{i}*{right}{k};" for i, k in self.pairs]
        for j in self.attributes:
            parts = [f"(real){c.hex()}*p{i}_{k}" for i, jj, k, c in self.entries if jj == j]
            lines.append(f"s{j} += {_plus(parts)};")
        return "\n".join(lines)


def _plus(parts: Iterable[str]) -> str:
    return " + ".join(parts)


def _loop(index: str, total: int, vectorised: bool, body) -> str:
    """A loop over channels: whole vectors first, then the remainder one by one."""
    if not vectorised:
        return f"for (int {index} = 0; {index} < {total}; {index}++) {{\n{body(SCALAR)}\n}}"
    return (
        f'_Pragma("GCC unroll 1") for (int {index} = 0; {index} < {total}/LANES*LANES; '
        f"{index} += LANES) {{\n{body(VECTOR)}\n}}\n"
        f'_Pragma("GCC unroll 1") for (int {index} = {total}/LANES*LANES; {index} < {total}; '
        f"{index}++) {{\n{body(SCALAR)}\n}}"
    )


def _typed(lane: Lane, lines: list[str]) -> str:
    return f"typedef {lane.type} T;\n" + "\n".join(lines)


def _weight(term: Term, lane: Lane, array: str, name: str, without: str) -> str:
    if not term.path.has_weight:
        return f"const real {name} = {without};"
    address = f"{array}+{term.path.weight_offset}+u*{term.muls[1]}+v"
    return f"const T {name} = {lane.load(address)};"


def _uvu_nodes(term: Term, double: bool) -> str:
    """Add one path of one edge to the receiver's row."""

    def body(lane: Lane) -> str:
        lines = [_weight(term, lane, "w", "ww", "1")]
        lines += [f"const T x{i} = {lane.load(f'x+{term.x(i)}+u')};" for i in term.rows]
        if double:
            lines.append(_weight(term, lane, "dw", "dww", "0"))
            for i in term.rows:
                lines.append(f"const T d{i} = ww*{lane.load(f'dx+{term.x(i)}+u')} + dww*x{i};")
                lines.append(f"const T m{i} = ww*x{i};")
        for k in term.columns:
            value = f"ww*({term.over_rows(k, 'a', 'x')})"
            if double:
                value = f"{term.over_rows(k, 'a', 'd')} + {term.over_rows(k, 'b', 'm')}"
            lines.append(f"{lane.store(f'z+{term.z(k)}+u')} += {value};")
        return _typed(lane, lines)

    return _loop("u", term.muls[0], term.muls[1] == 1, body)


def _uvu_edges(term: Term, double: bool) -> str:
    """Write one path's gradients of one edge: features, attributes, weights."""
    assign = "+=" if term.spec.shared_weights else "="

    def body(lane: Lane) -> str:
        lines = [_weight(term, lane, "w", "ww", "1")]
        lines += [f"const T x{i} = {lane.load(f'x+{term.x(i)}+u')};" for i in term.rows]
        lines += [f"const T q{k} = {lane.load(f'g+{term.z(k)}+u')};" for k in term.columns]
        lines += [f"const T r{i} = {term.over_columns(i, 'a', 'q')};" for i in term.rows]
        gradient = {i: f"ww*r{i}" for i in term.rows}
        products = [f"x{i}*r{i}" for i in term.rows]
        if double:
            lines.append(_weight(term, lane, "dw", "dww", "0"))
            for i in term.rows:
                lines.append(f"const T o{i} = {lane.load(f'dx+{term.x(i)}+u')};")
                lines.append(f"const T h{i} = {term.over_columns(i, 'b', 'q')};")
                lines.append(f"const T c{i} = ww*o{i} + dww*x{i};")
            gradient = {i: f"ww*h{i} + dww*r{i}" for i in term.rows}
            products = [f"o{i}*r{i} + x{i}*h{i}" for i in term.rows]
        else:
            lines += [f"const T c{i} = ww*x{i};" for i in term.rows]
        lines += [f"{lane.store(f'gx+{term.x(i)}+u')} += {gradient[i]};" for i in term.rows]
        if term.path.has_weight:
            address = f"gw+{term.path.weight_offset}+u*{term.muls[1]}+v"
            lines.append(f"{lane.store(address)} {assign} {_plus(products)};")
        sums = term.attribute_sums("c", "q")
        if lane is SCALAR:
            sums = _scalar_sums(sums)
        return _typed(lane, [*lines, sums])

    return _with_sums(term, _loop("u", term.muls[0], term.muls[1] == 1, body))


def _scalar_sums(text: str) -> str:
    lines = [("t" + line[1:]) if line.startswith("s") else line for line in text.split("\n")]
    return "\n".join(lines)


def _with_sums(term: Term, loops: str) -> str:
    """Wrap loops that add to s_j (vectors) and t_j (scalars) with their start and their end."""
    begin = [f"vec s{j} = {{0}}; real t{j} = 0;" for j in term.attributes]
    end = []
    for j in term.attributes:
        if term.muls[1] == 1:
            end.append(f"lanes[{term.y(j)}] += s{j};")
        end.append(f"gy[{term.y(j)}] += t{j};")
    return "\n".join([*begin, loops, *end])


def _uvw_sums(term: Term, double: bool) -> list[str]:
    lines = [f"const real x{i} = x[{term.x(i)}+u];" for i in term.rows]
    lines += [f"const real m{k} = {term.over_rows(k, 'a', 'x')};" for k in term.columns]
    if double:
        lines += [f"const real o{i} = dx[{term.x(i)}+u];" for i in term.rows]
        for k in term.columns:
            both = f"{term.over_rows(k, 'a', 'o')} + {term.over_rows(k, 'b', 'x')}"
            lines.append(f"const real n{k} = {both};")
    return lines


def _uvw_nodes(term: Term, double: bool) -> str:
    """Add one path of one edge to the receiver's row: vectors run over the output channels."""
    mul1, mul2, mul3 = term.muls
    place = f"{term.path.weight_offset}+(u*{mul2}+v)*{mul3}+q"

    def body(lane: Lane) -> str:
        lines = [f"const T ww = {lane.load(f'w+{place}')};"]
        if double:
            lines.append(f"const T dww = {lane.load(f'dw+{place}')};")
        for k in term.columns:
            value = f"ww*n{k} + dww*m{k}" if double else f"ww*m{k}"
            lines.append(f"{lane.store(f'z+{term.z(k)}+q')} += {value};")
        return _typed(lane, lines)

    inner = "\n".join([*_uvw_sums(term, double), _loop("q", mul3, True, body)])
    return f"for (int u = 0; u < {mul1}; u++) {{\n{inner}\n}}"


def _uvw_edges(term: Term, double: bool) -> str:
    """Write one path's gradients of one edge: features, attributes, weights."""
    mul1, mul2, mul3 = term.muls
    place = f"{term.path.weight_offset}+(u*{mul2}+v)*{mul3}+q"
    assign = "+=" if term.spec.shared_weights else "="
    factor = "n" if double else "m"

    def body(lane: Lane) -> str:
        suffix = "v" if lane is VECTOR else "t"
        lines = [f"const T ww = {lane.load(f'w+{place}')};"]
        if double:
            lines.append(f"const T dww = {lane.load(f'dw+{place}')};")
        lines += [f"const T q{k} = {lane.load(f'g+{term.z(k)}+q')};" for k in term.columns]
        lines += [f"r{suffix}{k} += ww*q{k};" for k in term.columns]
        if double:
            lines += [f"e{suffix}{k} += dww*q{k};" for k in term.columns]
        products = _plus(f"{factor}{k}*q{k}" for k in term.columns)
        lines.append(f"{lane.store(f'gw+{place}')} {assign} {products};")
        return _typed(lane, lines)

    names = ("r", "e") if double else ("r",)
    begin = [f"vec {n}v{k} = {{0}}; real {n}t{k} = 0;" for n in names for k in term.columns]
    end = [f"const real {n}{k} = sum({n}v{k}) + {n}t{k};" for n in names for k in term.columns]
    for i in term.rows:
        value = term.over_columns(i, "a", "r")
        if double:
            value = f"{term.over_columns(i, 'b', 'r')} + {term.over_columns(i, 'a', 'e')}"
        end.append(f"gx[{term.x(i)}+u] += {value};")
    for i, k in term.pairs:
        value = f"o{i}*r{k} + x{i}*e{k}" if double else f"x{i}*r{k}"
        end.append(f"const real p{i}_{k} = {value};")
    for j in term.attributes:
        parts = [f"(real){c.hex()}*p{i}_{k}" for i, jj, k, c in term.entries if jj == j]
        end.append(f"t{j} += {_plus(parts)};")
    inner = "\n".join([*_uvw_sums(term, double), *begin, _loop("q", mul3, True, body), *end])
    start = "\n".join(f"real t{j} = 0;" for j in term.attributes)
    finish = "\n".join(f"gy[{term.y(j)}] += t{j};" for j in term.attributes)
    return f"{start}\nfor (int u = 0; u < {mul1}; u++) {{\n{inner}\n}}\n{finish}"


EMITTERS = {
    ("uvu", "nodes"): _uvu_nodes,
    ("uvu", "edges"): _uvu_edges,
    ("uvw", "nodes"): _uvw_nodes,
    ("uvw", "edges"): _uvw_edges,
}


def _paths(spec: TensorProductSpec, kind: str, double: bool) -> str:
    blocks = []
    for path in spec.paths:
        term = Term(spec, path)
        emit = EMITTERS[path.mode, kind]
        hoisted = term.hoisted("a", "y") + ("\n" + term.hoisted("b", "dy") if double else "")
        blocks.append(
            f"for (int v = 0; v < {term.muls[1]}; v++) {{\n{hoisted}\n{emit(term, double)}\n}}"
        )
    return "\n".join(blocks)


def _rows(spec: TensorProductSpec, node: str, edge: str, double: bool) -> str:
    """Pointers to the rows that one edge reads; `node` owns, `other` is across the edge."""
    sender, receiver = ("other[e]", "n") if node == "receiver" else ("n", "other[e]")
    weights = "W" if spec.shared_weights else f"W + e*{spec.weight_numel}"
    lines = [
        "const i64 e = order[t];",
        f"const real *x = X + {sender}*{spec.dim_in1};",
        f"const real *y = Y + e*{spec.dim_in2};",
        f"const real *w = {weights};",
    ]
    if double:
        lines.append(f"const real *dx = DX + {sender}*sdx, *dy = DY + e*sdy, *dw = DW + e*sdw;")
    if edge:
        lines.append(f"const real *g = G + {receiver}*{spec.dim_out};")
    return "\n".join(lines)


def _chunked(name: str, spec: TensorProductSpec, node_lines: str, edge_lines: str) -> str:
    parameters = f"{GRAPH}, {SIGNATURES[name]}"
    names = ", ".join(each.replace("*", " ").split()[-1] for each in parameters.split(","))
    outputs = {"Z": ("N", spec.dim_out), "GX": ("N", spec.dim_in1)}
    if not spec.shared_weights:
        outputs["GW"] = ("ptr[N]", spec.weight_numel)
    pages = "\n".join(
        f"huge_pages({out}, {count}*{size}*(i64)sizeof(real));"
        for out, (count, size) in outputs.items()
        if f"*{out}" in parameters.replace("* ", "*")
    )
    return f"""
static void {name}_chunk(i64 chunk, {parameters}) {{
for (i64 n = N*chunk/{NUM_CHUNKS}; n < N*(chunk+1)/{NUM_CHUNKS}; n++) {{
{node_lines}
for (i64 t = ptr[n]; t < ptr[n+1]; t++) {{
{edge_lines}
}}
}}
}}
void {name}({parameters}, i64 threads) {{
{pages}
#pragma omp parallel for num_threads(threads) if(threads > 1) schedule(dynamic, 1)
for (i64 chunk = 0; chunk < {NUM_CHUNKS}; chunk++) {name}_chunk(chunk, {names});
}}
"""


def _nodes_function(name: str, spec: TensorProductSpec, double: bool) -> str:
    node = f"real *z = Z + n*{spec.dim_out}; memset(z, 0, {spec.dim_out}*sizeof(real));"
    edge = _rows(spec, "receiver", "", double) + "\n" + _paths(spec, "nodes", double)
    return _chunked(name, spec, node, edge)


def _edges_function(name: str, spec: TensorProductSpec, double: bool) -> str:
    node = f"real *gx = GX + n*{spec.dim_in1}; memset(gx, 0, {spec.dim_in1}*sizeof(real));"
    weights = f"GW + {'chunk' if spec.shared_weights else 'e'}*{spec.weight_numel}"
    size = spec.dim_in2
    edge = [
        _rows(spec, "sender", "g", double),
        f"real *gy = GY + e*{size}; real *gw = {weights}; vec lanes[{max(size, 1)}];",
        f"memset(gy, 0, {size}*sizeof(real)); memset(lanes, 0, sizeof(lanes));",
        _paths(spec, "edges", double),
        f"for (int j = 0; j < {size}; j++) gy[j] += sum(lanes[j]);",
    ]
    return _chunked(name, spec, node, "\n".join(edge))


def supports(spec: TensorProductSpec) -> bool:
    """Tell whether every path of `spec` has a generated kernel."""
    return all(path.mode in SUPPORTED_MODES for path in spec.paths)


def generate(spec: TensorProductSpec, real: str) -> str:
    """Return the C source of all four kernels of `spec`.

    Args:
        spec: a tensor product that `supports` accepts.
        real: float or double.

    Example:
        >>> spec = TensorProductSpec.channelwise("8x0e", "0e", "0e")
        >>> "void forward(" in generate(spec, "float")
        True
    """
    return "\n".join(
        [
            PRELUDE.format(real=real),
            _nodes_function("forward", spec, False),
            _edges_function("backward", spec, False),
            _nodes_function("double_nodes", spec, True),
            _edges_function("double_edges", spec, True),
        ]
    )
