"""Maps of fields with shared colour scales, north or height upwards, missing values in grey.

Fields use a perceptually uniform colour map, errors a diverging one centred on zero. All panels of
a figure have the same size; colour bars are placed next to them.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.results import Maps, Panel, display_unit
from scitoolkit.reporting.style import (
    COLOURS,
    NARROW_WIDTH,
    new_figure,
    plain,
    say_empty,
    style,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

LAND = "0.85"
_MAX_CELLS = 1_000_000
_LONGEST = 6.0  # domains with a larger aspect ratio are stretched
_HEIGHT = {"Z": 2, "Y": 1, "V": 1, "": 0, "X": 0}
_NAMES = {
    "X": ("x",),
    "Y": ("y",),
    "V": ("v", "vx", "v_x", "velocity"),
    "Z": ("z", "height", "altitude", "depth", "level", "lev"),
}
# Lengths in inches.
_WIDTH, _TALL = 11.6, 4.6  # of a figure with many columns, of all its rows of panels
_WIDEST = 4.4  # panel
_TITLE_SIGNS = 11  # characters of a title in an inch
_LEFT, _BOTTOM, _TOP, _RIGHT = 0.62, 0.48, 0.58, 0.12
_BAR, _BAR_PAD, _BAR_LABELS = 0.11, 0.07, 0.48


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
        diverging = any(panel.diverging for panel in panels)
        limit = next((panel.limit for panel in panels if panel.limit), None)
        if limit is not None:
            norms[scale] = Normalize(-limit if diverging else 0.0, limit)
            continue
        if diverging:
            # Clip a few extreme cells so that the rest remains visible; the colour bar shows it.
            top = float(np.percentile(np.abs(values), 99.5)) if values.size else 1.0
            norms[scale] = Normalize(-(top or 1.0), top or 1.0)
            continue
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
        norms[scale] = Normalize(low, high if high > low else low + 1.0)
    return norms


def draw_maps(
    spec: Maps,
    fields: xr.Dataset,
    norms: Mapping[str, Normalize] | None = None,
    *,
    narrow: bool = False,
) -> Figure:
    """Draw panels of `results.nc` in rows of `spec.columns`, with a colour bar for each scale.

    If `narrow`, for a phone, the panels are below each other, each with its colour bar.

    North is up regardless of the order of latitude in the file; a 1-D selection becomes a line.
    Without `norms`, the scales span the values of the panels.

    Raises:
        DataError: a panel names a variable, dim or index that `fields` does not have.
    """
    with style():
        if not spec.panels:
            figure = new_figure(6.5, 2.6)
            say_empty(figure.add_subplot())
            return figure
        norms = norms or scale_norms(spec, fields)
        layout = _Layout.of(spec, fields, narrow=narrow)
        figure = new_figure(layout.width, layout.height)
        figure.set_layout_engine("none")
        diverging = {panel.scale for panel in spec.panels if panel.diverging}
        meshes: dict[str, list[tuple[int, Any]]] = {}
        for place, panel in enumerate(spec.panels):
            axes = figure.add_axes(layout.panel(place))
            field, norm = _select(fields, panel), norms[panel.scale]
            unit = display_unit(spec.unit if panel.unit is None else panel.unit)
            mesh = _draw_panel(axes, panel, field, norm, panel.scale in diverging, unit)
            layout.hide_inner_labels(axes, place)
            if mesh is not None:
                meshes.setdefault(panel.scale, []).append((place, mesh))
        groups = [run for drawn in meshes.values() for run in (_runs(drawn) if narrow else [drawn])]
        for position, drawn in enumerate(groups):
            first = spec.panels[drawn[0][0]]
            unit = display_unit(spec.unit if first.unit is None else first.unit)
            places = [place for place, _ in drawn]
            box = layout.bar(places, position, len(groups))
            _colour_bar(figure, layout, [mesh for _, mesh in drawn], box, unit)
        title_maps(figure, spec.title)
        return figure


def _runs(drawn: Sequence[tuple[int, Any]]) -> list[list[tuple[int, Any]]]:
    """Divide panels below each other where panels of another scale are between them.

    Each run has its own colour bar: one bar beside all would also be beside the others.
    """
    runs: list[list[tuple[int, Any]]] = []
    for place, mesh in drawn:
        if not runs or runs[-1][-1][0] != place - 1:
            runs.append([])
        runs[-1].append((place, mesh))
    return runs


def title_maps(figure: Figure, text: str) -> None:
    """Write or replace the title of a figure of maps."""
    top = 1 - 0.07 / figure.get_figheight()
    lines = textwrap.wrap(plain(text), max(20, round(_TITLE_SIGNS * figure.get_figwidth())))[:2]
    figure.suptitle("\n".join(lines), x=0.008, y=top, ha="left", va="top", weight="bold", size=10.5)


@dataclass(frozen=True)
class _Layout:
    """Positions of panels of one size and of their colour bars, in inches from the top left.

    Attributes:
        columns, count: number of columns and of panels.
        panel_width, panel_height: size of every panel.
        slots: columns that are followed by a vertical colour bar; empty if the bars are below.
        apart: whether the scales have different columns, so that each bar is below its own.
        shared: whether all panels have the same axes, so that only the outer ones are labelled.
    """

    columns: int
    count: int
    panel_width: float
    panel_height: float
    slots: frozenset[int]
    apart: bool
    shared: bool

    @classmethod
    def of(cls, spec: Maps, fields: xr.Dataset, *, narrow: bool = False) -> _Layout:
        """Return the layout of a figure: bars beside a row, or below where a scale spans rows."""
        count = len(spec.panels)
        columns = 1 if narrow else max(1, min(spec.columns, count))
        rows = math.ceil(count / columns)
        chosen = [_select(fields, panel) for panel in spec.panels]
        flat = [_oriented(field) for field in chosen if field.ndim == 2]
        axes = [[(d, f.sizes[d], d in f.coords) for d in f.dims] for f in flat]
        shared = len(flat) == count and all(one == axes[0] for one in axes)
        places: dict[str, list[int]] = {}
        for place, panel in enumerate(spec.panels):
            if chosen[place].ndim == 2:
                places.setdefault(panel.scale, []).append(place)
        beside = all(len({p // columns for p in slots_used}) == 1 for slots_used in places.values())
        slots = (
            {max(p % columns for p in slots_used) for slots_used in places.values()}
            if beside
            else set()
        )
        if narrow and places:
            slots = {0}
        used = [{p % columns for p in slots_used} for slots_used in places.values()]
        apart = sum(map(len, used)) == len(set().union(*used))
        aspect = next((a for a in map(_aspect, flat) if a), 0.62)
        layout = cls(columns, count, 1.0, 1.0, frozenset(slots), apart, shared)
        across, down = (NARROW_WIDTH, NARROW_WIDTH) if narrow else (_WIDTH, _TALL / rows)
        width = min((across - layout.width + columns) / columns, _WIDEST)
        width = max(min(width, down / aspect), 1.1)
        return cls(columns, count, width, width * aspect, frozenset(slots), apart, shared)

    @property
    def rows(self) -> int:
        return math.ceil(self.count / self.columns)

    @property
    def row_gap(self) -> float:
        return 0.3 if self.shared else 0.72

    @property
    def width(self) -> float:
        return max(
            self._left(self.columns - 1) + self.panel_width + _RIGHT + self._slot(self.columns - 1),
            3.2,
        )

    @property
    def height(self) -> float:
        below = 0.0 if self.slots else 0.55
        rows = self.rows * self.panel_height + (self.rows - 1) * self.row_gap
        return _TOP + rows + _BOTTOM + below

    def _slot(self, column: int) -> float:
        return _BAR_PAD + _BAR + _BAR_LABELS if column in self.slots else 0.0

    def _left(self, column: int) -> float:
        gap = 0.16 if self.shared else _LEFT
        before = sum(self.panel_width + gap + self._slot(c) for c in range(column))
        return _LEFT + before

    def _top(self, place: int) -> float:
        return _TOP + (place // self.columns) * (self.panel_height + self.row_gap)

    def _box(self, left: float, top: float, width: float, height: float) -> Any:
        across, down = self.width, self.height
        return left / across, 1 - (top + height) / down, width / across, height / down

    def panel(self, place: int) -> Any:
        """Return the position of a panel for `add_axes`."""
        left = self._left(place % self.columns)
        return self._box(left, self._top(place), self.panel_width, self.panel_height)

    def bar(self, places: list[int], position: int, number: int) -> Any:
        """Return the position of the colour bar of some panels, the `position`-th of `number`."""
        columns = [place % self.columns for place in places]
        if self.slots:
            left = self._left(max(columns)) + self.panel_width + _BAR_PAD
            top, last = self._top(places[0]), self._top(places[-1])
            return self._box(left, top, _BAR, last - top + self.panel_height)
        left, right = self._left(min(columns)), self._left(max(columns)) + self.panel_width
        if not self.apart:
            start, end = self._left(0), self._left(self.columns - 1) + self.panel_width
            left, right = (start + (end - start) * (position + k) / number for k in (0, 1))
        inset = 0.15 * (right - left)
        top = self._top(self.count - 1) + self.panel_height + _BOTTOM + 0.04
        return self._box(left + inset, top, right - left - 2 * inset, _BAR)

    def hide_inner_labels(self, axes: Axes, place: int) -> None:
        """Remove the labels of axes that a neighbour to the left or below has as well."""
        if not self.shared:
            return
        if place % self.columns:
            axes.set_ylabel("")
            axes.tick_params(labelleft=False)
        if place + self.columns < self.count:
            axes.set_xlabel("")
            axes.tick_params(labelbottom=False)


def map_values(panel: Panel, fields: xr.Dataset) -> np.ma.MaskedArray:
    """Return the values of a map in the orientation in which `draw_maps` draws them.

    Raises:
        DataError: the panel is not 2-D, or names a variable, dim or index that `fields` lacks.
    """
    field = _select(fields, panel)
    if field.ndim != 2:
        raise DataError(
            f"a panel of {field.ndim} dims",
            where=f"results.nc, panel {panel.label!r}",
            allowed="2 dims in addition to the animated one",
        )
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
    if all(_axis(field, dim) is None for dim in field.dims):  # square cells
        return max(field.shape) <= _LONGEST * min(field.shape)
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


def _aspect(field: xr.DataArray) -> float | None:
    """Return height over width of an oriented map with equal scales, None if it has none."""
    if not _is_equal_scale(field):
        return None
    spans = []
    for dim in field.dims:
        values = _axis(field, dim)
        edges = _edges(np.arange(field.sizes[dim]) if values is None else values)
        spans.append(float(np.ptp(edges)))
    return min(max(spans[0] / spans[1], 1 / _LONGEST), _LONGEST)


def _draw_panel(
    axes: Axes, panel: Panel, field: xr.DataArray, norm: Normalize, diverging: bool, unit: str
) -> Any | None:
    axes.set_title(plain(panel.label), fontsize=9, weight="normal", pad=4)
    axes.tick_params(labelsize=8)
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


_MOST_LETTERS = 24
"""Letters of names that fit below a panel."""


def _names(field: xr.DataArray, dim: Any) -> xr.DataArray | None:
    """Return the coordinate of text along a dim, such as the names of series, or None."""
    along = (c for c in field.coords.values() if c.dims == (dim,) and c.dtype.kind in "UO")
    return next(along, None)


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
    units = display_unit(str(field[dim].attrs.get("units", ""))) if dim in field.coords else ""
    names = _names(field, dim)
    if names is not None:
        texts = [plain(str(name)) for name in names.values]
        step = 1 + sum(map(len, texts)) // _MOST_LETTERS
        axis.set_ticks(range(0, len(texts), step), labels=texts[::step])
        axis.set_label_text(plain(str(dim)))
        return
    index = "" if _axis(field, dim) is not None else " (index)"
    if index:
        axis.get_major_locator().set_params(integer=True)
    axis.set_label_text(plain(f"{dim} ({units})" if units and not index else f"{dim}{index}"))


def _degrees(value: float, kind: str) -> str:
    if kind == "lon":
        value = (value + 180) % 360 - 180
        side = "" if value in (0, -180) else "E" if value > 0 else "W"
    else:
        side = "" if value == 0 else "N" if value > 0 else "S"
    return f"{abs(value):g}°{side}"


def _colour_bar(figure: Figure, layout: _Layout, drawn: list[Any], box: Any, unit: str) -> None:
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    mesh = drawn[0]
    values = np.concatenate([np.ma.compressed(one.get_array()) for one in drawn])
    low = values.size > 0 and values.min() < mesh.norm.vmin
    high = values.size > 0 and values.max() > mesh.norm.vmax
    extend = "both" if low and high else "min" if low else "max" if high else "neither"
    axes = figure.add_axes(box)
    formatter = ScalarFormatter()
    formatter.set_powerlimits((-3, 4))
    bar = figure.colorbar(
        mesh,
        cax=axes,
        orientation="vertical" if layout.slots else "horizontal",
        extend=extend,
        format=formatter,
        extendfrac=0.03,
        ticks=MaxNLocator(5 if layout.panel_height > 1.3 else 3),
    )
    bar.ax.tick_params(labelsize=8)
    if layout.slots:
        bar.ax.set_title(plain(unit), loc="left", fontsize=8, weight="normal", pad=5)
    else:
        bar.set_label(plain(unit), fontsize=8)
    bar.outline.set_visible(False)
