"""Choice of the fastest quantised or low-rank form of a surrogate within an error, by measurement.

Each form is exported, evaluated on held-out inputs and timed on this machine alternately with the
others. Forms on the Pareto front of error, time and size are marked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import NumericalError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy.combinations import Combinations
from scitoolkit.deploy.config import ExportConfig
from scitoolkit.deploy.export import export
from scitoolkit.deploy.forms import Form, draw, fastest


def forms(functions: Sequence[TracedFunction], config: ExportConfig) -> list[Form]:
    """Export and measure float32, quantised and low-rank forms of a surrogate.

    Args:
        functions: of a surrogate.
        config: without `bits` and `time_share`; `keep`, `tolerance` and `vectors` apply to every
            form.

    Returns:
        The possible forms, float32 first.
    """
    with Combinations(functions, config) as tried:
        for configuration in tried.known():
            tried(configuration)
        return tried.forms()


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
