"""`scitoolkit run WORKFLOW key=a,b --multirun`: one run for each combination of values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scitoolkit.cli import _options as options
from scitoolkit.core.errors import EXIT_FAILURE, ConfigError
from scitoolkit.core.sweep import combinations, swept

ARRAY_TASK, ARRAY_FIRST, ARRAY_COUNT = (
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_COUNT",
)
MOST_METRICS = 6


@dataclass(frozen=True)
class SweepRun:
    """Outcome of one run of a sweep.

    Attributes:
        settings: its settings.
        seconds: wall-clock time.
        run: its run directory, "" if it failed.
        reason: why it failed.
    """

    settings: tuple[str, ...]
    seconds: float
    run: str = ""
    reason: str = ""


def array_task(settings: list[str]) -> list[str] | None:
    """Return the settings of this task of a Slurm job array, None outside one.

    Raises:
        ConfigError: the array has another number of tasks than the sweep has runs.
    """
    if ARRAY_TASK not in os.environ:
        return None
    runs = combinations(settings)
    # Arrays may begin at another number than 0, such as --array=1-8.
    number = int(os.environ[ARRAY_TASK]) - int(os.environ.get(ARRAY_FIRST, "0"))
    count = int(os.environ.get(ARRAY_COUNT, str(len(runs))))
    if count != len(runs) or not 0 <= number < len(runs):
        raise ConfigError(
            f"a job array of {count} tasks for a sweep of {len(runs)} runs",
            where=ARRAY_TASK,
            fix=f"sbatch --array=0-{len(runs) - 1}",
        )
    return runs[number]


def sweep(workflow: Path, settings: list[str], jobs: int, as_json: bool) -> int | None:
    """Run every combination in processes, `jobs` at a time; print a table and write a page."""
    from scitoolkit import api

    runs = combinations(settings)
    configs = [api.load(workflow, chosen)[1] for chosen in runs]  # all errors before the first run
    begun = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    folder = Path(configs[0].run.root) / configs[0].workflow
    options.make_folder(folder)
    keys = swept(settings)
    shown = [] if as_json else keys
    done = _in_processes(workflow, runs, jobs, folder / f"multirun-{begun}", shown)
    table = _table(done, keys)
    page = _page(folder / f"multirun-{begun}.html", workflow, done, keys, table)
    if as_json:
        options.print_json({"page": str(page), "runs": [vars(one) for one in done]})
    else:
        from scitoolkit.reporting import text_table

        print(f"\n{text_table(table)}\n\nopen  {page}")
    return EXIT_FAILURE if any(one.reason for one in done) else None


def _in_processes(
    workflow: Path, runs: list[list[str]], jobs: int, logs: Path, shown: list[str]
) -> list[SweepRun]:
    """Run the combinations; a failed one does not stop the others, an interruption stops all.

    A line tells the `shown` settings of each run that ended; none is printed without them.
    """
    environment = dict(os.environ)
    if jobs > 1:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs)))
    processes: set[subprocess.Popen[str]] = set()
    lock, stopped = threading.Lock(), threading.Event()

    def one(number: int) -> SweepRun:
        chosen, start = runs[number], time.monotonic()
        arguments = ["run", str(workflow), *chosen, "--json"]
        log = logs.with_name(f"{logs.name}-{number}.log")
        with log.open("w", encoding="utf-8") as errors:
            with lock:
                # Under the lock a run is either in `processes`, and is terminated with them, or is
                # not started.
                if stopped.is_set():
                    return SweepRun(tuple(chosen), 0.0, reason="interrupted")
                process = subprocess.Popen(
                    [sys.executable, "-m", "scitoolkit", *arguments],
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env=environment,
                )
                processes.add(process)
            answer, _ = process.communicate()
        outcome = _outcome(chosen, time.monotonic() - start, process.returncode, answer, log)
        if shown:
            result = outcome.reason or outcome.run
            done = f"[{number + 1}/{len(runs)}] {_named(chosen, shown)}  {outcome.seconds:.0f} s"
            print(f"{done}  {result}", flush=True)
        return outcome

    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(one, number) for number in range(len(runs))]
        try:
            return [future.result() for future in waiting]
        except BaseException:
            with lock:
                stopped.set()
            for process in processes:
                process.terminate()
            raise


def _outcome(chosen: list[str], seconds: float, code: int, answer: str, log: Path) -> SweepRun:
    try:
        said: dict[str, Any] = json.loads(answer.strip().splitlines()[-1])
    except (IndexError, ValueError):
        said = {}
    if code or "run" not in said:
        reason = said.get("error", {}).get("message", f"exit code {code}")
        return SweepRun(tuple(chosen), seconds, reason=f"{reason} (log: {log})")
    log.unlink()
    return SweepRun(tuple(chosen), seconds, run=said["run"])


def _table(done: list[SweepRun], keys: list[str]) -> Any:
    """Return a table of the swept settings, the first metrics and the time of every run."""
    from scitoolkit.core.results import Results, Table

    results = [Results.read(Path(one.run)) if one.run else None for one in done]
    first = next((result for result in results if result), None)
    names = list(first.metrics)[:MOST_METRICS] if first else []
    units = first.units if first else {}
    rows = []
    for one, result in zip(done, results, strict=True):
        values = dict(setting.partition("=")[::2] for setting in one.settings)
        metrics = [result.metrics.get(name) if result else None for name in names]
        rows.append([*(values[key] for key in keys), *metrics, round(one.seconds, 1)])
    columns = [*keys, *(f"{n} [{units[n]}]" if units.get(n) else n for n in names), "seconds [s]"]
    return Table(title=f"{len(done)} runs", columns=columns, rows=rows)


def _page(target: Path, workflow: Path, done: list[SweepRun], keys: list[str], table: Any) -> Path:
    from scitoolkit.reporting import write_index

    runs = {Path(one.run): _named(one.settings, keys) for one in done if one.run}
    left = {" ".join(one.settings): f"failed: {one.reason}" for one in done if not one.run}
    title, names = f"Sweep of {workflow.name}", list(runs.values())
    return write_index(target, list(runs), left, title=title, tables=[table], names=names)


def _named(settings: Iterable[str], keys: list[str]) -> str:
    """Return the swept settings of a run, which tell it from the others."""
    return " ".join(s for s in settings if s.partition("=")[0] in keys)
