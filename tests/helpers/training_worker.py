"""A training that tests start in other processes: `python -m training_worker '{...}'`."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

from scitoolkit.core.config import Config
from scitoolkit.core.errors import DataError, ScitoolkitError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.training import Callback, Trainer, TrainingConfig, current_rank, world_size
from scitoolkit.training.launch import leave
from scitoolkit.training.processes import on_rank_zero, process_group


class Net(nn.Module):
    def __init__(self, dropout: float, normalised: bool = False) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(7) if normalised else nn.Identity()
        self.blocks = nn.ModuleList([nn.Linear(3, 7), nn.Linear(7, 7)])
        self.recurrent = nn.LSTM(7, 5, batch_first=True)
        self.head = nn.Linear(5, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        for block in self.blocks:
            x = self.dropout(torch.tanh(self.norm(block(x))))
        return self.head(self.recurrent(x[:, None])[0][:, 0])


class Regression:
    def __init__(self, dropout: float = 0.0, poison: str = "", *, normalised: bool = False) -> None:
        torch.manual_seed(3)
        self.model: nn.Module = Net(dropout, normalised)
        self.poison = poison

    def loss(self, batch):
        if self.poison == "loss":
            raise DataError("a sample that cannot be used")
        loss = ((self.model(batch["x"]) - batch["y"]) ** 2).mean()
        return loss, {"twice": 2 * loss.detach()}

    def metrics(self, batch):
        if self.poison == "metrics":
            raise DataError("a sample that cannot be used")
        return {"loss": self.loss(batch)[0]}

    def batch_size(self, batch):
        return len(batch["x"])


def data(samples: int = 37) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, 3, generator=generator)
    return {"x": x, "y": x.sum(1, keepdim=True)}


class Stop(Callback):
    """Sends this process a signal, or fails, after a step."""

    wants_every_step = True

    def __init__(self, step: int, what: str) -> None:
        self.step, self.what = step, what

    def on_step(self, trainer) -> None:
        if trainer.step != self.step:
            return
        if self.what == "data":
            raise DataError("broken on purpose")
        if self.what == "crash":
            raise ValueError("a bug")
        os.kill(os.getpid(), getattr(signal, self.what))


def train(options: dict, folder: Path) -> Trainer:
    settings = {"epochs": 3, "batch_size": 12, "log_every": 1, "progress": False}
    settings |= {"ema_decay": 0.9, "clip_norm": 1.0, "timeout_seconds": 60}
    settings |= {"checkpoint": {"every_steps": 2}, **options.get("training", {})}
    config = TrainingConfig.model_validate(settings)
    rank, world = current_rank(), world_size()
    if "differs" in options and rank == world - 1:
        changed = options["differs"]
        config = TrainingConfig.model_validate({**settings, **changed.get("training", {})})
        options = {**options, **changed}
    callbacks = []
    if "stop" in options and rank == options.get("on_rank", 0):
        callbacks.append(Stop(*options["stop"]))
    resume = options.get("resume", False)
    with process_group(config):
        if not (folder / "config.yaml").exists():
            on_rank_zero(lambda: RunDirectory.create(folder.parent, folder.name, Config()))
        path = on_rank_zero(lambda: sorted((folder.parent / folder.name).glob("*Z-*"))[0])
        poison = options.get("poison", "") if rank else ""
        normalised = options.get("normalised", False)
        task = Regression(options.get("dropout", 0.2), poison, normalised=normalised)
        tensors = data(options.get("samples", 37))
        if options.get("nan_rank") == rank:
            tensors["x"][:] = float("nan")

        def loader() -> TensorLoader:
            return TensorLoader(tensors, config.batch_size, rank=rank, world_size=world)

        trainer = Trainer(task, config, run=RunDirectory(path), callbacks=callbacks)
        trainer.fit(loader(), loader(), resume=resume)
    return trainer


def main() -> int:
    options = json.loads(sys.argv[1])
    folder = Path(options["folder"])
    try:
        trainer = train(options, folder)
    except ScitoolkitError as error:
        print(f"[{current_rank()}] {type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    out = {n: t.detach().clone() for n, t in trainer.task.model.state_dict().items()}
    torch.save(out, folder.parent / f"{options['result']}-{current_rank()}.pt")
    return 0


if __name__ == "__main__":
    leave(main())
