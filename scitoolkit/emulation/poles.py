"""Padding of each dim of a grid; a latitude is padded beyond its poles."""

from __future__ import annotations

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.models.padding import AnyPadding, PoleDim
from scitoolkit.emulation.variables import Layout
from scitoolkit.io.sphere import is_whole_turn, reaches_poles

_ROUNDING = 1e-2


def paddings_of(config: EmulationConfig, layout: Layout) -> list[AnyPadding]:
    """Return the padding of each dim of the grid: walls of zeros unless configured.

    Raises:
        ConfigError: a pole that is none, or settings that cannot cross it.
    """
    return [
        _pole(config, layout, dim)
        if config.boundary.get(dim) == "pole"
        else config.boundary.get(dim, "zeros")
        for dim in layout.grid
    ]


def _pole(config: EmulationConfig, layout: Layout, dim: str) -> PoleDim:
    """Return the padding of a latitude from pole to pole."""
    where = f"boundary.{dim}"
    if layout.areas is None or layout.areas.dims != (dim,) or not layout.areas.latitudes:
        raise ConfigError(
            f"{dim} is no latitude by CF",
            where=where,
            allowed="a dim whose coordinate has the standard name or unit of a latitude, and "
            "data.area_weights: true",
            fix=f"boundary.{dim}=edge",
        )
    latitudes = np.asarray(layout.areas.latitudes)
    step = np.abs(np.diff(latitudes)).max(initial=0.0)
    gaps = 90 - np.abs(latitudes[[0, -1]])
    if not reaches_poles(latitudes):
        raise ConfigError(
            f"latitudes from {latitudes[0]:g} to {latitudes[-1]:g} do not reach both poles",
            where=where,
            allowed="ends within a cell of -90 and 90 degrees",
            fix=f"boundary.{dim}=edge, or zeros",
        )
    models = {"model": config.model}
    if config.diagnostic is not None:
        models["diagnostic.model"] = config.diagnostic.model
    for key, model in models.items():
        if not model.crosses_poles:
            raise ConfigError(
                f"{key} {model.name} cannot pad a dim beyond a pole",
                where=where,
                allowed="networks of convolutions: unet, convnext_unet, resnet",
                fix=f"model=unet, or boundary.{dim}=edge",
            )
    if config.transport:
        raise ConfigError(
            "displacements change their direction across a pole",
            where="transport",
            fix=f"leave out transport, or boundary.{dim}=edge",
        )
    around = _around(config, layout, where)
    points = tuple(bool(gap <= _ROUNDING * step) for gap in gaps)
    return PoleDim(2 + list(layout.grid).index(around), len(latitudes), (points[0], points[1]))


def _around(config: EmulationConfig, layout: Layout, where: str) -> str:
    """Return the longitude: the only circular dim, all the way around."""
    circular = [d for d in layout.grid if config.boundary.get(d) == "circular"]
    if len(circular) != 1:
        raise ConfigError(
            f"{len(circular)} circular dims",
            where=where,
            allowed="one: the longitude, of which half a turn leads across a pole",
            fix="boundary={LONGITUDE: circular}",
        )
    points = np.asarray(layout.coordinates.get(circular[0], []))
    if len(points) and not is_whole_turn(points):
        raise ConfigError(
            f"{circular[0]} from {points[0]:g} to {points[-1]:g} is not of a whole turn",
            where=f"boundary.{circular[0]}",
            allowed="even points over 360 degrees, or 2 pi, each once",
        )
    return circular[0]
