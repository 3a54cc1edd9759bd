"""Overhead of a training step over a raw torch loop: ours, Fabric, Accelerate, Lightning.

Every loop trains the same two-layer network on the same batches in memory, with the same optimizer;
the loops alternate in each round, on one thread, in CPU time (microseconds per step). Before any
figure is printed all of them must reach the raw loop's final loss. The peers have a separate
environment, in which this file starts itself, so that all loops run in one process.

METG(50 %) is the time of the smallest step with 50 % efficiency, over networks of growing width,
relative to the arithmetic rate of the widest network (Task Bench, Slaughter et al. 2020).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import logging
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

from _places import ROOT

PEER_PYTHON = ROOT / ".venv-peers" / "trainers" / "bin" / "python"
PEERS = ("fabric", "accelerate", "lightning")
BATCH, WIDTH, HIDDEN, STEPS, ROUNDS = 64, 64, 64, 300, 15
SWEEP = (16, 64, 256, 1024, 4096)
LEARNING_RATE = 1e-3


def run() -> dict:
    if not _peers_here() and PEER_PYTHON.exists() and Path(sys.prefix) != PEER_PYTHON.parents[1]:
        done = subprocess.run(
            [str(PEER_PYTHON), __file__], stdout=subprocess.PIPE, text=True, check=True
        )
        return json.loads(done.stdout.splitlines()[-1])
    return measure()


def _peers_here() -> bool:
    return all(importlib.util.find_spec(n) for n in ("lightning", "accelerate"))


def _setting(width: int, hidden: int, steps: int):
    """Return a function that builds the model, and the batches of one epoch."""
    import torch
    from torch import nn

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(steps * BATCH, width, generator=generator)
    y = torch.tanh(x[:, :1] * x[:, 1:2])
    batches = [
        {"x": x[i : i + BATCH], "y": y[i : i + BATCH]} for i in range(0, steps * BATCH, BATCH)
    ]

    def build() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    return build, batches


def _optimizer(model):
    import torch

    return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)


def _loss(model, batch):
    return ((model(batch["x"]) - batch["y"]) ** 2).mean()


def raw_loop(build, batches):
    model = build()
    optimizer = _optimizer(model)
    for batch in batches:
        optimizer.zero_grad()
        loss = _loss(model, batch)
        loss.backward()
        optimizer.step()
    return model


class _Batches:
    """A list of batches with the Loader contract."""

    def __init__(self, batches) -> None:
        self._batches, self._next = batches, 0

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self):
        while self._next < len(self._batches):
            self._next += 1
            yield self._batches[self._next - 1]

    def set_epoch(self, epoch: int) -> None:
        self._next = 0

    def state_dict(self):
        return {"next": self._next}

    def load_state_dict(self, state) -> None:
        self._next = state["next"]


class _Iterable:
    """The batches for Lightning, which takes a plain list for several loaders at once."""

    def __init__(self, batches) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self):
        return iter(self._batches)


class _Task:
    def __init__(self, model) -> None:
        self.model = model

    def loss(self, batch):
        return _loss(self.model, batch), {}

    def metrics(self, batch):
        return {"loss": _loss(self.model, batch)}

    def batch_size(self, batch) -> int:
        return len(batch["x"])


def our_loop(build, batches):
    from scitoolkit.training import Trainer, TrainingConfig

    config = TrainingConfig(
        epochs=1,
        batch_size=BATCH,
        device="cpu",
        seed=1,
        progress=False,
        optimizer={"name": "adamw", "lr": LEARNING_RATE},
    )
    task = _Task(build())
    Trainer(task, config).fit(_Batches(batches))
    return task.model


def fabric_loop(build, batches):
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    inner = build()
    model, optimizer = fabric.setup(inner, _optimizer(inner))
    for batch in batches:
        optimizer.zero_grad()
        loss = _loss(model, batch)
        fabric.backward(loss)
        optimizer.step()
    return inner


def accelerate_loop(build, batches):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    inner = build()
    model, optimizer = accelerator.prepare(inner, _optimizer(inner))
    for batch in batches:
        with accelerator.accumulate(model):
            optimizer.zero_grad()
            loss = _loss(model, batch)
            accelerator.backward(loss)
            optimizer.step()
    return inner


def lightning_loop(build, batches):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = build()

        def training_step(self, batch, index):
            return _loss(self.model, batch)

        def configure_optimizers(self):
            return _optimizer(self.model)

    module = Module()
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=1,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        trainer.fit(module, _Iterable(batches))
    return module.model


LOOPS = {
    "raw": raw_loop,
    "ours": our_loop,
    "fabric": fabric_loop,
    "accelerate": accelerate_loop,
    "lightning": lightning_loop,
}


def _check(loops, build, batches) -> float:
    """Refuse to go on unless all loops end with the raw loop's loss."""
    import torch

    losses = {}
    with torch.no_grad():
        for name, loop in loops.items():
            with torch.enable_grad():
                model = loop(build, batches)
            losses[name] = float(_loss(model.eval(), batches[0]))
    for name, loss in losses.items():
        if abs(loss - losses["raw"]) > 1e-6 * abs(losses["raw"]):
            raise SystemExit(f"red gate: {name} reaches loss {loss}, the raw loop {losses['raw']}")
    return losses["raw"]


def _per_step(loops, setting, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return microseconds per step of the raw loop and beyond it, without start-up.

    Start-up is taken out by the difference between a long and a short training; the overhead is
    the median over rounds of the differences within a round.
    """
    import statistics

    from _measure import alternate

    build, batches = setting
    short = batches[: len(batches) // 4]
    calls = {}
    for name, loop in loops.items():
        calls[name, "long"] = lambda loop=loop: loop(build, batches)
        calls[name, "short"] = lambda loop=loop: loop(build, short)
    seconds = alternate(calls, rounds)
    steps = len(batches) - len(short)
    per_step = {
        name: [
            1e6 * (a - b) / steps
            for a, b in zip(seconds[name, "long"], seconds[name, "short"], strict=True)
        ]
        for name in loops
    }
    beyond = {
        name: statistics.median(v - r for v, r in zip(values, per_step["raw"], strict=True))
        for name, values in per_step.items()
    }
    return {name: statistics.median(v) for name, v in per_step.items()}, beyond


def _metg50() -> tuple[dict[str, float | None], list[dict]]:
    """Sweep the hidden width; return METG(50 %) of both loops in microseconds, and the sweep.

    The useful time of a step is its arithmetic at the rate of the widest network.
    """
    from scitoolkit.scaling.metg import crossing

    loops = {"raw": raw_loop, "ours": our_loop}
    sweep = []
    for hidden in SWEEP:
        total, _ = _per_step(loops, _setting(WIDTH, hidden, 120), 5)
        sweep.append({"hidden": hidden, **{f"{name}_us": total[name] for name in loops}})
    rate = sweep[-1]["hidden"] / sweep[-1]["raw_us"]
    for row in sweep:
        for name in loops:
            row[f"{name}_efficiency"] = row["hidden"] / rate / row[f"{name}_us"]
    metg = {
        name: crossing([r[f"{name}_us"] for r in sweep], [r[f"{name}_efficiency"] for r in sweep])
        for name in loops
    }
    return metg, sweep


def measure() -> dict:
    import torch
    from _measure import machine

    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    names = ["raw", "ours", *(PEERS if _peers_here() else ())]
    loops = {name: LOOPS[name] for name in names}
    setting = _setting(WIDTH, HIDDEN, STEPS)
    final_loss = _check(loops, *setting)
    total, beyond = _per_step(loops, setting, ROUNDS)
    metg, sweep = _metg50()
    figures = {
        "overhead_us_per_step": beyond["ours"],
        "metg50_us": metg["ours"],
        "raw_metg50_us": metg["raw"],
    }
    for peer in PEERS:
        figures[f"{peer}_overhead_us_per_step"] = beyond.get(peer)
    versions = {}
    for package in ("lightning", "accelerate"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        **figures,
        "raw_us_per_step": total["raw"],
        "final_loss": final_loss,
        "rounds": ROUNDS,
        "steps": STEPS,
        "metg_sweep": sweep,
        **machine(),
        **versions,
    }


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        result = measure()
    print(json.dumps(result))
