"""The search over all choices of an export: what it offers, measures, and writes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit import api
from scitoolkit.core.config import ConfigProblems, read_document
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.combinations import Combinations
from scitoolkit.deploy.export import export
from scitoolkit.search import Space

WIDTH = 96


def network(dead: bool = False) -> list[TracedFunction]:
    """Return a network whose first matrix has rank 8, and a head."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 20)).eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.randn(WIDTH, 8) @ torch.randn(8, WIDTH) / WIDTH)
        if dead:
            model[2].weight[:, :5] = 0
    x = ArraySpec("x", ("k",), (WIDTH,), low=-2.0, high=2.0)
    return [TracedFunction(model, [x], [ArraySpec("y", ("k",), (20,))])]


@pytest.fixture(scope="module")
def tried():
    with Combinations(network(dead=True), ExportConfig(search=5, max_error=0.1)) as found:
        yield found


def test_the_space_has_the_choices_of_this_surrogate(tried):
    assert tried.space["bits"] == [32, 8, 4, 2]
    assert tried.space["time_share"][0] == 1.0
    assert {n for n in tried.space if n.startswith("float32.")} == {"float32.0", "float32.2"}
    space = Space(tried.space)
    for configuration in tried.known():
        assert space.decode(space.encode(configuration)) == configuration


def test_bits_ranks_and_kept_layers_are_measured_together(tried):
    """The reported values are those of another export with the same options."""
    chosen = {
        "bits": 8,
        "group": 32,
        "rounding": "nearest",
        "float32.0": False,
        "float32.2": True,
        "time_share": tried.space["time_share"][-1],
    }
    told, plain = tried(chosen), tried(tried.plain())
    assert plain["error"] == 0
    assert told["error"] > 0
    assert told["bytes"] < plain["bytes"] / 3
    form = tried.forms()[-1]
    assert form.options["keep"] == ["2"]
    assert form.options["channels"] == "remove"
    assert "0" in form.options["ranks"]
    assert form.error == told["error"]


def test_the_channels_that_do_nothing_are_gone_in_all_forms(tried, tmp_path):
    dense = tried.forms()[0]
    assert dense.error == 0
    assert dense.bytes < export(network(dead=True), tmp_path / "whole.so")["weight_bytes"]


def test_ranks_by_name_are_written_and_wrong_ones_are_refused(tmp_path):
    functions = network()
    found = export(functions, tmp_path / "a.so", ExportConfig(ranks={"0": [8]}, max_error=1e-3))
    assert found["ranks"] == {"0": [8]}
    assert found["weight_bytes"] < 4 * WIDTH * WIDTH  # the matrix alone, before
    with pytest.raises(ConfigError, match="no layer '1'"):
        export(functions, tmp_path / "b.so", ExportConfig(ranks={"1": [8]}))
    with pytest.raises(ConfigError, match="ranks"):
        export(functions, tmp_path / "b.so", ExportConfig(ranks={"0": [WIDTH + 1]}))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["search=9"], "max_error"),
        (["search=9", "max_error=0.1", "group=32"], "chooses"),
        (["search=9", "max_error=0.1", "fastest=true"], "fastest and search"),
        (["search=9", "max_error=0.1", "channels=remove"], "always removes"),
        (["ranks={a: [1]}", "time_share=0.5"], "ranks and time_share"),
        (["ranks={a: [0]}"], "ranks"),
    ],
)
def test_what_does_not_go_together_is_refused(options, said):
    with pytest.raises((ConfigError, ConfigProblems), match=said):
        read_document(None, options).validate(ExportConfig)


@pytest.mark.slow
def test_a_search_writes_the_fastest_form_within_the_error(tmp_path):
    functions = network()
    config = ExportConfig(search=12, max_error=0.05)
    found = api._export_searched(functions, tmp_path / "model.so", config)
    rows = json.loads((tmp_path / "model.forms.json").read_text())
    assert rows == found["forms"]
    assert len(rows) >= 9
    within = [r for r in rows if r["error"] <= 0.05]
    assert found["chosen"] == min(within, key=lambda r: r["microseconds"])["name"]
    assert any(r["worth"] for r in rows)
    x = np.random.default_rng(0).uniform(-1, 1, (3, WIDTH)).astype(np.float32)
    (y,), _ = CompiledSurrogate(tmp_path / "model.so")(x)
    with torch.no_grad():
        wanted = functions[0].module(torch.from_numpy(x)).numpy()
    assert np.abs(y - wanted).max() < 0.1 * np.ptp(wanted)
