"""Derivatives as C functions: against differences of the C function, and each against the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from exported import Joined
from surveyed_modules import Call, SpectralLayer, as_function, surveyed
from torch import nn

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.agreement import evaluating, in_dtype
from scitoolkit.deploy.export import export
from scitoolkit.deploy.source import FLAGS

BOTH = ExportConfig(dtype="float64", derivatives=["jvp", "vjp"])
# A compiler needs 20 times longer to optimise the code than to translate it.
NOT_OPTIMISED = mock.patch(
    "scitoolkit.deploy.export.FLAGS", tuple("-O0" if flag == "-O3" else flag for flag in FLAGS)
)


def networks() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    torch.manual_seed(0)
    return {
        "dense": (
            nn.Sequential(nn.Linear(5, 9), nn.GELU(), nn.LayerNorm(9), nn.Linear(9, 4), nn.Tanh()),
            (5,),
        ),
        "planes": (
            nn.Sequential(
                nn.Conv2d(2, 4, 3, 2, 1, padding_mode="circular"),
                nn.SiLU(),
                nn.GroupNorm(2, 4),
                nn.ConvTranspose2d(4, 2, 2, 2),
                nn.BatchNorm2d(2),
                SpectralLayer(2, 2),
            ),
            (2, 7, 8),
        ),
        "strided": (nn.Conv1d(3, 4, 3, 2, groups=1, dilation=2, padding=1), (3, 10)),
        "attention": (
            nn.TransformerEncoderLayer(8, 2, 16, 0.1, "gelu", batch_first=True),
            (4, 8),
        ),
    }


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("derivatives") / "m.so"
    functions = []
    for name, (module, shape) in networks().items():
        out = module.eval()(torch.zeros(2, *shape)).shape[1:]
        x, y = (
            ArraySpec(k, tuple("abc"[: len(s)]), tuple(s)) for k, s in (("x", shape), ("y", out))
        )
        functions.append(TracedFunction(module, [x], [y], name=name))
    with NOT_OPTIMISED:
        export(functions, path, BOTH)
    return CompiledSurrogate(path)


@pytest.mark.parametrize("name", networks())
def test_products_equal_differences_and_each_other(library, name):
    generator = np.random.default_rng(1)
    x, tangent = (generator.normal(size=(19, *networks()[name][1])) for _ in range(2))
    step = 1e-5
    (above,), _ = library(x + step * tangent, function=name)
    (below,), _ = library(x - step * tangent, function=name)
    (product,), status = library(x, tangent, function=f"{name}_jvp")
    np.testing.assert_allclose(product, (above - below) / (2 * step), rtol=1e-6, atol=1e-7)
    cotangent = generator.normal(size=product.shape)
    (pulled,), _ = library(x, cotangent, function=f"{name}_vjp")
    assert pulled.shape == x.shape
    axes = tuple(range(1, x.ndim))
    np.testing.assert_allclose(
        (pulled * tangent).sum(axes),
        (product * cotangent).sum(tuple(range(1, product.ndim))),
        rtol=1e-9,
    )
    assert not status.any()
    tangent[3] = np.nan
    assert library(x, tangent, function=f"{name}_jvp")[1].tolist() == [0] * 3 + [2] + [0] * 15


def test_several_arrays_shared_ones_and_boxes(tmp_path):
    class Wave(nn.Module):
        def forward(self, x, speed, shared):
            return {"first": x * x * speed, "second": torch.sin(x).sum(1, keepdim=True) * shared[0]}

    names = (("x", (3,), False), ("speed", (1,), False), ("shared", (2,), True))
    inputs = [ArraySpec(n, ("a",), s, "m", -1.0, 1.0, shared) for n, s, shared in names]
    outputs = [ArraySpec("first", ("a",), (3,)), ArraySpec("second", ("a",), (1,))]
    config = ExportConfig(derivatives=["vjp", "jvp"])
    record = export([TracedFunction(Wave(), inputs, outputs)], tmp_path / "m.so", config)
    assert [f["symbol"] for f in record["functions"]] == ["m", "m_vjp", "m_jvp"]
    library = CompiledSurrogate(tmp_path / "m.so")
    x = np.array([[0.5, -0.5, 2.0]], np.float32)
    speed, shared = np.array([[0.25]], np.float32), np.array([2.0, 0], np.float32)
    tangents = np.ones((1, 3), np.float32), np.full((1, 1), 4, np.float32)
    (first, second), status = library(x, speed, shared, *tangents, function="jvp")
    np.testing.assert_allclose(first, 2 * x * speed + 4 * x * x, rtol=1e-6)
    np.testing.assert_allclose(second, 2 * np.cos(x).sum(1, keepdims=True), rtol=1e-6)
    assert status.tolist() == [1]  # 2 is beyond the box
    cotangents = np.ones((1, 3), np.float32), np.ones((1, 1), np.float32)
    (of_x, of_speed), _ = library(x, speed, shared, *cotangents, function="vjp")
    np.testing.assert_allclose(of_x, 2 * x * speed + 2 * np.cos(x), rtol=1e-6)
    np.testing.assert_allclose(of_speed, (x * x).sum(1, keepdims=True), rtol=1e-6)


def test_functions_without_a_derivative_are_refused_by_name(tmp_path):
    specs = [ArraySpec("x", ("a",), (4,))], [ArraySpec("y", ("a",), (4,))]
    detached = Call(lambda x: x.detach().exp() + x)
    ways = ("jvp", "vjp")
    for module, told, refused in (
        (Call(lambda x: x.argsort(1)), "no derivative", ways),
        (detached, "differences", ways),
        # Backwards the branch that is not taken gives 0 times infinity.
        (Call(lambda x: torch.where(x > 0, x.sqrt(), 0)), "differences", ("vjp",)),
    ):
        function = TracedFunction(module, *specs)
        for way in refused:
            with pytest.raises(ConfigError, match=told):
                export([function], tmp_path / "m.so", ExportConfig(derivatives=[way]))
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="compressed forms"):
        ExportConfig(derivatives=["jvp"], bits=8)


class AtIndices(nn.Module):
    def forward(self, x, i):
        return x.gather(1, i.long())


def test_an_index_out_of_range_of_the_examples_is_refused_by_name(tmp_path):
    inputs = [ArraySpec("x", ("a",), (6,)), ArraySpec("i", ("b",), (1,))]
    function = TracedFunction(AtIndices(), inputs, [ArraySpec("y", ("b",), (1,))])
    with pytest.raises(ConfigError, match="cannot be differentiated"):
        export([function], tmp_path / "m.so", ExportConfig(derivatives=["jvp"]))


def pulled_by_autograd(module: nn.Module, x: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
    """Return the gradient of every sample alone; NaN of samples without one."""
    rows = []
    for start in range(len(x)):
        own = torch.tensor(x[start : start + 1], requires_grad=True)
        y = module(own)
        if y.requires_grad and y.is_floating_point():
            seed = torch.tensor(cotangent[start : start + 1])
            (pulled,) = torch.autograd.grad(y, own, seed, allow_unused=True)
            pulled = torch.zeros_like(own) if pulled is None else pulled
            rows.append(pulled[0].numpy(force=True))
        else:
            rows.append(np.zeros_like(x[0]))
    return np.stack(rows)


def pulled_back(functions: Sequence[TracedFunction], folder: Path) -> dict[str, str]:
    """Return {name: `equal`, `refused: ...` or `wrong: ...`} of the vjp of functions.

    Functions are exported together, and in halves where one of them is refused.
    """
    joined = TracedFunction(
        Joined([f.module for f in functions]),
        [replace(f.inputs[0], name=f"x{k}") for k, f in enumerate(functions)],
        [replace(f.outputs[0], name=f"y{k}") for k, f in enumerate(functions)],
    )
    try:
        export([joined], folder / "m.so", BOTH)
    except (ConfigError, NumericalError) as refusal:
        if len(functions) == 1:
            return {functions[0].name: f"refused: {refusal}"}
        half = len(functions) // 2
        return pulled_back(functions[:half], folder) | pulled_back(functions[half:], folder)
    generator = np.random.default_rng(5)
    x, w = (
        [generator.normal(size=(19, *getattr(f, ends)[0].shape)) for f in functions]
        for ends in ("inputs", "outputs")
    )
    results, _ = CompiledSurrogate(folder / "m.so")(*x, *w, function="vjp")
    told = {}
    (double,) = in_dtype([joined], "float64")
    with evaluating([double]):
        for part, *arrays, own, function in zip(
            double.module.parts, x, w, results, functions, strict=True
        ):
            wanted = pulled_by_autograd(part, *arrays)
            finite = np.isfinite(wanted)
            close = 1e-7 * np.abs(wanted[finite]).max(initial=1e-8)
            equal = np.isfinite(own) == finite
            equal[finite] &= np.abs(own - wanted)[finite] <= close
            told[function.name] = "equal" if equal.all() else f"wrong: {np.argwhere(~equal)[:3]}"
    return told


def require_no_wrong_derivative(names: Sequence[str], folder: Path) -> None:
    functions = [as_function(*surveyed()[name], name) for name in names]
    told = {}
    with NOT_OPTIMISED:
        for start in range(0, len(functions), 8):
            told |= pulled_back(functions[start : start + 8], folder)
    assert [t for t in told.items() if t[1].startswith("wrong")] == []
    assert list(told.values()).count("equal") >= 0.6 * len(told), told


def test_derivatives_of_operators_are_those_of_autograd_or_refused(tmp_path):
    require_no_wrong_derivative(list(surveyed())[::48], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(12))
def test_derivatives_of_all_operators_are_those_of_autograd_or_refused(first, tmp_path):
    require_no_wrong_derivative(list(surveyed())[first::12], tmp_path)
