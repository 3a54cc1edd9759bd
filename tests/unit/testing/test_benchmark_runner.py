"""`benchmarks/run.py` of several benchmarks: one that fails does not lose the others."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parents[3] / "benchmarks" / "run.py"


@pytest.fixture
def runner(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(RUN.parent))
    spec = importlib.util.spec_from_file_location("benchmark_runner", RUN)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(name, device):
        if name == "nas":
            raise RuntimeError("the peer is not installed")
        return {"benchmark": name, "ratio": 2.0}

    monkeypatch.setattr(module, "run", run)
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(module, "names", lambda: ["graphs", "nas", "vlasov"])
    return module


def test_a_failed_benchmark_does_not_lose_the_others(runner, capsys):
    assert runner.main(["--all", "--json", "--save"]) == 1
    out = capsys.readouterr()
    assert list(json.loads(out.out)) == ["graphs", "vlasov"]
    assert out.err.endswith("run.py: not measured: nas\n")
    stored = sorted(file.stem for file in runner.RESULTS.iterdir())
    assert stored == ["graphs", "vlasov"]


def test_a_single_benchmark_raises_its_error(runner):
    with pytest.raises(RuntimeError, match="not installed"):
        runner.main(["nas"])
