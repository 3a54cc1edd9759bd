"""All layers of the installed torch-geometric: equal to the plain ones, or refused by name."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_geometric", exc_type=ImportError)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_model_is_equal_or_refused(monkeypatch):
    benchmarks = Path(__file__).resolve().parents[3] / "benchmarks"
    monkeypatch.syspath_prepend(str(benchmarks / "graphs"))
    from _graph_models import verdicts

    found = verdicts((1, 2, 4))
    sys.modules.pop("_graph_models")
    assert len(found) >= 90
    assert not [why for why in found.values() if why.startswith("crash")]
    refused = {name for name, why in found.items() if why != "equal"}
    assert refused == {"first rows"}
