"""Line plots, and learning curves as small multiples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.results import Lines, Series, metric_words, number
from scitoolkit.reporting.style import COLOURS, NARROW_WIDTH, new_figure, plain, say_empty, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS_A_ROW = 4
_DASHES = ((4, 2), (1, 1.5), (6, 2, 1, 2), (2, 2), (8, 2), (3, 1, 1, 1, 1, 1))
_GREYS = ("0.35", "0.5", "0.42", "0.58")


def learning_curves(rows: Iterable[Mapping[str, Any]]) -> list[Lines]:
    """Return the line plots of a metrics log: one figure per quantity, for all data parts.

    `train/loss` and `validation/loss` share a figure, `train/lr` has another. The y axis is
    logarithmic if all values are positive and span more than a factor of 20.

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
    # The loss comes first; the other quantities keep the order of the log.
    names = sorted(grouped, key=lambda quantity: quantity != "loss")
    return [
        _curve(metric_words(n), grouped[n], units[n]) for n in names if not _is_constant(grouped[n])
    ]


def _is_constant(parts: Mapping[str, list[tuple[float, float | None]]]) -> bool:
    """Return whether a quantity was logged more than once and never changed."""
    values = [value for points in parts.values() for _, value in points]
    return len(values) > 1 and len(set(values)) == 1 and values[0] is not None


def draw_lines(spec: Lines, *, narrow: bool = False) -> Figure:
    """Draw lines over a common x axis, each labelled at its right end, below if `narrow`.

    None and NaN leave a gap; a single point is drawn as a marker; a figure without values shows a
    note.

    Raises:
        DataError: a series and its x differ in length.
    """
    with style():
        if not narrow:
            figure = new_figure(4.6, 4.4) if spec.equal else new_figure(7.2, 3.7)
            _draw_on(figure.add_subplot(), spec)
            return figure
        names = {series.label for series in spec.series if series.role != "context"}
        columns = max(1, min(2, int(NARROW_WIDTH / _entry(names))))
        height = 4.4 if spec.equal else 2.9
        figure = new_figure(NARROW_WIDTH, height + 0.25 * -(-len(names) // columns))
        _draw_on(figure.add_subplot(), spec, labelled=False)
        if len(names) > 1:
            legend_below(figure, columns)
        return figure


def draw_multiples(
    specs: Sequence[Lines], title: str = "", shared: bool = False, *, narrow: bool = False
) -> Figure:
    """Draw several quantities over one axis as small panels, up to four per row.

    Args:
        specs: the panels.
        title: of the figure.
        shared: whether one legend above the panels replaces those of the panels.
        narrow: for a phone: one panel per row, two of many.
    """
    columns = max(1, min(len(specs), 3 if len(specs) in (5, 6, 9) else MOST_PANELS_A_ROW))
    columns = min(columns, 1 if len(specs) <= MOST_PANELS_A_ROW else 2) if narrow else columns
    rows = max(1, -(-len(specs) // columns))
    with style():
        width = NARROW_WIDTH if narrow else {1: 4.6, 2: 7.6, 3: 10.4}.get(columns, 12.0)
        names = {series.label for spec in specs for series in spec.series}
        legend_columns = max(1, min(2 if narrow else 6, len(names), int(width / _entry(names))))
        legend_rows = -(-len(names) // legend_columns)
        height = 1.03 * width / columns if any(spec.equal for spec in specs) else 2.0
        figure = new_figure(width, height * rows + 0.45 * bool(title) + 0.25 * shared * legend_rows)
        if title:
            figure.suptitle(plain(title), x=0.01, ha="left", weight="bold", size=10.5)
        for place, spec in enumerate(specs):
            axes = figure.add_subplot(rows, columns, place + 1)
            _draw_on(axes, spec, labelled=False)
            _set_ticks(axes)
            is_labelled = not place % columns or spec.y_label != specs[place - 1].y_label
            axes.set_ylabel(axes.get_ylabel() if shared and is_labelled else "")
            if not shared and len(spec.series) > 1 and axes.lines:
                axes.legend(fontsize=7)
        if shared:
            legend_below(figure, legend_columns)
        return figure


def legend_below(figure: Figure, columns: int) -> None:
    """Add one legend of all panels below them."""
    handles = {
        label: handle
        for axes in figure.axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=columns,
        markerscale=2.0,
    )


def _entry(names: Iterable[str]) -> float:
    """Return the width in inches of the widest entry of a legend, with its line."""
    return 0.5 + 0.08 * max(map(len, names), default=0)


def _set_ticks(axes: Axes) -> None:
    """Use few ticks and small labels in a small panel."""
    axes.tick_params(which="both", labelsize=8)
    if axes.get_yscale() == "linear":
        axes.locator_params(axis="y", nbins=5)


def _draw_on(axes: Axes, spec: Lines, labelled: bool = True) -> None:
    """Draw a `Lines` on axes, its series labelled at their right ends."""
    ends: list[tuple[float, float, str, str]] = []
    counts = {"main": 0, "baseline": 0, "reference": 0, "context": 0}
    # Later lines are drawn on top.
    order = {"context": 0, "reference": 1, "baseline": 2, "main": 3}
    for series in sorted(spec.series, key=lambda s: order[s.role]):
        end = _draw_series(axes, series, spec, counts[series.role])
        counts[series.role] += 1
        ends += [end] if end else []
    axes.set_title(plain(spec.title), pad=9)
    axes.set_xlabel(plain(spec.x_label))
    axes.set_ylabel(plain(spec.y_label))
    if not axes.lines and not axes.collections:
        say_empty(axes)
        return
    _set_scales(axes, spec)
    if spec.equal:
        _equalise(axes)
    if labelled and any(s.style == "points" and s.label for s in spec.series):
        axes.legend(markerscale=1.6)
        return
    if labelled and len(spec.series) > 1 and ends:
        _label_ends(axes, [end for end in ends if end[2]])


def _curve(
    quantity: str, parts: Mapping[str, list[tuple[float, float | None]]], unit: str
) -> Lines:
    series = [
        Series(
            label=part,
            x=[step for step, _ in sorted(points, key=_step)],
            y=_values(points),
        )
        for part, points in sorted(parts.items(), key=lambda item: item[0] != "train")
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
            allowed="as many values as x, null for missing ones",
        )
    hidden = ~np.isfinite(y) | ~np.isfinite(x)
    hidden |= (y <= 0) if spec.log_y else False
    hidden |= (x <= 0) if spec.log_x else False
    y = np.where(hidden, np.nan, y)
    if hidden.all():
        return None
    look = _look(series.role, index)
    if series.style == "points":
        size = 6 if y.size > 200 else 16
        axes.scatter(
            x,
            y,
            s=size,
            alpha=0.5,
            linewidths=0,
            color=look["color"],
            zorder=look["zorder"],
            label=plain(series.label) or "_",
        )
        return None
    # Few points are likely measurements and get markers; a single point has no line.
    few = (~hidden).sum() <= 1 or (series.role == "main" and (~hidden).sum() <= 16)
    if (~hidden).sum() > 150:
        look["linewidth"] *= 0.6  # a noisy curve of many steps would fill an area
    label = plain(series.label) if series.role != "context" else "_"
    axes.plot(x, y, marker="o" if few else None, markersize=4, label=label or "_", **look)
    if series.low is not None and series.high is not None:
        low, high = _array(series.low), _array(series.high)
        axes.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)
    last = np.flatnonzero(~hidden)[-1]
    label = "" if series.role == "context" else series.label
    return float(x[last]), float(y[last]), label, look["color"]


def _look(role: str, index: int) -> dict[str, Any]:
    if role == "main":
        return {"color": COLOURS[index % len(COLOURS)], "linewidth": 2.0, "zorder": 4}
    if role == "reference":
        return {"color": "0.1", "linewidth": 0.9, "zorder": 2}
    if role == "context":
        return {"color": "0.8", "linewidth": 0.7, "zorder": 1}
    dashes = (0, _DASHES[index % len(_DASHES)])
    colour = _GREYS[index % len(_GREYS)]
    return {"color": colour, "linewidth": 1.1, "linestyle": dashes, "zorder": 3}


def _set_scales(axes: Axes, spec: Lines) -> None:
    if spec.log_x:
        axes.set_xscale("log")
    if spec.log_y:
        axes.set_yscale("log")
        _set_log_ticks(axes)
    steps = spec.x and all(float(x).is_integer() for x in spec.x)
    if steps and not spec.log_x:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True))


def _equalise(axes: Axes) -> None:
    """Give both axes the same limits in a square panel."""
    low = min(axes.get_xlim()[0], axes.get_ylim()[0])
    high = max(axes.get_xlim()[1], axes.get_ylim()[1])
    axes.set(xlim=(low, high), ylim=(low, high))
    axes.set_box_aspect(1)


def _set_log_ticks(axes: Axes) -> None:
    """Label 1, 2 and 5 of each decade on a short logarithmic axis, powers of ten on a long one."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_ylim()
    if high > 200 * low:
        axes.yaxis.set_major_locator(LogLocator(numticks=6))
        axes.yaxis.set_minor_formatter(NullFormatter())
        return
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _label_ends(axes: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Write each label next to the end of its line, moved apart if they would overlap."""
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
    """Spread sorted heights within 0..1 to distances of at least `gap`, with minimal shifts.

    Colliding neighbours are merged into a block centred on the mean of its members.
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
