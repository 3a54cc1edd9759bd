from __future__ import annotations

import ast
from pathlib import Path

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


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "failed (file write failed: time = Wed\n, filename = 'a.h5', file descriptor = 4, "
            "errno = 28, error message = 'No space left on device', buf = 0x5)",
            "a.h5: ",
        ),
        (
            "Can't decrement id ref count (unable to extend file properly, errno = 28, "
            "error message = 'No space left on device')",
            "",
        ),
    ],
)
def test_the_cause_is_read_from_the_errors_of_hdf5(text, name):
    told = f"{name}No space left on device. Fix: free space there, and in TMPDIR"
    assert str(errors.system_error(RuntimeError(text))) == told
    assert errors.system_error(RuntimeError("something else")) is None
    with pytest.raises(OSError, match="No space left") as caught, errors.file_named("b.h5", "a.h5"):
        raise RuntimeError(text)
    assert caught.value.filename == "b.h5"


def test_a_message_tells_what_is_allowed_or_a_fix():
    """Of every error that the command line, Python's interface, reports and the core raise."""
    package = Path(errors.__file__).parents[1]
    kinds = {"ConfigError", "DataError", "CheckpointError", "NumericalError", "ScitoolkitError"}
    files = [package / "api.py"]
    for room in ("cli", "core", "reporting"):
        files += (package / room).rglob("*.py")
    calls = [
        (f"{file.name}:{node.lineno}", {keyword.arg for keyword in node.keywords})
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in kinds
    ]
    assert len(calls) > 100
    assert [place for place, names in calls if not names & {"allowed", "fix"}] == []
