"""Figures from their descriptions, in one style; matplotlib's object interface, no global state.

The surrogate is drawn strong and in colour, baselines thin, grey and dashed, so that the eye
finds the comparison that matters. Colours are those of Okabe and Ito (safe for colour-blind
readers); maps use a perceptually uniform scale, errors a diverging one centred on zero.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.results import Lines, Maps, Panel, Series, number

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "0.35",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.92",
    "grid.linewidth": 0.7,
    "xtick.color": "0.25",
    "ytick.color": "0.25",
    "figure.facecolor": "white",
    "legend.frameon": False,
    "image.cmap": "viridis",
}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LAND = "0.85"
_DASHES = ((4, 2), (1, 1.5), (6, 2, 1, 2), (2, 2), (8, 2), (3, 1, 1, 1, 1, 1))
_GREYS = ("0.35", "0.5", "0.42", "0.58")
_MAX_CELLS = 1_000_000


def learning_curves(rows: Iterable[Mapping[str, Any]]) -> list[Lines]:
    """Describe the curves of a metrics log: one figure for all parts of one quantity.

    `train/loss` and `validation/loss` share a figure, `train/lr` has its own. The y axis is
    logarithmic when all values are positive and span more than a factor of 20.

    Args:
        rows: lines of metrics.jsonl: `name`, `value` (None where not finite), `unit`, `step`.

    Example:
        >>> rows = [{"name": "train/loss", "value": 1 / s, "unit": "", "step": s}
        ...         for s in (1, 10, 100)]
        >>> [(figure.title, figure.log_y) for figure in learning_curves(rows)]
        [('loss', True)]
    """
    grouped: dict[str, dict[str, list[tuple[float, float | None]]]] = {}
    units: dict[str, str] = {}
    for row in rows:
        part, _, quantity = str(row["name"]).rpartition("/")
        value = None if row["value"] is None else number(row["value"])
        curve = grouped.setdefault(quantity, {}).setdefault(part or quantity, [])
        curve.append((float(row["step"]), value))
        units[quantity] = str(row.get("unit") or "")
    # The loss is what is looked at first; the rest keeps the order of the log.
    names = sorted(grouped, key=lambda quantity: quantity != "loss")
    return [_curve(name, grouped[name], units[name]) for name in names]


def draw_lines(spec: Lines) -> Figure:
    """Draw lines over a common x axis, each labelled at its right end.

    None and NaN leave a gap; a single point is drawn as a marker; without any value the figure
    says so.

    Raises:
        DataError: a series is not as long as its x.
    """
    with style():
        figure = new_figure(7.2, 3.7)
        axes = figure.add_subplot()
        ends: list[tuple[float, float, str, str]] = []
        counts = {"main": 0, "baseline": 0, "reference": 0}
        # What is drawn last lies on top.
        order = {"reference": 0, "baseline": 1, "main": 2}
        for series in sorted(spec.series, key=lambda s: order[s.role]):
            end = _draw_series(axes, series, spec, counts[series.role])
            counts[series.role] += 1
            ends += [end] if end else []
        axes.set_title(plain(spec.title), pad=9)
        axes.set_xlabel(plain(spec.x_label))
        axes.set_ylabel(plain(spec.y_label))
        if not ends:
            say_empty(axes)
            return figure
        _set_scales(axes, spec)
        if len(spec.series) > 1:
            _label_ends(axes, ends)
        return figure


def scale_norms(spec: Maps, fields: xr.Dataset) -> dict[str, Normalize]:
    """Return the one colour scale of every `scale` group, over the finite values of its panels.

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
            # A few extreme cells must not wash out the rest; the colour bar says that it is cut.
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

    Latitude is drawn north up whatever the order in the file; a 1-D selection becomes a line.
    The scales are those of the panels' own values unless `norms` are given.

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
            # Bars of several groups below the same row would lie on each other.
            aside = len(drawn) == 1 and len(meshes) > 1
            _colour_bar(figure, drawn, spec.unit, "right" if aside else "bottom")
        figure.suptitle(plain(spec.title), x=0.01, ha="left", weight="bold", size=10.5)
        return figure


def map_values(panel: Panel, fields: xr.Dataset) -> np.ma.MaskedArray:
    """Return the values of a map as `draw_maps` draws them.

    Raises:
        DataError: the panel is no map, or names what `fields` does not have.
    """
    field = _select(fields, panel)
    if field.ndim != 2:
        raise DataError(
            f"a panel of {field.ndim} dims", where=f"results.nc, panel {panel.label!r}",
            allowed="2 dims beside the one that is animated",
        )  # fmt: skip
    return np.ma.masked_invalid(_oriented(field).values)


def to_png(figure: Figure) -> bytes:
    """Return a figure as PNG bytes, the same bytes for the same figure."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), style():
        # A name in a script that the font lacks is drawn as boxes; that is no reason to fail.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def style() -> Any:
    """Return a context in which matplotlib draws in our style."""
    import matplotlib

    return matplotlib.rc_context(STYLE)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain(text: str) -> str:
    """Keep `$` in names from starting a formula."""
    return text.replace("$", r"\$")


def say_empty(axes: Axes) -> None:
    """Write that there is nothing to draw."""
    axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", color="0.5")
    axes.set_xticks([])
    axes.set_yticks([])


def _curve(
    quantity: str, parts: Mapping[str, list[tuple[float, float | None]]], unit: str
) -> Lines:
    series = [
        Series(
            label=part,
            x=[step for step, _ in sorted(points, key=_step)],
            y=_values(points),
        )
        for part, points in parts.items()
    ]
    values = [v for one in series for v in one.y if v is not None]
    log_y = bool(values) and min(values) > 0 and max(values) > 20 * min(values)
    label = f"{quantity} ({unit})" if unit else quantity
    return Lines(title=quantity, x=[], x_label="step", y_label=label, series=series, log_y=log_y)


def _step(point: tuple[float, float | None]) -> float:
    return point[0]


def _values(points: list[tuple[float, float | None]]) -> list[float | None]:
    return [value for _, value in sorted(points, key=_step)]


def _array(values: Iterable[float | None]) -> np.ndarray:
    return np.array([np.nan if v is None else v for v in values], dtype=float)


def _draw_series(
    axes: Axes, series: Series, spec: Lines, index: int
) -> tuple[float, float, str, str] | None:
    """Draw one series; return its last point, label and colour, or None if it has no value."""
    x = _array(spec.x if series.x is None else series.x)
    y = _array(series.y)
    if x.shape != y.shape:
        raise DataError(
            f"series {series.label!r} has {y.size} values for {x.size} x",
            where=f"figure {spec.title!r}",
            allowed="as many values as x, null where there is none",
        )
    hidden = ~np.isfinite(y) | ~np.isfinite(x)
    hidden |= (y <= 0) if spec.log_y else False
    hidden |= (x <= 0) if spec.log_x else False
    y = np.where(hidden, np.nan, y)
    if hidden.all():
        return None
    look = _look(series.role, index)
    if series.style == "points":
        axes.scatter(x, y, s=6, alpha=0.5, linewidths=0, color=look["color"], zorder=look["zorder"])
        return None
    # Few points are measurements and are shown as such; one point has no line at all.
    few = (~hidden).sum() <= 1 or (series.role == "main" and (~hidden).sum() <= 16)
    if (~hidden).sum() > 150:
        look["linewidth"] *= 0.6  # a noisy curve of many steps would become a ribbon
    axes.plot(x, y, marker="o" if few else None, markersize=4, **look)
    if series.low is not None and series.high is not None:
        low, high = _array(series.low), _array(series.high)
        axes.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)
    last = np.flatnonzero(~hidden)[-1]
    return float(x[last]), float(y[last]), series.label, look["color"]


def _look(role: str, index: int) -> dict[str, Any]:
    if role == "main":
        return {"color": COLOURS[index % len(COLOURS)], "linewidth": 2.0, "zorder": 4}
    if role == "reference":
        return {"color": "0.1", "linewidth": 0.9, "zorder": 2}
    dashes = (0, _DASHES[index % len(_DASHES)])
    colour = _GREYS[index % len(_GREYS)]
    return {"color": colour, "linewidth": 1.1, "linestyle": dashes, "zorder": 3}


def _set_scales(axes: Axes, spec: Lines) -> None:
    if spec.log_x:
        axes.set_xscale("log")
    if spec.log_y:
        axes.set_yscale("log")
    steps = spec.x and all(float(x).is_integer() for x in spec.x)
    if steps and not spec.log_x:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True))


def _label_ends(axes: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Write each label beside the end of its line, moved apart where they would overlap."""
    axes.margins(x=0.02)
    axes.autoscale_view()
    to_axes = axes.transData + axes.transAxes.inverted()
    points = sorted((float(to_axes.transform((x, y))[1]), x, y, t, c) for x, y, t, c in ends)
    heights = _spread([point[0] for point in points], gap=min(0.065, 1.0 / len(points)))
    for height, (_, x, y, label, colour) in zip(heights, points, strict=True):
        axes.annotate(
            plain(label),
            xy=(x, y),
            xytext=(1.035, height),
            textcoords="axes fraction",
            color=colour,
            va="center",
            fontsize=8.5,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.5,
                "alpha": 0.5,
                "relpos": (0, 0.5),
            },
            annotation_clip=False,
        )


def _spread(heights: list[float], gap: float) -> list[float]:
    """Move sorted heights apart to at least `gap`, as little as that allows, within 0..1.

    Neighbours that collide are merged into a block that is centred on its members' mean.
    """
    blocks: list[list[float]] = []
    for height in heights:
        blocks.append([height])
        while len(blocks) > 1 and _bottom(blocks[-1], gap) < _top(blocks[-2], gap) + gap:
            last = blocks.pop()
            blocks[-1] += last
    return [
        _bottom(block, gap) + gap * position for block in blocks for position in range(len(block))
    ]


def _bottom(block: list[float], gap: float) -> float:
    span = gap * (len(block) - 1)
    return min(max(sum(block) / len(block) - span / 2, 0.0), max(1.0 - span, 0.0))


def _top(block: list[float], gap: float) -> float:
    return _bottom(block, gap) + gap * (len(block) - 1)


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


def _oriented(field: xr.DataArray) -> xr.DataArray:
    """Put latitude first and both dims in ascending order of their coordinates."""
    rows, columns = field.dims
    if _kind(field, rows) == "lon" or _kind(field, columns) == "lat":
        field = field.transpose(columns, rows)
    for dim in field.dims:
        if _axis(field, dim) is not None:
            field = field.sortby(dim)
    while field.size > _MAX_CELLS:
        field = field.isel({dim: slice(None, None, 2) for dim in field.dims})
    return field


def _axis(field: xr.DataArray, dim: Any) -> np.ndarray | None:
    """Return the numbers along a dim, or None where only the index can be used."""
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
    """Return the height in inches that the first map needs at its width."""
    for panel in spec.panels:
        field = _select(fields, panel)
        if field.ndim == 2 and all(_kind(field, dim) for dim in field.dims):
            field = _oriented(field)
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
    if all(_kind(field, dim) for dim in field.dims):
        axes.set_aspect("equal")
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
