"""Export of traced functions to ONNX, compared with the modules as onnxruntime computes them."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from scitoolkit.core.config import Config
from scitoolkit.core.errors import ConfigError, NumericalError, ScitoolkitError
from scitoolkit.core.files import write_together
from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy.agreement import (
    evaluating,
    examples,
    in_dtype,
    in_order,
    of_module,
    relative,
    require_separate,
)
from scitoolkit.deploy.interface import described
from scitoolkit.surrogate.onnx_file import write_onnx

TOLERANCE = {"float32": 1e-4, "float64": 1e-9}
COMPARED = (3, 19)
"""Samples of the calls that are compared; the first number is traced."""


class OnnxOptions(Config):
    """Options of `scitoolkit export RUN -o model.onnx`.

    Attributes:
        dtype: of arrays, weights and computation.
        batch: number of samples of a call, fixed in the file; any number unless given.
        tolerance: largest difference from the surrogate, relative to the largest value of an
            output; 1e-4 for float32 and 1e-9 for float64 unless given.
    """

    dtype: Literal["float32", "float64"] = "float32"
    batch: PositiveInt | None = None
    tolerance: float | None = Field(None, ge=0)


class _InOrder(nn.Module):
    """A module that returns its outputs as a tuple in the declared order."""

    def __init__(self, function: TracedFunction) -> None:
        super().__init__()
        self.module = function.module
        self._outputs, self._name = function.outputs, function.name

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(in_order(self.module(*inputs), self._outputs, self._name))


def export_onnx(
    functions: Sequence[TracedFunction], path: Path, options: OnnxOptions | None = None
) -> Mapping[str, Any]:
    """Write a function as ONNX; further functions, by name, into `STEM_NAME.onnx` beside it.

    Metadata of the file, `scitoolkit`, hold names, dims, units and boxes of the arrays and the
    facts of the training data. Boxes are not tested by a call.

    Args:
        functions: of a surrogate.
        path: the file of the function without a name, or of the first one.
        options: options.

    Returns:
        `path`, `paths` of all files, `inputs`, `outputs`, `largest_difference`.

    Raises:
        ConfigError: a module that torch cannot write, or that mixes samples.
        BackendError: onnx, onnxscript or onnxruntime is not installed.
        NumericalError: onnxruntime computes other numbers than the module.
    """
    options = options or OnnxOptions()
    functions = in_dtype(functions, options.dtype)
    dtype = functions[0].dtype
    allowed = TOLERANCE[dtype] if options.tolerance is None else options.tolerance
    contents: dict[Path, str | bytes] = {}
    worst = 0.0
    with evaluating(functions), tempfile.TemporaryDirectory(prefix="scitoolkit-") as scratch:
        for function in functions:
            require_separate(function)
            plain = not function.name or len(functions) == 1
            file = path if plain else path.with_name(f"{path.stem}_{function.name}{path.suffix}")
            difference = _written(function, Path(scratch) / "model.onnx", file, options.batch)
            if not difference <= allowed:
                raise NumericalError(
                    f"the file differs from the surrogate by {difference:.2g}",
                    where=str(file),
                    allowed=f"tolerance={allowed:g}",
                )
            contents[file] = (Path(scratch) / "model.onnx").read_bytes()
            worst = max(worst, difference)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_together(contents)
    about, paths = _about(functions[0], options.batch), [str(file) for file in contents]
    arrays = {kind: about[kind] for kind in ("inputs", "outputs")}
    return {"path": paths[0], "paths": paths, **arrays, "largest_difference": worst}


def _written(function: TracedFunction, path: Path, where: Path, batch: int | None) -> float:
    """Write a function to `path`, for `where`, and return its largest difference."""
    traced = [torch.tensor(a) for a in examples(function, batch or COMPARED[0])]
    samples = torch.export.Dim("samples")
    free = tuple(None if spec.shared else {0: samples} for spec in function.inputs)
    inputs, outputs = ([s.name for s in specs] for specs in (function.inputs, function.outputs))
    about = {"scitoolkit": _about(function, batch)}
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            # A number of samples that the module fixes is an error, not a file for one number.
            call = write_onnx(
                _InOrder(function),
                traced,
                path,
                inputs,
                outputs,
                about,
                None if batch else {"inputs": free},
            )
        return _compared(function, call, [batch] if batch else COMPARED)
    except ScitoolkitError:
        raise
    except Exception as error:  # torch and onnxruntime have many kinds
        text = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"{type(function.module).__name__} cannot be written ({type(error).__name__}: {text})",
            where=str(where),
            fix="-o model.c" if batch else "a fixed number of samples, batch=1, or -o model.c",
        ) from error


def _compared(function: TracedFunction, call: Any, sizes: Sequence[int]) -> float:
    worst = 0.0
    for seed, count in enumerate(sizes, 1):
        inputs = examples(function, count, seed)
        wanted = of_module(function, inputs, together=False)
        results = call([torch.tensor(a) for a in inputs])
        for own, result, spec in zip(wanted, results, function.outputs, strict=True):
            if own.shape != result.shape:
                raise NumericalError(
                    f"{spec.name} is {result.shape} in onnxruntime", allowed=str(own.shape)
                )
            worst = max(worst, relative(own, result))
    return worst


def _about(function: TracedFunction, batch: int | None) -> dict[str, Any]:
    return {
        "dtype": function.dtype,
        "inputs": [described(spec, batch or -1) for spec in function.inputs],
        "outputs": [described(spec, batch or -1) for spec in function.outputs],
        "facts": None if function.facts is None else asdict(function.facts),
    }
