"""The life of a surrogate as short functions over the stages of a domain.

A model is rebuilt from configuration, facts and measured numbers, never from data, so that a
surrogate needs no training file. Optional keys of a configuration that the functions read:
`members` or `uncertainty.emulators` (an ensemble), `weights_dtype` (weights in few bits) and
`data.test` (files for testing).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from scitoolkit.core.content import find_content
from scitoolkit.core.contracts import Batch, Loader, Task
from scitoolkit.core.data_differences import Accepts, compare, refuse
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.devices import placed
from scitoolkit.core.errors import CheckpointError, DataError, NumericalError
from scitoolkit.core.log import get_logger
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.io.fields import write_fields
from scitoolkit.io.loader import ArraySource, BatchLoader, PlannedLoader, Source
from scitoolkit.io.loader.cursor import tensors
from scitoolkit.io.split import edges_of, sizes
from scitoolkit.surrogate import intervals
from scitoolkit.surrogate.ensemble import Members, MembersTask, member_seeds, members_of
from scitoolkit.surrogate.fine_tuning import adopted, freeze, require_same
from scitoolkit.surrogate.opening import close, open_checked, source_path
from scitoolkit.surrogate.stages import (
    Calibrates,
    Concludes,
    Ensembles,
    Errs,
    Finalises,
    Indexes,
    Opened,
    Parts,
    Produces,
    Records,
    Reports,
    Rows,
    Settles,
    Stages,
    Stores,
    Trained,
)
from scitoolkit.training import Trainer, current_rank, load_best, world_size
from scitoolkit.training.processes import on_rank_zero
from scitoolkit.training.rounded_weights import restored, rounded

log = get_logger(__name__)
T = TypeVar("T", bound=nn.Module)
MEASURED_BYTES = 16 * 2**20
"""Largest size of `measured` as JSON, in the header of the weights: coordinates and a mask of a
grid fit, arrays of values belong into buffers of the model."""


@dataclass(frozen=True)
class Start:
    """Everything that precedes a training.

    Attributes:
        opened: data, facts, split and measured numbers.
        model: untrained, on the CPU.
        task: loss and metrics of the model or of the ensemble; None if it is trained in no steps.
        loaders: batches of `train`, and of `validation` unless that part is empty; none without
            a task.
    """

    opened: Opened
    model: Any
    task: Task | None
    loaders: Mapping[str, Loader]

    def close(self) -> None:
        """Close the loaders and the data."""
        for loader in self.loaders.values():
            close(loader)
        close(self.opened.data)


def require_disjoint(parts: Parts, where: str) -> None:
    """Refuse a split whose parts share samples: a score would be of what was learned.

    Raises:
        DataError: with the parts and the first sample that they share.
    """
    names = list(parts)
    edges = sorted((*ends, n) for n, part in enumerate(names) for ends in edges_of(parts[part]))
    # Sorted by their first sample: if any two overlap, then so do two neighbours.
    for (_, stop, one), (first, _, other) in pairwise(edges):
        if first < stop:
            both = sorted((one, other))
            raise DataError(
                f"sample {first} is in {names[both[0]]} and {names[both[1]]}",
                where=where,
                allowed="every sample in one part",
            )
    if not len(parts.get("train", ())):
        raise DataError("the training part is empty", where=where, fix="more samples")


def build(stages: Stages, config: Any, facts: DataFacts | None, measured: Mapping[str, Any]) -> Any:
    """Return an untrained model, or the members of an ensemble; the first has the job's seed."""
    models = [stages.build(config, facts, measured, seed) for seed in member_seeds(config)]
    return models[0] if len(models) == 1 else _joined(stages, models)


def _joined(stages: Stages, models: Sequence[nn.Module]) -> nn.Module:
    return stages.joined(models) if isinstance(stages, Ensembles) else Members(models)


def start(
    stages: Stages, config: Any, directory: Path | None = None, *, sample: bool = False
) -> Start:
    """Do everything from the files to the loaders.

    Args:
        stages: of the domain.
        config: of the job.
        directory: of the run; required by stages that compute their data.
        sample: for a dry run, which may measure on a few samples.
    """
    if isinstance(stages, Produces) and directory is not None:
        stages.produce(config, Path(directory), sample)
    path = source_path(stages, config, directory)
    if world_size() > 1 and isinstance(stages, Indexes):
        # Rank 0 opens first: it may write an index that the others read.
        on_rank_zero(lambda: close(open_checked(stages, config, path, keep=True)))
    former = _former(stages, config) if stages.start_settings and config.start else None
    data = open_checked(stages, config, path, former.facts if former else None, keep=not sample)
    try:
        facts, parts = stages.facts(config, data), stages.split(config, data)
        require_disjoint(parts, str(getattr(data, "where", path)))
        if isinstance(stages, Errs) and config.intervals is not None:
            intervals.require_enough(config.intervals.coverage, sizes(parts)["validation"])
        measured = stages.measure(config, data, parts["train"])
        if former is not None:
            measured = adopted(measured, former.folder.measured(), stages.remeasured)
        if len(json.dumps(dict(measured))) > MEASURED_BYTES:
            raise ValueError("measured numbers above 16 MB: make them buffers of the model")
        opened = Opened(data, facts, parts, measured, sample, directory)
        return _begun(stages, config, opened, former)
    except BaseException:
        close(data)
        raise


def _former(stages: Stages, config: Any) -> Trained:
    """Return the surrogate that a training starts from."""
    former = load(stages, type(config), find_content("surrogates", config.start.path))
    before, now = (c.model_dump(mode="json") for c in (former.config, config))
    require_same(before, now, ["members", *stages.start_settings])
    return former


def _begun(stages: Stages, config: Any, opened: Opened, former: Trained | None) -> Start:
    """Return model, task and loaders of opened data."""
    model = build(stages, config, opened.facts, opened.measured)
    for member in members_of(model):
        stages.initialise(config, opened, member)
    if former is not None:
        model.load_state_dict(former.model.state_dict())
        for member in members_of(model):
            freeze(member, config.start.frozen)
    tasks = [stages.task(config, opened, member) for member in members_of(model)]
    task = tasks[0]
    if task is None:
        return Start(opened, model, None, {})
    if len(tasks) > 1:
        several = [t for t in tasks if t is not None]
        # A task may train another module with the same weights, such as the slab of this process.
        task = MembersTask(_joined(stages, [t.model for t in several]), several)
    loaders = {
        part: stages.loader(config, opened, part, model)
        for part in ("train", "validation")
        if len(opened.parts.get(part, ()))
    }
    return Start(opened, model, task, loaders)


def first_step(begun: Start, steps: int | None) -> dict[str, Any]:
    """Return the loss of the first batch, sizes and times, for a dry run; nothing without a task.

    Args:
        begun: the start of a training.
        steps: of the training, None if it is counted in epochs.

    Raises:
        NumericalError: the loss is NaN or infinite, as it would be in the training.
    """
    if begun.task is None:
        return {}
    loader = begun.loaders["train"]
    if isinstance(loader, PlannedLoader):
        # In order of the files' samples: without the plan of an epoch, its buffer and its threads.
        batch = tensors(loader.files.read(loader.order.permutation(0)[: loader.order.batch_size]))
    else:
        batch = next(iter(loader))
    loss, parts = begun.task.loss(batch)
    if not math.isfinite(float(loss.detach())):
        named = ", ".join(f"{name} {float(part):g}" for name, part in (parts or {}).items())
        raise NumericalError(f"the loss of the first batch is {loss.item():g} ({named})")
    seconds = _seconds_per_step(begun.task, batch, loss)
    explain = getattr(loader, "explain", None)
    return {
        "parameters": sum(p.numel() for p in begun.task.model.parameters()),
        "first_loss": float(loss.detach()),
        **({"parts": {k: float(v) for k, v in parts.items()}} if parts else {}),
        "seconds_per_step": float(f"{seconds:.2g}"),
        **({"training": f"{steps} steps, about {_duration(steps * seconds)}"} if steps else {}),
        **({"loader": explain()} if explain else {}),
    }


def _seconds_per_step(task: Task, batch: Batch, loss: Any) -> float:
    """Return the time of a loss and its gradients, after a first time that compiles them."""
    if loss.requires_grad:
        loss.backward()
    started = time.perf_counter()
    again, _ = task.loss(batch)
    if again.requires_grad:
        again.backward()
    return time.perf_counter() - started


def _duration(seconds: float) -> str:
    """Return a duration with the unit that a person would use.

    Example:
        >>> _duration(8.2), _duration(610), _duration(9000)
        ('8 s', '10 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def record_data(
    stages: Stages, config: Any, begun: Start, run: RunDirectory, *, resume: bool
) -> None:
    """Store the facts of the data with a run before it trains; compare those of a resumed run.

    Raises:
        DataError: the data changed since the run began.
    """
    folder, opened = ModelFolder(run.path), begun.opened
    facts = folder.facts() if resume else None
    if facts is not None:
        where = f"{getattr(opened.data, 'where', config.data.path)}, in the resumed run"
        refuse(compare(facts, opened.facts, Accepts(uneven=True, convert=False)), where)
    elif current_rank() == 0:
        folder.save_facts(opened.facts)
    if isinstance(stages, Records):
        stages.record(config, opened, run, resume)


def fit(
    stages: Stages, config: Any, begun: Start, run: RunDirectory, *, resume: bool = False
) -> Trainer:
    """Train; rank 0 then holds the best weights, finalised, on the CPU.

    Args:
        stages: of the domain.
        config: of the job.
        begun: with a task.
        run: to train into.
        resume: continue from its newest checkpoint.
    """
    assert begun.task is not None
    trainer, loaders = Trainer(begun.task, config.training, run=run), begun.loaders
    try:
        trainer.fit(loaders["train"], loaders.get("validation"), resume=resume)
    finally:
        for loader in loaders.values():
            close(loader)
    if current_rank() == 0:
        trained = begun.task.model
        # A task may train a module around the model, whose weights are in it, or another one with
        # the same weights, such as the slab of this process.
        is_inside = any(module is begun.model for module in trained.modules())
        load_best(trained if is_inside else begun.model, run.checkpoints)
        begun.model.cpu()
        if isinstance(stages, Finalises):
            stages.finalise(config, begun.opened, begun.model)
    return trainer


def train(stages: Stages, config: Any, run: RunDirectory, *, resume: bool = False) -> None:
    """Train, and save the best weights in `model/`."""
    begin = time.process_time()
    begun = start(stages, config, run.path)
    try:
        log.info(
            "%s samples, %d parameters",
            ", ".join(f"{n} {part}" for part, n in sizes(begun.opened.parts).items()),
            sum(p.numel() for p in begun.model.parameters()),
        )
        record_data(stages, config, begun, run, resume=resume)
        record: dict[str, Any] = {}
        if begun.task is not None:
            trainer = fit(stages, config, begun, run, resume=resume)
            record = {"best": trainer.best, "steps": trainer.step}
            told = getattr(begun.loaders["train"], "stats", None)
            record |= {"loader": told()} if told else {}
        if isinstance(stages, Concludes):
            record |= stages.conclude(config, begun.opened, begun.model)
        if current_rank() == 0:
            record["cpu_seconds"] = time.process_time() - begin
            save(stages, config, begun, run, record)
    finally:
        begun.close()


def save(
    stages: Stages, config: Any, begun: Start, run: RunDirectory, record: Mapping[str, Any]
) -> ModelFolder:
    """Write weights, facts, record and configuration; calibrate with the weights as delivered."""
    folder, model = ModelFolder.create(run), begun.model
    if isinstance(stages, Stores):
        stages.store(model, folder)
    else:
        dtype = str(getattr(config, "weights_dtype", _WHOLE))
        save_model(model, folder, begun.opened.measured, dtype)
    folder.save_facts(begun.opened.facts)
    if isinstance(stages, (Calibrates, Errs)):
        model.load_state_dict(_full(folder, model))
        model.eval()
    if isinstance(stages, Calibrates):
        stages.calibrate(config, begun.opened, model, folder.path)
    if isinstance(stages, Errs) and config.intervals is not None:
        opened = begun.opened
        errors = stages.errors(config, model, opened.data, opened.parts["validation"])
        intervals.save(intervals.calibrated(errors, config.intervals.coverage), folder)
    measured = begun.opened.measured
    settled = stages.settled(config, measured) if isinstance(stages, Settles) else None
    folder.finish(run, {**_stored_parts(begun.opened.parts), **record}, settled)
    return folder


_WHOLE = "float32"


def save_model(
    model: nn.Module, folder: ModelFolder, measured: Mapping[str, Any], dtype: str = _WHOLE
) -> None:
    """Write weights, rounded to `dtype`, with the measured numbers in their header.

    Raises:
        ScitoolkitError: the disk is full, or the folder cannot be written.
    """
    names = [name for name, _ in model.named_parameters()]
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    folder.save_weights(rounded(state, names, dtype), dict(measured))


def rebuilt(folder: ModelFolder, make: Callable[[Mapping[str, Any]], T]) -> T:
    """Return the model of a folder, in evaluation mode.

    Args:
        folder: with weights, in whose header the measured numbers are.
        make: returns an untrained model from measured numbers.

    Raises:
        CheckpointError: weights that are missing, damaged or of another configuration.
    """
    try:
        model = make(folder.measured())
        model.load_state_dict(_full(folder, model))
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        text = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"cannot be read: the weights do not match ({text})", where=str(folder.weights)
        ) from None
    return model.eval()


def load(stages: Stages, schema: type[Any], directory: Path) -> Trained:
    """Return the surrogate of a run or surrogate directory.

    Raises:
        CheckpointError: weights that are missing, damaged or of another configuration.
    """
    folder = ModelFolder(directory)
    config: Any = folder.config(schema, settled=isinstance(stages, Settles))
    facts = folder.facts()
    if facts is None:
        log.info("%s has no facts of its data: other files are not compared with them", directory)
    if isinstance(stages, Stores):
        model = stages.restored(config, folder)
    else:
        model = rebuilt(folder, lambda measured: build(stages, config, facts, measured))
    return stages.completed(Trained(config, model, facts, folder))


def _full(folder: ModelFolder, model: nn.Module) -> dict[str, Any]:
    """Return stored weights in the dtypes of the model."""
    stored, state = restored(folder.load_weights()), model.state_dict()
    return {k: v.to(state[k].dtype) if k in state else v for k, v in stored.items()}


def evaluate(
    stages: Stages, schema: type[Any], directory: Path, data: Path | None = None
) -> Results:
    """Score the test part of a run, or all samples of `data.test` or of another file.

    Results and fields are written into a run directory, unless `data` is given.
    """
    trained = load(stages, schema, directory)
    placed(trained.model)
    path = data if data is not None else getattr(trained.config.data, "test", None) or None
    rows = test_rows(trained.folder) if path is None else None
    if path is None:
        path = source_path(stages, trained.config, directory)
    opened = open_checked(stages, trained.config, path, trained.facts)
    try:
        if isinstance(stages, Reports):
            results, fields = stages.report(trained, opened, rows)
        else:
            results, fields = stages.evaluate(trained.config, trained.model, opened, rows), None
        half = intervals.load(trained.folder)
        if half is not None and isinstance(stages, Errs):
            errors = stages.errors(trained.config, trained.model, opened, rows)
            intervals.score(half, errors, results)
    finally:
        close(opened)
    if current_rank() == 0 and trained.folder.write_results(results, data) and fields is not None:
        write_fields(fields, Path(directory) / "results.nc")
    return results


def array_loader(training: Any, part: str, **arrays: Any) -> BatchLoader:
    """Return the loader of samples in memory, shuffled for the training part.

    Args:
        training: the section of the configuration.
        part: train or validation.
        arrays: (samples, ...) by the key of the batch.
    """
    return source_loader(training, part, ArraySource(arrays))


def source_loader(training: Any, part: str, source: Source) -> BatchLoader:
    """Return the loader of the batches of this process, shuffled for the training part."""
    rank, shares = training.share_of_batch()
    return BatchLoader(
        source,
        training.batch_size,
        seed=training.seed,
        shuffle=part == "train",
        rank=rank,
        world_size=shares,
    )


def _stored_parts(parts: Parts) -> dict[str, Any]:
    """Return the split for the record of a fit: `samples`, or `parts` with the ends of ranges."""
    edges = {name: edges_of(rows) for name, rows in parts.items()}
    if any(isinstance(row, range) for rows in parts.values() for row in rows):
        return {"parts": {name: list(chain(*pairs)) for name, pairs in edges.items()}}
    return {"samples": {name: [first for first, _ in pairs] for name, pairs in edges.items()}}


def test_rows(folder: ModelFolder) -> Rows:
    """Return the samples of the test part of a run, or their ranges; none if it has no record."""
    record = folder.record() if folder.has_record else {}
    if "samples" in record:
        return list(record["samples"].get("test", ()))
    edges = record.get("parts", {}).get("test", ())
    return [range(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True)]
