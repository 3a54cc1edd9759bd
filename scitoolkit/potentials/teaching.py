"""Training data of a potential that a generator labels, optionally chosen by a committee.

The samples of a job have one numbering, that of `data.draw`: first the validation and test samples,
then the training samples. A sample is a file of the run directory that stores parameters and seed.
With a committee, each training sample after the first ones has several independently drawn
candidates, and the one with the largest disagreement is labelled. The choice is written to disk
before the candidate is labelled, so that a resumed run labels the same one.

Query by committee: Seung, Opper and Sompolinsky 1992; of forces: Zhang et al., Phys. Rev. Materials
3, 023804 (2019).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.log import get_logger
from scitoolkit.core.results import Lines, Results, Table
from scitoolkit.core.seeds import derive_seed
from scitoolkit.io.ase_frames import from_ase
from scitoolkit.io.atoms import checked
from scitoolkit.ops.low_rank import merge_low_rank_changes
from scitoolkit.potentials.committee import model_deviation
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.fine_tuning import perturb
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.reference_energies import refit_energies
from scitoolkit.potentials.teaching_config import CommitteeConfig
from scitoolkit.surrogate import Stages, start
from scitoolkit.surrogate.samples import ProducedSamples
from scitoolkit.surrogate.sections import curves
from scitoolkit.training import Trainer, world_size
from scitoolkit.training.processes import on_rank_zero

log: logging.Logger = get_logger(__name__)
FOLDER, CHOSEN = "frames", "chosen.json"
_KEY = 0xC0
FEW = 3


@dataclass(frozen=True)
class Round:
    """Choices of a committee in one round.

    Attributes:
        candidates: {sample number: number of its chosen candidate}.
        disagreement: force deviation of the chosen candidates, eV/Å: largest over a frame's atoms,
            mean over samples.
        random: the same for the first candidates, which random draws would have labelled.
        labelled: number of samples that the members were trained on.
    """

    candidates: dict[int, int]
    disagreement: float
    random: float
    labelled: int


def files_of(config: PotentialConfig, directory: Path) -> list[Path]:
    """Return the labelled files of a run, by number.

    Raises:
        DataError: the run has none, such as a copied `model/` folder.
    """
    folder = Path(directory) / FOLDER
    if not folder.is_dir():
        raise DataError(
            "the frames labelled for the training are missing",
            where=str(folder),
            fix="the run directory, or a file of frames to evaluate on",
        )
    samples = _samples(config, folder)
    return samples.paths(_chosen_so_far(config, samples))


def with_files(
    config: PotentialConfig, files: Sequence[Path], *, few: bool = False
) -> PotentialConfig:
    """Return the configuration with files by number instead of the generator, or those of `few`."""
    held, tested = config.data.teaching.validation, config.data.teaching.held_out
    if few:
        return _reading(config, files[1:FEW], files[:1], [])
    return _reading(config, files[tested:], files[:held], files[held:tested])


def make_files(
    stages: Stages,
    config: PotentialConfig,
    directory: Path,
    *,
    begun: bool = False,
    sample: bool = False,
) -> None:
    """Label the missing frames of a job.

    Args:
        stages: of potentials, which train the members of a committee.
        config: with a generator.
        directory: of the run.
        begun: whether a checkpoint will be resumed, which fixes the number of samples.
        sample: whether to label a few samples, for a dry run.

    Raises:
        ConfigError: a committee in several processes, or another number of samples than the
            checkpoint was trained on.
        NumericalError: a sample and all its replacements failed.
        DataError: the disk is full; finished samples are kept.
    """
    folder = Path(directory) / FOLDER
    if sample:
        _samples(config, folder).files(FEW)
        return
    if world_size() > 1 and config.data.teaching.committee is not None:
        raise ConfigError(
            f"a committee trains in one process, and there are {world_size()}",
            where="data.teaching.committee",
            fix="leave --nproc out, or committee=null",
        )
    on_rank_zero(lambda: _make(stages, config, folder, begun))


def rounds(directory: Path) -> list[Round]:
    """Return the rounds of a run's committee; empty for a run without one."""
    path = Path(directory) / FOLDER / CHOSEN
    if not path.is_file():
        return []
    stored = json.loads(path.read_text(encoding="utf-8"))
    return [
        Round(**{**entry, "candidates": {int(n): c for n, c in entry["candidates"].items()}})
        for entry in stored
    ]


def add_rounds(results: Results, config: PotentialConfig, directory: Path) -> None:
    """Add a table and a figure of the committee's rounds to the results of a run."""
    finished, committee = rounds(directory), config.data.teaching.committee
    if not finished or committee is None:
        return
    note = "Mean over the samples of a round, of the largest over a frame's atoms."
    if config.start is not None:
        note = f"{note} {_common_start(committee)}"
    labelled: list[float] = [past.labelled for past in finished]
    results.tables.append(
        Table(
            title="Committee",
            columns=["labelled samples", "disagreement [eV/Å]", "of random draws"],
            rows=[[r.labelled, r.disagreement, r.random] for r in finished],
            note=note,
        )
    )
    results.figures.append(
        Lines(
            title="Disagreement of the committee on forces",
            x=labelled,
            x_label="labelled samples",
            y_label="eV/Å",
            series=curves(
                {
                    "chosen": [past.disagreement for past in finished],
                    "random draws": [past.random for past in finished],
                },
                references=["random draws"],
            ),
        )
    )


def _common_start(committee: CommitteeConfig) -> str:
    """Return a note on the disagreement of members that start from the same weights."""
    if committee.perturbation:
        return (
            "All members start from the weights of start.path, each with noise of "
            f"{committee.perturbation:g} of the root mean square of each trained parameter: the "
            "disagreement ranks candidates and is no estimate of the error."
        )
    return (
        "All members start from the weights of start.path, without perturbation: they differ only "
        "in the order of the frames, and their disagreement is far below the error."
    )


def _make(stages: Stages, config: PotentialConfig, folder: Path, begun: bool) -> None:
    samples, committee = _samples(config, folder), config.data.teaching.committee
    done, count = rounds(folder.parent), _chosen_so_far(config, samples)
    agreed = committee is not None and bool(done) and done[-1].disagreement < committee.tolerance
    if begun:
        _refuse_other_number(config, samples.stored(), count if agreed else samples.total)
    if committee is not None and config.start is not None and count < samples.total and not agreed:
        level = logging.INFO if committee.perturbation else logging.WARNING
        log.log(level, "%s", _common_start(committee))
    files = samples.files(count)
    while count < samples.total:
        assert committee is not None
        if done and done[-1].disagreement < committee.tolerance:
            log.info("the committee agrees to %.3g eV/Å", done[-1].disagreement)
            break
        done.append(_chosen(stages, config, samples, files, count))
        write_atomic(folder / CHOSEN, json.dumps([asdict(past) for past in done]) + "\n")
        samples.choices = _choices(done)
        count += len(done[-1].candidates)
        files = samples.files(count)


def _refuse_other_number(config: PotentialConfig, stored: int, wanted: int) -> None:
    """Refuse another number of samples than a checkpoint was trained on, before labelling any.

    A missing file is labelled again: only numbers beyond the last file count as new.

    Raises:
        ConfigError: `data.draw.samples` or the held-out numbers were changed.
    """
    if stored in (0, wanted):
        return
    held = config.data.teaching.held_out
    raise ConfigError(
        f"the run has a checkpoint, trained on {stored - held} samples; "
        f"{wanted - held} are configured",
        where="data.draw.samples",
        fix=f"data.draw.samples={stored - held} to resume, or a new run",
    )


def _samples(config: PotentialConfig, folder: Path) -> ProducedSamples:
    """Return all samples of a job, with the candidates that a committee has chosen so far."""
    data = config.data
    samples = ProducedSamples(
        data.generator,
        data.draw,
        data.teaching.held_out,
        seed=config.seed,
        folder=folder,
        processes=data.teaching.processes,
    )
    samples.choices = _choices(rounds(folder.parent))
    return samples


def _choices(done: Sequence[Round]) -> dict[int, int]:
    return {number: chosen for past in done for number, chosen in past.candidates.items()}


def _chosen_so_far(config: PotentialConfig, samples: ProducedSamples) -> int:
    """Return the number of samples that are drawn at random or chosen so far."""
    teaching, committee = config.data.teaching, config.data.teaching.committee
    if committee is None:
        return samples.total
    return min(samples.total, teaching.held_out + committee.first + len(samples.choices))


def _reading(
    config: PotentialConfig, train: Sequence[Path], validation: Sequence[Path], test: Sequence[Path]
) -> PotentialConfig:
    data = config.data.model_copy(
        update={
            "path": list(train),
            "validation": list(validation),
            "test": list(test),
            "generator": None,
        }
    )
    return config.model_copy(update={"data": data})


def _chosen(
    stages: Stages,
    config: PotentialConfig,
    samples: ProducedSamples,
    files: Sequence[Path],
    begin: int,
) -> Round:
    """Train the members on the samples before `begin` and choose candidates of the next ones."""
    teaching, committee = config.data.teaching, config.data.teaching.committee
    assert committee is not None
    held = teaching.held_out
    reading = _reading(config, files[held:], files[: teaching.validation], [])
    members = [_member(stages, reading, number, begin) for number in range(committee.members)]
    candidates, best, first = {}, [], []
    for number in range(begin, min(begin + committee.per_round, samples.total)):
        disagreements = [
            np.mean([_disagreement(members, atoms) for atoms in frames])
            for frames in samples.candidates(number, committee.candidates)
        ]
        candidates[number] = int(np.argmax(disagreements))
        best.append(max(disagreements))
        first.append(disagreements[0])
    told = Round(candidates, float(np.mean(best)), float(np.mean(first)), begin - held)
    log.info(
        "committee of %d after %d samples: disagreement %.3g eV/Å, of random draws %.3g",
        len(members),
        told.labelled,
        told.disagreement,
        told.random,
    )
    return told


def _member(stages: Stages, config: PotentialConfig, number: int, begin: int) -> Potential:
    """Return a trained member of the round that begins at sample `begin`."""
    committee = config.data.teaching.committee
    assert committee is not None
    seed = derive_seed(config.seed, _KEY, begin, number) % 2**31
    model = committee.model or config.model
    training = config.training.model_copy(
        update={"steps": committee.steps, "seed": seed, "progress": False, "loggers": ()}
    )
    settings = {"model": model.model_copy(update={"seed": seed}), "training": training}
    begun = start(stages, config.model_copy(update=settings))
    data, member = begun.opened.data, begun.model
    if config.start is not None:
        perturb(member, committee.perturbation, seed)
        if data.e0_is_fitted(config):
            refit_energies(member, data.sample(config))
    assert begun.task is not None  # potentials train in steps
    trainer = Trainer(begun.task, training)
    trainer.fit(begun.loaders["train"], begun.loaders["validation"])
    trainer.load_best()
    begun.close()
    merge_low_rank_changes(member)
    return member.eval()


def _disagreement(members: Sequence[Potential], atoms: Any) -> float:
    return model_deviation(members, checked(from_ase(atoms)))["force_max"]
