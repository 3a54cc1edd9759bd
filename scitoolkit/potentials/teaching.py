"""Frames that a generator labels, as the data of a potential: held-out ones, and those chosen.

All samples of a job have one numbering, that of `data.draw`: first those for validation and test,
then those of the training. A sample is a file of the run directory that states parameters and seed.
With a committee, number n of the training has several candidates, each a draw by itself, and the
one of the largest disagreement is labelled; the choice is written down before the label is made, so
that a resumed run makes the same.

Query by committee: Seung, Opper and Sompolinsky 1992; of forces: Zhang et al., Phys. Rev. Materials
3, 023804 (2019).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.results import Lines, Results, Series, Table
from scitoolkit.core.run_directory import write_atomic
from scitoolkit.core.seeds import derive_seed
from scitoolkit.io.atoms import checked
from scitoolkit.io.atoms_formats import from_ase
from scitoolkit.potentials.committee import model_deviation
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.data import GraphLoader
from scitoolkit.potentials.loss import PotentialTask
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.preparation import prepare
from scitoolkit.training import Trainer, world_size

log: Logger = get_logger(__name__)
FOLDER, CHOSEN = "frames", "chosen.json"
_KEY = 0xC0
FEW = 3


@dataclass(frozen=True)
class Round:
    """What a committee chose.

    Attributes:
        candidates: {number of a sample: which of its candidates}.
        disagreement: mean over the samples, of the largest over a frame's atoms, eV/Å.
        random: the same of the first candidates, which are what a random draw would have labelled.
        labelled: samples that the members had learned from.
    """

    candidates: dict[int, int]
    disagreement: float
    random: float
    labelled: int


def with_files(config: PotentialConfig, directory: Path) -> PotentialConfig:
    """Return the configuration that reads the files of a run; of files, the same.

    Raises:
        DataError: they are not there, as beside a model that was copied.
    """
    if config.data.generator is None:
        return config
    folder = Path(directory) / FOLDER
    if not folder.is_dir():
        raise DataError("no frames that were made for the training", where=str(folder),
                        fix="the run directory, or a file of frames to evaluate on")  # fmt: skip
    files = _files(folder, config)
    held, tested = config.data.teaching.validation, config.data.teaching.held_out
    return _reading(config, files[tested:], files[:held], files[held:tested])


def make_files(config: PotentialConfig, directory: Path) -> None:
    """Label the frames of a job, those that are not there yet.

    Raises:
        ConfigError: a committee in several processes.
        NumericalError: a sample and all that were to replace it failed.
        DataError: the disk is full; finished samples are kept.
    """
    if config.data.generator is None:
        return
    if world_size() > 1:
        if config.data.teaching.committee is not None:
            raise ConfigError(
                f"a committee trains in one process, and there are {world_size()}",
                where="data.teaching.committee", fix="leave --nproc out, or committee=null",
            )  # fmt: skip
        from scitoolkit.training.processes import on_rank_zero

        on_rank_zero(lambda: _make(config, Path(directory) / FOLDER))
    else:
        _make(config, Path(directory) / FOLDER)


def first_files(config: PotentialConfig, folder: Path) -> PotentialConfig:
    """Return the configuration that reads a few samples, made now; of files, the same."""
    if config.data.generator is None:
        return config
    files = _Teacher(config, folder).make(FEW)
    return _reading(config, files[1:], files[:1], files[:1])


def rounds(directory: Path) -> list[Round]:
    """Return what the committee of a run chose; nothing for a run without one."""
    path = Path(directory) / FOLDER / CHOSEN
    if not path.is_file():
        return []
    found = json.loads(path.read_text(encoding="utf-8"))
    return [
        Round(**{**each, "candidates": {int(n): c for n, c in each["candidates"].items()}})
        for each in found
    ]


def add_rounds(results: Results, directory: Path) -> None:
    """Add a table and a figure of the committee's rounds to the results of a run."""
    found = rounds(directory)
    if not found:
        return
    labelled: list[float] = [each.labelled for each in found]
    results.tables.append(Table(
        title="Committee", columns=["labelled samples", "disagreement [eV/Å]", "of random draws"],
        rows=[[r.labelled, r.disagreement, r.random] for r in found],
        note="Mean over the samples of a round, of the largest over a frame's atoms.",
    ))  # fmt: skip
    results.figures.append(Lines(
        title="Disagreement of the committee on forces", x=labelled, x_label="labelled samples",
        y_label="eV/Å", series=[
            Series(label="chosen", y=[r.disagreement for r in found]),
            Series(label="random draws", y=[r.random for r in found], role="reference"),
        ],
    ))  # fmt: skip


def _make(config: PotentialConfig, folder: Path) -> None:
    teaching = config.data.teaching
    teacher = _Teacher(config, folder)
    committee = teaching.committee
    if committee is None:
        teacher.make(teaching.held_out + config.data.draw.samples)
        return
    done = rounds(folder.parent)
    teacher.take(done)
    count = len(_files(folder, config))
    files = teacher.make(count)
    while count < teacher.total:
        if done and done[-1].disagreement < committee.tolerance:
            log.info("the committee agrees to %.3g eV/Å", done[-1].disagreement)
            break
        done.append(_chosen(config, teacher, files, count))
        write_atomic(folder / CHOSEN, json.dumps([asdict(each) for each in done]) + "\n")
        teacher.take(done)
        count += len(done[-1].candidates)
        files = teacher.make(count)


class _Teacher:
    """The generator of a job, its draws, and which candidates were chosen."""

    def __init__(self, config: PotentialConfig, folder: Path) -> None:
        data = config.data
        self._generator: Any = data.generator
        self._seed, self._folder = config.seed, folder
        self.total: int = data.teaching.held_out + data.draw.samples
        self._draw = data.draw.model_copy(update={"samples": self.total})
        self._processes = data.teaching.processes
        self._taken: dict[int, int] = {}

    def take(self, done: Sequence[Round]) -> None:
        """Label these candidates."""
        self._taken = {number: c for each in done for number, c in each.candidates.items()}

    def make(self, count: int) -> list[Path]:
        """Label the first samples that are not there yet; return their files by number."""
        log.info("%d samples of %s", count, self._generator.name)
        files: list[Path] = self._generator.first_samples(
            self._draw, self._seed, count, self._folder, self._processes, self._taken
        )
        return files

    def candidates(self, number: int, count: int) -> list[list[Any]]:
        """Return the unlabelled frames of each candidate of a sample, as ASE atoms."""
        return [
            self._generator.unlabelled(self._draw, self._seed, number, candidate)
            for candidate in range(count)
        ]


def _files(folder: Path, config: PotentialConfig) -> list[Path]:
    """Return the files of the samples that are chosen so far, by number."""
    teaching, committee = config.data.teaching, config.data.teaching.committee
    count = teaching.held_out + config.data.draw.samples
    if committee is not None:
        chosen = sum(len(each.candidates) for each in rounds(folder.parent))
        count = min(count, teaching.held_out + committee.first + chosen)
    suffix = config.data.generator.suffix  # type: ignore[union-attr]
    return [folder / f"sample_{number:05d}{suffix}" for number in range(count)]


def _reading(
    config: PotentialConfig, train: Sequence[Path], validation: Sequence[Path],
    test: Sequence[Path],
) -> PotentialConfig:  # fmt: skip
    data = config.data.model_copy(update={
        "path": list(train), "validation": list(validation), "test": list(test), "generator": None,
    })  # fmt: skip
    return config.model_copy(update={"data": data})


def _chosen(
    config: PotentialConfig, teacher: _Teacher, files: Sequence[Path], begin: int
) -> Round:  # fmt: skip
    """Train the members on the samples before `begin`; choose candidates of the next ones."""
    teaching, committee = config.data.teaching, config.data.teaching.committee
    assert committee is not None
    held = teaching.held_out
    reading = _reading(config, files[held:], files[: teaching.validation], [])
    members = [_member(reading, number, begin) for number in range(committee.members)]
    candidates, best, first = {}, [], []
    for number in range(begin, min(begin + committee.per_round, teacher.total)):
        found = [
            np.mean([_disagreement(members, atoms) for atoms in frames])
            for frames in teacher.candidates(number, committee.candidates)
        ]
        candidates[number] = int(np.argmax(found))
        best.append(max(found))
        first.append(found[0])
    told = Round(candidates, float(np.mean(best)), float(np.mean(first)), begin - held)
    log.info(
        "committee of %d after %d samples: disagreement %.3g eV/Å, of random draws %.3g",
        len(members), told.labelled, told.disagreement, told.random,
    )  # fmt: skip
    return told


def _member(config: PotentialConfig, number: int, begin: int) -> Potential:
    """Return a member, trained on the files of a configuration."""
    committee = config.data.teaching.committee
    assert committee is not None
    seed = derive_seed(config.seed, _KEY, begin, number) % 2**31
    model = committee.model or config.model
    training = config.training.model_copy(
        update={"steps": committee.steps, "seed": seed, "progress": False, "loggers": ()}
    )
    settings = {"model": model.model_copy(update={"seed": seed}), "training": training}
    ready = prepare(config.model_copy(update=settings))
    trainer = Trainer(PotentialTask(ready.model, config.loss, training.schedule), training)
    trainer.fit(
        GraphLoader(ready.train, training.batch_size, seed=training.seed),
        GraphLoader(ready.validation, 1, shuffle=False),
    )
    trainer.load_best()
    return ready.model.eval()


def _disagreement(members: Sequence[Potential], atoms: Any) -> float:
    return model_deviation(members, checked(from_ase(atoms)))["force_max"]
