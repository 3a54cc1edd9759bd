"""Several real processes: the same gradient as one, and an error where plans differ."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from scitoolkit.core.errors import ConfigError
from scitoolkit.io.loader import PlannedBatchSampler, PlannedLoader, open_source

WORKER = """
import gc, json, sys
sys.path.insert(0, sys.argv[1])
import torch.distributed.nn  # before there is a group, which it would keep otherwise
from torch import distributed
from test_ranks import gradients
path, init, rank = sys.argv[2], sys.argv[3], int(sys.argv[4])
distributed.init_process_group("gloo", init_method=init, rank=rank, world_size=2)
found = [gradients(path, 1500, ddp=True)]
try:
    gradients(path, 1500 - 600 * rank, ddp=True)
except Exception as error:
    found.append(str(error))
if rank == 0:
    print(json.dumps(found))
distributed.destroy_process_group()
gc.collect()  # DDP is a cycle of references; a thread of gloo must not outlive the interpreter
"""


def gradients(path, buffer, ddp=False):
    """Return the gradient of every step of two epochs."""
    source = open_source(path, {"x": "x", "y": "y"})
    loader = PlannedLoader(source, 8, 2, buffer, threads=2)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(12, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    model = model.double()
    net = torch.nn.parallel.DistributedDataParallel(model) if ddp else model
    found = []
    for epoch in range(2):
        loader.set_epoch(epoch)
        for batch in loader:
            net.zero_grad()
            (net(batch["x"].flatten(1)) - batch["y"]).square().mean().backward()
            found.append(torch.cat([p.grad.ravel() for p in model.parameters()]).tolist())
    return found


@pytest.mark.multiproc
def test_two_ranks_have_the_gradients_of_one_and_notice_different_plans(tmp_path):
    path = tmp_path / "u.h5"
    with h5py.File(path, "w") as file:
        x = np.random.default_rng(0).normal(size=(48, 3, 4))
        file.create_dataset("x", data=x, chunks=(6, 3, 4), compression="gzip")
        file["y"] = x.sum((1, 2))[:, None]
    command = [sys.executable, "-c", WORKER, str(Path(__file__).parent), str(path)]
    children = [
        subprocess.Popen(
            [*command, f"file://{tmp_path}/init", str(rank)], stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    one = gradients(path, 2000)
    out = [child.communicate(timeout=300)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    two, differ = json.loads(out[0].splitlines()[-1])
    assert len(one) == 12
    assert np.allclose(one, two, rtol=1e-10, atol=1e-12)
    assert "ranks do not follow the same plan" in differ


@pytest.mark.parametrize("units", [None, np.arange(50) // 7])
def test_a_sampler_remaps_for_a_dataset_of_ones_own(units):
    samplers = [
        PlannedBatchSampler(50, 8, 3, capacity=12, units=units, rank=r, world_size=2)
        for r in range(2)
    ]
    data = TensorDataset(torch.arange(50))
    for epoch in range(3):
        loaders = []
        for sampler in samplers:
            sampler.set_epoch(epoch)
            loaders.append(DataLoader(data, batch_sampler=sampler))
        assert len(loaders[0]) == 6
        for step, parts in enumerate(zip(*loaders, strict=True)):
            got = torch.cat([part[0] for part in parts])
            expected = samplers[0].order.global_batch(epoch, step)
            assert sorted(got.tolist()) == sorted(expected.tolist())
            assert len(parts[0][0]) == len(parts[1][0]) == 4
    with pytest.raises(ConfigError):
        PlannedBatchSampler(50, 7, rank=0, world_size=2)
    odd = PlannedBatchSampler(5, 4, drop_last=False, rank=1, world_size=2)
    assert [len(batch) for batch in odd] == [2, 1]


def test_a_dataset_that_follows_the_steps_reads_no_more_than_the_bound():
    sampler = PlannedBatchSampler(64, 8, capacity=32)
    held: set[int] = set()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        reads = 0
        for step in sampler.steps():
            reads += len(set(step.samples.tolist()) - held)
            held = (held - set(step.drop.tolist())) | set(step.add.tolist())
            assert len(held) <= 32
        assert reads == (64 if epoch == 0 else 32)


def test_pinned_batches_hold_the_same_values(tmp_path, monkeypatch):
    """Without a GPU page-locked memory is plain memory; the way to it is the same."""
    real = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, pin_memory=False, **k: real(*a, **k))
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["u"] = np.arange(30.0).reshape(10, 3)
    source = open_source(tmp_path / "u.h5", {"x": "u"})
    loaders = [PlannedLoader(source, 4, pin_memory=pin) for pin in (True, False)]
    for pinned, plain in zip(*loaders, strict=True):
        assert torch.equal(pinned["x"], plain["x"])
