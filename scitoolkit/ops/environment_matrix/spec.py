"""Spec of the environment matrix in the notation of the DeepPot-SE papers."""

from __future__ import annotations

from dataclasses import dataclass

from scitoolkit.core.errors import ConfigError


@dataclass(frozen=True)
class EnvironmentSpec:
    """Moments of an atom's smooth environment matrix with a learned radial basis.

    For centre i and its neighbours j, with r the vector from i to j and s(r) = w(r)/r,

        R_j = ((s, s x/r, s y/r, s z/r) - mean) / deviation,
        T_i[m, c] = 1/sum(sel) * sum_j G_m(R_j0) R_jc,

    where w decreases from 1 at `cutoff_smooth` to 0 at `cutoff` with two continuous derivatives,
    and G is the embedding network of the pair of types. As in deepmd-kit sums have sel[t] terms for
    neighbours of type t, where an absent neighbour has r = cutoff. If there are more than sel[t]
    neighbours, all are summed, and the number of absent ones is negative, so that T is continuous
    when `sel` is exceeded.

    Attributes:
        cutoff: Å.
        cutoff_smooth: Å.
        sel: number of neighbours of each type.
        widths: widths of the embedding's layers; a layer as wide as the previous one, or twice as
            wide, adds its input.
        type_one_side: whether the network depends only on the neighbour's type.
        radial: use only the column s (se_e2_r): T_i has one column, the sum of G_m(R_j0)/5.

    Source: Zhang et al., NeurIPS 2018 (DeepPot-SE), eqs. 5-7; switching function of deepmd-kit.
    """

    cutoff: float
    cutoff_smooth: float
    sel: tuple[int, ...]
    widths: tuple[int, ...]
    type_one_side: bool = True
    radial: bool = False

    def __post_init__(self) -> None:
        """Check the cutoffs, widths and types.

        Raises:
            ConfigError: cutoff_smooth is not below cutoff, or there are no layers or types.
        """
        if not 0 <= self.cutoff_smooth < self.cutoff:
            raise ConfigError(
                f"cutoff_smooth {self.cutoff_smooth} and cutoff {self.cutoff}",
                allowed="0 <= cutoff_smooth < cutoff",
            )
        if not self.widths or not self.sel:
            raise ConfigError(
                f"widths {self.widths} and sel {self.sel}", allowed="at least one layer and type"
            )

    @property
    def num_types(self) -> int:
        """Number of types."""
        return len(self.sel)

    @property
    def num_networks(self) -> int:
        """Number of embedding networks: one per neighbour type, or one per pair of types."""
        return self.num_types if self.type_one_side else self.num_types**2

    @property
    def columns(self) -> int:
        """Columns of the environment matrix."""
        return 1 if self.radial else 4

    def network(self, centre_type: int, neighbour_type: int) -> int:
        """Return the index of the network of a pair of types."""
        return (
            neighbour_type if self.type_one_side else centre_type * self.num_types + neighbour_type
        )
