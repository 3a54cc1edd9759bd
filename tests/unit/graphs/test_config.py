"""The domains' own defaults of the shared `training:` section, through the command line."""

from __future__ import annotations

import pytest
import yaml

from scitoolkit.cli.main import run_cli
from scitoolkit.core.config import Document
from scitoolkit.graphs.config import GraphConfig
from scitoolkit.graphs.mesh_config import MeshConfig

JOBS = {
    "graphs": (GraphConfig, {"strategy": "auto", "epochs": 200, "batch_size": 32}),
    "mesh_transport": (MeshConfig, {"strategy": "auto", "epochs": 60, "batch_size": 2}),
}


@pytest.mark.parametrize("domain", JOBS)
@pytest.mark.parametrize("settings", [[], ["training.log_every=5"]])
@pytest.mark.parametrize("in_file", ["", "training: {log_every: 5}\n"])
def test_a_key_of_the_training_leaves_the_others_at_the_domains_defaults(
    domain, settings, in_file, tmp_path, capsys
):
    path = tmp_path / "train.yaml"
    path.write_text(f"domain: {domain}\ndata: {{path: a.npz}}\n{in_file}")
    assert run_cli(["validate", str(path), *settings, "--resolved", "--no-data"]) == 0
    training = yaml.safe_load(capsys.readouterr().out)["training"]
    expected = JOBS[domain][1]
    assert {key: training[key] for key in expected} == expected
    assert training["log_every"] == (5 if settings or in_file else 50)


@pytest.mark.parametrize("domain", JOBS)
def test_the_strategy_of_a_shared_graph_does_not_divide_a_batch(domain):
    schema = JOBS[domain][0]
    raw = {"domain": domain, "data": {"path": "a"}, "training": {"log_every": 5}}
    config = Document(raw=raw).validate(schema)
    assert config.training.strategy_on(3).name == "graph"
