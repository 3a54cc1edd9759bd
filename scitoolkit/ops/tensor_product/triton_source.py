"""Generator of the Triton kernels: the same products as the C, scheduled for a GPU.

Every derivative of the sum of products <g, z(x, y, w)> is one of four multilinear maps, with
cotangents in the place of arguments. Each has its kernel, and a variant that adds up the maps of
the double backward:

    nodes     z of a receiver, from its incoming edges            one program per receiver
    senders   gx of a sender, from its outgoing edges             one program per sender
    edges     gy and gw of an edge                                one program per edge
    weights   gw of shared weights, of a run of edges             one program per run

A program owns what it writes, and reads edges in an order that the graph fixes, so there are no
atomics and equal input gives bit-equal output. A program is one warp with a block of channels;
the rows of a receiver or sender are cut into parts whose sums fit in registers, the second index
of the grid. The messages are never stored.
"""

from __future__ import annotations

from collections.abc import Callable

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.tensor_product import triton_uvu, triton_uvw
from scitoolkit.ops.tensor_product.spec import Segment, TensorProductSpec
from scitoolkit.ops.tensor_product.triton_terms import (
    TILE,
    Body,
    Channels,
    Context,
    Term,
    indent,
)

KERNELS = ("nodes", "senders", "edges", "weights")
MAX_SUMS = 32  # blocks that one program sums at a time, of two registers a lane each
MAX_LINES = 30_000  # beyond this Triton would compile for many minutes

INPUTS = "X, Y, W"
COTANGENTS = "DX, sdx, DY, sdy, DW, sdw"
OUTPUTS = {
    "nodes": "Z, ptr, order, sender",
    "senders": "G, GX, ptr, order, receiver",
    "edges": "G, GY, GW, order, sender, receiver",
    "weights": "G, GW, order, sender, receiver, num_edges, run",
}
NUMBER = {"nodes": "n", "senders": "n", "edges": "p", "weights": "c"}


def arguments(kernel: str, double: bool) -> str:
    """Return the names of a kernel's arguments."""
    return ", ".join([INPUTS, *([COTANGENTS] if double else []), OUTPUTS[kernel]])


def _rows(context: Context, kernel: str) -> list[str]:
    """Pointers to the rows of edge number p of the order."""
    spec, double = context.spec, context.double
    lines = ["e = tl.load(order + p)"]
    if kernel != "senders":
        lines += ["s = tl.load(sender + e)", f"x = X + s * {spec.dim_in1}"]
        lines += ["dx = DX + s * sdx"] if double else []
    lines.append(f"y = Y + e * {spec.dim_in2}")
    lines.append("w = W" if spec.shared_weights else f"w = W + e * {spec.weight_numel}")
    lines += ["dy = DY + e * sdy", "dw = DW + e * sdw"] if double else []
    if kernel != "nodes":
        lines.append(f"g = G + tl.load(receiver + e) * {spec.dim_out}")
    if kernel == "edges":
        lines += [f"gy = GY + e * {spec.dim_in2}", f"gw = GW + e * {spec.weight_numel}"]
    return lines


def _parts(segments: tuple[Segment, ...], limit: int) -> list[list[int]]:
    """Cut segments of equal multiplicity into groups of at most `limit` sums."""
    parts: list[list[int]] = []
    for mul in sorted({each.mul for each in segments}, reverse=True):
        size = limit + 1
        for number, each in enumerate(segments):
            if each.mul != mul:
                continue
            size += each.components
            if size > limit:
                parts.append([])
                size = each.components
            parts[-1].append(number)
    return parts


def _by_rows(context: Context, kernel: str) -> list[tuple[int, list[str]]]:
    """Programs that sum over the edges of a node: (blocks of channels, lines) of each part."""
    spec, is_nodes = context.spec, kernel == "nodes"
    segments = spec.out if is_nodes else spec.in1
    size, target = (spec.dim_out, "Z") if is_nodes else (spec.dim_in1, "GX")
    found = []
    for part in _parts(segments, MAX_SUMS):
        terms = [
            Term(context, path, index)
            for index, path in enumerate(spec.paths)
            if (path.out if is_nodes else path.in1) in part
        ]
        u = _block(context, segments[part[0]].mul, kernel, terms)
        begin, end = u.begin(f"part * {u.width}"), []
        for number in part:
            each = segments[number]
            for i in range(each.components):
                name = f"z{number}_{i}"
                begin.append(f"{name} = {context.zeros(u.width)}")
                place = f"{target} + n * {size} + {each.offset + i * each.mul} + u"
                end.append(f"tl.store({place}, {name}{f', mask={u.mask}' if u.mask else ''})")
        edge = Body(context, lines=_rows(context, kernel))
        for term in terms:
            number = term.path.out if is_nodes else term.path.in1
            sums = {i: f"z{number}_{i}" for i in range(segments[number].components)}
            emitters = triton_uvw if term.path.mode == "uvw" else triton_uvu
            getattr(emitters, kernel)(term, edge, u, sums)
        loop = ["for p in range(tl.load(ptr + n), tl.load(ptr + n + 1)):", *indent(edge.lines)]
        found.append((u.blocks, [*begin, *loop, *end]))
    return found


def _block(context: Context, mul: int, kernel: str, terms: list[Term]) -> Channels:
    """Channels of one program; fewer where tiles of weights must fit beside the sums."""
    if kernel == "senders" and any(term.path.mode == "uvw" for term in terms):
        return Channels("u", mul, TILE[1])
    return context.channels("u", mul)


def _families(context: Context) -> dict[int, list[Term]]:
    """Paths without a sum over input channels, by multiplicity: they share a block of channels."""
    families: dict[int, list[Term]] = {}
    for index, path in enumerate(context.spec.paths):
        if path.mode != "uvw":
            term = Term(context, path, index)
            families.setdefault(term.sides[0].mul, []).append(term)
    return families


def _wide(context: Context) -> list[Term]:
    return [
        Term(context, path, index)
        for index, path in enumerate(context.spec.paths)
        if path.mode == "uvw"
    ]


class _AttributeSums:
    """Gradients of an edge's attributes: vectors over channels, summed when all paths are done."""

    def __init__(self, edge: Body) -> None:
        self.edge = edge
        self.sums: dict[int, list[str]] = {}

    def add(self, body: Body, u: Channels, place: int, value: str) -> None:
        """Add a vector to what attribute number `place` gets."""
        name = f"n{u.width}_{place}"
        self.edge.let(name, self.edge.context.zeros(u.width))
        body.add(f"{name} += {value}")
        if name not in self.sums.setdefault(place, []):
            self.sums[place].append(name)

    def store(self) -> list[str]:
        """Lines that reduce the vectors and write the row."""
        return [
            f"tl.store(gy + {place}, {' + '.join(f'tl.sum({name}, 0)' for name in names)})"
            for place, names in sorted(self.sums.items())
        ]


def _check_attributes(spec: TensorProductSpec) -> None:
    elementwise = {path.in2 for path in spec.paths if path.mode == "uuu"}
    summed = {path.in2 for path in spec.paths if path.mode != "uuu"}
    if elementwise & summed:
        raise BackendError("no GPU kernel for attributes shared by uuu and other modes")


def _edges(context: Context) -> list[tuple[int, list[str]]]:
    """The program of one edge."""
    _check_attributes(context.spec)
    edge = Body(context, lines=_rows(context, "edges"))
    sums = _AttributeSums(edge)
    for mul, terms in _families(context).items():
        u = context.channels(f"c{mul}", mul)
        inner = Body(context, edge)
        inner.add(*u.begin(f"c{mul}_0"))
        rows: dict[str, str] = {}
        for term in terms:

            def add(j, v, value, term=term, u=u, inner=inner, rows=rows) -> None:
                side = term.sides[1]
                if not isinstance(v, Channels):
                    sums.add(inner, u, side.offset + j * side.mul + v, value)
                    return
                name = f"n{term.path.in2}_{j}_u"
                inner.add(f"{name} {'+=' if name in rows else '='} {value}")
                rows[name] = f"gy + {side.offset + j * side.mul} + {u.name}"

            triton_uvu.edges(term, inner, u, add)
        mask = f", mask={u.mask}" if u.mask else ""
        inner.add(*(f"tl.store({place}, {name}{mask})" for name, place in rows.items()))
        edge.loop(f"for c{mul}_0 in range(0, {mul}, {u.width}):", inner)
    for term in _wide(context):

        def add_wide(body, u, j, v, value, term=term) -> None:
            side = term.sides[1]
            sums.add(body, u, side.offset + j * side.mul + v, value)

        triton_uvw.edges(term, edge, add_wide)
    return [(1, [*edge.lines, *sums.store()])]


def _run(context: Context, edge: Body, zeros: list[str], emit: Callable) -> list[str]:
    places = emit()
    return [
        *(f"{name} = {zero}" for name, zero in zip(places, zeros, strict=True)),
        "for p in range(c * run, tl.minimum(c * run + run, num_edges)):",
        *indent(edge.lines),
        f"gw = GW + c * {context.spec.weight_numel}",
        *(
            f"tl.store({place}, {name}{f', mask={mask}' if mask else ''})"
            for name, (place, mask) in places.items()
        ),
    ]


def _weights(context: Context) -> list[tuple[int, list[str]]]:
    """Programs that sum the gradient of shared weights over a run of edges."""
    found = []
    for mul, terms in _families(context).items():
        u = context.channels("u", mul)
        for term in terms:
            if not term.path.has_weight:
                continue
            count = len(list(triton_uvu.attribute_channels(term, u)))
            edge = Body(context, lines=_rows(context, "weights"))
            lines = _run(
                context, edge, [context.zeros(u.width)] * count,
                lambda term=term, edge=edge, u=u: triton_uvu.shared_weights(term, edge, u),
            )  # fmt: skip
            found.append((u.blocks, [*u.begin(f"part * {u.width}"), *lines]))
    for term in _wide(context):
        u, q = triton_uvw.inputs(term), triton_uvw.outputs(term)
        for v in range(term.sides[1].mul):
            edge = Body(context, lines=_rows(context, "weights"))
            lines = _run(
                context, edge, [context.zeros(u.width, q.width)],
                lambda term=term, edge=edge, v=v, u=u, q=q: triton_uvw.shared_weights(
                    term, edge, v, u, q
                ),
            )  # fmt: skip
            begin = u.begin(f"part // {q.blocks} * {u.width}")
            begin += q.begin(f"part % {q.blocks} * {q.width}")
            found.append((u.blocks * q.blocks, [*begin, *lines]))
    return found


def _programs(context: Context, kernel: str) -> list[tuple[int, list[str]]]:
    if kernel in ("nodes", "senders"):
        return _by_rows(context, kernel)
    return _edges(context) if kernel == "edges" else _weights(context)


def generate(
    spec: TensorProductSpec, kernel: str, double: bool, real: str, accumulate: str = ""
) -> str:
    """Return the Triton source of one kernel of `spec`: a module with `kernel` and `parts`.

    Args:
        spec: a tensor product.
        kernel: nodes, senders, edges or weights.
        double: the variant of the double backward.
        real: float32 or float64, what inputs and gradients are stored as.
        accumulate: what is computed and summed in, `real` when empty.

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
    head = ["import triton", "import triton.language as tl", "", f"parts = {first}"]
    jit = (
        '@triton.jit(do_not_specialize=["num_edges", "run"])'
        if kernel == "weights"
        else "@triton.jit"
    )
    return "\n".join([*head, *text, "", "", jit, f"def kernel({names}):", *indent(entry), ""])
