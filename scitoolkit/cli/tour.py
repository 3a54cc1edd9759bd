"""`scitoolkit tour`: run one workflow of each kind and tabulate the results against baselines."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.content import content_root, list_content
from scitoolkit.core.errors import EXIT_FAILURE, ConfigError

NAME = "tour"
# One workflow of each kind, a few minutes in total. The others take longer or add nothing new.
STOPS = (
    "acac_mace", "chaos", "compress_snapshot", "field_surrogate", "mesh_diffusion",
    "node_classification", "rayleigh_benard", "sst_forecast", "sst_search", "vlasov_landau",
    "water_deepmd",
)  # fmt: skip


@dataclass(frozen=True)
class Stop:
    """Outcome of one workflow of the tour.

    Attributes:
        workflow: name of the workflow.
        seconds: wall-clock time, 0 if it was not started.
        run: its run directory, "" if it failed or was left out.
        reason: why it was left out or failed.
        failed: whether it ended with an error.
    """

    workflow: str
    seconds: float = 0.0
    run: str = ""
    reason: str = ""
    failed: bool = False


def command(
    workflows: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORKFLOW]...", help="Names of workflows; one of each kind by default."
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Run every shipped workflow.")] = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the runs and the index page.")
    ] = Path("runs"),
    as_json: options.Json = False,
) -> int | None:
    """Run one small workflow of every domain and compare each result with the best baseline."""
    if workflows and every:
        raise ConfigError(
            "names of workflows together with --all",
            where="tour",
            fix="leave the names or --all out",
        )
    names = workflows or (list_content("workflows") if every else list(STOPS))
    output.mkdir(parents=True, exist_ok=True)
    stops = []
    for place, name in enumerate(names):
        if not as_json:
            print(f"[{place + 1}/{len(names)}] {name:22s} ", end="", flush=True)
        stops.append(_visit(name, output))
        if not as_json:
            print(_outcome(stops[-1]))
    index = _index(stops, output)
    exported = {} if workflows else _exported(output)
    if as_json:
        rows = [_row(stop) for stop in stops]
        options.print_json({"index": str(index), "stops": rows, "export": exported})
    else:
        print(f"\n{_table(stops)}\n\nopen  {index}")
        if exported:
            print(
                "exported  {surrogate} as C: {milliseconds:.2f} ms per call, {path}".format(
                    **exported
                )
            )
    return EXIT_FAILURE if any(stop.failed for stop in stops) else None


def _exported(output: Path, name: str = "sst_forecast") -> dict[str, Any]:
    """Export a shipped surrogate as C and return the time of a call; {} without a compiler.

    The export itself compares the C code with the surrogate.
    """
    import numpy as np

    from scitoolkit import api
    from scitoolkit.core.errors import BackendError
    from scitoolkit.deploy import CompiledSurrogate

    try:
        found = api.export(name, output / f"{name}.so")
    except BackendError:
        return {}
    call = CompiledSurrogate(found["path"])
    inputs = [np.zeros([1, *entry["shape"][1:]], np.float32) for entry in found["inputs"]]
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        call(*inputs)
        seconds.append(time.perf_counter() - start)
    return {"surrogate": name, "path": found["path"], "milliseconds": 1e3 * min(seconds),
            "largest_difference": found["largest_difference"]}  # fmt: skip


def _visit(name: str, output: Path) -> Stop:
    """Run one workflow in a separate process, with a log file next to the runs."""
    missing = _missing(name)
    if missing:
        return Stop(name, reason=missing)
    log = output / f"tour-{name}.log"
    start = time.monotonic()
    arguments = ["run", name, f"run.root={output.resolve()}", "--json"]
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.run(
            [sys.executable, "-m", "scitoolkit", *arguments],
            stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
    seconds = time.monotonic() - start
    try:
        found: dict[str, Any] = json.loads(process.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        found = {}
    if process.returncode or "run" not in found:
        reason = found.get("error", {}).get("message", f"exit code {process.returncode}")
        return Stop(name, seconds, reason=f"{reason} (log: {log})", failed=True)
    return Stop(name, seconds, run=found["run"])


def _missing(name: str) -> str:
    """Return why a workflow cannot run here (missing data or package), "" if it can."""
    from scitoolkit import api
    from scitoolkit.core.findings import cannot_start

    _, config = api.load(name)
    reason = next((finding.message for finding in cannot_start(config)), "")
    return reason.partition(";")[0].replace(f"{content_root('workflows').parent}/", "")


def _outcome(stop: Stop) -> str:
    if stop.failed:
        return f"failed after {stop.seconds:.0f} s: {stop.reason}"
    if stop.reason:
        return f"left out: {stop.reason}"
    verdict = _results(stop).verdict
    return f"{stop.seconds:4.0f} s  {verdict.sentence if verdict else 'done'}"


def _results(stop: Stop) -> Any:
    from scitoolkit.core.results import Results

    return Results.read(Path(stop.run))


def _row(stop: Stop) -> dict[str, Any]:
    verdict = _results(stop).verdict if stop.run else None
    shown = verdict.model_dump() | {"margin": verdict.margin} if verdict else None
    return {**vars(stop), "verdict": shown}


def _table(stops: list[Stop]) -> str:
    """Return the verdicts as a text table: metric, ours, the best baseline and the margin."""
    from scitoolkit.core.results import Table
    from scitoolkit.reporting import text_table

    rows: list[list[float | int | str | None]] = []
    for stop in stops:
        verdict = _results(stop).verdict if stop.run else None
        if verdict is not None:
            rows.append([
                stop.workflow, verdict.quantity, verdict.shown(verdict.ours),
                verdict.shown(verdict.rival), verdict.rival_name or "–", verdict.margin or "–",
            ])  # fmt: skip
    columns = ["workflow", "quantity", "ours", "best baseline", "which", "margin"]
    return text_table(Table(title="", columns=columns, rows=rows))


def _index(stops: list[Stop], output: Path) -> Path:
    from scitoolkit.reporting import write_index

    done = [Path(stop.run) for stop in stops if stop.run]
    left = {stop.workflow: stop.reason for stop in stops if not stop.run}
    return write_index(output / "index.html", done, left)
