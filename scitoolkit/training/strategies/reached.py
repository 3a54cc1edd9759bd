"""Which parameters the backward passes of a step have reached, for parameters sharded by FSDP2."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class ReachedParameters:
    """Record of the parameters that got a gradient on this rank.

    The parameters of a module are gathered while it runs, and FSDP2 reduces their gradients to the
    shards at once. A hook on the gathered parameters is the only trace of which of them had one.

    Args:
        model: a model after `fully_shard`.
    """

    def __init__(self, model: nn.Module) -> None:
        self._named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        self._reached: set[str] = set()
        self._watched: set[int] = set()
        # Without it ranks that reach other parameters would sum vectors of other lengths.
        fill = getattr(model, "set_reduce_scatter_unused_params", None)  # torch 2.12 and later
        if fill is not None:
            fill(True)
        for path, module in model.named_modules():
            if any(True for _ in module.parameters(recurse=False)):
                module.register_forward_pre_hook(self._watcher(f"{path}." if path else ""))

    def remove_unreached(self) -> None:
        """Remove the gradients of parameters that no rank has reached since the last call."""
        flags = torch.tensor([float(n in self._reached) for n, _ in self._named])
        self._reached.clear()
        if dist.get_world_size() > 1:
            dist.all_reduce(flags)
        for (_, parameter), count in zip(self._named, flags.tolist(), strict=True):
            if not count:
                parameter.grad = None

    def _watcher(self, prefix: str) -> Any:
        def watch(module: nn.Module, args: Any) -> None:
            for name, parameter in module.named_parameters(recurse=False):
                if id(parameter) not in self._watched and parameter.requires_grad:
                    self._watched.add(id(parameter))
                    parameter.register_post_accumulate_grad_hook(self._record(prefix + name))

        return watch

    def _record(self, name: str) -> Any:
        return lambda parameter: self._reached.add(name)
