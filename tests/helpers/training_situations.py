"""Small trainings as users write them: `python -m training_situations '{"folder": ...}'`.

Each situation is trained under every strategy in the arguments; rank 0 writes weights, best loss
and validation metrics, or the name of the error that all ranks raised.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import traceback
from collections import namedtuple
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, TensorDataset
from torch.utils.data import IterableDataset as Iterable

from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.training import Callback, Trainer, TrainingConfig, current_rank
from scitoolkit.training.launch import launch, leave
from scitoolkit.training.processes import gather_objects, process_group

ROWS, BATCH = 48, 12
Row = namedtuple("Row", ["x", "y"])
X = torch.rand(ROWS, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
DATA = TensorDataset(X, X.sin().sum(1, keepdim=True))


class Net(nn.Module):
    def __init__(self, middle=None, **more):
        super().__init__()
        self.first = nn.Linear(3, 7)
        self.middle = middle if middle is not None else nn.Tanh()
        for name, module in more.items():
            setattr(self, name, module)
        self.last = nn.Linear(7, 1)

    def forward(self, x, head="last"):
        return getattr(self, head)(self.middle(self.first(x)))


class Experts(nn.Module):
    """Rows choose their layer, so that a rank's rows may leave one of them without a gradient."""

    def __init__(self, number=2):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(7, 7) for _ in range(number))

    def forward(self, h):
        chosen = (h[:, 0].detach() * 1e4).long().abs() % len(self.layers)
        out = torch.zeros_like(h)
        for number, layer in enumerate(self.layers):
            rows = (chosen == number).nonzero()[:, 0]
            if len(rows):
                out = out.index_add(0, rows, layer(h[rows]))
        return out


class Rare(nn.Module):
    """A layer that is reached by few batches only, of rows between -1.2 and -0.5."""

    def __init__(self, at_least):
        super().__init__()
        self.layer, self.at_least = nn.Linear(7, 7), at_least

    def forward(self, h):
        rows = (h[:, 0].detach() > self.at_least).nonzero()[:, 0]
        return h.index_add(0, rows, self.layer(h[rows])) if len(rows) else h


class NormOnFirstRank(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(7)

    def forward(self, h):
        return h if current_rank() else self.norm(h)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(7, 7), nn.Linear(7, 7)
        self.b.weight = self.a.weight

    def forward(self, h):
        return self.b(torch.tanh(self.a(h)))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.none = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.zeros(0, 3))

    def forward(self, h):
        return self.scale * h


class Task:
    def __init__(self, model):
        self.model = model

    def loss(self, batch):
        return (self.model(batch["0"]) - batch["1"]).square().mean(), {}

    def metrics(self, batch):
        return {"loss": self.loss(batch)[0]}

    def batch_size(self, batch):
        return len(batch["0"])


class Named(Task):
    """Metrics by what the rows of a rank happen to hold."""

    def metrics(self, batch):
        number = int(batch["0"][0, 0] * 1e4) % 3
        return {**super().metrics(batch), f"kind_{number}": 1.0 + number, "b": 3.0}

    def loss(self, batch):
        return super().loss(batch)[0], {f"kind_{int(batch['0'][0, 0] * 1e4) % 3}": 1.0}


class Alternating(Task):
    """Odd batches train one head, even ones the other."""

    calls = 0

    def loss(self, batch):
        self.calls += 1
        out = self.model(batch["0"], "last" if self.calls % 2 else "other")
        return (out - batch["1"]).square().mean(), {}


class Parts(Task):
    """Calls the parts of the model, not the model."""

    def loss(self, batch):
        out = self.model.last(self.model.middle(self.model.first(batch["0"])))
        return (out - batch["1"]).square().mean(), {}


class Failing(Task):
    def loss(self, batch):
        loss, logs = super().loss(batch)
        return (loss * float("nan") if self.bad(batch) else loss), logs

    def bad(self, batch):
        return bool((batch["0"] == X.max()).any())


class Changed(Task):
    """Returns a loss, or reports metrics, changed by a function."""

    def __init__(self, model, loss=lambda loss: (loss, {}), metric=None):
        super().__init__(model)
        self.changed, self.metric = loss, metric

    def loss(self, batch):
        return self.changed((self.model(batch["0"]) - batch["1"]).square())

    def metrics(self, batch):
        return {**super().metrics(batch), "loss": 1.0, "m": self.metric}


class ByName(Task):
    def loss(self, batch):
        return (self.model(batch["x"]) - batch["y"]).square().mean(), {}

    def metrics(self, batch):
        return {"loss": super().loss(batch)[0]}

    def batch_size(self, batch):
        return len(next(iter(batch.values())))


class Order(Sampler):
    def __init__(self, how):
        self.how = how

    def __len__(self):
        return ROWS

    def __iter__(self):
        order = list(range(ROWS))
        if self.how == "python":
            random.shuffle(order)
        elif self.how == "numpy":
            order = np.random.permutation(ROWS).tolist()
        elif current_rank():
            order.reverse()
        return iter(order)


class Stream(Iterable):
    def __init__(self, rows=ROWS):
        self.rows = rows

    def __len__(self):
        return ROWS

    def __iter__(self):
        return iter([DATA[k] for k in range(self.rows)])


class Uneven:
    """A loader whose second rank has a batch less than its length."""

    less = 0

    def __len__(self):
        return 3

    def __iter__(self):
        for _ in range(3 - self.less * current_rank()):
            yield {"0": X[:BATCH], "1": X[:BATCH, :1]}

    def set_epoch(self, epoch):
        pass

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class OneLess(Uneven):
    less = 1


def norm_in_eval():
    model = Net(nn.Sequential(nn.BatchNorm1d(7), nn.Tanh()))
    model.middle[0].eval()
    return model


def frozen():
    model = Net(nn.Sequential(nn.Linear(7, 7), nn.Tanh()))
    model.middle.requires_grad_(False)
    return model


def partly_frozen():
    model = Net()
    model.first.bias.requires_grad_(False)
    model.last.weight.requires_grad_(False)
    return model


def loader(size=BATCH, **options):
    return lambda: DataLoader(DATA, size, **options)


def drawn(seed=5):
    return torch.Generator().manual_seed(seed)


SGD = {"optimizer": {"name": "sgd", "lr": 0.05}}
MOMENTUM = {"optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.9, "weight_decay": 0.1}}
HALF = SGD | {"precision": "fp16", "epochs": 4}
ADAM = {"optimizer": {"name": "adam", "lr": 0.01}}
NORM = lambda: Net(nn.Sequential(nn.BatchNorm1d(7), nn.Tanh()))  # noqa: E731
SITUATIONS: dict[str, tuple] = {
    # name: (model, loader, settings, task)
    "plain": (Net,),
    "sgd": (Net, loader(), SGD),
    "momentum": (Net, loader(), MOMENTUM),
    "adam": (Net, loader(), ADAM),
    "shuffled": (Net, loader(shuffle=True)),
    "shuffled by a generator": (
        Net,
        lambda: DataLoader(DATA, BATCH, shuffle=True, generator=drawn()),
    ),
    "sampler of python": (Net, loader(sampler=Order("python"))),
    "sampler of numpy": (Net, loader(sampler=Order("numpy"))),
    "sampler with a generator": (
        Net,
        lambda: DataLoader(DATA, BATCH, sampler=RandomSampler(DATA, generator=drawn())),
    ),
    "with replacement": (
        Net,
        lambda: DataLoader(DATA, BATCH, sampler=RandomSampler(DATA, replacement=True)),
    ),
    "batch sampler": (
        Net,
        lambda: DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA), BATCH, False)),
    ),
    "partial batch": (Net, loader(11)),
    "batch of one": (
        Net,
        lambda: DataLoader(TensorDataset(*(t[:25] for t in DATA.tensors)), BATCH),
    ),
    "dropped partial batch": (Net, loader(11, drop_last=True, shuffle=True)),
    "stream": (Net, lambda: DataLoader(Stream(), BATCH)),
    "workers' rows as dicts": (
        Net,
        lambda: DataLoader([{"0": a, "1": b} for a, b in DATA], BATCH, shuffle=True),
    ),
    "unused layer": (lambda: Net(unused=nn.Linear(3, 3)),),
    "unused layer, momentum": (lambda: Net(unused=nn.Linear(3, 3)), loader(), MOMENTUM),
    "unused norm": (lambda: Net(unused=nn.BatchNorm1d(3)),),
    "experts": (lambda: Net(Experts()),),
    "many experts": (lambda: Net(Experts(6)), loader(shuffle=True)),
    "many experts, momentum": (lambda: Net(Experts(6)), loader(), MOMENTUM),
    "many experts, accumulated": (lambda: Net(Experts(6)), loader(), {"accumulate": 2}),
    "many experts, clipped": (lambda: Net(Experts(6)), loader(), {"clip_norm": 0.1}),
    "rare layer": (lambda: Net(Rare(-0.65)),),
    "rarer layer": (lambda: Net(Rare(-0.62)), loader(6), MOMENTUM),
    "norm on one rank": (lambda: Net(NormOnFirstRank()), loader(), SGD),
    "layer never reached": (lambda: Net(Rare(9.0)),),
    "alternating heads": (lambda: Net(other=nn.Linear(7, 1)), loader(), {}, Alternating),
    "alternating heads, momentum": (
        lambda: Net(other=nn.Linear(7, 1)),
        loader(),
        MOMENTUM,
        Alternating,
    ),
    "parts of the model": (Net, loader(), {}, Parts),
    "frozen": (frozen,),
    "partly frozen": (partly_frozen,),
    "norm in eval": (norm_in_eval, loader(), SGD),
    # The gradient of a bias before a norm is rounding, which Adam would scale up.
    "batch norm": (NORM, loader(shuffle=True), SGD),
    "batch norm, ema": (NORM, loader(), SGD | {"ema_decay": 0.9}),
    "batch norm, swa": (NORM, loader(), SGD | {"swa_start": 0.3}),
    "layer norm": (lambda: Net(nn.LayerNorm(7)), loader(), SGD),
    "group norm": (lambda: Net(nn.GroupNorm(1, 7)), loader(), SGD),
    "tied": (lambda: Net(Tied()),),
    "scalar and empty parameters": (lambda: Net(Scaled()),),
    "accumulated": (Net, loader(), {"accumulate": 2}),
    "accumulated by three": (Net, loader(11), {"accumulate": 3}),
    "clipped": (Net, loader(), {"clip_norm": 0.05}),
    "ema": (Net, loader(), {"ema_decay": 0.8}),
    "swa": (Net, loader(), {"swa_start": 0.5}),
    "cosine": (Net, loader(), {"schedule": {"name": "cosine", "warmup_steps": 3}}),
    "exponential": (Net, loader(), {"schedule": {"name": "exponential", "hold_steps": 2}}),
    "plateau": (Net, loader(), {"schedule": {"name": "plateau", "patience": 1}}),
    "groups": (
        Net,
        loader(),
        {"parameter_groups": [{"parameters": "*.bias", "rate_factor": 0.1}]},
    ),
    "stopped early": (Net, loader(), {"early_stopping": {"patience": 1, "min_delta": 0.02}}),
    "steps": (Net, loader(), {"steps": 7}),
    "lamb": (Net, loader(), {"optimizer": {"name": "lamb", "lr": 0.01}}),
    "muon": (Net, loader(), {"optimizer": {"name": "muon", "lr": 0.01}}),
    "metrics by batch": (Net, loader(), {}, Named),
    "single precision": (lambda: Net().float(), None, {}, Task),
    # Steps are skipped where the scaled gradients of all samples overflow.
    "half precision": (lambda: Net().float(), None, HALF, Task),
    "half precision, accumulated": (lambda: Net().float(), None, HALF | {"accumulate": 2}, Task),
    "half precision, clipped": (lambda: Net().float(), None, HALF | {"clip_norm": 0.5}, Task),
    "rows by name": (Net, lambda: DataLoader([Row(*row) for row in DATA], BATCH), {}, ByName),
    # refused on all ranks
    "no pair": (Net, loader(), {}, partial(Changed, loss=torch.mean)),
    "loss of each row": (Net, loader(), {}, partial(Changed)),
    "loss as a number": (Net, loader(), {}, partial(Changed, loss=lambda t: (0.5, {}))),
    "loss without gradient": (
        Net,
        loader(),
        {},
        partial(Changed, loss=lambda t: (t.mean().detach(), {})),
    ),
    "logs of each row": (Net, loader(), {}, partial(Changed, loss=lambda t: (t.mean(), {"m": t}))),
    "metric as text": (
        Net,
        loader(),
        {},
        partial(Changed, loss=lambda t: (t.mean(), {}), metric="good"),
    ),
    "lazy": (lambda: Net(nn.LazyLinear(7)),),
    "order by rank": (Net, loader(sampler=Order("rank"))),
    "uneven": (Net, OneLess),
    "no batch": (Net, loader(100, drop_last=True)),
    "no batch, steps": (Net, loader(100, drop_last=True), {"steps": 5}),
    "empty epochs": (Net, lambda: DataLoader(Stream(0), BATCH), {"steps": 5}),
    "NaN on one rank": (Net, loader(), {}, Failing),
    "nothing to train": (lambda: Net().requires_grad_(False),),
}

STRATEGIES: dict[str, dict] = {
    "single": {},
    "ddp": {},
    **{f"stage {n}": {"strategy": "sharded", "sharding": {"stage": n}} for n in (1, 2, 3)},
    # Each layer is gathered on its own.
    "stage 3 in groups": {"strategy": "sharded", "sharding": {"stage": 3, "group_mib": 1e-5}},
}
REFUSED = {
    "no pair": "ConfigError",
    "loss of each row": "ConfigError",
    "loss as a number": "ConfigError",
    "loss without gradient": "ConfigError",
    "logs of each row": "DataError",
    "metric as text": "DataError",
    "lazy": "ConfigError",
    "order by rank": "DataError",
    "uneven": "DataError",
    "no batch": "DataError",
    "no batch, steps": "DataError",
    "empty epochs": "DataError",
    "NaN on one rank": "NumericalError",
    "nothing to train": "ConfigError",
}
ONE_RANK_TRAINS = {"order by rank", "uneven", "lazy"}
NOT_IN_STAGE_3 = {"tied", "scalar and empty parameters"}
# Largest difference of a number, of data in float32; another skipped step changes weights by more.
LIMITS = {
    "single precision": 1e-5,
    "half precision": 1e-3,
    "half precision, accumulated": 1e-3,
    "half precision, clipped": 1e-3,
}
PARTS = "parts of the model"
# Layers that only some ranks call at the same time.
NOT_IN_GROUPS = {
    "experts",
    "many experts",
    "many experts, momentum",
    "many experts, accumulated",
    "many experts, clipped",
    "rare layer",
    "rarer layer",
}
NOT_SHARDABLE = {"muon"}


def may_refuse(name: str, strategy: str) -> bool:
    """Return whether the documentation says that a strategy refuses a situation."""
    if strategy == "stage 3 in groups" and name in NOT_IN_GROUPS:
        return True
    if (strategy, name) == ("stage 3", PARTS) or name == "norm on one rank":
        return True
    in_stage_3 = strategy.startswith("stage 3") and name in NOT_IN_STAGE_3
    return in_stage_3 or (name in NOT_SHARDABLE and strategy != "ddp")


def trained(
    ranks: int, strategies: list[str], folder: Path, names: list[str] | None = None
) -> dict[str, dict]:
    """Return the outcomes, by strategy and situation, of trainings on `ranks` processes."""
    settings = {strategy: STRATEGIES[strategy] for strategy in strategies}
    text = json.dumps({"folder": str(folder), "settings": settings, "names": names})
    code = launch(ranks, [text], module=Path(__file__).stem)
    if code:
        # The assertions of helpers and of other processes have no message of pytest's.
        files = sorted(folder.glob(f"{ranks}-*.txt"))
        reports = "\n".join(f"rank {f.stem}: {f.read_text()}" for f in files)
        raise AssertionError(f"exit code {code} of {ranks} ranks, {strategies}:\n{reports}")
    stored = torch.load(folder / f"{ranks}.pt")
    return {s: {n: stored[f"{s}/{n}"] for n in names or SITUATIONS} for s in strategies}


def difference(several: dict, one: dict, name: str, strategy: str) -> str:
    """Return how the outcome on several processes differs from that of one, or an empty text."""
    if name in REFUSED:
        alone = None if name in ONE_RANK_TRAINS else REFUSED[name]
        wanted = (REFUSED[name], alone)
        if (several.get("error"), one.get("error")) == wanted:
            return ""
        return f"not refused: {several.get('text')}, {one.get('text')}"
    if may_refuse(name, strategy):
        refused = several.get("error") in ("ConfigError", "ConfigProblems")
        return "" if refused else f"not refused: {several.get('text')}"
    if "error" in several or "error" in one:
        return f"refused: {several.get('text')}, {one.get('text')}"
    limit = LIMITS.get(name, 1e-9)
    for key, wanted in one["state"].items():
        off = float((several["state"][key] - wanted).abs().max()) if wanted.numel() else 0.0
        if not off <= limit:
            return f"different: {key} by {off:.1e}"
    ours, theirs = ([o["best"] or {}, *o["validations"]] for o in (several, one))
    if [sorted(values) for values in ours] != [sorted(values) for values in theirs]:
        return f"different: metrics {ours} for {theirs}"
    for values, wanted in zip(ours, theirs, strict=True):
        for key, number in wanted.items():
            if not abs(values[key] - number) <= 1e3 * limit * abs(number) + limit:
                return f"different: {key} is {values[key]} for {number}"
    return ""


class Seen(Callback):
    def __init__(self):
        self.validations = []

    def on_validation(self, trainer, values):
        self.validations.append({k: v for k, v in values.items() if not k.startswith("kind")})


def outcome(name: str, settings: dict) -> dict:
    make, batches, own, kind = (
        *SITUATIONS[name],
        *(loader(), {}, Task)[len(SITUATIONS[name]) - 1 :],
    )
    torch.manual_seed(0)
    model = make()
    single = name in LIMITS
    task, seen = kind(model if single else model.double()), Seen()
    data = TensorDataset(*(t.float() for t in DATA.tensors)) if single else DATA
    begin = time.monotonic()
    try:
        config = TrainingConfig(
            **{"epochs": 2, "batch_size": BATCH, "progress": False, "timeout_seconds": 30}
            | {"optimizer": {"name": "adamw", "lr": 0.01}, "log_every": 1}
            | own
            | settings
        )
        trainer = Trainer(task, config, callbacks=[seen])
        trainer.fit(DataLoader(data, BATCH) if single else batches(), DataLoader(data, 14))
        last = {n: t.detach().clone() for n, t in task.model.state_dict().items()}
        trainer.load_best()  # of the averages, if there are any
        state = {f"best {n}": t.detach().clone() for n, t in task.model.state_dict().items()} | last
    except ScitoolkitError as error:
        return {
            "error": type(error).__name__,
            "text": str(error),
            "seconds": time.monotonic() - begin,
        }
    seen.on_validation(trainer, trainer.validate(DataLoader(data, 14)))
    return {"state": state, "best": trainer.best, "validations": seen.validations}


def different(outcomes: list[dict[str, dict]]) -> dict[str, list[str]]:
    """Return what each rank ended with, of the situations in which the ranks do not agree."""
    ends = {
        name: [f"{o[name].get('error')}: {o[name].get('text', '')}"[:300] for o in outcomes]
        for name in outcomes[0]
    }
    return {
        name: texts for name, texts in ends.items() if len({t.split(":")[0] for t in texts}) > 1
    }


def all_outcomes(options: dict, report: Path) -> dict[str, dict]:
    out: dict[str, dict] = {}
    with process_group(TrainingConfig(timeout_seconds=30, batch_size=BATCH)):
        for label, settings in options["settings"].items():
            for name in options.get("names") or SITUATIONS:
                report.write_text(f"killed in {label}/{name}, after {len(out)} situations")
                out[f"{label}/{name}"] = outcome(name, settings)
        ends = {key: {k: o.get(k) for k in ("error", "text")} for key, o in out.items()}
        differ = different(gather_objects(ends))
        assert not differ, f"the ranks end differently: {differ}"
    threads = [Path(f"/proc/self/task/{n}/comm").read_text() for n in os.listdir("/proc/self/task")]
    gloo = [name for name in threads if "gloo" in name]
    assert not gloo, f"threads that may abort the process at its end: {gloo} of {threads}"
    return out


def main() -> int:
    torch.set_num_threads(1)
    options = json.loads(sys.argv[1])
    folder = Path(options["folder"])
    report = folder / f"{os.environ.get('WORLD_SIZE', 1)}-{os.environ.get('RANK', 0)}.txt"
    try:
        out = all_outcomes(options, report)
    except BaseException:
        reached = report.read_text() if report.exists() else "before the first situation"
        report.write_text(f"{reached}\n{traceback.format_exc()}")
        raise
    report.write_text("ended")
    if report.stem.endswith("-0"):
        torch.save(out, folder / f"{report.stem.removesuffix('-0')}.pt")
    return 0


if __name__ == "__main__":
    leave(main())
