"""COMET: compressed storage of activations between the forward and the backward pass.

Tensors saved for the backward pass are encoded, by `activation_codec` on the CPU and `block_codec`
on other devices, and decoded when the backward pass needs them. Parameters, the batch and small
tensors are not encoded; integers and booleans are stored exactly in fewer bytes. A tensor saved by
several operations (a ReLU's output is the next convolution's input) is stored once. The
quantisation step of each tensor is relative to its root mean square and is adapted to the gradient
error measured by the trainer, because the published analytic error model underestimates it several
times at large steps.

Source: Jin et al. 2021, arXiv:2111.09562.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import BackendError
from scitoolkit.training.memory import activation_codec as codec
from scitoolkit.training.memory.block_codec import DTYPES, Encoding, PackedBlocks, decode
from scitoolkit.training.memory.config import MemoryConfig, refuse_unread
from scitoolkit.training.memory.exact_tensors import Narrow, narrow, widen
from scitoolkit.training.memory.saved import Unchanged, storage_id, unattached

# Initial step and limits of the step, relative to the root mean square of a tensor.
FIRST_STEP, LEAST_STEP, LARGEST_STEP = 0.15, 1e-3, 1.5
# The error of a layer is taken relative to its gradient or to an even share of the whole gradient,
# whichever is larger: some gradients (a bias before a normalisation) are zero up to rounding. In
# total that is at most sqrt(2) times the target error, for which the margin compensates.
MARGIN, DAMPING, MOST_CHANGE = 0.65, 0.8, 2.5


@dataclass
class SavedTensor:
    """A stored tensor with the number of saved references to it."""

    content: Unchanged | codec.Packed | PackedBlocks | Narrow
    dtype: torch.dtype
    stride: tuple[int, ...]
    uses: int = 1

    @property
    def num_bytes(self) -> int:
        """Bytes stored."""
        return self.content.num_bytes


@dataclass
class ForwardRecord:
    """State of the hooks during one forward pass."""

    finer: float
    untouched: set[int]
    modules: list[str] = field(default_factory=list)
    number: int = 0
    users: dict[int, set[str]] = field(default_factory=dict)
    seen: dict[tuple[Any, ...], tuple[StorageWeakRef, SavedTensor, int]] = field(
        default_factory=dict
    )
    raw_bytes: int = 0
    kept_bytes: int = 0


class Comet:
    """Activation store with a lossy codec, controlled by measured gradient errors.

    Args:
        model: a model on the CPU or a GPU.
        config: target gradient error, and the size below which tensors are stored exactly.

    Attributes:
        steps: relative quantisation step of each saved tensor, in the order of the forward pass.
        exact: False, because gradients have an error.
        raw_bytes, kept_bytes: bytes of the compressible tensors of the last forward pass, before
            and after compression.

    Raises:
        BackendError: the model is on another device, or there is no C compiler for the CPU.

    Example:
        >>> from scitoolkit.training.memory.config import MemoryConfig
        >>> net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 1, 3))
        >>> store = Comet(net, MemoryConfig(activations="comet"))
        >>> x = torch.linspace(0, 6, 64 * 64).sin().reshape(1, 1, 64, 64)
        >>> with store.saving({"x": x}, 1.0):
        ...     loss = net(x).square().mean()
        >>> loss.backward()
        >>> store.raw_bytes > 8 * store.kept_bytes
        True
    """

    exact: ClassVar[bool] = False
    raw_bytes: int
    kept_bytes: int

    def __init__(self, model: nn.Module, config: MemoryConfig) -> None:
        if config.activations == "comet":
            refuse_unread(config, {"gradient_error", "measure_every", "smallest"})
        devices = {p.device.type for p in model.parameters()}
        if unknown := devices - {"cpu", "cuda"}:
            raise BackendError(
                f"memory.activations=comet has no codec for {', '.join(sorted(unknown))}",
                allowed="device=cpu, cuda",
                fix="remove training.memory",
            )
        self._model, self._config = model, config
        self.steps: list[float] = []
        self.raw_bytes = self.kept_bytes = 0
        self._record: ForwardRecord | None = None
        self._users: dict[int, set[str]] = {}
        self._decoded: tuple[SavedTensor, Tensor] | None = None
        self._encoding: tuple[SavedTensor, Encoding, ForwardRecord] | None = None
        # Compiles the kernels before the training begins.
        for device in {p.device for p in model.parameters()} or {torch.device("cpu")}:
            if device.type == "cpu":
                codec.measure(torch.zeros(1))
            elif (blocks := Encoding(torch.zeros(4096, device=device), 1.0).finish()) is not None:
                decode(blocks)

    def prepare(self, gradients: Callable[[], Mapping[str, Tensor | None]]) -> None:
        """Do nothing: the steps are adapted during the training."""

    @contextlib.contextmanager
    def saving(self, batch: Batch, finer: float) -> Iterator[None]:
        """Return a context in which saved tensors are compressed.

        Args:
            batch: its tensors are not compressed, because they stay in memory anyway.
            finer: divisor of the quantisation steps.
        """
        model = [*self._model.parameters(), *self._model.buffers()]
        not_activations = {
            storage_id(t) for t in [*model, *batch.values()] if isinstance(t, Tensor)
        }
        current = self._record = ForwardRecord(finer, not_activations)
        handles = [
            handle
            for name, module in self._model.named_modules()
            if next(module.parameters(recurse=False), None) is not None
            for handle in self._follow(name, module)
        ]
        try:
            with saved_tensors_hooks(self._pack, self._unpack):
                yield
        finally:
            self._finish()
            for handle in handles:
                handle.remove()
            self._users, self._record = current.users, None
            self.raw_bytes = current.raw_bytes
            self.kept_bytes = current.kept_bytes

    def adapt(self, errors: Mapping[str, tuple[float, float]]) -> None:
        """Adapt the step of each tensor to the target error of the layers that read it.

        Args:
            errors: squared error and squared norm of the gradient, by parameter name.
        """
        total = math.sqrt(sum(norm for _, norm in errors.values()))
        if not (math.isfinite(total) and total > 0):
            return
        layers: dict[str, list[float]] = {}
        for name, (error, norm) in errors.items():
            sums = layers.setdefault(name.rpartition(".")[0], [0.0, 0.0])
            sums[0], sums[1] = sums[0] + error, sums[1] + norm
        part = total / math.sqrt(len(layers))
        relative = {
            layer: math.sqrt(error) / max(math.sqrt(norm), part)
            for layer, (error, norm) in layers.items()
        }
        overall = math.sqrt(sum(error for error, _ in errors.values())) / total
        wanted = MARGIN * self._config.gradient_error
        for number, users in self._users.items():
            worst = max([relative[u] for u in users if u in relative] or [overall])
            if not math.isfinite(worst):
                continue
            change = (wanted / max(worst, 1e-12)) ** DAMPING
            change = min(max(change, 1 / MOST_CHANGE), MOST_CHANGE)
            step = self.steps[number] * change
            self.steps[number] = min(max(step, LEAST_STEP), LARGEST_STEP)

    def state_dict(self) -> dict[str, Any]:
        """Return the relative steps."""
        return {"steps": list(self.steps)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the relative steps."""
        self.steps = [float(step) for step in state["steps"]]

    # --- the hooks --------------------------------------------------------------------------

    def _follow(self, name: str, module: nn.Module) -> Iterator[Any]:
        """Track the running modules; weights gathered by sharded modules are not stored."""

        def enter(module: nn.Module, arguments: Any) -> None:
            if self._record is not None:
                self._record.modules.append(name)
                own = module.parameters(recurse=False)
                self._record.untouched.update(storage_id(p) for p in own)

        def leave(module: nn.Module, arguments: Any, output: Any) -> None:
            if self._record is not None and self._record.modules:
                self._record.modules.pop()

        yield module.register_forward_pre_hook(enter)
        yield module.register_forward_hook(leave, always_call=True)

    def _pack(self, tensor: Tensor) -> Any:
        current = self._record
        plain = type(tensor) in (Tensor, nn.Parameter) and tensor.layout == torch.strided
        if current is None or not plain or tensor.is_meta:
            return unattached(tensor)
        storage = tensor.untyped_storage()
        size = tensor.numel() * tensor.element_size()
        exact = tensor.numel() < max(self._config.smallest, 1) or size > storage.nbytes()
        if exact or storage_id(tensor) in current.untouched:
            return SavedTensor(Unchanged.of(tensor), tensor.dtype, tensor.stride())
        key = (
            storage_id(tensor),
            tensor.storage_offset(),
            tensor.shape,
            tensor.stride(),
            tensor.dtype,
            tensor._version,
        )
        seen_before = current.seen.get(key)
        if seen_before is not None and not seen_before[0].expired():
            _, entry, number = seen_before
            entry.uses += 1
        else:
            number = current.number
            current.number += 1
            entry = self._encode(tensor.detach(), number, current)
            current.seen[key] = (StorageWeakRef(storage), entry, number)
            current.raw_bytes += size
            if self._encoding is None or self._encoding[0] is not entry:
                current.kept_bytes += entry.num_bytes
        if current.modules:
            current.users.setdefault(number, set()).add(current.modules[-1])
        else:
            current.users.setdefault(number, set())
        return entry

    def _encode(self, tensor: Tensor, number: int, current: ForwardRecord) -> SavedTensor:
        if number == len(self.steps):
            self.steps.append(FIRST_STEP)
        dtype, stride = tensor.dtype, tensor.stride()
        if not dtype.is_floating_point:
            return SavedTensor(narrow(tensor), dtype, stride)
        values = tensor.contiguous()
        if not has_c_codec(tensor):
            return self._encode_later(tensor, values, number, current)
        if dtype not in codec.REAL:
            values = values.float()
        about = codec.measure(values)
        packed = None
        if math.isfinite(about.rms):
            packed = codec.pack(values, self.steps[number] * about.rms / current.finer, about)
        return SavedTensor(Unchanged.of(tensor) if packed is None else packed, dtype, stride)

    def _encode_later(
        self, tensor: Tensor, values: Tensor, number: int, current: ForwardRecord
    ) -> SavedTensor:
        """Start encoding; the tensor is kept until the next one is saved.

        To ask for the encoded size at once would make the host wait until the device has nothing
        left to do.
        """
        self._finish()
        if values.dtype not in DTYPES:
            values = values.float()
        entry = SavedTensor(Unchanged.of(tensor), tensor.dtype, tensor.stride())
        encoding = Encoding(values, self.steps[number] / current.finer)
        self._encoding = entry, encoding, current
        return entry

    def _finish(self) -> None:
        """Replace the tensor that is being encoded by its encoded values, if these are smaller."""
        if self._encoding is None:
            return
        entry, encoding, current = self._encoding
        self._encoding = None
        entry.content = encoding.finish() or entry.content
        current.kept_bytes += entry.num_bytes

    def _unpack(self, entry: Any) -> Tensor:
        if isinstance(entry, Tensor):
            return entry
        if self._encoding is not None and self._encoding[0] is entry:
            self._finish()
        content = entry.content
        if isinstance(content, Unchanged):
            return content.value()
        if isinstance(content, Narrow):
            return _strided(widen(content), entry.stride)
        entry.uses -= 1
        if self._decoded is not None and self._decoded[0] is entry:
            tensor = self._decoded[1]
        else:
            self._decoded = None
            values = decode(content) if isinstance(content, PackedBlocks) else codec.unpack(content)
            tensor = _strided(values.to(entry.dtype), entry.stride)
        # The preceding operation often needs the same tensor (ReLU, convolution).
        self._decoded = (entry, tensor) if entry.uses > 0 else None
        return tensor


def has_c_codec(tensor: Tensor) -> bool:
    """Return whether a tensor is on the CPU, where a sequential code is smaller."""
    return tensor.device.type == "cpu"


def _strided(tensor: Tensor, stride: tuple[int, ...]) -> Tensor:
    """Return a tensor with strides of the saved one, on which the choice of kernels depends.

    A recomputed part that reads it must save the same tensors as in the forward pass.
    """
    if tensor.stride() == stride or 0 in stride:
        return tensor
    return tensor.new_empty_strided(tensor.shape, stride).copy_(tensor)
