import json
import shutil
import signal
from typing import Literal

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from training_worker import Regression, Stop, data

from scitoolkit.core.config import Config
from scitoolkit.core.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    Interrupted,
    NumericalError,
    ScitoolkitError,
)
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.training import Callback, Trainer, TrainingConfig
from scitoolkit.training.batches import DataLoaderBatches
from scitoolkit.training.deferred import check_deferred
from scitoolkit.training.optim.optimizers import OptimizerConfig, optimizers
from scitoolkit.training.strategies.config import (
    ShardingConfig,
    StrategyConfig,
    training_strategies,
)


def make(run=None, *, dropout=0.0, callbacks=(), shuffle=True, **settings):
    settings = {"epochs": 2, "batch_size": 12, "progress": False, "log_every": 1} | settings
    config = TrainingConfig.model_validate(settings)
    trainer = Trainer(Regression(dropout), config, run=run, callbacks=callbacks)
    return trainer, TensorLoader(data(), config.batch_size, shuffle=shuffle)


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.task.model.parameters()])


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path, "test", Config())


def test_accumulation_equals_the_big_batch():
    big, loader = make(batch_size=12)
    big.fit(loader)
    small, loader = make(batch_size=4, accumulate=3, shuffle=False)
    big2, big_loader = make(batch_size=12, shuffle=False)
    small.fit(loader)
    big2.fit(big_loader)
    assert small.step == big2.step == big.step
    assert torch.allclose(weights(small), weights(big2), atol=1e-6)


def test_same_seed_gives_the_same_bits():
    first, loader = make(dropout=0.3)
    first.fit(loader)
    second, loader = make(dropout=0.3)
    second.fit(loader)
    assert torch.equal(weights(first), weights(second))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_learns(precision):
    trainer, loader = make(precision=precision, epochs=30, optimizer={"name": "adam", "lr": 0.02})
    trainer.fit(loader, loader)
    assert trainer.best["loss"] < 1.0
    assert all(p.dtype == torch.float32 for p in trainer.task.model.parameters())


def test_ema_is_the_average_and_load_best_takes_it():
    class Track(Callback):
        wants_every_step = True

        def __init__(self):
            self.average = None

        def on_step(self, trainer):
            now = weights(trainer)
            self.average = self.start.lerp(now, 0.25) if self.average is None else self.next(now)

        def next(self, now):
            return self.average.lerp(now, 0.25)

        def on_fit_start(self, trainer):
            self.start = weights(trainer).clone()

    track = Track()
    trainer, loader = make(epochs=1, ema_decay=0.75, callbacks=[track])
    trainer.fit(loader, loader)
    trainer.load_best()
    assert torch.allclose(weights(trainer), track.average, atol=1e-7)


def test_early_stopping_waits_for_exactly_its_patience(run, caplog):
    """Steps of 1e-12 are lost in float32: the first validation stays the best one."""
    trainer, loader = make(
        run, epochs=50, optimizer={"name": "sgd", "lr": 1e-12}, early_stopping={"patience": 2}
    )
    with caplog.at_level("INFO"):
        trainer.fit(loader, TensorLoader(data(), 12))
    assert trainer.step == 3 * len(loader)
    assert trainer.best["step"] == len(loader)
    assert f"loss {trainer.best['loss']:.4g} at step {len(loader)}" in caplog.text


def test_early_stopping_counts_only_gains_above_min_delta():
    stopping = {"patience": 3, "min_delta": 1e6}
    trainer, loader = make(epochs=50, early_stopping=stopping)
    trainer.fit(loader, TensorLoader(data(), 12))
    assert trainer.step == 4 * len(loader)


def test_resume_inside_a_cosine_schedule(run):
    """The rate depends on the step and on the whole length, so a stop must not bend the curve."""
    schedule = {"name": "cosine", "warmup_steps": 3}
    whole, loader = make(schedule=schedule, epochs=4)
    whole.fit(loader)
    part, loader = make(run, schedule=schedule, epochs=4, callbacks=[Stop(6, "SIGTERM")])
    with pytest.raises(Interrupted):
        part.fit(loader)
    rest, loader = make(run, schedule=schedule, epochs=4)
    rest.fit(loader, resume=True)
    assert torch.equal(weights(whole), weights(rest))
    rows = [r for r in run.read_metrics() if r["name"] == "train/learning_rate"]
    assert [r["step"] for r in rows] == list(range(1, 4 * len(loader) + 1))
    lr, total = rest.config.optimizer.lr, 4 * len(loader)
    shape = rest.config.schedule
    expected = [lr * shape.factor(step, total) for step in range(total)]
    assert [r["value"] for r in rows] == pytest.approx(expected)


def test_the_first_error_is_the_one_that_is_seen(caplog):
    class Broken(Stop):
        def on_fit_end(self, trainer):
            raise RuntimeError("while closing")

    trainer, loader = make(callbacks=[Broken(2, "data")])
    with pytest.raises(DataError, match="broken on purpose"):
        trainer.fit(loader)
    assert "Broken failed at the end" in caplog.text


def test_best_checkpoint_is_kept_and_loaded(run):
    seen = {}

    class Keep(Stop):
        def on_step(self, trainer): ...

        def on_validation(self, trainer, values):
            seen[trainer.step] = (values["loss"], weights(trainer).clone())

    trainer, loader = make(
        run, epochs=6, optimizer={"name": "sgd", "lr": 0.05}, callbacks=[Keep(0, "")]
    )
    trainer.fit(loader, loader)
    trainer.load_best()
    assert torch.equal(weights(trainer), min(seen.values(), key=lambda v: v[0])[1])
    assert len(list(run.checkpoints.glob("step-*"))) <= 3


def test_nan_names_step_tensor_and_parameter_and_keeps_the_checkpoint(run):
    trainer, _ = make(run, checkpoint={"every_steps": 1})
    tensors = data()
    tensors["x"][30] = float("nan")
    loader = TensorLoader(tensors, 12, shuffle=False)
    with pytest.raises(NumericalError, match=r"step 3: .*batch keys: x, y .*tensor x.*blocks\.0"):
        trainer.fit(loader)
    assert [p.name for p in run.checkpoints.glob("step-*")][-1:] != ["step-00000003"]
    assert torch.isfinite(weights(trainer)).all()


def test_a_loss_of_nan_with_finite_gradients_is_caught():
    trainer, loader = make()
    inner = trainer.task.loss
    trainer.task.loss = lambda batch: (inner(batch)[0] + float("nan"), {})
    with pytest.raises(NumericalError, match="step 1"):
        trainer.fit(loader)


def test_another_config_is_refused_on_resume(run):
    trainer, loader = make(run, steps=2)
    trainer.fit(loader)
    other, loader = make(run, steps=4, seed=1, clip_norm=2.0)
    with pytest.raises(ConfigError, match=r"training\.seed: 0 -> 1; training\.clip_norm") as error:
        other.fit(loader, resume=True)
    assert error.value.exit_code == 2
    other, loader = make(run, steps=4)
    other.task.model = nn.Linear(3, 1)
    with pytest.raises(ConfigError, match=r"model\.weight"):
        other.fit(loader, resume=True)


def test_a_signal_saves_and_handlers_are_restored(run):
    before = signal.getsignal(signal.SIGTERM)
    trainer, loader = make(run, callbacks=[Stop(2, "SIGTERM")])
    with pytest.raises(Interrupted, match="SIGTERM after step 2") as error:
        trainer.fit(loader)
    assert error.value.exit_code == 130
    assert (run.checkpoints / "step-00000002").is_dir()
    assert signal.getsignal(signal.SIGTERM) == before


def test_out_of_memory_says_what_helps():
    trainer, loader = make()

    def loss(batch):
        raise torch.OutOfMemoryError("tried to allocate 1 TiB")

    trainer.task.loss = loss
    with pytest.raises(ScitoolkitError, match=r"out of memory.*batch_size=6.*accumulate=2"):
        trainer.fit(loader)


def test_profile_writes_a_trace(run):
    trainer, loader = make(run, profile=True)
    trainer.fit(loader)
    assert json.loads((run.path / "profile-rank0.json").read_text())["traceEvents"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own compiler
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_trains_alike_and_its_checkpoint_is_a_plain_one(run):
    plain, loader = make()
    plain.fit(loader)
    compiled, loader = make(run, compile=True, steps=5)
    compiled.fit(loader)
    resumed, loader = make(run)
    resumed.fit(loader, resume=True)
    assert torch.allclose(weights(plain), weights(resumed), atol=1e-5)


def test_adam_in_one_pass_makes_the_same_steps():
    from scitoolkit.training.optim import Adam

    found = []
    for kind in ("fused", "plain"):
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 300_000, dtype=torch.float64))
        optimizer = Adam(lr=1e-2).build([weight])
        assert optimizer.defaults["fused"]
        if kind == "plain":
            optimizer = torch.optim.Adam([weight], lr=1e-2, fused=False)
        for _ in range(5):
            optimizer.zero_grad()
            (weight**4).sum().backward()
            optimizer.step()
        found.append(weight.detach())
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-14)
    assert not Adam().build([torch.nn.Parameter(torch.zeros(3))]).defaults["fused"]


def rows(count=24):
    tensors = data(count)
    return [{"x": x, "y": y} for x, y in zip(tensors["x"], tensors["y"], strict=True)]


def test_a_torch_data_loader_trains_and_resumes_inside_an_epoch(run):
    def loader():
        return DataLoader(rows(), batch_size=6, shuffle=True)

    whole, _ = make(dropout=0.2)
    whole.fit(loader(), loader())
    part, _ = make(run, dropout=0.2, callbacks=[Stop(6, "SIGTERM")])
    with pytest.raises(Interrupted):
        part.fit(loader(), loader())
    rest, _ = make(run, dropout=0.2)
    rest.fit(loader(), loader(), resume=True)
    assert whole.step == rest.step == 8
    assert torch.equal(weights(whole), weights(rest))


def test_tuples_are_named_by_position():
    class Positions(Regression):
        def loss(self, batch):
            return super().loss({"x": batch["0"], "y": batch["1"]})

        def batch_size(self, batch):
            return len(batch["0"])

    def loader(dataset):
        return DataLoader(dataset, batch_size=6)

    named, _ = make()
    named.fit(loader(rows()))
    trainer = Trainer(Positions(0.0), named.config)
    trainer.fit(loader(torch.utils.data.TensorDataset(*data(24).values())))
    assert torch.equal(weights(named), weights(trainer))


def test_loaders_that_cannot_be_used_are_refused_by_name():
    trainer, _ = make()
    with pytest.raises(
        DataError, match="yields a str as 'name'; a batch must be a dict or a tuple"
    ):
        trainer.fit(DataLoader([{"name": "a"}], collate_fn=lambda rows: rows[0]))
    sampler = torch.utils.data.DistributedSampler(rows(), num_replicas=2, rank=0)
    with pytest.raises(ConfigError, match="DistributedSampler"):
        trainer.fit(DataLoader(rows(), sampler=sampler))
    with pytest.raises(ConfigError, match="list is not a loader: it has no set_epoch"):
        trainer.fit([{"x": torch.ones(2, 3)}])


def test_tensors_without_samples_are_not_shared_among_processes():
    def loader(count):
        samples = [{"x": torch.ones(2)} for _ in range(count)]
        return DataLoader(
            samples,
            batch_size=4,
            collate_fn=lambda kept: {"x": torch.stack([s["x"] for s in kept]), "c": torch.ones(3)},
        )

    assert len(next(iter(DataLoaderBatches(loader(8), 0)))["c"]) == 3
    for count in (8, 2):  # more samples than constants, and fewer
        with pytest.raises(DataError, match="which are the samples to share among 2 processes"):
            next(iter(DataLoaderBatches(loader(count), 0, rank=1, world=2)))


def test_an_empty_validation_set_is_named():
    trainer, loader = make()
    empty = TensorLoader({k: v[:0] for k, v in data().items()}, 12)
    with pytest.raises(DataError, match="the validation set is empty"):
        trainer.fit(loader, empty)


def test_a_task_learns_where_the_training_is(run):
    class Watching(Regression):
        def __init__(self):
            super().__init__()
            self.seen = []

        def at(self, progress):
            self.seen.append((progress.step, progress.epoch, progress.total_steps))

    def fit(run, resume=False, callbacks=()):
        config = TrainingConfig(epochs=2, batch_size=12, progress=False)
        trainer = Trainer(Watching(), config, run=run, callbacks=callbacks)
        loader = TensorLoader(data(), 12)
        trainer.fit(loader, loader, resume=resume)
        return trainer.task.seen

    whole = fit(None)
    validations = [(4, 0, 8), (8, 1, 8)]
    steps = [(step, step // 4, 8) for step in range(8)]
    assert whole == sorted(steps + validations)
    with pytest.raises(Interrupted):
        fit(run, callbacks=[Stop(5, "SIGTERM")])
    assert fit(run, resume=True) == whole[-4:]


class Odd(torch.optim.SGD):
    """Keeps a number where no checkpoint looks."""

    def state_dict(self):
        return {**super().state_dict(), "hidden": 1}


class OddConfig(OptimizerConfig):
    name: Literal["odd"] = "odd"

    def build(self, parameters):
        return Odd(parameters, lr=self.lr)


def test_an_optimizer_whose_state_cannot_be_saved_is_refused(run):
    optimizers.register("odd")(OddConfig)
    try:
        trainer, loader = make(run, optimizer={"name": "odd"})
        with pytest.raises(CheckpointError, match="Odd keeps hidden besides"):
            trainer.fit(loader)
        assert trainer.step == 0
    finally:
        optimizers.unregister("odd")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"exchange": {"name": "sdp4bit"}}, "sharding.stage 1 or 2"),
        ({"strategy": "sharded", "exchange": {"name": "bf16"}}, "stage 1 or 2"),
        (
            {"strategy": "sharded", "sharding": {"stage": 1}, "exchange": {"name": "bf16"}},
            "does not support sharded sums",
        ),
        ({"strategy": "single", "exchange": {"name": "bf16"}}, "does not read exchange"),
        ({"sharding": {"stage": 1}}, "only read by strategy sharded"),
        ({"strategy": "sharded", "optimizer": {"name": "muon"}}, "needs whole parameters"),
    ],
)
def test_combinations_that_cannot_work_are_refused_before_the_start(settings, told):
    with pytest.raises(ConfigError, match=told):
        TrainingConfig(**settings)


def test_a_model_without_memory_whose_weights_are_unknown_is_refused():
    with torch.device("meta"):
        line = nn.Linear(1, 1)
        tied = nn.ModuleDict({"first": line, "second": nn.Linear(1, 1)})
        tied["second"].weight = line.weight
    with pytest.raises(ConfigError, match=r"first.weight and second.weight are tied"):
        check_deferred(tied)
    unknown = nn.Module()
    unknown.scale = nn.Parameter(torch.zeros(3, device="meta"))
    with pytest.raises(ConfigError, match="Module has scale but no reset_parameters"):
        check_deferred(unknown)


def test_unknown_strategies_and_former_keys(caplog):
    with pytest.raises(ConfigError, match=r"'shard' is not one of .*did you mean sharded"):
        TrainingConfig(strategy="shard")
    with pytest.raises(ConfigError, match="'graph' is not one of auto, ddp, mesh, sharded, single"):
        TrainingConfig(strategy="graph")
    assert [each.name for each in TrainingConfig(tensorboard=True).loggers] == ["tensorboard"]
    assert "is now written loggers" in caplog.text


class OwnShards(StrategyConfig):
    """A strategy of a plug-in that reads the section `sharding`."""

    name: Literal["own_shards"] = "own_shards"
    sharding: ShardingConfig = ShardingConfig()

    def build(self, device):
        raise NotImplementedError


def test_a_strategy_of_a_plugin_gets_the_settings_that_it_names():
    training_strategies.register("own_shards")(OwnShards)
    try:
        config = TrainingConfig(strategy="own_shards", sharding={"stage": 2})
        assert config.named_strategy() == OwnShards(sharding=ShardingConfig(stage=2))
    finally:
        training_strategies.unregister("own_shards")


def test_one_loader_for_training_and_validation_resumes_inside_an_epoch(run):
    whole, loader = make(dropout=0.2, steps=8)
    whole.fit(loader)
    part, loader = make(run, dropout=0.2, steps=6)
    part.fit(loader, loader)
    rest, loader = make(run, dropout=0.2, steps=8)
    rest.fit(loader, loader, resume=True)
    assert torch.equal(weights(whole), weights(rest))


def test_complex_parameters_are_refused_by_name():
    trainer, loader = make()
    trainer.task.model.phase = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(ConfigError, match=r"phase is torch.complex64.*view_as_real"):
        trainer.fit(loader)


class Numbered(torch.optim.SGD):
    """Keeps state under a number, which JSON would restore as text."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, lr)
        self.state[self.param_groups[0]["params"][0]] = {"blocks": {0: 1.0}}


class NumberedConfig(OptimizerConfig):
    name: Literal["numbered"] = "numbered"

    def build(self, parameters):
        return Numbered(parameters, lr=self.lr)


def test_an_optimizer_whose_keys_json_would_change_is_refused():
    optimizers.register("numbered")(NumberedConfig)
    try:
        trainer, loader = make(optimizer={"name": "numbered"})
        with pytest.raises(CheckpointError, match="Numbered keeps the key 0"):
            trainer.fit(loader)
    finally:
        optimizers.unregister("numbered")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"early_stopping": {"patience": 1}}, "early_stopping"),
        ({"schedule": {"name": "plateau"}}, "schedule"),
    ],
)
def test_settings_that_need_a_validation_set_warn_without_one(settings, key, caplog):
    trainer, loader = make(**settings)
    trainer.fit(loader)
    assert f"training.{key} has no effect without a validation set" in caplog.text


WITHOUT_CUDNN = pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")


class Fetch(Callback):
    """Counts, for each step, how often the host read a number."""

    wants_every_step = True

    def __init__(self, counted) -> None:
        self.counted, self.steps = counted, []

    def on_step(self, trainer) -> None:
        self.steps.append(len(self.counted))
        self.counted.clear()


@WITHOUT_CUDNN
@pytest.mark.device
@pytest.mark.parametrize("settings", [{}, {"clip_norm": 1.0}, {"batch_size": 4, "accumulate": 3}])
def test_a_step_on_a_device_waits_for_it_once(settings, monkeypatch):
    counted = []

    def counting(usual):
        def read(tensor):
            if tensor.device.type != "cpu":
                counted.append(usual)
            return usual(tensor)

        return read

    kind: type = type(torch.zeros(1).to("cuda"))
    for name in ("item", "tolist", "__float__", "__bool__", "__int__"):
        monkeypatch.setattr(kind, name, counting(getattr(kind, name)))
    trainer, loader = make(
        device="cuda", log_every=1000, callbacks=[steps := Fetch(counted)], **settings
    )
    trainer.fit(loader)
    assert len(steps.steps) == trainer.step > 4
    assert steps.steps[1:] == [1] * (trainer.step - 1), steps.steps


@WITHOUT_CUDNN
@pytest.mark.device
def test_not_finite_values_on_a_device_are_named_before_the_weights_change():
    for where in ("x", "y"):
        trainer, loader = make(device="cuda", optimizer={"name": "sgd", "lr": 0.1})
        before = weights(trainer)
        loader._tensors[where][:] = float("inf")
        with pytest.raises(NumericalError, match=rf"NaN or Inf in batch tensor.*{where}"):
            trainer.fit(loader)
        assert torch.equal(weights(trainer).cpu(), before)
