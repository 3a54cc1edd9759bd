"""Trained emulators on disk: `weights.safetensors` with the layout in its header."""

from __future__ import annotations

from pathlib import Path

from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.ensemble import AnyEmulator, build_any
from scitoolkit.emulation.variables import Layout
from scitoolkit.surrogate.lifecycle import rebuilt, save_model


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
    model = ModelFolder(folder)
    save_model(emulator, model, {"layout": emulator.layout.to_json()}, dtype)
    return model.weights


def load(folder: Path, config: EmulationConfig) -> AnyEmulator:
    """Read an emulator written by `save` or by a training, in evaluation mode.

    Raises:
        CheckpointError: a missing or damaged file, or weights of another configuration.
    """
    return rebuilt(
        ModelFolder(folder), lambda told: build_any(config, Layout.from_json(told["layout"]))
    )
