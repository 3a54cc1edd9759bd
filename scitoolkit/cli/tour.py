"""`scitoolkit tour`: run one workflow of each kind and tabulate the results against baselines."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.content import content_root, list_content
from scitoolkit.core.errors import EXIT_FAILURE, ConfigError

NAME = "tour"
# One workflow of each kind, with its typical run time in seconds on two cores. The other workflows
# take longer or add nothing new.
STOPS = {
    "acac_mace": 20,
    "chaos": 16,
    "compress_snapshot": 22,
    "delay_ring": 20,
    "delay_search": 60,
    "field_surrogate": 25,
    "mesh_diffusion": 50,
    "molecule_energies": 16,
    "node_classification": 12,
    "rayleigh_benard": 17,
    "vlasov_landau": 6,
}
# Workflows whose data are generated first, below the output folder: the generating workflow.
PREPARATIONS = {"mesh_diffusion": "mesh_tracer"}
MOST_COLUMNS = 120


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
        if "left_out" in exported:
            print(f"no export as C: {exported['left_out']}")
        elif exported:
            print(
                "exported  {surrogate} as C: {milliseconds:.2f} ms per call, {path}".format(
                    **exported
                )
            )
    return EXIT_FAILURE if any(stop.failed for stop in stops) else None


def _exported(output: Path, name: str = "sst_forecast") -> dict[str, Any]:
    """Export a shipped surrogate as C and return the time of a call, or {"left_out": reason}.

    The export itself compares the C code with the surrogate.
    """
    import numpy as np

    from scitoolkit import api
    from scitoolkit.core.errors import BackendError
    from scitoolkit.deploy import CompiledSurrogate

    try:
        exported = api.export(name, output / f"{name}.so")
    except BackendError as error:
        return {"left_out": str(error)}
    call = CompiledSurrogate(exported["path"])
    inputs = [np.zeros([1, *entry["shape"][1:]], np.float32) for entry in exported["inputs"]]
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        call(*inputs)
        seconds.append(time.perf_counter() - start)
    return {
        "surrogate": name,
        "path": exported["path"],
        "milliseconds": 1e3 * min(seconds),
        "largest_difference": exported["largest_difference"],
    }


def _visit(name: str, output: Path) -> Stop:
    """Run one workflow in a separate process, with a log file next to the runs."""
    start = time.monotonic()
    log = output / f"tour-{name}.log"
    settings: list[str] = []
    if _missing(name) and name in PREPARATIONS:
        missing = _missing(PREPARATIONS[name], ["output=null"])
        if missing:
            return Stop(name, reason=missing)
        data, reason = _prepared(PREPARATIONS[name], output)
        if reason:
            return Stop(name, time.monotonic() - start, reason=reason, failed=True)
        settings = [f"data.path={data}"]
    missing = _missing(name, settings)
    if missing:
        return Stop(name, reason=missing)
    figures, reason = _run(name, settings, output, log)
    seconds = time.monotonic() - start
    if reason:
        return Stop(name, seconds, reason=reason, failed=True)
    return Stop(name, seconds, run=figures["run"])


def _prepared(generator: str, output: Path) -> tuple[Path | None, str]:
    """Return the first sample of a generating workflow, made if necessary, or why it failed."""
    root = output / "data"
    made = sorted((root / generator).glob("*/campaign/sample_00000.*"))
    if made:
        return made[-1].resolve(), ""
    # `output=null`: samples are written into the run and not into the folder of data sets.
    figures, reason = _run(generator, ["output=null"], root, output / f"tour-{generator}.log")
    if reason:
        return None, reason
    return next(Path(figures["run"]).resolve().glob("campaign/sample_00000.*")), ""


def _run(name: str, settings: list[str], root: Path, log: Path) -> tuple[dict[str, Any], str]:
    """Run a workflow; return its JSON output and, if it failed, the reason."""
    arguments = ["run", name, f"run.root={root.resolve()}", *settings, "--json"]
    with log.open("w", encoding="utf-8") as errors, tempfile.TemporaryFile("w+") as answer:
        process = subprocess.Popen(
            [sys.executable, "-m", "scitoolkit", *arguments], stdout=answer, stderr=errors
        )
        try:
            _wait(process, STOPS.get(name))
        except BaseException:
            process.terminate()
            process.wait()
            raise
        answer.seek(0)
        text = answer.read()
    try:
        answer_json: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    except (IndexError, ValueError):
        answer_json = {}
    if process.returncode or "run" not in answer_json:
        reason = answer_json.get("error", {}).get("message", f"exit code {process.returncode}")
        return {}, f"{reason} (log: {log})"
    return answer_json, ""


def _wait(process: subprocess.Popen[Any], typical: float | None) -> None:
    """Wait for a process; on a terminal, show the elapsed and the remaining time meanwhile."""
    if not sys.stdout.isatty() or not sys.stderr.isatty():
        process.wait()
        return
    start, shown = time.monotonic(), ""
    while process.poll() is None:
        text = _progress(time.monotonic() - start, typical)
        sys.stderr.write(text.ljust(len(shown)) + "\b" * max(len(text), len(shown)))
        sys.stderr.flush()
        shown = text
        time.sleep(0.5)
    sys.stderr.write(" " * len(shown) + "\b" * len(shown))
    sys.stderr.flush()


def _progress(elapsed: float, typical: float | None, width: int = 20) -> str:
    """Return a bar with the elapsed and the expected remaining seconds.

    Example:
        >>> _progress(10, 40)
        '[#####...............] 10 s, about 30 s left'
        >>> _progress(50, 40)
        '[###################.] 50 s, longer than usual'
    """
    if not typical:
        return f"{elapsed:.0f} s"
    filled = min(int(width * elapsed / typical), width - 1)
    left = typical - elapsed
    rest = f"about {left:.0f} s left" if left >= 0.5 else "longer than usual"
    return f"[{'#' * filled}{'.' * (width - filled)}] {elapsed:.0f} s, {rest}"


def _missing(name: str, settings: list[str] | None = None) -> str:
    """Return why a workflow cannot run here (missing data or package), "" if it can."""
    from scitoolkit import api
    from scitoolkit.core.findings import cannot_start

    _, config = api.load(name, settings or [])
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
    """Return the verdicts as a text table of at most `MOST_COLUMNS` columns."""
    rows = [["workflow", "figure of merit", "scitoolkit", "best baseline", "", "difference"]]
    for stop in stops:
        verdict = _results(stop).verdict if stop.run else None
        if verdict is not None:
            ours, baseline = verdict.values
            quantity = re.sub(r" \(.*\)", "", verdict.quantity)
            rows.append(
                [
                    stop.workflow,
                    quantity,
                    ours,
                    baseline,
                    verdict.rival_name,
                    verdict.margin or "no baseline",
                ]
            )
    widths = [max(len(row[j]) for row in rows) for j in range(6)]
    for column, least in ((1, 27), (4, 20)):  # names are shortened, values never
        excess = sum(widths) + 2 * len(widths) - 2 - MOST_COLUMNS
        widths[column] -= min(max(excess, 0), max(widths[column] - least, 0))
    lines = []
    for row in [rows[0], ["-" * width for width in widths], *rows[1:]]:
        cells = [_cut(cell, width) for cell, width in zip(row, widths, strict=True)]
        cells[2] = cells[2].strip().rjust(widths[2])
        if row is not rows[0]:
            cells[3] = cells[3].strip().rjust(widths[3])
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _cut(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else text[: width - 1] + "…"


def _index(stops: list[Stop], output: Path) -> Path:
    from scitoolkit.reporting import write_index

    done = [Path(stop.run) for stop in stops if stop.run]
    left = {
        stop.workflow: f"{'failed' if stop.failed else 'was left out'}: {stop.reason}"
        for stop in stops
        if not stop.run
    }
    return write_index(output / "index.html", done, left)
