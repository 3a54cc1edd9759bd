"""Python API: one function for each command of the command line, under the command's name.

The `domain:` key of a configuration selects the domain from the entry-point group
`scitoolkit.domain`, which built-in domains and third-party plug-ins share.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from logging import Logger
from pathlib import Path
from typing import Any

from scitoolkit.core.config import Document, load_config, read_document
from scitoolkit.core.content import content_root, find_content, shipped_path
from scitoolkit.core.errors import EXIT_OK, ConfigError, DataError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.findings import findings, refuse_too_large
from scitoolkit.core.job import Divisible, Finding, Job, Stepper
from scitoolkit.core.job_config import JobConfig
from scitoolkit.core.jobs import checked_job, domain_schema, job_of
from scitoolkit.core.log import get_logger, log_to_file
from scitoolkit.core.memory import memory_errors
from scitoolkit.core.model_index import add_model, is_reference, open_model
from scitoolkit.core.notebook import html_facts, html_page, html_table
from scitoolkit.core.plugins import Kind
from scitoolkit.core.processes import current_rank, world_size
from scitoolkit.core.results import FILE_NAME as RESULTS_NAME
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.run_list import clean_runs as clean_runs
from scitoolkit.core.run_list import compare_runs as compare_runs
from scitoolkit.core.run_list import list_runs as list_runs
from scitoolkit.core.runs import discard_failed_start, open_run, resumed, run_of_restarted_launch

log: Logger = get_logger(__name__)
input_formats: Kind[Callable[[Mapping[str, Any]], dict[str, Any] | None]] = Kind(
    "input format", "translates another program's configuration"
)
"""Translators of other programs' configurations; None if the file is in another format."""


def load(path: Path | str, overrides: Sequence[str] = ()) -> tuple[Job, Any]:
    """Return the job and the checked configuration of a YAML file or workflow folder.

    Args:
        path: a YAML file, a folder holding one, or the name of a shipped workflow.
        overrides: `section.key=value` settings that win over the file.

    Raises:
        ConfigProblems: every error of the configuration, a line each.
    """
    document = read_document(config_file(path), overrides)
    if not {"domain", "surrogate"} & document.raw.keys():
        document = _translated(document) or document
    return checked_job(_with_workflow_name(document))


def _translated(document: Document) -> Document | None:
    """Translate another program's input file; return None if no input format recognises it."""
    for name in input_formats.names():
        raw = input_formats.get(name)(document.raw)
        if raw is not None:
            return Document(raw, document.path)
    return None


def config_file(path: Path | str) -> Path:
    """Return the YAML file meant by a file, a folder or the name of a shipped workflow."""
    path = Path(path)
    if path.is_file() or path.suffix in (".yaml", ".yml"):
        return path
    folder = find_content("workflows", str(path))
    files = sorted(folder.glob("*.yaml"))
    for name in ("train.yaml", "config.yaml"):
        if folder / name in files:
            return folder / name
    if len(files) == 1:
        return files[0]
    names = ", ".join(f.name for f in files)
    raise ConfigError(
        f"several configurations in the folder: {names}" if files else "no YAML file in the folder",
        where=str(folder),
        fix=f"name one, such as {folder / files[0].name}"
        if files
        else f"scitoolkit init TASK FILES -o {folder / 'config.yaml'}",
    )


def run(
    workflow: Path | str,
    overrides: Sequence[str] = (),
    *,
    resume: bool = False,
    run_dir: Path | None = None,
) -> RunDirectory:
    """Train, evaluate and report in one call, as `scitoolkit run` does.

    Args:
        workflow: see `load`.
        overrides: `section.key=value` settings.
        resume: continue the newest run of this workflow, or `run_dir`, bit for bit.
        run_dir: the run directory to continue.

    Returns:
        The run directory, with results.json and report/index.html in it.
    """
    return _evaluated(train(workflow, overrides, resume=resume, run_dir=run_dir))


def search(
    config: Path | str,
    overrides: Sequence[str] = (),
    *,
    resume: bool = False,
    run_dir: Path | None = None,
) -> RunDirectory | None:
    """Search, train the winner, evaluate it once and report; see `run` for the arguments.

    Returns:
        The run directory; None on the MPI ranks that only run trials.

    Raises:
        ConfigError: the configuration is not one of a search.
    """
    job, checked = load(config, overrides)
    allowed = "`domain: search`, with `config:` naming the configuration to search"
    _require(job.searches, config, "a search", allowed)
    directory = _train(job, checked, resume, run_dir)
    return None if directory is None else _evaluated(directory)


run_search = search
"""Alias of `search` that does not clash with the package `scitoolkit.search`."""


def generate(
    config: Path | str,
    overrides: Sequence[str] = (),
    *,
    resume: bool = False,
    run_dir: Path | None = None,
) -> RunDirectory:
    """Generate a campaign of training data, check it and report; see `run` for the arguments.

    Raises:
        ConfigError: the configuration is not one of a generator.
    """
    job, _ = load(config, overrides)
    allowed = "`domain: generate`, with `generator:` naming one of `scitoolkit ls generator`"
    _require(job.generates, config, "a generator", allowed)
    return run(config, overrides, resume=resume, run_dir=run_dir)


def _require(holds: bool, config: Path | str, what: str, allowed: str) -> None:
    """Raise ConfigError unless the configuration is of the kind that the command requires."""
    if not holds:
        raise ConfigError(
            f"not the configuration of {what}", where=str(config_file(config)), allowed=allowed
        )


def train(
    config: Path | str,
    overrides: Sequence[str] = (),
    *,
    resume: bool = False,
    run_dir: Path | None = None,
) -> RunDirectory:
    """Train into a new run directory, or continue an old one; see `run` for the arguments."""
    directory = _train(*load(config, overrides), resume, run_dir)
    if directory is None:  # a process that only served other ranks has no run to return
        raise SystemExit(EXIT_OK)
    return directory


def _train(job: Job, config: Any, resume: bool, run_dir: Path | None) -> RunDirectory | None:
    """Train; return None in a process that serves other ranks instead of training."""
    from scitoolkit.training.processes import on_rank_zero

    with job.processes(config) as takes_part:
        if not takes_part:
            return None
        state = job.continues_from
        again = None if resume else on_rank_zero(lambda: _path(run_of_restarted_launch(config)))
        if again is not None:
            log.info("the launcher restarted this job: continuing its run")
            resume, run_dir = True, Path(again)
        path = on_rank_zero(
            lambda: str(open_run(config, resume=resume, run_dir=run_dir, state=state).path)
        )
        directory = RunDirectory(Path(path))
        written = resumed(config, directory, state) if resume else contextlib.nullcontext()
        try:
            with _log_of(directory), memory_errors(), written:
                log.info("run directory %s", directory.path)
                if current_rank() == 0 and job.reports_while_running:
                    directory.live.touch()
                refuse_too_large(job, config)
                job.train(config, directory, resume=resume)
        except BaseException as error:
            if current_rank() == 0 and not resume:
                discard_failed_start(directory, error)
            raise
    return directory


def _path(run: RunDirectory | None) -> str | None:
    return None if run is None else str(run.path)


def _evaluated(directory: RunDirectory) -> RunDirectory:
    """Evaluate and report a run, on rank 0."""
    if current_rank() == 0:
        job, path = _job_of(directory.path)
        from scitoolkit.core.devices import inference_on

        training = read_document(directory.path / "config.yaml").raw.get("training", {})
        with _log_of(directory), inference_on(training.get("device", "auto")):
            job.evaluate(path)
            report(directory.path)
    return directory


def _log_of(directory: RunDirectory) -> contextlib.AbstractContextManager[None]:
    """Return the context in which rank 0 also logs to run.log."""
    if current_rank() != 0:
        return contextlib.nullcontext()
    return log_to_file(directory.path / "run.log")


def check(config: Path | str, overrides: Sequence[str] = ()) -> Mapping[str, Any]:
    """Dry run: open the data, build the model and run one batch, without writing anything."""
    job, checked = load(config, overrides)
    with memory_errors():
        refuse_too_large(job, checked)
        return job.check(checked)


def validate(
    config: Path | str, overrides: Sequence[str] = (), *, data: bool = True
) -> tuple[JobConfig, list[Finding]]:
    """Return the checked configuration and the problems that its schema cannot detect.

    Missing packages and files, models too large for the memory, and the checks of the domain,
    such as equations on the true data. Nothing is trained and nothing is written.

    Args:
        config: a YAML file, a workflow folder, or the name of a workflow.
        overrides: settings that win over the file.
        data: False where the data are on another machine: missing inputs are then warnings.

    Raises:
        ConfigProblems: the errors of the schema, a line each.
    """
    job, checked = load(config, overrides)
    return checked, list(findings(job, checked, data=data))


def schema(domain: str) -> Mapping[str, Any]:
    """Return the JSON schema of a domain's configuration files, for editors and other checks.

    Raises:
        ConfigError: no domain has that name.
    """
    return domain_schema(domain)


def evaluate(directory: Path | str, data: Path | None = None, device: str = "auto") -> Results:
    """Evaluate a run directory or `surrogates/NAME`, and write results.json into a run.

    Args:
        directory: a run directory, `surrogates/NAME`, or NAME of a shipped surrogate.
        data: a file to evaluate on instead of the run's test part; results are then
            returned but not written.
        device: auto (a GPU if there is one), cpu or cuda.

    Raises:
        ConfigError: started on several processes, and this evaluation runs in one only.
        BackendError: `device="cuda"` without a GPU.
    """
    from scitoolkit.core.devices import inference_on

    job, path = _job_of(directory)
    data = None if data is None else shipped_path(data)
    try:
        with inference_on(device), _together(job, path, "evaluate"):
            return job.evaluate(path, data)
    except DataError as error:
        if error.what == "no such file" and data is None and is_reference(str(directory)):
            fix = "--data FILE: a published model comes without its data"
            raise DataError(error.what, where=error.where, fix=fix) from None
        raise


def predict(
    directory: Path | str,
    source: Path,
    output: Path,
    steps: int | None = None,
    lead: int | None = None,
    device: str = "auto",
    *,
    forcing: Path | str | None = None,
    times: str | None = None,
) -> Path:
    """Apply a run or surrogate to a file; `output` opens in xarray.

    Args:
        directory: the run or surrogate.
        source: the file to start from.
        output: the file to write.
        steps: number of steps beyond the last sample, for surrogates that advance a state; by
            default the configured number.
        lead: samples per step, for surrogates trained on several leads.
        device: as for `evaluate`.
        forcing: file of inputs that change in time and that no step computes, aligned by time;
            `hold` keeps their last values.
        times: times of the steps, separated by commas, for surrogates whose input is the length of
            a step.

    Raises:
        ConfigError: `steps`, `lead`, `forcing` or `times` for a surrogate that does not advance a
            state, or started on several processes, and this prediction runs in one only.
    """
    from scitoolkit.core.devices import inference_on

    job, path = _job_of(directory)
    source = shipped_path(source)
    if not source.exists():
        raise DataError("no such file", where=str(source), fix="check the path")
    if Path(output).exists() and Path(output).samefile(source):
        raise ConfigError(
            "the output is the file to start from", where=str(output), fix="another output"
        )
    with inference_on(device), _together(job, path, "predict", steps):
        if steps is None and lead is None and forcing is None and times is None:
            job.predict(path, source, Path(output))
        elif isinstance(job, Stepper):
            drivers = None if forcing is None else Path(forcing)
            job.predict_steps(path, source, Path(output), steps, lead, drivers, times)
        else:
            raise ConfigError(
                "--steps, --lead, --forcing and --times are for surrogates that advance a state",
                where=str(directory),
                fix="leave out --steps, --lead, --forcing and --times",
            )
    return Path(output)


def export(
    directory: Path | str, output: Path | str, options: Sequence[str] = ()
) -> Mapping[str, Any]:
    """Export a run or surrogate for other programs, and check the export against the model.

    Args:
        directory: a run directory, `surrogates/NAME`, or NAME of a shipped surrogate.
        output: `.c` or `.so` for C and Fortran, with `device=cuda` a `.so` for a GPU; `.onnx`;
            `.weights` for a `scitoolkit.deploy.Pool`; for an emulator also `.pt2`; for a potential
            the folder of its C library.
        options: `key=value` options: of `scitoolkit.deploy.ExportConfig`, of
            `scitoolkit.deploy.onnx_file.OnnxOptions`, or of the domain.

    Raises:
        ConfigError: surrogates of this domain cannot be exported in this form.
    """
    from scitoolkit.export_forms import export_surrogate

    return export_surrogate(*_job_of(directory), Path(output), options)


def publish_to(
    directory: Path | str, index: Path | str, reference: str, *, licence: str
) -> Path | str:
    """Add an evaluated run or a surrogate to an index folder, with its card.

    Args:
        directory: the run directory or the surrogate.
        index: folder of the index, or `hf://OWNER`; see `scitoolkit.core.model_index`.
        reference: `NAME@VERSION`.
        licence: SPDX identifier of the licence of the weights.

    Returns:
        The folder of the version; of a hub, its address.

    Raises:
        ConfigError: not `NAME@VERSION`, or a version that exists.
        DataError: the run was not evaluated.
    """
    from scitoolkit.core.model_card import card_of
    from scitoolkit.core.publish import copy_model, portable_config

    name, _, version = reference.partition("@")
    if not is_reference(reference) or not version:
        fix = f"{name}@1.0"
        raise ConfigError(f"{reference!r} names no version", allowed="NAME@VERSION", fix=fix)
    job, path = _job_of(directory)
    config = read_document(path / "config.yaml").validate(job.config_class)
    with tempfile.TemporaryDirectory() as scratch:
        folder = path
        if (path / "model").is_dir():
            folder = Path(scratch) / name
            copy_model(path, folder, config, job.artifacts(path))
        staged = Path(scratch) / "staged"
        shutil.copytree(folder, staged)
        published = read_document(folder / "config.yaml").validate(job.config_class)
        write_atomic(staged / "config.yaml", portable_config(published))
        card = staged / "README.md"
        if not card.is_file():
            card.write_text(card_of(path, folder, reference, licence, config.domain), "utf-8")
        return add_model(
            index, staged, name, version, licence=licence, facts={"domain": config.domain}
        )


def publish(directory: Path | str, destination: Path | str) -> Path:
    """Turn an evaluated run into a shipped surrogate, with its metrics in the card.

    Args:
        directory: the run directory.
        destination: NAME for `surrogates/NAME` of this installation, or a folder.

    Raises:
        DataError: the run was not evaluated.
    """
    from scitoolkit.core.publish import publish as publish_run

    job, path = _job_of(directory)
    folder = Path(destination)
    if len(folder.parts) == 1:
        folder = content_root("surrogates") / folder
    config = read_document(path / "config.yaml").validate(job.config_class)
    return publish_run(path, Path(folder), config, job.artifacts(path))


@dataclass(frozen=True)
class Surrogate:
    """A trained model on disk and the job that knows how to use it; made by `load_surrogate`."""

    path: Path
    job: Job

    def _repr_html_(self) -> str:
        """Return path, domain and stored metrics for a notebook."""
        file = self.path / "metrics.json"
        metrics = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        units = metrics.pop("units", {})
        rows = [[name, value, units.get(name, "")] for name, value in metrics.items()]
        facts = html_facts(
            {"path": self.path, "domain": self.job.config_class.model_fields["domain"].default}
        )
        table = html_table(["metric", "value", "unit"], rows) if rows else ""
        return html_page(f"Surrogate {self.path.name}", (), facts, table)

    def evaluate(self, data: Path | None = None) -> Results:
        """Evaluate on the run's test part or on another file; see `evaluate`."""
        return self.job.evaluate(self.path, data)

    def predict(
        self,
        source: Path | str,
        output: Path | str,
        steps: int | None = None,
        lead: int | None = None,
    ) -> Path:
        """Apply the surrogate to a file; see `predict`. `output` opens in xarray."""
        return predict(self.path, Path(source), Path(output), steps, lead)

    def export(self, output: Path | str, options: Sequence[str] = ()) -> Mapping[str, Any]:
        """Export the surrogate for other programs; see `export`."""
        return export(self.path, output, options)


def load_surrogate(name: Path | str) -> Surrogate:
    """Return a shipped surrogate by name, one of an index, or the one in a run directory.

    Args:
        name: name of a shipped surrogate, a run directory, or `NAME@VERSION` of the index in the
            environment variable `SCITOOLKIT_INDEX`, a folder, an https address or `hf://OWNER`.

    Example:
        >>> load_surrogate("sst_forecast").path.name
        'sst_forecast'
    """
    job, path = _job_of(name)
    return Surrogate(path, job)


def bench_training(
    settings: Sequence[str] = (), root: Path | str = "runs"
) -> tuple[RunDirectory, dict[str, Any]]:
    """Benchmark data-parallel training strategies here and predict them for larger machines.

    Args:
        settings: `key=value` of `scitoolkit.scaling.config.ScalingConfig`.
        root: folder of the runs.

    Returns:
        The run, which `report` can draw, and the measured figures.

    Raises:
        ConfigProblems: every error of the settings, a line each.
        BackendError: a process failed; its error is on stderr.
    """
    from scitoolkit.scaling.config import ScalingConfig
    from scitoolkit.scaling.run import bench_training as measure

    return measure(load_config(ScalingConfig, None, settings), Path(root))


def report(directory: Path | str) -> Path:
    """Draw report/index.html from the results in a run directory and return its path."""
    from scitoolkit.reporting import write_report

    run = RunDirectory.open(directory)
    if run.live.exists():
        _job_of(run.path)[0].evaluate(run.path)
    return write_report(run.path)


def check_processes(
    directory: Path | str, number: int, command: str, steps: int | None = None
) -> None:
    """Raise ConfigError if a command cannot use several processes for this surrogate.

    Args:
        directory: a run or surrogate.
        number: number of processes.
        command: evaluate or predict.
        steps: number of steps of a prediction, if given.

    Raises:
        ConfigError: more than one process, and the command runs in one only.
    """
    _check_processes(*_job_of(directory), number, command, steps)


def _check_processes(
    job: Job, path: Path, number: int, command: str, steps: int | None = None
) -> None:
    if number == 1:
        return
    if not isinstance(job, Divisible):
        raise ConfigError(
            f"{number} processes: {command} runs in one process for this surrogate",
            where=str(path),
            allowed="1",
            fix="start it without --nproc, torchrun or srun",
        )
    job.check_divisible(path, command, steps)


@contextlib.contextmanager
def _together(job: Job, path: Path, command: str, steps: int | None = None) -> Iterator[None]:
    """Join the other processes of this launch for a command, if there are any."""
    _check_processes(job, path, world_size(), command, steps)
    if world_size() == 1:
        yield
        return
    assert isinstance(job, Divisible)
    with job.joined(path):
        yield


def _job_of(directory: Path | str) -> tuple[Job, Path]:
    path = Path(directory)
    if not path.exists() and is_reference(str(directory)):
        path = open_model(str(directory))
    if not path.exists():
        try:
            path = find_content("surrogates", str(directory))
        except ConfigError as error:
            raise ConfigError(
                f"no run directory or surrogate {str(directory)!r}",
                allowed=f"a run listed by `scitoolkit runs`, or {error.allowed}",
                fix=error.fix,
            ) from None
    opened = RunDirectory.open(_newest_of(path))
    return job_of(read_document(opened.config_path)), opened.path


def _newest_of(folder: Path) -> Path:
    """Return the newest evaluated run of a folder of runs, `runs/WORKFLOW`; any other as it is."""
    if (folder / "config.yaml").is_file():
        return folder
    runs = sorted(file.parent for file in folder.glob("*/config.yaml"))
    evaluated = [run for run in runs if (run / RESULTS_NAME).is_file()]
    if not evaluated:
        return folder
    log.info("%s: its newest run is %s", folder, evaluated[-1].name)
    return evaluated[-1]


def _with_workflow_name(document: Document) -> Document:
    """Name the run after the workflow's folder unless the file says otherwise."""
    if "workflow" not in document.raw and document.path is not None:
        folder = document.path.resolve().parent.name
        document.raw["workflow"] = (
            folder if document.path.stem in ("train", "config") else document.path.stem
        )
    return document
