"""Peak memory of a sharded training, and bytes of a pruned one.

24 linear layers of 1,024 (96 MiB of parameters), AdamW, built on torch's meta device, on one
process and on 2 and 4 with `strategy: sharded`. Memory is the growth of the peak resident memory
after the training of a small model, which loads the lazily loaded parts of torch. `peak_share_P` is
P times the peak of the worst rank over that of a single process after three steps, `built_share`
P times the peak after building over the size of the parameters, for the worse P; `loss_difference`
the largest relative difference of the losses of three steps.

`samo_bytes_error`: bytes of all live tensors of a training with 90 % of the weights pruned,
compared with 4 N + 20 k bytes (N weights, k kept: weights; kept weights, their indices, gradients
and two averages).
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
from pathlib import Path

WIDTH, DEPTH, SAMPLES, STEPS = 1024, 24, 64, 3
PRUNED = 0.9
WORLDS = (1, 2, 4)


class Task:
    def __init__(self, width: int = WIDTH, depth: int = DEPTH) -> None:
        from torch import nn

        layers = [nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth)]
        self.model = nn.Sequential(*layers)
        self.losses: list = []

    def loss(self, batch):
        loss = (self.model(batch["x"]) - batch["x"].roll(1, 1)).square().mean()
        self.losses.append(loss.detach())
        return loss, {}

    def metrics(self, batch):
        return {"loss": self.loss(batch)[0]}

    def batch_size(self, batch) -> int:
        return len(batch["x"])


def fit(width: int, depth: int, callback, **settings) -> None:
    """Train a model that is built without memory."""
    import torch

    from scitoolkit.testing.loaders import TensorLoader
    from scitoolkit.training import Trainer, TrainingConfig, current_rank, world_size

    config = TrainingConfig.model_validate(
        {
            "steps": STEPS,
            "batch_size": SAMPLES,
            "progress": False,
            "device": "cpu",
            "log_every": 1,
            "optimizer": {"name": "adamw"},
            **settings,
        }
    )
    with torch.device("meta"):
        task = Task(width, depth)
    x = torch.randn(SAMPLES, width, generator=torch.Generator().manual_seed(7))
    loader = TensorLoader({"x": x}, SAMPLES, rank=current_rank(), world_size=world_size())
    Trainer(task, config, callbacks=[callback]).fit(loader)


def watcher():
    """Return a callback that notes peaks and losses, and stops before the weights are gathered."""
    from _measure import memory_mib

    from scitoolkit.training import Callback

    class Watch(Callback):
        wants_every_step = True

        def __init__(self) -> None:
            self.found: dict = {"losses": []}

        def on_fit_start(self, trainer) -> None:
            self.found["built"] = memory_mib()

        def on_log(self, trainer, values) -> None:
            self.found["losses"].append(values["loss"])

        def on_step(self, trainer) -> None:
            self.found["peak"], self.found["now"] = memory_mib(), memory_mib("VmRSS")
            self.found["tensors"] = live_bytes()

    return Watch()


def live_bytes() -> int:
    """Return the bytes of all tensors that this process holds, each storage once."""
    import torch

    storages = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor) and thing.device.type == "cpu":
            local = thing.to_local() if hasattr(thing, "to_local") else thing
            storage = local.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def main() -> None:
    """Be one rank: `python -m sharded_memory FOLDER single|sharded|pruned`."""
    import torch
    from _measure import memory_mib

    from scitoolkit.core.memory import return_freed_memory
    from scitoolkit.training import Callback, TrainingConfig, current_rank
    from scitoolkit.training.launch import leave
    from scitoolkit.training.processes import process_group

    torch.set_num_threads(1)
    folder, what = Path(sys.argv[1]), sys.argv[2]
    settings = {
        "single": {"strategy": "single"},
        "sharded": {"strategy": "sharded"},
        "pruned": {"strategy": "single", "pruning": {"share": PRUNED}},
    }[what]
    return_freed_memory()  # the lone process too
    with process_group(TrainingConfig(device="cpu", batch_size=SAMPLES, **settings)):
        fit(32, 2, Callback(), **settings)
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
        base, tensors = memory_mib("VmRSS"), live_bytes()
        watch = watcher()
        fit(WIDTH, DEPTH, watch, **settings)
    found = watch.found
    found["base"] = base
    found["tensors"] -= tensors
    (folder / f"{what}-{current_rank()}.json").write_text(json.dumps(found))
    leave(0)


def measured(folder: Path, world: int, what: str) -> list[dict]:
    from exchange_speed import ranks

    if ranks(world, str(folder), what, module="sharded_memory"):
        raise SystemExit(f"red gate: {what} on {world} processes failed")
    return [json.loads((folder / f"{what}-{r}.json").read_text()) for r in range(world)]


def run() -> dict:
    from _measure import machine

    size = DEPTH * (WIDTH * WIDTH + WIDTH) * 4 / 2**20
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = {
            world: measured(folder, world, "single" if world == 1 else "sharded")
            for world in WORLDS
        }
        pruned = measured(folder, 1, "pruned")[0]
    peaks = {w: max(r["peak"] - r["base"] for r in rows) for w, rows in found.items()}
    built = {w: max(r["built"] - r["base"] for r in rows) for w, rows in found.items()}
    single = found[1][0]["losses"]
    differences = [
        abs(loss / wanted - 1)
        for rows in found.values()
        for loss, wanted in zip(rows[0]["losses"], single, strict=True)
    ]
    weights = DEPTH * WIDTH * WIDTH
    kept = DEPTH * round((1 - PRUNED) * WIDTH * WIDTH)
    # Biases are vectors and kept whole: weight, gradient and two averages.
    formula = 4 * weights + 20 * kept + 16 * DEPTH * WIDTH
    return {
        **{f"peak_share_{w}": w * peaks[w] / peaks[1] for w in WORLDS if w > 1},
        "built_share": max(w * built[w] / size for w in WORLDS if w > 1),
        "samo_bytes_error": abs(pruned["tensors"] / formula - 1),
        "loss_difference": max(differences),
        "parameters_mib": size,
        "peak_mib": {str(w): mib for w, mib in peaks.items()},
        "built_mib": {str(w): mib for w, mib in built.items()},
        "samo_mib": pruned["tensors"] / 2**20,
        "samo_formula_mib": formula / 2**20,
        "samo_resident_mib": pruned["now"] - pruned["base"],
        "dense_mib": 4 * size,
        **machine(),
    }


if __name__ == "__main__":
    main()
