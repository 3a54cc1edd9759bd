"""Agreement of a module with its description and of the C code with the module, before writing.

Trusted on neither side: that a sample's result is its own, that outputs have the declared shapes,
and that a result which is not a number stays none. All three are computed and compared.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy.library import Call

SAMPLES = 3
"""Samples of a comparison: fewer than a block, and its remainder."""
MIXED = 1e-3
"""Change of a sample's result by other samples, relative to the largest result, above rounding."""
LARGE = {"float32": 1e37, "float64": 1e307}
"""Numbers of a dtype that may be infinite in another order of additions."""


@contextlib.contextmanager
def evaluating(functions: Sequence[TracedFunction]) -> Iterator[None]:
    """Set modules to evaluation mode, and back to the mode of each part afterwards.

    The default dtype, of arrays that a module makes, is meanwhile that of the functions.
    """
    modes = [(part, part.training) for f in functions for part in f.module.modules()]
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(getattr(torch, functions[0].dtype))
        for function in functions:
            function.module.eval()
        yield
    finally:
        torch.set_default_dtype(before)
        for part, training in modes:
            part.training = training


def in_dtype(functions: Sequence[TracedFunction], dtype: str) -> Sequence[TracedFunction]:
    """Return functions with copies of their modules in a dtype; themselves if they are in it.

    Raises:
        ConfigError: functions of different dtypes.
    """
    dtypes = {f.dtype for f in functions}
    if dtypes == {"float32"} and dtype == "float64":
        return [replace(f, module=_in_double(f.module), dtype="float64") for f in functions]
    if len(dtypes) > 1:
        raise ConfigError("functions of float32 and float64", where="export to C", fix="two files")
    return functions


def copies(modules: list[nn.Module]) -> list[nn.Module]:
    """Return deep copies of modules, which share what the modules share.

    Results of computations, as a weight norm keeps one, have no deep copy in torch.
    """
    loose = [x for module in modules for part in module.modules() for x in vars(part).values()]
    made = {id(x): x.detach().clone() for x in loose if isinstance(x, torch.Tensor)}
    return copy.deepcopy(modules, made)


def _in_double(module: nn.Module) -> nn.Module:
    """Return a copy in double precision, also of what `Module.double` leaves.

    That are complex weights, and tensors that are neither parameters nor buffers.
    """
    double = copies([module])[0].double()
    loose = [x for part in double.modules() for x in vars(part).values()]
    for tensor in (*double.parameters(), *double.buffers(), *loose):
        if isinstance(tensor, torch.Tensor) and tensor.is_complex():
            tensor.data = tensor.data.to(torch.complex128)
        elif isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
            tensor.data = tensor.data.double()
    return double


def in_order(result: Any, outputs: Sequence[ArraySpec], name: str) -> list[Any]:
    """Return the outputs of a module in the declared order: of a tensor, sequence or dictionary.

    Raises:
        ConfigError: other outputs than declared.
    """
    wanted = [spec.name for spec in outputs]
    if isinstance(result, dict):
        if set(result) != set(wanted):
            raise _undeclared(f"returns {', '.join(map(str, result))}", wanted, name)
        return [result[key] for key in wanted]
    parts = list(result) if isinstance(result, list | tuple) else [result]
    if len(parts) != len(wanted):
        raise _undeclared(f"returns {len(parts)} arrays", wanted, name)
    return parts


def _undeclared(text: str, wanted: Sequence[str], name: str) -> ConfigError:
    return ConfigError(
        f"the module {text}, declared {', '.join(wanted)}",
        where=f"function {name!r}",
        fix="declare every output of the module in this order, or return a dictionary by name",
    )


def examples(
    function: TracedFunction, samples: int = SAMPLES, seed: int = 0, share: float = 0.4
) -> list[np.ndarray]:
    """Return inputs of a function: its examples, or random numbers from the middle of the box."""
    generator = np.random.default_rng(seed)
    out = []
    for place, spec in enumerate(function.inputs):
        shape = spec.shape if spec.shared else (samples, *spec.shape)
        if function.examples:
            example = np.asarray(function.examples[place], function.dtype)
            values: np.ndarray = (
                example if spec.shared else example[np.arange(samples) % len(example)]
            )
        else:
            values = _between(function, spec, generator, shape, (1 - share) / 2, (1 + share) / 2)
        out.append(np.ascontiguousarray(values, function.dtype).reshape(shape))
    return out


def _between(
    function: TracedFunction,
    spec: ArraySpec,
    generator: np.random.Generator,
    shape: tuple,
    first: float,
    last: float,
) -> np.ndarray:
    """Return numbers between two shares of the box; beside it, or without it, normal ones."""
    normal = generator.normal(size=shape)
    share = generator.uniform(first, last, shape)
    low, high = (
        np.broadcast_to(np.asarray(fill if b is None else b, np.float64), spec.shape)
        for b, fill in ((spec.low, -np.inf), (spec.high, np.inf))
    )
    largest = LARGE[function.dtype]
    limits = (np.abs(low) < largest) * 2 + (np.abs(high) < largest)
    with np.errstate(invalid="ignore"):
        return np.select(
            [limits == 3, limits == 2, limits == 1],
            [low * (1 - share) + high * share, low + np.abs(normal), high - np.abs(normal)],
            normal,
        )


def of_module(function: TracedFunction, inputs: Sequence[np.ndarray], *, together: bool) -> list:
    """Return the outputs of a module, for all samples together or one at a time.

    A sample alone of which torch refuses integers has NaN, as from C, where nothing is raised.

    Raises:
        ConfigError: the module cannot be called, or its outputs are of other numbers, names, kinds
            or shapes than declared.
    """
    samples = next(len(a) for a, s in zip(inputs, function.inputs, strict=True) if not s.shared)
    size = samples if together else 1
    parts = []
    for start in range(0, samples, size):
        tensors = [
            torch.tensor(a if s.shared else a[start : start + size])  # a copy it may change
            for a, s in zip(inputs, function.inputs, strict=True)
        ]
        try:
            with torch.no_grad():
                result = in_order(function.module(*tensors), function.outputs, function.name)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
            text = " ".join(str(error).split())[:200]
            if not together and _refuses_numbers(text):
                shapes = [(size, *spec.shape) for spec in function.outputs]
                parts.append([np.full(shape, np.nan, function.dtype) for shape in shapes])
                continue
            raise ConfigError(
                f"{type(function.module).__name__} cannot be called ({text})",
                where=f"function {function.name!r}",
                allowed=", ".join(
                    f"{s.name} {function.dtype} {('samples', *s.shape)}" for s in function.inputs
                ),
            ) from error
        pairs = zip(result, function.outputs, strict=True)
        parts.append([_declared(tensor, spec, size, function.name) for tensor, spec in pairs])
    return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]


def _refuses_numbers(text: str) -> bool:
    """Whether an error of torch tells an index out of range or a division of integers by 0."""
    return (text.startswith("index") and " out of " in text) or text == "ZeroDivisionError"


def _declared(result: Any, spec: ArraySpec, samples: int, name: str) -> np.ndarray:
    """Return a result as an array, if it has the declared shape."""
    wanted = (samples, *spec.shape)
    if not isinstance(result, torch.Tensor) or tuple(result.shape) != wanted:
        shape = tuple(result.shape) if isinstance(result, torch.Tensor) else type(result).__name__
        raise ConfigError(
            f"output {spec.name} is {shape} for {samples} samples, declared {wanted}",
            where=f"function {name!r}",
            fix=f"declare the shape of one sample: {tuple(shape[1:])}"
            if isinstance(shape, tuple)
            else "return tensors",
        )
    if result.is_complex():
        raise ConfigError(
            f"output {spec.name} has complex numbers",
            where=f"function {name!r}",
            fix="torch.view_as_real(y), with a dim of 2 more",
        )
    return result.numpy(force=True)


def relative(own: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference where `own` is finite, relative to its largest finite value.

    Infinite if one is NaN or clearly infinite where the other is a number.
    """
    limit = LARGE["float64" if own.dtype == other.dtype == np.float64 else "float32"]
    own, other = own.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(own)
    largest = float(np.abs(own[finite]).max()) if finite.any() else 0.0
    wrong = np.isnan(own) != np.isnan(other)
    clipped = (np.clip(a, -limit, limit) for a in (own, other))
    with np.errstate(invalid="ignore"):
        change = np.abs(np.subtract(*clipped))
    if wrong.any():
        return float("inf")
    return float(np.nanmax(change, initial=0.0)) / max(min(largest, limit), 1e-30)


def require_separate(function: TracedFunction) -> None:
    """Raise ConfigError if outputs are not as declared, random, or depend on other samples."""
    inputs = examples(function)
    together = of_module(function, inputs, together=True)
    alone = of_module(function, inputs, together=False)
    for spec, own, other in zip(function.outputs, alone, together, strict=True):
        if not relative(own, other) <= MIXED:
            again = of_module(function, inputs, together=False)
            if any(relative(*pair) > MIXED for pair in zip(alone, again, strict=True)):
                raise ConfigError(
                    f"{spec.name} of two equal calls differs: the module draws random numbers, or "
                    "keeps a state",
                    where=f"function {function.name!r}",
                    fix="training=False in functional calls; pass random numbers as an input, a "
                    "state as an input and an output",
                )
            raise ConfigError(
                f"samples are mixed: {spec.name} of a sample changes by "
                f"{relative(own, other):.2g} of the largest value with the other samples",
                where=f"function {function.name!r}",
                fix="keep dim 0, the samples, apart: batch_first=True, and no mean, softmax or "
                "roll over dim 0",
            )


def difference(function: TracedFunction, call: Call, samples: int) -> float:
    """Return the largest difference of C code from a module, relative to each output's largest.

    Compared are numbers from inside the box, at its limits and beyond, in two orders of the
    samples, and the statuses of samples with NaN or infinity in an input.

    Args:
        function: the function as a module.
        call: the C code: inputs and name of a function to outputs and statuses.
        samples: of a call; more than a block to compare the code of blocks and of single samples.

    Raises:
        NumericalError: a status that does not tell NaN or infinity.
    """
    first, *wider = trials(function, samples)
    _require_status(function, call, first)
    changes = [_compared(function, call, first)]
    for inputs in wider:
        try:
            changes.append(_compared(function, call, inputs))
        except ConfigError:  # the module refuses numbers beside the box, as `one_hot` does
            rows = accepted_rows(function, inputs)
            own = rows_of(function, inputs, rows)
            changes += [_compared(function, call, own)] if rows.any() else []
    return max(changes)


def rows_of(function: TracedFunction, inputs: Sequence[np.ndarray], rows: Any) -> list[np.ndarray]:
    """Return the inputs of some samples, by an index of them."""
    pairs = zip(inputs, function.inputs, strict=True)
    return [a if s.shared else np.ascontiguousarray(a[rows]) for a, s in pairs]


def accepted_rows(function: TracedFunction, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """Return whether the module accepts each sample, which it may refuse by its numbers."""
    pairs = zip(inputs, function.inputs, strict=True)
    accepted = np.ones(next(len(a) for a, s in pairs if not s.shared), bool)
    for row in range(len(accepted)):
        try:
            of_module(function, rows_of(function, inputs, [row]), together=False)
        except ConfigError:
            accepted[row] = False
    return accepted


def trials(function: TracedFunction, samples: int) -> list[list[np.ndarray]]:
    """Return inputs: the examples, or numbers from inside the box, at its limits and beyond."""
    sets = [examples(function, samples)]
    generator = np.random.default_rng(3)
    for first, last in () if function.examples else ((0.0, 1.0), (-1.0, 2.0)):
        shapes = [s.shape if s.shared else (samples, *s.shape) for s in function.inputs]
        wider = [
            np.asarray(_between(function, s, generator, shape, first, last), function.dtype)
            for s, shape in zip(function.inputs, shapes, strict=True)
        ]
        sets.append(wider)
    return sets


def _compared(function: TracedFunction, call: Call, inputs: Sequence[np.ndarray]) -> float:
    """Return the largest relative difference in the order of the inputs and in another one."""
    wanted = of_module(function, inputs, together=False)
    order = np.random.default_rng(4).permutation(len(wanted[0]))
    rows = np.concatenate([array.reshape(len(array), -1) for array in wanted], 1)
    refused = np.isnan(rows).all(1) & (rows.size > 0)  # or all NaN, of which C may have a part
    worst = 0.0
    for selection in (slice(None), order):
        results, statuses = call(rows_of(function, inputs, selection), function.name)
        ends = [~np.isfinite(a).reshape(len(a), -1).all(1) for a in results]
        compared = ~(refused[selection] & np.logical_or.reduce(ends))
        for own, result in zip(wanted, results, strict=True):
            worst = max(worst, relative(own[selection][compared], result[compared]))
            wrong = np.asarray(~np.isfinite(result).reshape(len(result), -1).all(1))
            _require(statuses, wrong, "an output")
    return worst


def _require_status(function: TracedFunction, call: Call, inputs: Sequence[np.ndarray]) -> None:
    """Raise NumericalError if a sample with NaN or infinity in an input has no status 2."""
    generator = np.random.default_rng(5)
    for place, spec in enumerate(function.inputs):
        for value in (np.nan, np.inf, -np.inf):
            changed = [a.copy() for a in inputs]
            own = changed[place].reshape(1 if spec.shared else len(changed[place]), -1)
            if own.size == 0:
                continue
            own[-1, generator.integers(own.shape[1])] = value
            _, statuses = call(changed, function.name)
            wrong = np.full(len(statuses), spec.shared)
            wrong[-1] = True
            _require(statuses, wrong, spec.name)


def _require(statuses: np.ndarray, wrong: np.ndarray, what: str) -> None:
    if not (statuses[wrong] == 2).all():
        raise NumericalError(
            f"the C code returns status {statuses[wrong].min()} with NaN or infinity in {what}",
            where="export to C",
            allowed="status 2",
        )
