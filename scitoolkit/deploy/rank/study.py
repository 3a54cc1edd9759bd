"""Times and output changes of the ranks of each layer, and the optimal choice of all ranks.

Squared changes by single layers are added, as if they were independent. The choice of ranks is then
a multiple-choice knapsack, which is solved exactly (the selection after training of HALOC, Xiao et
al. 2023, doi:10.1609/aaai.v37i9.26244, with measured times).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy.agreement import copies
from scitoolkit.deploy.builder import Processor
from scitoolkit.deploy.rank.joined import by_public_name, joined, samples_of
from scitoolkit.deploy.rank.knapsack import least_cost
from scitoolkit.deploy.rank.score import SCORED, Score
from scitoolkit.deploy.rank.table import Ranks, Shape, Use, candidate_ranks, measured
from scitoolkit.ops.low_rank import InputMoments, factors, full_ranks, layers_of, replaced

SEEN = 16
"""Number of samples on which inputs of layers are recorded."""
WORTH = 0.97
"""Largest time of a useful low-rank form relative to the layer."""


@dataclass(frozen=True)
class Option:
    """A layer at given ranks.

    Attributes:
        ranks: None for the original layer.
        seconds: of all calls of the layer in one call of the model.
        cost: mean squared change of the model's outputs if only this layer is replaced, relative to
            the mean square of their changes in a step, or of their deviation from the mean.
        weights: number of stored weights.
    """

    ranks: Ranks | None
    seconds: float
    cost: float
    weights: int


@dataclass(frozen=True)
class Layer:
    """A layer and its useful options; the first one is the original layer."""

    name: str
    full: Ranks
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Study:
    """Measured options of all layers of a surrogate.

    Attributes:
        functions: the original functions.
        layers: layers that are called and can be factorised, in the order of the model.
        moments: second moments of the inputs of layers.
    """

    functions: Sequence[TracedFunction]
    layers: Sequence[Layer]
    moments: Mapping[str, Tensor]

    def chosen(
        self, share: float, costs: Sequence[Sequence[float]] | None = None
    ) -> dict[str, Option]:
        """Return {layer: option} of least cost within a share of the layers' time.

        Args:
            share: of the time of the original layers.
            costs: of the options of each layer; by default those of the options.

        Raises:
            ConfigError: the smallest ranks take more time.
        """
        costs = costs or [[o.cost for o in layer.options] for layer in self.layers]
        sizes = [[o.seconds for o in layer.options] for layer in self.layers]
        places = least_cost(sizes, costs, share * self.seconds())
        if places is None:
            raise ConfigError(
                f"time_share {share:g}",
                where="time_share",
                allowed=f"{self.least_share():.2f} and more, by the table of this machine",
                fix=f"time_share={np.ceil(100 * self.least_share() + 1) / 100:g}",
            )
        return {layer.name: layer.options[k] for layer, k in zip(self.layers, places, strict=True)}

    def seconds(self) -> float:
        """Return the seconds of the original layers."""
        return sum(layer.options[0].seconds for layer in self.layers)

    def least_share(self) -> float:
        """Return the share of the layers' time that the smallest ranks take."""
        least = sum(min(o.seconds for o in layer.options) for layer in self.layers)
        return least / self.seconds()

    def gain(self, chosen: Mapping[str, Option]) -> float:
        """Return the seconds that a choice saves compared with the original layers."""
        return sum(layer.options[0].seconds - chosen[layer.name].seconds for layer in self.layers)

    def share(self, chosen: Mapping[str, Option]) -> float:
        """Return the time of a choice relative to the original layers."""
        return 1 - self.gain(chosen) / self.seconds()

    def lowered(self, chosen: Mapping[str, Ranks]) -> list[TracedFunction]:
        """Return functions with replaced layers; the original ones are not modified."""
        root = joined(copies([f.module for f in self.functions]))
        self._replace(root, chosen)
        return [
            replace(f, module=root.get_submodule(f"f{k}")) for k, f in enumerate(self.functions)
        ]

    def _replace(self, root: nn.Module, chosen: Mapping[str, Ranks]) -> None:
        names = by_public_name(root)
        inner = {names[name]: ranks for name, ranks in chosen.items()}
        own = {names[name]: self.moments[name] for name in chosen}
        replaced(root, inner, lambda name, layer, ranks: factors(layer, ranks, own[name]))


def ranks_of(chosen: Mapping[str, Option]) -> dict[str, Ranks]:
    """Return the ranks of the layers that are replaced."""
    return {name: option.ranks for name, option in chosen.items() if option.ranks is not None}


def study(
    functions: Sequence[TracedFunction],
    typical: Sequence[Sequence[np.ndarray]],
    keep: Sequence[str],
    target: Processor,
    sweep: int,
) -> Study:
    """Return the measured options of all layers of a surrogate.

    Args:
        functions: of the surrogate; not modified.
        typical: typical inputs of each function.
        keep: names of layers that are not changed, including their children.
        target: processor.
        sweep: bytes of the model's weights and workspace.

    Raises:
        ConfigError: no layer can be factorised, or an unknown layer in `keep`.
        BackendError: no compiler.
    """
    root = joined(copies([f.module for f in functions]))
    public = {inner: name for name, inner in by_public_name(root).items()}
    _check_names(set(public.values()), keep, "keep")
    candidates = {
        public[names[0]]: layer
        for names, layer in layers_of(root)
        if not any(_below(public[n], k) for n in names for k in keep)
    }
    shapes = _shapes(root, functions, typical, candidates)
    if not shapes:
        raise ConfigError(
            "low rank applies to linear layers and convolutions without groups, and this "
            "surrogate calls none",
            where="time_share",
            allowed="layers called as modules; weights given to functional.linear stay as they are",
            fix="leave time_share out",
        )
    moments = _moments(root, functions, typical, {n: candidates[n] for n in shapes})
    uses = [Use(name, candidates[name], shapes[name]) for name in shapes]
    ranks = {u.name: [None, *candidate_ranks(full_ranks(u.layer), target.lanes)] for u in uses}
    seconds = measured(uses, ranks, target, sweep)
    score = Score(root, functions, typical, SCORED)
    layers = []
    for use in uses:
        options = [Option(None, seconds[use.name][None], 0.0, _weights(use.layer))]
        inner = next(i for i, n in public.items() if n == use.name)
        for own in _worth(seconds[use.name]):
            with torch.no_grad():
                made = factors(use.layer, own, moments[use.name])
            cost = score.with_layer(inner, made)
            options.append(Option(own, seconds[use.name][own], cost, _weights(made)))
        layers.append(Layer(use.name, full_ranks(use.layer), tuple(options)))
    return Study(functions, layers, moments)


def with_ranks(
    functions: Sequence[TracedFunction],
    typical: Sequence[Sequence[np.ndarray]],
    ranks: Mapping[str, Sequence[int]],
) -> list[TracedFunction]:
    """Return functions with some layers replaced by factors of given ranks.

    Args:
        functions: float32 functions; not modified.
        typical: typical inputs of each function, for which the changes are minimised.
        ranks: {layer: ranks}.

    Raises:
        ConfigError: a layer that does not exist or cannot be factorised, or invalid ranks.
    """
    root = joined(copies([f.module for f in functions]))
    names = by_public_name(root)
    by_inner = {name: layer for own, layer in layers_of(root) for name in own}
    layers = {name: by_inner[inner] for name, inner in names.items() if inner in by_inner}
    _check_names(layers, list(ranks), "ranks")
    moments = _moments(root, functions, typical, {name: layers[name] for name in ranks})
    chosen = {name: tuple(own) for name, own in ranks.items()}
    return Study(functions, (), moments).lowered(chosen)


def _moments(
    root: nn.Module,
    functions: Sequence[TracedFunction],
    typical: Sequence[Sequence[np.ndarray]],
    layers: Mapping[str, nn.Module],
) -> dict[str, Tensor]:
    """Return the second moments of the inputs of each layer; the identity without calls."""
    with torch.no_grad(), InputMoments(layers) as seen:
        for k, (function, arrays) in enumerate(zip(functions, typical, strict=True)):
            for sample in samples_of(function, arrays, SEEN):
                root.get_submodule(f"f{k}")(*sample)
    return {
        name: seen[name] if name in seen else torch.eye(_inputs(layer), dtype=torch.float64)
        for name, layer in layers.items()
    }


def _inputs(layer: nn.Module) -> int:
    weight = layer.weight
    assert isinstance(weight, Tensor)
    return weight.shape[1]


def _worth(seconds: Mapping[Ranks | None, float]) -> list[Ranks]:
    """Return ranks that are faster than the layer and than all componentwise larger ranks."""
    dense = seconds[None]
    faster = {r: s for r, s in seconds.items() if r is not None and s < WORTH * dense}
    return [
        r
        for r, s in faster.items()
        if not any(
            o != r and t <= s and all(a >= b for a, b in zip(o, r, strict=True))
            for o, t in faster.items()
        )
    ]


def _weights(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _check_names(layers: Collection[str], names: Sequence[str], where: str) -> None:
    for name in names:
        if name not in layers:
            raise ConfigError(
                f"no layer {name!r}",
                where=where,
                allowed=", ".join(sorted(layers)),
                fix=nearest_name(name, sorted(layers)) or "a name of a layer",
            )


def _below(name: str, parent: str) -> bool:
    return name == parent or name.startswith(f"{parent}.")


def _shapes(
    root: nn.Module,
    functions: Sequence[TracedFunction],
    typical: Sequence[Sequence[np.ndarray]],
    layers: Mapping[str, nn.Module],
) -> dict[str, tuple[Shape, ...]]:
    """Return the input shapes of all calls of each layer in one call of each function, in order."""
    by_layer: dict[str, list[Shape]] = {}
    hooks = [
        layer.register_forward_pre_hook(
            lambda _, args, name=name: by_layer.setdefault(name, []).append(tuple(args[0].shape))
        )
        for name, layer in layers.items()
    ]
    try:
        with torch.no_grad():
            for k, (function, arrays) in enumerate(zip(functions, typical, strict=True)):
                root.get_submodule(f"f{k}")(*samples_of(function, arrays, 1)[0])
    finally:
        for hook in hooks:
            hook.remove()
    return {name: tuple(shapes) for name, shapes in by_layer.items()}
