"""A trained emulator on disk: `weights.safetensors` with the layout in its header."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from scitoolkit.core.errors import CheckpointError
from scitoolkit.core.run_directory import replacing
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.ensemble import AnyEmulator, build_any
from scitoolkit.emulation.variables import Layout

WEIGHTS = "weights.safetensors"
_STEP, _LARGE, _ROW = ".step", 10_000, 64


def save(emulator: AnyEmulator, folder: Path, dtype: str = "float32") -> Path:
    """Write weights, normalisation and layout into `folder`, under a temporary name first.

    Args:
        emulator: what to write.
        folder: where to.
        dtype: of the weights: float32, float16, or int8, by which large kernels are rounded to
            1/254 of the range of each of their rows and the rest to float16. The normalisation
            stays float32.

    Raises:
        ScitoolkitError: the disk is full, or the folder cannot be written.
    """
    path = Path(folder) / WEIGHTS
    tensors = {k: v.detach().cpu().contiguous() for k, v in emulator.state_dict().items()}
    for name, _ in emulator.named_parameters():
        tensors |= _rounded(name, tensors[name], dtype)
    header = {"scitoolkit": json.dumps({"layout": emulator.layout.to_json()})}
    with replacing(path, SafetensorError) as temporary:
        save_file(tensors, temporary, header)
    return path


def load(folder: Path, config: EmulationConfig) -> AnyEmulator:
    """Read what `save` wrote; the emulator is ready to be called.

    Raises:
        CheckpointError: missing, damaged, or of another configuration.
    """
    path = Path(folder) / WEIGHTS
    try:
        with safe_open(str(path), framework="pt") as file:
            header = json.loads((file.metadata() or {})["scitoolkit"])
        emulator = build_any(config, Layout.from_json(header["layout"]))
        emulator.load_state_dict(_restored(load_file(str(path))))
    except FileNotFoundError:
        raise CheckpointError("no weights", where=str(path), fix="train first") from None
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"cannot be read ({error})", where=str(path)) from None
    with torch.no_grad():
        return emulator.eval()


def _rounded(name: str, weight: Tensor, dtype: str) -> dict[str, Tensor]:
    if dtype != "int8" or weight.numel() < _LARGE or (weight.ndim < 2 and len(weight) % _ROW):
        return {name: weight.to(torch.float32 if dtype == "float32" else torch.float16)}
    rows = _rows(weight)
    step = (rows.abs().amax(1, keepdim=True) / 127).clamp_min(1e-30)
    return {name: (rows / step).round().to(torch.int8).view_as(weight), name + _STEP: step}


def _rows(weight: Tensor) -> Tensor:
    """Return the rows that have a step of their own: of a matrix, or stretches of a vector."""
    return weight.flatten(1) if weight.ndim > 1 else weight.view(-1, _ROW)


def _restored(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return float tensors; what is int8 is multiplied with its rows' steps."""
    out = {}
    for name, tensor in tensors.items():
        if tensor.dtype == torch.int8:
            tensor = (_rows(tensor) * tensors[name + _STEP]).view(tensor.shape)
        if not name.endswith(_STEP):
            out[name] = tensor
    return out
