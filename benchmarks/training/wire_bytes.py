"""Bytes received in data-parallel training, and the loss of accuracy by compressed exchanges.

Two surrogates are trained by AdamW on four processes, as two nodes of two, with five seeds and each
exchange of gradients; gloo. Bytes are counted at the calls of the collectives (`count_traffic`);
the loss is that on unseen samples. A difference is the mean over seeds of the loss over that of the
full exchange with the same seed, minus one; the larger value of the two surrogates is printed (the
smaller for naive 4 bits, without differences and in one level). `powersgd` is torch's hook of rank
4 under DistributedDataParallel. `ranks_bit_equal`: equality of the weights of all ranks after every
run.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

NODE, RANKS, SEEDS, STEPS, BATCH, RATE = 2, 4, 5, 500, 256, 4e-3
SHARDS = {"strategy": "sharded", "sharding": {"stage": 1}}
WAYS = {
    "full": {},
    "error_bounded": {"exchange": {"name": "error_bounded"}},
    "sdp4bit": {**SHARDS, "exchange": {"name": "sdp4bit", "processes_per_node": NODE}},
    "sdp4bit_hadamard": {
        **SHARDS,
        "exchange": {"name": "sdp4bit", "processes_per_node": NODE, "hadamard": True},
    },
    "naive": {**SHARDS, "exchange": {"name": "naive"}},
}
JUDGED = ("sdp4bit", "error_bounded")


def register_naive() -> None:
    """Register the baseline exchange: weights and gradients in 4 bits."""
    from typing import ClassVar, Literal

    import torch
    import torch.distributed as dist

    from scitoolkit.training.exchange.config import ExchangeConfig, exchanges
    from scitoolkit.training.exchange.quantised import decoded, encoded

    class NaiveShards:
        exact = by_differences = False

        def scatter(self, rows, failed):
            data = encoded(rows, 4, 128)
            received = torch.empty_like(data)
            work = dist.all_to_all_single(received, data, async_op=True)

            def finish():
                work.wait()
                return decoded(received, rows.shape[1], 4, 128).sum(0), failed

            return finish

        def gather(self, part):
            data = encoded(part[None], 4, 128)[0]
            out = data.new_empty(RANKS, len(data))
            dist.all_gather(list(out), data)
            return decoded(out, len(part), 4, 128)

    class Naive(ExchangeConfig):
        sums: ClassVar[bool] = False
        shards: ClassVar[bool] = True
        name: Literal["naive"] = "naive"

        def build_shards(self):
            return NaiveShards()

    exchanges.register("naive")(Naive)


def trained(way: str, surrogate: str, seed: int) -> dict:
    """Train on this rank; return test loss, bytes per step and whether all ranks agree."""
    from _wire_tasks import SURROGATES

    from scitoolkit.core.processes import current_rank
    from scitoolkit.testing.loaders import TensorLoader
    from scitoolkit.training import Trainer, TrainingConfig
    from scitoolkit.training.callbacks import Callback
    from scitoolkit.training.traffic import TrafficCounter

    class Counted(Callback):
        def on_fit_start(self, trainer) -> None:
            self.context = counter.counting()
            self.context.__enter__()

        def on_fit_end(self, trainer) -> None:
            self.context.__exit__(None, None, None)

    task, counter = SURROGATES[surrogate](seed), TrafficCounter(NODE)
    if way == "powersgd":
        with counter.counting():
            powersgd(task, seed)
    else:
        config = TrainingConfig.model_validate(
            {
                "steps": STEPS,
                "batch_size": BATCH,
                "seed": seed,
                "progress": False,
                "device": "cpu",
                "optimizer": {"name": "adamw", "lr": RATE},
                "log_every": STEPS + 1,
                "schedule": {"name": "cosine", "warmup_steps": 50},
                **WAYS[way],
            }
        )
        loader = TensorLoader(task.train, BATCH, seed=seed, rank=current_rank(), world_size=RANKS)
        Trainer(task, config, callbacks=[Counted()]).fit(loader)
    total = counter.total()
    return {
        "loss": float(task.metrics(task.test)["loss"].detach()),
        "bytes": total.bytes / STEPS,
        "bytes_between_nodes": total.bytes_between_nodes / STEPS,
        "messages": total.messages / STEPS,
        "weights": digest(task.model),
    }


def powersgd(task, seed: int) -> None:
    """Train by DistributedDataParallel with torch's hook, on the same batches and rates."""
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as hooks
    from torch.nn.parallel import DistributedDataParallel

    from scitoolkit.core.processes import current_rank
    from scitoolkit.testing.loaders import TensorLoader
    from scitoolkit.training.optim.schedules import Cosine

    model = DistributedDataParallel(task.model)
    state = hooks.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=10)
    model.register_comm_hook(state, hooks.powerSGD_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    loader = TensorLoader(task.train, BATCH, seed=seed, rank=current_rank(), world_size=RANKS)
    step = epoch = 0
    while step < STEPS:
        loader.set_epoch(epoch)
        for batch in loader:
            if step == STEPS:
                break
            optimizer.param_groups[0]["lr"] = RATE * Cosine(warmup_steps=50).factor(step, STEPS)
            optimizer.zero_grad()
            (model(batch["x"]) - batch["y"]).square().mean().backward()
            optimizer.step()
            step += 1
        epoch += 1


def digest(model) -> str:
    import hashlib

    data = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return hashlib.sha256(data).hexdigest()


def main() -> None:
    """Be one rank: `python -m wire_bytes FOLDER`."""
    import torch
    from _wire_tasks import SURROGATES

    from scitoolkit.core.processes import current_rank
    from scitoolkit.training import TrainingConfig
    from scitoolkit.training.launch import leave
    from scitoolkit.training.processes import gather_objects, process_group

    torch.set_num_threads(1)
    register_naive()
    rows = []
    with process_group(TrainingConfig(device="cpu", batch_size=BATCH, timeout_seconds=120)):
        for surrogate in SURROGATES:
            for way in (*WAYS, "powersgd"):
                for seed in range(SEEDS):
                    all_ranks = gather_objects(trained(way, surrogate, seed))
                    equal = len({each["weights"] for each in all_ranks}) == 1
                    row = {k: v for k, v in all_ranks[0].items() if k != "weights"}
                    rows.append({"surrogate": surrogate, "way": way, "equal": equal, **row})
                if current_rank() == 0:
                    print(surrogate, way, [r["loss"] for r in rows[-SEEDS:]], file=sys.stderr)
    if current_rank() == 0:
        (Path(sys.argv[1]) / "rows.json").write_text(json.dumps(rows))
    leave(0)


def run() -> dict:
    from statistics import mean, stdev

    from _measure import machine
    from exchange_speed import ranks

    with tempfile.TemporaryDirectory() as name:
        if ranks(RANKS, name, module="wire_bytes"):
            raise SystemExit("red gate: a rank failed")
        rows = json.loads((Path(name) / "rows.json").read_text())
    table: dict[str, dict] = {}
    for surrogate in dict.fromkeys(row["surrogate"] for row in rows):
        cases = {
            way: [r for r in rows if (r["surrogate"], r["way"]) == (surrogate, way)]
            for way in dict.fromkeys(row["way"] for row in rows)
        }
        base = cases["full"]
        for way, found in cases.items():
            changes = [100 * (r["loss"] / b["loss"] - 1) for r, b in zip(found, base, strict=True)]
            table.setdefault(way, {})[surrogate] = {
                "loss": mean(r["loss"] for r in found),
                "difference_percent": mean(changes),
                "deviation_percent": stdev(changes),
                "bytes": found[0]["bytes"],
                "messages": found[0]["messages"],
                "ratio": base[0]["bytes"] / found[0]["bytes"],
                "ratio_between_nodes": base[0]["bytes_between_nodes"]
                / found[0]["bytes_between_nodes"],
            }
    return {
        "bytes_ratio_sdp4bit": least(table, "sdp4bit", "ratio"),
        "bytes_ratio_between_nodes": least(table, "sdp4bit", "ratio_between_nodes"),
        "bytes_ratio_error_bounded": least(table, "error_bounded", "ratio"),
        "loss_difference_percent": max(
            cell["difference_percent"] for way in JUDGED for cell in table[way].values()
        ),
        "naive_loss_difference_percent": least(table, "naive", "difference_percent"),
        "ranks_bit_equal": all(row["equal"] for row in rows),
        "exchanges": table,
        "seeds": SEEDS,
        "steps": STEPS,
        **machine(),
    }


def least(table: dict, way: str, key: str) -> float:
    return min(cell[key] for cell in table[way].values())


if __name__ == "__main__":
    main()
