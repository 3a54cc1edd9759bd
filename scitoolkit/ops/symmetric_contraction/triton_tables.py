"""The polynomial of a contraction, and its gradient, as tables that GPU kernels read.

A contraction has hundreds to thousands of terms. Kernels with one line a term take Triton minutes
to compile, so the terms are data: an entry is two words of 32 bits,

    word 0    bits 0..19   row of the coefficient
              bits 20..27  component of the incoming gradient (0 if there is none)
              bits 28..30  factor, 1 to 4
    word 1    8 bits for each variable of the monomial

    symbol      meaning
    z_m         sum of c_r x_a x_b x_c over the rows r of component m
    gx_i        sum of factor c_r g_m x_b x_c over the entries i: x_i^k leaves k x_i^(k-1)

The entries of an output component are contiguous, and sorted by the degree of their monomial, so
that a kernel loops over each degree with a fixed number of multiplications.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.symmetric_contraction.spec import ContractionSpec, polynomial

ROW_BITS, COMPONENT_BITS, VARIABLE_BITS = 20, 8, 8
MAX_ROWS, MAX_COMPONENTS = 1 << ROW_BITS, 1 << COMPONENT_BITS


@dataclass(frozen=True)
class MonomialEntry:
    """One product: of a coefficient, a component of the incoming gradient and a monomial."""

    row: int
    component: int
    monomial: tuple[int, ...]
    factor: int = 1

    def words(self) -> tuple[int, int]:
        """Return the two words of the entry."""
        head = self.row | self.component << ROW_BITS
        head |= self.factor << (ROW_BITS + COMPONENT_BITS)
        return head, sum(v << (VARIABLE_BITS * k) for k, v in enumerate(self.monomial))


@dataclass(frozen=True)
class TermTable:
    """Entries of all outputs on a device.

    Attributes:
        words: int32, shape (entries, 2).
        bounds: int32, shape (outputs, degrees + 1): the entries of output o with monomials of
            degree d are number bounds[o, d] to bounds[o, d + 1].
    """

    words: Tensor
    bounds: Tensor


def check_size(spec: ContractionSpec) -> None:
    """Check that the numbers of a contraction fit into the words.

    Raises:
        BackendError: too many components or terms.
    """
    sizes = {
        "terms": (len(polynomial(spec).monomials), MAX_ROWS),
        "components of the input": (spec.dim_in, MAX_COMPONENTS),
        "components of the output": (spec.dim_out, MAX_COMPONENTS),
    }
    for name, (size, most) in sizes.items():
        if size > most:
            raise BackendError(f"the contraction has {size} {name}", allowed=f"at most {most}")


def _of_values(spec: ContractionSpec) -> list[list[MonomialEntry]]:
    rows, outputs = polynomial(spec), [[] for _ in range(spec.dim_out)]  # type: ignore[var-annotated]
    for row, (monomial, m) in enumerate(zip(rows.monomials, rows.components, strict=True)):
        outputs[m].append(MonomialEntry(row, m, monomial))
    return outputs


def _of_gradients(spec: ContractionSpec) -> list[list[MonomialEntry]]:
    rows, inputs = polynomial(spec), [[] for _ in range(spec.dim_in)]  # type: ignore[var-annotated]
    for row, (monomial, m) in enumerate(zip(rows.monomials, rows.components, strict=True)):
        for i in sorted(set(monomial)):
            place = monomial.index(i)
            rest = monomial[:place] + monomial[place + 1 :]
            inputs[i].append(MonomialEntry(row, m, rest, monomial.count(i)))
    return inputs


def _of_rows(spec: ContractionSpec) -> list[list[MonomialEntry]]:
    return [[entry for entries in _of_values(spec) for entry in entries]]


MAKERS = {"values": _of_values, "gradients": _of_gradients, "rows": _of_rows}


@functools.lru_cache(maxsize=256)
def table(spec: ContractionSpec, kind: str, device: torch.device) -> TermTable:
    """Return the table of values, of gradients, or of all rows by degree.

    Args:
        spec: a contraction.
        kind: `values` (outputs are components of the result), `gradients` (components of the
            input), or `rows` (one output with every row once).
        device: of the table.

    Example:
        >>> square = ContractionSpec.build("0e", "0e", 2)  # z = c0 x + c1 x x
        >>> table(square, "gradients", torch.device("cpu")).bounds.tolist()
        [[0, 1, 2, 2]]
    """
    words: list[tuple[int, int]] = []
    bounds = []
    for entries in MAKERS[kind](spec):
        ordered = sorted(entries, key=lambda entry: (len(entry.monomial), entry.monomial))
        before = [sum(len(e.monomial) < d for e in ordered) for d in range(spec.correlation + 2)]
        bounds.append([len(words) + number for number in before])
        words += [entry.words() for entry in ordered]
    return TermTable(
        # From 64 bits: the fourth variable may reach the sign.
        torch.tensor(words, dtype=torch.int64).to(torch.int32).to(device).reshape(-1, 2),
        torch.tensor(bounds, dtype=torch.int32, device=device),
    )
