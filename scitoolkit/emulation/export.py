"""Emulators for solvers: a compiled package that C++ loads, or ONNX; each checked before use.

A `.pt2` is an AOTInductor package: compiled code and weights in one file, called from C++ through
`torch::inductor::AOTIModelPackageLoader` and from Python through
`torch._inductor.aoti_load_package`. Tensors go in and come out in the order and in the units of
the layout, which is in the file's metadata.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import BackendError, ConfigError, NumericalError, missing_extra
from scitoolkit.emulation.emulator import Emulator
from scitoolkit.emulation.variables import Variable

SUFFIXES = (".pt2", ".onnx")
TOLERANCE = 1e-4
"""Largest difference from the emulator, relative to the output's largest value."""


def export(emulator: Emulator, path: Path, batch: int = 1) -> dict[str, Any]:
    """Write an emulator as `.pt2` or `.onnx`, call what was written, and compare.

    Args:
        emulator: the trained emulator.
        path: the file to write; its suffix says which kind.
        batch: samples of a call, fixed in the file.

    Returns:
        `path`, `inputs` and `outputs` with their shapes and units, `largest_difference`.

    Raises:
        ConfigError: another suffix.
        BackendError: no compiler, or a missing package.
        NumericalError: the written file does not return what the emulator does.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"suffix {path.suffix!r}", where=str(path), allowed=", ".join(SUFFIXES))
    if batch < 1:
        raise ConfigError(f"batch {batch}", allowed="1 or more")
    emulator = emulator.cpu().eval()
    example = example_inputs(emulator, batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    write = _write_package if path.suffix == ".pt2" else _write_onnx
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        call = write(PlainEmulator(emulator), example, path, describe(emulator, batch))
        difference = _compare(emulator, call, batch)
    if not difference <= TOLERANCE:
        path.unlink(missing_ok=True)
        raise NumericalError(
            f"what was written differs from the emulator by {difference:.2g}", where=str(path),
            allowed=f"{TOLERANCE:g}",
        )  # fmt: skip
    return {"path": str(path), **describe(emulator, batch), "largest_difference": difference}


def describe(emulator: Emulator, batch: int = 1) -> dict[str, Any]:
    """Return what a caller has to know (JSON types): names, dims, shapes and units, in order."""
    layout = emulator.layout

    def entry(variable: Variable) -> dict[str, Any]:
        return {
            "name": variable.name, "dims": ["sample", *variable.dims],
            "shape": [batch, *variable.shape], "units": variable.units,
        }  # fmt: skip

    return {
        "inputs": [entry(v) for v in layout.inputs],
        "outputs": [entry(v) for v in layout.outputs],
        "step": None if layout.leads else layout.step,
        **({"leads": list(layout.leads)} if layout.leads else {}),
        **({} if layout.valid is None else {"valid_cells": int(layout.valid.sum())}),
    }


def example_inputs(emulator: Emulator, batch: int, seed: int = 0) -> tuple[Tensor, ...]:
    """Return random inputs of the size that the training data had, (batch, *dims) float32."""
    part = emulator.advance
    generator = torch.Generator().manual_seed(seed)
    pieces = zip(
        part.mean.split([v.size for v in part.layout.inputs]),
        part.scale.split([v.size for v in part.layout.inputs]), strict=True,
    )  # fmt: skip
    out = []
    for variable, (mean, scale) in zip(part.layout.inputs, pieces, strict=True):
        values = torch.randn((batch, *variable.shape), generator=generator)
        shape = (1,) * values.ndim if variable.is_field else (1, *variable.shape)
        out.append(mean.reshape(shape) + 0.5 * scale.reshape(shape) * values)
    return tuple(out)


class PlainEmulator(nn.Module):
    """The emulator with tensors only in its signature."""

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
            program, package_path=str(path),
            inductor_configs={"aot_inductor.metadata": {"scitoolkit": json.dumps(about)}},
        )  # fmt: skip
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise BackendError(
            f"AOTInductor could not compile the emulator ({type(error).__name__}: {text})",
            where=str(path), fix="install a C++ compiler (g++), or export to .onnx",
        ) from error  # fmt: skip
    loaded = aoti_load_package(str(path))
    return lambda inputs: [t.numpy() for t in loaded(*inputs)]


def _write_onnx(
    model: nn.Module, example: tuple[Tensor, ...], path: Path, about: dict[str, Any]
) -> Call:
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError:
        raise missing_extra("onnx, onnxscript, onnxruntime", "emulation", "ONNX") from None
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    torch.onnx.export(
        model, example, str(path), dynamo=True, verbose=False, external_data=False,
        input_names=[v["name"] for v in about["inputs"]],
        output_names=[f"{v['name']}_next" if v["name"] in _names(about["inputs"]) else v["name"]
                      for v in about["outputs"]],
    )  # fmt: skip
    stored = onnx.load(str(path))
    onnx.helper.set_model_props(stored, {"scitoolkit": json.dumps(about)})
    onnx.save(stored, str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return lambda inputs: session.run(
        None, {n: t.numpy() for n, t in zip(names, inputs, strict=True)}
    )


def _names(entries: list[dict[str, Any]]) -> set[str]:
    return {entry["name"] for entry in entries}


def _compare(emulator: Emulator, call: Call, batch: int) -> float:
    """Return the largest difference on inputs that the writing has not seen."""
    inputs = example_inputs(emulator, batch, seed=1)
    worst = 0.0
    for own, other in zip(emulator(*inputs), call(inputs), strict=True):
        expected = own.detach().numpy()
        scale = max(float(np.abs(expected).max()), 1e-30)
        worst = max(worst, float(np.abs(expected - other).max()) / scale)
    return worst
