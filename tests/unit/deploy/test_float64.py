"""The interface in float64: numbers beyond float32, boxes, bad arrays, header and module."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.export import export

DOUBLE = ExportConfig(dtype="float64")


class Scaled(nn.Module):
    """A layer, and arrays that forward makes in the default dtype."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        shift = torch.cat([torch.zeros(len(x), 2), torch.ones(len(x), 1) / 3], 1)
        return torch.fft.irfft(torch.fft.rfft(self.layer(x) + shift @ torch.eye(3)), n=3)


def function(module: nn.Module, high: float = 2.0, dtype: str = "float32") -> TracedFunction:
    x, y = ArraySpec("x", ("a",), (3,), "Pa", -1.0, high), ArraySpec("y", ("a",), (3,), "Pa")
    return TracedFunction(module, [x], [y], dtype=dtype)


def test_numbers_statuses_and_texts_are_of_double_precision(tmp_path):
    module = Scaled()
    before = torch.get_default_dtype()
    record = export([function(module, high=1 + 1e-12)], tmp_path / "m.so", DOUBLE)
    assert torch.get_default_dtype() == before
    assert module.layer.weight.dtype == torch.float32
    assert record["functions"][0]["dtype"] == "float64"
    library = CompiledSurrogate(tmp_path / "m.so")
    x = np.random.default_rng(0).uniform(-1, 1, (35, 3))
    x[0, 0], x[1, 1], x[2, 2] = 1 + 5e-13, 1 + 5e-12, np.nan
    (y,), status = library(x)
    torch.set_default_dtype(torch.float64)
    try:
        wanted = module.double()(torch.tensor(x)).detach().numpy()
    finally:
        torch.set_default_dtype(before)
    np.testing.assert_allclose(y, wanted, rtol=1e-12, atol=1e-13)
    assert status[:4].tolist() == [0, 1, 2, 0]
    header = (tmp_path / "m.h").read_text()
    assert "const double *x_in" in header
    assert "float" not in header.split("#ifndef")[1]
    fortran = (tmp_path / "m.f90").read_text()
    assert "real(c_double), contiguous, intent(in) :: x_in(:,:)" in fortran
    assert "8_c_int64_t * size(workspace" in fortran
    assert "c_float)" not in fortran
    with pytest.raises(DataError, match=r"float64 \(35, 3\)"):
        library(x.astype(np.float32))


def test_numbers_beyond_float32_are_finite(tmp_path):
    class Square(nn.Module):
        def forward(self, x):
            return x * x

    export([function(Square(), high=1e30)], tmp_path / "m.so", DOUBLE)
    (y,), status = CompiledSurrogate(tmp_path / "m.so")(np.full((2, 3), [[1e25], [1e200]]))
    np.testing.assert_allclose(y, [[1e50] * 3, [np.inf] * 3])
    assert status.tolist() == [0, 2]


def test_a_module_in_double_precision_may_be_declared_so(tmp_path):
    module = nn.Linear(3, 3).double()
    export([function(module, dtype="float64")], tmp_path / "m.so")
    x = np.random.default_rng(0).uniform(-1, 1, (2, 3))
    (y,), _ = CompiledSurrogate(tmp_path / "m.so")(x)
    np.testing.assert_allclose(y, module(torch.tensor(x)).detach().numpy(), rtol=1e-13)
    with pytest.raises(ValueError, match="compressed forms"):
        export([function(module, dtype="float64")], tmp_path / "m.so", ExportConfig(bits=8))


def test_what_has_no_form_in_double_precision_is_refused(tmp_path):
    single = function(nn.Linear(3, 3))
    with pytest.raises(ConfigError, match="float32 for a pool"):
        export([single], tmp_path / "m.weights", DOUBLE)
    with pytest.raises(ConfigError, match="two files"):
        export([single, function(nn.Linear(3, 3).double(), dtype="float64")], tmp_path / "m.so")
    for options in ({"bits": 8}, {"time_share": 0.5}, {"ranks": {"a": [1]}}):
        with pytest.raises(ValueError, match="compressed forms compute in float32"):
            ExportConfig(dtype="float64", **options)
    assert list(tmp_path.iterdir()) == []


class Convolved(nn.Module):
    """Arrays of several dims in and out, one of them shared between samples."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Conv2d(2, 3, 3, padding=1).double()

    def forward(self, x, factors):
        h = torch.tanh(self.layer(x)) * factors[:, :, None]
        return h, h.sum((2, 3))


CPP = """#include "m.h"
#include <array>
#include <cstdio>
#include <vector>
int main() {
  double x[3][2][4][5], factors[3][4], h[3][3][4][5], sums[3][3];
  for (int s = 0; s < 3; s++)
    for (int c = 0; c < 2; c++)
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 5; j++) x[s][c][i][j] = 0.01 * (100 * s + 50 * c + 7 * i + j) - 1;
  for (int c = 0; c < 3; c++)
    for (int i = 0; i < 4; i++) factors[c][i] = 1 + c - 0.1 * i;
  x[1][1][3][4] = 1e3;
  std::vector<unsigned char> work(M_WORKSPACE);
  std::array<int32_t, 3> status;
  if (m_check(M_ABI, M_CHECKSUM) != M_OK) return 1;
  const int code = m(3, x[0][0][0], factors[0], h[0][0][0], sums[0], work.data(), M_WORKSPACE,
                     status.data());
  const int small = m(3, x[0][0][0], factors[0], h[0][0][0], sums[0], work.data(), 8, nullptr);
  std::printf("%d %d %d %d %d\\n", code, small, status[0], status[1], status[2]);
  std::printf("%.15g %.15g %.15g\\n", h[2][1][3][0], h[0][2][0][4], sums[2][1]);
}
"""
FORTRAN = """program main
  use m_module
  implicit none
  real(c_double) :: x(5, 4, 2, 3), factors(4, 3), h(5, 4, 3, 3), sums(3, 3)
  real(c_double) :: work(M_WORKSPACE / 8 + 1)
  integer(c_int32_t) :: status(3)
  integer :: s, c, i, j, code
  do s = 1, 3
    do c = 1, 2
      do i = 1, 4
        do j = 1, 5
          x(j, i, c, s) = 0.01d0 * (100 * (s - 1) + 50 * (c - 1) + 7 * (i - 1) + j - 1) - 1
        end do
      end do
    end do
  end do
  do c = 1, 3
    factors(:, c) = [(c - 0.1d0 * i, i = 0, 3)]
  end do
  x(5, 4, 2, 2) = 1d3
  if (m_check(M_ABI, M_CHECKSUM) /= M_OK) stop 1
  code = m(x, factors, h, sums, work, status)
  print '(5(i0, 1x))', code, m(x, factors, h, sums, work(:1)), status
  code = m(x, factors, h, sums, work, status)
  print '(3(es23.15, 1x))', h(1, 4, 2, 3), h(5, 1, 3, 1), sums(2, 3)
end program
"""


@pytest.mark.skipif(
    not (shutil.which("g++") and shutil.which("gfortran")), reason="no g++ or gfortran"
)
def test_programs_in_cpp_and_fortran_pass_arrays_of_several_dims(tmp_path):
    module = Convolved()
    inputs = [
        ArraySpec("x", ("c", "i", "j"), (2, 4, 5), "", -2.0, 5.0),
        ArraySpec("factors", ("c", "i"), (3, 4), "", shared=True),
    ]
    outputs = [ArraySpec("h", ("c", "i", "j"), (3, 4, 5)), ArraySpec("sums", ("c",), (3,))]
    export([TracedFunction(module, inputs, outputs, dtype="float64")], tmp_path / "m.c")
    for name, text in (("main.cpp", CPP), ("main.f90", FORTRAN)):
        (tmp_path / name).write_text(text)
    s, c, i, j = np.ogrid[:3, :2, :4, :5]
    x = 0.01 * (100 * s + 50 * c + 7 * i + j) - 1
    x[1, 1, 3, 4] = 1e3
    factors = 1 + np.arange(3)[:, None] - 0.1 * np.arange(4)
    h, sums = (y.detach().numpy() for y in module(torch.tensor(x), torch.tensor(factors)))
    for command in (
        ["cc", "-O1", "-c", "m.c", "-o", "m.o"],
        ["g++", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "main.cpp", "m.o", "-o", "cpp"],
        ["gfortran", "-std=f2018", "-fcheck=all", "m.f90", "main.f90", "m.o", "-o", "fortran"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    for program in ("cpp", "fortran"):
        done = subprocess.run([tmp_path / program], capture_output=True, text=True, check=True)
        codes, values = done.stdout.splitlines()
        assert [int(word) for word in codes.split()] == [1, 3, 0, 1, 0], program
        wanted = h[2, 1, 3, 0], h[0, 2, 0, 4], sums[2, 1]
        np.testing.assert_allclose([float(v) for v in values.split()], wanted, rtol=1e-13)
