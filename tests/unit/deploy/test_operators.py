"""Operators as C: each against torch, many in one function so that few files are compiled."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.export import export


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function, *modules: nn.Module) -> None:
        super().__init__()
        self.function, self.inner = function, nn.ModuleList(modules)

    def forward(self, *inputs: Tensor):
        return self.function(*self.inner, *inputs)


def joined(*functions):
    """Return the results of several functions of one input, flat and side by side."""
    return Call(lambda x: torch.cat([f(x).float().flatten(1) for f in functions], 1))


def half(x: Tensor) -> Tensor:
    """Return numbers between 0 and 1 of the same pattern."""
    return 0.98 * torch.sigmoid(x) + 0.01


def indices(x: Tensor) -> Tensor:
    return (2 * x.abs()).long().clamp(0, 4)


WEIGHT = torch.randn(2, 3, 4, 3, dtype=torch.cfloat, generator=torch.Generator().manual_seed(1))


def spectral(x: Tensor) -> Tensor:
    """The Fourier layer of an FNO, with complex weights."""
    waves = torch.fft.rfft2(x)
    out = torch.zeros(len(x), 3, 8, 5, dtype=torch.cfloat)
    out[:, :, :4, :3] = torch.einsum("bixy,ioxy->boxy", waves[:, :, :4, :3], WEIGHT)
    return torch.fft.irfft2(out, s=(8, 8), norm="ortho")


GROUPS = {
    "elementwise": (
        joined(
            *(torch.atan, torch.asinh, torch.sinh, torch.cosh, torch.ceil, torch.trunc),
            *(torch.exp2, torch.erfc, torch.frac, torch.isnan, torch.isinf, torch.signbit),
            *(lambda x, f=f: f(half(x)) for f in (torch.tan, torch.asin, torch.acos)),
            *(lambda x, f=f: f(half(x)) for f in (torch.atanh, torch.erfinv, torch.lgamma)),
            *(lambda x, f=f: f(half(x)) for f in (torch.log2, torch.log10, torch.digamma)),
            lambda x: torch.acosh(1 + half(x)),
            lambda x: torch.atan2(x, x + 1) + torch.hypot(x, 2 * x),
            lambda x: torch.fmod(x, 0.3) + torch.copysign(x, x.flip(1)),
            lambda x: x // 0.3 + torch.div(x, 0.3, rounding_mode="trunc"),
            lambda x: (10 * x).long() // 3 + (10 * x).long() % 3,
            lambda x: (10 * x).int() // -3 + torch.div((9 * x).int(), 2, rounding_mode="trunc"),
            lambda x: torch.fmax(x, -x) + torch.fmin(x, 2 * x) + x.clamp(x - 1, x + 0.1),
            lambda x: torch.nan_to_num(torch.log(x), nan=3.0) + torch.xlogy(half(x), half(x)),
            lambda x: ((x > 0) ^ (x > 1)) | ~(x > -1),
            lambda x: torch.heaviside(x, torch.tensor(0.5)) + torch.logaddexp(x, 2 * x),
        ),
        (7,),
    ),
    "reductions": (
        joined(
            *(lambda x, f=f: f(x > 0, dim=-1) for f in (torch.any, torch.all)),
            *(lambda x, f=f: f(x, dim=1) for f in (torch.prod, torch.logsumexp, torch.std)),
            *(lambda x, p=p: torch.linalg.vector_norm(x, p, dim=1) for p in (0, 1, 2, 3, np.inf)),
            *(lambda x, f=f: f(x, dim=2) for f in (torch.cumsum, torch.cumprod)),
            *(lambda x, f=f: f(x, dim=1)[0] for f in (torch.cummax, torch.cummin)),
            *(lambda x, f=f: f(x, dim=1)[1] for f in (torch.max, torch.min, torch.sort)),
            *(lambda x, f=f: f(x, dim=2) for f in (torch.argmax, torch.argmin, torch.argsort)),
            lambda x: torch.logcumsumexp(x, 2),
            lambda x: x.sort(1, descending=True)[0] + x.sort(2)[0],
            lambda x: x.topk(3, 2)[0] + x.topk(3, 2, largest=False)[1],
            lambda x: x.median(2)[0] + x.kthvalue(2, 2)[0],
            lambda x: x.quantile(0.3, dim=2),
            lambda x: (
                torch.cdist(x, x + 1) + functional.cosine_similarity(x, x[:, :1], -1)[:, None]
            ),
            lambda x: (x > 0).sum(2) + torch.nansum(x, 2),
        ),
        (4, 5),
    ),
    "indices": (
        joined(
            lambda x: x.gather(1, indices(x)) + torch.take_along_dim(x, x.argsort(1), 1),
            lambda x: torch.zeros(len(x), 5).scatter_add(1, indices(x), x),
            lambda x: torch.zeros(len(x), 5).scatter(1, indices(x)[:, :1], x[:, :1] + 1),
            lambda x: torch.zeros(len(x), 5).scatter_reduce(1, indices(x), x, "amax"),
            lambda x: torch.zeros(len(x), 3).index_add(1, torch.tensor([0, 1, 2, -0, 1]), x),
            lambda x: torch.zeros(len(x), 7).index_copy(1, torch.tensor([5, 1, 2, 0, 6]), x),
            lambda x: x.index_fill(1, torch.tensor([1, 3]), 2.0),
            lambda x: functional.one_hot(indices(x), 5),
            lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
            lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0]), right=True),
            lambda x: x.repeat(1, 3) + x.repeat_interleave(3, 1),
            lambda x: x.unfold(1, 3, 2),
            lambda x: (x[:, None] * x[:, :, None]).diagonal(1, 1, 2),
            lambda x: functional.pad(x, (2, -1), value=3.0) + functional.pad(x, (-1, 2)),
        ),
        (5,),
    ),
    "planes": (
        joined(
            nn.MaxPool2d(3, 2, 1),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            nn.MaxPool2d(2, 1, dilation=2),
            nn.AvgPool2d(3, 2, 1),
            nn.AvgPool2d(3, 2, 1, count_include_pad=False),
            nn.AvgPool2d(3, 2, 1, ceil_mode=True),
            nn.AvgPool2d(2, divisor_override=3),
            nn.AdaptiveAvgPool2d((3, 1)),
            nn.AdaptiveMaxPool2d(3),
            nn.LPPool2d(2, 2),
            nn.InstanceNorm2d(4),
            nn.LocalResponseNorm(2),
            nn.ZeroPad2d((1, 2, 0, 1)),
            lambda x: functional.interpolate(x, (9, 5), mode="bicubic"),
            lambda x: functional.interpolate(x, (5, 4), mode="area"),
            lambda x: functional.unfold(x, 2),
        ),
        (4, 8, 7),
    ),
    "transposed": (
        Call(
            lambda *a: torch.cat([layer(a[-1]).flatten(1) for layer in a[:-1]], 1),
            nn.ConvTranspose2d(4, 3, 3, 2, 1, output_padding=1),
            nn.ConvTranspose2d(4, 6, 3, groups=2, dilation=2),
            nn.ConvTranspose2d(4, 4, 2, 2, groups=4, bias=False),
            nn.ConvTranspose2d(4, 2, 2, 1, 2),
            nn.Conv2d(4, 4, (3, 5), padding="same"),
        ),
        (4, 5, 6),
    ),
    "attention": (
        nn.Sequential(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
            Call(
                lambda x: functional.scaled_dot_product_attention(
                    *[x.view(-1, 6, 2, 4).transpose(1, 2)] * 3, is_causal=True
                )
            ),
        ),
        (6, 8),
    ),
    "fourier": (
        joined(
            spectral,
            lambda x: torch.view_as_real(torch.fft.fft(x, dim=2)),
            lambda x: torch.fft.rfft(x, norm="forward").abs() + torch.fft.rfft(x).angle() * 0,
            lambda x: torch.fft.irfft(torch.fft.rfft(x[..., :7]) * (1 - 2j), n=7),
            lambda x: torch.fft.fftn(x, dim=(-2, -1)).real,
            lambda x: torch.fft.hfft(x + 0j, n=8),
            lambda x: (torch.fft.rfft2(x) / (2 + torch.fft.rfft2(x)).conj()).imag * 0,
        ),
        (2, 8, 8),
    ),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """All groups in one library, and the functions."""
    torch.manual_seed(0)
    functions = {}
    for name, (module, shape) in GROUPS.items():
        with torch.no_grad():
            out = module.eval()(torch.ones(2, *shape)).shape[1:]
        specs = [
            [ArraySpec(k, tuple("abcd"[: len(s)]), tuple(s))] for k, s in (("x", shape), ("y", out))
        ]
        functions[name] = TracedFunction(module, *specs, name=name)
    path = tmp_path_factory.mktemp("operators") / "m.so"
    export(list(functions.values()), path)
    return CompiledSurrogate(path), functions


@pytest.mark.parametrize("name", GROUPS)
def test_operators_in_c_return_what_torch_does(exported, name):
    library, functions = exported
    shape = GROUPS[name][1]
    x = np.random.default_rng(3).normal(size=(21, *shape)).astype(np.float32)
    (y,), status = library(x, function=name)
    with torch.no_grad():
        wanted = functions[name].module(torch.tensor(x)).numpy()
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=2e-5)
    assert not status.any()


def test_sorting_puts_nan_last_and_extrema_find_it(tmp_path):
    module = joined(
        lambda x: torch.sort(torch.log(x), dim=1)[0],
        lambda x: torch.argmax(torch.log(x), dim=1, keepdim=True),
        lambda x: torch.cummax(torch.log(x), dim=1)[1],
    )
    specs = [ArraySpec("x", ("a",), (70,), "", 0.1, 1.0)], [ArraySpec("y", ("a",), (141,))]
    export([TracedFunction(module, *specs)], tmp_path / "m.so")
    x = np.random.default_rng(0).uniform(0.1, 1, (18, 70)).astype(np.float32)
    x[3, 17], x[5, 0] = -1, -1
    (y,), status = CompiledSurrogate(tmp_path / "m.so")(x)
    np.testing.assert_allclose(y, module(torch.tensor(x)).numpy(), rtol=1e-5, atol=1e-6)
    assert np.flatnonzero(status).tolist() == [3, 5]


def test_means_at_indices_and_reductions_without_their_start_are_those_of_torch(tmp_path):
    def reduced(way: str, own: bool, change):
        return lambda x: torch.full((len(x), 6), 0.5).scatter_reduce(
            1, indices(x), change(x), way, include_self=own
        )

    ways = [(way, own) for way in ("sum", "mean", "prod", "amax", "amin") for own in (True, False)]
    module = joined(*(reduced(*way, f) for way in ways for f in (torch.neg, torch.log)))
    specs = [ArraySpec("x", ("a",), (7,), "", -1.5, 1.5)], [ArraySpec("y", ("b",), (120,))]
    export([TracedFunction(module, *specs)], tmp_path / "m.so")
    x = np.random.default_rng(0).uniform(-1.5, 1.5, (18, 7)).astype(np.float32)
    (y,), _ = CompiledSurrogate(tmp_path / "m.so")(x)
    np.testing.assert_allclose(y, module(torch.tensor(x)).numpy(), rtol=1e-5, atol=1e-6)


def test_quotients_and_powers_of_complex_numbers_far_from_1_are_those_of_torch(tmp_path):
    def combined(x: Tensor) -> Tensor:
        z = torch.view_as_complex(x.view(-1, 4, 2))
        large = 1e25 * z
        quotients = large / large.roll(1, 1) + (1 + 2j) / z + z.conj() / (large + 1e25j)
        others = [z**2 + z**-3 + 1 / z + z.square(), torch.log(z), z.cumsum(1)]
        return torch.view_as_real(torch.stack([quotients, *others], 1)).flatten(1)

    specs = [ArraySpec("x", ("a",), (8,))], [ArraySpec("y", ("a",), (32,))]
    export([TracedFunction(Call(combined), *specs)], tmp_path / "m.so")
    x = np.random.default_rng(0).normal(size=(18, 8)).astype(np.float32)
    (y,), _ = CompiledSurrogate(tmp_path / "m.so")(x)
    np.testing.assert_allclose(y, combined(torch.tensor(x)).numpy(), rtol=1e-3, atol=1e-5)


def test_digamma_beside_0_is_that_of_torch(tmp_path):
    spec = ArraySpec("x", ("a",), (4,))
    export([TracedFunction(Call(torch.digamma), [spec], [spec])], tmp_path / "m.so")
    x = np.array([[-1e-20, -1e-12, 1e-20, -1.00001]], np.float32)
    (y,), _ = CompiledSurrogate(tmp_path / "m.so")(x)
    np.testing.assert_allclose(y, torch.digamma(torch.tensor(x)).numpy(), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["i0", "i1", "i0e", "i1e", "erfcx", "log_ndtr"])
def test_special_functions_over_their_whole_range(name, dtype, tmp_path):
    operator = getattr(torch.special, name)
    spec = ArraySpec("x", ("a",), (1,))
    function = TracedFunction(Call(operator), [spec], [spec])
    export([function], tmp_path / "m.so", ExportConfig(dtype=dtype))
    size = np.array(
        [0, 1e-30, 1e-3, 0.5, 3, 7.9, 8.1, 24.9, 25.1, 29.9, 30.1, 80, 600, 712, np.inf]
    )
    x = np.concatenate([size, -size, [np.nan]])[:, None].astype(dtype)
    (y,), _ = CompiledSurrogate(tmp_path / "m.so")(x)
    wanted = operator(torch.tensor(x)).numpy()
    # torch overflows from exp(709) on, and its squares are rounded.
    inside = np.isfinite(wanted) | ~np.isfinite(y) | (abs(x) < 700)
    smallest = np.finfo(dtype).tiny
    np.testing.assert_allclose(
        y[inside], wanted[inside], rtol={"float32": 6e-6, "float64": 1e-13}[dtype], atol=smallest
    )


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: torch.view_as_complex(x.view(-1, 2, 2)), "complex"),
        (lambda x: torch.fft.rfft(x).sqrt().real, "complex"),
        (torch.special.bessel_j0, "operator aten.special_bessel_j0"),
    ],
)
def test_operators_without_a_lowering_are_refused_by_name(function, text, tmp_path):
    module = Call(function)
    out = module(torch.ones(2, 4)).shape[1:]
    specs = [ArraySpec("x", ("a",), (4,))], [ArraySpec("y", tuple("ab"[: len(out)]), tuple(out))]
    with pytest.raises(ConfigError, match=text):
        export([TracedFunction(module, *specs)], tmp_path / "m.so")


def test_reductions_of_all_dims_of_an_array_that_samples_share(tmp_path):
    """Exported graphs have an empty list of dims for all of them."""

    def reduced(x, c):
        sums = (c.sum(), c.mean(), c.prod(), c.var(), c.std(), c.norm(), torch.var_mean(c)[1])
        extremes = (c.amax(), c.amin(dim=()), c.max(), c.min(), c.argmax(), c.sum(dim=())[None])
        whole = (10 * c).int()
        decided = ((c > 0.5).any(), (c > 2).all(), whole.max(), whole.min(), whole.sum())
        return [x * value for value in (*sums, *extremes, *decided)]

    inputs = [ArraySpec("x", ("k",), (3,)), ArraySpec("c", ("a", "b"), (2, 3), shared=True)]
    outputs = [ArraySpec(f"y{k}", ("k",), (3,)) for k in range(18)]
    function = TracedFunction(Call(reduced), inputs, outputs)
    assert export([function], tmp_path / "m.so")["largest_difference"] < 1e-6


def test_extremes_of_integers_start_from_integers(tmp_path):
    """Infinity converted to an integer is undefined in C: it depends on flags and processor."""

    def extremes(x):
        whole = 10 * x
        return (whole.int().amax(1) + 2 * whole.long().amin(1) + (x > 0).amax(1)).float()[:, None]

    function = TracedFunction(
        Call(extremes), [ArraySpec("x", ("k",), (5,))], [ArraySpec("y", ("one",), (1,))]
    )
    assert export([function], tmp_path / "m.c")["largest_difference"] < 1e-6
    assert not re.search(r"= -?INFINITY;", (tmp_path / "m.c").read_text(encoding="utf-8"))
