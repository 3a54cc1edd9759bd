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
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.pareto import Form, export_fastest, fastest, forms


def layered(width: int) -> list[TracedFunction]:
    """Return a network whose first matrix has rank 8."""
    torch.manual_seed(0)
    first = nn.Linear(width, width)
    with torch.no_grad():
        first.weight.copy_(torch.randn(width, 8) @ torch.randn(8, width) / width)
    model = nn.Sequential(first, nn.Tanh(), nn.Linear(width, 4)).eval()
    x, y = ArraySpec("x", ("k",), (width,), low=-2.0, high=2.0), ArraySpec("y", ("k",), (4,))
    return [TracedFunction(model, [x], [y])]


def test_the_fastest_form_is_written_and_all_are_told(tmp_path):
    functions = layered(256)
    config = ExportConfig(fastest=True, max_error=0.02)
    found = export_fastest(functions, tmp_path / "model.so", config)
    rows = {row["name"]: row for row in found["forms"]}
    assert {"float32", "8 bits", "4 bits", "2 bits"} < set(rows)
    assert any(name.startswith("time share") for name in rows)
    assert rows["float32"]["error"] == 0
    assert rows["2 bits"]["error"] > rows["8 bits"]["error"] > 0
    assert rows["2 bits"]["bytes"] < rows["8 bits"]["bytes"] < rows["float32"]["bytes"]
    allowed = [row for row in rows.values() if row["error"] <= 0.02]
    assert found["chosen"] == min(allowed, key=lambda row: row["microseconds"])["name"]
    assert found["chosen"] != "float32"  # 256 KiB of weights against at most 64
    assert json.loads((tmp_path / "model.forms.json").read_text()) == found["forms"]
    assert (tmp_path / "model.forms.png").read_bytes()[:4] == b"\x89PNG"
    x = np.random.default_rng(0).uniform(-1, 1, (3, 256)).astype(np.float32)
    (y,), _ = CompiledSurrogate(tmp_path / "model.so")(x)
    with torch.no_grad():
        wanted = functions[0].module(torch.from_numpy(x)).numpy()
    assert 0 < np.abs(y - wanted).max() < 0.05 * np.ptp(wanted)


def test_nothing_but_float32_within_no_error(tmp_path):
    config = ExportConfig(fastest=True, max_error=1e-12)
    assert export_fastest(layered(64), tmp_path / "m.c", config)["chosen"] == "float32"


def test_a_form_that_another_beats_in_all_is_not_worth_a_look():
    rows = forms(layered(64), ExportConfig(fastest=True, max_error=1.0))
    for row in rows:
        beaten = any(
            o.error <= row.error and o.microseconds <= row.microseconds and o.bytes <= row.bytes
            and o is not row for o in rows
        )  # fmt: skip
        assert row.worth == (not beaten)
    assert isinstance(fastest(rows, 1.0), Form)


@pytest.mark.parametrize(
    ("options", "said"),
    [(["fastest=true"], "max_error"), (["fastest=true", "max_error=0.1", "bits=8"], "bits")],
)
def test_what_fastest_does_not_go_with_is_refused(options, said):
    with pytest.raises((ConfigError, ConfigProblems), match=said):
        read_document(None, options).validate(ExportConfig)
