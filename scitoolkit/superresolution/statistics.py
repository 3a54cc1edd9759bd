"""Pointwise errors, spectra and turbulence statistics of gridded flow.

Means are integrals with the grid's own quadrature weights; Fourier is used along periodic dims
only; the viscosity is the equations'. Definitions: Pope, "Turbulent Flows" (2000), ch. 6; the
factor of the Taylor scale is 15 in three and 8 in two isotropic dims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scitoolkit.fields.spectra import line_power
from scitoolkit.superresolution.differentiate import differentiate
from scitoolkit.superresolution.grid import RectilinearGrid

Array = np.ndarray
_TAYLOR = {2: 8.0, 3: 15.0}


def r_squared(truth: Array, predicted: Array) -> float:
    """Return R², 1 - (squared error) / (variance), with equal weights for all points.

    Example:
        >>> r_squared(np.array([0.0, 2.0]), np.array([0.0, 1.0]))
        0.5
    """
    truth = truth.astype(np.float64)
    return float(1 - ((predicted - truth) ** 2).sum() / ((truth - truth.mean()) ** 2).sum())


def range_nmae(truth: Array, predicted: Array) -> float:
    """Return the mean absolute error over the RANGE of the truth (not over its mean)."""
    return float(np.abs(predicted - truth).mean() / np.ptp(truth))


@dataclass(frozen=True)
class Flow:
    """Velocity components, viscosity and time dim of gridded fields.

    Attributes:
        grid: the grid; the first dim is time, or there is none.
        velocity: {dim: index of the velocity component along it}.
        viscosity: kinematic, in the units of the file.
        time: index of the time dim, or None.
    """

    grid: RectilinearGrid
    velocity: Mapping[str, int]
    viscosity: float
    time: int | None


def _weights(grid: RectilinearGrid, skip: int | None) -> Array:
    total = np.ones(())
    for axis, share in enumerate(grid.quadrature()):
        shape = [1] * len(grid.dims)
        shape[axis] = -1
        total = total * (1.0 if axis == skip else share.reshape(shape))
    return total


def _mean(values: Array, flow: Flow) -> Array:
    """Return the volume mean of each frame."""
    axes = tuple(a for a in range(values.ndim) if a != flow.time)
    return np.atleast_1d((values * _weights(flow.grid, flow.time)).sum(axes))


def turbulence(fields: Array, flow: Flow) -> dict[str, Array]:
    """Return time series of turbulence statistics.

    Args:
        fields: (fields, *shape), physical units.
        flow: velocity components, viscosity and grid.

    Returns:
        kinetic_energy E = <u_i u_i>/2; u_rms = sqrt(2E/n) for n components; dissipation
        eps = 2 nu <S_ij S_ij>; taylor_scale = sqrt(C nu u_rms^2/eps), C = 8 or 15; taylor_reynolds;
        kolmogorov_time = sqrt(nu/eps); kolmogorov_length = (nu^3/eps)^(1/4). Without viscosity
        the last five are left out. With a periodic dim also
        integral_scale = pi/(2 u_rms^2) sum_k>0 E(k)/k and turnover_time.
    """
    grid, nu = flow.grid, flow.viscosity
    components = [
        (grid.dims.index(d), fields[i].astype(np.float64)) for d, i in flow.velocity.items()
    ]
    count = len(components)
    energy = sum(_mean(u * u, flow) for _, u in components) / 2
    strain = np.zeros(len(np.atleast_1d(energy)))
    # S_ij = (du_i/dx_j + du_j/dx_i) / 2, over the dims that have a velocity component.
    slopes = {
        (i, j): differentiate(u, grid.nodes[axis], axis, period=grid.periods[axis])
        for i, (_, u) in enumerate(components)
        for j, (axis, _) in enumerate(components)
    }
    for i in range(count):
        for j in range(count):
            strain = strain + _mean((0.5 * (slopes[i, j] + slopes[j, i])) ** 2, flow)
    rms = np.sqrt(2 * energy / count)
    out: dict[str, Any] = {"kinetic_energy": energy, "u_rms": rms}
    if nu:
        dissipation = 2 * nu * strain
        taylor = np.sqrt(_TAYLOR.get(count, 15.0) * nu * rms**2 / dissipation)
        out |= {
            "dissipation": dissipation,
            "taylor_scale": taylor,
            "taylor_reynolds": rms * taylor / nu,
            "kolmogorov_time": np.sqrt(nu / dissipation),
            "kolmogorov_length": (nu**3 / dissipation) ** 0.25,
        }
    periodic = [a for a, p in enumerate(grid.periods) if p is not None and a != flow.time]
    if periodic:
        axis = periodic[-1]
        spectra = [spectrum(u, flow, axis) for _, u in components]
        wave = spectra[0][0]
        power: np.ndarray = sum(s[1] for s in spectra) / 2  # type: ignore[assignment]
        scale = np.pi / (2 * rms**2) * (power[:, 1:] / wave[1:]).sum(1)
        out |= {"integral_scale": scale, "turnover_time": scale / rms}
    return out


def spectrum(values: Array, flow: Flow, axis: int) -> tuple[Array, Array]:
    """Return wave numbers and the power along a periodic dim, (frames, waves).

    Powers sum to the mean square; means over the other dims are weighted.
    """
    grid = flow.grid
    count = values.shape[axis]
    wave = 2 * np.pi * np.fft.rfftfreq(count, grid.periods[axis] / count)
    weights = _weights(grid, flow.time)
    if weights.shape[axis] > 1:  # the weight of a whole line along the periodic dim
        weights = weights.sum(axis, keepdims=True)
    power = line_power(values, axis) * weights
    power = np.moveaxis(power, axis, -1)
    others = tuple(
        a for a in range(power.ndim - 1) if flow.time is None or a != flow.time - (flow.time > axis)
    )
    power = power.sum(others)
    return wave, np.atleast_2d(power)


def relative_error(truth: Array, predicted: Array) -> float:
    """Return the mean absolute difference of two series over the mean of the truth."""
    return float(np.abs(predicted - truth).mean() / np.abs(truth).mean())


def highest_third(waves: int) -> slice:
    """Return the highest third of `waves` waves, excluding the mean."""
    return slice(waves - (waves - 1) // 3, waves)


def summary(
    fields: Sequence[str], truth: Array, predicted: Array
) -> dict[str, tuple[float, float]]:
    """Return {field: (R², NMAE over the range)}."""
    return {
        name: (r_squared(a, b), range_nmae(a, b))
        for name, a, b in zip(fields, truth, predicted, strict=True)
    }
