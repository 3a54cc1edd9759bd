"""Fine-tuning: initial weights from a trained model, frozen parameters and replayed frames."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from scitoolkit.core.content import find_content
from scitoolkit.core.contracts import Batch
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.io.atoms import AtomsCollection
from scitoolkit.ops.low_rank import add_low_rank_changes
from scitoolkit.potentials.data import GraphSet
from scitoolkit.potentials.deepmd.config import DeepPotentialConfig
from scitoolkit.potentials.deepmd.weights import read_deepmd
from scitoolkit.potentials.equivariant.mace_weights import read_mace
from scitoolkit.potentials.equivariant.nequip_weights import read_nequip
from scitoolkit.potentials.facts import require_trained
from scitoolkit.potentials.former_head import FORMER
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.model_config import ModelConfig
from scitoolkit.potentials.saved import load_model
from scitoolkit.potentials.start_config import StartConfig
from scitoolkit.surrogate.fine_tuning import matched_names

CHOSEN = {"name", "precision", "seed"}
"""Settings of a model that fine-tuning takes from the configuration, not from the weights."""


def source_model(start: StartConfig) -> tuple[Potential, ModelConfig]:
    """Return the model that a training starts from, and its settings.

    Raises:
        DataError: `start.path` has no weights, or of an unsupported kind of model.
    """
    path = Path(start.path)
    if start.head is not None and path.suffix != ".pt":
        raise ConfigError(
            "only .pt files of mace-torch have several heads",
            where="start.head",
            fix="leave it out",
        )
    if path.suffix == ".pt":
        mace = read_mace(path, head=start.head)
        assert isinstance(mace.config, ModelConfig)
        return mace, mace.config
    if path.suffix == ".dp":
        deep = read_deepmd(path)
        return deep, deep.config
    if path.suffix == ".ckpt":
        nequip = read_nequip(path)
        assert isinstance(nequip.config, ModelConfig)
        return nequip, nequip.config
    model, config, _ = load_model(find_content("surrogates", start.path))
    return model, config.model


def source_facts(start: StartConfig) -> DataFacts | None:
    """Return the facts of the data that the weights were trained on; None for other programs'."""
    if Path(start.path).suffix in (".pt", ".dp", ".ckpt"):
        return None
    return ModelFolder(find_content("surrogates", start.path)).facts()


def started_settings(wanted: ModelConfig, source: ModelConfig) -> ModelConfig:
    """Return the settings of the fine-tuned model: those of `source`, with `CHOSEN` of `wanted`.

    Raises:
        ConfigError: `wanted` has a setting that differs from the weights' model.
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
        )
    chosen = {
        key: getattr(wanted, key)
        for key in wanted.model_fields_set & (CHOSEN - {"name"})
        if key in type(source).model_fields
    }
    return type(source)(**(source.model_dump() | chosen))


def merged_species(known: Sequence[str], found: Sequence[str], start: StartConfig) -> list[str]:
    """Return the type map of the fine-tuned model: the weights' elements, then new ones.

    Raises:
        DataError: there are new elements, and `start.new_elements` is `refuse`.
    """
    new = [name for name in found if name not in known]
    if new and start.new_elements == "refuse":
        raise DataError(
            f"the weights of {start.path} do not know {', '.join(new)}",
            where="data.path",
            allowed=", ".join(known),
            fix="start.new_elements=add (random initial weights)",
        )
    return [*known, *new]


@torch.no_grad()
def adopt(model: Potential, source: Potential) -> None:
    """Copy the weights of a model with the same settings and the same or fewer elements.

    Raises:
        ConfigError: `model` has more elements, and its kind cannot be extended.
    """
    if source.interaction is not None:
        model.add_interaction()
    if model.type_map == source.type_map:
        model.load_state_dict(source.state_dict())
    else:
        model.extend(source)


def train_low_rank(model: Potential, start: StartConfig, seed: int) -> None:
    """Train low-rank changes of the parameters of `start.low_rank`; freeze all others.

    Separate readouts of two heads are trained whole.

    Raises:
        ConfigError: a pattern matches no parameter.
    """
    if start.low_rank is None:
        return
    names = {name: p for name, p in model.named_parameters() if p.requires_grad}
    chosen = matched_names(names, start.low_rank.parameters, "start.low_rank.parameters")
    whole = matched_names(names, model.readout, "readout") if start.heads == "separate" else set()
    generator = torch.Generator().manual_seed(seed)
    add_low_rank_changes(model, sorted(chosen - whole), start.low_rank.rank, generator)
    for name in names.keys() - chosen - whole:
        names[name].requires_grad_(False)


@torch.no_grad()
def keep_absent(
    model: Potential, settings: ModelConfig, source: Potential, present: Collection[str]
) -> None:
    """Copy the weights of elements without training frames from the start, bit for bit.

    Their gradients are zero, but weight decay and momentum move them.

    Args:
        model: trained.
        settings: of the model.
        source: the model of the start; its elements come first.
        present: elements of the training frames.
    """
    start = source
    if source.type_map != model.type_map:
        start = settings.build(model.type_map)
        start.extend(source)
    kinds = len(source.type_map)
    absent = [k for k in range(kinds) if model.type_map[k] not in present]
    if not absent:
        return
    alone = torch.zeros(len(model.type_map), dtype=torch.bool)
    alone[absent] = True
    # Networks of pairs are not trained if either of the two is absent.
    pairs = (alone[:, None] | alone[None]).flatten()
    for own, theirs in zip(model.species_weights(), start.species_weights(), strict=True):
        rows = alone if len(own) == len(alone) else pairs
        own[rows.to(own.device)] = theirs[rows].to(own)


@torch.no_grad()
def perturb(model: Potential, relative: float, seed: int) -> None:
    """Add Gaussian noise to the trainable parameters, in place.

    Args:
        model: with frozen parameters, which do not change.
        relative: standard deviation of the noise over the root mean square of each parameter.
        seed: of the noise.
    """
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            scale = relative * parameter.double().square().mean().sqrt()
            parameter.add_((scale * noise).to(parameter))


def drawn_replay(frames: AtomsCollection, number: int | None, seed: int) -> list[int]:
    """Return the indices of the replayed frames, all if `number` is None.

    Raises:
        DataError: there are fewer than `number` frames.
    """
    if number is None:
        return list(range(len(frames)))
    if number > len(frames):
        raise DataError(
            f"start.replay has {len(frames)} frames, {number} are configured",
            where="start.replay_frames",
            fix=f"start.replay_frames={len(frames)}",
        )
    chosen = np.random.default_rng(seed).choice(len(frames), number, replace=False)
    return np.sort(chosen).tolist()


class ReplayedGraphs(GraphSet):
    """New configurations followed by those of the former training, shifted to the new E0.

    Args:
        new: configurations to fine-tune on.
        former: configurations of the former training, with energies on the former E0.
        change: new minus former E0 of each species, eV, shape (T,); None for a head of their own.
    """

    def __init__(self, new: GraphSet, former: GraphSet, change: Tensor | None) -> None:
        self._new, self._former, self._change = new, former, change

    @property
    def listed(self) -> int:  # type: ignore[override]
        """Number of neighbour lists built so far."""
        return self._new.listed + self._former.listed

    def __len__(self) -> int:
        """Return the number of new and former configurations."""
        return len(self._new) + len(self._former)

    def __getitem__(self, number: int) -> Batch:
        """Return the graph of one configuration."""
        if number < len(self._new):
            return self._new[number]
        graph = self._former[number - len(self._new)]
        if self._change is None:
            return {**graph, "head": torch.tensor([FORMER])}
        if "energy" not in graph:
            return graph
        return {**graph, "energy": graph["energy"] + self._change[graph["types"]].sum()}

    def spread(self, most: int) -> Iterator[Batch]:
        """Yield at most `most` of the new graphs, evenly spread over the set."""
        return self._new.spread(most)


def replayed(
    start: StartConfig, seed: int, model: Potential, source: Potential, frames: AtomsCollection
) -> tuple[GraphSet, Tensor | None]:
    """Return graphs of the former training, and the change of their E0; see `ReplayedGraphs`.

    Args:
        start: of the configuration.
        seed: of the draw of frames.
        model: with its E0.
        source: the model of the start.
        frames: of the files of `start.replay`.
    """
    frames.check(energy=False, forces=False)
    require_trained(source_facts(start), frames, "start.replay")
    change = None
    if start.heads == "shared":
        change = _constants(model).double()
        change[: len(source.type_map)] -= _constants(source)
    chosen = drawn_replay(frames, start.replay_frames, seed)
    return GraphSet(frames, chosen, model.type_map, model.cutoff), change


@torch.no_grad()
def _constants(model: Potential) -> Tensor:
    """Return the constant part of the energy of an atom with neighbours by species, eV, (T,)."""
    constants = model.get_buffer("shift").detach().cpu().clone()
    if model.is_pinned:
        constants -= model.lone_network_energies().cpu()
    if model.interaction is not None:
        constants += model.interaction.means.detach().cpu()
    return constants
