"""Shared parts of the C emitters: the table of constants, and the addresses of a path.

The Clebsch-Gordan constants C and the attributes y of an edge give scalars

    a[i, k] = sum_j C[i, j, k] y[j]

Many pairs (i, k) have the same constants up to sign, within a path and between paths of the same
degrees. Each distinct row of constants is therefore one entry of a table, and a pair refers to an
entry with a sign.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scitoolkit.ops.tensor_product.spec import CG_ZERO, Path, TensorProductSpec

PADDING = 16  # entries per segment are padded to multiples of the widest vector in float32


@dataclass
class ScalarTable:
    """Distinct rows of constants over j per segment of in2; each is a scalar of an edge."""

    spec: TensorProductSpec
    entries: dict[tuple[int, tuple[float, ...]], int] = field(default_factory=dict)
    groups: dict[int, list[tuple[float, ...]]] = field(default_factory=dict)

    def add(self, segment: int, row: tuple[float, ...]) -> None:
        rows = self.groups.setdefault(segment, [])
        if (segment, row) not in self.entries:
            self.entries[segment, row] = len(rows)
            rows.append(row)

    @classmethod
    def build(cls, spec: TensorProductSpec) -> ScalarTable:
        table = cls(spec)
        for path in spec.paths:
            if path.mode != "uuu":
                for row, _ in signed_rows(spec, path).values():
                    table.add(path.in2, row)
        return table._sorted()

    def _sorted(self) -> ScalarTable:
        """Group rows with nonzeros at the same j, so that vectors of entries skip zeros."""
        ordered = ScalarTable(self.spec)
        for segment, rows in self.groups.items():
            for row in sorted(rows, key=lambda row: [value != 0 for value in row]):
                ordered.add(segment, row)
        return ordered

    def padded(self, segment: int) -> int:
        return -(-len(self.groups[segment]) // PADDING) * PADDING

    def offset(self, segment: int, v: int = 0) -> int:
        """Return the start of the scalars of channel v of a segment of in2 in an edge's row."""
        before = sum(self.padded(s) * self.spec.in2[s].mul for s in self.groups if s < segment)
        return before + v * self.padded(segment)

    @property
    def size(self) -> int:
        """Number of scalars per edge with padding; at least one vector."""
        return max(
            PADDING, sum(self.padded(group) * self.spec.in2[group].mul for group in self.groups)
        )

    def source_over_edges(self) -> str:
        """Return the C function `scalars(y, a)` whose elements are vectors over edges."""
        lines = []
        for segment, rows in sorted(self.groups.items()):
            side = self.spec.in2[segment]
            for v in range(side.mul):
                for entry, row in enumerate(rows):
                    terms = " + ".join(
                        f"(num){value.hex()}*y[{side.offset + j * side.mul + v}]"
                        for j, value in enumerate(row)
                        if value
                    )
                    lines.append(f"a[{self.offset(segment, v) + entry}] = {terms};")
        body = "\n".join(lines)
        return f"static void scalars(const vec *y, vec *a) {{\n{body}\n}}\n"

    def source(self) -> str:
        """Return the constants and the C function `scalars(y, a)`, which fills an edge's row."""
        tables, code = [], []
        for segment, rows in sorted(self.groups.items()):
            side, width = self.spec.in2[segment], self.padded(segment)
            columns = np.zeros((side.components, width))
            columns[:, : len(rows)] = np.array(rows).T
            values = ",".join(float(value).hex() for value in columns.ravel())
            tables.append(
                f"static const acc C{segment}[{columns.size}] "
                f"__attribute__((aligned(64))) = {{{values}}};"
            )
            code.append(f"for (int v = 0; v < {side.mul}; v++) {{ vec *b; const vec *c;")
            for begin in range(0, width, PADDING):
                used = [j for j in range(side.components) if columns[j, begin:][:PADDING].any()]
                terms = " + ".join(
                    f"(acc)y[{side.offset + j * side.mul}+v]*c[{j * width + begin}/LANES]"
                    for j in used
                )
                place = f"{self.offset(segment)} + v*{width} + {begin}"
                code.append(f"b = (vec *)(a + {place}); c = (const vec *)C{segment};")
                code.append(f"for (int p = 0; p < {PADDING}/LANES; p++, c++) b[p] = {terms};")
            code.append("}")
        body = "\n".join(code)
        return (
            "\n".join(tables)
            + f"\nstatic inline void scalars(const real *y, acc *a) {{\n{body}\n}}\n"
        )


def signed_rows(
    spec: TensorProductSpec, path: Path
) -> dict[tuple[int, int], tuple[tuple[float, ...], int]]:
    """Map each pair (i, k) with nonzero constants to its row over j and the sign of the row."""
    constants = spec.coefficients(path)
    constants = np.where(abs(constants) > CG_ZERO * max(abs(path.scale), 1e-30), constants, 0.0)
    rows = {}
    for i in range(constants.shape[0]):
        for k in range(constants.shape[2]):
            # Rounding, at a relative error of 5e-16, makes equal constants of two paths identical.
            row = tuple(float(f"{constant:.14e}") for constant in constants[i, :, k])
            first = next((constant for constant in row if constant), 0.0)
            if first:
                sign = 1 if first > 0 else -1
                rows[i, k] = (tuple(sign * constant + 0.0 for constant in row), sign)
    return rows


@dataclass(frozen=True)
class Term:
    """One path with its signed entries, addresses and multiplicities."""

    spec: TensorProductSpec
    table: ScalarTable
    path: Path

    @functools.cached_property
    def signed(self) -> dict[tuple[int, int], tuple[Any, int]]:
        """Constants and sign of each coupled pair of components."""
        return signed_rows(self.spec, self.path)

    @functools.cached_property
    def pairs(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Entry (-1 if there is none) and sign of each coupled pair of components."""
        entries = self.table.entries
        return {
            pair: (entries.get((self.path.in2, row), -1), sign)
            for pair, (row, sign) in self.signed.items()
        }

    @functools.cached_property
    def constants(self) -> dict[int, Any]:
        """Constants of each entry."""
        return {entry: self.signed[p][0] for p, (entry, _) in self.pairs.items()}

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
    def entries(self) -> list[int]:
        return sorted(self.constants)

    @property
    def is_scalar(self) -> bool:
        """Whether one scalar multiplies all components: attributes of degree 0."""
        return len(self.constants) == 1 and all(
            i == k and sign > 0 for (i, k), (_, sign) in self.pairs.items()
        )

    def x(self, i: int) -> int:
        segment = self.spec.in1[self.path.in1]
        return segment.offset + i * segment.mul

    def y(self, j: int) -> str:
        segment = self.spec.in2[self.path.in2]
        return f"{segment.offset + j * segment.mul}+v"

    def z(self, k: int) -> int:
        segment = self.spec.out[self.path.out]
        return segment.offset + k * segment.mul

    def scalars(self, name: str, row: str) -> str:
        """Return the declaration of a pointer `name` to the path's scalars of channel v."""
        start, step = self.table.offset(self.path.in2), self.table.padded(self.path.in2)
        return f"const acc *{name} = {row} + {start} + v*{step};"

    def over_rows(self, k: int, name: str, factor: str, suffix: str = "") -> str:
        return signed_sum(
            (sign, f"{name}[{entry}]*{factor}{i}{suffix}")
            for (i, kk), (entry, sign) in self.pairs.items()
            if kk == k
        )

    def over_columns(self, i: int, name: str, factor: str, suffix: str = "") -> str:
        return signed_sum(
            (sign, f"{name}[{entry}]*{factor}{k}{suffix}")
            for (ii, k), (entry, sign) in self.pairs.items()
            if ii == i
        )

    def into_attributes(self, j: int, entries: Iterable[int], name: str) -> str:
        """Return the sum over entries of C[entry, j] name_entry, empty if all constants are 0."""
        return " + ".join(
            f"(num){self.constants[entry][j].hex()}*{name}{entry}"
            for entry in entries
            if self.constants[entry][j]
        )


def signed_sum(parts: Iterable[tuple[int, str]]) -> str:
    """Return the C expression of a sum of (sign, term)."""
    text = "".join((" + " if sign > 0 else " - ") + part for sign, part in parts)
    return text[3:] if text.startswith(" + ") else text.lstrip()


def with_sums(term: Term, entries: list[int], copies: int, loops: str) -> str:
    """Wrap loops that add to sm{entry}_{copy} (vectors) and sn{entry} (single channels).

    These are sums over channels: the gradients of the entries, from which those of y are computed.
    """
    begin = [f"acc sn{entry} = {{0}}; (void)sn{entry};" for entry in entries]
    begin += [f"vec sm{entry}_{t} = {{0}};" for entry in entries for t in range(copies)]
    vectors = [
        f"const vec sm{entry} = {' + '.join(f'sm{entry}_{t}' for t in range(copies))};"
        for entry in entries
    ]
    singles = []
    for j in range(term.spec.in2[term.path.in2].components):
        of_vectors = term.into_attributes(j, entries, "sm")
        if of_vectors:
            vectors.append(f"sums[e][{term.y(j)}] += {of_vectors};")
            singles.append(f"gys[e][{term.y(j)}] += {term.into_attributes(j, entries, 'sn')};")
    mul = term.muls[0]
    end = [f"#if {mul} >= LANES", *vectors, "#endif", f"#if {mul} % LANES", *singles, "#endif\n"]
    return "\n".join([*begin, loops, *end])
