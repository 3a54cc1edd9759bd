"""Job of the domain `generate`: draw parameters, make samples in parallel, check and report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from logging import Logger
from pathlib import Path
from typing import Any, ClassVar

from scitoolkit.core.config import dump_config, load_config
from scitoolkit.core.errors import ConfigError, DataError, NumericalError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.job import Job
from scitoolkit.core.log import get_logger
from scitoolkit.core.results import FIELDS_NAME, Results, Table, Verdict, number
from scitoolkit.core.resume import changed_settings, identity
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.seeds import derive_seed
from scitoolkit.generators.base import Check, Generator, generators
from scitoolkit.generators.card import worst_invariants, write_cards
from scitoolkit.generators.config import GenerateConfig
from scitoolkit.generators.executors import WorkerPool, pool
from scitoolkit.generators.workers import RECORDS, Order, Record, finished, make_samples

log: Logger = get_logger(__name__)
FOLDER = "campaign"
CONFIG = "config.yaml"
NAMED_FAILURES = 3


class GenerateJob(Job):
    """Generation of a campaign of samples."""

    config_class: ClassVar[type[GenerateConfig]] = GenerateConfig
    generates: ClassVar[bool] = True
    continues_from: ClassVar[str] = "config.yaml"

    def __init__(self) -> None:
        self._pool = WorkerPool(None, 1)

    @contextmanager
    def processes(self, config: GenerateConfig) -> Iterator[bool]:
        """Yield whether this process submits the work; other MPI ranks are workers."""
        with pool(config.executor, config.processes) as workers:
            if workers is not None:
                self._pool = workers
            yield workers is not None

    def check(self, config: GenerateConfig) -> Mapping[str, Any]:
        """Make the first sample in memory; write nothing."""
        order = orders(config)[0]
        sample = config.generator.sample(order.parameters, order.seed)
        return {
            "generator": config.generator.name,
            "samples": config.draw.samples,
            "first_sample": {
                "parameters": order.parameters,
                "seed": order.seed,
                "drifts": dict(sample.invariants),
                "accuracy": vars(sample.accuracy) if sample.accuracy else {},
                "notes": [*sample.notes, *sample.missed],
            },
        }

    def train(self, config: GenerateConfig, run: RunDirectory, *, resume: bool = False) -> None:
        """Make the missing samples, then write the cards.

        Raises:
            NumericalError: samples failed; the others are kept, and a resumed run retries.
            DataError: the disk is full; finished samples are kept.
        """
        folder = campaign_folder(run.path, config)
        _claim(folder, config, resume)
        wanted = orders(config)
        for order in wanted:  # an impossible setting is refused before the first sample is made
            config.generator.with_parameters(order.parameters)
        done = finished(folder)
        _require_same(folder, wanted, done)
        write_atomic(folder / RECORDS / CONFIG, dump_config(config))
        left = [order for order in wanted if order.index not in done]
        log.info("%d samples to make, %d exist", len(left), len(done))
        failed = []
        for record in make_samples(config.generator, left, folder, self._pool):
            if record.fatal:
                raise DataError(
                    record.error,
                    where=f"{folder}: sample {record.index}",
                    fix="free space, then --resume: finished samples are kept",
                )
            if record.error:
                failed.append(record)
                log.warning("sample %d: %s", record.index, record.error)
                continue
            done[record.index] = record
            for note in (*record.notes, *record.missed):
                log.warning("sample %d: %s", record.index, note)
            run.log_metrics({"seconds": record.seconds}, step=record.index, units={"seconds": "s"})
        if done:
            write_cards(folder, config, [done[i] for i in sorted(done)])
        if failed:
            raise _failure(folder, failed, len(wanted))
        wrong = [done[i] for i in sorted(done) if done[i].missed]
        if wrong:
            raise _missed(folder, wrong, len(wanted))

    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """Compare all samples, or one file of a sample, with exact results."""
        directory = Path(directory)
        config = load_config(GenerateConfig, directory / CONFIG)
        if data is not None:
            return _results(config, [_record_of(config.generator, data)], Path(data).parent)[0]
        folder = campaign_folder(directory, config)
        done = finished(folder)
        if not done:
            raise DataError("no samples", where=str(folder), fix="scitoolkit generate --resume")
        results, first = _results(config, [done[i] for i in sorted(done)], folder)
        if config.generator.suffix == ".nc":
            from scitoolkit.io.fields import write_fields

            write_fields(first, directory / FIELDS_NAME)
        results.write(directory)
        return results

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Reproduce the sample of a file from the settings and the seed stored in it."""
        config = load_config(GenerateConfig, Path(directory) / CONFIG)
        _, origin = config.generator.read(source)
        generator = generators.get(origin.settings["name"]).model_validate(dict(origin.settings))
        sample = generator.sample({}, origin.seed)
        generator.write(sample, generator.origin(sample, origin.seed, origin.parameters), output)


def orders(config: GenerateConfig) -> list[Order]:
    """Return the orders of all samples by number."""
    return [
        Order(i, values, config.seeds[i] if config.seeds else derive_seed(config.seed, i))
        for i, values in enumerate(config.draw.draw(config.seed))
    ]


def campaign_folder(run: Path, config: GenerateConfig) -> Path:
    """Return the folder of the samples."""
    return config.output or Path(run) / FOLDER


def _claim(folder: Path, config: GenerateConfig, resume: bool) -> None:
    """Create the folder of a campaign, or refuse one that contains another campaign.

    Raises:
        ConfigError: the folder contains samples of other settings, or `resume` is false.
    """
    try:
        (folder / RECORDS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror})", where=str(folder)) from None
    stated = folder / RECORDS / CONFIG
    if stated.exists():
        changed = changed_settings(identity(load_config(GenerateConfig, stated)), identity(config))
        if changed or not resume:
            raise ConfigError(
                "already contains a campaign" + (": " + "; ".join(changed) if changed else ""),
                where=str(folder),
                fix="--resume to continue it, or another output",
            )


def _require_same(folder: Path, wanted: Sequence[Order], done: Mapping[int, Record]) -> None:
    """Refuse existing samples whose parameters differ from those drawn now."""
    for order in wanted:
        there = done.get(order.index)
        if there and (there.parameters, there.seed) != (order.parameters, order.seed):
            raise ConfigError(
                f"sample {order.index} has {there.parameters}, but {order.parameters} is drawn now",
                where=str(folder),
                fix="undo the change of draw, or another output",
            )


def _failure(folder: Path, failed: Sequence[Record], number_wanted: int) -> NumericalError:
    shown = "; ".join(
        f"sample {r.index} {r.parameters}: {r.error}" for r in failed[:NAMED_FAILURES]
    )
    more = f"; and {len(failed) - NAMED_FAILURES} more" if len(failed) > NAMED_FAILURES else ""
    return NumericalError(
        f"{len(failed)} of {number_wanted} samples failed: {shown}{more}",
        where=str(folder),
        fix="--resume retries them; the finished samples are kept",
    )


def _missed(folder: Path, wrong: Sequence[Record], number_wanted: int) -> NumericalError:
    shown = "; ".join(
        f"sample {r.index} {r.parameters}: {', '.join(r.missed)}" for r in wrong[:NAMED_FAILURES]
    )
    more = f"; and {len(wrong) - NAMED_FAILURES} more" if len(wrong) > NAMED_FAILURES else ""
    return NumericalError(
        f"{len(wrong)} of {number_wanted} samples are not resolved or miss exact values: "
        f"{shown}{more}",
        where=str(folder),
        fix="a finer grid, a smaller time step or a shorter run, and another output; these samples "
        "are kept and marked in README.md",
    )


def _record_of(generator: Generator, path: Path) -> Record:
    """Return the record of a single file of a sample."""
    _, origin = generator.read(path)
    return Record(
        0,
        dict(origin.parameters),
        origin.seed,
        Path(path).name,
        invariants=dict(origin.invariants),
        missed=list(origin.missed),
        accuracy=dict(origin.accuracy),
    )


def _results(
    config: GenerateConfig, records: Sequence[Record], folder: Path
) -> tuple[Results, Any]:
    """Return the results, and the frames of the first sample."""
    generator, first, worst = config.generator, None, 0.0
    verdict: Verdict | None = None
    rows: list[list[float | int | str | None]] = []
    for record in records:
        frames, origin = generator.read(folder / record.file)
        made = generators.get(origin.settings["name"]).model_validate(dict(origin.settings))
        first = generator.shown_fields(frames) if first is None else first
        for check in made.checks(frames):
            error = abs(check.measured - check.exact)
            share = error / check.tolerance
            if verdict is None or (worst == worst and not share <= worst):  # NaN is the worst
                verdict = _verdict(check, f"sample {record.index}: " if len(records) > 1 else "")
                worst = share
            rows.append(
                [
                    record.index,
                    _shown(record.parameters),
                    check.quantity,
                    number(check.measured),
                    check.exact,
                    number(error),
                    check.tolerance,
                ]
            )
    drifts = worst_invariants(records)
    bounds = generator.invariant_bounds()
    tables = [
        Table(
            title="Invariants: largest drift over the samples",
            columns=["invariant", "drift", "bound"],
            rows=[[name, number(drift), bounds[name]] for name, drift in drifts.items()],
        )
    ]
    if rows:
        tables.insert(
            0,
            Table(
                title="Quantities with a known exact value",
                columns=[
                    "sample",
                    "parameters",
                    "quantity",
                    "found",
                    "exact",
                    "error",
                    "tolerance",
                ],
                rows=rows,
            ),
        )
    metrics: dict[str, float | int | str | None] = {"samples": len(records)}
    metrics |= {f"drift_{name}": number(drift) for name, drift in drifts.items()}
    if rows:
        metrics["error_over_tolerance_max"] = number(worst)
    errors = [float(r.accuracy["error"]) for r in records if r.accuracy]
    if errors:
        metrics["sample_error_max"] = number(max(errors))
        method = next(r.accuracy["method"] for r in records if r.accuracy)
        tables.append(
            Table(
                title=f"Errors of the samples: {method}",
                columns=["sample", "error", "tolerance"],
                rows=[
                    [r.index, number(float(r.accuracy["error"])), r.accuracy["tolerance"]]
                    for r in records
                    if r.accuracy
                ],
            )
        )
    notes = sum(bool(r.notes or r.missed) for r in records)
    wrong = sum(bool(r.missed) for r in records)
    if wrong:
        metrics["samples_missed"] = wrong
    return Results(
        title=f"{generator.name}: {len(records)} samples",
        verdict=verdict,
        summary=[
            f"{generator.equations_line()}; {generator.scheme}.",
            *([f"{notes} samples have notes: see README.md of the campaign."] if notes else []),
        ],
        metrics=metrics,
        tables=tables,
        figures=list(generator.figures(first)),
    ), first


def _verdict(check: Check, sample: str) -> Verdict:
    """Return the error of a quantity in percent where possible; its tolerance is no rival."""
    scale, unit = (100 / abs(check.exact), "%") if check.exact else (1.0, check.unit)
    allowed = f"{scale * check.tolerance:.3g} {unit}".strip()
    values = f"{sample}{check.measured:.4g}; exact {check.exact:.4g}; tolerance {allowed}"
    return Verdict(
        quantity=f"error of the {check.quantity} ({values})",
        ours=scale * abs(check.measured - check.exact),
        unit=unit,
    )


def _shown(parameters: Mapping[str, float]) -> str:
    return ", ".join(f"{key} {value:.5g}" for key, value in parameters.items())
