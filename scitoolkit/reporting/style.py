"""The style of all figures: matplotlib's object interface, no global state.

The surrogate is drawn strong and in colour, baselines thin, grey and dashed, so that the eye
finds the comparison that matters. Colours are those of Okabe and Ito (safe for colour-blind
readers).
"""

from __future__ import annotations

import io
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
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


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
