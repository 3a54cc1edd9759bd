"""The code of the tutorial runs as it stands there, on one process and on four."""

import json
import sys
import types
from pathlib import Path

import pytest
from pages import page, python_blocks

from scitoolkit.training.launch import launch

pytest.importorskip("torch_geometric", exc_type=ImportError)

ROOT = Path(__file__).resolve().parents[2]


def tutorial():
    return "\n".join(python_blocks(page("tutorials/pyg-on-four-processes")))


@pytest.fixture
def run(monkeypatch):
    """Runs code as a module, which torch-geometric looks up for the types of a layer."""

    def execute(code):
        module = types.ModuleType("tutorial")
        monkeypatch.setitem(sys.modules, "tutorial", module)
        exec(compile(code, "tutorial", "exec"), module.__dict__)
        return module.accuracy, module.plain

    return execute


def test_the_tutorial_runs_and_learns(run):
    accuracy, plain = run(tutorial())
    assert set(accuracy) == {"Stacked", "Attentive", "ByHand"}
    assert min(plain, *accuracy.values()) > 0.75


@pytest.mark.multiproc
def test_four_processes_learn_what_one_does(run, tmp_path, monkeypatch):
    code = tutorial().replace("epochs=60", "epochs=4").replace("range(60)", "range(1)")
    one, _ = run(code)
    script = tmp_path / "tutorial_script.py"
    out = tmp_path / "accuracy.json"
    end = f"""
import json
from scitoolkit.training.launch import leave

if ranks.rank == 0:
    open({str(out)!r}, "w").write(json.dumps(accuracy))
leave(0)
"""
    script.write_text(f"{code}\n{end}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert launch(4, [], module="tutorial_script") == 0
    four = json.loads(out.read_text())
    assert four == pytest.approx(one, abs=0.005)
