"""Deferred initialisation: `with torch.device("meta"): model = Model()`.

The strategy initialises such a model after sharding it. `reset_parameters` of each module draws
from a random stream that depends only on the seed and the module's name, so the weights are the
same for every strategy and number of processes, and at most one module is whole in memory.
"""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.seeds import derive_seed
from scitoolkit.training.sharding import cut, local


def is_deferred(model: nn.Module) -> bool:
    """Return whether any parameter or buffer is on the meta device."""
    return any(t.is_meta for t in [*model.parameters(), *model.buffers()])


def tied(model: nn.Module, *, distinct: bool = False) -> tuple[str, str] | None:
    """Return two names of one parameter, or of parameters in one memory; None if there are none.

    Args:
        model: any module.
        distinct: pass over second names of the same parameter.

    Example:
        >>> one = nn.Linear(3, 2)
        >>> other = nn.Linear(2, 3)
        >>> other.weight = nn.Parameter(one.weight.detach().T)
        >>> tied(nn.ModuleList([one, other]))
        ('0.weight', '1.weight')
    """
    seen: dict[object, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=distinct):
        first = seen.setdefault(_memory(parameter), name)
        if first != name:
            return first, name
    return None


def _memory(parameter: Tensor) -> object:
    """Return what two parameters with the same numbers share, such as one and its transpose."""
    if not parameter.numel() or isinstance(parameter, DTensor):
        return id(parameter)
    storage = parameter.untyped_storage()._cdata
    return storage, parameter.storage_offset(), parameter.numel()


def check_deferred(model: nn.Module) -> None:
    """Check that the weights of a deferred model can be drawn module by module.

    Raises:
        ConfigError: a module has no `reset_parameters`, or two names share a parameter.
    """
    if pair := tied(model):
        raise ConfigError(
            f"parameters {pair[0]} and {pair[1]} are tied, which the meta device does not support",
            where="model",
            fix="build the model outside of torch.device('meta')",
        )
    for name, module in model.named_modules():
        if _own(module) and _reset(module) is None:
            raise ConfigError(
                f"module {name or type(module).__name__} has {', '.join(_own(module))} but no "
                "reset_parameters, so its initial values are unknown",
                where="model",
                fix="a method reset_parameters, or build the model outside of torch.device('meta')",
            )


@torch.no_grad()
def draw(model: nn.Module, seed: int) -> None:
    """Initialise every module in place; of sharded tensors only this rank's shard.

    Args:
        model: with uninitialised memory; module names are those of the whole model.
        seed: seed of the training.

    Example:
        >>> first, second = (nn.Linear(3, 2) for _ in range(2))
        >>> draw(first, 1); draw(second, 1)
        >>> bool((first.weight == second.weight).all())
        True
    """
    # Children first: a parent may reset their parameters, as nn.MultiheadAttention does.
    for name, module in reversed(list(model.named_modules())):
        own = _own(module)
        if not own:
            continue
        # Not copy.copy: the class that FSDP2 gives a module re-runs its constructor.
        shell: Any = object.__new__(type(module))
        shell.__dict__.update(module.__dict__)
        shell._parameters = {n: _unset(p) for n, p in module._parameters.items()}
        shell._buffers = {
            n: None if b is None else torch.zeros_like(b) for n, b in module._buffers.items()
        }
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, zlib.crc32(name.encode())))
            reset = _reset(shell)
            assert reset is not None, "check_deferred comes first"
            reset()
        for key in own:
            value = shell._parameters.get(key)
            _fill(own[key], shell._buffers[key] if value is None else value)


def _own(module: nn.Module) -> dict[str, Tensor]:
    own = {**module._parameters, **module._buffers}
    return {name: tensor for name, tensor in own.items() if tensor is not None}


def _reset(module: Any) -> Any:
    return getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))


def _unset(parameter: Tensor | None) -> nn.Parameter | None:
    if parameter is None:
        return None
    whole = torch.empty(parameter.shape, dtype=parameter.dtype)
    return nn.Parameter(whole, requires_grad=parameter.requires_grad)


def _fill(target: Tensor, value: Tensor) -> None:
    part = local(target)
    if isinstance(target, DTensor):
        value = cut(value, target)
    part.copy_(value)
