"""Shared parts of the Triton emitters: names, loads and constants of one path.

One edge is a set of vectors over a block of channels and scalars; every line of a body works on
those of one edge. Names: rows of the edge are pointers x, y, w, g (and dx, dy, dw, cotangents of
the gradients, in the double backward); x0_1 is component 1 of segment 0 of x, o0_1 the same of
dx; y and h, w and f, a and b likewise; q0_1 is the same of g.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from scitoolkit.ops.tensor_product.cpu_terms import signed_rows, signed_sum
from scitoolkit.ops.tensor_product.spec import IrrepSlice, Path, TensorProductSpec

# Channels of one program: two of a lane of a warp, or one when they take twice the registers.
BLOCK = {"float32": 64, "float64": 32}
TILE = (8, 16)  # input and output channels of a tile of uvw weights
SMALLEST = 16
# Name of an array of an edge -> the pointer to its row.
ROWS = {"x": "x", "o": "dx", "y": "y", "h": "dy", "w": "w", "f": "dw", "q": "g"}


@dataclass(frozen=True)
class Channels:
    """A block of `width` channels out of `mul`: the variable that numbers them, and its mask."""

    name: str
    mul: int
    widest: int

    @property
    def width(self) -> int:
        """A power of two, as Triton wants it."""
        return min(self.widest, max(SMALLEST, 1 << (self.mul - 1).bit_length()))

    @property
    def blocks(self) -> int:
        """Number of blocks that cover all channels."""
        return -(-self.mul // self.width)

    @property
    def mask(self) -> str:
        """Name of the mask, empty when every block is full."""
        return f"{self.name}_in" if self.mul % self.width else ""

    def begin(self, first: str) -> list[str]:
        """Lines that number the channels of the block that starts at `first`."""
        lines = [f"{self.name} = {first} + tl.arange(0, {self.width})"]
        return [*lines, f"{self.mask} = {self.name} < {self.mul}"] if self.mask else lines


@dataclass(frozen=True)
class Context:
    """Constants of a whole kernel: the spec, and the dtypes of storage and sums."""

    spec: TensorProductSpec
    double: bool
    real: str
    acc: str

    def channels(self, name: str, mul: int) -> Channels:
        """Return the block of channels of one program."""
        return Channels(name, mul, BLOCK[self.acc])

    def load(self, pointer: str, mask: str = "") -> str:
        """Return the expression that loads what is stored as the type that is summed in."""
        masked = f", mask={mask}, other=0.0" if mask else ""
        cast = "" if self.real == self.acc else f".to(tl.{self.acc})"
        return f"tl.load({pointer}{masked}){cast}"

    def zeros(self, *shape: int) -> str:
        """Return the expression of a block of zeros."""
        return f"tl.zeros({list(shape)}, tl.{self.acc})"


@dataclass
class Body:
    """Lines of one block of code; a name is assigned once, however often it is asked for."""

    context: Context
    parent: Body | None = None
    lines: list[str] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    rows: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def let(self, name: str, value: str) -> str:
        """Assign `name` here, unless it is already assigned here or around."""
        if not self._knows(name):
            self.known.add(name)
            self.lines.append(f"{name} = {value}")
        return name

    def add(self, *lines: str) -> None:
        """Append lines as they are."""
        self.lines += lines

    def loop(self, head: str, inner: Body) -> None:
        """Append a loop over the lines of another body."""
        self.lines += [head, *indent(inner.lines)]

    def _knows(self, name: str) -> bool:
        return name in self.known or (self.parent is not None and self.parent._knows(name))

    @property
    def edge(self) -> Body:
        """The outermost body: what is the same for all channels of an edge belongs there."""
        return self if self.parent is None else self.parent.edge

    def number(self, key: tuple) -> int:
        """Return a number for a key, the same for the same key, in the whole function."""
        return self.edge.rows.setdefault(key, len(self.edge.rows))


def indent(lines: Iterable[str]) -> list[str]:
    """Return the lines one level deeper."""
    return ["    " + line for line in lines]


def added(parts: Iterable[str]) -> str:
    """Return the sum of expressions as text."""
    return " + ".join(parts)


def times(weight: str, value: str) -> str:
    """Return the product, of which a path without weights has one factor."""
    return f"{weight} * {value}" if weight else value


@dataclass(frozen=True)
class Term:
    """One path of the tensor product and what an emitter asks about it."""

    context: Context
    path: Path
    index: int

    @functools.cached_property
    def pairs(self) -> dict[tuple[int, int], tuple[Any, int]]:
        """Constants and sign of each pair of components that couple."""
        return signed_rows(self.context.spec, self.path)

    @property
    def sides(self) -> tuple[IrrepSlice, IrrepSlice, IrrepSlice]:
        """The segments in1, in2 and out."""
        spec, path = self.context.spec, self.path
        return spec.in1[path.in1], spec.in2[path.in2], spec.out[path.out]

    @property
    def rows(self) -> list[int]:
        """Components of in1 that couple."""
        return sorted({i for i, _ in self.pairs})

    @property
    def columns(self) -> list[int]:
        """Components of out that couple."""
        return sorted({k for _, k in self.pairs})

    def feature(self, body: Body, array: str, i: int, u: Channels) -> str:
        """Component i of the features x (or o, of their cotangent)."""
        return self._vector(body, array, self.path.in1, self.sides[0], i, u)

    def cotangent(self, body: Body, k: int, u: Channels) -> str:
        """Component k of the cotangent of the output."""
        return self._vector(body, "q", self.path.out, self.sides[2], k, u)

    def _vector(self, body, array, number, segment, component, u) -> str:
        place = f"{ROWS[array]} + {segment.offset + component * segment.mul} + {u.name}"
        name = f"{array}{number}_{component}_{u.name}"
        return body.let(name, self.context.load(place, u.mask))

    def attribute(self, body: Body, array: str, j: int, v: int | Channels) -> str:
        """Component j of the attributes y (or h): a scalar of channel v, or a block of channels."""
        segment = self.sides[1]
        if isinstance(v, Channels):
            channel, mask = v.name, v.mask
        else:
            channel, mask, body = v, "", body.edge  # type: ignore[assignment]
        place = f"{ROWS[array]} + {segment.offset + j * segment.mul} + {channel}"
        return body.let(f"{array}{self.path.in2}_{j}_{channel}", self.context.load(place, mask))

    def scalar(self, body: Body, array: str, i: int, k: int, v: int | Channels) -> str:
        """a[i, k] = sum_j C[i, j, k] y[j] up to its sign; array b has the cotangent h for y."""
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

    def over_rows(self, body: Body, k: int, array: str, v: Any, factor: Any) -> str:
        """sum_i a[i, k] factor(i)."""
        return signed_sum(
            (sign, f"{self.scalar(body, array, i, k, v)} * {factor(i)}")
            for (i, kk), (_, sign) in self.pairs.items()
            if kk == k
        )

    def over_columns(self, body: Body, i: int, array: str, v: Any, factor: Any) -> str:
        """sum_k a[i, k] factor(k)."""
        return signed_sum(
            (sign, f"{self.scalar(body, array, i, k, v)} * {factor(k)}")
            for (ii, k), (_, sign) in self.pairs.items()
            if ii == i
        )

    def open_attributes(self, body: Body, name: str, left: Any, right: Any) -> dict[int, str]:
        """sum_ik C[i, j, k] left(i) right(k) by j: the product with the attributes left out.

        Pairs with the same constants up to sign are summed before they meet a constant.
        """
        sums: dict[tuple[float, ...], list[tuple[int, str]]] = {}
        for (i, k), (row, sign) in self.pairs.items():
            sums.setdefault(row, []).append((sign, f"{left(i)} * {right(k)}"))
        entries = {
            row: body.let(f"{name}s{number}", signed_sum(parts))
            for number, (row, parts) in enumerate(sums.items())
        }
        found = {}
        for j in range(self.sides[1].components):
            parts = [f"{row[j]!r} * {entry}" for row, entry in entries.items() if row[j]]
            if parts:
                found[j] = body.let(f"{name}{j}", added(parts))
        return found
