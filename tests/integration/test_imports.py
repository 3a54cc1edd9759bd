"""Commands that do not need torch do not import it, because the import dominates their time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from scitoolkit.core import plugins

ROOT = Path(__file__).resolve().parents[2]
NEED_TORCH = {"activation store", "kernel backend", "operation"}
"""Kinds whose members are torch modules and operators; `doctor --kernels` describes them."""
MEASURED = ("rayleigh_benard", "field_surrogate", "convection_climate")
"""Workflows whose check opens the data by stages with torch, or measures equations on them."""
PROGRAM = """
import contextlib, io, json, sys
from scitoolkit.cli.main import run_cli
commands, left = json.loads(sys.argv[1]), []
for command in commands:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        code = run_cli(command)
    if "torch" in sys.modules or code:
        left = [command, code, text.getvalue()[-300:]]
        break
print(json.dumps(left))
"""


def first_to_import_torch(commands: list[list[str]], package: str = "torch") -> list[object]:
    """Return the first command that imported torch or failed, run in turn in a new process.

    `package` is looked for instead of torch.
    """
    text = PROGRAM.replace('"torch"', f'"{package}"')
    program = [sys.executable, "-c", text, json.dumps(commands)]
    done = subprocess.run(program, capture_output=True, text=True, check=True, cwd=ROOT)
    return json.loads(done.stdout.splitlines()[-1])


def test_listing_and_checking_import_no_torch():
    kinds = [name for name in plugins.kind_names() if not plugins.kind(name).imports_torch]
    assert set(plugins.kind_names()) - set(kinds) == NEED_TORCH
    commands = [["ls"], ["doctor", "--quick"], ["doctor"], *(["ls", k] for k in kinds)]
    assert first_to_import_torch(commands) == []


def test_validate_imports_no_torch(tmp_path):
    files = sorted((ROOT / "workflows").glob("*/*.yaml"))
    checked = [str(f) for f in files if f.parent.name not in MEASURED]
    commands = [["validate", file, "--no-data"] for file in checked]  # some data are generated
    commands.append(["validate", str(ROOT / "workflows" / "node_classification" / "train.yaml")])
    links = tmp_path / "links.yaml"
    cora = ROOT / "datasets" / "cora" / "cora.npz"
    links.write_text(f"domain: graph_links\ndata: {{path: {cora}}}\n", encoding="utf-8")
    commands.append(["validate", str(links)])
    assert first_to_import_torch(commands) == []


def test_inspect_imports_neither_torch_nor_xarray():
    files = [
        "ersst_v5/ersstv5_monthly_2deg_201001-202008.nc",
        "nyx_small/nyx_z255_32.h5",
        "cora/cora.npz",
    ]
    commands = [["inspect", str(ROOT / "datasets" / file)] for file in files]
    assert first_to_import_torch(commands) == []
    assert first_to_import_torch(commands, "xarray") == []  # a second with pandas and dask


def test_help_imports_no_pydantic():
    program = PROGRAM.replace('"torch"', '"pydantic"')
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps([["--help"]])],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []
