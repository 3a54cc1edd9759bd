"""Generated Triton source to loaded kernels, on an NVIDIA GPU or under Triton's interpreter.

Triton reads a kernel's source from its file, so the generated text is kept in the cache as a
module and imported from there; what it compiles to, Triton caches by itself. With
TRITON_INTERPRET=1, set before Triton is first imported, the same modules run on the CPU in numpy:
slow, but every kernel can be tested on a machine without a GPU.
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

OLDEST_CAPABILITY = (7, 0)  # what Triton compiles for


def is_interpreted() -> bool:
    """Tell whether Triton's kernels run under its interpreter in this process."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")


@functools.cache
def triton_version() -> str:
    """Return the version of Triton, empty where it is not installed or does not import."""
    try:
        import triton
    except (ImportError, OSError):
        return ""
    return triton.__version__


def check_triton(device: str) -> None:
    """Check that Triton's kernels can run on tensors of a kind of device.

    Args:
        device: the device's type, such as cuda or cpu.

    Raises:
        BackendError: no Triton, no GPU that it knows, or the CPU without the interpreter.
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
    if not torch.cuda.is_available():  # a tracer's tensors may be on a device that is not here
        raise BackendError("no GPU is visible")
    if torch.version.hip is None and torch.cuda.get_device_capability() < OLDEST_CAPABILITY:
        raise BackendError(f"triton does not compile for {torch.cuda.get_device_name()}")


@functools.lru_cache(maxsize=1024)
def load_triton(source: str) -> ModuleType:
    """Return the module of generated Triton source, written to the cache when it is not there."""
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
    """Make the tensor's GPU the current one: Triton launches on the current device."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()


def _write(cache: KernelCache, name: str, source: str) -> Path:
    """Return the path of a module of this source, written unless it is there undamaged."""
    data = source.encode()
    if cache.read(name) != data:
        cache.write(name, data)
    return cache.folder / name


def _interpreted_range(*bounds: object) -> range:
    """Loops up to a loaded value: the interpreter turns it into an int in a way that numpy 2.4
    no longer allows (an array of one element is not a number)."""
    return builtins.range(*(b if isinstance(b, int) else int(b.handle.data.item()) for b in bounds))  # type: ignore[attr-defined]
