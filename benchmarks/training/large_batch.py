"""Loss after training with 4 and 16 times as many samples per step, without retuning.

A surrogate of three smooth functions is trained with LAMB at its default rate and LEGW at 1, 4 and
16 times the batch, for the same number of epochs, with three seeds. A difference is the mean over
seeds of the loss on unseen samples over that at 1 times the batch, minus one. The same is reported
for AdamW, with the step counts.
"""

from __future__ import annotations

BASE, EPOCHS, WARMUP, SEEDS = 32, 40, 1.0, 3
RATIOS = (1, 4, 16)
OPTIMIZERS = {"lamb": {"name": "lamb"}, "adamw": {"name": "adamw", "lr": 1e-3}}


def trained(optimizer: dict, ratio: int, seed: int) -> tuple[float, int]:
    """Return the loss on the test samples, and the steps."""
    import torch
    from _wire_tasks import functions

    from scitoolkit.testing.loaders import TensorLoader
    from scitoolkit.training import Trainer, TrainingConfig

    task, batch = functions(seed), BASE * ratio
    config = TrainingConfig.model_validate(
        {
            "epochs": EPOCHS,
            "batch_size": batch,
            "seed": seed,
            "progress": False,
            "device": "cpu",
            "log_every": 10**6,
            "optimizer": optimizer,
            "schedule": {"name": "legw", "base_samples": BASE, "warmup_epochs": WARMUP},
        }
    )
    trainer = Trainer(task, config)
    trainer.fit(TensorLoader(task.train, batch, seed=seed))
    with torch.no_grad():
        return float(task.metrics(task.test)["loss"]), trainer.step


def run() -> dict:
    from statistics import mean

    import torch
    from _measure import machine

    torch.set_num_threads(1)
    table: dict[str, dict] = {}
    for name, optimizer in OPTIMIZERS.items():
        found = {k: [trained(optimizer, k, seed) for seed in range(SEEDS)] for k in RATIOS}
        table[name] = {
            str(k): {
                "loss": mean(loss for loss, _ in runs),
                "steps": runs[0][1],
                "difference_percent": 100
                * mean(a / b - 1 for (a, _), (b, _) in zip(runs, found[1], strict=True)),
            }
            for k, runs in found.items()
        }
    return {
        **{
            f"loss_difference_{k}x_percent": table["lamb"][str(k)]["difference_percent"]
            for k in RATIOS[1:]
        },
        "optimizers": table,
        "base_samples": BASE,
        "epochs": EPOCHS,
        "seeds": SEEDS,
        **machine(),
    }
