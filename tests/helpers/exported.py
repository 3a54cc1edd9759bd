"""Exports of many modules: each equal to torch, refused by name, wrong, or a raw error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.agreement import evaluating
from scitoolkit.deploy.export import export, in_dtype
from scitoolkit.deploy.source import FLAGS

SAMPLES = 35
"""Two blocks and a remainder."""
CLOSE = {"float32": (2e-4, 5e-5), "float64": (1e-8, 1e-10)}
"""Largest difference by dtype: relative, and relative to the largest result."""


class Joined(nn.Module):
    """Modules of one input each as one module, which is traced and compiled faster than many."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules)

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        return [part(x) for part, x in zip(self.parts, inputs, strict=True)]


def outcomes(
    functions: Sequence[TracedFunction],
    folder: Path,
    config: Callable[[Sequence[TracedFunction]], ExportConfig],
    together: int = 16,
    close: tuple[float, float] | None = None,
    *,
    optimised: bool = False,
) -> dict[str, str]:
    """Return {name: `equal`, `refused: ...`, `wrong: ...` or `raw: ...`}.

    A compiler needs 20 times longer to optimise the code of many modules than to translate it.

    Args:
        functions: of one input and one output each, and of distinct names.
        folder: for the libraries.
        config: options for functions that are exported together.
        together: number of functions that are exported together; halved where one is not equal.
        close: largest differences as in `CLOSE`, for forms that change results.
        optimised: compile with the flags of an export, instead of without optimisation.
    """
    flags = FLAGS if optimised else tuple("-O0" if f == "-O3" else f for f in FLAGS)
    with mock.patch("scitoolkit.deploy.export.FLAGS", flags):
        return _outcomes(functions, folder, config, together, close)


def _outcomes(
    functions: Sequence[TracedFunction],
    folder: Path,
    config: Callable[[Sequence[TracedFunction]], ExportConfig],
    together: int,
    close: tuple[float, float] | None,
) -> dict[str, str]:
    told: dict[str, str] = {}
    for start in range(0, len(functions), together):
        part = functions[start : start + together]
        text = _outcome(part, folder, config(part), close)
        if text == "equal" or len(part) == 1:
            told |= {function.name: text for function in part}
        else:
            half = (len(part) + 1) // 2
            told |= _outcomes(part, folder, config, half, close)
    return told


def _outcome(
    functions: Sequence[TracedFunction],
    folder: Path,
    config: ExportConfig,
    close: tuple[float, float] | None,
) -> str:
    joined = TracedFunction(
        Joined([f.module for f in functions]),
        [replace(f.inputs[0], name=f"x{k}") for k, f in enumerate(functions)],
        [replace(f.outputs[0], name=f"y{k}") for k, f in enumerate(functions)],
    )
    path, refused = folder / "m.so", ""
    try:
        try:
            export([joined], path, config)
        except NumericalError as error:  # a wrong number, or one that rounding changes as much
            if close is not None:
                return f"refused: {_short(error)}"
            refused = f"refused: {_short(error)}"
            export([joined], path, config.model_copy(update={"tolerance": np.inf}))
        (function,) = in_dtype([joined], config.dtype)
        with evaluating([function]):
            text = difference(function, CompiledSurrogate(path), close)
        return refused if refused and text == "equal" else text
    except ConfigError as error:
        return f"refused: {_short(error)}"
    except Exception as error:
        return f"raw: {type(error).__name__} {_short(error)}"


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:160]


def difference(
    function: TracedFunction,
    library: CompiledSurrogate,
    close: tuple[float, float] | None = None,
) -> str:
    """Return `equal`, or `wrong: ...` with what differs between a library and a module.

    Compared are the numbers and NaN of finite samples, and the statuses of samples with NaN or an
    infinity in an input or output.
    """
    generator = np.random.default_rng(7)
    inputs = []
    for spec in function.inputs:
        low = -1.5 if spec.low is None else spec.low
        high = 1.5 if spec.high is None else spec.high
        values = generator.uniform(low, high, (SAMPLES, *spec.shape)).astype(function.dtype)
        values[-2].reshape(-1)[:1], values[-1].reshape(-1)[-1:] = np.nan, np.inf
        inputs.append(values)
    results, status = library(*inputs, function=function.name)
    if not (status[-2:] == 2).all():
        return f"wrong: statuses {status[-2:]} with NaN and infinity in the inputs"
    with torch.no_grad():
        wanted = function.module(*(torch.tensor(a[:-2]) for a in inputs))
        others = _rounded_otherwise(function, [a[:-2] for a in inputs])
    bounds = close or CLOSE[function.dtype]
    for result, tensor, *rounded in zip(results, wanted, *others, strict=True):
        alternatives = [other.numpy() for other in rounded]
        text = _differs(result[:-2], tensor.numpy(), alternatives, status[:-2], bounds)
        if text:
            return f"wrong: {text}"
    return "equal"


def _rounded_otherwise(
    function: TracedFunction, inputs: Sequence[np.ndarray]
) -> list[list[Tensor]]:
    """Return results of the module with other roundings, which tell how sensitive each is.

    Inputs change by 1 to 3 units in the last place, and float32 modules are evaluated in float64,
    too. One alternative does not tell: a quotient near an integer, of which `fmod` takes the
    remainder, jumps under some roundings only.
    """
    step = np.finfo(inputs[0].dtype).eps / 2
    changes = [1 + k * step for k in (-3, -2, -1, 1, 2, 3)]
    others = [
        function.module(*(torch.tensor((a * change).astype(a.dtype)) for a in inputs))
        for change in changes
    ]
    if function.dtype == "float64":
        return others
    (double,) = in_dtype([function], "float64")
    with evaluating([double]):
        return [*others, double.module(*(torch.tensor(a.astype(np.float64)) for a in inputs))]


def _differs(
    own: np.ndarray,
    other: np.ndarray,
    alternatives: Sequence[np.ndarray],
    status: np.ndarray,
    bounds: Sequence[float],
) -> str:
    """Return what differs between results and those of torch, or an empty text."""
    own, other = own.astype(np.float64), other.astype(np.float64)
    rounded = np.stack([a.astype(np.float64) for a in alternatives])
    lost = ~np.isfinite(own).reshape(len(own), -1).all(1)
    if not (status[lost] == 2).all():
        return "no status 2 with NaN or infinity in an output"
    steady = (np.isfinite(other) == np.isfinite(rounded)).all(0)
    own, other, rounded = own[steady], other[steady], rounded[:, steady]
    if not (np.isnan(own) == np.isnan(other)).all():
        return "NaN of other elements"
    finite = np.isfinite(other)
    infinite = ~finite & ~np.isnan(other)
    largest = max(float(np.abs(other[finite]).max(initial=0)), 1e-3)
    allowed = bounds[0] * np.abs(other[finite]) + bounds[1] * largest
    allowed += 16 * np.abs(other[finite] - rounded[:, finite]).max(0)
    change = np.abs(own[finite] - other[finite])
    if not (change <= allowed).all() or (np.abs(own[infinite]) < largest).any():
        return f"by {change.max(initial=0):.2g} of {largest:.2g}"
    return ""


def counts(told: Mapping[str, str]) -> dict[str, int]:
    """Return the numbers of equal, refused, wrong and raw outcomes."""
    return {
        kind: sum(text.split(":")[0] == kind for text in told.values())
        for kind in ("equal", "refused", "wrong", "raw")
    }
