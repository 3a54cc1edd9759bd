"""The interface in float64: numbers beyond float32, boxes, bad arrays, header and module."""

from __future__ import annotations

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
