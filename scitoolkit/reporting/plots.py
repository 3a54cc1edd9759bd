"""Scatter plots, bar charts, parallel coordinates and diagrams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.results import Bars, Diagram, Lines, Multiples, Parallel, Points, Scale
from scitoolkit.reporting import style
from scitoolkit.reporting.lines import draw_lines, draw_multiples, legend_below
from scitoolkit.reporting.style import COLOURS
from scitoolkit.reporting.tables import format_column

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_ROWS = 400
_WIDTH = 7.2


def draw_plot(
    spec: Lines | Multiples | Points | Bars | Parallel | Diagram, *, narrow: bool = False
) -> Figure:
    """Draw a figure that is not a map, for the width of a phone if `narrow`.

    Raises:
        DataError: labels, x and y values differ in length.
    """
    if isinstance(spec, Lines):
        return draw_lines(spec, narrow=narrow)
    if isinstance(spec, Multiples):
        return draw_multiples(spec.panels, spec.title, shared=True, narrow=narrow)
    draw: Any = {Points: _points, Bars: _bars, Parallel: _parallel, Diagram: _diagram}
    with style.style():
        figure = style.new_figure(*_size(spec, narrow))
        axes = figure.add_subplot()
        axes.set_title(style.plain(spec.title), pad=9)
        if not draw[type(spec)](figure, axes, spec):
            style.say_empty(axes)
        return figure


def _size(spec: Points | Bars | Parallel | Diagram, narrow: bool) -> tuple[float, float]:
    """Return width and height of a figure in inches."""
    if isinstance(spec, Bars):
        width, count = (style.NARROW_WIDTH if narrow else _WIDTH), len(spec.labels)
        return (min(width, 6.2), 3.0) if count <= 4 else (width, 1.2 + 0.3 * count)
    # Boxes and axes beside each other need room for their labels.
    columns = {Diagram: "boxes", Parallel: "axes"}.get(type(spec))
    needed = 0.9 * len(getattr(spec, columns)) if columns else 0.0
    width = min(_WIDTH, max(style.NARROW_WIDTH, needed)) if narrow else _WIDTH
    return width, 2.2 if isinstance(spec, Diagram) else 3.9


def _points(figure: Figure, axes: Axes, spec: Points) -> bool:
    drawn, index = False, -1
    for series in sorted(spec.series, key=lambda s: s.role == "main"):
        x = np.array([np.nan if v is None else v for v in series.x or []], dtype=float)
        y = np.array([np.nan if v is None else v for v in series.y], dtype=float)
        if x.shape != y.shape:
            raise DataError(
                f"series {series.label!r} has {y.size} values for {x.size} x",
                where=f"figure {spec.title!r}",
                allowed="one value for each x",
            )
        main, reference = series.role == "main", series.role == "reference"
        index += main
        colour = COLOURS[index % len(COLOURS)] if main else "0.1" if reference else "0.55"
        line = "-" if series.label in spec.joined else "none"
        axes.plot(
            x,
            y,
            linestyle=line,
            linewidth=1.2,
            marker="" if reference else "o",
            markersize=5 if main else 3.5,
            color=colour,
            label=style.plain(series.label),
            zorder=3 + main,
        )
        drawn |= bool(np.isfinite(x * y).any())
    axes.set_xlabel(style.plain(spec.x_label))
    axes.set_ylabel(style.plain(spec.y_label))
    if drawn and spec.log_x:
        axes.set_xscale("log")
    if drawn and spec.log_y:
        axes.set_yscale("log")
    if len(spec.series) > 1 and figure.get_figwidth() > style.NARROW_WIDTH:
        axes.legend()
    elif len(spec.series) > 1:  # in a panel so small it would cover points
        legend_below(figure, 1)
    return drawn


def _bars(figure: Figure, axes: Axes, spec: Bars) -> bool:
    if len(spec.labels) != len(spec.values):
        raise DataError(
            f"{len(spec.values)} values for {len(spec.labels)} labels",
            where=f"figure {spec.title!r}",
            allowed="one value a label",
        )
    places = np.arange(len(spec.labels))[::-1]
    count, main = len(spec.labels), spec.marked
    colours = [COLOURS[0] if main is None or place == main else "0.7" for place in range(count)]
    bars = axes.barh(places, spec.values, color=colours, height=0.62)
    if count <= 8:
        axes.bar_label(bars, format_column(spec.values), padding=3, fontsize=8.5)
        axes.margins(x=0.12)
    axes.set_yticks(places, [style.plain(label) for label in spec.labels])
    axes.set_xlabel(style.plain(spec.x_label))
    axes.grid(axis="y", visible=False)
    return bool(spec.values)


def _parallel(figure: Figure, axes: Axes, spec: Parallel) -> bool:
    if not spec.rows or not spec.axes:
        return False
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    heights = np.stack(
        [_heights(scale, [row[j] for row in spec.rows]) for j, scale in enumerate(spec.axes)],
        axis=1,
    )
    # The range excludes the worst tenth, so that one bad trial does not flatten all colours.
    low, high = np.quantile(spec.colour, [0.0, 0.9])
    norm = Normalize(low, high if high > low else low + 1)
    colours = matplotlib.colormaps["viridis_r"]
    order = np.argsort(spec.colour)[::-1]
    for row in order[-_MOST_ROWS:]:
        main = row == spec.marked
        axes.plot(
            heights[row],
            color=COLOURS[1] if main else colours(norm(spec.colour[row])),
            linewidth=2.4 if main else 0.8,
            alpha=1.0 if main else 0.6,
            zorder=4 if main else 3,
        )
    for j, scale in enumerate(spec.axes):
        axes.axvline(j, color="0.35", linewidth=0.8, zorder=2)
        for height, text in _ticks(scale, [row[j] for row in spec.rows]):
            axes.text(
                j + 0.04,
                height,
                style.plain(_short(text)),
                fontsize=7.5,
                va="center",
                zorder=5,
                linespacing=0.95,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6},
            )
    names = [style.plain(scale.label) for scale in spec.axes]
    axes.set_xticks(range(len(names)), names, fontsize=8.5, rotation=25, ha="right")
    axes.set_xlim(-0.15, len(names) - 0.2)
    axes.set_yticks([])
    axes.set_ylim(-0.06, 1.06)
    axes.grid(False)
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=axes, pad=0.02)
    bar.set_label(style.plain(spec.colour_label))
    return True


def _short(text: str, most: int = 11) -> str:
    """Break a label into lines that fit between two axes; each has up to `most` characters."""
    words = text.replace("_", "_ ").replace("/", "/ ").replace("-", "- ").split()
    lines = [""]
    for word in words:
        word = word if len(word) <= most else word[: most - 1] + "…"
        if lines[-1] and len(lines[-1]) + len(word) > most:
            lines.append("")
        lines[-1] += word
    return "\n".join(lines)


def _scaled(scale: Scale, values: list[float | None]) -> np.ndarray:
    array = np.array([np.nan if v is None else v for v in values], dtype=float)
    return np.log(array) if scale.log else array


def _heights(scale: Scale, values: list[float | None]) -> np.ndarray:
    array = _scaled(scale, values)
    if scale.ticks:
        return array / max(1, len(scale.ticks) - 1)
    if not np.isfinite(array).any():
        return array
    low, high = np.nanmin(array), np.nanmax(array)
    return (array - low) / (high - low) if high > low else 0 * array + 0.5


def _ticks(scale: Scale, values: list[float | None]) -> list[tuple[float, str]]:
    if scale.ticks:
        return [(i / max(1, len(scale.ticks) - 1), text) for i, text in enumerate(scale.ticks)]
    numbers = [v for v in values if v is not None]
    if not numbers:
        return []
    ends = [(0.0, f"{min(numbers):.3g}"), (1.0, f"{max(numbers):.3g}")]
    return ends if min(numbers) < max(numbers) else [(0.5, f"{numbers[0]:.3g}")]


def _diagram(figure: Figure, axes: Axes, spec: Diagram) -> bool:
    for place, text in enumerate(spec.boxes):
        axes.text(
            place,
            0,
            style.plain(text),
            ha="center",
            va="center",
            fontsize=8.5,
            zorder=4,
            bbox={"boxstyle": "round,pad=0.45", "facecolor": "white", "edgecolor": COLOURS[0]},
        )
    straight: set[int] = set()
    for start, end in spec.arrows:
        near = end == start + 1 and start not in straight
        straight |= {start} if near else set()
        bend = 0.0 if near else -0.22 - 0.05 * (end - start)
        axes.annotate(
            "",
            xy=(end, 0),
            xytext=(start, 0),
            zorder=3,
            arrowprops={
                "arrowstyle": "-|>",
                "color": "0.35" if not bend else COLOURS[1],
                "connectionstyle": f"arc3,rad={bend}",
                "shrinkA": 26,
                "shrinkB": 26,
            },
        )
    axes.set_xlim(-0.6, len(spec.boxes) - 0.4)
    axes.set_ylim(-0.5, 0.9)
    axes.set_axis_off()
    return bool(spec.boxes)
