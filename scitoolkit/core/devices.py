"""Devices of models and batches: where a model lies, and how values get there and back.

Whoever moves a model moves it back. Whoever applies a model moves the batch to the model's device
and brings the results to the host by `apply`, so that no domain asks where a model lies.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.core.log import get_logger
from scitoolkit.core.processes import process_environment

DeviceName = Literal["auto", "cpu", "cuda"]
DEVICE_NAMES: tuple[DeviceName, ...] = ("auto", "cpu", "cuda")
CPU = torch.device("cpu")
_INFERENCE: ContextVar[str] = ContextVar("inference_device", default="auto")
_PLACED: ContextVar[torch.device | None] = ContextVar("placed_device", default=None)
M = TypeVar("M", bound=nn.Module)


def choose_device(name: str, where: str = "device") -> torch.device:
    """Return the device of this process.

    Args:
        name: `cpu`; `cuda`, of several GPUs that of the local rank; `auto`: a GPU if there is one.
        where: option that has the name, for messages.

    Raises:
        ConfigError: another name.
        BackendError: `cuda` without a GPU.

    Example:
        >>> choose_device("cpu")
        device(type='cpu')
    """
    if name not in DEVICE_NAMES:
        raise ConfigError(f"device {name!r}", where=where, allowed=", ".join(DEVICE_NAMES))
    if name == "cpu":
        return CPU
    if not torch.cuda.is_available():
        if name == "cuda":
            raise BackendError(f"{where}=cuda, but torch sees no GPU", fix=f"{where}=cpu")
        return CPU
    return torch.device("cuda", process_environment().local_rank % torch.cuda.device_count())


@contextlib.contextmanager
def inference_on(name: str) -> Iterator[torch.device]:
    """Let models that are opened inside run on a device; `auto` without this context.

    Args:
        name: see `choose_device`.
    """
    device = choose_device(name)
    tokens = _INFERENCE.set(name), _PLACED.set(None)
    try:
        yield device
    finally:
        _INFERENCE.reset(tokens[0])
        _PLACED.reset(tokens[1])


def inference_device() -> torch.device:
    """Return the device on which trained models are applied, see `inference_on`."""
    return choose_device(_INFERENCE.get())


def placed(model: M) -> M:
    """Return a trained model after moving it to the `inference_device`, which is logged.

    A model without tensors computes on the CPU, and stays unnamed.
    """
    if next(itertools.chain(model.parameters(), model.buffers()), None) is None:
        return model
    device = inference_device()
    _PLACED.set(device)
    for line in device_notes():
        get_logger(__name__).info(line)
    return model.to(device)


def device_notes() -> list[str]:
    """Return a sentence for reports that names the GPU of a `placed` model; none for the CPU."""
    device = _PLACED.get()
    return [] if device is None or device.type == "cpu" else [f"Applied on {describe(device)}."]


@contextlib.contextmanager
def lent(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Move a model to a device, and back to where it was found at the end."""
    home = device_of(model)
    model.to(device)
    try:
        yield
    finally:
        model.to(home)


def describe(device: torch.device) -> str:
    """Return a device as text for reports, with the name of a GPU."""
    if device.type != "cuda":
        return str(device)
    return f"{device} ({torch.cuda.get_device_name(device)})"


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model's first parameter or buffer; the CPU for a model without.

    Example:
        >>> device_of(nn.Linear(2, 1))
        device(type='cpu')
    """
    for tensor in itertools.chain[Tensor](model.parameters(), model.buffers()):
        return tensor.device
    return CPU


def to_device(batch: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Return a batch with its tensors on a device; other values and tensors there stay."""
    return {
        name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
        for name, value in batch.items()
    }


def to_host(tensor: Tensor) -> np.ndarray:
    """Return the values of a tensor of any device, without its history, as a NumPy array.

    Values on the CPU share their memory with the array.
    """
    return tensor.detach().cpu().numpy()


def apply(
    model: nn.Module | Callable[[Any], Mapping[str, Tensor]],
    batch: Mapping[str, Any],
    device: torch.device | None = None,
) -> dict[str, Tensor]:
    """Apply a model to a batch without recording gradients; return its outputs on the CPU.

    Args:
        model: from a batch to named tensors.
        batch: tensors on any device.
        device: that of a `model` that is not a module.
    """
    if device is None:
        device = device_of(model) if isinstance(model, nn.Module) else CPU
    with torch.no_grad():
        outputs = model(to_device(batch, device))
        return {name: value.cpu() for name, value in outputs.items()}
