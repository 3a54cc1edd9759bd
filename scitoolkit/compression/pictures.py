"""Figures of a compression report: slices, histograms of errors, spectra, rate and distortion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scitoolkit.compression.choose import middle_block
from scitoolkit.compression.codecs import codecs
from scitoolkit.compression.compare import plain_codecs, rate_and_psnr
from scitoolkit.compression.mask import special_values
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.quality import shell_power
from scitoolkit.compression.worst import Row, worst_maps, worst_row, worst_table
from scitoolkit.core.results import Figure, Lines, Maps, Panel, Points, Series, Table

if TYPE_CHECKING:
    import xarray as xr

    from scitoolkit.compression.check import Examined

MOST_VARIABLES = 3
MOST_PIXELS = 512
BINS = 41
OUR_CODEC = "interpolation"
# Bounds of the rate-distortion curves, as multiples of the bound of the variable.
SHARES = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125)


@dataclass(frozen=True)
class Shown:
    """Data of one variable for the figures.

    Args:
        original: its values.
        decoded: its values after compression.
        missing: values that mark missing data.
        allowed: largest error allowed, 0 or inf if unknown.
        bound: absolute bound on the values, None for other kinds of bounds.
        bits: stored bits per value.
        psnr: in dB, of all values.
        unit: unit of the values, "" if unknown.
        dims: names of the dims, empty if unknown.
        rival: a baseline codec at the same number of bytes, and its decoded values.
    """

    original: np.ndarray
    decoded: np.ndarray
    missing: MissingValues
    allowed: float
    bound: float | None = None
    bits: float = 0.0
    psnr: float = 0.0
    unit: str = ""
    dims: tuple[str, ...] = ()
    rival: tuple[str, np.ndarray] | None = None

    @classmethod
    def of(cls, one: Examined, rival: tuple[str, np.ndarray] | None = None) -> Shown:
        """Return the data of an examined variable, drawn beside a rival's."""
        about = one.stored.about
        absolute = about["bound"]["mode"] in ("abs", "rel") and about.get("error_bound")
        return cls(
            one.original,
            one.decoded,
            one.missing | MissingValues.from_header(about),
            float(one.record["allowed"] or 0.0),
            float(absolute) if absolute else None,
            8 * int(about["bytes"]) / max(one.original.size, 1),
            float(one.record["psnr"]),
            one.unit,
            one.dims,
            rival,
        )


def pictures(values: Mapping[str, Shown]) -> tuple[list[Figure], xr.Dataset, Table | None]:
    """Return figures of a report, fields shown by their maps, and where errors are largest.

    Args:
        values: variable -> its data; only the first `MOST_VARIABLES` are drawn.

    Example:
        >>> import numpy as np
        >>> a = np.linspace(0, 1, 64).reshape(8, 8)
        >>> figures, fields, places = pictures({"u": Shown(a, a + 0.01, MissingValues(), 0.02)})
        >>> [figure.kind for figure in figures], sorted(fields)
        (['maps', 'lines', 'lines'], ['u: decoded', 'u: error', 'u: original'])
        >>> places.rows[0][-1]
        'dim 1 0 to 7, dim 2 0 to 7'
    """
    import xarray as xr

    fields: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
    figures: list[Figure] = []
    sizes: dict[str, int] = {}
    histograms: list[Series] = []
    after: list[Figure] = []
    places: list[Row] = []
    all_bounded = all(0 < v.allowed < np.inf for v in values.values())
    for path, shown in list(values.items())[:MOST_VARIABLES]:
        gone = shown.missing.where(shown.original)
        both = (_float(shown.original), _float(shown.decoded))
        original, decoded = (np.where(gone, np.nan, values) for values in both)
        error = decoded - original
        name = _short_name(path, list(values))
        histograms.append(_histogram(name, error, shown.allowed))
        if spectrum := _spectrum(name, original, decoded):
            after.append(spectrum)
        if rate := _rate(name, shown):
            after.append(rate)
        if original.ndim < 2:
            continue
        bounded = 0 < shown.allowed < np.inf
        scale = shown.allowed if all_bounded else 0.0
        places.append(worst_row(name, original, error, scale, shown.dims))
        maps = {
            "original": original,
            "decoded": decoded,
            "error": error / shown.allowed if bounded else error,
        }
        if shown.rival:
            beside = np.where(gone, np.nan, _float(shown.rival[1])) - original
            maps[f"error of {shown.rival[0]}"] = beside / shown.allowed if bounded else beside
        for kind, array in maps.items():
            middle = _middle(array)
            dims = _dims(shown.dims, original.ndim, middle.shape, sizes)
            fields[f"{name}: {kind}"] = (dims, middle)
        figures.append(_slice(name, shown.unit, bounded, shown.rival[0] if shown.rival else ""))
        if original.ndim > 2 and np.isfinite(error).any():
            drawn, arrays = worst_maps(name, shown.unit, original, error, shown.allowed)
            after.insert(0, drawn)
            own = fields[f"{name}: error"][0]
            fields |= {f"{name}: {kind}": (own, _middle(a)) for kind, a in arrays.items()}
    if histograms:
        figures.append(
            Lines(
                title="Errors over the bound",
                x=[],
                x_label="error / bound",
                y_label="share of the values",
                series=histograms,
                log_y=True,
            )
        )
    table = worst_table(places, all_bounded) if places else None
    return [*figures, *after], xr.Dataset(fields), table


def _slice(name: str, unit: str, bounded: bool, rival: str) -> Maps:
    """Return maps of a slice: original and decoded with one scale, the errors over the bound."""
    panels = [
        Panel(variable=f"{name}: {kind}", label=kind, scale=name, unit=unit)
        for kind in ("original", "decoded")
    ]
    over = " / bound" if bounded else ""
    errors = {"error": f"error{over}"}
    if rival:
        errors[f"error of {rival}"] = f"{rival} at equal bytes{': error' + over}"
    panels += [
        Panel(
            variable=f"{name}: {kind}",
            label=label,
            scale=f"{name} error",
            diverging=True,
            unit="bound = 1" if bounded else unit,
            limit=1.0 if bounded else None,
        )
        for kind, label in errors.items()
    ]
    return Maps(title=f"{name}: middle slice", panels=panels, columns=len(panels))


def _short_name(path: str, paths: list[str]) -> str:
    """Return the last part of a variable's path, or the whole path if that is ambiguous."""
    last = path.rpartition("/")[2]
    is_unique = sum(other.rpartition("/")[2] == last for other in paths) == 1
    return last if is_unique else path.replace("/", " ")  # HDF5 names cannot contain slashes


def _dims(
    stated: tuple[str, ...], ndim: int, shape: tuple[int, ...], sizes: dict[str, int]
) -> tuple[str, str]:
    """Return names of the two dims of a slice, unique for each size."""
    dims = []
    for axis, size in zip((ndim - 2, ndim - 1), shape, strict=True):
        dim = stated[axis] if stated else f"dim {axis + 1}"
        # A dim of an xarray dataset has one size, and variables of different grids share one
        # dataset.
        names = (f"{dim}{suffix}" for suffix in ("", *(f" ({n})" for n in range(2, 99))))
        name = next(n for n in names if sizes.setdefault(n, size) == size)
        dims.append(name)
    return dims[0], dims[1]


def _float(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float64)


def _middle(values: np.ndarray) -> np.ndarray:
    """Return the middle 2-D slice along the leading dims, subsampled to at most `MOST_PIXELS`."""
    plane = values[tuple(n // 2 for n in values.shape[:-2])]
    steps = tuple(max(1, -(-n // MOST_PIXELS)) for n in plane.shape)
    return plane[:: steps[0], :: steps[1]]


def _histogram(name: str, error: np.ndarray, allowed: float) -> Series:
    finite = error[np.isfinite(error)]
    finite_bound = allowed > 0 and np.isfinite(allowed)
    scale = allowed if finite_bound else float(np.abs(finite).max(initial=0.0)) or 1.0
    counts, edges = np.histogram(finite / scale, bins=BINS, range=(-1.0, 1.0))
    share = counts / max(1, counts.sum())
    centres = (edges[1:] + edges[:-1]) / 2
    return Series(label=name, x=centres.tolist(), y=[float(v) or None for v in share])


def _spectrum(name: str, original: np.ndarray, decoded: np.ndarray) -> Lines | None:
    """Return the power spectra of original, decoded and error; None if they are undefined."""
    if original.ndim < 2 or min(original.shape[-2:]) < 8 or not np.isfinite(original).all():
        return None
    shells = min(original.shape[-2:]) // 2
    power = shell_power(original, decoded, decoded - original)[:, 1 : shells + 1]
    numbers = np.arange(1, shells + 1, dtype=float).tolist()
    series = [
        Series(label=label, x=numbers, y=[float(v) or None for v in values])
        for label, values in zip(("original", "decoded", "error"), power, strict=True)
    ]
    return Lines(
        title=f"{name}: power spectrum",
        x=numbers,
        x_label="wavenumber (shell)",
        y_label="power",
        series=series,
        log_x=True,
        log_y=True,
        note="Summed over planes of the last two dims. Wavenumbers at which the error reaches "
        "the original have no information left in the decoded field.",
    )


def _rate(name: str, shown: Shown) -> Points | None:
    """Return PSNR over bits per value of this codec and the baselines on a block of the field."""
    if shown.bound is None or shown.original.dtype.itemsize < 4 or shown.original.ndim < 1:
        return None
    from scitoolkit.compression.compress import filled

    block = middle_block(np.ascontiguousarray(shown.original))
    block = np.ascontiguousarray(block, block.dtype.newbyteorder("="))
    special = special_values(block, shown.missing, None)
    if special is not None and special.all():
        return None
    field = filled(block, special)
    if float(field.min()) == float(field.max()):
        return None
    tried = {"ours": codecs.get(OUR_CODEC)(), **plain_codecs()[0]}
    series = []
    for label, codec in tried.items():
        points = [rate_and_psnr(codec, field, shown.bound * share) for share in SHARES]
        finite = [(rate, psnr) for rate, psnr in points if np.isfinite(psnr)]
        if finite:
            rates, quality = zip(*finite, strict=True)
            series.append(
                Series(
                    label=label if label == "ours" else label.upper(),
                    x=list(rates),
                    y=list(quality),
                )
            )
    if np.isfinite(shown.psnr) and shown.bits:
        series.append(Series(label="this file", x=[shown.bits], y=[shown.psnr]))
    shape = " x ".join(map(str, field.shape))
    return Points(
        title=f"{name}: rate and distortion",
        x_label="bits per value",
        y_label="PSNR (dB)",
        series=series,
        joined=[s.label for s in series if s.label != "this file"],
        note=f"Codecs: on the middle {shape} points, at {max(SHARES):g} to {min(SHARES):g} times "
        "the bound of the variable. This file: on all points.",
    )
