"""Training of pruned weights with compact gradients and optimizer state (SAMO).

The model computes with whole matrices, whose pruned entries are zero. As soon as the gradient of a
matrix is complete, its unpruned entries are copied into a vector and the rest is freed; gradient
exchange and optimizer work on these vectors. For elementwise optimizers the result is bit-identical
to training with whole gradients and states whose pruned entries are masked to zero.

Source: Singh and Bhatele 2023, SAMO, https://arxiv.org/abs/2302.05045.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.training.memory.config import PruningConfig


class KeptEntries:
    """Unpruned entries of a model's parameters as vectors, with their gradients.

    Args:
        named: trainable parameters with their names; pruned entries are set to zero in place.
        config: what to prune.

    Attributes:
        moved: parameters for the optimizer by the same names: a vector of the unpruned entries,
            or the parameter itself if nothing of it is pruned.

    Raises:
        ConfigError: nothing is pruned.
    """

    def __init__(self, named: Sequence[tuple[str, nn.Parameter]], config: PruningConfig) -> None:
        self._index: dict[str, Tensor] = {}
        self._pairs: list[tuple[nn.Parameter, nn.Parameter, Tensor]] = []
        self._callbacks: dict[nn.Parameter, list[Callable[[nn.Parameter], Any]]] = {}
        self._hooks: list[Any] = []
        self.moved: list[tuple[str, nn.Parameter]] = []
        channels = _channels(named, config) if config.channels else {}
        for name, parameter in named:
            if config.channels:
                index = channels.get(name)
            else:
                index = _kept(parameter, config.share) if parameter.dim() > 1 else None
            if index is None or len(index) == parameter.numel():
                self.moved.append((name, parameter))
                continue
            entries = nn.Parameter(parameter.detach().flatten()[index])
            with torch.no_grad():
                parameter.zero_().view(-1)[index] = entries
            self._index[name] = index
            self._pairs.append((parameter, entries, index))
            self.moved.append((name, entries))
            self._callbacks[entries] = []
            hook = parameter.register_post_accumulate_grad_hook(self._reader(entries, index))
            self._hooks.append(hook)
        if not self._pairs:
            raise ConfigError(
                "no entry of a matrix is zero",
                where="training.pruning",
                fix="training.pruning.share=0.9 to prune the smallest at the start",
            )

    def detach(self) -> None:
        """Remove the hooks, which free the gradients of the model's parameters."""
        for hook in self._hooks:
            hook.remove()

    def watch(self, moved: nn.Parameter, call: Callable[[nn.Parameter], Any]) -> Any:
        """Call `call` whenever a gradient of `moved` is complete; return a removable handle."""
        if moved not in self._callbacks:
            return moved.register_post_accumulate_grad_hook(call)
        self._callbacks[moved].append(call)
        return _Removal(self._callbacks[moved], call)

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the entries updated by the optimizer into the model."""
        for parameter, entries, index in self._pairs:
            parameter.view(-1)[index] = entries

    @torch.no_grad()
    def reload(self) -> None:
        """Copy the model's entries, restored from a checkpoint, into the vectors."""
        for parameter, entries, index in self._pairs:
            entries.copy_(parameter.view(-1)[index])

    def tensors(self) -> dict[str, Tensor]:
        """Return the flat indices of the unpruned entries, for checkpoints."""
        return {f"kept.{name}": index for name, index in self._index.items()}

    def _reader(self, entries: nn.Parameter, index: Tensor) -> Callable[[nn.Parameter], None]:
        def read(parameter: nn.Parameter) -> None:
            gradient = parameter.grad
            assert gradient is not None
            part = gradient.flatten().index_select(0, index)
            entries.grad = part if entries.grad is None else entries.grad.add_(part)
            parameter.grad = None
            for call in self._callbacks[entries]:
                call(entries)

        return read


class _Removal:
    def __init__(self, calls: list[Any], call: Any) -> None:
        self._calls, self._call = calls, call

    def remove(self) -> None:
        self._calls.remove(self._call)


def _channels(
    named: Sequence[tuple[str, nn.Parameter]], config: PruningConfig
) -> dict[str, Tensor]:
    """Return flat indices of the unpruned entries, by parameter, if channels are pruned."""
    entries_of, parameters = {}, dict(named)
    for layer in config.channels:
        weight = parameters.get(f"{layer}.weight")
        if weight is None or weight.dim() < 2:
            layers = sorted(n.removesuffix(".weight") for n, p in named if p.dim() > 1)
            raise ConfigError(
                f"no layer {layer!r} with a matrix",
                where="training.pruning.channels",
                allowed=", ".join(layers),
                fix=nearest_name(layer, layers) or "",
            )
        rows = weight.detach().flatten(1)
        channels = _kept(rows.norm(dim=1), config.share)
        assert channels is not None
        places = torch.arange(rows.numel(), dtype=channels.dtype, device=channels.device).view_as(
            rows
        )
        entries_of[f"{layer}.weight"] = places[channels].flatten()
        if f"{layer}.bias" in parameters:
            entries_of[f"{layer}.bias"] = channels
    return entries_of


def _kept(parameter: Tensor, share: float | None) -> Tensor | None:
    """Return the flat indices of the unpruned entries, int32 if they fit."""
    flat = parameter.detach().reshape(-1)
    if share is None:
        places = flat.nonzero()[:, 0]
    else:
        count = max(1, round((1 - share) * len(flat)))
        places = flat.abs().topk(count, sorted=False).indices.sort().values
    return places.to(torch.int32) if len(flat) < 2**31 else places
