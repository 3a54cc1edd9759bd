"""Memory of a rank between two steps, by class: the tensors that are alive."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from scitoolkit.training.sharding import local

CLASSES = ("parameters", "gradients", "optimizer", "buffers", "other")


def live_storages() -> dict[int, int]:
    """Return the bytes of each memory that a tensor of Python uses, by its address."""
    found: dict[int, int] = {}
    for each in gc.get_objects():
        # isinstance would ask lazy modules of other packages for their class.
        if issubclass(type(each), Tensor):
            found.update(_storages([each]))
    return found


def by_class(model: nn.Module, optimizer: Optimizer, before: Iterable[int]) -> dict[str, int]:
    """Return the bytes of each of `CLASSES`.

    Args:
        model: that is trained, as the strategy left it.
        optimizer: of the training; what it changes counts as parameters, also where these are
            apart from the model's.
        before: addresses of what was alive before the training, which is not counted.

    Returns:
        Bytes by class; "other" is what no other class has: buckets of the exchange, the batch.
    """
    moved = [p for group in optimizer.param_groups for p in group["params"]]
    parameters = [*model.parameters(), *moved]
    state = [v for entry in optimizer.state.values() for v in entry.values()]
    tensors = {
        "parameters": parameters,
        "gradients": [p.grad for p in parameters if p.grad is not None],
        "optimizer": [v for v in state if isinstance(v, Tensor)],
        "buffers": list(model.buffers()),
    }
    seen: set[int] = set()
    out: dict[str, int] = {}
    for name, members in tensors.items():
        storages = _storages(members)
        out[name] = sum(size for at, size in storages.items() if at not in seen)
        seen |= storages.keys()
    seen |= set(before)
    out["other"] = sum(size for at, size in live_storages().items() if at not in seen)
    return out


def _storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    return dict(_memory(tensors))


def _memory(tensors: Iterable[Tensor]) -> Iterator[tuple[int, int]]:
    for tensor in tensors:
        part = local(tensor.detach())
        if part.device.type == "meta" or part.layout is not torch.strided:
            continue
        storage = part.untyped_storage()
        if storage.nbytes():
            yield storage.data_ptr(), storage.nbytes()
