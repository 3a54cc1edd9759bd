"""Common style of all figures, through matplotlib's object interface without global state.

The surrogate is drawn in colour with thick lines, baselines thin, grey and dashed, which emphasises
the main comparison. Colours are those of Okabe and Ito (safe for colour-blind readers).
"""

from __future__ import annotations

import io
import re
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
_PURE = re.compile(r"\s*\[1\]")
_DEGREES = re.compile(r"\bdeg_?C\b|(?<=\[)(?:degrees?_)?[Cc]elsius(?=\])")
NARROW_WIDTH = 4.6
"""Width in inches of a figure for a phone, at which text of 9 points is readable."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def to_png(figure: Figure) -> bytes:
    """Return a figure as PNG bytes, reproducibly."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), style():
        # Characters that the font lacks are drawn as boxes, without a warning.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def style() -> Any:
    """Return a context in which matplotlib uses the style of the reports."""
    import matplotlib

    return matplotlib.rc_context(STYLE)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of the given size in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain(text: str) -> str:
    """Escape `$`, which would start a formula, and write units as they are printed."""
    return display_text(text).replace("$", r"\$")


def display_text(text: str) -> str:
    """Write units in a text as they are printed: `°C` for `degC`, nothing for `[1]`.

    Example:
        >>> display_text("RMSE [degC]"), display_text("RMSE [Celsius]"), display_text("RMSE [1]")
        ('RMSE [°C]', 'RMSE [°C]', 'RMSE')
    """
    return _DEGREES.sub("°C", _PURE.sub("", text))


def say_empty(axes: Axes) -> None:
    """Write "no values" into an empty figure."""
    axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", color="0.5")
    axes.set_xticks([])
    axes.set_yticks([])
