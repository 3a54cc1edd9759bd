"""Compressed and offloaded activations on several ranks: the same resume, the same steps."""

import pytest
import torch

from scitoolkit.training.memory.offload_places import file_system

MEMORY = {"activations": "comet", "smallest": 1, "measure_every": 2}


@pytest.mark.multiproc
@pytest.mark.parametrize("strategy", [pytest.param("ddp", marks=pytest.mark.slow), "sharded"])
def test_ranks_resume_bit_for_bit_with_compressed_activations(start, strategy, tmp_path):
    training = {"strategy": strategy, "memory": MEMORY}
    code, whole = start(2, name="whole", result="whole", training=training)
    assert code == 0
    assert start(2, name="r", stop=(5, "SIGTERM"), on_rank=1, training=training)[0] == 130
    _, again = start(2, name="r", result="r", resume=True, training=training)
    assert all(torch.equal(again[k], whole[k]) for k in whole)
    other = torch.load(tmp_path / "whole-1.pt", weights_only=True)
    assert all(torch.equal(other[k], whole[k]) for k in whole)


@pytest.mark.multiproc
@pytest.mark.parametrize("strategy", ["ddp", pytest.param("sharded", marks=pytest.mark.slow)])
def test_ranks_that_offload_end_with_the_same_bits(start, strategy, tmp_path):
    if file_system(tmp_path) == "tmpfs":
        pytest.skip("the temporary folder is in memory")
    memory = {"activations": "offload", "smallest": 1, "folder": str(tmp_path / "away")}
    results = {}
    for name, settings in (("plain", None), ("moved", memory)):
        training = {"strategy": strategy, "memory": settings}
        code, results[name] = start(2, name=name, result=name, training=training)
        assert code == 0
    assert all(torch.equal(results["moved"][k], v) for k, v in results["plain"].items())
    assert list((tmp_path / "away").iterdir()) == []
