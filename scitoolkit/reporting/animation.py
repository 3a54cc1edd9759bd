"""Animated maps over a dim, as an animated PNG, which browsers play without a script."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, cast

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.results import Maps
from scitoolkit.reporting.maps import draw_maps, map_values, scale_norms, title_maps
from scitoolkit.reporting.style import style

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL.Image import Image

MOST_FRAMES = 16
MILLISECONDS = 400
DPI = 100
"""Low resolution, because the images are embedded in the report."""


def animated_maps(spec: Maps, fields: xr.Dataset, *, narrow: bool = False) -> bytes:
    """Return an animated PNG of maps along `spec.animate`, with one colour scale for all frames.

    If the dim has more than `MOST_FRAMES` entries, that many are drawn, evenly spaced.

    Raises:
        DataError: `fields` lacks the dim, or a variable, dim or index of a panel.
    """
    if spec.animate not in fields.sizes:
        raise DataError(
            f"no dim {spec.animate!r} to animate",
            where=f"figure {spec.title!r}",
            allowed=", ".join(map(str, fields.sizes)),
        )
    count = fields.sizes[spec.animate]
    chosen = np.unique(np.linspace(0, count - 1, min(count, MOST_FRAMES)).astype(int))
    frames = [_frame(spec, fields, int(index)) for index in chosen]
    every = spec.model_copy(update={"panels": [panel for f in frames for panel in f.panels]})
    norms = scale_norms(every, fields)
    with style():
        figure = draw_maps(frames[0], fields, norms, narrow=narrow)
        figure.set_dpi(DPI)
        figure.canvas.draw()
        images = [_drawn(figure, frame, fields) for frame in frames]
    buffer = io.BytesIO()
    images[0].save(
        buffer,
        format="png",
        save_all=True,
        append_images=images[1:],
        duration=MILLISECONDS,
        loop=0,
    )
    return buffer.getvalue()


def _drawn(figure: Figure, frame: Maps, fields: xr.Dataset) -> Image:
    """Render the figure with the values of a frame."""
    from PIL import Image  # matplotlib depends on it

    for axes, panel in zip(figure.axes, frame.panels, strict=False):  # colour bars come last
        values = map_values(panel, fields)
        axes.collections[0].set_array(values)
    title_maps(figure, frame.title)
    figure.canvas.draw()
    pixels = np.asarray(cast("FigureCanvasAgg", figure.canvas).buffer_rgba())
    return Image.fromarray(np.ascontiguousarray(pixels[..., :3]))


def _frame(spec: Maps, fields: xr.Dataset, index: int) -> Maps:
    dim = spec.animate
    place = f"{float(fields[dim].values[index]):g}" if dim in fields.coords else f"entry {index}"
    panels = [
        panel.model_copy(update={"select": {**panel.select, dim: index}})
        if panel.variable in fields and dim in fields[panel.variable].dims
        else panel
        for panel in spec.panels
    ]
    return spec.model_copy(
        update={"title": f"{spec.title}, {dim.replace('_', ' ')} = {place}", "panels": panels}
    )
