"""Jorge, AdamW, SOAP and Shampoo on one regression; run by `second_order.py`."""

from __future__ import annotations

import importlib.metadata
import json
import math
import statistics
import time

import pytorch_optimizer
import torch
from torch import nn

from scitoolkit.training.optim.jorge import JorgeDescent

STEPS, BATCH, TRAIN, SEEDS, EVERY = 240, 256, 3072, (0, 1, 2), 5
MAKERS = {
    "sgd": (lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9), (0.03, 0.1, 0.3)),
    "adamw": (lambda p, lr: torch.optim.AdamW(p, lr), (1e-3, 3e-3, 1e-2)),
    "soap": (lambda p, lr: pytorch_optimizer.SOAP(p, lr, weight_decay=0.0), (3e-3, 1e-2, 3e-2)),
    "shampoo": (
        lambda p, lr: pytorch_optimizer.ScalableShampoo(
            p, lr, start_preconditioning_step=5, preconditioning_compute_steps=10, graft_type=1
        ),
        (0.03, 0.1, 0.3),
    ),
    "jorge": (lambda p, lr: JorgeDescent(p, lr), (0.03, 0.1, 0.3)),
}


def problem(seed: int):
    """Three smooth functions of eight inputs, of scales from 1 to 10 as physical inputs have."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(4096, 8, generator=generator) * 2 - 1
    y = torch.stack(
        [
            (3 * x[:, 0] * x[:, 1]).sin() + x[:, 2] ** 2,
            (x[:, 3:6].sum(1) * 2).cos() * x[:, 6],
            (-4 * (x[:, :4] - x[:, 4:]).square().sum(1)).exp(),
        ],
        1,
    )
    x = x * torch.logspace(0, 1, 8)
    return (x - x.mean(0)) / x.std(), (y - y.mean(0)) / y.std(0)


def train(make, seed: int) -> list[tuple[float, float]]:
    """Return (CPU seconds of steps, test loss) every few steps."""
    torch.manual_seed(seed)
    layers = nn.Linear(8, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 3)
    model = nn.Sequential(*layers)
    x, y = problem(seed)
    optimizer = make(model.parameters())
    rates = [group["lr"] for group in optimizer.param_groups]
    generator = torch.Generator().manual_seed(seed + 1)
    spent, log = 0.0, []
    for step in range(STEPS):
        index = torch.randint(TRAIN, (BATCH,), generator=generator)
        begun = time.process_time()
        factor = 1 if step < STEPS * 2 / 3 else 0.1 if step < STEPS * 5 / 6 else 0.01
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor
        optimizer.zero_grad()
        (model(x[index]) - y[index]).square().mean().backward()
        optimizer.step()
        spent += time.process_time() - begun
        if step % EVERY == EVERY - 1:
            with torch.no_grad():
                log.append((spent, float((model(x[TRAIN:]) - y[TRAIN:]).square().mean())))
    return log


def _median_loss(runs) -> float:
    losses = [log[-1][1] for log in runs]
    return statistics.median(losses) if all(map(math.isfinite, losses)) else math.inf


def main() -> None:
    torch.set_num_threads(1)
    found: dict[str, list] = {}
    rates = {}
    for name, (make, tried) in MAKERS.items():
        logs = {
            lr: [train(lambda p, lr=lr, make=make: make(p, lr), seed) for seed in SEEDS]
            for lr in tried
        }
        # A rate that diverges at one seed is not one that a user would keep.
        kept = {lr: runs for lr, runs in logs.items() if math.isfinite(_median_loss(runs))}
        rates[name] = min(kept, key=lambda lr, kept=kept: _median_loss(kept[lr]))
        found[name] = kept[rates[name]]
    out: dict[str, object] = {}
    for rival in ("shampoo", "adamw", "soap"):
        ratios = []
        for mine, theirs in zip(found["jorge"], found[rival], strict=True):
            end, goal = theirs[-1]
            hit = next((spent for spent, loss in mine if loss <= goal), float("inf"))
            ratios.append(hit / end)
        middle = statistics.median(ratios)
        out[f"jorge_over_{rival}"] = middle if middle < float("inf") else None
    out["rivals"] = {
        name: {
            "rate": rates[name],
            "loss": _median_loss(logs),
            "ms_per_step": 1e3 * statistics.median(log[-1][0] for log in logs) / STEPS,
        }
        for name, logs in found.items()
    }
    out["pytorch_optimizer"] = importlib.metadata.version("pytorch-optimizer")
    print(json.dumps(out))


if __name__ == "__main__":
    main()
