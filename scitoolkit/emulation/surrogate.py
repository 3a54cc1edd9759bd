"""Trained emulators on disk: `weights.safetensors` with the layout in its header."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from scitoolkit.core.errors import CheckpointError
from scitoolkit.core.files import replacing
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.ensemble import AnyEmulator, build_any
from scitoolkit.emulation.variables import Layout
from scitoolkit.training.rounded_weights import restored, rounded

WEIGHTS = "weights.safetensors"


def save(emulator: AnyEmulator, folder: Path, dtype: str = "float32") -> Path:
    """Write weights, normalisation and layout into `folder`, atomically.

    Args:
        emulator: the emulator to write.
        folder: the destination.
        dtype: of the weights: float32, float16 or int8; see `rounded_weights`. The normalisation
            stays float32.

    Raises:
        ScitoolkitError: the disk is full, or the folder cannot be written.
    """
    path = Path(folder) / WEIGHTS
    tensors = {k: v.detach().cpu().contiguous() for k, v in emulator.state_dict().items()}
    tensors = rounded(tensors, [name for name, _ in emulator.named_parameters()], dtype)
    header = {"scitoolkit": json.dumps({"layout": emulator.layout.to_json()})}
    with replacing(path, SafetensorError) as temporary:
        save_file(tensors, temporary, header)
    return path


def load(folder: Path, config: EmulationConfig) -> AnyEmulator:
    """Read an emulator written by `save`, in evaluation mode.

    Raises:
        CheckpointError: a missing or damaged file, or weights of another configuration.
    """
    path = Path(folder) / WEIGHTS
    try:
        with safe_open(str(path), framework="pt") as file:
            header = json.loads((file.metadata() or {})["scitoolkit"])
        emulator = build_any(config, Layout.from_json(header["layout"]))
        emulator.load_state_dict(restored(load_file(str(path))))
    except FileNotFoundError:
        raise CheckpointError("no weights", where=str(path), fix="train first") from None
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"cannot be read ({error})", where=str(path)) from None
    with torch.no_grad():
        return emulator.eval()
