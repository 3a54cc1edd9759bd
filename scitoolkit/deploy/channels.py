"""Removal of dead channels from perceptrons and chains of convolutions.

A channel between two layers is dead if its weights in the second layer are zero, or if its weights
in the first layer are zero: it is then constant and is folded into the bias of the second layer.
The remaining network computes the same values up to the order of summation. Pruning
(`training.pruning.channels`) produces such channels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy.agreement import copies
from scitoolkit.ops.low_rank import CONVOLUTIONS, factorable

ELEMENTWISE = (
    *(nn.Identity, nn.Dropout, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU),
    *(nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish),
)
"""Elementwise modules that are equal for all channels."""


@dataclass(frozen=True)
class Removed:
    """Channels removed from the output of a layer.

    Attributes:
        layer: name of the layer.
        removed, channels: number of removed channels, and of channels before.
    """

    layer: str
    removed: int
    channels: int


def without_dead_channels(
    functions: Sequence[TracedFunction],
) -> tuple[list[TracedFunction], list[Removed]]:
    """Return functions without dead channels.

    Channels are removed within an `nn.Sequential`, and only if no other module reads them.

    Args:
        functions: float32 functions; not modified.

    Returns:
        The functions, and the removed channels.

    Raises:
        ConfigError: no dead channels.

    Example:
        >>> from scitoolkit.core.traced import ArraySpec
        >>> chain = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
        >>> with torch.no_grad():
        ...     _ = chain[0].weight[1].zero_()
        >>> x, y = ArraySpec("x", ("k",), (2,)), ArraySpec("y", ("k",), (1,))
        >>> (smaller,), told = without_dead_channels([TracedFunction(chain, [x], [y])])
        >>> smaller.module[0].out_features, told
        (2, [Removed(layer='0', removed=1, channels=3)])
    """
    modules = copies([f.module for f in functions])  # layers that they share stay shared
    before: dict[int, tuple[str, int]] = {}
    for first, _, name in _pairs(modules):
        before[id(first)] = (name, _channels(first))
    while any([_shrink(first, second, between) for first, second, between in _chains(modules)]):
        pass
    after = {id(first): _channels(first) for first, _, _ in _pairs(modules)}
    told = [Removed(name, n - after[key], n) for key, (name, n) in before.items() if n > after[key]]
    if not told:
        raise ConfigError(
            "no dead channels",
            where="channels",
            allowed="zero weights of whole channels in nn.Sequential chains of linear layers or "
            "convolutions",
            fix="training.pruning={share: 0.5, channels: [LAYER]}",
        )
    return [replace(f, module=m) for f, m in zip(functions, modules, strict=True)], told


def _chains(modules: Sequence[nn.Module]) -> Iterator[tuple[nn.Module, nn.Module, nn.Sequential]]:
    """Yield consecutive layers and the modules between them, the last ones first."""
    chains = []
    shared = _counts(modules)
    for module in _all(modules):
        if type(module) is not nn.Sequential:
            continue
        children = list(module)
        layers = [k for k, child in enumerate(children) if factorable(child)]
        for a, b in itertools.pairwise(layers):
            between = children[a + 1 : b]
            once = shared[id(children[a])] == shared[id(children[b])] == shared[id(module)]
            if once and all(type(m) in ELEMENTWISE for m in between):
                chains.append((children[a], children[b], nn.Sequential(*between)))
    return reversed(chains)


def _pairs(modules: Sequence[nn.Module]) -> Iterator[tuple[nn.Module, nn.Module, str]]:
    """Yield consecutive layers, with the name of the first one."""
    names = {id(m): name for root in modules for name, m in root.named_modules()}
    for first, second, _ in reversed(list(_chains(modules))):
        yield first, second, names[id(first)]


def _all(modules: Sequence[nn.Module]) -> list[nn.Module]:
    return list({id(m): m for root in modules for m in root.modules()}.values())


def _counts(modules: Sequence[nn.Module]) -> dict[int, int]:
    """Return how often each module occurs, as a layer in two chains must keep its channels."""
    counts: dict[int, int] = {}
    for root in modules:
        for _, module in root.named_modules(remove_duplicate=False):
            counts[id(module)] = counts.get(id(module), 0) + 1
    return counts


def _channels(layer: nn.Module) -> int:
    return len(_tensor(layer.weight))


def _tensor(value: Any) -> Tensor:
    assert isinstance(value, Tensor)
    return value.detach()


@torch.no_grad()
def _shrink(first: nn.Module, second: nn.Module, between: nn.Sequential) -> bool:
    """Remove dead channels between two layers; return whether there were any."""
    own, reads = _tensor(first.weight), _tensor(second.weight)
    bias = torch.zeros(len(own)) if first.bias is None else _tensor(first.bias)
    constant = between.eval()(bias)
    unread = reads.transpose(0, 1).flatten(1).eq(0).all(1)
    still = own.flatten(1).eq(0).all(1) & (_padded_alike(second) | constant.eq(0))
    keep = ~(unread | still)
    if keep.all():
        return False
    if not keep.any():
        keep[0] = True
        if len(keep) == 1:
            return False
    gone = ~keep
    sums = reads[:, gone].reshape(len(reads), int(gone.sum()), -1).sum(2)
    added = sums @ torch.where(unread, 0, constant)[gone]
    _set(first, own[keep], None if first.bias is None else bias[keep])
    before = second.bias
    if before is None:
        _set(second, reads[:, keep], added if added.any() else None)
    else:
        _set(second, reads[:, keep], _tensor(before) + added)
    return True


def _padded_alike(layer: nn.Module) -> bool:
    """Return whether a constant channel is constant after padding, too."""
    if not isinstance(layer, CONVOLUTIONS):
        return True
    return (
        layer.padding_mode != "zeros"
        or layer.padding == "valid"
        or not any(k if isinstance(k, int) else True for k in layer.padding)
    )


def _set(layer: nn.Module, weight: Tensor, bias: Tensor | None) -> None:
    layer.weight = nn.Parameter(weight.clone(), requires_grad=False)
    made = None if bias is None else nn.Parameter(bias.clone(), requires_grad=False)
    layer.register_parameter("bias", made)
    outputs, inputs = weight.shape[:2]
    if isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = outputs, inputs
    else:
        layer.out_channels, layer.in_channels = outputs, inputs  # type: ignore[assignment]
