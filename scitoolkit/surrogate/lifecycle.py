"""The life of a surrogate as short functions over the stages of a domain.

A model is rebuilt from configuration, facts and measured numbers, never from data, so that a
surrogate needs no training file. Optional keys of a configuration that the functions read:
`members` (an ensemble) and `weights_dtype` (weights in few bits).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from scitoolkit.core.contracts import Task
from scitoolkit.core.data_facts import DataFacts, compare, problems, refuse
from scitoolkit.core.errors import CheckpointError, DataError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.seeds import derive_seed
from scitoolkit.io.loader import ArraySource, BatchLoader
from scitoolkit.surrogate.ensemble import Members, MembersTask
from scitoolkit.surrogate.stages import Calibrates, Finalises, Opened, Parts, Stages
from scitoolkit.training import Trainer, current_rank, load_best, world_size
from scitoolkit.training.processes import on_rank_zero
from scitoolkit.training.rounded_weights import restored, rounded

MEASURED_BYTES = 64 * 2**10
"""Largest size of `measured` as JSON: arrays belong into buffers of the model."""


@dataclass(frozen=True)
class Start:
    """Everything that precedes a training.

    Attributes:
        opened: data, facts, split and measured numbers.
        model: untrained, on the CPU.
        task: loss and metrics of the model or of the ensemble.
    """

    opened: Opened
    model: nn.Module
    task: Task


@dataclass(frozen=True)
class Trained:
    """A stored surrogate.

    Attributes:
        config: of the run.
        model: with its weights, in evaluation mode.
        facts: of the training data.
        folder: where it is stored.
    """

    config: Any
    model: nn.Module
    facts: DataFacts
    folder: ModelFolder


def open_checked(stages: Stages, config: Any, path: Any, trained: DataFacts | None = None) -> Any:
    """Open data; refuse what is wrong or differs, convert what can be converted.

    The only way from a path to data, in training and in use.

    Args:
        stages: of the domain.
        config: of the job.
        path: files to open.
        trained: facts of the training data; None in training itself.

    Raises:
        DataError: with every difference that changes the result, both sides and the remedy.
    """
    data = stages.open(config, path)
    facts, accepts = stages.facts(config, data), stages.accepts(config)
    differences = problems(facts, accepts)
    if trained is not None:
        differences += compare(trained, facts, accepts)
    refuse(differences, str(path))
    return stages.convert(data, differences)


def require_disjoint(parts: Parts, where: str) -> None:
    """Refuse a split whose parts share samples: a score would be of what was learned.

    Raises:
        DataError: with the parts and the first sample that they share.
    """
    seen: dict[int, str] = {}
    for part, rows in parts.items():
        for row in rows:
            if int(row) in seen:
                raise DataError(
                    f"sample {int(row)} is in {seen[int(row)]} and {part}",
                    where=where,
                    allowed="every sample in one part",
                )
            seen[int(row)] = part
    if not len(parts.get("train", ())):
        raise DataError("the training part is empty", where=where, fix="more samples")


def build(stages: Stages, config: Any, facts: DataFacts, measured: Mapping[str, Any]) -> nn.Module:
    """Return an untrained model, or the members of an ensemble; the first has the job's seed."""
    count = int(getattr(config, "members", 1))
    seeds = [config.seed, *(derive_seed(config.seed, n) for n in range(1, count))]
    models = [stages.build(config, facts, measured, seed) for seed in seeds]
    return models[0] if count == 1 else Members(models)


def start(stages: Stages, config: Any, *, sample: bool = False) -> Start:
    """Do everything from the files to the task.

    Args:
        stages: of the domain.
        config: of the job.
        sample: for a dry run, which may measure on a few samples.
    """
    path = config.data.path
    if world_size() > 1:
        # Rank 0 opens first: it may write an index that the others read.
        on_rank_zero(lambda: stages.open(config, path) and None)
    data = open_checked(stages, config, path)
    facts, parts = stages.facts(config, data), stages.split(config, data)
    require_disjoint(parts, str(path))
    measured = stages.measure(config, data, parts["train"])
    if len(json.dumps(dict(measured))) > MEASURED_BYTES:
        raise ValueError("measured numbers above 64 kB: make them buffers of the model")
    opened = Opened(data, facts, parts, measured, sample)
    model = build(stages, config, facts, measured)
    members = list(model.members) if isinstance(model, Members) else [model]
    for member in members:
        stages.initialise(config, opened, member)
    tasks = [stages.task(config, opened, member) for member in members]
    task = MembersTask(model, tasks) if isinstance(model, Members) else tasks[0]
    return Start(opened, model, task)


def fit(
    stages: Stages, config: Any, begun: Start, run: RunDirectory, *, resume: bool = False
) -> Trainer:
    """Train; rank 0 then holds the best weights, finalised, on the CPU."""
    trainer = Trainer(begun.task, config.training, run=run)
    loaders = {
        part: stages.loader(config, begun.opened, part, begun.model)
        for part in ("train", "validation")
        if len(begun.opened.parts.get(part, ()))
    }
    trainer.fit(loaders["train"], loaders.get("validation"), resume=resume)
    if current_rank() == 0:
        load_best(begun.model, run.checkpoints)
        begun.model.cpu()
        if isinstance(stages, Finalises):
            stages.finalise(config, begun.opened, begun.model)
    return trainer


def save(
    stages: Stages, config: Any, begun: Start, run: RunDirectory, record: Mapping[str, Any]
) -> ModelFolder:
    """Write weights, facts, record and configuration; calibrate with the weights as delivered."""
    folder, model = ModelFolder.create(run), begun.model
    names = [name for name, _ in model.named_parameters()]
    dtype = str(getattr(config, "weights_dtype", "float32"))
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    folder.save_weights(rounded(state, names, dtype))
    folder.save_facts(begun.opened.facts)
    parts = {part: [int(row) for row in rows] for part, rows in begun.opened.parts.items()}
    record = {"measured": dict(begun.opened.measured), "parts": parts, **record}
    if isinstance(stages, Calibrates):
        model.load_state_dict(_full(folder, model))
        stages.calibrate(config, begun.opened, model.eval(), folder.path)
    folder.finish(run, record)
    return folder


def load(stages: Stages, schema: type[Any], directory: Path) -> Trained:
    """Return the surrogate of a run or surrogate directory.

    Raises:
        CheckpointError: weights that do not match the configuration, or no facts.
    """
    folder = ModelFolder(directory)
    config: Any = folder.config(schema)
    facts = folder.facts()
    if facts is None:
        raise CheckpointError("no facts of the training data", where=str(folder.path))
    model = build(stages, config, facts, folder.record()["measured"])
    try:
        model.load_state_dict(_full(folder, model))
    except RuntimeError as error:
        text = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"the weights do not match ({text})", where=str(folder.path)
        ) from None
    return Trained(config, model.eval(), facts, folder)


def _full(folder: ModelFolder, model: nn.Module) -> dict[str, Any]:
    """Return stored weights in the dtypes of the model."""
    stored, state = restored(folder.load_weights()), model.state_dict()
    return {k: v.to(state[k].dtype) if k in state else v for k, v in stored.items()}


def array_loader(training: Any, part: str, **arrays: Any) -> BatchLoader:
    """Return the loader of samples in memory, shuffled for the training part.

    Args:
        training: the section of the configuration.
        part: train or validation.
        arrays: (samples, ...) by the key of the batch.
    """
    rank, shares = training.share_of_batch()
    return BatchLoader(
        ArraySource(arrays),
        training.batch_size,
        seed=training.seed,
        shuffle=part == "train",
        rank=rank,
        world_size=shares,
    )


def test_rows(folder: ModelFolder) -> Sequence[int]:
    """Return the samples of the test part of a run."""
    return list(folder.record()["parts"].get("test", ()))
