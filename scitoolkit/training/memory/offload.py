"""Offloading of activations between forward and backward pass; results are bit-identical.

GPU activations are offloaded to host memory, CPU activations to a file. The storage of a saved
tensor is offloaded, so that views of it (queries, keys and values of one product) are moved once,
and every tensor is restored with its strides. Parameters, buffers, the batch and small tensors are
not offloaded.

Source: Rhu et al. 2016, arXiv:1602.08124 (vDNN).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import ConfigError
from scitoolkit.training.memory.config import MemoryConfig, refuse_unread
from scitoolkit.training.memory.offload_places import FileOnDisk, HostMemory, Place, StoredBytes
from scitoolkit.training.memory.saved import Unchanged, storage_id

ALIGNED = 64


@dataclass
class MovedBytes:
    """An offloaded range of memory, with the number of saved tensors in it."""

    stored: StoredBytes
    start: int
    uses: int = 1


@dataclass(frozen=True)
class MovedTensor:
    """A saved tensor in offloaded memory; `offset` counts elements of its dtype."""

    moved: MovedBytes
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int


@dataclass
class Moving:
    """State of the hooks during one forward pass."""

    untouched: set[int]
    seen: dict[tuple[int, ...], tuple[StorageWeakRef, MovedBytes]]


class Offload:
    """Activation store that offloads saved tensors to host memory or to a file; exact.

    Args:
        model: a model on one device.
        config: reads `folder`, which is required on the CPU, and `smallest`.

    Attributes:
        place: destination of the bytes.
        moved_bytes: bytes offloaded in the last forward pass.

    Raises:
        ConfigError: the model is on the CPU and no folder on a disk is given, or a key is set that
            is not read.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        >>> x = torch.ones(100, 64)
        >>> with TemporaryDirectory(dir=".") as folder:
        ...     store = Offload(net, MemoryConfig(activations="offload", folder=folder))
        ...     with store.saving({"x": x}, 1.0):
        ...         loss = net(x).sum()
        ...     away = store.place.num_bytes
        ...     loss.backward()
        ...     print(away, store.place.num_bytes)
        51200 0
    """

    exact: ClassVar[bool] = True

    def __init__(self, model: nn.Module, config: MemoryConfig) -> None:
        if config.activations == "offload":
            refuse_unread(config, {"folder", "smallest"})
        self._model, self._smallest = model, config.smallest
        self._device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self.place: Place = _place(self._device, config)
        self.moved_bytes: int = 0
        self._moving: Moving | None = None
        self._last: tuple[MovedBytes, Tensor] | None = None

    def prepare(self, gradients: Callable[[], Mapping[str, Tensor | None]]) -> None:
        """Do nothing: there is nothing to choose."""

    @contextlib.contextmanager
    def saving(self, batch: Batch, finer: float) -> Iterator[None]:
        """Return a context in which saved tensors are offloaded.

        Args:
            batch: its tensors are not offloaded, because they stay in memory anyway.
            finer: ignored, because the store is exact.
        """
        with self.following(batch), self.hooks():
            yield

    @contextlib.contextmanager
    def following(self, batch: Batch) -> Iterator[None]:
        """Return the context of a forward pass, within which `hooks` may be used several times."""
        there = [*self._model.parameters(), *self._model.buffers(), *batch.values()]
        current = Moving({storage_id(t) for t in there if isinstance(t, Tensor)}, {})

        def gathered(module: nn.Module, arguments: Any) -> None:
            # Sharded parameters are whole while their module runs, and gathered again later.
            current.untouched.update(storage_id(p) for p in module.parameters(recurse=False))

        handles = [
            module.register_forward_pre_hook(gathered)
            for module in self._model.modules()
            if next(module.parameters(recurse=False), None) is not None
        ]
        self._moving, self._last, self.moved_bytes = current, None, 0
        try:
            yield
        finally:
            self._moving = None
            for handle in handles:
                handle.remove()

    def hooks(self) -> saved_tensors_hooks:
        """Return the hooks that offload saved tensors."""
        return saved_tensors_hooks(self._pack, self._unpack)

    def adapt(self, errors: Mapping[str, tuple[float, float]]) -> None:
        """Do nothing: there is no error."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""

    # --- the hooks --------------------------------------------------------------------------

    def _pack(self, tensor: Tensor) -> MovedTensor | Unchanged:
        current = self._moving
        if current is None or not self._movable(tensor) or storage_id(tensor) in current.untouched:
            return Unchanged.of(tensor)
        storage, size = tensor.untyped_storage(), tensor.element_size()
        start, length = tensor.storage_offset() * size, _span(tensor) * size
        if length < self._smallest * size:
            return Unchanged.of(tensor)
        if 2 * length >= storage.nbytes():  # other views of it are likely to be saved too
            start, length = 0, storage.nbytes()
        # Results of some kernels depend on alignment.
        start, length = start // ALIGNED * ALIGNED, length + start % ALIGNED
        key = (storage_id(tensor), start, length, tensor._version)
        seen_before = current.seen.get(key)
        if seen_before is not None and not seen_before[0].expired():
            moved = seen_before[1]
            moved.uses += 1
        else:
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            moved = MovedBytes(self.place.write(whole[start : start + length]), start)
            current.seen[key] = (StorageWeakRef(storage), moved)
            self.moved_bytes += length
        offset = int(tensor.storage_offset()) - moved.start // size
        return MovedTensor(moved, tensor.dtype, tensor.shape, tensor.stride(), offset)

    def _movable(self, tensor: Tensor) -> bool:
        return (
            type(tensor) in (Tensor, nn.Parameter)
            and tensor.layout == torch.strided
            and tensor.device == self._device
            and tensor.numel() > 0
            and not (tensor.is_conj() or tensor.is_neg() or tensor.is_quantized)
        )

    def _unpack(self, entry: MovedTensor | Unchanged) -> Tensor:
        if isinstance(entry, Unchanged):
            return entry.value()
        moved = entry.moved
        moved.uses -= 1
        if self._last is not None and self._last[0] is moved:
            data = self._last[1]
        else:
            self._last = None
            data = moved.stored.value()
        # The preceding operation often needs the same tensor (ReLU, convolution).
        self._last = (moved, data) if moved.uses > 0 else None
        empty = torch.empty(0, dtype=entry.dtype, device=data.device)
        return empty.set_(data.untyped_storage(), entry.offset, entry.shape, entry.stride)


def _place(device: torch.device, config: MemoryConfig) -> Place:
    if device.type != "cpu":
        if config.folder is not None:
            raise ConfigError(
                f"activations of {device.type} are offloaded to host memory",
                where="training.memory.folder",
                fix="remove it",
            )
        return HostMemory(device)
    if config.folder is None:
        raise ConfigError(
            "activations of a CPU are in host memory already; offloading them needs a disk",
            where="training.memory.activations",
            fix="training.memory.folder=FOLDER",
        )
    return FileOnDisk(config.folder)


def _span(tensor: Tensor) -> int:
    """Return the number of elements of memory that a tensor spans."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((count - 1) * step for count, step in steps)
