"""Loop nests that store elementwise expressions, with merged dims in the order of the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from scitoolkit.deploy.values import C_TYPES, Stride, Value, View, memory_order

Table: TypeAlias = Callable[[tuple[int, ...]], str]
"""Function from offsets to the name of a constant array."""
PARALLEL = 200_000
"""Least number of elements of a loop nest that is divided among threads."""


def nest(value: Value, into: View, table: Table) -> tuple[str, list[View]]:
    """Return the C text that stores a value in a view, and the views that it reads."""
    body = Body(into)
    result = body.load(value)
    return loop_text(into, body.lines, f"{{into}} = {result};", body.leaves, table), body.touched


class Body:
    """Innermost statements of a loop nest: loads and arithmetic, one variable per result."""

    def __init__(self, into: View) -> None:

        self.shape: tuple[int, ...] = into.shape
        self.lines: list[str] = []
        self.leaves: list[View] = []
        self.touched: list[View] = []

    def load(self, value: Value) -> str:
        """Return the variable that holds a value."""
        if isinstance(value, View):
            self.leaves.append(value.expand(self.shape))
            self.touched.append(value)
            text, dtype = f"{{leaf{len(self.leaves) - 1}}}", value.dtype
        else:
            operands = [self.load(arg) for arg in value.args]
            extra = {}
            if value.source is not None:
                self.touched.append(value.source)
                extra["source"] = value.source.buffer.name
            text, dtype = value.text.format(*operands, **extra), value.dtype
        self.lines.append(f"const {C_TYPES[dtype]} v{len(self.lines)} = {text};")
        return f"v{len(self.lines) - 1}"


def loop_text(
    into: View,
    lines: list[str],
    last: str,
    leaves: list[View],
    table: Table,
    *,
    serial: bool = False,
) -> str:
    """Return nested loops over a view; lines refer to leaves as `{leaf0}` and the view as `{into}`.

    With `serial` several iterations may write the same element: dims that are not reduced are
    innermost, and only an innermost loop over different elements is vectorised.
    """
    order = memory_order(into)
    if serial:
        order = _sums_outside(into, leaves, order)
    dims = [(into.shape[d], [view.strides[d] for view in (into, *leaves)]) for d in order]
    dims = _merged([dim for dim in dims if dim[0] != 1])
    names = [f"i{k}" for k in range(len(dims))]

    def element(place: int, view: View) -> str:
        parts = [str(view.offset)] if view.offset else []
        for name, (_, strides) in zip(names, dims, strict=True):
            stride = strides[place]
            if isinstance(stride, tuple):
                parts.append(f"{table(stride)}[{name}]")
            elif stride:
                parts.append(name if stride == 1 else f"{name} * {stride}")
        return f"{view.buffer.name}[{' + '.join(parts) or '0'}]"

    places = {f"leaf{k}": element(k + 1, leaf) for k, leaf in enumerate(leaves)}
    places["into"] = element(0, into)
    text = []
    count = 1
    for size, _ in dims:
        count *= size
    for depth, (name, (size, _)) in enumerate(zip(names, dims, strict=True)):
        shared = count >= PARALLEL and depth == 0 and not serial
        if depth == len(dims) - 1 and (not serial or dims[-1][1][0] == 1):
            text.append("#pragma omp parallel for simd" if shared else "#pragma omp simd")
        elif shared:
            text.append("#pragma omp parallel for")
        text.append(f"for (int64_t {name} = 0; {name} < {size}; {name}++)")
    return "\n".join([*text, "{", *(f"  {line.format(**places)}" for line in [*lines, last]), "}"])


def _sums_outside(into: View, leaves: list[View], order: list[int]) -> list[int]:
    """Return the order of dims with a contiguous dim of the result innermost, if there is one."""
    inner = [d for d in order if into.strides[d] == 1 and into.shape[d] > 1]
    return [d for d in order if d not in inner] + inner


def _merged(dims: list[tuple[int, list[Stride]]]) -> list[tuple[int, list[Stride]]]:
    """Merge neighbouring loops if all views have a common stride over both."""
    out: list[tuple[int, list[Stride]]] = []
    for size, strides in dims:
        if out and all(
            isinstance(a, int) and isinstance(b, int) and a == b * size
            for a, b in zip(out[-1][1], strides, strict=True)
        ):
            out[-1] = (out[-1][0] * size, strides)
        else:
            out.append((size, strides))
    return out
