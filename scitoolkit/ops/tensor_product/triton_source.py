"""Generator of the Triton kernels of the tensor product.

Every derivative of <g, z(x, y, w)> is one of four multilinear maps in which cotangents replace
arguments. Each map has a kernel, and a variant that sums the maps of the double backward:

    nodes     z of a receiver, from its incoming edges            one program per receiver
    senders   gx of a sender, from its outgoing edges             one program per sender
    edges     gy and gw of an edge                                one program per edge
    weights   gw of shared weights, of a run of edges             one program per run

Each element is written by one program, which reads edges in the order of the graph, so there are no
atomics, and equal input gives bit-equal output. A program is one warp with a block of channels. The
row of a receiver or sender is partitioned so that sums fit into registers; the part is the second
index of the grid. Messages are never stored.

Two more kernels are not deterministic, but balance the load of nodes with many edges and read x, y,
w and g once for all gradients. They add to rows initialised with zeros:

    scatter    like nodes, atomics when the receiver changes      one program per run of edges
    gradients  like senders and edges, gx by atomics              one program per edge
"""

from __future__ import annotations

from collections.abc import Callable

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.tensor_product import triton_uvu, triton_uvw
from scitoolkit.ops.tensor_product.spec import IrrepSlice, TensorProductSpec
from scitoolkit.ops.tensor_product.triton_terms import (
    TILE,
    AssignedLines,
    Channels,
    Context,
    TritonTerm,
    indent,
)

KERNELS = ("nodes", "senders", "edges", "weights")
ATOMIC_KERNELS = ("scatter", "gradients", "edges", "weights")
MAX_SUMS = 32  # blocks summed by one program at a time, with two registers per lane each
MAX_LINES = 30_000  # beyond this Triton would compile for many minutes

INPUTS = "X, Y, W"
COTANGENTS = "DX, sdx, DY, sdy, DW, sdw"
OUTPUTS = {
    "nodes": "Z, ptr, order, sender",
    "senders": "G, GX, ptr, order, receiver",
    "edges": "G, GY, GW, order, sender, receiver",
    "weights": "G, GW, order, sender, receiver, num_edges, run",
    "scatter": "Z, order, sender, receiver, num_edges, run",
    "gradients": "G, GX, GY, GW, order, sender, receiver",
}
NUMBER = {
    "nodes": "n",
    "senders": "n",
    "edges": "p",
    "weights": "c",
    "scatter": "c",
    "gradients": "p",
}
RUN = "range(c * run, tl.minimum(c * run + run, num_edges))"


def arguments(kernel: str, double: bool) -> str:
    """Return the names of a kernel's arguments."""
    return ", ".join([INPUTS, *([COTANGENTS] if double else []), OUTPUTS[kernel]])


def _rows(context: Context, kernel: str) -> list[str]:
    """Return lines that assign pointers to the rows of edge number p in the order."""
    spec, double = context.spec, context.double
    lines = ["e = tl.load(order + p)"]
    if kernel != "senders":
        lines += ["s = tl.load(sender + e)", f"x = X + s * {spec.dim_in1}"]
        lines += ["dx = DX + s * sdx"] if double else []
    lines.append(f"y = Y + e * {spec.dim_in2}")
    lines.append("w = W" if spec.shared_weights else f"w = W + e * {spec.weight_numel}")
    lines += ["dy = DY + e * sdy", "dw = DW + e * sdw"] if double else []
    if kernel not in ("nodes", "scatter"):
        lines.append(f"g = G + tl.load(receiver + e) * {spec.dim_out}")
    if kernel in ("edges", "gradients"):
        lines += [f"gy = GY + e * {spec.dim_in2}", f"gw = GW + e * {spec.weight_numel}"]
    lines += [f"gx = GX + s * {spec.dim_in1}"] if kernel == "gradients" else []
    return lines


def _parts(segments: tuple[IrrepSlice, ...], limit: int) -> list[list[int]]:
    """Group segments of equal multiplicity such that a group has at most `limit` sums."""
    parts: list[list[int]] = []
    for mul in sorted({segment.mul for segment in segments}, reverse=True):
        # Begins full, so that the first segment opens a part.
        size = limit + 1
        for number, irrep in enumerate(segments):
            if irrep.mul != mul:
                continue
            size += irrep.components
            if size > limit:
                parts.append([])
                size = irrep.components
            parts[-1].append(number)
    return parts


def _by_rows(context: Context, kernel: str) -> list[tuple[int, list[str]]]:
    """Return (blocks of channels, lines) for each part of the sum over the edges of a node."""
    spec, is_nodes = context.spec, kernel != "senders"
    segments = spec.out if is_nodes else spec.in1
    size, target = (spec.dim_out, "Z") if is_nodes else (spec.dim_in1, "GX")
    programs = []
    for part in _parts(segments, MAX_SUMS):
        terms = [
            TritonTerm(context, path, index)
            for index, path in enumerate(spec.paths)
            if (path.out if is_nodes else path.in1) in part
        ]
        u = _block(context, segments[part[0]].mul, kernel, terms)
        written = {
            f"z{number}_{i}": f"{target} + n * {size} + {segment.offset + i * segment.mul} + u"
            for number in part
            for segment in [segments[number]]
            for i in range(segment.components)
        }
        edge = AssignedLines(context, lines=_rows(context, kernel))
        for term in terms:
            number = term.path.out if is_nodes else term.path.in1
            sums = {i: f"z{number}_{i}" for i in range(segments[number].components)}
            emitters = triton_uvw if term.path.mode == "uvw" else triton_uvu
            (emitters.nodes if is_nodes else emitters.senders)(term, edge, u, sums)
        zeros = [f"{name} = {context.zeros(u.width)}" for name in written]
        body = (_scattered if kernel == "scatter" else _owned)(edge.lines, zeros, written, u.mask)
        # A part is a program of the grid: it reads the edges again, which costs less than sums that
        # spill from registers to memory.
        programs.append((u.blocks, [*u.begin(f"part * {u.width}"), *body]))
    return programs


def _owned(edge: list[str], zeros: list[str], written: dict[str, str], mask: str) -> list[str]:
    """Return the loop over the edges of a node, whose row only this program writes."""
    # No other program has this node, so that the row is stored once and needs no zeros before.
    head = "for p in range(tl.load(ptr + n), tl.load(ptr + n + 1)):"
    return [*zeros, head, *indent(edge), *_out("tl.store", written, mask)]


def _scattered(edge: list[str], zeros: list[str], written: dict[str, str], mask: str) -> list[str]:
    """Return the loop over a run of edges, with atomic additions when the receiver changes."""
    flush = _out("tl.atomic_add", written, mask)
    return [
        # Sums stay in registers as long as the receiver is the same: a node with many edges costs
        # one atomic addition a run instead of one an edge.
        "n = tl.load(receiver + tl.load(order + c * run))",
        *zeros,
        f"for p in {RUN}:",
        "    here = tl.load(receiver + tl.load(order + p))",
        "    if here != n:",
        *indent(indent([*flush, *zeros, "n = here"])),
        *indent(edge),
        *flush,
    ]


def _out(function: str, written: dict[str, str], mask: str) -> list[str]:
    """Return lines that store or atomically add each variable at its address."""
    options = f", mask={mask}" if mask else ""
    options += ", sem='relaxed'" if function == "tl.atomic_add" else ""
    return [f"{function}({place}, {name}{options})" for name, place in written.items()]


def _block(context: Context, mul: int, kernel: str, terms: list[TritonTerm]) -> Channels:
    """Return the channels of one program, fewer if tiles of weights need registers as well."""
    if kernel == "senders" and any(term.path.mode == "uvw" for term in terms):
        return Channels("u", mul, TILE[1])
    return context.channels("u", mul)


def _families(context: Context) -> dict[int, list[TritonTerm]]:
    """Group uvu and uuu paths by multiplicity: a group shares a block of channels."""
    families: dict[int, list[TritonTerm]] = {}
    for index, path in enumerate(context.spec.paths):
        if path.mode != "uvw":
            term = TritonTerm(context, path, index)
            families.setdefault(term.sides[0].mul, []).append(term)
    return families


def _wide(context: Context) -> list[TritonTerm]:
    return [
        TritonTerm(context, path, index)
        for index, path in enumerate(context.spec.paths)
        if path.mode == "uvw"
    ]


class _AttributeSums:
    """Gradients of an edge's attributes: vectors over channels, reduced after all paths."""

    def __init__(self, edge: AssignedLines) -> None:
        self.edge = edge
        self.sums: dict[int, list[str]] = {}

    def add(self, body: AssignedLines, u: Channels, place: int, value: str) -> None:
        """Add a vector to the gradient of attribute number `place`."""
        name = f"n{u.width}_{place}"
        self.edge.let(name, self.edge.context.zeros(u.width))
        body.add(f"{name} += {value}")
        if name not in self.sums.setdefault(place, []):
            self.sums[place].append(name)

    def store(self) -> list[str]:
        """Return lines that reduce the vectors and store the row."""
        return [
            f"tl.store(gy + {place}, {' + '.join(f'tl.sum({name}, 0)' for name in names)})"
            for place, names in sorted(self.sums.items())
        ]


def _check_attributes(spec: TensorProductSpec) -> None:
    # The gradient of an attribute is a vector over channels for uuu, and one number for the other
    # modes: a row cannot be both.
    elementwise = {path.in2 for path in spec.paths if path.mode == "uuu"}
    summed = {path.in2 for path in spec.paths if path.mode != "uuu"}
    if elementwise & summed:
        raise BackendError("no GPU kernel for attributes shared by uuu and other modes")


def _edges(context: Context, kernel: str) -> list[tuple[int, list[str]]]:
    """Return the program of one edge: gradients of attributes, weights and possibly features."""
    _check_attributes(context.spec)
    edge, atomic = AssignedLines(context, lines=_rows(context, kernel)), kernel == "gradients"
    sums = _AttributeSums(edge)
    for mul, terms in _families(context).items():
        u = context.channels(f"c{mul}", mul)
        inner = AssignedLines(context, edge)
        inner.add(*u.begin(f"c{mul}_0"))
        rows: dict[str, str] = {}
        features: dict[str, str] = {}
        for term in terms:
            # Default arguments hold the values of this turn of the loop.
            def add(j, v, value, term=term, u=u, inner=inner, rows=rows) -> None:
                side = term.sides[1]
                if not isinstance(v, Channels):
                    sums.add(inner, u, side.offset + j * side.mul + v, value)
                    return
                name = f"n{term.path.in2}_{j}_u"
                inner.add(f"{name} {'+=' if name in rows else '='} {value}")
                rows[name] = f"gy + {side.offset + j * side.mul} + {u.name}"

            triton_uvu.edges(term, inner, u, add)
            if atomic:
                side, sums_x = term.sides[0], {}
                for i in term.rows:
                    sums_x[i] = inner.let(f"gx{term.path.in1}_{i}", context.zeros(u.width))
                    features[sums_x[i]] = f"gx + {side.offset + i * side.mul} + {u.name}"
                triton_uvu.senders(term, inner, u, sums_x)
        inner.add(*_out("tl.store", rows, u.mask), *_out("tl.atomic_add", features, u.mask))
        edge.loop(f"for c{mul}_0 in range(0, {mul}, {u.width}):", inner)
    for term in _wide(context):

        def add_wide(body, u, j, v, value, term=term) -> None:
            side = term.sides[1]
            sums.add(body, u, side.offset + j * side.mul + v, value)

        def add_features(body, u, i, value, term=term) -> None:
            side = term.sides[0]
            place = f"gx + {side.offset + i * side.mul} + {u.name}"
            body.add(*_out("tl.atomic_add", {value: place}, u.mask))

        triton_uvw.edges(term, edge, add_wide, add_features if atomic else None)
    return [(1, [*edge.lines, *sums.store()])]


def _run(context: Context, edge: AssignedLines, zeros: list[str], emit: Callable) -> list[str]:
    places = emit()
    return [
        *(f"{name} = {zero}" for name, zero in zip(places, zeros, strict=True)),
        f"for p in {RUN}:",
        *indent(edge.lines),
        f"gw = GW + c * {context.spec.weight_numel}",
        *(
            f"tl.store({place}, {name}{f', mask={mask}' if mask else ''})"
            for name, (place, mask) in places.items()
        ),
    ]


def _weights(context: Context) -> list[tuple[int, list[str]]]:
    """Return the programs that sum the gradient of shared weights over a run of edges."""
    programs = []
    for mul, terms in _families(context).items():
        u = context.channels("u", mul)
        for term in terms:
            if not term.path.has_weight:
                continue
            count = len(list(triton_uvu.attribute_channels(term, u)))
            edge = AssignedLines(context, lines=_rows(context, "weights"))
            lines = _run(
                context,
                edge,
                [context.zeros(u.width)] * count,
                lambda term=term, edge=edge, u=u: triton_uvu.shared_weights(term, edge, u),
            )
            programs.append((u.blocks, [*u.begin(f"part * {u.width}"), *lines]))
    for term in _wide(context):
        u, q = triton_uvw.inputs(term), triton_uvw.outputs(term)
        for v in range(term.sides[1].mul):
            edge = AssignedLines(context, lines=_rows(context, "weights"))
            lines = _run(
                context,
                edge,
                [context.zeros(u.width, q.width)],
                lambda term=term, edge=edge, v=v, u=u, q=q: triton_uvw.shared_weights(
                    term, edge, v, u, q
                ),
            )
            # A matrix of weights is a grid of blocks, rows times columns, numbered row by row.
            begin = u.begin(f"part // {q.blocks} * {u.width}")
            begin += q.begin(f"part % {q.blocks} * {q.width}")
            programs.append((u.blocks * q.blocks, [*begin, *lines]))
    return programs


def _programs(context: Context, kernel: str) -> list[tuple[int, list[str]]]:
    if kernel in ("nodes", "senders", "scatter"):
        return _by_rows(context, kernel)
    return _weights(context) if kernel == "weights" else _edges(context, kernel)


def generate(
    spec: TensorProductSpec, kernel: str, double: bool, real: str, accumulate: str = ""
) -> str:
    """Return the Triton source of one kernel of `spec`: a module with `kernel` and `parts`.

    Args:
        spec: a tensor product.
        kernel: one of KERNELS or ATOMIC_KERNELS.
        double: return the variant for the double backward.
        real: float32 or float64, the dtype of inputs and gradients.
        accumulate: float32 or float64, the dtype of arithmetic and sums; `real` if empty.

    Raises:
        BackendError: the tensor product is too large, or has no GPU kernel.

    Example:
        >>> spec = TensorProductSpec.channelwise("8x0e", "0e", "0e")
        >>> "def kernel(X, Y, W, Z, ptr, order, sender)" in generate(
        ...     spec, "nodes", False, "float32"
        ... )
        True
    """
    context = Context(spec, double, real, accumulate or real)
    programs = _programs(context, kernel)
    names, number = arguments(kernel, double), NUMBER[kernel]
    text, calls, first = [], [], 0
    for position, (blocks, lines) in enumerate(programs):
        head = f"def part_{position}({names}, {number}, part):"
        text += ["", "", "@triton.jit", head, *indent(lines)]
        call = f"    part_{position}({names}, {number}, part - {first})"
        calls += [f"{'el' if first else ''}if part < {first + blocks}:", call]
        first += blocks
    if len(text) > MAX_LINES:
        raise BackendError(
            f"the {kernel} kernel has {len(text)} lines", allowed=f"at most {MAX_LINES}"
        )
    entry = [f"{number} = tl.program_id(0).to(tl.int64)", "part = tl.program_id(1)", *calls]
    head = ["import triton", "import triton.language as tl", "", f"parts = {first}"]  # type: ignore[assignment]
    jit = (
        '@triton.jit(do_not_specialize=["num_edges", "run"])'
        if kernel in ("weights", "scatter")
        else "@triton.jit"
    )
    return "\n".join([*head, *text, "", "", jit, f"def kernel({names}):", *indent(entry), ""])
