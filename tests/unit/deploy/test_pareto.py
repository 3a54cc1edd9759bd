"""The fastest form within an error: chosen of measured ones, told, written."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.core.config import ConfigProblems, read_document
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig, pareto
from scitoolkit.deploy.pareto import Form, fastest, forms


def layered(width: int) -> list[TracedFunction]:
    """Return a network whose first matrix has rank 8."""
    torch.manual_seed(0)
    first = nn.Linear(width, width)
    with torch.no_grad():
        first.weight.copy_(torch.randn(width, 8) @ torch.randn(8, width) / width)
    model = nn.Sequential(first, nn.Tanh(), nn.Linear(width, 4)).eval()
    x, y = ArraySpec("x", ("k",), (width,), low=-2.0, high=2.0), ArraySpec("y", ("k",), (4,))
    return [TracedFunction(model, [x], [y])]


@pytest.fixture(scope="module")
def functions():
    return layered(192)


@pytest.fixture(scope="module")
def found(functions):
    return forms(functions, ExportConfig(fastest=True, max_error=1.0))


@pytest.fixture
def ordered():
    """Forms as if they had been measured: which one is the fastest hangs on no clock."""
    return [
        Form("float32", {}, 0.0, 9.0, 151_312, worth=True),
        Form("8 bits", {"bits": 8}, 0.015, 4.0, 40_000, worth=True),
        Form("2 bits", {"bits": 2}, 0.4, 2.0, 12_000, worth=True),
    ]


@pytest.mark.slow
def test_all_forms_are_measured(found):
    rows = {row.name: row for row in found}
    assert {"float32", "8 bits", "4 bits", "2 bits"} < set(rows)
    assert any(name.startswith("time share") for name in rows)
    assert rows["float32"].error == 0
    assert rows["2 bits"].error > rows["8 bits"].error > 0
    assert rows["2 bits"].bytes < rows["8 bits"].bytes < rows["float32"].bytes
    assert all(row.microseconds > 0 for row in found)


@pytest.mark.slow
def test_a_form_that_another_beats_in_all_is_not_worth_a_look(found):
    for row in found:
        beaten = any(
            o.error <= row.error
            and o.microseconds <= row.microseconds
            and o.bytes <= row.bytes
            and o is not row
            for o in found
        )
        assert row.worth == (not beaten)


@pytest.mark.parametrize(("most", "written"), [(0.025, "8 bits"), (1e-12, "float32")])
def test_the_fastest_form_within_the_error_is_written(
    functions, ordered, most, written, tmp_path, monkeypatch
):
    monkeypatch.setattr(pareto, "forms", lambda *_: ordered)
    config = ExportConfig(fastest=True, max_error=most)
    told = pareto.export_fastest(functions, tmp_path / "model.so", config)
    assert told["chosen"] == fastest(ordered, most).name == written
    assert json.loads((tmp_path / "model.forms.json").read_text()) == told["forms"]
    assert (tmp_path / "model.forms.png").read_bytes()[:4] == b"\x89PNG"
    x = np.random.default_rng(0).uniform(-1, 1, (3, 192)).astype(np.float32)
    (y,), _ = CompiledSurrogate(tmp_path / "model.so")(x)
    with torch.no_grad():
        wanted = functions[0].module(torch.from_numpy(x)).numpy()
    assert np.abs(y - wanted).max() < max(most, 1e-5) * np.ptp(wanted)


@pytest.mark.parametrize(
    ("options", "said"),
    [(["fastest=true"], "max_error"), (["fastest=true", "max_error=0.1", "bits=8"], "bits")],
)
def test_what_fastest_does_not_go_with_is_refused(options, said):
    with pytest.raises((ConfigError, ConfigProblems), match=said):
        read_document(None, options).validate(ExportConfig)
