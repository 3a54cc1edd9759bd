"""Modules that networks of fields consist of, and whole architectures, in both dtypes."""

from __future__ import annotations

import pytest
from exported import counts, outcomes
from field_architectures import architectures
from surveyed_modules import as_function, surveyed

from scitoolkit.deploy import ExportConfig

MATRICES = (
    "determinant log_determinant inverse solve solve_triangular cholesky shift_left shift_right"
).split()


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_architectures_of_fields_are_exported(dtype, tmp_path):
    functions = [as_function(*member, name) for name, member in architectures().items()]
    told = outcomes(functions, tmp_path, lambda _: ExportConfig(dtype=dtype))
    assert set(told.values()) == {"equal"}, told


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_small_matrices_and_shifts_are_exported(dtype, tmp_path):
    modules = surveyed()
    functions = [as_function(*modules[name], name) for name in MATRICES]
    told = outcomes(functions, tmp_path, lambda _: ExportConfig(dtype=dtype))
    assert set(told.values()) == {"equal"}, told


def test_operators_without_a_lowering_are_refused_by_name(tmp_path):
    functions = [as_function(*surveyed()["zeta"], "zeta")]
    told = outcomes(functions, tmp_path, lambda _: ExportConfig())
    assert told["zeta"].startswith("refused: export to C: operator aten.special_zeta"), told


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using padding='same' with even:UserWarning")  # of torch
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_surveyed_modules_are_exported(dtype, tmp_path):
    functions = [as_function(*member, name) for name, member in surveyed().items()]
    told = outcomes(functions, tmp_path, lambda _: ExportConfig(dtype=dtype))
    ended = counts(told)
    assert (ended["wrong"], ended["raw"]) == (0, 0), told
    assert ended["equal"] >= 0.95 * len(told), told
