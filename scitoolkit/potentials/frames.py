"""Frames that a potential is trained on, or applied to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from itertools import pairwise
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.content import shipped_path
from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.atoms import AtomsCollection, Configuration, LabelConfig, open_atoms
from scitoolkit.potentials.config import FrameWeights, PotentialConfig
from scitoolkit.potentials.copies import originals
from scitoolkit.potentials.data import GraphSet
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.model_config import ModelConfig
from scitoolkit.potentials.reference_energies import training_frames

log: Logger = get_logger(__name__)


@dataclass
class Frames:
    """Frames in eV and Å.

    Attributes:
        all: the frames.
        where: for messages.
        of_job: whether the configuration names them, or its generator made them.
        parts: numbers of the frames of each part, of the files to train on.
        labelled: frames of `data.path` without the isolated atoms that give E0.
        trained_files: of the training part.
        isolated: energies of isolated atoms, eV by species; None if E0 is from another source.
        settings: of the model to train.
        type_map: of the model to train.
        source: in fine-tuning, the model of the start.
        present: in fine-tuning, the elements of the training frames, replayed ones included.
        graphs: training graphs, with replayed ones if configured, and validation graphs, whose
            neighbour lists all stages share.
        network: what is trained: the model, or it with the readout of a former training.
        e0_source: origin of E0, once it is set.
    """

    all: AtomsCollection
    where: str
    of_job: bool = False
    parts: Mapping[str, list[int]] = field(default_factory=dict)
    labelled: AtomsCollection = field(default_factory=lambda: AtomsCollection([]))
    trained_files: Sequence[Path] = ()
    isolated: Mapping[str, float] | None = None
    settings: ModelConfig | None = None
    type_map: Sequence[str] = ()
    source: Potential | None = None
    present: set[str] = field(default_factory=set)
    graphs: dict[str, GraphSet] = field(default_factory=dict)
    network: Any = None
    e0_source: str = ""

    def part(self, name: str) -> AtomsCollection:
        """Return the frames of a part."""
        return self.all.subset(self.parts[name])

    def sample(self, config: PotentialConfig) -> list[Batch]:
        """Return the training graphs that determine statistics."""
        return list(self.graphs["train"].spread(config.statistics_frames))

    def e0_is_fitted(self, config: PotentialConfig) -> bool:
        """Return whether E0 is from least squares, not from isolated atoms or the configuration."""
        return isinstance(config.e0, str) and self.isolated is None


def frames_of_job(config: PotentialConfig, *, generated: bool) -> Frames:
    """Open the files that a job trains on, and divide their frames.

    Args:
        config: with `data.path`.
        generated: whether a generator made the files, so that `data.test` is a part of them.
    """
    data = config.data
    files = open_atoms(data.path, data.labels)
    cutoff = config.model.cutoff
    separated = training_frames(files, config.e0, config.type_map, cutoff)
    held_out = (("validation", "test") if generated else ("validation",)) if data.validation else ()
    labelled = weighted(separated.frames, config)
    sources = [labelled, *(open_atoms(getattr(data, n), data.labels) for n in held_out)]
    ends = [0, *np.cumsum([len(source) for source in sources]).tolist()]
    parts = {n: list(range(*e)) for n, e in zip(("train", *held_out), pairwise(ends), strict=True)}
    frames = sources[0]
    if held_out:
        frames = AtomsCollection(sources, _in_standard_units(data.labels))
    else:
        shares = held_out_share(config, frames)
        parts = dict(zip(("train", "validation"), (s.tolist() for s in shares), strict=True))
    where = str(data.path[0]) if len(data.path) == 1 else "data.path"
    return Frames(
        frames,
        where,
        of_job=True,
        parts=parts,
        labelled=labelled,
        trained_files=data.path,
        isolated=separated.isolated,
        settings=config.model,
    )


class WeightedFrames:
    """Source of frames with the weights of a configuration; labels of weight 0 are left out.

    Args:
        frames: in eV and Å, with the weights that their files state.
        weights: of the configuration.
        paths: of the files.

    Raises:
        ConfigError: no frame has a configured type, or no file a configured name.
    """

    def __init__(
        self, frames: AtomsCollection, weights: FrameWeights, paths: Sequence[Path]
    ) -> None:
        self._frames, self._types = frames, weights.config_types
        self._files = {shipped_path(path): 1.0 for path in paths}
        for pattern, weight in weights.files.items():
            named = [p for p in self._files if fnmatch(str(p), pattern) or fnmatch(p.name, pattern)]
            _require(named, pattern, "files", (p.name for p in self._files))
            self._files |= {path: self._files[path] * weight for path in named}
        seen = {frame.config_type for frame in frames} if self._types else set()
        for name in self._types:
            _require(name in seen, name, "config_types", seen)

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self._frames)

    def num_atoms(self, index: int) -> int:
        """Return the number of atoms of one frame."""
        return self._frames.num_atoms(index)

    def __getitem__(self, index: int) -> Configuration:
        """Return one frame."""
        frame = self._frames[index]
        file = Path(frame.where.rpartition(": ")[0])
        factor = self._types.get(frame.config_type, 1.0)
        for path, weight in self._files.items():
            if path == file or path in file.parents:
                factor *= weight
        energy, forces, virial = (factor * weight for weight in frame.weights)
        return replace(
            frame,
            energy=frame.energy if energy else None,
            forces=frame.forces if forces else None,
            virial=frame.virial if virial else None,
            weights=(energy, forces, virial),
        )


def _require(is_there: object, name: str, key: str, names: Iterable[str]) -> None:
    if not is_there:
        raise ConfigError(
            f"no frame is of {name!r}",
            where=f"data.weights.{key}",
            allowed=", ".join(sorted(filter(None, names))) or "none: frames state no config_type",
        )


def weighted(frames: AtomsCollection, config: PotentialConfig) -> AtomsCollection:
    """Return frames of `data.path` with the weights of a job; labels of weight 0 are left out."""
    data = config.data
    source = WeightedFrames(frames, data.weights, data.path)
    return AtomsCollection([source], _in_standard_units(data.labels))


def _in_standard_units(labels: LabelConfig) -> LabelConfig:
    """Return eV and Å; a unit that the user states is not compared with the distances."""
    return LabelConfig(length_unit=None if labels.length_unit is None else "angstrom")


def held_out_share(
    config: PotentialConfig, frames: AtomsCollection
) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the training and of the held-out configurations.

    All copies of a configuration are in the same part.

    Raises:
        DataError: none are left to train on.
    """
    first = originals(frames)
    drawn = np.unique(first)
    if len(drawn) < len(frames):
        log.warning(
            "%d of %d configurations are copies of others; copies are in one part of the split",
            len(frames) - len(drawn),
            len(frames),
        )
    if len(drawn) == 1:  # copies of one configuration have no other to be held out
        drawn = first = np.arange(len(frames))
    number = max(1, round(len(drawn) * config.split.validation))
    if number >= len(drawn):
        raise DataError(f"{len(drawn)} configurations leave none to train on", where="data")
    chosen = np.random.default_rng(config.seed).permutation(drawn)[:number]
    held_out = np.isin(first, chosen)
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)
