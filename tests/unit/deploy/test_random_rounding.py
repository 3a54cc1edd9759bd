"""What rounding decides: told where a result jumps with it, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exported import difference
from surveyed_modules import Call
from torch import nn

from scitoolkit.core.errors import NumericalError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.export import export
from scitoolkit.deploy.random_rounding import outcomes_of_rounding, spread, undecided


def function_of(call, shape=(6,), dtype="float32", out=None):
    specs = [
        [ArraySpec(name, tuple("abc"[: len(s)]), s, "", -1.5, 1.5)]
        for name, s in (("x", shape), ("y", out or shape))
    ]
    module = call if isinstance(call, nn.Module) else Call(call)
    module = module.double() if dtype == "float64" else module
    return TracedFunction(module.eval(), *specs, dtype=dtype)


def rounded(function, samples=9, inputs=None):
    shape = (samples, *function.inputs[0].shape)
    inputs = np.random.default_rng(0).uniform(-1.5, 1.5, shape) if inputs is None else inputs
    return outcomes_of_rounding(function, [inputs.astype(function.dtype)])[0]


def there_and_back(x):
    """Zeros but for the rounding of a Fourier transform and back."""
    return torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1])


DECIDED = {
    "smooth": lambda x: torch.tanh(x) * 3 + x.exp(),
    "exact": lambda x: torch.floor((2 * x - x - x) + 1),
    "copies": lambda x: torch.where(x.flip(-1).flip(-1) == x, x, -x),
    "integers": lambda x: torch.fmod((3 * x).round().sum(-1, keepdim=True) + 0 * x, 3.0),
    "sums": lambda x: x.cumsum(-1) / 6 - torch.softmax(x, -1),
    "infinite": lambda x: torch.exp(1000 + x),
    "not a number": lambda x: torch.sqrt(-1 - x.abs()),
}
UNDECIDED = {
    "remainder": lambda x: torch.fmod(x, there_and_back(x * (x > 0))),
    "sign": lambda x: torch.sign(there_and_back(x) - x),
    "quotient": lambda x: x / (x.sum(-1, keepdim=True) - x.flip(-1).cumsum(-1)[..., -1:]),
    "norm": lambda x: nn.functional.layer_norm(x * 0 + x[..., :1] / 3, x.shape[-1:], eps=0.0),
    "root": lambda x: torch.sqrt(torch.sin(x) ** 2 + torch.cos(x) ** 2 - 1),
}


def all_rounded(calls, dtype):
    """Return the rounded results of several functions of one input, which are traced together."""
    (x,) = function_of(torch.neg).inputs
    outputs = [ArraySpec(name, x.dims, x.shape) for name in calls]
    module = Call(lambda x: {name: call(x) + 0 * x for name, call in calls.items()})
    inputs = np.random.default_rng(0).uniform(-1.5, 1.5, (9, *x.shape)).astype(dtype)
    function = TracedFunction(module, [x], outputs, dtype=dtype)
    return dict(zip(calls, outcomes_of_rounding(function, [inputs]), strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_undecided_is_what_jumps_with_rounding_and_nothing_else(dtype):
    bits = {"float32": 24, "float64": 44}[dtype]
    told = all_rounded(DECIDED | UNDECIDED, dtype)
    for name in DECIDED:
        assert not undecided(told[name]).any(), name
        largest = np.abs(told[name][np.isfinite(told[name])]).max(initial=1)
        assert (spread(told[name]) <= 2.0 ** (6 - bits) * largest).all(), name
    for name in UNDECIDED:
        assert undecided(told[name]).mean() > 0.05, name


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(40, 60), nn.GELU(), nn.LayerNorm(60), nn.Linear(60, 30)),
        nn.Sequential(nn.Unflatten(1, (2, 20)), nn.Conv1d(2, 5, 3), nn.SiLU(), nn.Flatten()),
        Call(lambda x: torch.fft.rfft(x).abs()),
        Call(lambda x: torch.softmax(8 * x, -1).var(-1, keepdim=True).sqrt()),
    ],
)
def test_the_spread_is_that_of_float32(module):
    torch.manual_seed(0)
    x = np.random.default_rng(1).normal(size=(33, 40)).astype(np.float32)
    with torch.no_grad():
        single = module.eval()(torch.tensor(x))
        out = tuple(single.shape[1:])
        results = rounded(function_of(module, (40,), out=out), inputs=x)
        double = nn.Sequential(module).double()(torch.tensor(x.astype(np.float64)))
        module.float()
    error = np.abs(single.double().numpy() - double.numpy())
    width = spread(results)
    assert (error <= 4 * width + 2.0**-23 * np.abs(single.numpy()).max()).all()
    assert np.median(width[error > 0]) < 100 * np.median(error[error > 0])


def test_one_undecided_result_does_not_excuse_another(tmp_path):
    def call(factor):
        return lambda x: torch.cat(
            [torch.fmod(x, there_and_back(x * (x > 0.9))), factor * torch.sinh(x)], -1
        )

    right, wrong = (function_of(call(f), out=(12,)) for f in (1.0, 1.001))
    in_lists = [
        TracedFunction(Call(lambda x, f=f: [f.module(x)]), f.inputs, f.outputs)
        for f in (right, wrong)
    ]
    export([function_of(lambda x: 1.0 * torch.sinh(x))], tmp_path / "s.so")
    library = CompiledSurrogate(tmp_path / "s.so")

    class OfLibrary:
        """The C code beside results of torch that rounding decides."""

        def __call__(self, x, *, function=""):
            (own,), status = library(x)
            with torch.no_grad():
                first = right.module(torch.tensor(x))[:, :6].numpy()
            result = np.concatenate([first, own], 1)
            lost = ~np.isfinite(result).all(1)
            return [result], np.where(lost, 2, status)

    told = [difference(f, OfLibrary()) for f in in_lists]
    assert not told[0].startswith("wrong"), told
    assert told[1].startswith("wrong: by"), told


def test_an_export_tells_what_rounding_decides(tmp_path):
    function = function_of(lambda x: torch.sign(there_and_back(x) - x))
    with pytest.raises(NumericalError, match=r"rounding decides .* \(sign\)"):
        export([function], tmp_path / "m.c")
    record = export([function], tmp_path / "m.c", ExportConfig(tolerance=np.inf))
    assert "sign" in record["undecided"][""]
    assert "rounding decides" in (tmp_path / "m.h").read_text()
    steady = export([function_of(lambda x: torch.fmod(x, 0.3))], tmp_path / "n.c")
    assert "undecided" not in steady
