"""Loading of generated Triton kernels, for a GPU or for Triton's interpreter.

Triton reads the source of a kernel from its file. The generated source is therefore stored in the
kernel cache as a module and imported from there; Triton caches the compiled kernels. If
TRITON_INTERPRET=1 is set before Triton is first imported, the same modules run in numpy on the CPU:
slow, but every kernel can be tested without a GPU.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import hashlib
import importlib.util
import os
from pathlib import Path
from types import ModuleType

import torch

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen.cache import KernelCache, first_usable

OLDEST_CAPABILITY = (7, 0)  # CUDA compute capability that Triton requires


def is_interpreted() -> bool:
    """Return whether Triton kernels run under its interpreter in this process."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")


@functools.cache
def triton_version() -> str:
    """Return the version of Triton, empty if it is not installed or cannot be imported."""
    try:
        import triton
    except (ImportError, OSError):
        return ""
    return triton.__version__


def check_triton(device: str) -> None:
    """Check that Triton kernels can run on a type of device.

    Args:
        device: type of the device, such as cuda or cpu.

    Raises:
        BackendError: no Triton, no supported GPU, or the CPU without the interpreter.
    """
    if not triton_version():
        raise BackendError("triton is not installed", fix="pip install triton")
    if is_interpreted():
        return
    if device != "cuda":
        raise BackendError(
            f"triton has no kernels for tensors on {device}",
            fix="move the tensors to a GPU, or set TRITON_INTERPRET=1 to test on a CPU",
        )
    if not torch.cuda.is_available():  # fake tensors may be on a device that the machine lacks
        raise BackendError("no GPU is visible")
    if torch.version.hip is None and torch.cuda.get_device_capability() < OLDEST_CAPABILITY:
        raise BackendError(f"triton does not compile for {torch.cuda.get_device_name()}")


@functools.lru_cache(maxsize=1024)
def load_triton(source: str) -> ModuleType:
    """Return the module of generated Triton source, imported from the kernel cache."""
    key = hashlib.sha256(source.encode()).hexdigest()[:32]
    path = first_usable(functools.partial(_write, name=f"triton_{key}.py", source=source))
    spec = importlib.util.spec_from_file_location(f"scitoolkit_triton_{key}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if is_interpreted():
        module.range = _interpreted_range  # type: ignore[attr-defined]
    return module


def on_device(tensor: torch.Tensor) -> contextlib.AbstractContextManager:
    """Make the tensor's GPU the current device, on which Triton launches kernels."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()


def _write(cache: KernelCache, name: str, source: str) -> Path:
    """Return the path of the module with this source, writing it if missing or damaged."""
    data = source.encode()
    if cache.read(name) != data:
        cache.write(name, data)
    return cache.folder / name


def _interpreted_range(*bounds: object) -> range:
    """Return the range of bounds that may be loaded values.

    Triton's interpreter calls int() on an array of one element, which numpy 2.4 forbids.
    """
    return builtins.range(*(b if isinstance(b, int) else int(b.handle.data.item()) for b in bounds))  # type: ignore[attr-defined]
