"""Offloaded activations: the same bits, bytes released, full disks told, the planner's choice."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import subprocess
import sys

import pytest
import torch
from squares import Squares
from torch import nn

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.training import Trainer, TrainingConfig
from scitoolkit.training.memory import offload_places
from scitoolkit.training.memory.comet import Comet
from scitoolkit.training.memory.config import MemoryConfig
from scitoolkit.training.memory.offload import Offload
from scitoolkit.training.memory.offload_places import FileOnDisk, HostMemory, file_system
from scitoolkit.training.memory.plan import MOVED, OFFLOAD, RECOMPUTE, RECOMPUTE_OFFLOADED, SAVE
from scitoolkit.training.memory.planned import PlannedMemory


@pytest.fixture(autouse=True)
def on_a_disk(monkeypatch):
    # The temporary folder of a test may be in memory, which is refused; the mechanism is the same.
    monkeypatch.setattr(offload_places, "file_system", lambda folder: "ext4")


class Attention(nn.Module):
    """Queries, keys and values are views of one product; dropout; an embedding's integers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 4)

    def forward(self, x):
        q, k, v = self.qkv(self.embed(x)).chunk(3, -1)
        weights = nn.functional.dropout((q @ k.transpose(1, 2)).softmax(-1), 0.2)
        return self.out((weights @ v)[:, ::2].relu())


class Convolutions(nn.Sequential):
    """Batch normalisation, ReLU in place, channels last."""

    def __init__(self):
        layers = []
        for inputs in (2, 8, 8):
            layers += [nn.Conv2d(inputs, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)]
        super().__init__(*layers, nn.MaxPool2d(2), nn.Conv2d(8, 4, 1))
        self.to(memory_format=torch.channels_last)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 12, batch_first=True), nn.Linear(12, 2)

    def forward(self, x):
        return self.head(self.lstm(x)[0]).to(torch.complex64).abs()


NETS = {
    "attention": (Attention, lambda: torch.randint(10, (4, 12))),
    "convolutions": (
        Convolutions,
        lambda: torch.randn(4, 2, 20, 24).to(memory_format=torch.channels_last),
    ),
    "recurrent": (Recurrent, lambda: torch.randn(3, 9, 4)),
}


def gradients(model, x, context):
    model.zero_grad()
    torch.manual_seed(3)
    with context:
        loss = model(x).square().mean()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def offload(model, folder, **options):
    options = {"smallest": 1, **options}
    return Offload(model, MemoryConfig(activations="offload", folder=folder, **options))


CASTS = [(name, torch.float32) for name in NETS]
CASTS += [(name, torch.bfloat16) for name in NETS if name != "recurrent"]  # no complex bfloat16


@pytest.mark.parametrize(("name", "dtype"), CASTS)
def test_gradients_are_the_same_bits_and_nothing_stays(name, dtype, tmp_path):
    torch.manual_seed(0)
    build, data = NETS[name]
    model, x = build(), data()
    if dtype == torch.bfloat16:
        cast = torch.autocast("cpu", dtype=dtype)
    else:
        cast = contextlib.nullcontext()
    with cast:
        exact = gradients(model, x, contextlib.nullcontext())
    store = offload(model, tmp_path)
    for _ in range(2):
        with cast:
            found = gradients(model, x, store.saving({"x": x}, 1.0))
        assert store.moved_bytes > 0
        assert all(torch.equal(found[n], g) for n, g in exact.items())
        assert store.place.num_bytes == store.place.file_bytes == 0
    assert list(tmp_path.iterdir()) == []


def test_views_of_one_product_are_moved_once_and_weights_stay(tmp_path):
    torch.manual_seed(0)
    model, x = Attention(), torch.randint(10, (4, 12))
    store, entries = offload(model, tmp_path), []
    pack = store._pack
    store._pack = lambda tensor: entries.append(pack(tensor)) or entries[-1]
    gradients(model, x, store.saving({"x": x}, 1.0))
    moved = [e.moved for e in entries if hasattr(e, "moved")]
    product = 4 * 12 * 48 * 4
    sizes = [m.stored.num_bytes for m in {id(m): m for m in moved}.values()]
    assert sizes.count(product) == 1
    assert sum(m.stored.num_bytes == product for m in moved) == 3
    kept = {e.tensor.untyped_storage()._cdata for e in entries if not hasattr(e, "moved")}
    assert kept <= {t.untyped_storage()._cdata for t in [*model.parameters(), x]}


def test_graphs_may_be_used_again_and_differentiated_twice(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 30), nn.Tanh(), nn.Linear(30, 30), nn.Tanh())
    x = torch.randn(50, 4, requires_grad=True)

    def both(context):
        with context:
            energy = model(x).square().sum()
            (force,) = torch.autograd.grad(energy, x, create_graph=True)
            loss = force.square().sum() + energy
        first = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        return [*first, *torch.autograd.grad(loss, list(model.parameters()))]

    exact = both(contextlib.nullcontext())
    store = offload(model, tmp_path)
    assert all(map(torch.equal, both(store.saving({"x": x}, 1.0)), exact))
    gc.collect()
    assert store.place.num_bytes == 0


def test_after_an_exception_everything_is_released(tmp_path):
    class Fails(nn.Module):
        def forward(self, x):
            raise FloatingPointError("here")

    model = nn.Sequential(nn.Linear(4, 30), nn.Tanh(), nn.Linear(30, 4), Fails())
    store, x = offload(model, tmp_path), torch.randn(50, 4)
    for _ in range(3):
        with pytest.raises(FloatingPointError):
            gradients(model, x, store.saving({"x": x}, 1.0))
    gc.collect()
    assert store.moved_bytes > 0
    assert store.place.num_bytes == store.place.file_bytes == 0
    model[3] = nn.Tanh()
    exact = gradients(model, x, contextlib.nullcontext())
    found = gradients(model, x, store.saving({"x": x}, 1.0))
    assert all(torch.equal(found[n], g) for n, g in exact.items())


def test_a_killed_process_leaves_no_file(tmp_path):
    code = f"""
import os, pathlib, signal, torch
from scitoolkit.training.memory import offload_places
offload_places.file_system = lambda folder: "ext4"
place = offload_places.FileOnDisk(pathlib.Path({str(tmp_path)!r}))
kept = place.write(torch.ones(1 << 20, dtype=torch.uint8))
print(place.file_bytes, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.strip() == str(1 << 20)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_and_what_was_written_is_released(tmp_path, monkeypatch):
    model = nn.Sequential(nn.Linear(4, 30), nn.Tanh(), nn.Linear(30, 4), nn.Tanh())
    store, x, write, calls = offload(model, tmp_path), torch.randn(50, 4), os.pwrite, []

    def full(descriptor, view, start):
        calls.append(start)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, view[:1000], start)  # in pieces, as larger writes come

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DataError, match=r"cannot be offloaded \(No space left.*folder=ANOTHER"):
        gradients(model, x, store.saving({"x": x}, 1.0))
    gc.collect()
    assert store.place.num_bytes == 0


def test_a_file_that_was_cut_is_an_error_not_zeros(tmp_path):
    place = FileOnDisk(tmp_path)
    stored = place.write(torch.arange(100, dtype=torch.uint8))
    os.ftruncate(place._file.fileno(), 50)
    with pytest.raises(DataError, match="was truncated"):
        stored.value()


def test_extents_are_used_again_in_any_order_of_release(tmp_path):
    place = FileOnDisk(tmp_path)
    generator = torch.Generator().manual_seed(0)
    held = {}
    for i in range(300):
        if held and torch.rand((), generator=generator) < 0.5:
            key = list(held)[int(torch.randint(len(held), (), generator=generator))]
            data, stored = held.pop(key)
            assert torch.equal(stored.value(), data)
            del stored
        else:
            size = int(torch.randint(1, 500, (), generator=generator))
            data = torch.randint(256, (size,), generator=generator, dtype=torch.uint8)
            held[i] = data, place.write(data)
        assert place.num_bytes == sum(len(d) for d, _ in held.values())
    assert all(torch.equal(kept.value(), data) for data, kept in held.values())
    held.clear()
    assert place.file_bytes == 0


def test_host_memory_gives_back_what_it_was_given():
    place = HostMemory(torch.device("cpu"))
    data = torch.arange(50, dtype=torch.uint8)
    stored = place.write(data)
    data.zero_()
    assert stored.value().tolist() == list(range(50))
    assert place.num_bytes == 50
    del stored
    assert place.num_bytes == 0


@pytest.mark.gpu
def test_host_memory_of_a_gpu_gives_the_same_bits_in_less_memory():
    torch.manual_seed(0)
    layers = [nn.Linear(512, 512) if i % 2 else nn.Tanh() for i in range(16)]
    model, x = nn.Sequential(*layers).cuda(), torch.randn(8192, 512, device="cuda")
    store = Offload(model, MemoryConfig(activations="offload"))
    peaks, found = [], []
    for context in (contextlib.nullcontext(), store.saving({"x": x}, 1.0)):
        torch.cuda.reset_peak_memory_stats()
        found.append(gradients(model, x, context))
        peaks.append(torch.cuda.max_memory_allocated())
    assert all(torch.equal(found[1][n], g) for n, g in found[0].items())
    assert peaks[1] < 0.7 * peaks[0]
    assert store.place.num_bytes == 0


def trained(memory, **options):
    torch.manual_seed(0)
    task = Squares(Convolutions())
    config = TrainingConfig.model_validate(
        {"steps": 3, "batch_size": 4, "progress": False, "memory": memory, **options}
    )
    x = torch.randn(16, 2, 20, 24, generator=torch.Generator().manual_seed(1))
    Trainer(task, config).fit(TensorLoader({"x": x}, 4))
    return task.model.state_dict()


@pytest.mark.parametrize("options", [{}, {"accumulate": 2}, {"precision": "bf16"}])
def test_a_training_ends_with_the_same_weights(options, tmp_path):
    memory = {"activations": "offload", "folder": str(tmp_path), "smallest": 1}
    found, exact = trained(memory, **options), trained(None, **options)
    assert all(torch.equal(found[name], exact[name]) for name in exact)


def wide(depth=6):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(depth)))


def test_the_planner_offloads_where_it_pays(tmp_path, monkeypatch):
    # Noise cannot be packed, and the input of a block is as large as what it saves.
    model, x = wide(), torch.randn(4000, 32)
    config = MemoryConfig(activations="planned", folder=tmp_path, gradient_error=1e-9)
    store = PlannedMemory(model, config)
    # The time of a loaded machine must not decide a test.
    ticks = iter(range(10**6))
    monkeypatch.setattr(store, "_clock", lambda: float(next(ticks)))

    def step():
        return gradients(model, x, store.saving({"x": x}, 1.0))

    exact = step()
    store.prepare(step)
    chosen = store.chosen
    assert not MOVED.isdisjoint(chosen.plan.choices.values())
    assert chosen.error == 0
    alone = [t.peak for t in store.trials if set(t.plan.choices.values()) <= {SAVE, RECOMPUTE}]
    assert chosen.peak < 0.8 * min(alone)
    assert all(torch.equal(step()[name], g) for name, g in exact.items())
    assert store._offload.place.num_bytes == 0
    # A resumed run takes the plan as it is, and needs the folder.
    again = PlannedMemory(model, config)
    again.load_state_dict(store.state_dict())
    assert again._plan.choices == chosen.plan.choices
    with pytest.raises(ConfigError, match=r"folder=FOLDER"):
        PlannedMemory(model, MemoryConfig(activations="planned")).load_state_dict(
            store.state_dict()
        )


@pytest.mark.parametrize("choice", [OFFLOAD, RECOMPUTE_OFFLOADED])
def test_parts_are_offloaded_exactly(choice, tmp_path):
    model, x = Convolutions(), torch.randn(4, 2, 20, 24)
    exact = gradients(model, x, contextlib.nullcontext())
    config = MemoryConfig(activations="planned", folder=tmp_path, smallest=1)
    store = PlannedMemory(model, config)
    choices = {"": SAVE, "0": SAVE, "3": choice, "4": choice, "6": RECOMPUTE}
    store.load_state_dict({"choices": choices, "fallback": {}, "packing": None})
    found = gradients(model, x, store.saving({"x": x}, 1.0))
    assert store._offload.moved_bytes > 0
    assert all(torch.equal(found[n], g) for n, g in exact.items())


def test_a_slow_disk_counts_as_time(tmp_path):
    place = FileOnDisk(tmp_path)
    place._moved(lambda *given: len(given[1]), memoryview(b"12"), 0)
    before = place.blocked

    def slow(descriptor, view, start):
        import time

        time.sleep(0.05)
        return len(view)

    place._moved(slow, memoryview(b"12"), 0)
    assert place.blocked - before > 0.04


def test_a_folder_that_is_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(offload_places, "file_system", lambda folder: "tmpfs")
    with pytest.raises(ConfigError, match=r"are in memory \(tmpfs\)"):
        FileOnDisk(tmp_path)


def test_the_file_system_of_a_path_is_known():
    assert file_system(offload_places.Path("/proc/self")) == "proc"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"activations": "offload"}, r"needs a disk.*folder=FOLDER"),
        ({"activations": "offload", "folder": "FILE"}, "cannot be written"),
        ({"activations": "offload", "gradient_error": 0.1}, "does not read gradient_error"),
        ({"activations": "comet", "folder": "FILE"}, "does not read folder"),
    ],
)
def test_what_cannot_be_is_refused_before_the_training(options, said, tmp_path):
    file = tmp_path / "file"
    file.touch()
    if "folder" in options:
        options = {**options, "folder": file}
    config = MemoryConfig(**options)
    with pytest.raises(ConfigError, match=said):
        (Comet if config.activations == "comet" else Offload)(nn.Linear(2, 2), config)
