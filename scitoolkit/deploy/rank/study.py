"""What each layer's ranks gain in time and change in outputs, and the best choice of all ranks.

Changes of single layers are added up as squares: they are taken to be independent. Ranks of all
layers are then a multiple-choice knapsack, which is solved exactly (the selection after training of
HALOC, Xiao et al. 2023, doi:10.1609/aaai.v37i9.26244, with measured times).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy.builder import Target
from scitoolkit.deploy.rank.knapsack import least_cost
from scitoolkit.deploy.rank.table import Ranks, Shape, Use, candidate_ranks, measured
from scitoolkit.ops.low_rank import Moments, factors, full_ranks, layers_of, replaced

SCORED = 3
"""Samples that changes are measured on."""
SEEN = 16
"""Samples that the inputs of layers are read from."""
WORTH = 0.97
"""Share of a layer's time below which another form is worth its error."""


@dataclass(frozen=True)
class Option:
    """A layer with some ranks.

    Attributes:
        ranks: None for the layer as it is.
        seconds: of its calls in one call of the model.
        cost: mean squared change of the model's outputs where it alone is replaced, relative to
            the mean square of their changes in a step, or of their deviation from the mean.
        weights: numbers that are stored.
    """

    ranks: Ranks | None
    seconds: float
    cost: float
    weights: int


@dataclass(frozen=True)
class Layer:
    """A layer and the options that are worth their error; the first is the layer as it is."""

    name: str
    full: Ranks
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Study:
    """Options of all layers of a surrogate, measured.

    Attributes:
        functions: as they were given.
        layers: that are called and have factors, in the order of the model.
        moments: second moments of the layers' inputs.
    """

    functions: Sequence[TracedFunction]
    layers: Sequence[Layer]
    moments: Mapping[str, Tensor]

    def chosen(self, share: float) -> dict[str, Option]:
        """Return the option of each layer: least change within a share of the layers' seconds.

        Raises:
            ConfigError: the least time is more than that.
        """
        whole = sum(layer.options[0].seconds for layer in self.layers)
        places = least_cost(
            [[o.seconds for o in layer.options] for layer in self.layers],
            [[o.cost for o in layer.options] for layer in self.layers], share * whole,
        )  # fmt: skip
        if places is None:
            raise ConfigError(
                f"time_share {share:g}", where="time_share",
                allowed=f"{self.least_share():.2f} and more, by the table of this machine",
                fix=f"time_share={np.ceil(100 * self.least_share() + 1) / 100:g}",
            )  # fmt: skip
        return {layer.name: layer.options[k] for layer, k in zip(self.layers, places, strict=True)}

    def least_share(self) -> float:
        """Return the least share of the layers' seconds that any choice takes."""
        least = sum(min(o.seconds for o in layer.options) for layer in self.layers)
        return least / sum(layer.options[0].seconds for layer in self.layers)

    def gain(self, chosen: Mapping[str, Option]) -> float:
        """Return the seconds that a choice takes less than the layers as they are."""
        return sum(layer.options[0].seconds - chosen[layer.name].seconds for layer in self.layers)

    def share(self, chosen: Mapping[str, Option]) -> float:
        """Return the seconds of a choice over those of the layers as they are."""
        whole = sum(layer.options[0].seconds for layer in self.layers)
        return 1 - self.gain(chosen) / whole

    def lowered(self, chosen: Mapping[str, Ranks]) -> list[TracedFunction]:
        """Return functions with layers replaced; those given are not changed."""
        root = _joined(copy.deepcopy([f.module for f in self.functions]))
        names = _by_public_name(root)
        inner = {names[name]: ranks for name, ranks in chosen.items()}
        own = {names[name]: self.moments[name] for name in chosen}
        replaced(root, inner, lambda name, layer, ranks: factors(layer, ranks, own[name]))
        return [replace(f, module=root.get_submodule(f"f{k}"))
                for k, f in enumerate(self.functions)]  # fmt: skip


def ranks_of(chosen: Mapping[str, Option]) -> dict[str, Ranks]:
    """Return the ranks of the layers that are replaced."""
    return {name: option.ranks for name, option in chosen.items() if option.ranks is not None}


def study(
    functions: Sequence[TracedFunction], given: Sequence[Sequence[np.ndarray]],
    keep: Sequence[str], target: Target, sweep: int,
) -> Study:  # fmt: skip
    """Return the measured options of all layers of a surrogate.

    Args:
        functions: of the surrogate; they are not changed.
        given: typical inputs of each function.
        keep: names of layers that stay as they are, each for all below it.
        target: processor.
        sweep: bytes of the model's weights and workspace.

    Raises:
        ConfigError: no layer has factors, or `keep` names one that is not there.
        BackendError: no compiler.
    """
    root = _joined(copy.deepcopy([f.module for f in functions]))
    public = {inner: name for name, inner in _by_public_name(root).items()}
    _check_names(root, public, keep)
    found = {public[names[0]]: layer for names, layer in layers_of(root)
             if not any(_below(public[n], k) for n in names for k in keep)}  # fmt: skip
    shapes = _shapes(root, functions, given, found)
    if not shapes:
        raise ConfigError(
            "low rank applies to linear layers and convolutions without groups, and this "
            "surrogate calls none", where="time_share", fix="leave time_share out",
        )  # fmt: skip
    with torch.no_grad(), Moments({n: found[n] for n in shapes}) as seen:
        for k, (function, arrays) in enumerate(zip(functions, given, strict=True)):
            for sample in _samples(function, arrays, SEEN):
                root.get_submodule(f"f{k}")(*sample)
    moments = {name: seen[name] for name in shapes}
    uses = [Use(name, found[name], shapes[name]) for name in shapes]
    ranks = {u.name: [None, *candidate_ranks(full_ranks(u.layer), target.lanes)] for u in uses}
    seconds = measured(uses, ranks, target, sweep)
    score = _Score(root, functions, given)
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


def _worth(seconds: Mapping[Ranks | None, float]) -> list[Ranks]:
    """Return ranks that are faster than the layer, and than all that are nowhere smaller."""
    dense = seconds[None]
    faster = {r: s for r, s in seconds.items() if r is not None and s < WORTH * dense}
    return [
        r for r, s in faster.items()
        if not any(o != r and t <= s and all(a >= b for a, b in zip(o, r, strict=True))
                   for o, t in faster.items())
    ]  # fmt: skip


def _weights(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _joined(modules: Sequence[nn.Module]) -> nn.Module:
    """Return one module with all of them, so that layers that several share are one."""
    root = nn.Module()
    for k, module in enumerate(modules):
        root.add_module(f"f{k}", module)
    return root.eval()


def _by_public_name(root: nn.Module) -> dict[str, str]:
    """Return the name of each module inside a joined one, by its name in its own surrogate.

    Where several functions have layers of one name that are not one, later names keep `f1.`.
    """
    out: dict[str, str] = {}
    seen: dict[str, nn.Module] = {}
    for name, module in root.named_modules(remove_duplicate=False):
        if not name:
            continue
        short = name.partition(".")[2] or type(module).__name__
        if short not in out:
            out[short], seen[short] = name, module
        elif seen[short] is not module:
            out[name] = name
    return out


def _check_names(root: nn.Module, public: Mapping[str, str], keep: Sequence[str]) -> None:
    known = set(public.values())
    for name in keep:
        if name not in known:
            raise ConfigError(
                f"no layer {name!r}", where="keep", allowed=", ".join(sorted(known)),
                fix=nearest_name(name, sorted(known)) or "a name of a layer",
            )  # fmt: skip


def _below(name: str, kept: str) -> bool:
    return name == kept or name.startswith(f"{kept}.")


def _samples(function: TracedFunction, arrays: Sequence[np.ndarray], most: int) -> list:
    """Return inputs of single samples, evenly chosen, as tensors."""
    own = [a for a, s in zip(arrays, function.inputs, strict=True) if not s.shared]
    number = len(own[0]) if own else 1
    return [
        tuple(torch.from_numpy(a if s.shared else a[k : k + 1])
              for a, s in zip(arrays, function.inputs, strict=True))
        for k in range(0, number, -(-number // most))
    ]  # fmt: skip


def _shapes(
    root: nn.Module, functions: Sequence[TracedFunction], given: Sequence[Sequence[np.ndarray]],
    layers: Mapping[str, nn.Module],
) -> dict[str, tuple[Shape, ...]]:  # fmt: skip
    """Return the shapes of all inputs of layers in one call of each function, in order."""
    found: dict[str, list[Shape]] = {}
    hooks = [
        layer.register_forward_pre_hook(
            lambda _, args, name=name: found.setdefault(name, []).append(tuple(args[0].shape))
        )
        for name, layer in layers.items()
    ]
    try:
        with torch.no_grad():
            for k, (function, arrays) in enumerate(zip(functions, given, strict=True)):
                root.get_submodule(f"f{k}")(*_samples(function, arrays, 1)[0])
    finally:
        for hook in hooks:
            hook.remove()
    return {name: tuple(shapes) for name, shapes in found.items()}


class _Score:
    """The change of a surrogate's outputs on some samples."""

    def __init__(
        self, root: nn.Module, functions: Sequence[TracedFunction],
        given: Sequence[Sequence[np.ndarray]],
    ) -> None:  # fmt: skip
        self._root = root
        self._calls = [
            (f"f{k}", sample) for k, (f, a) in enumerate(zip(functions, given, strict=True))
            for sample in _samples(f, a, SCORED)
        ]  # fmt: skip
        self._dense = self._outputs()
        self._scales = self._sizes(functions)

    def with_layer(self, name: str, layer: nn.Module) -> float:
        """Return the mean squared relative change of all outputs with one layer replaced."""
        before = self._root.get_submodule(name)
        places = [n for n, m in self._root.named_modules(remove_duplicate=False) if m is before]
        for place in places:
            self._root.set_submodule(place, layer)
        try:
            changed = self._outputs()
        finally:
            for place in places:
                self._root.set_submodule(place, before)
        errors = [
            float((a - b).square().mean()) / scale
            for (place, _), own, dense in zip(self._calls, changed, self._dense, strict=True)
            for a, b, scale in zip(own, dense, self._scales[place], strict=True)
        ]
        return float(np.mean(errors))

    def _outputs(self) -> list[tuple[Tensor, ...]]:
        with torch.no_grad():
            results = [self._root.get_submodule(name)(*sample) for name, sample in self._calls]
        return [(r,) if isinstance(r, Tensor) else tuple(r) for r in results]

    def _sizes(self, functions: Sequence[TracedFunction]) -> dict[str, list[float]]:
        """Return what a squared change of each output is relative to.

        An output that is also an input is computed for its change, which may be a small part.
        """
        sums: dict[str, list[list[float]]] = {}
        for (place, sample), outputs in zip(self._calls, self._dense, strict=True):
            function = functions[int(place[1:])]
            given = {s.name: x for s, x in zip(function.inputs, sample, strict=True)}
            own = []
            for spec, value in zip(function.outputs, outputs, strict=True):
                before = given.get(spec.name)
                if before is None or before.shape != value.shape:
                    before = value.mean()
                own.append(float((value - before).square().mean()))
            sums.setdefault(place, []).append(own)
        return {k: [max(s, 1e-30) for s in np.mean(v, axis=0).tolist()] for k, v in sums.items()}
