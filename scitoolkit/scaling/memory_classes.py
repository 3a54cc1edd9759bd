"""Memory of a rank between two steps, by class: the tensors that are alive."""

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
    """Return each memory that a tensor of Python uses, by its address.

    While the result is held no address can be given to another tensor.
    """
    found: dict[int, UntypedStorage] = {}
    for each in gc.get_objects():
        # isinstance would ask lazy modules of other packages for their class.
        if issubclass(type(each), Tensor):
            found.update(_storages([each]))
    return found


def by_class(
    model: nn.Module, optimizer: Optimizer, before: Mapping[int, UntypedStorage]
) -> dict[str, int]:
    """Return the bytes of each of `CLASSES`.

    Args:
        model: that is trained, as the strategy left it.
        optimizer: of the training; what it changes counts as parameters, also where these are
            apart from the model's.
        before: `live_storages` before the training, which are not counted.

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
        out[name] = sum(each.nbytes() for at, each in storages.items() if at not in seen)
        seen |= storages.keys()
    seen |= before.keys()
    out["other"] = sum(each.nbytes() for at, each in live_storages().items() if at not in seen)
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
    """Whether a tensor stands for another in torch.compile or export, and has no memory."""
    return isinstance(tensor, FakeTensor | FunctionalTensor)
