"""Shared parts of the Triton emitters: names, loads and constants of one path.

The lines of a body compute one edge, with vectors over a block of channels and scalars. Names: the
pointers x, y, w, g are the rows of the edge, and dx, dy, dw those of the cotangents in the double
backward. x0_1 is component 1 of segment 0 of x and o0_1 that of dx; likewise y and h, w and f, a
and b; q0_1 is that of g.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from scitoolkit.ops.tensor_product.cpu_terms import signed_rows, signed_sum
from scitoolkit.ops.tensor_product.spec import IrrepSlice, Path, TensorProductSpec

# Channels per program: two per lane of a warp in float32, one in float64.
BLOCK = {"float32": 64, "float64": 32}
TILE = (8, 16)  # input and output channels of a tile of uvw weights
SMALLEST = 16
# Prefix of the variables of an array -> pointer to its row.
ROWS = {"x": "x", "o": "dx", "y": "y", "h": "dy", "w": "w", "f": "dw", "q": "g"}


@dataclass(frozen=True)
class Channels:
    """A block of `width` of the `mul` channels, with the index variable `name` and its mask."""

    name: str
    mul: int
    widest: int

    @property
    def width(self) -> int:
        """Channels per block, a power of two, as Triton requires."""
        return min(self.widest, max(SMALLEST, 1 << (self.mul - 1).bit_length()))

    @property
    def blocks(self) -> int:
        """Number of blocks that cover all channels."""
        return -(-self.mul // self.width)

    @property
    def mask(self) -> str:
        """Name of the mask, empty if every block is full."""
        return f"{self.name}_in" if self.mul % self.width else ""

    def begin(self, first: str) -> list[str]:
        """Return lines that assign the channel indices of the block starting at `first`."""
        lines = [f"{self.name} = {first} + tl.arange(0, {self.width})"]
        return [*lines, f"{self.mask} = {self.name} < {self.mul}"] if self.mask else lines


@dataclass(frozen=True)
class Context:
    """Constants of a kernel: the spec, and the dtypes of storage and sums."""

    spec: TensorProductSpec
    double: bool
    real: str
    acc: str

    def channels(self, name: str, mul: int) -> Channels:
        """Return the block of channels of one program."""
        return Channels(name, mul, BLOCK[self.acc])

    def load(self, pointer: str, mask: str = "") -> str:
        """Return the expression that loads stored values as the dtype of the sums."""
        masked = f", mask={mask}, other=0.0" if mask else ""
        cast = "" if self.real == self.acc else f".to(tl.{self.acc})"
        return f"tl.load({pointer}{masked}){cast}"

    def zeros(self, *shape: int) -> str:
        """Return the expression of a block of zeros."""
        return f"tl.zeros({list(shape)}, tl.{self.acc})"


@dataclass
class AssignedLines:
    """Lines of one block of code, in which each variable is assigned only once."""

    context: Context
    parent: AssignedLines | None = None
    lines: list[str] = field(default_factory=list)
    assigned: set[str] = field(default_factory=set)
    rows: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def let(self, name: str, value: str) -> str:
        """Assign `name` unless this or an enclosing body has assigned it; return the name."""
        if not self._is_assigned(name):
            self.assigned.add(name)
            self.lines.append(f"{name} = {value}")
        return name

    def add(self, *lines: str) -> None:
        """Append lines."""
        self.lines += lines

    def loop(self, head: str, inner: AssignedLines) -> None:
        """Append a loop over the lines of another body."""
        self.lines += [head, *indent(inner.lines)]

    def _is_assigned(self, name: str) -> bool:
        return name in self.assigned or (self.parent is not None and self.parent._is_assigned(name))

    @property
    def edge(self) -> AssignedLines:
        """The outermost body, for values that are equal for all channels of an edge."""
        return self if self.parent is None else self.parent.edge

    def number(self, key: tuple) -> int:
        """Return the number of a key, unique within the function."""
        return self.edge.rows.setdefault(key, len(self.edge.rows))


def indent(lines: Iterable[str]) -> list[str]:
    """Return the lines one level deeper."""
    return ["    " + line for line in lines]


def added(parts: Iterable[str]) -> str:
    """Return the sum of expressions as text."""
    return " + ".join(parts)


def times(weight: str, value: str) -> str:
    """Return the product with the weight, or the value if the path has no weights."""
    return f"{weight} * {value}" if weight else value


@dataclass(frozen=True)
class TritonTerm:
    """One path of the tensor product with its constants and loads."""

    context: Context
    path: Path
    index: int

    @functools.cached_property
    def pairs(self) -> dict[tuple[int, int], tuple[Any, int]]:
        """Constants and sign of each coupled pair of components."""
        return signed_rows(self.context.spec, self.path)

    @property
    def sides(self) -> tuple[IrrepSlice, IrrepSlice, IrrepSlice]:
        """Segments of in1, in2 and out."""
        spec, path = self.context.spec, self.path
        return spec.in1[path.in1], spec.in2[path.in2], spec.out[path.out]

    @property
    def rows(self) -> list[int]:
        """Components of in1 with nonzero constants."""
        return sorted({i for i, _ in self.pairs})

    @property
    def columns(self) -> list[int]:
        """Components of out with nonzero constants."""
        return sorted({k for _, k in self.pairs})

    def feature(self, body: AssignedLines, array: str, i: int, u: Channels) -> str:
        """Return component i of the features x (or of their cotangent o)."""
        return self._vector(body, array, self.path.in1, self.sides[0], i, u)

    def cotangent(self, body: AssignedLines, k: int, u: Channels) -> str:
        """Return component k of the cotangent of the output."""
        return self._vector(body, "q", self.path.out, self.sides[2], k, u)

    def _vector(self, body, array, number, segment, component, u) -> str:
        place = f"{ROWS[array]} + {segment.offset + component * segment.mul} + {u.name}"
        name = f"{array}{number}_{component}_{u.name}"
        return body.let(name, self.context.load(place, u.mask))

    def attribute(self, body: AssignedLines, array: str, j: int, v: int | Channels) -> str:
        """Return component j of the attributes y (or h), for channel v or a block of channels."""
        segment = self.sides[1]
        if isinstance(v, Channels):
            channel, mask = v.name, v.mask
        else:
            channel, mask, body = v, "", body.edge  # type: ignore[assignment]
        place = f"{ROWS[array]} + {segment.offset + j * segment.mul} + {channel}"
        return body.let(f"{array}{self.path.in2}_{j}_{channel}", self.context.load(place, mask))

    def scalar(self, body: AssignedLines, array: str, i: int, k: int, v: int | Channels) -> str:
        """Return a[i, k] = sum_j C[i, j, k] y[j] up to sign; array b uses the cotangent h of y."""
        row, _ = self.pairs[i, k]
        channel = v.name if isinstance(v, Channels) else v
        body = body if isinstance(v, Channels) else body.edge
        name = f"{array}{body.number((self.path.in2, channel, row))}"
        source = {"a": "y", "b": "h"}[array]
        parts = [
            f"{value!r} * {self.attribute(body, source, j, v)}"
            for j, value in enumerate(row)
            if value
        ]
        return body.let(name, added(parts))

    def over_rows(self, body: AssignedLines, k: int, array: str, v: Any, factor: Any) -> str:
        """Return sum_i a[i, k] factor(i)."""
        return signed_sum(
            (sign, f"{self.scalar(body, array, i, k, v)} * {factor(i)}")
            for (i, kk), (_, sign) in self.pairs.items()
            if kk == k
        )

    def over_columns(self, body: AssignedLines, i: int, array: str, v: Any, factor: Any) -> str:
        """Return sum_k a[i, k] factor(k)."""
        return signed_sum(
            (sign, f"{self.scalar(body, array, i, k, v)} * {factor(k)}")
            for (ii, k), (_, sign) in self.pairs.items()
            if ii == i
        )

    def open_attributes(
        self, body: AssignedLines, name: str, left: Any, right: Any
    ) -> dict[int, str]:
        """Return sum_ik C[i, j, k] left(i) right(k) for each j, the gradient of the attributes.

        Pairs with equal constants up to sign are summed before they are multiplied by a constant.
        """
        sums: dict[tuple[float, ...], list[tuple[int, str]]] = {}
        for (i, k), (row, sign) in self.pairs.items():
            sums.setdefault(row, []).append((sign, f"{left(i)} * {right(k)}"))
        entries = {
            row: body.let(f"{name}s{number}", signed_sum(parts))
            for number, (row, parts) in enumerate(sums.items())
        }
        variables = {}
        for j in range(self.sides[1].components):
            parts = [f"{row[j]!r} * {entry}" for row, entry in entries.items() if row[j]]
            if parts:
                variables[j] = body.let(f"{name}{j}", added(parts))
        return variables
