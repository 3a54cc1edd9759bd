from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from small_disk import files_up_to

import scitoolkit
from scitoolkit import api
from scitoolkit.cli import main
from scitoolkit.cli._options import print_json
from scitoolkit.cli.main import run_cli
from scitoolkit.core import uncaught
from scitoolkit.core.content import KINDS, content_root
from scitoolkit.core.plugins import kind_names, kinds
from scitoolkit.ops.codegen import operations

ROOT = Path(scitoolkit.__file__).parents[1]


def cli(capsys, *arguments: str) -> tuple[int, str, str]:
    code = run_cli(arguments)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["rnu"], 2, "scitoolkit run"),
        (["compare"], 2, "Fix: scitoolkit runs compare"),
        (["run"], 2, "Missing argument"),
        (["run", "a", "--nproc", "0"], 2, "--nproc"),
        (["run", "no_such_workflow"], 2, "no workflow"),
        (["validate", "nope.yaml"], 2, "no such file"),
        (["ls", "model"], 2, "datasets, surrogates, workflows"),
        (["show", "nothing_called_this"], 2, "nothing called"),
        (["cp", "sst_forcast", "x"], 2, "Fix: scitoolkit cp workflows/sst_forecast x"),
        (["inspect", "nope.nc"], 3, "no such file"),
        (["evaluate", "nope"], 2, "no run directory or surrogate"),
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
    code, out, _ = cli(capsys, "doctor", "--kernels", "--json")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert code == 0
    assert {"torch", "gpu", "gloo", "C compiler", "tensor_product"} <= checks.keys()
    for check in checks.values():
        assert check["detail"]
        assert check["status"] in ("ok", "off")
    assert _optional_packages() <= checks.keys()
    on_gpu = {name: checks[f"{name} on gpu"] for name in operations}
    assert "no backend has a kernel" in on_gpu["tabulated_convolution"]["detail"]
    if checks["triton"]["status"] == "ok" and not torch.cuda.is_available():
        assert on_gpu["environment_matrix"]["detail"] == "kernels of triton"
    plugins = json.loads(out)["plugins"]
    assert plugins.keys() == set(kind_names())
    for kind, members in plugins.items():
        assert list(members) == kinds()[kind].names()
        for name, problem in members.items():
            assert bool(problem) == (checks.get(f"{kind} {name}", {}).get("status") == "off")


def _optional_packages() -> set[str]:
    """Return the packages of the extras that pyproject.toml names, without those of developers."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    lines = [line for extra in extras.keys() - {"dev", "docs", "all"} for line in extras[extra]]
    names = {re.match(r"[A-Za-z0-9._-]+", line)[0] for line in lines}
    return names - {"scitoolkit"}


@pytest.mark.parametrize("kind", kind_names())
def test_every_kind_is_listed_in_the_singular_and_plural_with_its_members(capsys, kind):
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    text = plural.replace(" ", "-")
    code, out, err = cli(capsys, "ls", text, "--json")
    assert code == 0, err
    assert [m["name"] for m in json.loads(out)["members"]] == kinds()[kind].names()


def test_a_misspelt_kind_gives_the_nearest(capsys):
    code, _, err = cli(capsys, "ls", "optimisers")
    assert code == 2
    assert "Fix: optimizers" in err


def test_headlines_are_sentences_or_titles(capsys):
    _, out, _ = cli(capsys, "ls", "--json")
    lines = {(k, n): h for k in KINDS for n, h in json.loads(out)[k].items()}
    assert len(lines) > 20
    for (kind, name), line in lines.items():
        card = (content_root(kind) / name / "README.md").read_text(encoding="utf-8")
        title = card.partition("\n")[0]
        whole = line.endswith(".") and line[0].isupper() | line[0].isdigit()
        assert title.endswith(f": {line}") or whole


def test_a_shared_name_shows_the_surrogate_and_says_what_else_has_it(capsys):
    code, out, _ = cli(capsys, "show", "sst_forecast")
    assert code == 0
    assert "see also: scitoolkit show workflows/sst_forecast" in out


def test_bare_command_and_version(capsys):
    code, out, err = cli(capsys)
    assert (code, err) == (0, "")
    assert "scitoolkit tour" in out
    assert "..." not in out.partition("Commands:")[2]  # every help text is whole
    assert cli(capsys, "--version")[:2] == (0, f"scitoolkit {scitoolkit.__version__}\n")


def test_a_terminal_without_unicode_does_not_fail_a_finished_command():
    env = {**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "scitoolkit", "ls", "datasets"], capture_output=True, env=env
    )
    assert done.returncode == 0, done.stderr
    assert b"B\\xe9nard" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["ls"],
        ["ls", "optimizers"],
        ["doctor", "--quick"],
        ["show", "sst_forecast"],
        ["inspect", "datasets/nyx_small/nyx_z255_32.h5"],
    ],
)
def test_commands_that_compute_nothing_import_no_torch(arguments):
    code = (
        "import sys; from scitoolkit.cli.main import run_cli; code = run_cli(sys.argv[1:]);"
        "sys.exit('imported torch' if 'torch' in sys.modules else code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


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


def test_finalisers_of_objects_that_an_interruption_left_half_made_are_silent(monkeypatch, capsys):
    from scitoolkit.cli import main as module

    class HalfMade:
        def __del__(self):
            self.missing  # noqa: B018

    class Broken:
        def __del__(self):
            raise OSError("told")

    monkeypatch.setattr(sys, "unraisablehook", module._repeat_interruption)
    del (made := [HalfMade(), Broken()])[:]
    told = capsys.readouterr().err
    assert not made
    assert "AttributeError" not in told
    assert "told" in told


def test_handles_of_hdf5_that_cannot_be_released_are_silent(monkeypatch):
    monkeypatch.setattr(uncaught, "_HDF5_FAILED", threading.Event())
    failed = RuntimeError("Can't decrement id ref count (No space left on device)")
    told: list[object] = []
    for hook in ("__unraisablehook__", "__excepthook__"):
        monkeypatch.setattr(sys, hook, lambda *given: told.append(given))
    for package, is_told in (("another", True), ("h5py", False)):
        name = f"{package}._objects.ObjectID.__dealloc__"
        unraisable = SimpleNamespace(exc_type=RuntimeError, exc_value=failed, object=name)
        main._repeat_interruption(unraisable)
        frame = SimpleNamespace(f_code=SimpleNamespace(co_name=name))
        trace = SimpleNamespace(tb_frame=frame, tb_next=None)
        uncaught.print_uncaught(RuntimeError, failed, trace)
        assert len(told) == 2
        assert uncaught.hdf5_failed() is not is_told


def test_a_command_leaves_the_hook_for_uncaught_exceptions(monkeypatch, capsys):
    monkeypatch.setattr(sys, "excepthook", uncaught.print_uncaught)
    assert cli(capsys, "ls")[0] == 0
    assert sys.excepthook is uncaught.print_uncaught


def test_json_output_has_no_numbers_that_json_lacks(capsys):
    print_json({"psnr": math.inf, "rows": [(1.5, math.nan)], "name": "NaN"})
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found == {"psnr": None, "rows": [[1.5, None]], "name": "NaN"}


def test_an_unknown_subcommand_lists_those_of_its_group(capsys):
    code, _, err = cli(capsys, "graphs", "paln")
    assert code == 2
    assert (
        err == "error: no command 'paln'. Allowed: plan, partition. Fix: scitoolkit graphs plan\n"
    )


def test_a_copy_that_does_not_fit_is_one_message(tmp_path, capsys):
    with files_up_to(20_000):
        code, out, err = cli(capsys, "cp", "surrogates/sst_forecast", str(tmp_path / "mine"))
    assert (code, out) == (1, "")
    assert err == (
        f"error: {tmp_path / 'mine'}: cannot be written (File too large). "
        "Fix: free space, or another folder; files saved before are intact\n"
    )
    assert not list(tmp_path.iterdir())


def test_new_allows_only_what_it_can_make(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind in ("model", "datasets", "workflow"):
        code, _, err = cli(capsys, "new", kind, "mine")
        assert code == 2
        assert "unknown kind" in err
        assert "workflows" not in err.partition("Allowed")[2]
        assert "codecs" in err
    assert cli(capsys, "ls", "workflow")[0] == 0


@pytest.mark.parametrize(
    ("backend", "is_left"),
    [
        ("module://no_such_package.backend_inline", False),
        ("module://json.no_such_module", False),
        ("module://", False),
        ("module://matplotlib.backends.backend_agg", True),
        ("agg", True),
    ],
)
def test_the_backend_of_a_notebook_of_another_environment_is_not_used(backend, is_left):
    code = (
        "import os, sys; from scitoolkit.cli import main\n"
        "main.run_cli = lambda _: print(os.environ.get('MPLBACKEND')) or 0\n"
        "main.main([])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "MPLBACKEND": backend},
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.strip() == (backend if is_left else "None")


@pytest.mark.parametrize(
    ("stated", "spins"),
    [
        ({}, "20000"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "None"),
        ({"GOMP_SPINCOUNT": "1000"}, "1000"),
    ],
)
def test_waiting_threads_spin_shortly_unless_the_environment_states_how_they_wait(stated, spins):
    unset = {n: v for n, v in os.environ.items() if n not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    # The variable has to be set before torch is imported, which reads it then.
    code = (
        "import os, sys; from scitoolkit.cli import main\n"
        "spins = lambda: os.environ.get('GOMP_SPINCOUNT')\n"
        "main.run_cli = lambda _: print(spins(), 'torch' in sys.modules)\n"
        "main.main([])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=unset | stated, capture_output=True, text=True
    )
    assert done.stdout.strip() == f"{spins} False", done.stderr


def test_a_dry_run_ends_with_the_duration_of_the_training(monkeypatch, capsys):
    facts = {"units": {"u": "K"}, "training": "2000 steps, about 8 min", "loader": {"samples": 1}}
    monkeypatch.setattr(api, "check", lambda *_: facts)
    assert run_cli(["run", "emulator.yaml", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "training: 2000 steps, about 8 min"
