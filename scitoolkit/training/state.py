"""State of model and optimizer as named tensors and JSON; restoring is complete or raises."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from scitoolkit.core.errors import CheckpointError
from scitoolkit.training.checkpoint import Reader
from scitoolkit.training.sharding import is_held, local, part_of

_TENSOR = "__tensor__"


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters as `model.NAME` and buffers as `buffer.NAME`."""
    out: dict[str, Tensor] = {f"model.{n}": p for n, p in model.named_parameters()}
    out.update({f"buffer.{n}": b for n, b in model.named_buffers()})
    return out


class OptimizerState:
    """The state of an optimizer, by parameter and by group, for checkpoints.

    Only those settings of a group are saved that have changed since construction: a resumed
    training constructs the optimizer in the same way, and implementation switches such as `fused`
    may differ between layouts.

    Args:
        optimizer: as constructed, before the first step.
        names: names of its parameters, in their order.

    Raises:
        CheckpointError: from `pack`, if the state contains something that cannot be restored.
    """

    def __init__(self, optimizer: Optimizer, names: Sequence[str]) -> None:
        self._optimizer, self._names = optimizer, list(names)
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._built = [copy.deepcopy(_settings(group)) for group in optimizer.param_groups]

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the tensors by name, and JSON types that refer to them."""
        optimizer = self._optimizer
        tensors: dict[str, Tensor] = {}
        parameters = set(map(id, self._parameters))
        extra = sorted(set(optimizer.state_dict()) - {"state", "param_groups"})
        extra += [repr(k)[:40] for k in optimizer.state if id(k) not in parameters]
        if extra:
            raise CheckpointError(
                f"{type(optimizer).__name__} keeps {', '.join(extra)} besides the state of its "
                "parameters and groups: it could not be resumed",
                where="training.optimizer",
                fix="keep it in `state` by parameter or in `param_groups`",
            )

        def text(key: Any, path: str) -> str:
            if isinstance(key, str):
                return key
            raise CheckpointError(
                f"{type(optimizer).__name__} keeps the key {key!r} in {path}",
                where="training.optimizer",
                allowed="text as keys, which JSON restores",
            )

        def pack(value: Any, path: str) -> Any:
            if isinstance(value, Tensor):
                tensors[path] = value
                return {_TENSOR: path}
            if isinstance(value, list | tuple):
                return [pack(item, f"{path}.{i}") for i, item in enumerate(value)]
            if isinstance(value, Mapping):
                return {text(k, path): pack(v, f"{path}.{k}") for k, v in value.items()}
            if value is None or isinstance(value, bool | int | float | str):
                return value
            raise CheckpointError(
                f"{type(optimizer).__name__} keeps a {type(value).__name__} as {path}",
                where="training.optimizer",
                allowed="tensors, numbers, text, lists and mappings",
            )

        state = {
            name: pack(dict(optimizer.state[parameter]), f"optimizer.{name}")
            for name, parameter in zip(self._names, self._parameters, strict=True)
            if parameter in optimizer.state
        }
        groups = [
            {
                key: pack(value, f"group.{number}.{key}")
                for key, value in _settings(group).items()
                if key not in built or not _same(value, built[key])
            }
            for number, (group, built) in enumerate(
                zip(optimizer.param_groups, self._built, strict=True)
            )
        ]
        return tensors, {"state": state, "groups": groups}

    def unpack(self, tree: Mapping[str, Any], reader: Reader) -> None:
        """Restore the result of `pack`; state of a parameter's shape is sharded like it."""
        groups = self._optimizer.param_groups
        unknown = sorted(set(tree["state"]) - set(self._names))
        if unknown or len(tree["groups"]) != len(groups):
            what = f"state of unknown parameter {unknown[0]!r}" if unknown else "other groups"
            raise CheckpointError(f"the saved optimizer has {what}", where=str(reader.path))

        def unpack(value: Any, parameter: Tensor, like: Any = None) -> Any:
            if isinstance(value, dict) and set(value) == {_TENSOR}:
                return _like(reader, value[_TENSOR], parameter)
            if isinstance(value, list):
                items = [unpack(item, parameter) for item in value]
                return tuple(items) if isinstance(like, tuple) else items
            if isinstance(value, dict):
                return {k: unpack(v, parameter) for k, v in value.items()}
            return value

        self._optimizer.state.clear()
        for name, parameter in zip(self._names, self._parameters, strict=True):
            if name in tree["state"] and is_held(parameter):
                self._optimizer.state[parameter] = unpack(tree["state"][name], parameter)
        for group, saved in zip(groups, tree["groups"], strict=True):
            for key, value in saved.items():
                group[key] = unpack(value, local(group["params"][0]), group.get(key))


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}


def _same(value: Any, other: Any) -> bool:
    """Return whether two settings are equal, including nested tensors."""
    if isinstance(value, Tensor) and isinstance(other, Tensor):
        return torch.equal(value, other)
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return len(value) == len(other) and all(map(_same, value, other))
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(_same(value[k], other[k]) for k in value)
    return type(value) is type(other) and value == other


def _like(reader: Reader, name: str, parameter: Tensor) -> Tensor:
    if name not in reader.shapes:
        raise CheckpointError(f"tensor {name!r} is missing", where=str(reader.path))
    if isinstance(parameter, DTensor) and reader.shapes[name] == tuple(parameter.shape):
        part = reader.part(name, *part_of(parameter))
        # Not DTensor.from_local, which moves shards kept on the CPU to the mesh's device.
        state = torch.empty_like(parameter.detach(), dtype=part.dtype)
        local(state).copy_(part)
        return state
    tensor = reader.tensor(name)
    # A copy: summation order depends on alignment, and a tensor in a mapped file may be aligned
    # differently, so that L-BFGS would not continue bit-identically.
    tensor = tensor.clone()
    # Scalars such as Adam's step counter stay on the CPU for every device.
    return tensor.to(parameter.device) if tensor.dim() else tensor


@torch.no_grad()
def load_tensors(targets: Mapping[str, Tensor], reader: Reader) -> None:
    """Copy saved tensors into `targets`, which may be sharded.

    Raises:
        CheckpointError: a tensor is missing, unexpected, or of another shape or dtype.
    """
    kinds = {name.partition(".")[0] for name in targets}
    saved = {name for name in reader.shapes if name.partition(".")[0] in kinds}
    for what, names in (
        ("missing from the checkpoint", set(targets) - saved),
        ("in the checkpoint but not in the model", saved - set(targets)),
    ):
        if names:
            raise CheckpointError(
                f"{', '.join(sorted(names)[:5])}: {what}",
                where=str(reader.path),
                fix="resume with the model that was saved, or start a new run",
            )
    for name, target in targets.items():
        if not is_held(target):
            continue
        if reader.shapes[name] != tuple(target.shape):
            raise CheckpointError(
                f"{name} has shape {reader.shapes[name]}, the model needs {tuple(target.shape)}",
                where=str(reader.path),
            )
        part = local(target)
        if isinstance(target, DTensor):
            value = reader.part(name, *part_of(target))
        else:
            value = reader.tensor(name)
        if value.dtype != part.dtype:
            raise CheckpointError(
                f"{name} is {value.dtype}, the model needs {part.dtype}", where=str(reader.path)
            )
        part.copy_(value)
