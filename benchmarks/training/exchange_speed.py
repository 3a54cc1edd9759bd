"""A data-parallel step with our exchange over one with torch's DistributedDataParallel.

12 layers of 1,024 x 1,024 (48 MiB of gradients), 128 samples per rank, gradient descent, gloo, one
thread per rank, wall time between barriers; the methods alternate, and the ratio of medians is
reported. Before any speed is printed all methods must reach DDP's weights (bf16 within its
rounding). `resume_equal`: on 4 ranks a training whose ranks are all killed by SIGKILL after a
checkpoint ends with the same bits as an uninterrupted one.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from _places import FOLDERS, ROOT

WIDTH, DEPTH, BATCH, ROUNDS = 1024, 12, 128, 9
NAMES = ("ddp", "ddp_views", "full", "bf16")
STEPS, KILLED_AT = 8, 5


def network():
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [part for _ in range(DEPTH) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    return nn.Sequential(*layers)


def contestant(name: str, x):
    """Return a function that does one step, and its model."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from scitoolkit.training.exchange.config import exchanges
    from scitoolkit.training.strategies.data_parallel import DataParallelStrategy

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, foreach=True)
    if name.startswith("ddp"):
        views = name == "ddp_views"
        wrapped = DistributedDataParallel(model, gradient_as_bucket_view=views, static_graph=views)

        def step() -> None:
            optimizer.zero_grad()
            wrapped(x).square().mean().backward()
            optimizer.step()
    else:
        strategy = DataParallelStrategy(torch.device("cpu"))
        strategy.prepare(model, seed=0)
        named = list(model.named_parameters())
        strategy.attach(named, exchanges.get(name)())

        def step() -> None:
            optimizer.zero_grad()
            strategy.begin_exchange()
            (model(x).square().mean() / strategy.world).backward()
            strategy.reduce_gradients(failed=False)
            optimizer.step()

    return step, model


def timed(folder: Path) -> None:
    """Be one rank of the timing."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    rank = dist.get_rank()
    x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(rank))
    steps, models = {}, {}
    for name in NAMES:
        steps[name], models[name] = contestant(name, x)
    seconds: dict[str, list[float]] = {name: [] for name in NAMES}
    for number in range(ROUNDS + 2):
        shift = number % len(NAMES)
        for name in NAMES[shift:] + NAMES[:shift]:
            dist.barrier()
            start = time.perf_counter()
            steps[name]()
            dist.barrier()
            if number >= 2:
                seconds[name].append(time.perf_counter() - start)
    flat = {n: torch.cat([p.detach().flatten() for p in m.parameters()]) for n, m in models.items()}
    moved = (flat["ddp"] - torch.cat([p.detach().flatten() for p in network().parameters()])).norm()
    for name, allowed in (("ddp_views", 1e-4), ("full", 1e-4), ("bf16", 1e-2)):
        error = ((flat[name] - flat["ddp"]).norm() / moved).item()
        if not error <= allowed:
            raise SystemExit(f"red gate: {name} differs from DDP by {error}")
    if rank == 0:
        middle = {name: statistics.median(values) for name, values in seconds.items()}
        (folder / "times.json").write_text(json.dumps(middle))


class _Task:
    def __init__(self) -> None:
        import torch
        from torch import nn

        torch.manual_seed(0)
        layers = [part for _ in range(6) for part in (nn.Linear(96, 96), nn.Tanh())]
        self.model = nn.Sequential(*layers)

    def loss(self, batch):
        return (self.model(batch["x"]) - batch["x"].roll(1, 1)).square().mean(), {}

    def metrics(self, batch):
        return {"loss": self.loss(batch)[0]}

    def batch_size(self, batch) -> int:
        return len(batch["x"])


def trained(folder: Path, killed: bool, resume: bool) -> None:
    """Be one rank of a training; the ranks wait different times before each backward pass."""
    import torch

    from scitoolkit.core.run_directory import RunDirectory
    from scitoolkit.testing.loaders import TensorLoader
    from scitoolkit.training import Callback, Trainer, TrainingConfig, current_rank, world_size

    class Kill(Callback):
        wants_every_step = True

        def on_step(self, trainer) -> None:
            if killed and trainer.step == KILLED_AT:
                os.kill(os.getpid(), signal.SIGKILL)

    class Waiting(_Task):
        def loss(self, batch):
            time.sleep(0.01 * ((current_rank() + int(batch["x"][0, 0] * 100)) % 3))
            return super().loss(batch)

    x = torch.randn(256, 96, generator=torch.Generator().manual_seed(1))
    config = TrainingConfig(
        steps=STEPS,
        batch_size=64,
        progress=False,
        device="cpu",
        timeout_seconds=60,
        optimizer={"name": "sgd", "lr": 0.5},
        exchange={"name": "full", "bucket_mib": 0.06},
        checkpoint={"every_steps": 2},
    )
    task = Waiting()
    loader = TensorLoader({"x": x}, 64, rank=current_rank(), world_size=world_size())
    trainer = Trainer(task, config, run=RunDirectory(folder), callbacks=[Kill()])
    trainer.fit(loader, resume=resume)
    if current_rank() == 0:
        torch.save(dict(task.model.state_dict()), folder / "weights.pt")


def main() -> None:
    """Be one rank: `python exchange_speed.py FOLDER time|train [killed] [resume]`."""
    from scitoolkit.training import TrainingConfig
    from scitoolkit.training.launch import leave
    from scitoolkit.training.processes import process_group

    folder, what, *flags = Path(sys.argv[1]), *sys.argv[2:]
    if what == "time":
        with process_group(TrainingConfig(device="cpu", batch_size=64)):
            timed(folder)
    else:
        trained(folder, "killed" in flags, "resume" in flags)
    leave(0)


def ranks(number: int, *arguments: str, module: str = "exchange_speed") -> int:
    """Start the ranks of a benchmark; return their exit code."""
    from scitoolkit.training.launch import launch

    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, *FOLDERS)))
    os.environ["OMP_NUM_THREADS"] = "1"
    return launch(number, list(arguments), module=module)


def resume_equal(folder: Path) -> bool:
    """Return whether a training resumed after a kill of its 4 ranks has the bits of a whole one."""
    import torch

    from scitoolkit.core.config import Config
    from scitoolkit.core.run_directory import RunDirectory

    ends = []
    for name, stages in (("whole", ([],)), ("parts", (["killed"], ["resume"]))):
        run = RunDirectory.create(folder, name, Config())
        codes = [ranks(4, str(run.path), "train", *flags) for flags in stages]
        if codes[-1] or (len(codes) == 2 and codes[0] == 0):
            raise SystemExit(f"red gate: exit codes {codes}")
        ends.append(torch.load(run.path / "weights.pt", weights_only=True))
    return all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def run() -> dict:
    from _measure import machine

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        equal = resume_equal(folder)
        times = {}
        for number in (2, 4):
            if ranks(number, str(folder), "time"):
                raise SystemExit(f"red gate: the ranks of {number} failed")
            times[number] = json.loads((folder / "times.json").read_text())
    figures = {f"step_over_ddp_{n}": t["full"] / t["ddp"] for n, t in times.items()}
    milliseconds = {
        str(n): {name: 1e3 * value for name, value in t.items()} for n, t in times.items()
    }
    return {
        **figures,
        "resume_equal": equal,
        "milliseconds": milliseconds,
        "rounds": ROUNDS,
        **machine(),
    }


if __name__ == "__main__":
    main()
