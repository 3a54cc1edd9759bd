"""The whole state of a training, as tensors by name and JSON, and back without a remainder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from scitoolkit.core.errors import CheckpointError
from scitoolkit.training.checkpoint import Reader, shard_offset
from scitoolkit.training.strategy import local

_TENSOR = "__tensor__"


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters as `model.NAME` and buffers as `buffer.NAME`."""
    out: dict[str, Tensor] = {f"model.{n}": p for n, p in model.named_parameters()}
    out.update({f"buffer.{n}": b for n, b in model.named_buffers()})
    return out


def pack_optimizer(optimizer: Optimizer, names: list[str]) -> tuple[dict[str, Tensor], Any]:
    """Return an optimizer's state: tensors named by parameter, and JSON that refers to them.

    Args:
        optimizer: with parameters in the order of `names`.
        names: the parameters' names.
    """
    tensors: dict[str, Tensor] = {}

    def pack(value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            tensors[path] = value
            return {_TENSOR: path}
        if isinstance(value, list | tuple):
            return [pack(item, f"{path}.{i}") for i, item in enumerate(value)]
        if isinstance(value, Mapping):
            return {str(k): pack(v, f"{path}.{k}") for k, v in value.items()}
        return value

    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    tree = {
        name: pack(dict(optimizer.state[parameter]), f"optimizer.{name}")
        for name, parameter in zip(names, parameters, strict=True)
        if parameter in optimizer.state
    }
    return tensors, tree


def unpack_optimizer(optimizer: Optimizer, names: list[str], tree: Any, reader: Reader) -> None:
    """Restore what `pack_optimizer` returned; a state of the parameter's shape is split like it."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    unknown = set(tree) - set(names)
    if unknown:
        raise CheckpointError(
            f"optimizer state of unknown parameter {sorted(unknown)[0]!r}", where=str(reader.path)
        )

    def unpack(value: Any, parameter: Tensor) -> Any:
        if isinstance(value, dict) and set(value) == {_TENSOR}:
            return _like(reader, value[_TENSOR], parameter)
        if isinstance(value, list):
            return [unpack(item, parameter) for item in value]
        if isinstance(value, dict):
            return {k: unpack(v, parameter) for k, v in value.items()}
        return value

    optimizer.state.clear()
    for name, parameter in zip(names, parameters, strict=True):
        if name in tree:
            optimizer.state[parameter] = unpack(tree[name], parameter)


def _like(reader: Reader, name: str, parameter: Tensor) -> Tensor:
    if name not in reader.shapes:
        raise CheckpointError(f"tensor {name!r} is missing", where=str(reader.path))
    if isinstance(parameter, DTensor) and reader.shapes[name] == tuple(parameter.shape):
        rows = local(parameter).shape[0]
        part = reader.tensor(name, shard_offset(parameter), rows)
        return DTensor.from_local(
            part.to(parameter.device),
            parameter.device_mesh,
            parameter.placements,
            run_check=False,
            shape=parameter.shape,
            stride=parameter.stride(),
        )
    tensor = reader.tensor(name)
    # A copy, because sums over a tensor in a mapped file may run in another order than over one
    # that the allocator aligned, and L-BFGS would then not continue bit for bit.
    tensor = tensor.clone()
    # Scalars such as Adam's step counter live on the CPU, whatever the device.
    return tensor.to(parameter.device) if tensor.dim() else tensor


@torch.no_grad()
def load_tensors(targets: Mapping[str, Tensor], reader: Reader) -> None:
    """Copy saved tensors into `targets`, of which each rank may hold a part.

    Raises:
        CheckpointError: one is missing, unexpected, or of another shape or dtype.
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
        if reader.shapes[name] != tuple(target.shape):
            raise CheckpointError(
                f"{name} has shape {reader.shapes[name]}, the model wants {tuple(target.shape)}",
                where=str(reader.path),
            )
        part = local(target)
        if isinstance(target, DTensor):
            value = reader.tensor(name, shard_offset(target), part.shape[0])
        else:
            value = reader.tensor(name)
        if value.dtype != part.dtype:
            raise CheckpointError(
                f"{name} is {value.dtype}, the model wants {part.dtype}", where=str(reader.path)
            )
        part.copy_(value)
