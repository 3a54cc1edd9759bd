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
from scitoolkit.deploy.agreement import evaluating, in_dtype
from scitoolkit.deploy.export import export
from scitoolkit.deploy.random_rounding import outcomes_of_rounding, spread, undecided
from scitoolkit.deploy.source import FLAGS

SAMPLES = 35
"""Two blocks and a remainder."""
CLOSE = {"float32": (2e-4, 5e-5), "float64": (1e-8, 1e-10)}
"""Largest difference by dtype: relative, and relative to the largest result."""

UNDECIDED = 0.2
"""Largest share of results that rounding decides, of a module that is called equal."""


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
    """Return {name: `equal`, `refused: ...`, `undecided: ...`, `wrong: ...` or `raw: ...`}.

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

    `undecided: ...` if rounding decides a large share of the module's own results.

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
    bounds = close or CLOSE[function.dtype]
    pairs = [(result[:-2], y.numpy()) for result, y in zip(results, wanted, strict=True)]
    steady = [y[None] for _, y in pairs]  # before the rounding is judged, which takes longer
    rounded = steady
    if any(_differs(*pair, y, status[:-2], bounds) for pair, y in zip(pairs, steady, strict=True)):
        rounded = outcomes_of_rounding(function, [a[:-2] for a in inputs])
    for pair, others in zip(pairs, rounded, strict=True):
        text = _differs(*pair, others, status[:-2], bounds)
        if text:
            return f"wrong: {text}"
    unknown = max(float(undecided(others).mean()) for others in rounded)
    if unknown > UNDECIDED:
        return f"undecided: {unknown:.0%} of the results of an output"
    return "equal"


def _differs(
    own: np.ndarray,
    other: np.ndarray,
    rounded: np.ndarray,
    status: np.ndarray,
    bounds: Sequence[float],
) -> str:
    """Return what differs between results and those of torch, or an empty text.

    Results that random roundings of all operators change by order one are not compared; others
    may differ by the spread of these roundings.
    """
    own, other = own.astype(np.float64), other.astype(np.float64)
    lost = ~np.isfinite(own).reshape(len(own), -1).all(1)
    if not (status[lost] == 2).all():
        return "no status 2 with NaN or infinity in an output"
    decided = ~undecided(rounded)
    own, other, rounded = own[decided], other[decided], rounded[:, decided]
    if not (np.isnan(own) == np.isnan(other)).all():
        return "NaN of other elements"
    finite = np.isfinite(other)
    infinite = ~finite & ~np.isnan(other)
    largest = max(float(np.abs(other[finite]).max(initial=0)), 1e-3)
    allowed = bounds[0] * np.abs(other[finite]) + bounds[1] * largest
    allowed += 4 * spread(rounded[:, finite])
    change = np.abs(own[finite] - other[finite])
    if not (change <= allowed).all() or (np.abs(own[infinite]) < largest).any():
        return f"by {change.max(initial=0):.2g} of {largest:.2g}"
    return ""


def counts(told: Mapping[str, str]) -> dict[str, int]:
    """Return the numbers of outcomes of each kind."""
    return {
        kind: sum(text.split(":")[0] == kind for text in told.values())
        for kind in ("equal", "refused", "undecided", "wrong", "raw")
    }
