"""Maps of fields with shared colour scales, north or height upwards, missing values in grey.

Fields use a perceptually uniform colour map, errors a diverging one centred on zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.results import Maps, Panel
from scitoolkit.reporting.style import COLOURS, new_figure, plain, say_empty, style

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

LAND = "0.85"
_MAX_CELLS = 1_000_000
_LONGEST = 6.0  # domains with a larger aspect ratio are stretched
_HEIGHT = {"Z": 2, "Y": 1, "": 0, "X": 0}
_NAMES = {"X": ("x",), "Y": ("y",), "Z": ("z", "height", "altitude", "depth", "level", "lev")}


def scale_norms(spec: Maps, fields: xr.Dataset) -> dict[str, Normalize]:
    """Return the colour scale of every `scale` group, over the finite values of its panels.

    Raises:
        DataError: a panel names a variable, dim or index that `fields` does not have.
    """
    from matplotlib.colors import Normalize

    norms: dict[str, Normalize] = {}
    for scale in dict.fromkeys(panel.scale for panel in spec.panels):
        panels = [panel for panel in spec.panels if panel.scale == scale]
        values = np.concatenate([np.ravel(_select(fields, p).values) for p in panels])
        values = values[np.isfinite(values)]
        if any(panel.diverging for panel in panels):
            # Clip a few extreme cells so that the rest remains visible; the colour bar shows it.
            top = float(np.percentile(np.abs(values), 99.5)) if values.size else 1.0
            norms[scale] = Normalize(-(top or 1.0), top or 1.0)
            continue
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
        norms[scale] = Normalize(low, high if high > low else low + 1.0)
    return norms


def draw_maps(
    spec: Maps, fields: xr.Dataset, norms: Mapping[str, Normalize] | None = None
) -> Figure:
    """Draw panels of `results.nc` side by side, with one colour bar for each shared scale.

    North is up regardless of the order of latitude in the file; a 1-D selection becomes a line.
    Without `norms`, the scales span the values of the panels.

    Raises:
        DataError: a panel names a variable, dim or index that `fields` does not have.
    """
    with style():
        norms = norms or scale_norms(spec, fields)
        columns = max(1, min(spec.columns, len(spec.panels)))
        rows = max(1, math.ceil(len(spec.panels) / columns))
        height = _panel_height(spec, fields)
        figure = new_figure(max(4.1 * columns + 0.3, 6.5), (height + 0.45) * rows + 1.05)
        if not spec.panels:
            axes = figure.add_subplot()
            say_empty(axes)
        diverging = {panel.scale for panel in spec.panels if panel.diverging}
        meshes: dict[str, list[tuple[Axes, Any]]] = {}
        for position, panel in enumerate(spec.panels):
            axes = figure.add_subplot(rows, columns, position + 1)
            field, norm = _select(fields, panel), norms[panel.scale]
            mesh = _draw_panel(axes, panel, field, norm, panel.scale in diverging, spec.unit)
            if mesh is not None:
                meshes.setdefault(panel.scale, []).append((axes, mesh))
        for drawn in meshes.values():
            # Horizontal bars of several groups below the same row would overlap.
            aside = len(drawn) == 1 and len(meshes) > 1
            _colour_bar(figure, drawn, spec.unit, "right" if aside else "bottom")
        figure.suptitle(plain(spec.title), x=0.01, ha="left", weight="bold", size=10.5)
        return figure


def map_values(panel: Panel, fields: xr.Dataset) -> np.ma.MaskedArray:
    """Return the values of a map in the orientation in which `draw_maps` draws them.

    Raises:
        DataError: the panel is not 2-D, or names a variable, dim or index that `fields` lacks.
    """
    field = _select(fields, panel)
    if field.ndim != 2:
        raise DataError(
            f"a panel of {field.ndim} dims", where=f"results.nc, panel {panel.label!r}",
            allowed="2 dims in addition to the animated one",
        )  # fmt: skip
    return np.ma.masked_invalid(_oriented(field).values)


def _select(fields: xr.Dataset, panel: Panel) -> xr.DataArray:
    where = f"results.nc, panel {panel.label!r}"
    fix = "scitoolkit evaluate RUN writes results.json and results.nc together"
    if panel.variable not in fields:
        allowed = ", ".join(map(str, fields.data_vars))
        raise DataError(f"no variable {panel.variable!r}", where=where, allowed=allowed, fix=fix)
    field = fields[panel.variable]
    try:
        field = field.isel(panel.select)
    except (ValueError, IndexError) as error:
        sizes = ", ".join(f"{dim}: {size}" for dim, size in field.sizes.items())
        raise DataError(f"{panel.select} not found", where=where, allowed=sizes, fix=fix) from error
    if field.ndim not in (1, 2):
        dims = ", ".join(map(str, field.dims))
        raise DataError(
            f"a panel of {field.ndim} dims ({dims})", where=where, allowed="1 or 2 dims", fix=fix
        )
    return field.astype(float)


def _kind(field: xr.DataArray, dim: Any) -> str:
    """Return "lat", "lon" or "" for a dim, by its name or its coordinate's units."""
    name = str(dim).lower()
    units = str(field[dim].attrs.get("units", "")) if dim in field.coords else ""
    for kind, names in (("lat", ("lat", "latitude")), ("lon", ("lon", "longitude"))):
        direction = {"lat": "degrees_north", "lon": "degrees_east"}[kind]
        if dim in field.coords and (name in names or units == direction):
            return kind
    return ""


def _direction(field: xr.DataArray, dim: Any) -> str:
    """Return "X", "Y" or "Z" for a dim from CF's attribute `axis` or its name, "" if unknown.

    Source: CF conventions 1.11, section 4.
    """
    attributes = field[dim].attrs if dim in field.coords else {}
    if attributes.get("axis") in ("X", "Y", "Z"):
        return str(attributes["axis"])
    if "positive" in attributes:
        return "Z"
    name = str(dim).lower()
    kind = _kind(field, dim)
    if kind:
        return "Y" if kind == "lat" else "X"
    return next((axis for axis, names in _NAMES.items() if name in names), "")


def _oriented(field: xr.DataArray) -> xr.DataArray:
    """Put the upper direction (Z, then Y) on the vertical axis, coordinates ascending."""
    rows, columns = field.dims
    if _HEIGHT[_direction(field, rows)] < _HEIGHT[_direction(field, columns)]:
        field = field.transpose(columns, rows)
    for dim in field.dims:
        if _axis(field, dim) is not None:
            field = field.sortby(dim, ascending=not _grows_downward(field, dim))
    while field.size > _MAX_CELLS:
        field = field.isel({dim: slice(None, None, 2) for dim in field.dims})
    return field


def _grows_downward(field: xr.DataArray, dim: Any) -> bool:
    return dim == field.dims[0] and field[dim].attrs.get("positive") == "down"


def _is_equal_scale(field: xr.DataArray) -> bool:
    """Return whether both axes have the same length unit, so that circles should appear round."""
    if all(_kind(field, dim) for dim in field.dims):
        return True
    if not all(_direction(field, dim) and _axis(field, dim) is not None for dim in field.dims):
        return False
    units = {str(field[dim].attrs.get("units", "")) for dim in field.dims}
    spans = sorted(float(np.ptp(field[dim].values)) or 1.0 for dim in field.dims)
    return len(units) == 1 and spans[1] <= _LONGEST * spans[0]


def _axis(field: xr.DataArray, dim: Any) -> np.ndarray | None:
    """Return the coordinate values along a dim, or None if only the index can be used."""
    if dim not in field.coords or field[dim].dtype.kind not in "iuf":
        return None
    values = field[dim].values.astype(float)
    usable = np.isfinite(values).all() and np.unique(values).size == values.size
    return values if usable else None


def _edges(values: np.ndarray) -> np.ndarray:
    """Return the cell edges around sorted centres."""
    if values.size == 1:
        return np.array([values[0] - 0.5, values[0] + 0.5])
    middle = (values[1:] + values[:-1]) / 2
    first, last = values[0] - (middle[0] - values[0]), values[-1] + (values[-1] - middle[-1])
    return np.concatenate([[first], middle, [last]])


def _panel_height(spec: Maps, fields: xr.Dataset) -> float:
    """Return the height in inches of the first map at its width."""
    for panel in spec.panels:
        field = _select(fields, panel)
        if field.ndim != 2:
            continue
        field = _oriented(field)
        if _is_equal_scale(field):
            spans = [float(np.ptp(field[dim].values)) or 1.0 for dim in field.dims]
            return min(max(3.6 * spans[0] / spans[1], 1.2), 6.0)
    return 2.6


def _draw_panel(
    axes: Axes, panel: Panel, field: xr.DataArray, norm: Normalize, diverging: bool, unit: str
) -> Any | None:
    axes.set_title(plain(panel.label))
    if field.ndim == 1:
        _draw_profile(axes, field, unit)
        return None
    import matplotlib

    field = _oriented(field)
    axes.grid(False)
    centres = [_axis(field, dim) for dim in field.dims]
    y, x = (
        _edges(np.arange(field.sizes[dim]) if c is None else c)
        for dim, c in zip(field.dims, centres, strict=True)
    )
    colours = matplotlib.colormaps["RdBu_r" if diverging else "viridis"]
    cmap = colours.with_extremes(bad=LAND)
    values = np.ma.masked_invalid(field.values)
    mesh = axes.pcolormesh(x, y, values, cmap=cmap, norm=norm, shading="flat", rasterized=True)
    axes.set_facecolor(LAND)
    for dim, axis in zip(field.dims, (axes.yaxis, axes.xaxis), strict=True):
        _label_axis(axis, field, dim)
    if _is_equal_scale(field):
        axes.set_aspect("equal")
    if _grows_downward(field, field.dims[0]):
        axes.set_ylim(max(y), min(y))
    if np.ma.count(values) == 0:
        axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", color="0.4")
    return mesh


def _draw_profile(axes: Axes, field: xr.DataArray, unit: str) -> None:
    dim = field.dims[0]
    x = _axis(field, dim)
    x = np.arange(field.size) if x is None else x
    order = np.argsort(x)
    marker = "o" if np.isfinite(field.values).sum() <= 1 else None
    axes.plot(x[order], field.values[order], color=COLOURS[0], linewidth=1.8, marker=marker)
    _label_axis(axes.xaxis, field, dim)
    axes.set_ylabel(plain(unit))


def _label_axis(axis: Any, field: xr.DataArray, dim: Any) -> None:
    kind = _kind(field, dim)
    if kind:
        from matplotlib.ticker import FuncFormatter, MultipleLocator

        span = float(np.ptp(field[dim].values)) or 1.0
        steps = (1, 2, 5, 10, 15, 30, 60)
        step = next((s for s in steps if span / s <= 6), 60)
        if span > 6:
            axis.set_major_locator(MultipleLocator(step))
        axis.set_major_formatter(FuncFormatter(lambda value, _: _degrees(value, kind)))
        return
    units = str(field[dim].attrs.get("units", "")) if dim in field.coords else ""
    index = "" if _axis(field, dim) is not None else " (index)"
    axis.set_label_text(plain(f"{dim} ({units})" if units and not index else f"{dim}{index}"))


def _degrees(value: float, kind: str) -> str:
    if kind == "lon":
        value = (value + 180) % 360 - 180
        side = "" if value in (0, -180) else "E" if value > 0 else "W"
    else:
        side = "" if value == 0 else "N" if value > 0 else "S"
    return f"{abs(value):g}°{side}"


def _colour_bar(figure: Figure, drawn: list[tuple[Axes, Any]], unit: str, location: str) -> None:
    mesh = drawn[0][1]
    values = np.concatenate([np.ma.compressed(one.get_array()) for _, one in drawn])
    low = values.size > 0 and values.min() < mesh.norm.vmin
    high = values.size > 0 and values.max() > mesh.norm.vmax
    extend = "both" if low and high else "min" if low else "max" if high else "neither"
    bar = figure.colorbar(
        mesh,
        ax=[axes for axes, _ in drawn],
        location=location,
        extend=extend,
        shrink=0.9 if len(drawn) == 1 else 0.6,
        aspect=28 if len(drawn) == 1 else 40,
        pad=0.04,
    )
    if location == "bottom" or len(unit) > 1:  # a lone "1" beside a bar reads as a number
        bar.set_label(plain(unit))
    bar.outline.set_visible(False)
