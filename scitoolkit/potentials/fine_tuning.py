"""Fine-tuning: a model that starts from trained weights, and the frames of their training."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from scitoolkit.core.content import find_content
from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.io.atoms import AtomsCollection
from scitoolkit.potentials.data import GraphSet
from scitoolkit.potentials.deepmd.config import DeepPotentialConfig
from scitoolkit.potentials.deepmd.weights import read_deepmd
from scitoolkit.potentials.equivariant.mace_weights import read_mace
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.model_config import ModelConfig
from scitoolkit.potentials.saved import load_model
from scitoolkit.potentials.start_config import StartConfig

CHOSEN = {"name", "precision", "seed"}
"""Settings of a model that fine-tuning does not take from the weights."""


def source_model(start: StartConfig) -> tuple[Potential, ModelConfig]:
    """Return the model that a training starts from, and its settings.

    Raises:
        DataError: no weights there, or of a kind that is not understood.
    """
    path = Path(start.path)
    if path.suffix == ".pt":
        mace = read_mace(path)
        assert isinstance(mace.config, ModelConfig)
        return mace, mace.config
    if path.suffix == ".dp":
        deep = read_deepmd(path)
        return deep, deep.config
    model, config, _ = load_model(find_content("surrogates", start.path))
    return model, config.model


def started_settings(wanted: ModelConfig, source: ModelConfig) -> ModelConfig:
    """Return the settings of the model that starts from weights of `source`.

    Raises:
        ConfigError: the configuration asks for another model than that of the weights.
    """
    names, theirs = {source.name}, source.model_dump()
    if isinstance(source, DeepPotentialConfig) and len(source.descriptors) == 1:
        (descriptor,) = source.descriptors
        names.add(descriptor.name)
        theirs = descriptor.model_dump() | theirs
    ours = wanted.model_dump()
    different = [k for k in sorted(wanted.model_fields_set - CHOSEN) if ours[k] != theirs.get(k)]
    if wanted.name not in names:
        different = ["name"]
    if different:
        key = different[0]
        raise ConfigError(
            f"model.{key} is {ours[key]!r}, the weights of start.path have {theirs.get(key)!r}",
            where=f"model.{key}",
            fix=f"model: {{name: {source.name if key == 'name' else wanted.name}}}",
        )  # fmt: skip
    given = {
        key: getattr(wanted, key)
        for key in wanted.model_fields_set & (CHOSEN - {"name"})
        if key in type(source).model_fields
    }
    return type(source)(**(source.model_dump() | given))


def merged_species(known: Sequence[str], found: Sequence[str], start: StartConfig) -> list[str]:
    """Return the type map: the weights' elements, then new ones.

    Raises:
        DataError: new elements are to be refused.
    """
    new = [name for name in found if name not in known]
    if new and start.new_elements == "refuse":
        raise DataError(
            f"the weights of {start.path} do not know {', '.join(new)}", where="data.path",
            allowed=", ".join(known), fix="start.new_elements=add, which trains them from random",
        )  # fmt: skip
    return [*known, *new]


@torch.no_grad()
def adopt(model: Potential, source: Potential) -> None:
    """Copy the weights of a model of the same settings that knows the first of the elements.

    Raises:
        ConfigError: `model` knows more elements, and its kind cannot be extended.
    """
    if model.type_map == source.type_map:
        model.load_state_dict(source.state_dict())
    else:
        model.extend(source)


def freeze(model: Potential, patterns: Sequence[str]) -> int:
    """Stop the training of parameters by their names; return how many numbers are still trained.

    Raises:
        ConfigError: a pattern that no parameter has, or nothing left to train.
    """
    names = dict(model.named_parameters())
    for pattern in patterns:
        matched = fnmatch.filter(names, pattern)
        if not matched:
            raise ConfigError(
                f"no parameter is called {pattern!r}", where="start.frozen",
                allowed=", ".join(sorted({_group(name) for name in names})),
                fix=nearest_name(pattern, list(names)) or "",
            )  # fmt: skip
        for name in matched:
            names[name].requires_grad_(False)
    left = sum(p.numel() for p in names.values() if p.requires_grad)
    if not left:
        raise ConfigError("all parameters are frozen, none is left to train", where="start.frozen")
    return left


def _group(name: str) -> str:
    """Return the pattern of a parameter's module: `layers.0.*` of `layers.0.convolution.up.0`."""
    parts = name.split(".")
    return name if len(parts) == 1 else f"{'.'.join(parts[:2])}*"


def drawn_replay(frames: AtomsCollection, number: int | None, seed: int) -> list[int]:
    """Return which frames of the former training are trained on.

    Raises:
        DataError: there are fewer than wanted.
    """
    if number is None:
        return list(range(len(frames)))
    if number > len(frames):
        raise DataError(
            f"start.replay has {len(frames)} frames, {number} are wanted",
            where="start.replay_frames", fix=f"start.replay_frames={len(frames)}",
        )  # fmt: skip
    chosen = np.random.default_rng(seed).choice(len(frames), number, replace=False)
    return np.sort(chosen).tolist()


class ReplayedGraphs(GraphSet):
    """New configurations, then those of the former training with energies on the new E0.

    Args:
        new: what is learned.
        former: of the former training, another level of E0.
        change: of E0 by species, eV, shape (T,).
    """

    def __init__(self, new: GraphSet, former: GraphSet, change: Tensor) -> None:
        self._new, self._former, self._change = new, former, change.double()

    @property
    def listed(self) -> int:  # type: ignore[override]
        """Neighbour lists that were made."""
        return self._new.listed + self._former.listed

    def __len__(self) -> int:
        """Return the number of configurations of both."""
        return len(self._new) + len(self._former)

    def __getitem__(self, number: int) -> Batch:
        """Return the graph of one configuration."""
        if number < len(self._new):
            return self._new[number]
        graph = self._former[number - len(self._new)]
        if "energy" not in graph:
            return graph
        return {**graph, "energy": graph["energy"] + self._change[graph["types"]].sum()}

    def spread(self, most: int) -> Iterator[Batch]:
        """Yield at most `most` of the new graphs, evenly spread."""
        return self._new.spread(most)
