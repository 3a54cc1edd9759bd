"""Libraries that compute by libtorch: the numbers of torch, the statuses of C code, refusals."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch._inductor import config as inductor
from typer.testing import CliRunner

from scitoolkit import api, export_forms
from scitoolkit.cli.main import app
from scitoolkit.core.errors import BackendError, CheckpointError, ConfigError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig, torch_library
from scitoolkit.deploy.agreement import examples, of_module, relative
from scitoolkit.deploy.export import export
from scitoolkit.deploy.other_process import in_other_process
from scitoolkit.deploy.torch_library import export_through_torch, require_tools
from scitoolkit.ops.codegen.compile import read

WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="the machine has a GPU")


def spec(name: str, *shape: int, **more) -> ArraySpec:
    return ArraySpec(name, tuple(f"d{i}" for i in range(len(shape))), shape, **more)


class Forecaster(nn.Module):
    """The next values of a series, which changes its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(2, 9, 2, batch_first=True), nn.Linear(9, 3)

    def forward(self, series):
        series -= series.mean(1, keepdim=True)
        return self.head(self.lstm(series)[0][:, -1])


class Column(nn.Module):
    """Two results of a state and of what all samples share, as a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, state, height):
        return {"mean": state.mean(-1, keepdim=True), "state": self.layer(state).log() * height}


def perceptron(name: str = "") -> TracedFunction:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(3, 20), nn.SiLU(), nn.Linear(20, 2))
    box = {"low": np.array([-1.0, -2.0, 0.0]), "high": 3.0}
    return TracedFunction(layers, [spec("x", 3, **box)], [spec("y", 2)], name=name)


def emulator() -> TracedFunction:
    torch.manual_seed(1)
    layers = nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1, padding_mode="circular"),
        nn.GroupNorm(2, 8),
        nn.GELU(),
        nn.Conv2d(8, 2, 1),
    )
    return TracedFunction(layers, [spec("u", 2, 6, 8, low=-2.0, high=2.0)], [spec("u", 2, 6, 8)])


def forecaster() -> TracedFunction:
    torch.manual_seed(2)
    return TracedFunction(Forecaster(), [spec("series", 12, 2, high=4.0)], [spec("next", 3)])


def column() -> TracedFunction:
    torch.manual_seed(3)
    inputs = [spec("state", 3, low=-2.0, high=2.0), spec("height", 3, shared=True)]
    return TracedFunction(Column(), inputs, [spec("state", 3), spec("mean", 1)])


CASES = {
    "perceptron": ([perceptron(), perceptron("again")], {}),
    "emulator": ([emulator()], {"dtype": "float64"}),
    "forecaster": ([forecaster()], {"batch": 4}),
    "column": ([column()], {}),
}


def compare_with_c(functions, folder: Path, device: str, **options) -> None:
    """Compare numbers and statuses of both kinds of library, and the numbers with the module."""
    export(functions, folder / "c.so", ExportConfig(**{**options, "batch": None}))
    record = export_through_torch(
        functions, folder / "t.so", ExportConfig(device=device, **options)
    )
    own, other = CompiledSurrogate(folder / "t.so"), CompiledSurrogate(folder / "c.so")
    dtype = options.get("dtype", "float32")
    assert record["device"] == own.about["device"] == device
    for function in functions:
        if function.dtype != dtype:
            function.module.double()
        for samples in (1, 7):
            inputs = [a.astype(dtype) for a in examples(function, samples, seed=9)]
            bad = [a.copy() for a in inputs]
            if samples > 1:
                first = bad[0].reshape(samples, -1)
                first[1, 0], first[2, -1], first[4, 1], first[5, 0] = np.nan, 9.0, -9.0, -np.inf
            copies = [a.copy() for a in bad]
            results, statuses = own(*bad, function=function.name)
            wanted, expected = other(*bad, function=function.name)
            assert statuses.tolist() == expected.tolist()
            assert all(
                np.array_equal(*pair, equal_nan=True) for pair in zip(bad, copies, strict=True)
            )
            for a, b in zip(results, wanted, strict=True):
                assert a.dtype == b.dtype == dtype
                assert relative(b, a) < (1e-4 if dtype == "float32" else 1e-9)
            results, _ = own(*inputs, function=function.name)
            default = torch.get_default_dtype()
            torch.set_default_dtype(getattr(torch, dtype))
            module = of_module(function, inputs, together=False)
            torch.set_default_dtype(default)
            for a, b in zip(results, module, strict=True):
                assert relative(b, a) < (1e-4 if dtype == "float32" else 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_numbers_of_torch_and_statuses_of_c_code(case, tmp_path):
    functions, options = CASES[case]
    compare_with_c(functions, tmp_path, "cpu", **options)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_on_a_gpu_too(case, tmp_path):
    functions, options = CASES[case]
    compare_with_c(functions, tmp_path, "cuda", **options)


MAIN = """#include "m.h"
#include <stdio.h>
int main(void) {
  float x[6] = {0, 0, 1, 0, 0, 9}, y[4];
  static char workspace[M_WORKSPACE];
  int32_t status[2];
  if (m_check(M_ABI, M_CHECKSUM + 1) != M_MISMATCH || m_check(M_ABI, M_CHECKSUM)) return 9;
  if (m(2, x, y, workspace, 0, status) != M_TOO_SMALL) return 8;
  if (m(0, x, y, workspace, sizeof workspace, NULL) != M_OK) return 7;
  int worst = m(2, x, y, workspace, sizeof workspace, status);
  printf("%d %d %d %.9g %.9g\\n", worst, status[0], status[1], y[0], y[1]);
  return m_compare_array("x", "d0", "") || m_compare_array("x", "d0", "K") != M_FACTS;
}
"""


@pytest.mark.slow
def test_a_c_program_without_python_and_a_damaged_library(tmp_path):
    function = perceptron()
    record = export_through_torch([function], tmp_path / "m.so", ExportConfig(device="cpu"))
    (tmp_path / "main.c").write_text(MAIN)
    command = ["cc", "main.c", "m.so", "-lm", "-Wl,-rpath,.", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    ran = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True)
    worst, *values = ran.stdout.split()
    assert [worst, *values[:2]] == ["1", "0", "1"]
    with torch.no_grad():
        wanted = function.module(torch.tensor([[0.0, 0.0, 1.0]]))[0].numpy()
    np.testing.assert_allclose(np.array(values[2:], np.float32), wanted, rtol=1e-5, atol=1e-6)
    assert not list(tmp_path.glob("*.pt2"))
    assert record["libtorch"] in (tmp_path / "m.h").read_text()
    damaged = bytearray((tmp_path / "m.so").read_bytes())
    damaged[damaged.index(b"aotinductor/model") + 5] ^= 1
    (tmp_path / "m.so").write_bytes(damaged)
    with pytest.raises(CheckpointError, match="damaged"):
        CompiledSurrogate(tmp_path / "m.so")


UNUSABLE = """
#include <cmath>
#include <cstring>
int main(int, char **words) {
  const int64_t arrays[] = {0, 1, 3, 0, 1, 2};
  const stk_torch_function function = {"no package", 10, words[1], 0, 0, 1, 1, arrays};
  float x[3] = {0, 0, 0}, y[2];
  const void *const inputs[] = {x};
  void *const outputs[] = {y};
  return stk_torch_load(&function) != 6 || stk_torch_call(&function, 1, inputs, outputs) != 6;
}
"""


@pytest.mark.slow
def test_a_missing_device_and_a_broken_package_are_statuses_with_a_reason(tmp_path):
    texts = [read(torch_library.__file__, f"torch_runner.{suffix}") for suffix in ("h", "cpp")]
    (tmp_path / "main.cpp").write_text("\n".join([*texts, UNUSABLE]))
    torch_home = torch_library.TORCH
    compiler = require_tools(Path("m.so"), "cpu")
    includes = [f"-I{torch_home / 'include'}", f"-I{torch_home / 'include/torch/csrc/api/include'}"]
    libraries = ["-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch_home / 'lib'}"]
    command = [compiler, *torch_library.RUNNER, *includes, "main.cpp", f"-L{torch_home / 'lib'}"]
    subprocess.run([*command, *libraries, "-o", "main"], cwd=tmp_path, check=True)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    for device in ("cuda", "cpu"):  # without libtorch_cuda there is no GPU
        ran = subprocess.run(
            ["./main", device], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        assert f"scitoolkit: the package for {device} cannot be loaded: " in ran.stderr
        assert f"scitoolkit: a call on {device} failed: " in ran.stderr
        assert "frame #" not in ran.stderr
    assert not list(tmp_path.glob("*.pt2"))


class Fixed(nn.Module):
    def forward(self, x):
        return x.reshape(3, -1)[:, :2] if len(x) == 3 else x[:, :2]


class Table(nn.Module):
    """A value of a table at indices from the input, many at once."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4)

    def forward(self, x):
        return self.table(x.long()).sin().sum(2)


@pytest.mark.slow
def test_what_torch_cannot_do_is_refused_and_nothing_is_written(tmp_path):
    number = TracedFunction(Fixed(), [spec("x", 3)], [spec("y", 2)])
    with pytest.raises(ConfigError, match=r"Fixed cannot be compiled.*batch=64"):
        export_through_torch([number], tmp_path / "m.so", ExportConfig(device="cpu"))
    # A loop with threads ends the process at an index out of range.
    box = {"low": 0.0, "high": 4.0}
    table = TracedFunction(Table(), [spec("x", 60000, **box)], [spec("y", 60000)])
    ended = pytest.raises(BackendError, match=r"m\.so: the process .* ended with status -6")
    with inductor.patch({"cpp.threads": 2}), ended:
        export_through_torch([table], tmp_path / "m.so", ExportConfig(device="cpu"))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_sample_whose_index_is_out_of_range_is_nan_alone(tmp_path):
    function = TracedFunction(Table(), [spec("x", 3, low=0.0, high=4.0)], [spec("y", 3)])
    export_through_torch([function], tmp_path / "m.so", ExportConfig(device="cpu"))
    x = np.ones((5, 3), np.float32)
    x[1, 0], x[3, 2] = 9, np.nan
    (y,), statuses = CompiledSurrogate(tmp_path / "m.so")(x)
    assert statuses.tolist() == [0, 2, 0, 2, 0]
    assert np.isnan(y).all(1).tolist() == [False, True, False, True, False]


def test_a_process_calls_a_library_and_its_errors_have_the_place(tmp_path):
    function = perceptron()
    export([function], tmp_path / "c.so")
    x = examples(function, 4)
    with in_other_process(tmp_path / "c.so", "here") as call:
        (own,), statuses = call(x, "")
        with pytest.raises(BackendError, match=r"here: .*2 arrays"):
            call([*x, *x], "")
    (wanted,), _ = CompiledSurrogate(tmp_path / "c.so")(*x)
    assert np.array_equal(own, wanted)
    assert statuses.tolist() == [0] * 4
    with in_other_process(tmp_path / "none.so", "here") as call, pytest.raises(BackendError):
        call(x, "")


@WITHOUT_GPU
def test_cuda_without_a_gpu_is_refused_before_work(tmp_path):
    with pytest.raises(BackendError, match=r"device=cuda: torch .* sees no GPU.*model\.onnx"):
        api.export("sst_forecast", tmp_path / "m.so", ["device=cuda"])
    arguments = ["export", "sst_forecast", "-o", str(tmp_path / "m.so"), "--device", "cuda"]
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, BackendError)
    assert error.exit_code == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("m.so", ["device=cuda", "bits=4"], "bits with device=cuda"),
        ("m.so", ["device=cpu", "search=3", "max_error=.1"], "max_error, search with device=cpu"),
        ("m.so", ["device=cpu", "derivatives=[jvp]"], "derivatives with device=cpu"),
        ("m.so", ["device=cpu", "fastest=true", "time_share=.5"], "time_share, fastest with"),
        ("m.so", ["device=gpu"], "'gpu' is not 'cpu' or 'cuda'"),
        ("m.so", ["device=cpu", "batch=9000000000"], "batch: input should be less than"),
        ("m.so", ["batch=4"], "batch without device"),
        ("m.c", ["device=cuda"], r"m\.c: device for \.c.*-o model\.so"),
        ("m.weights", ["device=cpu"], r"device for \.weights"),
        ("m.onnx", ["device=cuda"], r"device for \.onnx"),
        ("m.pt2", ["device=cuda"], r"device for \.pt2"),
    ],
)
def test_other_options_and_files_are_refused_by_name(name, options, text, tmp_path):
    with pytest.raises(ConfigError, match=text):
        api.export("rb2d_emulator", tmp_path / name, options)
    assert not list(tmp_path.iterdir())


def test_without_a_cpp_compiler_or_with_another_suffix_it_is_refused(tmp_path):
    assert Path(require_tools(Path("m.so"), "cpu")).name == Path(shutil.which("g++") or "g++").name
    with pytest.raises(ConfigError, match=r"device for \.c"):
        require_tools(Path("m.c"), "cpu")
    for cxx in ("no-such-compiler", "ccache g++", "/"):
        text = rf"device=cpu: no C\+\+ compiler found \(searched for {re.escape(cxx)}\)"
        missing = pytest.raises(BackendError, match=text)
        with inductor.patch({"cpp.cxx": (None, cxx)}), missing:
            export_through_torch([perceptron()], tmp_path / "m.so", ExportConfig(device="cpu"))


@pytest.mark.parametrize("variable", ["TMPDIR", "TORCHINDUCTOR_CACHE_DIR"])
def test_a_space_in_the_temporary_folder_is_refused_before_work(variable, tmp_path, monkeypatch):
    folder = tmp_path / "a space"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv(variable, str(folder))
    with pytest.raises(BackendError, match=r"a space: torch compiles in no folder with a space"):
        require_tools(Path("m.so"), "cpu")


def test_an_empty_device_is_refused_and_not_left_out(tmp_path):
    arguments = ["export", "sst_forecast", "-o", str(tmp_path / "m.so"), "--device", ""]
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, ConfigError)
    assert "device: '' is not 'cpu' or 'cuda'" in str(error)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", ["c", "so", "weights", "onnx"])
def test_a_place_that_cannot_be_written_is_refused_before_work(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(export_forms, "_functions", lambda *_: pytest.fail("work was done"))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file: not a folder"):
        api.export("sst_forecast", tmp_path / "file" / f"m.{suffix}")


def test_failures_of_the_compiler_are_told_by_their_cause(tmp_path, monkeypatch):
    def fails(program, package_path):
        raise RuntimeError(reason)

    monkeypatch.setattr("torch._inductor.aoti_compile_and_package", fails)
    command = "C++ compile error\n\nCommand:\ng++ " + "-D A " * 100 + "\n\nOutput:\n"
    reason = command + "a.cpp: fatal error: cannot write b.s: No space left on device\n"
    config = ExportConfig(device="cpu")
    with pytest.raises(BackendError, match=r"no space left to compile.*TMPDIR"):
        export_through_torch([perceptron()], tmp_path / "m.so", config)
    reason = command + "a.cpp:1:1: error: unknown type name 'at'\n"
    with pytest.raises(ConfigError, match=r"RuntimeError: a\.cpp:1:1: error: unknown type"):
        export_through_torch([perceptron()], tmp_path / "m.so", config)
    reason = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 123456789 bytes"
    with pytest.raises(ConfigError, match=r"does not fit into the memory.*a smaller batch"):
        export_through_torch([perceptron()], tmp_path / "m.so", config)
    monkeypatch.setattr(torch_library, "_package", lambda *_: np.empty(1 << 50))
    with pytest.raises(ConfigError, match=r"m\.so: .* does not fit into the memory"):
        export_through_torch([perceptron()], tmp_path / "m.so", config)
    assert not list(tmp_path.iterdir())
