"""Generator of the Triton kernels of the symmetric contraction.

torch computes the coefficients of the polynomial (`spec.polynomial`) from the weights once per
element, with autograd; they are an argument of the kernels:

    z_m = sum_r c_r x_a x_b x_c ...      (rows r with component m and a <= b <= c <= ...)

A program computes a tile of nodes of one element and a block of channels, so that a loaded
coefficient serves several nodes. Gradients traverse the prefix tree in reverse, with Horner's
scheme. Gradients of coefficients are sums over nodes: a program sums a part of the rows over a run
of an element's nodes, and the runs are summed afterwards. There are no atomics.
"""

from __future__ import annotations

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.symmetric_contraction.spec import ContractionSpec, polynomial
from scitoolkit.ops.symmetric_contraction.tree import Node, prefix_tree

TILE = 2  # nodes per program
BLOCK = 32  # channels per program
SUMS = 24  # rows of coefficients per program that computes their gradients
RUNS = 16  # runs of the nodes of an element, for the gradients of coefficients
MAX_LINES = 20_000  # above this Triton would compile for many minutes

HEAD = """
import triton
import triton.language as tl
"""
GRAPH = "C, ptr, order, tiles, starts"
TILE_BEGIN = [
    "t = tl.program_id(0)",
    "e = tl.load(tiles + t)",
    f"k = tl.load(starts + t) + tl.arange(0, {TILE})",
    "inside = k < tl.load(ptr + e + 1)",
    "n = tl.load(order + k, mask=inside, other=0)[:, None]",
    f"u = (tl.program_id(1) * {BLOCK} + tl.arange(0, {BLOCK}))[None, :]",
    "channel = u < C",
    "mask = inside[:, None] & channel",
]


class _Lines:
    """Lines of a kernel in which each variable is assigned only once."""

    def __init__(self, spec: ContractionSpec, begin: list[str], mask: str) -> None:
        self.spec, self.lines, self.mask = spec, list(begin), mask
        self.assigned: set[str] = set()

    def add(self, *lines: str) -> None:
        self.lines += lines

    def let(self, name: str, value: str) -> str:
        if name not in self.assigned:
            self.assigned.add(name)
            self.add(f"{name} = {value}")
        return name

    def row(self, name: str, pointer: str, size: int, component: int) -> str:
        """Return the variable of a loaded component of a node's row."""
        place = f"{pointer} + (n * {size} + {component}) * C + u"
        return self.let(f"{name}{component}", f"tl.load({place}, mask={self.mask}, other=0.0)")

    def x(self, i: int) -> str:
        return self.row("x", "X", self.spec.dim_in, i)

    def d(self, i: int) -> str:
        return self.row("d", "DX", self.spec.dim_in, i)

    def g(self, m: int) -> str:
        return self.row("g", "G", self.spec.dim_out, m)

    def coefficient(self, row: int) -> str:
        return f"tl.load(c + {row} * C, mask=channel, other=0.0)"

    def monomial(self, variables: tuple[int, ...], tangent: bool = False) -> str:
        """Return the variable of a monomial, or of its derivative along d; prefixes are shared."""
        *prefix, last = variables
        if not prefix:
            return self.d(last) if tangent else self.x(last)
        name = ("t_" if tangent else "q_") + "_".join(map(str, variables))
        head = tuple(prefix)
        if not tangent:
            return self.let(name, f"{self.monomial(head)} * {self.x(last)}")
        along = f"{self.monomial(head, True)} * {self.x(last)}"
        return self.let(name, f"{along} + {self.monomial(head)} * {self.d(last)}")

    def store(self, pointer: str, size: int, component: int, value: str) -> None:
        place = f"{pointer} + (n * {size} + {component}) * C + u"
        self.add(f"tl.store({place}, {value}, mask={self.mask})")


def _tile(spec: ContractionSpec) -> _Lines:
    count = len(polynomial(spec).monomials)
    begin = [*TILE_BEGIN, f"c = W + e * {count} * C + u"]
    # Zeros of a tile's shape, from a load that every kernel needs.
    lines = _Lines(spec, begin, "mask")
    lines.add(f"zero = {lines.x(0)} * 0.0")
    return lines


def _sums(lines: _Lines, target: str, tangent: bool) -> None:
    """Emit sums of coefficients times monomials (or their derivatives along d) by component."""
    spec, rows = lines.spec, polynomial(lines.spec)
    lines.add(*(f"z{m} = zero" for m in range(spec.dim_out)))
    for row, (variables, m) in enumerate(zip(rows.monomials, rows.components, strict=True)):
        lines.add(f"z{m} += {lines.coefficient(row)} * {lines.monomial(variables, tangent)}")
    for m in range(spec.dim_out):
        lines.store(target, spec.dim_out, m, f"z{m}")


def _below(lines: _Lines, node: Node) -> str:
    """Return the sum of the rows of this prefix times the incoming gradient."""
    parts = [f"{lines.coefficient(row)} * {lines.g(m)}" for row, m in node.rows]
    return " + ".join(parts) or "zero"


def _gradients(lines: _Lines, node: Node, prefix: tuple[int, ...] = ()) -> None:
    """Assign h<depth>, the sum of the subtree of this prefix, and add to gx."""
    depth = len(prefix)
    if depth:
        lines.add(f"h{depth} = {_below(lines, node)}")
    for variable, child in node.children.items():
        _gradients(lines, child, (*prefix, variable))
        below = f"h{depth + 1}"
        if depth:
            lines.add(f"gx{variable} += {lines.monomial(prefix)} * {below}")
            lines.add(f"h{depth} += {lines.x(variable)} * {below}")
        else:
            lines.add(f"gx{variable} += {below}")


def _curvatures(lines: _Lines, node: Node, prefix: tuple[int, ...] = ()) -> None:
    """Emit `_gradients` and its derivative along d, where e<depth> is that of h<depth>."""
    depth = len(prefix)
    if depth:
        lines.add(f"h{depth} = {_below(lines, node)}", f"e{depth} = zero")
    for variable, child in node.children.items():
        below, tangent = f"h{depth + 1}", f"e{depth + 1}"
        _curvatures(lines, child, (*prefix, variable))
        if depth:
            lines.add(
                f"gx{variable} += {lines.monomial(prefix, True)} * {below}",
                f"h{depth} += {lines.x(variable)} * {below}",
                f"e{depth} += {lines.d(variable)} * {below}",
            )
        if child.children:
            scale = f"{lines.monomial(prefix)} * " if depth else ""
            lines.add(f"gx{variable} += {scale}{tangent}")
            if depth:
                lines.add(f"e{depth} += {lines.x(variable)} * {tangent}")


def _store_gradients(lines: _Lines, write) -> None:
    spec = lines.spec
    lines.add(*(f"gx{i} = zero" for i in range(spec.dim_in)))
    write(lines, prefix_tree(spec))
    for i in range(spec.dim_in):
        lines.store("GX", spec.dim_in, i, f"gx{i}")


def _function(name: str, arguments: str, lines: list[str]) -> list[str]:
    body = ["    " + line for line in lines]
    return ["", "", "@triton.jit", f"def {name}({arguments}):", *body]


def _coefficients(spec: ContractionSpec, name: str, arguments: str, tangent: bool) -> list[str]:
    """Return the kernel of the coefficients' gradients, with a function per part of the rows."""
    rows, text, calls = polynomial(spec), [], []
    names = f"X, {arguments}, GW, C, order, n0, n1, u, mask, out"
    for part, first in enumerate(range(0, len(rows.monomials), SUMS)):
        chosen = range(first, min(first + SUMS, len(rows.monomials)))
        body = _Lines(spec, ["n = tl.load(order + k)"], "mask")
        for row in chosen:
            value = body.monomial(rows.monomials[row], tangent)
            body.add(f"s{row} += {body.g(rows.components[row])} * {value}")
        lines = [f"s{row} = tl.zeros([{BLOCK}], G.dtype.element_ty)" for row in chosen]
        lines += ["for k in range(n0, n1):", *("    " + line for line in body.lines)]
        lines += [f"tl.store(out + {row} * C, s{row}, mask=mask)" for row in chosen]
        text += _function(f"{name}_{part}", names, lines)
        calls += [f"{'el' if part else ''}if part == {part}:", f"    {name}_{part}({names})"]
    begin = [
        "job = tl.program_id(0).to(tl.int64)",
        "part = tl.program_id(1)",
        f"e = job // {RUNS}",
        "first = tl.load(ptr + e)",
        "last = tl.load(ptr + e + 1)",
        f"size = (last - first + {RUNS - 1}) // {RUNS}",
        f"n0 = tl.minimum(first + (job % {RUNS}) * size, last)",
        "n1 = tl.minimum(n0 + size, last)",
        f"u = tl.program_id(2) * {BLOCK} + tl.arange(0, {BLOCK})",
        "mask = u < C",
        f"out = GW + job * {len(rows.monomials)} * C + u",
    ]
    return text + _function(name, f"X, {arguments}, GW, C, ptr, order", [*begin, *calls])


def num_parts(spec: ContractionSpec) -> int:
    """Return the number of parts of the rows for the coefficients' gradients."""
    return -(-len(polynomial(spec).monomials) // SUMS)


def generate(spec: ContractionSpec) -> str:
    """Return the Triton source of the kernels of `spec`.

    Raises:
        BackendError: the polynomial has too many rows to compile in reasonable time.

    Example:
        >>> "def forward(X, W, Z, " in generate(ContractionSpec.build("0e", "0e", 2))
        True
    """
    forward, backward, slopes, curvatures = (_tile(spec) for _ in range(4))
    _sums(forward, "Z", tangent=False)
    _store_gradients(backward, _gradients)
    _sums(slopes, "GG", tangent=True)
    _store_gradients(curvatures, _curvatures)
    text = [
        *_function("forward", f"X, W, Z, {GRAPH}", forward.lines),
        *_function("backward", f"X, W, G, GX, {GRAPH}", backward.lines),
        *_function("slopes", f"X, W, DX, GG, {GRAPH}", slopes.lines),
        *_function("curvatures", f"X, W, G, DX, GX, {GRAPH}", curvatures.lines),
        *_coefficients(spec, "backward_weight", "G", tangent=False),
        *_coefficients(spec, "double_backward_weight", "G, DX", tangent=True),
    ]
    if len(text) > MAX_LINES:
        raise BackendError(f"the kernels have {len(text)} lines", allowed=f"at most {MAX_LINES}")
    return HEAD + "\n".join(text) + "\n"
