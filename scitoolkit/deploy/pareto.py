"""Choice of the fastest quantised or low-rank form of a surrogate within an error, by measurement.

Each form is exported, evaluated on held-out inputs and timed on this machine alternately with the
others. Forms on the Pareto front of error, time and size are marked.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.core.files import replacing, write_atomic
from scitoolkit.core.log import get_logger
from scitoolkit.core.results import Points, Series
from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy.config import ExportConfig
from scitoolkit.deploy.differences import differences
from scitoolkit.deploy.export import calibration, export, held_out, target
from scitoolkit.deploy.library import CompiledSurrogate
from scitoolkit.deploy.rank.lowered import call_seconds
from scitoolkit.deploy.rank.study import ranks_of, study
from scitoolkit.reporting.plots import draw_plot

log = get_logger(__name__)
BITS = (8, 4, 2)
SHARES = (0.8, 0.6, 0.4)
"""Shares of the layers' time that low ranks are chosen for."""


@dataclass(frozen=True)
class Form:
    """Measured form of a surrogate.

    Attributes:
        name: display name.
        options: options of `ExportConfig` that produce it.
        error: largest change of any output on held-out inputs, relative to its range.
        microseconds: time of a call with one sample.
        bytes: size of the weights.
        worth: whether it is on the Pareto front of error, time and size.
    """

    name: str
    options: Mapping[str, Any]
    error: float
    microseconds: float
    bytes: int
    worth: bool = False


def forms(functions: Sequence[TracedFunction], config: ExportConfig) -> list[Form]:
    """Export and measure float32, quantised and low-rank forms of a surrogate.

    Args:
        functions: of a surrogate.
        config: without `bits` and `time_share`; `keep`, `tolerance` and `vectors` apply to every
            form.

    Returns:
        The possible forms, float32 first.
    """
    own = {k: v for k, v in config.model_dump().items() if k in ("tolerance", "vectors", "keep")}
    with tempfile.TemporaryDirectory(prefix="scitoolkit-") as folder:
        root = Path(folder)
        plain = config.model_copy(update={"fastest": False, "keep": [], "max_error": None})
        written = export(functions, root / "float32.so", plain)
        table = [Form("float32", {}, 0.0, 0.0, written["weight_bytes"])]
        paths = [root / "float32.so"]
        for bits in BITS:
            path = root / f"bits{bits}.so"
            try:
                written = export(functions, path, ExportConfig(**own, bits=bits))
            except ConfigError as error:  # no layer can be quantised
                log.info("few bits: %s", error)
                break
            change = max(d["relative"] for d in written["differences"])
            table.append(Form(f"{bits} bits", {"bits": bits}, change, 0.0, written["weight_bytes"]))
            paths.append(path)
        for share, lowered in _in_low_rank(functions, config, paths[0], table[0].bytes):
            path = root / f"share{round(100 * share)}.so"
            written = export(lowered, path, plain)
            told = differences(
                functions, CompiledSurrogate(path).run, list(map(held_out, functions))
            )
            change = max(d.relative for d in told)
            table.append(
                Form(
                    f"time share {share:g}",
                    {"time_share": share},
                    change,
                    0.0,
                    written["weight_bytes"],
                )
            )
            paths.append(path)
        seconds = call_seconds(paths, functions, [calibration(f) for f in functions])
    return timed(table, seconds)


def timed(table: Sequence[Form], seconds: Sequence[float]) -> list[Form]:
    """Return forms with their times, marked if they are on the Pareto front."""
    made = [replace(f, microseconds=1e6 * s) for f, s in zip(table, seconds, strict=True)]
    return [replace(f, worth=_is_worth(f, made)) for f in made]


def _in_low_rank(
    functions: Sequence[TracedFunction], config: ExportConfig, dense: Path, weights: int
) -> list[tuple[float, Sequence[TracedFunction]]]:
    """Return the functions at each share of the layers' time that low ranks attain."""
    about = CompiledSurrogate(dense).about["functions"]
    scratch = max(f["workspace_bytes"] for f in about)
    typical = [calibration(f) for f in functions]
    try:
        options = study(functions, typical, config.keep, target(config), weights + scratch)
    except ConfigError as error:  # no layer can be factorised
        log.info("low rank: %s", error)
        return []
    shares = [share for share in SHARES if share >= options.least_share()]
    return [(share, options.lowered(ranks_of(options.chosen(share)))) for share in shares]


def _is_worth(form: Form, others: Sequence[Form]) -> bool:
    own = (form.error, form.microseconds, form.bytes)
    for other in others:
        figures = (other.error, other.microseconds, other.bytes)
        if figures != own and all(a <= b for a, b in zip(figures, own, strict=True)):
            return False
    return True


def fastest(candidates: Sequence[Form], max_error: float) -> Form:
    """Return the fastest form with an error of at most `max_error`.

    Example:
        >>> slow, fast = Form("float32", {}, 0.0, 9.0, 8), Form("8 bits", {"bits": 8}, 0.1, 4.0, 2)
        >>> fastest([slow, fast], 0.2).name, fastest([slow, fast], 0.01).name
        ('8 bits', 'float32')
    """
    return min((f for f in candidates if f.error <= max_error), key=lambda f: f.microseconds)


def export_fastest(
    functions: Sequence[TracedFunction], path: Path, config: ExportConfig
) -> Mapping[str, Any]:
    """Export the fastest form within `config.max_error` and report all forms.

    Also writes `NAME.forms.json` and the figure `NAME.forms.png`.

    Args:
        functions: of a surrogate.
        path: see `deploy.export.export`.
        config: with `fastest` and `max_error`.

    Returns:
        The result of `export`, with `forms` and the name of the `chosen` one.

    Raises:
        NumericalError: see `export`.
    """
    return export_chosen(functions, path, config, forms(functions, config))


def export_chosen(
    functions: Sequence[TracedFunction], path: Path, config: ExportConfig, table: Sequence[Form]
) -> Mapping[str, Any]:
    """Export the fastest of measured forms within `config.max_error`; see `export_fastest`."""
    assert config.max_error is not None
    path = Path(path)
    chosen = fastest(table, config.max_error)
    reset: dict[str, Any] = {"fastest": False, "search": None, "max_error": None, "keep": []}
    if chosen.error:
        reset = {"fastest": False, "search": None}
    try:
        written = export(functions, path, config.model_copy(update={**reset, **chosen.options}))
    except NumericalError as error:
        # Ranks are measured again and may differ if forms are nearly equal.
        raise NumericalError(
            f"{chosen.name}, exported again: {error.what}",
            where=error.where,
            fix="start again, or set bits or time_share",
        ) from None
    rows = [asdict(f) for f in table]
    write_atomic(path.with_suffix(".forms.json"), json.dumps(rows, indent=1) + "\n")
    draw(table, chosen, path.with_suffix(".forms.png"))
    return {**written, "forms": rows, "chosen": chosen.name}


def draw(table: Sequence[Form], chosen: Form, path: Path) -> None:
    """Draw the error of all forms over their time into a PNG file."""

    def series(label: str, own: Sequence[Form], role: Any = "main") -> Series:
        own = sorted(own, key=lambda f: f.microseconds)
        return Series(
            label=label, x=[f.microseconds for f in own], y=[f.error for f in own], role=role
        )

    front = [f for f in table if f.worth]
    spec = Points(
        title="Forms of the surrogate",
        x_label="a call, µs",
        y_label="largest change / range",
        series=[
            series("others", [f for f in table if not f.worth], "baseline"),
            series("Pareto front of error, time and bytes", front),
            series(f"chosen: {chosen.name}", [chosen]),
        ],
    )
    figure = draw_plot(spec)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
