"""Invariants that all frames of the data satisfy, as proposals of guards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.emulation.guards.axes import Grid
from scitoolkit.emulation.guards.base import Frames, GuardConfig, guards

ZERO = 1e-4
"""Means below this share of a variable's standard deviation count as zero."""
WALL = 1e-2
"""Largest spread of extrapolated wall values, in units of a variable's standard deviation."""


def proposals(frames: Frames, grid: Grid) -> list[GuardConfig]:
    """Return the guards that all frames, {variable: (sample, *grid)}, satisfy.

    Example:
        >>> x = 2 * np.pi * np.arange(16) / 16
        >>> frames = {"u": np.stack([np.cos(x + shift) for shift in range(4)])}
        >>> grid = Grid({"x": 16}, {"x": x}, ["x"], np.ones(16))
        >>> [guard.name for guard in proposals(frames, grid)]
        ['fixed_mean', 'value_range']
    """
    fields = {n: v for n, v in frames.items() if v.ndim == len(grid.sizes) + 1}
    return [guard for name in guards for guard in guards.get(name).propose(fields, grid)]


def deviation(guard: GuardConfig, frames: Frames, grid: Grid) -> dict[str, float]:
    """Return the change that a guard makes to each variable, relative to a typical step.

    Args:
        guard: the guard to apply.
        frames: {variable: (sample, *grid)}, consecutive samples; a single one is compared with its
            standard deviation, as it shows no step.
        grid: of the frames.

    Returns:
        {variable: root mean square change over the root mean square change between samples};
        infinite where the guard returns NaN.

    Raises:
        ConfigError: a grid that the guard does not support, or an unknown variable.
    """
    import torch

    if missing := [n for n in guard.variables() if n not in frames]:
        raise ConfigError(
            f"{missing[0]!r} is not a field",
            where=f"guards: {guard.name}",
            allowed=", ".join(frames),
        )
    tensors = {n: torch.from_numpy(np.ascontiguousarray(v)).float() for n, v in frames.items()}
    several = min(len(t) for t in tensors.values()) > 1
    parts = ((1, None), (0, -1)) if several else ((0, None), (0, None))
    after, before = ({n: t[a:b] for n, t in tensors.items()} for a, b in parts)
    with torch.no_grad():
        guarded = guard.build(grid)(dict(after), before)
    out = {}
    for name in guarded.keys() & frames.keys():
        change = (guarded[name] - after[name]).square().mean().sqrt()
        # A single frame shows no step: its standard deviation is the scale instead.
        reference = before[name] if several else after[name].mean()
        step = (after[name] - reference).square().mean().sqrt()
        ratio = float(change / step.clamp_min(1e-30)) if change else 0.0
        out[name] = ratio if np.isfinite(ratio) else np.inf
    return out


def means(
    frames: Frames, grid: Grid
) -> list[tuple[dict[str, float | Literal["kept"]], list[str] | None]]:
    """Return the means that vanish in every plane parallel to the walls, and the conserved ones."""
    flat = [d for d in grid.sizes if d in grid.periodic]
    dims = tuple(grid.position(d) for d in flat)
    weights = grid.weights[None]
    zero: dict[str, float | Literal["kept"]] = {}
    constant: dict[str, float | Literal["kept"]] = {}
    for name, values in frames.items():
        spread = float(np.std(values)) or 1.0
        # `values` has the sample dim in front, which `Grid.position` counts.
        if dims and np.abs(values.mean(dims)).max() < ZERO * spread:
            zero[name] = 0.0
            continue
        volume = (values * weights).mean(tuple(range(1, values.ndim)))
        if np.ptp(volume) < ZERO * spread:
            constant[name] = "kept"
    proposed: list[tuple[dict[str, float | Literal["kept"]], list[str] | None]] = []
    if zero:
        proposed.append((zero, flat if len(flat) < len(grid.sizes) else None))
    return [*proposed, (constant, None)] if constant else proposed


def wall_values(frames: Frames, grid: Grid) -> list[tuple[dict[str, tuple[float, float]], str]]:
    """Return the wall values of the interpolating polynomials if they are constant."""
    proposed = []
    for dim in grid.sizes:
        axis = _axis(grid, dim)
        if axis != "chebyshev":
            continue
        place, size = grid.position(dim), grid.sizes[dim]
        # Gauss points do not include the walls: values there are those of the polynomial through
        # the points, whose coefficients are a linear function of the values.
        points = -np.cos(np.pi * (np.arange(size) + 0.5) / size)
        vander = np.polynomial.chebyshev.chebvander
        ends = vander(np.array([-1.0, 1.0]), size - 1) @ np.linalg.inv(vander(points, size - 1))
        values = {}
        for name, field in frames.items():
            walls = np.moveaxis(field, place, -1) @ ends.T
            flat = walls.reshape(-1, 2)
            if flat.std(0).max() < WALL * (float(np.std(field)) or 1.0):
                low, high = (float(np.round(v, 3)) + 0.0 for v in flat.mean(0))
                values[name] = (low, high)
        if values:
            proposed.append((values, dim))
    return proposed


def velocities(
    frames: Frames, grid: Grid, make: Callable[[dict[str, str]], GuardConfig]
) -> list[GuardConfig]:
    """Return projections of velocities with common names that are divergence-free."""
    dims = list(grid.sizes)
    proposed: list[GuardConfig] = []
    for velocity in _candidates(frames, dims):
        guard = make(velocity)
        try:
            changes = deviation(guard, frames, grid)
        except ConfigError:
            continue
        if max(changes.values()) < GuardConfig.tolerance:
            proposed.append(guard)
    return proposed


def _candidates(frames: Frames, dims: list[str]) -> list[dict[str, str]]:
    """Return {dim: component} for the naming schemes that all exist in the frames."""
    if len(dims) < 2:
        return []
    letters = {"x": "u", "y": "v", "z": "w"}
    options = [
        {d: f"velocity_{i}" for i, d in enumerate(dims)},
        {d: f"velocity_{d}" for d in dims},
        {d: f"v{d}" for d in dims},
        {d: f"u{d}" for d in dims},
        {d: letters.get(d[0], d) for d in dims},
    ]
    return [o for o in options if set(o.values()) <= frames.keys() and len(set(o.values())) > 1]


def ranges(frames: Frames) -> dict[str, tuple[float, float]]:
    """Return the value ranges of the frames, widened at both ends by a quarter of their width."""
    out = {}
    for name, values in frames.items():
        low, high = float(values.min()), float(values.max())
        margin = 0.25 * (high - low)
        if margin > 0:
            out[name] = (round(low - margin, 6), round(high + margin, 6))
    return out


def _axis(grid: Grid, dim: str) -> str:
    try:
        return grid.axis(dim).basis
    except ConfigError:
        return ""


def written(guard: GuardConfig) -> str:
    """Return a guard as one line of a YAML configuration.

    Example:
        >>> from scitoolkit.emulation.guards.config import FixedMean
        >>> written(FixedMean(values={"w": 0.0}, over=["x"]))
        '{name: fixed_mean, values: {w: 0.0}, over: [x]}'
    """
    settings = {"name": guard.name, **guard.model_dump(mode="json", exclude_defaults=True)}
    return _flow(settings)


def _flow(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return str(value)
