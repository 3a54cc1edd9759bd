"""Memory of the live tensors of a rank between two steps, by class."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, UntypedStorage, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.optim import Optimizer

from scitoolkit.training.sharding import local

CLASSES = ("parameters", "gradients", "optimizer", "buffers", "other")


def live_storages() -> dict[int, UntypedStorage]:
    """Return the storages of all live tensors by address.

    Holding the result keeps the storages alive, so that their addresses are not reused.
    """
    storages: dict[int, UntypedStorage] = {}
    for tracked in gc.get_objects():
        # isinstance would trigger the imports of lazy modules of other packages.
        if issubclass(type(tracked), Tensor):
            storages.update(_storages([tracked]))
    return storages


def by_class(
    model: nn.Module, optimizer: Optimizer, before: Mapping[int, UntypedStorage]
) -> dict[str, int]:
    """Return the bytes of each of `CLASSES`.

    Args:
        model: the trained model, as wrapped by the strategy.
        optimizer: optimizer of the training; the tensors it updates count as parameters, even if
            they are not the model's.
        before: `live_storages` before the training, which are not counted.

    Returns:
        Bytes by class; "other" contains the rest, such as communication buckets and the batch.
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
        out[name] = sum(storage.nbytes() for at, storage in storages.items() if at not in seen)
        seen |= storages.keys()
    seen |= before.keys()
    out["other"] = sum(
        storage.nbytes() for at, storage in live_storages().items() if at not in seen
    )
    return out


def _storages(tensors: Iterable[Tensor]) -> dict[int, UntypedStorage]:
    return dict(_memory(tensors))


def _memory(tensors: Iterable[Tensor]) -> Iterator[tuple[int, UntypedStorage]]:
    for tensor in tensors:
        part = local(tensor.detach())
        if part.device.type == "meta" or part.layout is not torch.strided:
            continue
        storage = part.untyped_storage()
        if storage.nbytes() and not _is_traced(part):
            yield storage.data_ptr(), storage


def _is_traced(tensor: Tensor) -> bool:
    """Whether a tensor is a placeholder of torch.compile or export without memory."""
    return isinstance(tensor, FakeTensor | FunctionalTensor)
