"""Figures of a compression report: a slice, its decoded values and errors, and a histogram."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from scitoolkit.core.results import Figure, Lines, Maps, Panel, Series

if TYPE_CHECKING:
    import xarray as xr

MOST_VARIABLES = 3
MOST_PIXELS = 512
BINS = 41


def pictures(
    values: Mapping[str, tuple[np.ndarray, np.ndarray, float]],
) -> tuple[list[Figure], xr.Dataset]:
    """Return the figures of a report, and the fields that their maps show.

    Args:
        values: {variable: (original, decoded, largest error allowed)}; the first few are drawn.

    Example:
        >>> import numpy as np
        >>> a = np.linspace(0, 1, 64).reshape(8, 8)
        >>> figures, fields = pictures({"u": (a, a + 0.01, 0.02)})
        >>> [figure.kind for figure in figures], sorted(fields)
        (['maps', 'lines'], ['u: decoded', 'u: error', 'u: original'])
    """
    import xarray as xr

    fields: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
    figures: list[Figure] = []
    histograms: list[Series] = []
    for name, (original, decoded, allowed) in list(values.items())[:MOST_VARIABLES]:
        error = _float(decoded) - _float(original)
        name = name.replace("/", " ")  # a path in HDF5, where no name may hold a slash
        histograms.append(_histogram(name, error, allowed))
        if original.ndim < 2:
            continue
        shown = {"original": _float(original), "decoded": _float(decoded), "error": error}
        panels = [
            Panel(variable=f"{name}: {kind}", label=kind, scale=f"{name} {kind == 'error'}",
                  diverging=kind == "error")
            for kind in shown
        ]  # fmt: skip
        for kind, array in shown.items():
            middle = _middle(array)
            dims = tuple(f"{name} {axis}" for axis in ("row", "column"))
            fields[f"{name}: {kind}"] = (dims, middle)
        figures.append(Maps(title=f"{name}: middle slice", panels=panels, columns=3))
    if histograms:
        figures.append(
            Lines(
                title="Errors over the bound", x=[], x_label="error / bound",
                y_label="share of the values", series=histograms, log_y=True,
            )
        )  # fmt: skip
    return figures, xr.Dataset(fields)


def _float(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float64)


def _middle(values: np.ndarray) -> np.ndarray:
    """Return the 2-D slice in the middle of the leading dims, thinned to a picture."""
    plane = values[tuple(n // 2 for n in values.shape[:-2])]
    steps = tuple(max(1, -(-n // MOST_PIXELS)) for n in plane.shape)
    return plane[:: steps[0], :: steps[1]]


def _histogram(name: str, error: np.ndarray, allowed: float) -> Series:
    finite = error[np.isfinite(error)]
    scale = allowed if allowed > 0 else float(np.abs(finite).max(initial=0.0)) or 1.0
    counts, edges = np.histogram(finite / scale, bins=BINS, range=(-1.0, 1.0))
    share = counts / max(1, counts.sum())
    centres = (edges[1:] + edges[:-1]) / 2
    return Series(label=name, x=centres.tolist(), y=[float(v) or None for v in share])
