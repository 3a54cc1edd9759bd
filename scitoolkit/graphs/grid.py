"""Process grids of distributed sparse products: 1D, 1.5D, 2D and 3D algorithms.

Rank (i, j, k) of a grid of `rows` x `columns` x `slices` holds the block A[R_i, C_j] of the
adjacency and a part of the nodes' features. With B_ij the nodes that ranks (i, j, .) own, R_i is
the union of B_ij over j and C_j that over i. A product A X communicates features only, never A:
the rows of C_j come from (., j, k), partial sums of R_i go to (i, ., k), and k processes its slice
of the feature columns.

- 1D:   P x 1 x 1, a block of rows each (CAGNET, Tripathy et al. 2020, section IV-A)
- 1.5D: P/c x c x 1, sums split over c processes (same, IV-B), without c copies of the features
- 2D:   sqrt(P) x sqrt(P) x 1, and 3D: P^(1/3) in each direction, with the adjacency stationary,
  which avoids CAGNET's communication term in nnz(A).

With `sparse` only rows that the receiver's block references are sent (Mukhopadhyay et al. 2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scitoolkit.core.errors import ConfigError

ALGORITHMS = ("1d", "1.5d", "2d", "3d")


@dataclass(frozen=True)
class ProcessGrid:
    """Numbers of row blocks, column blocks and feature slices.

    Example:
        >>> grid = ProcessGrid(2, 2, 1)
        >>> grid.size, grid.place(3), grid.rank(1, 0, 0)
        (4, (1, 1, 0), 2)
    """

    rows: int
    columns: int = 1
    slices: int = 1
    sparse: bool = True

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.rows * self.columns * self.slices

    def place(self, rank: int) -> tuple[int, int, int]:
        """Return the coordinates (i, j, k) of a rank."""
        # k varies fastest, so that the ranks of a fibre are consecutive, as `Product` assumes.
        fibre, k = divmod(rank, self.slices)
        return (*divmod(fibre, self.columns), k)

    def rank(self, i: int, j: int, k: int) -> int:
        """Return the rank at (i, j, k)."""
        return (i * self.columns + j) * self.slices + k

    def slice_widths(self, width: int) -> list[int]:
        """Return the widths of the slices of `width` feature columns, as equal as possible."""
        base, more = divmod(width, self.slices)
        return [base + (k < more) for k in range(self.slices)]

    def __str__(self) -> str:
        """Return the name of the algorithm and its grid."""
        name = {(1, 1): "1D"}.get((self.columns, self.slices), "")
        if not name:
            square = self.rows == self.columns
            name = ("3D" if self.slices > 1 else "2D") if square else "1.5D"
            if self.slices > 1 and not square:
                name = "3D"
        kind = "needed rows" if self.sparse else "all rows"
        return f"{name} {self.rows}x{self.columns}x{self.slices}, {kind}"


def make_grid(
    algorithm: str, size: int, replication: int = 2, *, sparse: bool = True
) -> ProcessGrid:
    """Return the grid of an algorithm.

    Args:
        algorithm: one of 1d, 1.5d, 2d, 3d.
        size: number of processes.
        replication: c of 1.5d, the number of processes that share a block row.
        sparse: send only needed rows.

    Raises:
        ConfigError: an unknown algorithm, or an unsupported number of processes.

    Example:
        >>> str(make_grid("1.5d", 8, 2)), str(make_grid("3d", 8, sparse=False))
        ('1.5D 4x2x1, needed rows', '3D 2x2x2, all rows')
    """
    if algorithm == "1d":
        return ProcessGrid(size, 1, 1, sparse)
    if algorithm == "1.5d":
        if replication < 1 or size % replication:
            raise ConfigError(
                f"1.5d with replication {replication} on {size} processes",
                where="graph.replication",
                allowed=f"divisors of {size}: "
                + ", ".join(str(c) for c in range(1, size + 1) if size % c == 0),
            )
        return ProcessGrid(size // replication, replication, 1, sparse)
    if algorithm == "2d":
        side = math.isqrt(size)
        if side * side != size:
            raise ConfigError(
                f"2d on {size} processes",
                where="graph.algorithm",
                allowed="a square number of processes",
                fix="graph.algorithm=1.5d",
            )
        return ProcessGrid(side, side, 1, sparse)
    if algorithm == "3d":
        side = round(size ** (1 / 3))
        if side**3 != size:
            raise ConfigError(
                f"3d on {size} processes",
                where="graph.algorithm",
                allowed="a cubic number of processes",
                fix="graph.algorithm=1.5d",
            )
        return ProcessGrid(side, side, side, sparse)
    raise ConfigError(
        f"algorithm {algorithm!r}", where="graph.algorithm", allowed=", ".join(ALGORITHMS)
    )


def all_grids(size: int) -> list[ProcessGrid]:
    """Return all grids of `size` ranks, each with needed rows and with all rows."""
    out = []
    for rows in _divisors(size):
        for columns in _divisors(size // rows):
            slices = size // rows // columns
            out += [ProcessGrid(rows, columns, slices, sparse) for sparse in (True, False)]
    return out


def _divisors(number: int) -> list[int]:
    return [d for d in range(number, 0, -1) if number % d == 0]
