"""COMET: exact zeros, bounded blocks, one copy, untouched inputs, measured bounds, exact resume."""

from __future__ import annotations

import contextlib

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.compression.codecs.sz3 import Sz3
from scitoolkit.core.config import Config
from scitoolkit.core.content import content_root
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.training import Trainer, TrainingConfig
from scitoolkit.training.memory import activation_codec as codec
from scitoolkit.training.memory import comet as comet_module
from scitoolkit.training.memory.block_codec import PackedBlocks
from scitoolkit.training.memory.comet import Comet, ForwardRecord
from scitoolkit.training.memory.config import MemoryConfig
from scitoolkit.training.memory.exact_tensors import narrow, widen
from scitoolkit.training.memory.saved import Unchanged

FLOW = "rayleigh_benard/rb2d_ra1e6_pr1_s42_t20-24.75.h5"


@pytest.fixture(params=["c", "blocks"])
def coded(request, monkeypatch):
    """The codec of the CPU and that of other devices, in torch."""
    if request.param == "blocks":
        monkeypatch.setattr(comet_module, "has_c_codec", lambda tensor: False)
    return {"c": codec.Packed, "blocks": PackedBlocks}[request.param]


def waves(*shape: int, seed: int = 0) -> torch.Tensor:
    """Return smooth fields (N, C, H, W)."""
    generator = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(*(torch.linspace(0, 6, n) for n in shape[-2:]), indexing="ij")
    phase = 6 * torch.rand(*shape[:2], 1, 1, generator=generator)
    return (x + phase).sin() * (2 * y + phase).cos() + 0.3 * (phase - 3)


def comet(model: nn.Module, **options) -> Comet:
    return Comet(model, MemoryConfig(activations="comet", smallest=1, **options))


def gradients(model, x, context) -> list[torch.Tensor]:
    model.zero_grad()
    with context:
        loss = model(x).square().mean()
    loss.backward()
    return [p.grad.clone() for p in model.parameters()]


def error(kept, exact) -> float:
    off = sum(float((a - b).square().sum()) for a, b in zip(kept, exact, strict=True))
    return (off / sum(float(b.square().sum()) for b in exact)) ** 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(2, 3, 24, 40), (3, 2, 13, 17), (5, 7), (100,), (2, 3, 4, 4)])
def test_codec_keeps_zeros_signs_and_the_bound_of_every_block(shape, dtype):
    torch.manual_seed(1)
    x = torch.randn(shape, dtype=dtype).relu()
    for step in (0.01, 0.3, 3.0):
        packed = codec.pack(x, step)
        if packed is None:  # noise at a fine step: nothing to gain
            assert step == 0.01
            continue
        y = codec.unpack(packed)
        assert y.dtype == dtype
        assert torch.equal(y == 0, x == 0)
        assert bool((y >= 0).all())
        # A block is an orthonormal transform of at most 64 values, each within 0.6 steps.
        assert float((x - y).square().sum().sqrt()) <= 0.6 * step * (2 * x.numel() + 64) ** 0.5
    blocks = torch.randn(50, 8, 8, dtype=dtype)
    off = (codec.unpack(codec.pack(blocks, 0.5)) - blocks).flatten(1).square().mean(1).sqrt()
    assert float(off.max()) <= 0.6 * 0.5


def test_codec_is_small_on_smooth_fields_and_independent_of_threads():
    x = waves(4, 8, 128, 120)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = codec.pack(x, 0.1)
        torch.set_num_threads(3)
        three = codec.pack(x, 0.1)
    finally:
        torch.set_num_threads(before)
    assert len(three.sizes) == 3
    assert torch.equal(codec.unpack(one), codec.unpack(three))
    assert x.nbytes > 40 * one.num_bytes


def test_smaller_than_sz3_at_the_same_error_on_activations_of_a_flow():
    with h5py.File(content_root("datasets") / FLOW) as file:
        x = torch.stack([torch.from_numpy(file[name][:1]) for name in "bpuw"], 1)
    torch.manual_seed(0)
    h = nn.functional.conv2d(x, torch.randn(8, 4, 3, 3), padding=1).relu()
    packed = codec.pack(h, 0.3 * codec.measure(h).rms)
    off = float((codec.unpack(packed) - h).square().mean())
    values, slow = h[0].numpy(), Sz3()
    for bound in np.geomspace(3e-3, 1, 12) * values.std():
        data = slow.encode(values, float(bound))
        y = slow.decode(data, values.shape, values.dtype, float(bound))
        if float(np.square(y - values).mean()) > off:
            break
        # SZ3 errs less or as much, needs more bytes, and lets most zeros go.
        assert len(data) > 1.3 * packed.num_bytes
        assert (y[values == 0] == 0).mean() < 0.5
    assert bound > 0.01 * values.std()


def test_values_that_no_step_fits_are_kept_as_they_are():
    x = torch.zeros(1, 1, 64, 64)
    assert codec.pack(x, 0.1).num_bytes < 300
    x[0, 0, 3, 4] = 1e6  # one outlier raises the step, so that no quotient overflows
    assert abs(float(codec.unpack(codec.pack(x, 1e-6))[0, 0, 3, 4]) - 1e6) < 100
    store = comet(nn.Linear(2, 2))
    x[0, 0, 0, 0] = float("nan")
    assert isinstance(store._encode(x, 0, ForwardRecord(1.0, set())).content, Unchanged)


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor([True, False, True] * 7),
        torch.arange(300, dtype=torch.int64).reshape(3, 100) + 2**40,
        torch.tensor([-(2**62), 2**62]),
        torch.zeros(0, dtype=torch.int32),
    ],
)
def test_integers_and_booleans_are_exact(values):
    kept = narrow(values)
    assert kept.num_bytes <= values.nbytes
    assert torch.equal(widen(kept), values)


def net() -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs in (2, 8, 8, 8):  # equal shapes in a row: freed memory is used again at once
        layers += [nn.Conv2d(inputs, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(
        *layers, nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.GELU(), nn.Dropout(0.1), nn.Conv2d(8, 1, 1)
    )


def test_gradients_follow_the_step_and_no_tensor_is_taken_for_another(coded):
    model, x = net(), waves(4, 2, 64, 64)
    torch.manual_seed(5)
    exact = gradients(model, x, contextlib.nullcontext())
    store, errors = comet(model), []
    for step in (1e-4, 0.03, 0.3):
        store.steps = [step] * 64
        torch.manual_seed(5)
        errors.append(error(gradients(model, x, store.saving({"x": x}, 1.0)), exact))
    assert errors[0] < 3e-4
    assert errors[0] < errors[1] < errors[2] < 0.5
    assert errors[1] < 0.05


def test_a_tensor_saved_twice_is_kept_once_and_known_ones_not_at_all(coded):
    model = nn.Sequential(nn.Conv2d(2, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    x = waves(2, 2, 32, 32)
    store, entries = comet(model), []
    pack = store._pack
    store._pack = lambda t: entries.append(pack(t)) or entries[-1]
    gradients(model, x, store.saving({"x": x}, 1.0))
    packed = [e for e in entries if isinstance(e.content, coded)]
    known = {p.data_ptr() for p in model.parameters()} | {x.data_ptr()}
    middle = [e for e in packed if e.content.shape == (2, 8, 30, 30)]
    assert len(middle) == 2
    assert middle[0] is middle[1]
    assert {
        e.content.tensor.data_ptr() for e in entries if isinstance(e.content, Unchanged)
    } <= known
    assert store._users[0] == {"2"}  # the layer whose gradient this tensor decides


def test_steps_adapt_to_the_measured_error(coded):
    model = net().double().eval()  # the rounds are then the same on every processor
    store, x = comet(model, gradient_error=5e-4), waves(4, 2, 64, 64).double()
    exact = gradients(model, x, contextlib.nullcontext())
    names = [n for n, _ in model.named_parameters()]
    for _ in range(8):
        kept = gradients(model, x, store.saving({"x": x}, 1.0))
        store.adapt(
            {
                n: (float((a - b).square().sum()), float(b.square().sum()))
                for n, a, b in zip(names, kept, exact, strict=True)
            }
        )
    assert 1e-4 < error(gradients(model, x, store.saving({"x": x}, 1.0)), exact) < 5e-4
    assert len(set(store.steps)) > 3


class Task:
    def __init__(self) -> None:
        self.model: nn.Module = net()

    def loss(self, batch):
        return (self.model(batch["x"]).mean((1, 2, 3)) - batch["y"]).square().mean(), {}

    def metrics(self, batch):
        return {"loss": self.loss(batch)[0]}

    def batch_size(self, batch):
        return len(batch["x"])


def fit(run: RunDirectory | None, steps: int, *, resume: bool = False, **options) -> Trainer:
    memory = {"activations": "comet", "smallest": 1, "measure_every": 2}
    config = TrainingConfig.model_validate(
        {"steps": steps, "batch_size": 4, "progress": False, "memory": memory, **options}
    )
    x = waves(8, 2, 24, 24)
    trainer = Trainer(Task(), config, run=run)
    loader = TensorLoader({"x": x, "y": x.mean((1, 2, 3))}, 4)
    trainer.fit(loader, resume=resume)
    return trainer


def test_training_resumes_bit_for_bit_with_its_adapted_steps(tmp_path, coded):
    whole = fit(None, 7)
    run = RunDirectory.create(tmp_path, "run", Config())
    fit(run, 4)
    resumed = fit(run, 7, resume=True)
    assert resumed.activation_store.state_dict() == whole.activation_store.state_dict()
    assert len(set(whole.activation_store.state_dict()["steps"])) > 3
    for a, b in zip(whole.task.model.parameters(), resumed.task.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_rehearsal_leaves_random_numbers_and_buffers_alone():
    # Everything is kept exactly here, so the rehearsals must leave no trace at all.
    memory = {"activations": "comet", "smallest": 10**9}
    often = fit(None, 4, memory={**memory, "measure_every": 1})
    plain = fit(None, 4, memory=None)
    for (name, a), (_, b) in zip(
        often.task.model.state_dict().items(), plain.task.model.state_dict().items(), strict=True
    ):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("change", [{"memory": {"activations": "comte"}}, {"compile": True}])
def test_configuration_names_what_is_wrong(change):
    with pytest.raises(ValueError, match=r"comet|compile"):
        TrainingConfig.model_validate({"memory": {"activations": "comet"}, **change})
