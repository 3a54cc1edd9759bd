"""Export of emulators to AOTInductor packages and ONNX, compared with the emulator.

A `.pt2` is an AOTInductor package: compiled code and weights in one file, called from C++ through
`torch::inductor::AOTIModelPackageLoader` and from Python through
`torch._inductor.aoti_load_package`. Inputs and outputs have the order and units of the layout,
which is stored in the metadata of the file.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import BackendError, ConfigError, NumericalError
from scitoolkit.core.files import write_atomic
from scitoolkit.emulation.emulator import Emulator
from scitoolkit.emulation.variables import Variable
from scitoolkit.surrogate.onnx_file import write_onnx

SUFFIXES = (".pt2", ".onnx")
TOLERANCE = 1e-4
"""Largest difference from the emulator, relative to the output's largest value."""


def export(emulator: Emulator, path: Path, batch: int = 1) -> dict[str, Any]:
    """Write an emulator as `.pt2` or `.onnx` and compare its outputs with those of the emulator.

    Args:
        emulator: the trained emulator.
        path: the file to write; its suffix selects the format.
        batch: number of samples of a call, fixed in the file.

    Returns:
        `path`, `inputs` and `outputs` with their shapes and units, `largest_difference`.

    Raises:
        ConfigError: an unsupported suffix, or a batch below 1.
        BackendError: no compiler, or a missing package.
        NumericalError: outputs of the file differ from those of the emulator.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"suffix {path.suffix!r}", where=str(path), allowed=", ".join(SUFFIXES))
    if batch < 1:
        raise ConfigError(f"batch {batch}", allowed="1 or more")
    emulator = emulator.cpu().eval()
    example = example_inputs(emulator, batch)
    write = _write_package if path.suffix == ".pt2" else _write_onnx
    with tempfile.TemporaryDirectory(prefix="scitoolkit-") as scratch:
        made = Path(scratch) / f"model{path.suffix}"
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            call = write(PlainEmulator(emulator), example, made, describe(emulator, batch))
            difference = _compare(emulator, call, batch)
        if not difference <= TOLERANCE:
            raise NumericalError(
                f"the exported file differs from the emulator by {difference:.2g}",
                where=str(path),
                allowed=f"{TOLERANCE:g}",
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, made.read_bytes())
    return {"path": str(path), **describe(emulator, batch), "largest_difference": difference}


def describe(emulator: Emulator, batch: int = 1) -> dict[str, Any]:
    """Return names, dims, shapes and units of inputs and outputs, in order, as JSON types."""
    layout = emulator.layout

    def entry(variable: Variable) -> dict[str, Any]:
        return {
            "name": variable.name,
            "dims": ["sample", *variable.dims],
            "shape": [batch, *variable.shape],
            "units": variable.units,
        }

    return {
        "inputs": [entry(v) for v in layout.inputs],
        "outputs": [entry(v) for v in layout.outputs],
        "step": None if layout.leads else layout.step,
        **({"leads": list(layout.leads)} if layout.leads else {}),
        **({} if layout.valid is None else {"valid_cells": int(layout.valid.sum())}),
    }


def example_inputs(emulator: Emulator, batch: int, seed: int = 0) -> tuple[Tensor, ...]:
    """Return random inputs with the mean and half the spread of the training data.

    Returns:
        (batch, *dims) float32 for each input.
    """
    part = emulator.advance
    generator = torch.Generator().manual_seed(seed)
    pieces = zip(
        part.mean.split([v.size for v in part.layout.inputs]),
        part.scale.split([v.size for v in part.layout.inputs]),
        strict=True,
    )
    out = []
    for variable, (mean, scale) in zip(part.layout.inputs, pieces, strict=True):
        values = torch.randn((batch, *variable.shape), generator=generator)
        shape = (1,) * values.ndim if variable.is_field else (1, *variable.shape)
        out.append(mean.reshape(shape) + 0.5 * scale.reshape(shape) * values)
    return tuple(out)


class PlainEmulator(nn.Module):
    """Emulator whose forward pass takes tensors only."""

    def __init__(self, emulator: Emulator) -> None:
        super().__init__()
        self.emulator = emulator

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.emulator(*inputs)


Call = Callable[[Sequence[Tensor]], Sequence[np.ndarray]]


def _write_package(
    model: nn.Module, example: tuple[Tensor, ...], path: Path, about: dict[str, Any]
) -> Call:
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    program = torch.export.export(model, example, strict=False)
    try:
        aoti_compile_and_package(
            program,
            package_path=str(path),
            inductor_configs={"aot_inductor.metadata": {"scitoolkit": json.dumps(about)}},
        )
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise BackendError(
            f"AOTInductor could not compile the emulator ({type(error).__name__}: {text})",
            where="export to .pt2",
            fix="install a C++ compiler (g++), or export to .onnx",
        ) from error
    loaded = aoti_load_package(str(path))
    return lambda inputs: [t.numpy() for t in loaded(*inputs)]


def _write_onnx(
    model: nn.Module, example: tuple[Tensor, ...], path: Path, about: dict[str, Any]
) -> Call:
    inputs, outputs = ([entry["name"] for entry in about[k]] for k in ("inputs", "outputs"))
    return write_onnx(model, example, path, inputs, outputs, {"scitoolkit": about})


def _compare(emulator: Emulator, call: Call, batch: int) -> float:
    """Return the largest relative difference on inputs other than the traced ones."""
    inputs = example_inputs(emulator, batch, seed=1)
    worst = 0.0
    for own, other in zip(emulator(*inputs), call(inputs), strict=True):
        expected = own.detach().numpy()
        scale = max(float(np.abs(expected).max()), 1e-30)
        worst = max(worst, float(np.abs(expected - other).max()) / scale)
    return worst
