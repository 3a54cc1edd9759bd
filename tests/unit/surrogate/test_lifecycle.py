"""The domain of docs/how-to/add-a-domain.md has what it did not write."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from command_line import warm_start
from pages import DOCS, python_blocks
from safetensors.torch import load_file

from scitoolkit.core.errors import DataError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.surrogate import load, open_checked
from scitoolkit.surrogate.lifecycle import require_disjoint

SOURCE, TESTS = python_blocks((DOCS / "how-to" / "add-a-domain.md").read_text(encoding="utf-8"))
RANKS = """
import sys
from pathlib import Path
from steady import SteadyConfig, SteadyJob
from scitoolkit.core.config import load_config
from scitoolkit.core.run_directory import RunDirectory

if __name__ == "__main__":
    job, folder = SteadyJob(), Path(sys.argv[1])
    config = load_config(SteadyConfig, folder / "config.yaml")
    with job.processes(config):
        job.train(config, RunDirectory(folder), resume="--resume" in sys.argv)
"""
LAUNCH = """
import sys
from scitoolkit.training.launch import launch

code = launch(int(sys.argv[1]), sys.argv[2:], module="train")
assert code == 0, code
"""


@pytest.fixture(scope="module")
def steady(tmp_path_factory):
    """Return the module's namespace and its folder."""
    folder = tmp_path_factory.mktemp("steady")
    (folder / "steady.py").write_text(SOURCE, encoding="utf-8")
    (folder / "train.py").write_text(RANKS, encoding="utf-8")
    (folder / "launch.py").write_text(LAUNCH, encoding="utf-8")
    namespace: dict = {"__name__": "steady"}
    # Other tests of this process list the registered domains.
    unregistered = (SOURCE + TESTS).replace('@domains.register("steady")\n', "")
    exec(compile(unregistered, "steady.py", "exec", dont_inherit=True), namespace)
    namespace["write_table"](folder / "table.nc")
    return namespace, folder


@pytest.fixture(scope="module")
def alone(steady):
    """Return the run of one model, trained by one process."""
    return train(steady, "alone")


def train(steady, name: str, processes: int = 1, *arguments: str, **settings):
    """Train in processes of their own; return the run directory."""
    import yaml

    _, folder = steady
    run = folder / name
    (run / "checkpoints").mkdir(parents=True, exist_ok=True)
    data = {"path": str(folder / "table.nc"), "inputs": ["speed", "temperature"], "output": "drag"}
    training = {"epochs": 4, "batch_size": 20, **settings.pop("training", {})}
    if processes > 1:
        training["strategy"] = "ddp"
    document = {"domain": "steady", "data": data, "training": training, **settings}
    (run / "config.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    script, words = folder / "train.py", [str(run), *arguments]
    if processes > 1:
        script, words = folder / "launch.py", [str(processes), *words]
    done = warm_start().run(folder, words, script=script)
    assert done.returncode == 0, done.stderr
    return run


def test_two_processes_reach_what_one_reaches(steady, alone):
    one, two = (
        load_file(run / "model/weights.safetensors") for run in (alone, train(steady, "ranks", 2))
    )
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-5, atol=1e-6)


def test_members_differ_and_the_first_is_the_model_alone(steady, alone):
    weights = load_file(alone / "model/weights.safetensors")
    members = load_file(train(steady, "members", members=3) / "model/weights.safetensors")
    weight = "layers.0.weight"
    assert not torch.equal(members[f"members.0.{weight}"], members[f"members.1.{weight}"])
    torch.testing.assert_close(members[f"members.0.{weight}"], weights[weight], rtol=0.2, atol=0.05)


def test_weights_in_few_bits_are_those_that_are_loaded(steady):
    namespace = steady[0]
    run = train(steady, "bits", weights_dtype="float16")
    stored = ModelFolder(run).load_weights()["layers.0.weight"]
    assert stored.dtype == torch.float16
    trained = load(namespace["SteadyStages"](), namespace["SteadyConfig"], run)
    torch.testing.assert_close(trained.model.layers[0].weight, stored.float(), rtol=0, atol=0)


def test_facts_are_compared_on_every_road(steady, alone):
    namespace, folder = steady
    run = alone
    stages = namespace["SteadyStages"]()
    trained = load(stages, namespace["SteadyConfig"], run)
    assert [v.units for v in trained.facts.variables] == ["m/s", "K", "Pa"]
    with namespace["open_fields"](folder / "table.nc") as table:
        table = table.load()
    table.speed.attrs["units"] = "kg"
    table.to_netcdf(folder / "mass.nc", engine="h5netcdf")
    for use in (
        lambda path: namespace["SteadyJob"]().predict(run, path, folder / "out.nc"),
        lambda path: namespace["SteadyJob"]().evaluate(run, path),
    ):
        with pytest.raises(DataError, match="variable speed: unit kg"):
            use(folder / "mass.nc")
    table.speed.attrs["units"] = "km/h"
    table["speed"] = (table.speed * 3.6).assign_attrs(units="km/h")
    table.to_netcdf(folder / "hours.nc", engine="h5netcdf")
    opened = open_checked(stages, trained.config, folder / "hours.nc", trained.facts)
    original = stages.open(trained.config, folder / "table.nc")
    np.testing.assert_allclose(opened.speed, original.speed, rtol=1e-6)


def test_parts_that_share_a_sample_are_refused():
    require_disjoint({"train": [0, 1], "test": [2]}, "file")
    with pytest.raises(DataError, match="sample 1 is in train and test"):
        require_disjoint({"train": [0, 1], "test": [1]}, "file")
    with pytest.raises(DataError, match="empty"):
        require_disjoint({"train": [], "test": [1]}, "file")
