"""Modules as C: every family of operators against torch, and what a call answers to bad input."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from scitoolkit import api
from scitoolkit.core.errors import CheckpointError, ConfigError, DataError, NumericalError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.agreement import examples
from scitoolkit.deploy.export import export
from scitoolkit.deploy.file_parts import require_names
from scitoolkit.deploy.source import FLAGS
from scitoolkit.emulation.models.fno import FNO
from scitoolkit.emulation.models.layers import Conv
from scitoolkit.emulation.models.transport import transport
from scitoolkit.ops.codegen.compile import find_compiler

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


def recurrent(lstm, gru, x):
    return gru(lstm(x)[0])[0][:, -1]


def graph_sum(layer, x):
    source, target = torch.tensor([0, 1, 2, 3, 3, 1]), torch.tensor([1, 2, 3, 0, 2, 2])
    messages = functional.gelu(layer(x[:, source] - x[:, target])).transpose(0, 1)
    total = torch.zeros(4, *messages.shape[1:]).index_add(0, target, messages)
    return total.transpose(0, 1)


def carried(x):
    return transport(x[:, :1], 3 * x[:, None, 1:], [4, 4], ["circular", "replicate"])


def attention(x):
    return torch.softmax(x @ x.transpose(1, 2), -1) @ x


ACTIVATIONS = (
    functional.silu,
    functional.gelu,
    torch.tanh,
    torch.sigmoid,
    functional.softplus,
    functional.elu,
    functional.leaky_relu,
    torch.sin,
    torch.exp,
    lambda x: functional.gelu(x, approximate="tanh"),
    lambda x: x.clamp(-0.5, 0.7) ** 2 / (x.abs() + 1),
    lambda x: torch.where(x > 0, x, -2 * x).sqrt(),
)
CASES = {
    "dense": (nn.Sequential(nn.Linear(5, 33), nn.LayerNorm(33), nn.SiLU(), nn.Linear(33, 7)), (5,)),
    "activations": (Call(lambda x: torch.stack([f(x) for f in ACTIVATIONS], 1)), (37,)),
    "line": (nn.Sequential(nn.Conv1d(3, 20, 3, 2, 2, dilation=2), nn.GroupNorm(4, 20)), (3, 19)),
    "plane": (
        nn.Sequential(
            Conv(3, 17, ["circular", "zeros"]),
            nn.GELU(),
            nn.AvgPool2d(2),
            Conv(17, 17, ["replicate"] * 2),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Conv2d(17, 4, 1),
        ),
        (3, 8, 6),
    ),
    "depthwise": (
        nn.Sequential(
            nn.Conv2d(6, 6, 3, padding=1, groups=6),
            nn.Conv2d(6, 4, 3, groups=2),
            nn.Upsample(scale_factor=2),
        ),
        (6, 7, 5),
    ),
    "reflected": (nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), (2, 6, 5)),
    "space": (
        nn.Sequential(nn.Conv3d(2, 9, 3, padding=1), nn.Tanh(), nn.MaxPool3d(2)),
        (2, 4, 6, 4),
    ),
    "fourier": (FNO(2, 1, ["circular", "zeros"], width=6, layers=2, modes=[3]), (2, 12, 10)),
    "recurrent": (
        Call(recurrent, nn.LSTM(4, 9, 2, batch_first=True), nn.GRU(9, 5, batch_first=True)),
        (6, 4),
    ),
    "graph": (Call(graph_sum, nn.Linear(3, 5)), (4, 3)),
    "transport": (Call(carried), (3, 9, 8)),
    "attention": (Call(attention), (5, 6)),
    "scaled": (
        Call(
            lambda x: torch.cat(
                [functional.selu(x), functional.celu(x, 2.0), functional.softplus(x, 2.0, 0.5)], 1
            )
        ),
        (7,),
    ),
    "integers": (
        Call(
            lambda x: (
                torch.where((4 * x).long() < 2.5, x, -x)
                + (5 * x).long() / ((0 * x).long() + 2)
                + 1 / ((5 * x).long().abs() + 1)
            )
        ),
        (9,),
    ),
    "truth": (Call(lambda x: torch.where((0.4 * x).bool(), x + 1, x)), (9,)),
    "normalised": (
        nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.BatchNorm1d(64, affine=False)
        ),
        (2, 6, 6),
    ),
    "from_the_end": (
        Call(
            lambda x: (
                x[:, torch.tensor([[0, -1], [-2, 1]])].flatten(1) + x[:, (0 * x).long()[0, :4] - 1]
            )
        ),
        (5,),
    ),
    "pooled": (Call(lambda x: functional.max_pool2d(x, 5)), (2, 10, 10)),
    "pooled_volume": (Call(lambda x: functional.max_pool3d(x, 3)), (1, 6, 3, 3)),
    "factor": (
        Call(lambda x: functional.interpolate(x, scale_factor=1.5, mode="bilinear")),
        (2, 5, 5),
    ),
    "nearest_factor": (Call(lambda x: functional.interpolate(x, scale_factor=1.7)), (2, 5, 5)),
    "rearranged": (
        Call(
            lambda x: (
                torch.cat([x.flip(1), x.roll(2, 2)], 2)
                .permute(0, 2, 1)
                .flatten(1)[:, 1:-2:3]
                .sum(1, keepdim=True)
                .expand(-1, 3)
            )
        ),
        (3, 5),
    ),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> CompiledSurrogate:
    """All cases in one file, so that the compiler is called once."""
    torch.manual_seed(0)
    functions = []
    for layer in CASES["normalised"][0]:
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(layer.running_mean, -1, 1)
            nn.init.uniform_(layer.running_var, 0.5, 2)
    for name, (module, shape) in CASES.items():
        module.eval()
        with torch.no_grad():
            result = module(torch.zeros(1, *shape))
        box = {"low": -3.0, "high": 3.0}
        functions.append(
            TracedFunction(
                module, [spec("x", *shape, **box)], [spec("y", *result.shape[1:])], name=name
            )
        )
    path = tmp_path_factory.mktemp("library") / "cases.so"
    export(functions, path)
    return CompiledSurrogate(path, threads=2)


@pytest.mark.parametrize("name", CASES)
def test_a_module_in_c_returns_what_torch_does(library, name):
    module, shape = CASES[name]
    x = RANDOM.uniform(-2, 2, (35, *shape)).astype(np.float32)
    (found,), status = library(x, function=name)
    with torch.no_grad():
        wanted = module(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, wanted, atol=2e-5 * np.abs(wanted).max(), rtol=2e-4)
    assert not status.any()


def test_the_status_of_each_sample_tells_nan_and_numbers_outside_the_box(library):
    x = RANDOM.uniform(-2, 2, (40, 5)).astype(np.float32)
    (clean,), _ = library(x, function="dense")
    x[3, 2], x[17, 0], x[20, 4], x[21, 1] = np.nan, 3.5, -3.01, np.inf
    (found,), status = library(x, function="dense")
    assert {k: int(status[k]) for k in np.flatnonzero(status)} == {3: 2, 17: 1, 20: 1, 21: 2}
    good = status == 0
    np.testing.assert_array_equal(found[good], clean[good])
    assert np.isfinite(found[17]).all()


def test_threads_and_calls_from_many_threads_change_no_bit(library):
    from concurrent.futures import ThreadPoolExecutor

    x = RANDOM.uniform(-2, 2, (64, 5)).astype(np.float32)
    (wanted,), _ = library(x, function="dense")
    call, size = library.pointer("dense"), library.about["functions"][0]["workspace_bytes"]

    def once(_: int) -> np.ndarray:
        out, work = np.full((64, 7), np.nan, np.float32), np.empty(size + 4, np.uint8)[4:]
        assert call(64, x.ctypes.data, out.ctypes.data, work.ctypes.data, size, None) == 0
        return out

    with ThreadPoolExecutor(4) as pool:
        for out in pool.map(once, range(16)):
            np.testing.assert_array_equal(out, wanted)


def test_threads_of_python_may_call_one_surrogate(library):
    from concurrent.futures import ThreadPoolExecutor

    given = [RANDOM.uniform(-2, 2, (3000, 5)).astype(np.float32) for _ in range(8)]
    wanted = [library(x, function="dense")[0][0] for x in given]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: library(x, function="dense")[0][0], given * 6))
    for out, expected in zip(found, wanted * 6, strict=True):
        np.testing.assert_array_equal(out, expected)


def test_bad_calls_and_files_are_refused(library, tmp_path):
    x = np.zeros((4, 5), np.float32)
    with pytest.raises(DataError, match=r"'samples', 5\).*x\[None\]"):
        library(np.zeros(5, np.float32), function="dense")
    with pytest.raises(DataError, match=r"float32 \(4, 5\) in C order"):
        library(np.asfortranarray(x), function="dense")
    with pytest.raises(DataError, match="float64"):
        library(x.astype(float), function="dense")
    with pytest.raises(DataError, match="2 arrays"):
        library(x, x, function="dense")
    call = library.pointer("dense")
    assert call(4, x.ctypes.data, x.ctypes.data, x.ctypes.data, 64, None) == 3
    path = tmp_path / "layer.so"
    layer = TracedFunction(nn.Linear(50, 50), [spec("x", 50)], [spec("y", 50)])
    export([layer], path)
    whole = path.read_bytes()
    weights = layer.module.weight.detach().numpy().tobytes()[:64]
    packed = np.ascontiguousarray(layer.module.weight.detach().numpy().T)[0, :16].tobytes()
    assert weights not in whole
    damaged = tmp_path / "damaged" / "layer.so"
    damaged.parent.mkdir()
    damaged.write_bytes(whole.replace(packed, bytes(64)))
    with pytest.raises(CheckpointError, match="weights in it are damaged"):
        CompiledSurrogate(damaged)
    shutil.copy(path, tmp_path / "other.so")
    with pytest.raises(CheckpointError, match="no surrogate 'other'"):
        CompiledSurrogate(tmp_path / "other.so")
    check = CompiledSurrogate(path)._library.layer_check
    assert check(2, 0) == 4


def test_what_cannot_be_exported_is_refused_by_name_and_writes_nothing(tmp_path):
    arrays = [spec("x", 4)], [spec("y", 4)]
    with pytest.raises(ConfigError, match=r"aten\.special_bessel_j0"):
        export([TracedFunction(Call(torch.special.bessel_j0), *arrays)], tmp_path / "a.c")
    branch = Call(lambda x: x if x.sum() < 1e9 else -x)
    with pytest.raises(ConfigError, match="cannot be traced"):
        export([TracedFunction(branch, *arrays)], tmp_path / "a.c")
    with pytest.raises(ConfigError, match="is not a name for a C function"):
        export([TracedFunction(nn.Tanh(), *arrays)], tmp_path / "my-model.c")
    with pytest.raises(ConfigError, match="is not a name for a C function"):
        export([TracedFunction(nn.Tanh(), *arrays)], tmp_path / "double.c")
    with pytest.raises(ConfigError, match="'a_2 steps' is not a name for a C function"):
        export([TracedFunction(nn.Tanh(), *arrays, name="2 steps")], tmp_path / "a.c")
    with pytest.raises(ConfigError, match="is not a name for a C function"):
        export([TracedFunction(nn.Tanh(), *arrays)], tmp_path / "cosh.so")
    own = Call(lambda x: functional.conv1d(x, x[:1, :, :2]) * 0)
    with pytest.raises(ConfigError, match="computed kernel"):
        export([TracedFunction(own, [spec("x", 1, 4)], [spec("y", 1, 3)])], tmp_path / "a.c")
    layer = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 4))
    with pytest.raises(NumericalError, match="tolerance=0"):
        export([TracedFunction(layer, *arrays)], tmp_path / "a.so", ExportConfig(tolerance=0))
    assert not list(tmp_path.iterdir())


def test_no_name_that_the_headers_define_is_a_name_of_a_function():
    """Generated code includes these: the compiler takes another meaning of their names amiss."""

    def read(*options: str) -> str:
        text = "#include <stdint.h>\n#include <tgmath.h>\n"
        command = [find_compiler(), "-std=gnu11", "-E", "-P", *options, "-x", "c", "-"]
        return subprocess.run(command, input=text, text=True, capture_output=True).stdout

    macros = re.findall(r"#define ([A-Za-z]\w*)", read("-dM"))
    functions = re.findall(r"\b([A-Za-z]\w*) *\(", read())
    assert {"isnan", "NAN"} <= set(macros)
    for name in {*macros, *functions}:
        with pytest.raises(ConfigError, match="is not a name for a C function"):
            require_names(name, [])


@pytest.mark.parametrize(
    "name",
    "isgreater signbit fpclassify errno assert offsetof setjmp NULL INFINITY sinf csqrtl y0 gamma "
    "int8_t class namespace stderr strtod isalpha unix _Generic __x va_end omp_get_wtime".split(),
)
def test_names_of_c_and_its_library_are_refused(name):
    with pytest.raises(ConfigError, match="is not a name for a C function"):
        require_names(name, [])


@pytest.mark.parametrize(
    "name",
    "model real arg dof y2 stress stream total memory isotope island timer clock_model energy_f "
    "classes absl E_field T_MAX omp_model newton template_1 signal_2".split(),
)
def test_names_that_only_resemble_those_of_c_pass(name):
    require_names(name, [])


@pytest.mark.parametrize("vectors", [128, 256])
def test_a_narrow_processor_gets_code_of_its_width(tmp_path, vectors):
    module = nn.Sequential(
        nn.Conv2d(3, 20, 3, padding=1), nn.SiLU(), nn.Flatten(), nn.Linear(500, 9)
    )
    function = TracedFunction(module, [spec("x", 3, 5, 5)], [spec("y", 9)])
    found = export([function], tmp_path / "narrow.c", ExportConfig(vectors=vectors))
    assert found["largest_difference"] < 1e-5
    assert f"#define LANES_float {vectors // 32}\n" in (tmp_path / "narrow.c").read_text()


@pytest.mark.parametrize(
    "name", ["sst_forecast", pytest.param("rb2d_emulator", marks=pytest.mark.slow)]
)
def test_a_shipped_surrogate_is_exported_with_the_box_of_its_training(name, tmp_path):
    found = api.export(name, tmp_path / "model.so")
    assert found["largest_difference"] < 1e-4
    low, high = found["inputs"][0]["box"]
    assert low[0] < high[1]
    job, path = api._job_of(name)
    function = job.traced(path)[0]
    x, *rest = examples(function)
    x[1].flat[7] = np.asarray(function.inputs[0].high).max() + 1
    assert CompiledSurrogate(tmp_path / "model.so")(x, *rest)[1].tolist() == [0, 1, 0]


@pytest.mark.skipif(not shutil.which("gfortran"), reason="no gfortran")
def test_fortran_and_python_get_the_same_bits(tmp_path):
    """Two inputs of several dims: the Fortran arrays have them reversed, and are checked."""
    module = Call(lambda a, u, v: torch.tanh(a(u)).sum(2) * v.mean(1)[:, None], nn.Linear(4, 6))
    u, v = RANDOM.normal(size=(5, 6, 3, 4)), RANDOM.normal(size=(5, 2))
    module = Call(
        lambda a, u, v: torch.tanh(a(u)).sum(3) * v.mean(1)[:, None, None], nn.Linear(4, 6)
    )
    function = TracedFunction(module, [spec("u", 6, 3, 4), spec("v", 2)], [spec("w", 6, 3)])
    export([function], tmp_path / "model.c")
    (wanted,), _ = _compiled(tmp_path)(u.astype(np.float32), v.astype(np.float32))
    np.concatenate([u.ravel(), v.ravel()]).astype(np.float32).tofile(tmp_path / "in.bin")
    (tmp_path / "main.f90").write_text("""
program main
  use model_module
  real(c_float) :: u(4, 3, 6, 5), v(2, 5), w(3, 6, 5), work(MODEL_WORKSPACE / 4), wrong(3, 5, 6)
  open(10, file="in.bin", access="stream"); read(10) u, v
  if (model_check(MODEL_ABI, MODEL_CHECKSUM) /= MODEL_OK) stop 1
  if (model(u, v, w, work) /= MODEL_OK) stop 2
  if (model(u, v, wrong, work) /= MODEL_SHAPE) stop 3
  if (model(u, v, w, work(1:2)) /= MODEL_TOO_SMALL) stop 4
  open(11, file="out.bin", access="stream"); write(11) w
end program
""")
    native = ["-march=native", "-mprefer-vector-width=512"]
    for command in (
        ["gcc", *FLAGS, *native, "-c", "model.c"],
        ["gfortran", "-fopenmp", "model.f90", "main.f90", "model.o", "-lm", "-o", "main"],
        ["./main"],
    ):
        subprocess.run(command, cwd=tmp_path, check=True)
    found = np.fromfile(tmp_path / "out.bin", np.float32).reshape(5, 6, 3)
    np.testing.assert_array_equal(found, wanted)


def _compiled(folder: Path) -> CompiledSurrogate:
    command = ["gcc", *FLAGS, "-march=native", "-mprefer-vector-width=512", "-shared", "model.c"]
    subprocess.run([*command, "-o", "model.so", "-lm"], cwd=folder, check=True)
    return CompiledSurrogate(folder / "model.so")


class Twice(nn.Module):
    def forward(self, a, b):
        return 2 * a, 3 * b


@pytest.mark.parametrize("names", [("T", "t"), ("θ", "_x"), ("u.v", "u_v"), ("a" * 70, "a" * 71)])
def test_arrays_of_any_name_and_unit_have_a_header_and_a_module(names, tmp_path):
    specs = [ArraySpec(n, ("k",), (3,), "W*/m2\nof " + n, -1.0, 1.0) for n in names]
    export([TracedFunction(Twice(), specs, specs)], tmp_path / "model.so")
    commands = [["gcc", "-Wall", "-Werror", "-fsyntax-only", "-x", "c", "model.h"]]
    if shutil.which("gfortran"):
        commands.append(["gfortran", "-Wall", "-fsyntax-only", "model.f90"])
    for command in commands:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert not done.returncode, done.stderr
