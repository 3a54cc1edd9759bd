"""Report of a compressed file: metrics of each variable, baseline codecs, and figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scitoolkit.compression.check import Examined, examine, quantity_records
from scitoolkit.compression.compare import codecs_at_size, decoded_at_size, plain_codecs
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.pictures import MOST_VARIABLES, Shown, pictures
from scitoolkit.compression.quality import NAMES
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.results import FIELDS_NAME, Results, Table, Verdict, number
from scitoolkit.io.fields import write_fields
from scitoolkit.io.inspect import bytes_of

if TYPE_CHECKING:
    import xarray as xr

OURS = "scitoolkit"
Row = list[float | int | str | None]


def results_of(
    compressed: Path, original: Path, asked: str = "", *, pictured: bool = True
) -> tuple[Results, xr.Dataset]:
    """Return the results of comparing a compressed file with its original, and the mapped fields.

    Args:
        compressed: file written by `compress_file`.
        original: the file that was compressed.
        asked: description of the bounds, for the title.
        pictured: whether to draw the first variables.
    """
    runnable, not_run = plain_codecs()
    rows: list[Row] = []
    figures_of: list[Row] = []
    gains: list[float] = []
    verdicts: list[Verdict | None] = []
    shown: dict[str, Shown] = {}
    records, streams = [], []
    for one in examine(compressed, original, with_quality=True):
        name, stored = one.stored.name, int(one.stored.about["bytes"])
        # The ratio counts the bytes of the variable, not its share of the file: container and
        # copied variables belong to no codec, and rivals are run at the same bytes.
        if name == compressed.name:  # of a file that holds one array without a name
            name = original.stem
        records.append(one.record)
        if one.stored.stream is not None:
            streams.append((name, one.stored.stream))
        peers = _peers(one, stored)
        if peers:
            best = max(peers.values())
            # Two exact codings are equally good; the difference of two infinities is NaN.
            gains.append(0.0 if one.record["psnr"] == best else one.record["psnr"] - best)
            verdicts.append(_verdict(name, one.record["psnr"], peers))
        if pictured and one.original.dtype.kind == "f":
            # The verdict and the first pictures are of the variable with the least gain, not of
            # one chosen to look good.
            is_lead = bool(peers) and gains[-1] == min(gains)
            rival = _rival(one, stored, peers) if is_lead else None
            _add_shown(shown, name, one, is_lead, rival)
        allowed = one.record["allowed"]
        rows.append(
            [
                name,
                one.original.nbytes / stored,
                stored,
                number(one.record["psnr"]),
                one.record["max_error"] / allowed if allowed else None,
                *map(number, peers.values()),
                number(gains[-1]) if peers else None,
            ]
        )
        figures_of.append([name, *(one.record.get(key) for key in NAMES)])
    records += quantity_records(streams, original)
    share = max((r["max_error"] / r["allowed"] for r in records if r["allowed"]), default=0.0)
    ratio = bytes_of(original) / bytes_of(compressed)
    metrics: dict[str, float | int | str | None] = {
        "ratio": ratio,
        "largest_error_over_bound": share,
        "gain_db_min": number(min(gains)) if gains else None,
        "variables": len(rows),
        "broken": sum(not r["holds"] for r in records),
    }
    table = Table(
        title="Variables, and baseline codecs at the same number of bytes",
        columns=[
            "variable",
            "ratio",
            "bytes",
            "PSNR (dB)",
            "max error / bound",
            *(f"{peer.upper()} (dB)" for peer in runnable),
            "gain over the best (dB)",
        ],
        rows=rows,
        note=_note(runnable, not_run),
    )
    figures, fields, places = pictures(shown)
    return Results(
        title=f"Compression of {original.name}{', ' * bool(asked)}{asked}",
        verdict=verdicts[int(np.argmin(gains))] if gains else None,
        summary=[
            f"{len(rows)} variable{'s' * (len(rows) != 1)}; the file is {ratio:.1f} times smaller.",
            f"The largest error is {share:.4g} of the bound, measured at every point.",
        ],
        metrics=metrics,
        units={"gain_db_min": "dB"},
        tables=[table, _quality(figures_of), *([places] if places else [])],
        figures=figures,
    ), fields


def write_verification(compressed: Path, original: Path, folder: Path) -> Path:
    """Write the report of a compressed file into a folder and return the path of its page.

    Args:
        compressed: file written by `compress_file`.
        original: the file that was compressed.
        folder: created if necessary.

    Raises:
        ConfigError: the folder cannot be written.
    """
    from scitoolkit.reporting import write_report

    results, fields = results_of(compressed, original)
    paths = {"compressed": str(compressed), "original": str(original)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(json.dumps(paths, indent=1) + "\n", encoding="utf-8")
        write_fields(fields, folder / FIELDS_NAME)
        results.write(folder)
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror})", where=str(folder)) from None
    return write_report(folder)


def _add_shown(
    shown: dict[str, Shown],
    name: str,
    one: Examined,
    is_lead: bool,
    rival: tuple[str, np.ndarray] | None,
) -> None:
    """Add a variable to those that are drawn, first if it is the verdict's so far."""
    if is_lead:
        others = list(shown.items())[: MOST_VARIABLES - 1]
        shown.clear()
        shown.update({name: Shown.of(one, rival), **dict(others)})
    elif len(shown) < MOST_VARIABLES:
        shown[name] = Shown.of(one)


def _rival(one: Examined, stored: int, peers: Mapping[str, float]) -> tuple[str, np.ndarray] | None:
    """Return the best baseline within the bytes of a variable, and the values it decodes."""
    best = max(peers, key=lambda name: peers[name])
    if not np.isfinite(peers[best]):
        return None
    missing = one.missing | MissingValues.from_header(one.stored.about)
    decoded = decoded_at_size(one.original, stored, best, missing=missing)
    return best.upper(), decoded


def _peers(one: Examined, stored: int) -> dict[str, float]:
    # The rivals take float32 and float64 only, and whole numbers are stored exactly here.
    if one.original.dtype.kind != "f" or one.original.dtype.itemsize < 4 or not one.original.ndim:
        return {}
    missing = one.missing | MissingValues.from_header(one.stored.about)
    return codecs_at_size(one.original, stored, missing=missing)


def _verdict(name: str, ours: float, peers: Mapping[str, float]) -> Verdict | None:
    named = {OURS: ours, **{peer.upper(): value for peer, value in peers.items()}}
    return Verdict.among(
        {peer: number(value) for peer, value in named.items()},
        OURS,
        f"PSNR of {name.rpartition('/')[2]} at equal size",
        unit="dB",
        better="max",
        rate=False,
    )


def _quality(rows: list[Row]) -> Table:
    return Table(
        title="Limitations of the bound: other quality metrics",
        columns=[
            "variable",
            "DSSIM",
            "K-S distance",
            "change of the spectrum",
            "error of gradients",
            "change of extremes",
        ],
        rows=rows,
        note="DSSIM: data SSIM of the worst plane, 1 for equal planes (Baker et al. 2022 require "
        "at least 0.9995). K-S: Kolmogorov-Smirnov distance of the distributions. Spectrum: "
        "largest relative change of power in a shell up to half of the highest wavenumber. "
        "Gradients: rms error over rms. Extremes: change over the range. No value: undefined, for "
        "example with missing points or fewer than two dims.",
    )


def _note(runnable: Iterable[str], not_run: Mapping[str, str]) -> str:
    """Return the note of the table: how codecs were run, and which were not."""
    parts = ["Codecs: best PSNR over a grid of bounds; no value: no bound fits that many bytes."]
    if not list(runnable):
        parts = ["No other codec is installed to compare with."]
    if not_run:
        parts.append("Not run: " + ", ".join(f"{n} ({why})" for n, why in not_run.items()) + ".")
    return " ".join(parts)
