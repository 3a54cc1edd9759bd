from __future__ import annotations

import pytest

from scitoolkit.core import errors


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.ScitoolkitError, 1),
        (errors.BackendError, 1),
        (errors.ConfigError, 2),
        (errors.DataError, 3),
        (errors.CheckpointError, 3),
        (errors.NumericalError, 4),
        (errors.Interrupted, 130),
    ],
)
def test_each_error_has_its_exit_code(kind, code):
    assert kind("x").exit_code == code
    assert issubclass(kind, errors.ScitoolkitError)


def test_a_message_has_its_four_parts_in_order():
    text = str(errors.DataError("no 'a'", where="f.nc", allowed="b", fix="data.variable=b"))
    assert text == "f.nc: no 'a'. Allowed: b. Fix: data.variable=b"


def test_a_missing_extra_names_the_command_to_install_it():
    assert "pip install 'scitoolkit[zarr]'" in str(errors.missing_extra("zarr", "zarr", "Zarr"))
