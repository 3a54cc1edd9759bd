"""No wrong number with status 0: what export compares before it writes, and NaN inside networks."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.agreement import evaluating, relative
from scitoolkit.deploy.export import export

RANDOM = np.random.default_rng(0)


def spec(name: str, *shape: int, **more) -> ArraySpec:
    return ArraySpec(name, tuple(f"d{i}" for i in range(len(shape))), shape, **more)


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function, *modules: nn.Module) -> None:
        super().__init__()
        self.function, self.inner = function, nn.ModuleList(modules)

    def forward(self, *inputs: Tensor):
        return self.function(*self.inner, *inputs)


def traced(module, shape, *, name="", out=None, **box) -> TracedFunction:
    if not isinstance(module, nn.Module):
        module = Call(module)
    if out is None:
        with torch.no_grad():
            out = module.eval()(torch.ones(2, *shape)).shape[1:]
    return TracedFunction(module, [spec("x", *shape, **box)], [spec("y", *out)], name=name)


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("suffix", [".so", ".weights"])
def test_a_file_written_again_holds_the_new_weights(tmp_path, suffix):
    from scitoolkit.deploy import Pool

    for value in (1.0, 2.0, 3.0):
        layer = nn.Linear(1, 1, bias=False)
        nn.init.constant_(layer.weight, value)
        path = Path(export([traced(layer, (1,))], tmp_path / f"m{suffix}")["path"])
        x = np.ones((1, 1), np.float32)
        if suffix == ".so":
            (y,), _ = CompiledSurrogate(path)(x)
        else:
            with Pool("10 MB") as pool:
                pool.add("m", path)
                (y,), _ = pool("m", x)
        assert y.item() == value


MIXING = {
    "attention": lambda: Call(lambda a, x: a(x, x, x)[0], nn.MultiheadAttention(4, 2)),
    "lstm": lambda: Call(lambda r, x: r(x)[0], nn.LSTM(4, 4)),
    "gru": lambda: Call(lambda r, x: r(x)[0], nn.GRU(4, 4, bidirectional=False)),
    "mean": lambda: Call(lambda x: x - x.mean(0, keepdim=True)),
    "softmax": lambda: Call(lambda x: torch.softmax(x, 0)),
    "flat roll": lambda: Call(lambda x: torch.roll(x, 3)),
    "cumulative": lambda: Call(lambda x: x.cumsum(0)),
    "flip": lambda: Call(lambda x: x.flip(0)),
    "norm over all": lambda: Call(lambda x: x / x.norm()),
    "statistics of the batch": lambda: nn.BatchNorm1d(3, track_running_stats=False),
}


@pytest.mark.parametrize("name", MIXING)
def test_a_module_that_mixes_samples_is_refused(name, tmp_path):
    torch.manual_seed(0)
    with pytest.raises(ConfigError, match=r"samples are mixed.*batch_first"):
        export([traced(MIXING[name](), (3, 4))], tmp_path / "m.so")
    assert not list(tmp_path.iterdir())


INSIDE = {  # a NaN of log or sqrt before each
    "relu": torch.relu,
    "other maximum": lambda x: torch.maximum(torch.zeros(()), x),
    "minimum": lambda x: torch.minimum(torch.zeros(()), x),
    "amax": lambda x: x.amax(-1, keepdim=True) + 0 * torch.ones(5),
    "amin": lambda x: x.amin(-1, keepdim=True) + 0 * torch.ones(5),
    "max pooling": lambda x: functional.max_pool2d(x[:, None], (1, 2)).flatten(1),
    "clamp": lambda x: x.clamp(-1, 1),
    "relu6": functional.relu6,
    "leaky": functional.leaky_relu,
    "rrelu": lambda x: functional.rrelu(x, 0.2, 0.7),
    "elu": functional.elu,
    "gelu": functional.gelu,
    "softmax": lambda x: torch.softmax(x, -1),
    "layer norm": lambda x: functional.layer_norm(x, (5,)),
}


def test_nan_inside_a_network_stays_nan(tmp_path):
    roots = {"log": torch.log, "sqrt": torch.sqrt}
    functions, wanted = [], {}
    x = np.abs(numbers(19, 5)) + 0.1
    for place in range(5):
        x[place, place] *= -1
        x[17, 2] = -1
    for number, (key, f) in enumerate(INSIDE.items()):
        root = list(roots.values())[number % 2]
        if key == "max pooling":
            module = Call(lambda x, f=f, r=root: f(r(x)[:, None].expand(-1, 2, -1)[..., :4]))
        else:
            module = Call(lambda x, f=f, r=root: f(r(x)))
        name = key.replace(" ", "_")
        functions.append(traced(module, (5,), name=name, low=0.1, high=3.0))
        wanted[name] = module(torch.from_numpy(x)).numpy()
    export(functions, tmp_path / "m.so")
    library = CompiledSurrogate(tmp_path / "m.so")
    for name, own in wanted.items():
        (y,), status = library(x, function=name)
        np.testing.assert_array_equal(np.isnan(y), np.isnan(own), err_msg=name)
        bad = np.isnan(own).reshape(19, -1).any(1)
        assert (status[bad] == 2).all(), name
        np.testing.assert_allclose(y[~bad], own[~bad], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_nan_before_quantised_layers_stays_nan(tmp_path, bits):
    torch.manual_seed(0)
    net = Call(lambda a, b, x: b(torch.log(a(x))), nn.Linear(40, 48), nn.Linear(48, 32))
    export([traced(net, (40,))], tmp_path / "m.so", ExportConfig(bits=bits, group=32))
    (y,), status = CompiledSurrogate(tmp_path / "m.so")(numbers(20, 40))
    assert np.isnan(y).all()
    assert (status == 2).all()


def test_small_numbers_before_quantised_layers_are_zero_and_no_nan(tmp_path):
    torch.manual_seed(0)
    layer = nn.Linear(32, 32)
    export([traced(layer, (32,))], tmp_path / "m.so", ExportConfig(bits=8))
    (y,), status = CompiledSurrogate(tmp_path / "m.so")(numbers(18, 32) * np.float32(1e-41))
    np.testing.assert_allclose(y, np.tile(layer.bias.detach(), (18, 1)), atol=1e-7)
    assert not status.any()


def test_exp_overflows_and_underflows_where_floats_do(tmp_path):
    export([traced(torch.exp, (7,), low=-1, high=1)], tmp_path / "m.so")
    x = np.array([[88.6, 88.72, 88.73, 100, -87.4, -100, -104]], np.float32)
    (y,), status = CompiledSurrogate(tmp_path / "m.so")(x)
    wanted = torch.exp(torch.from_numpy(x)).numpy()
    np.testing.assert_array_equal(np.isinf(y), np.isinf(wanted))
    np.testing.assert_allclose(y[np.isfinite(y)], wanted[np.isfinite(y)], rtol=1e-4, atol=2e-45)
    assert status == [2]


@pytest.mark.parametrize(
    ("out", "text"),
    [((2,), r"\(3, 1\).*declared \(3, 2\)"), ((3, 1), "declared"), ((), "declared")],
)
def test_another_shape_than_declared_is_refused(out, text, tmp_path):
    with pytest.raises(ConfigError, match=text):
        export([traced(nn.Linear(4, 1), (4,), out=out)], tmp_path / "m.so")


def test_outputs_are_taken_by_name_from_a_dictionary(tmp_path):
    module = Call(lambda x: {"b": 2 * x, "a": x[:, :1]})
    outputs = [spec("a", 1), spec("b", 3)]
    export([TracedFunction(module, [spec("x", 3)], outputs)], tmp_path / "m.so")
    x = numbers(17, 3)
    (a, b), _ = CompiledSurrogate(tmp_path / "m.so")(x)
    np.testing.assert_array_equal(a, x[:, :1])
    np.testing.assert_array_equal(b, 2 * x)
    with pytest.raises(ConfigError, match="returns b, a, declared a"):
        export([TracedFunction(module, [spec("x", 3)], outputs[:1])], tmp_path / "n.so")


@pytest.mark.parametrize(
    ("low", "high", "box"),
    [
        (0.0, np.inf, [0, 1]),
        (-np.inf, 6.0, [0, 0]),
        (np.array([0.0, -np.inf]), 1e300, [0, 1]),
        (0.0, np.float64(5.0), [0, 1]),
    ],
)
def test_a_box_may_be_open(low, high, box, tmp_path):
    function = traced(nn.Identity(), (2,), low=low, high=high)
    export([function], tmp_path / "m.so")
    x = np.array([[5.0, 5.0], [-1.0, 1.0]], np.float32)
    assert CompiledSurrogate(tmp_path / "m.so")(x)[1].tolist() == box


@pytest.mark.parametrize(("low", "high"), [(np.nan, 1.0), (0.0, [1.0, np.nan]), (2.0, 1.0)])
def test_a_box_without_meaning_is_refused(low, high):
    with pytest.raises(ConfigError, match="box of x"):
        spec("x", 2, low=low, high=high)


class Counter(nn.Module):
    """A module with a state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.state.add_(1.0)
        return x + 0 * self.state


REFUSED = {
    "state": (Counter(), "changes state"),
    "branch": (
        Call(lambda x: torch.cond(x.sum() > -99, lambda a: a * 2, lambda a: a * 3, (x,))),
        "where chooses",
    ),
    "half": (Call(lambda x: (x.half() * 2).float()), "float16"),
    "bfloat16": (Call(lambda x: (x.bfloat16() * 2).float()), "bfloat16"),
    "random": (Call(lambda x: x + 1e-9 * torch.rand(4)), "draws random numbers"),
    "random_slope": (
        Call(lambda x: functional.rrelu(x, training=True) + 0 * x),
        "draws random numbers",
    ),
    "chosen": (Call(lambda x: x[:, (x[0] < 99)]), "depends on values.*torch.where"),
    "counts": (
        Call(lambda x: torch.stack([torch.bincount(0 * row.long(), minlength=4) for row in x])),
        "bincount.* depends on values.*one_hot",
    ),
    "words": (Call(lambda x: "words"), "is str for 3 samples"),
    "error": (Call(lambda x: x @ torch.ones(9, 9)), "cannot be called"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_in_c_is_refused_by_name(name, tmp_path):
    module, text = REFUSED[name]
    with pytest.raises(ConfigError, match=text):
        export([traced(module, (4,), out=(4,))], tmp_path / "m.so")


def first_is_zero(x: Tensor) -> Tensor:
    x[:, 0] = 0
    return x


def test_integers_and_changes_in_place_are_as_in_torch(tmp_path):
    functions = [
        traced(first_is_zero, (4,), name="place"),
        traced(lambda x: (3 * x).int().float() + (x > 0).int() * 2, (4,)),
    ]
    export(functions, tmp_path / "m.so")
    x = numbers(19, 4)
    for function in functions:
        (y,), _ = CompiledSurrogate(tmp_path / "m.so")(x, function=function.name)
        np.testing.assert_array_equal(y, function.module(torch.tensor(x)).numpy())


def test_modules_are_left_in_their_mode(tmp_path):
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Dropout(0.1))
    function = traced(net, (3,))
    net.train()
    net[2].eval()
    export([function], tmp_path / "m.so")
    assert [part.training for part in net.modules()] == [True, True, True, False]


def test_a_comparison_with_nan_fails():
    one, nan = np.ones(3, np.float32), np.array([1, np.nan, 1], np.float32)
    assert relative(nan, nan) == 0
    assert relative(one, nan) == relative(nan, one) == np.inf
    assert relative(2 * one, one) == 0.5
    assert relative(nan, 3 * nan) == 2
    infinite = np.array([1, np.inf, 1], np.float32)
    assert relative(infinite, infinite) == 0
    assert relative(infinite, one) > 1e30


def test_a_wrong_library_is_told_before_it_is_written(tmp_path, monkeypatch):
    from scitoolkit.deploy.lowering import elementwise

    wrong = {**elementwise._UNARY, "relu": "{0} > 0 ? {0} : 0"}
    monkeypatch.setattr(elementwise, "_UNARY", wrong)
    with pytest.raises(NumericalError, match="differs from the surrogate by inf"):
        export([traced(lambda x: torch.relu(torch.log(x)), (4,))], tmp_path / "m.so")
    assert not list(tmp_path.iterdir())


COMPILERS = [c for c in ("gcc", "clang") if shutil.which(c)]
FAST = ("-Ofast", "-O2 -ffast-math", "-O1 -ffinite-math-only", "-O3 -march=native -Ofast")
EXACT = ("-O0", "-O3", "-O3 -march=native -fassociative-math -fno-signed-zeros -fno-trapping-math")
FLAGS_OF = {"gcc": (), "clang": ("-O2 -ffp-model=fast",)}


def with_nan_inside(x: Tensor) -> Tensor:
    """NaN from a logarithm, which maxima, comparisons and a softmax must not drop."""
    y = torch.relu(torch.log(x + 2)).clamp(-5.0, 5.0)
    y = torch.where(y > 0.5, y, 0.1 * y) + x.amax(1, keepdim=True)
    return torch.maximum(y, torch.sigmoid(y)) + torch.softmax(y, 1)


def compiled_with(
    flags: str, compiler: str, folder: Path
) -> tuple[subprocess.CompletedProcess, np.ndarray]:
    """Compile an export of `with_nan_inside` in float32; return its inputs too, 4 rows of NaN."""
    layer = traced(with_nan_inside, (5,), low=-1.5, high=4.0)
    source = Path(export([layer], folder / "m.c")["path"])
    x = np.clip(numbers(40, 5), -1.5, 4)
    x[3, 1], x[18, 0], x[25, 2], x[39, 4] = np.nan, np.inf, -2.5, -3
    done = subprocess.run(
        [compiler, *flags.split(), "-shared", "-fPIC", "-w", str(source), "-o", "m.so", "-lm"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    )
    return done, x


@pytest.mark.parametrize("compiler", COMPILERS)
def test_flags_that_drop_nan_are_refused_and_others_keep_the_status(compiler, tmp_path):
    for flags in (*FAST, *FLAGS_OF[compiler]):
        done, _ = compiled_with(flags, compiler, tmp_path)
        assert "NaN must stay NaN" in done.stderr, flags
    for flags in EXACT:
        done, x = compiled_with(flags, compiler, tmp_path)
        assert done.returncode == 0, done.stderr
        (own,), status = CompiledSurrogate(tmp_path / "m.so")(x)
        assert np.flatnonzero(status == 2).tolist() == [3, 18, 25, 39], flags
        wanted = with_nan_inside(torch.tensor(x)).numpy()
        np.testing.assert_allclose(own[status < 2], wanted[status < 2], rtol=1e-5)
        (tmp_path / "m.so").unlink()


@pytest.mark.skipif(not shutil.which("gfortran"), reason="no gfortran")
@pytest.mark.parametrize("flags", ["-O0 -fcheck=all", "-O3", "-Ofast", "-O2 -ffast-math -flto"])
def test_programs_in_fortran_have_the_status_whatever_their_flags(flags, tmp_path):
    done, x = compiled_with("-O3 -march=native", "gcc", tmp_path)
    assert done.returncode == 0
    (wanted,), status = CompiledSurrogate(tmp_path / "m.so")(x)
    x.tofile(tmp_path / "in.bin")
    (tmp_path / "main.f90").write_text("""
program main
  use m_module
  real(c_float) :: x(5, 40), y(5, 40), work(M_WORKSPACE / 4)
  integer(c_int32_t) :: states(40)
  open(10, file="in.bin", access="stream"); read(10) x
  if (m_check(M_ABI, M_CHECKSUM) /= M_OK) stop 1
  if (m(x, y, work, states) /= M_NOT_FINITE) stop 2
  open(11, file="out.bin", access="stream"); write(11) y, states
end program
""")
    built = ["gfortran", *flags.split(), "m.f90", "main.f90", "./m.so", "-o", "main"]
    for command in (built, ["./main"]):
        subprocess.run(command, cwd=tmp_path, check=True)
    own = np.fromfile(tmp_path / "out.bin", np.float32)
    assert own[200:].view(np.int32).tolist() == status.tolist()
    np.testing.assert_array_equal(own[:200].reshape(40, 5), wanted)


@pytest.mark.parametrize("name", ["printf", "random", "time", "a" * 53, "float"])
def test_names_that_clash_or_are_too_long_for_fortran_are_refused(name, tmp_path):
    with pytest.raises(ConfigError, match=r"-o model\.c"):
        export([traced(nn.Linear(2, 2), (2,))], tmp_path / f"{name}.c")


SPECIAL = (-3.0, -2.0, -1.5, -1.0, -0.5, -0.0, 0.0, 0.3, 0.5, 1.0, 1.5, 2.0, 7.3, 1e3, -1e6, 1e6)


def divisions(x: Tensor) -> Tensor:
    """Quotients, remainders and signs of zero, which another order of roundings changes wholly."""
    whole, one, other = x.long(), x * 0 + 1, x.roll(1, -1)
    parts = [torch.remainder(x, value) for value in (0.1, 0.3, -0.3, np.inf)]
    parts += [torch.fmod(x, -0.7), torch.remainder(x, other), torch.remainder(5.0, x)]
    parts += [one % 0.1, one // 0.1, x // 0.3, x // -0.7, 2.0 // x, x // other]
    parts += [torch.div(a, b, rounding_mode="trunc") for a, b in ((x, -0.3), (one, 0.1))]
    parts += [whole % 3, whole % -3, whole // -3, torch.div(whole, -4, rounding_mode="trunc")]
    parts += [1 / whole, 1 / x.int().float(), torch.rsqrt(whole), torch.reciprocal(whole)]
    parts += [torch.atan2(whole, torch.tensor(-1.0)), torch.copysign(x, whole)]
    parts += [torch.signbit(whole), torch.signbit(x), torch.logical_xor(x, x > 1)]
    parts += [whole.mean(-1, keepdim=True, dtype=x.dtype).expand_as(x)]
    return torch.cat([part.to(x.dtype) for part in parts], 1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quotients_and_remainders_are_those_of_torch_at_special_numbers(dtype, tmp_path):
    count, rows = len(SPECIAL), np.stack([np.roll(SPECIAL, k) for k in range(len(SPECIAL))])
    function = traced(divisions, (count,), out=(1,))
    with torch.no_grad(), evaluating([replace(function, dtype=dtype)]):
        wanted = divisions(torch.tensor(rows.astype(dtype))).numpy()
    # Finite in the box, so that a status belongs to a number of the test.
    function = traced(divisions, (count,), out=(wanted.shape[1],), low=1.2, high=1.4)
    export([function], tmp_path / "m.so", ExportConfig(dtype=dtype))
    (own,), status = CompiledSurrogate(tmp_path / "m.so")(rows.astype(dtype))
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(own, wanted, rtol=4 * eps, atol=4 * eps)
    infinite = np.isinf(wanted)
    np.testing.assert_array_equal(own[infinite], wanted[infinite])
    assert (status == 2).all()  # all rows have numbers outside the box, and divisions by zero


def test_an_index_out_of_range_is_nan_and_status_2(tmp_path):
    table = torch.arange(10.0).view(5, 2) + 1
    whole = table[:, 0].long()
    functions = {
        "integers": lambda x: whole[x.long()] + 0.0,
        "gathered_integers": lambda x: whole.expand(len(x), 5).gather(1, x.long()) + 0.0,
        "scattered_integers": lambda x: whole.expand(len(x), 5).scatter(1, x.long(), 7) + 0.0,
        "truth_values": lambda x: (whole > 3)[x.long()] + 0.0,
        "compared": lambda x: (table[x.long()] > 0).flatten(1) + 0.0,
        "chosen": lambda x: torch.where(x < 3, table[x.long(), 0], 0.0),
        "replaced": lambda x: torch.zeros(len(x), 5).scatter_add(1, x.long(), x).nan_to_num(),
        "embedding": lambda x: functional.embedding(x.long(), table).flatten(1),
        "gather": lambda x: table[:, 0].expand(len(x), 5).gather(1, x.long()),
        "index": lambda x: table[x[:, 0].long()],
        "scatter": lambda x: torch.zeros(len(x), 5).scatter(1, x.long(), 1.0),
        "put": lambda x: torch.zeros(len(x), 5).index_put(
            (torch.arange(len(x))[:, None], x.long()), x
        ),
    }
    box = {"low": 0.0, "high": 4.0}
    export([traced(f, (2,), name=n, **box) for n, f in functions.items()], tmp_path / "m.so")
    library = CompiledSurrogate(tmp_path / "m.so")
    rows = np.array([[0, 1], [1, 5], [-1, 0], [0, -7]] * 5, np.float32)
    for name, function in functions.items():
        (own,), status = library(rows, function=name)
        for row, values, told in zip(rows, own, status, strict=True):
            try:
                wanted = function(torch.tensor(row[None]))[0].numpy()
            except (IndexError, RuntimeError):
                assert told == 2, (name, row)
                assert np.isnan(values).all(), (name, row)
            else:
                assert told < 2, (name, row)
                np.testing.assert_array_equal(values, wanted)


def test_assignments_at_a_mask_and_nan_among_limits(tmp_path):
    limits = torch.tensor([-1.0, 0.0, 1.0])

    def function(x: Tensor) -> Tensor:
        y = x.clone().view(-1, 4, 2)
        y[y[:, :, 0] > 1] = torch.tensor([7.0, 8.0])
        x = x.index_put((x < 0,), torch.tensor(0.5), accumulate=True)
        places = [torch.searchsorted(limits, torch.log(x), right=right) for right in (True, False)]
        x[x > 2] = 0
        return torch.cat([y.flatten(1), x, *places], 1)

    rows = 2 * numbers(35, 8)
    with torch.no_grad():
        wanted = function(torch.tensor(rows)).numpy()
    export([traced(function, (8,))], tmp_path / "m.so")
    (own,), status = CompiledSurrogate(tmp_path / "m.so")(rows)
    np.testing.assert_array_equal(own, wanted)
    assert (status == 0).all()
    values = traced(lambda x: x.index_put((x < 0,), x[x < 0] ** 2), (3,))
    with pytest.raises(ConfigError, match=r"torch\.where"):
        export([values], tmp_path / "n.so")


def test_integers_that_double_does_not_hold_are_as_in_torch(tmp_path):
    def function(x: Tensor) -> Tensor:
        a = (3 * x).round().long()
        big = a * 1000000000000000003
        other = a.flip(-1).abs() + 1
        parts = [a**9, a**other, 2**other, big.abs(), big // other, big // -3, big // -1]
        parts += [torch.div(big, other, rounding_mode="trunc"), torch.fmod(big, other)]
        parts += [torch.fmod(big, -7), big % other, big.floor(), big.trunc(), (7 * a.int()) ** 20]
        return torch.cat([part % 100003 for part in parts], 1).to(x.dtype)

    rows = 2 * numbers(35, 6)
    wanted = function(torch.tensor(rows)).numpy()
    export([traced(function, (6,), out=wanted.shape[1:])], tmp_path / "m.so")
    (own,), status = CompiledSurrogate(tmp_path / "m.so")(rows)
    np.testing.assert_array_equal(own, wanted)
    assert (status == 0).all()


def test_a_division_of_integers_by_zero_is_nan_and_status_2(tmp_path):
    functions = {
        "remainder": lambda x: (7 % x.long()).to(x.dtype),
        "fmod": lambda x: torch.fmod(x.long() + 9, x.long()).to(x.dtype),
        "floor": lambda x: (x.long() // x.long().flip(-1)).to(x.dtype),
        "trunc": lambda x: torch.div(9, x.long(), rounding_mode="trunc").to(x.dtype),
    }
    box = {"low": 1.0, "high": 4.0}
    export([traced(f, (2,), name=n, **box) for n, f in functions.items()], tmp_path / "m.so")
    library = CompiledSurrogate(tmp_path / "m.so")
    rows = np.array([[3, 2], [0, 5], [-3, 2], [4, 0]] * 5, np.float32)
    for name, function in functions.items():
        (own,), status = library(rows, function=name)
        divided = (rows != 0).all(1)
        assert np.isnan(own[~divided]).all()
        assert (status == np.where(divided, np.where(rows[:, 0] < 0, 1, 0), 2)).all(), name
        wanted = function(torch.tensor(rows[divided])).numpy()
        np.testing.assert_array_equal(own[divided], wanted)


def test_a_module_that_refuses_numbers_beside_its_box_is_exported(tmp_path):
    def function(x: Tensor) -> Tensor:
        return functional.one_hot(x.round().long(), 5).to(x.dtype).flatten(1)

    export([traced(function, (3,), out=(15,), low=0.0, high=4.0)], tmp_path / "m.so")
    rows = np.array([[0, 1, 4], [3, 3, 2], [1, -1, 0]], np.float32)
    (own,), status = CompiledSurrogate(tmp_path / "m.so")(rows)
    np.testing.assert_array_equal(own[:2], function(torch.tensor(rows[:2])).numpy())
    assert status.tolist() == [0, 0, 1]
