from __future__ import annotations

import json
import subprocess
import sys

import pytest

from scitoolkit.cli.main import run_cli


def cli(capsys, *arguments: str) -> tuple[int, str, str]:
    code = run_cli(arguments)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["rnu"], 2, "scitoolkit run"),
        (["run"], 2, "Missing argument"),
        (["run", "a", "--nproc", "0"], 2, "--nproc"),
        (["run", "no_such_workflow"], 2, "no workflow"),
        (["validate", "nope.yaml"], 2, "no such file"),
        (["ls", "model"], 2, "datasets, surrogates, workflows"),
        (["show", "nothing_called_this"], 2, "nothing called"),
        (["inspect", "nope.nc"], 3, "no such file"),
        (["evaluate", "nope"], 2, "no surrogate"),
        (["report", "."], 3, "not a run directory"),
    ],
)
def test_bad_usage_is_one_message_and_the_right_code(capsys, arguments, code, message):
    got, out, err = cli(capsys, *arguments)
    assert (got, out) == (code, "")
    assert message in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1


def test_json_prints_one_object_also_for_an_error(capsys):
    code, out, _ = cli(capsys, "inspect", "nope.nc", "--json")
    assert code == 3
    assert json.loads(out)["error"]["exit_code"] == 3


def test_doctor_names_every_package_and_why_a_fast_path_is_off(capsys):
    code, out, _ = cli(capsys, "doctor", "--json")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert code == 0
    assert {"torch", "gpu", "gloo", "C compiler", "zarr"} <= checks.keys()
    for check in checks.values():
        assert check["detail"]
        assert check["status"] in ("ok", "off")


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from scitoolkit.cli.main import run_cli; run_cli(['--help']);"
        "heavy = {'torch', 'xarray', 'numpy', 'matplotlib', 'h5py'} & sys.modules.keys();"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "validate" in done.stdout


def test_python_m_scitoolkit_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "scitoolkit", "ls", "nothing"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "unknown kind" in done.stderr
