"""Tabulation of embedding networks by quintic polynomials (model compression) to a tolerance.

Every polynomial matches value, slope and curvature of the network at both ends of its interval, so
the tabulated function is twice continuously differentiable and forces are smooth. Within the table
its error is at most `tolerance`, relative to the largest basis function and measured between the
nodes. Outside, at distances below `shortest`, the network itself is evaluated.

Source: Lu et al., J. Chem. Theory Comput. 2022, doi:10.1021/acs.jctc.2c00102 (tabulation).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scitoolkit.core.errors import NumericalError
from scitoolkit.ops.codegen import REAL, call
from scitoolkit.ops.environment_matrix import cpu
from scitoolkit.ops.environment_matrix.environment import kernels
from scitoolkit.ops.environment_matrix.reference import Layer
from scitoolkit.ops.environment_matrix.spec import EnvironmentSpec

# Symbols of this module:
#   s        normalised inverse distance, the only input of an embedding network
#   h, d, c  a layer's values and their first and second derivative in s (its jet)
#   f, g     values at both ends of a piece; fs, gs slopes and fc, gc halved curvatures, all in
#            units of the piece, so that the six equations have small integer coefficients
FIRST_STEP, LEAST_STEP = 0.16, 1e-3


@dataclass(frozen=True)
class EmbeddingTable:
    """Quintic polynomials of all embedding networks of a spec.

    Attributes:
        spec: the operation.
        values: coefficients (networks, pieces, groups, 6, group) in the layout of the kernels.
        range: (2,), the normalised s at the beginning of the table, and the length of a piece.
        weights: the networks as the kernels read them, for distances outside of the table.
        mean, deviation: (num_types, 4) of the rows.
        error: largest relative deviation from the networks, measured between the nodes.
    """

    spec: EnvironmentSpec
    values: Tensor
    range: Tensor
    weights: Tensor
    mean: Tensor
    deviation: Tensor
    error: float

    @property
    def nbytes(self) -> int:
        """Bytes of the coefficients."""
        return self.values.nbytes

    def _common(self, atoms: Tensor, segments: Tensor, types: Tensor, vectors: Tensor) -> tuple:
        return (
            len(atoms),
            atoms,
            segments,
            types,
            vectors,
            self.mean,
            self.deviation,
            self.weights,
            self.values,
            self.values.shape[1],
            self.range,
        )

    def moments(self, atoms: Tensor, segments: Tensor, types: Tensor, vectors: Tensor) -> Tensor:
        """Return the moments (n, widths[-1], 4) of some atoms without absent neighbours."""
        out = vectors.new_empty(len(atoms), self.spec.widths[-1], 4)
        library = kernels(self.spec, vectors.dtype)
        common = self._common(atoms, segments, types, vectors)
        call(library.table_moments, *common, out, sum(self.spec.sel), torch.get_num_threads())
        return out

    def edge_gradients(
        self,
        atoms: Tensor,
        segments: Tensor,
        types: Tensor,
        vectors: Tensor,
        cotangent: Tensor,
        out: Tensor,
    ) -> None:
        """Write d<cotangent, moments>/d(vectors) to the rows of `out` of these atoms' edges."""
        library = kernels(self.spec, vectors.dtype)
        common = self._common(atoms, segments, types, vectors)
        call(
            library.table_edge_gradients,
            *common,
            cotangent,
            out,
            sum(self.spec.sel),
            torch.get_num_threads(),
        )


def jets(s: Tensor, layers: Sequence[Layer]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the embedding of s (P, 1) with its first and second derivative, each (P, M)."""
    h, d, c = s, torch.ones_like(s), torch.zeros_like(s)
    for weight, bias, step in layers:
        t, z1, z2 = torch.tanh(h @ weight + bias), d @ weight, c @ weight
        # Chain rule twice: tanh' = 1 - tanh^2 and tanh'' = -2 tanh tanh'.
        slope = 1 - t * t
        new = [t, slope * z1, slope * z2 - 2 * t * slope * z1**2]
        if step is not None:
            new = [part * step for part in new]
        # Residual layers of the published networks: equal widths add, doubled ones add the input
        # twice.
        fan_in, fan_out = weight.shape
        if fan_out == fan_in:
            new = [part + old for part, old in zip(new, (h, d, c), strict=True)]
        elif fan_out == 2 * fan_in:
            new = [
                part + torch.cat([old, old], dim=1)
                for part, old in zip(new, (h, d, c), strict=True)
            ]
        h, d, c = new
    return h, d, c


def quintic_pieces(value: Tensor, slope: Tensor, curvature: Tensor, step: float) -> Tensor:
    """Return coefficients (P - 1, 6, M) of quintics that match the jets (P, M) at both ends."""
    f, g = value[:-1], value[1:]
    fs, gs = slope[:-1] * step, slope[1:] * step
    fc, gc = curvature[:-1] * step**2 / 2, curvature[1:] * step**2 / 2
    # What the parabola of the left end leaves to be reached at the right one: three equations for
    # the coefficients of third to fifth order.
    rest, rest_s, rest_c = g - f - fs - fc, gs - fs - 2 * fc, gc - fc
    coefficients = [
        f,
        fs,
        fc,
        10 * rest - 4 * rest_s + rest_c,
        -15 * rest + 7 * rest_s - 2 * rest_c,
        6 * rest - 3 * rest_s + rest_c,
    ]
    return torch.stack([c / step**k for k, c in enumerate(coefficients)], dim=1)


@torch.no_grad()
def tabulate(
    spec: EnvironmentSpec,
    networks: Sequence[Sequence[Layer]],
    weights: Tensor,
    mean: Tensor,
    deviation: Tensor,
    *,
    shortest: float = 0.5,
    tolerance: float = 1e-10,
) -> EmbeddingTable:
    """Return the table of the networks, with the step halved until the tolerance is met.

    Args:
        spec: widths and cutoffs.
        networks: the layers of each network.
        weights: the same parameters as the kernels read them.
        mean: (num_types, 4), mean of the rows.
        deviation: (num_types, 4), standard deviation of the rows.
        shortest: smallest distance of the table, Å.
        tolerance: largest deviation between the nodes, relative to the largest basis function.

    Raises:
        NumericalError: a step of 1e-3 does not meet the tolerance.
    """
    dtype, device = weights.dtype, weights.device
    exact = [
        [tuple(None if p is None else p.double() for p in layer) for layer in layers]
        for layers in networks
    ]
    # Beyond the cutoff s is zero before normalisation; each type has its own normalisation, and one
    # table serves all of them, so that it begins at the lowest and ends at the highest.
    lower = float((-mean[:, 0] / deviation[:, 0]).min())
    upper = float(((1.0 / shortest - mean[:, 0]) / deviation[:, 0]).max())
    step = FIRST_STEP
    while step >= LEAST_STEP:
        pieces = int((upper - lower) / step) + 1
        nodes = lower + step * torch.arange(pieces + 1, dtype=torch.float64, device=device)[:, None]
        # The error of a piece is symmetric about its middle to leading order and largest there.
        middle = nodes[:-1] + 0.5 * step
        tables, errors = [], []
        for layers in exact:
            coefficients = quintic_pieces(*jets(nodes, layers), step)  # type: ignore[arg-type]
            powers = (0.5 * step) ** torch.arange(6, dtype=torch.float64, device=device)
            interpolated = torch.einsum("pkm,k->pm", coefficients, powers)
            wanted = jets(middle, layers)[0]  # type: ignore[arg-type]
            errors.append(float((interpolated - wanted).abs().max() / wanted.abs().max()))
            tables.append(coefficients)
        # In float32 the rounding of the kernels is larger than a finer table could gain.
        if max(errors) <= max(tolerance, 4 * torch.finfo(dtype).eps):
            values = torch.stack([_grouped(t, dtype) for t in tables])
            bounds = torch.tensor([lower, step], dtype=dtype, device=device)
            return EmbeddingTable(
                spec, values, bounds, weights, mean.to(dtype), deviation.to(dtype), max(errors)
            )
        step /= 2
    raise NumericalError(
        f"the embedding cannot be tabulated to {tolerance:g} (reached {max(errors):.1e})",
        fix="tolerance=1e-8",
    )


def _grouped(coefficients: Tensor, dtype: torch.dtype) -> Tensor:
    """Return coefficients (pieces, 6, M) as (pieces, groups, 6, group), padded with zeros."""
    group = 2 * cpu.LANES[REAL[dtype]]
    width = coefficients.shape[2]
    groups = -(-width // group)
    padded = torch.nn.functional.pad(coefficients, (0, groups * group - width))
    return padded.unflatten(2, (groups, group)).transpose(1, 2).to(dtype).contiguous()
