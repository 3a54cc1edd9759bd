"""A rank of `mesh_strategy.py`: trains a network on a mesh and counts what it receives.

Formulas, for a rank in a step, with b = 8 bytes and p(P) = (P - 1) / P. Products: those of
`scitoolkit.training.strategies.mesh.grid`. Pipeline: activations from the stage before, their
gradients from the one after, and the output of the network on all stages but the last. Gradients
that are not those of products: an all-reduce over the ranks with other samples, one number more for
each parameter, which tells whether it has a gradient. Experts: a row is received by the rank of its
expert, its result by the rank of the row, and the gradients of both again; the numbers of rows come
from the layers' routes, and each exchange begins with the counts of all experts.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import torch
from torch import nn

BATCHES = {"fields": 16, "experts": 16, "vectors": 128}
STEPS, CELLS, PATCH, WIDTH, CHANNELS = 3, 16, 2, 32, 2
LAYERS, HIDDEN, EXPERTS = 6, 64, 8


class Fit:
    """Task with the mean squared error."""

    def __init__(self, network: nn.Module) -> None:
        self.model = network

    def loss(self, batch):
        return (self.model(batch["x"]) - batch["y"]).square().mean(), {}

    def metrics(self, batch):
        return {"loss": self.loss(batch)[0]}

    def batch_size(self, batch):
        return len(batch["x"])


def trained(case: dict) -> dict:
    """Train on this rank; return weights, and bytes and all-reduces of a step."""
    from scitoolkit.core.processes import world_size
    from scitoolkit.emulation.models.mlp import MLP
    from scitoolkit.emulation.models.transformer import FieldTransformer
    from scitoolkit.testing.loaders import TensorLoader
    from scitoolkit.training import Trainer, TrainingConfig
    from scitoolkit.training.callbacks import Callback
    from scitoolkit.training.processes import process_group
    from scitoolkit.training.strategies.mesh.experts import expert_layers
    from scitoolkit.training.traffic import TrafficCounter

    counter, blocks, batch = TrafficCounter(), case.get("blocks", 4), BATCHES[case["network"]]
    is_fields = case["network"] != "vectors"
    routed: list[torch.Tensor] = []  # rows by expert, of each call of a layer

    class FromSecondStep(Callback):
        """Counts from the second step on: the first also compares with the whole network."""

        wants_every_step = True

        def on_step(self, trainer) -> None:
            if trainer.step == 1:
                self.context = counter.counting()
                self.context.__enter__()
                routed.clear()
            if trainer.step == STEPS:
                self.context.__exit__(None, None, None)

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    if is_fields:
        padding = ["circular", "circular"]
        sizes = {"width": WIDTH, "heads": 4, "patch": PATCH, "blocks": blocks}
        sizes["experts"] = EXPERTS if case["network"] == "experts" else 1
        network: nn.Module = FieldTransformer(CHANNELS, CHANNELS, padding, **sizes)
        shape = (CHANNELS, CELLS, CELLS)
    else:
        network, shape = MLP(HIDDEN, HIDDEN, width=HIDDEN, layers=LAYERS - 1), (HIDDEN,)
    for layer in expert_layers(network).values():
        record = partial(_record, routed, layer.chosen)
        layer.router.register_forward_hook(record)
    x = torch.randn(batch, *shape, generator=generator, dtype=torch.float64)
    config = TrainingConfig(
        strategy="mesh" if case["mesh"] else "auto",
        mesh=case["mesh"],
        steps=STEPS,
        batch_size=batch,
        clip_norm=0.1,
        optimizer={"name": "adamw", "lr": 1e-2},
        device="cpu",
        progress=False,
        log_every=STEPS + 1,
        checkpoint={"every_epochs": None},
    )
    with process_group(config):
        rank, shares = config.share_of_batch()
        loader = TensorLoader({"x": x, "y": x.flip(1).sin()}, batch, rank=rank, world_size=shares)
        task = Fit(network.double())
        Trainer(task, config, callbacks=[FromSecondStep()]).fit(loader)
    weights = {n: p.detach().clone() for n, p in task.model.named_parameters()}
    calls = counter.by_collective.get("all_reduce")
    out = {"weights": weights, "bytes": counter.total().bytes / (STEPS - 1)}
    out["calls"] = calls.calls / (STEPS - 1) if calls else 0
    if world_size() > 1:
        # Before the formula, which sends a sample through the network to measure its products.
        out["rows"] = torch.stack(routed) if routed else torch.zeros(0, EXPERTS)
        out["formula"] = formula(task.model, config.mesh, case["network"])
    return out


def _record(routed: list, chosen: int, module: nn.Module, inputs: tuple, output) -> None:
    routed.append(output.topk(chosen, -1).indices.flatten().bincount(minlength=EXPERTS))


def formula(network: nn.Module, mesh, kind: str) -> float:
    """Return the bytes that this rank receives in a step."""
    from scitoolkit.core.processes import current_rank, world_size
    from scitoolkit.training.strategies.mesh.experts import expert_layers
    from scitoolkit.training.strategies.mesh.grid import product_numbers, ring
    from scitoolkit.training.strategies.mesh.pipeline import balanced_stages
    from scitoolkit.training.strategies.mesh.plan import measured_products

    data, grid, stages = mesh.shares(world_size()), mesh.grid, mesh.pipeline
    samples = data * grid[2]
    shape = (1, HIDDEN) if kind == "vectors" else (1, CHANNELS, CELLS, CELLS)
    in_experts = (
        {f"{name}.{part}" for name in expert_layers(network) for part in ("into", "out")}
        if mesh.expert > 1
        else set()
    )
    products = measured_products(network, torch.zeros(shape, dtype=torch.float64))
    place = current_rank() // (world_size() // stages)
    own = set(dict(network.named_modules()))
    if stages > 1:
        declared = network.stages()
        numbers = balanced_stages([stage.cost for stage in declared], stages)[place]
        own = {name for i in numbers for name in declared[i].modules}
    here = [n for n in dict(network.named_parameters()) if any(n.startswith(f"{m}.") for m in own)]
    total, in_products = 0.0, set()
    for name, product in products.items():
        if any(f"{name}.".startswith(f"{m}.") for m in own):
            total += product_numbers(product, BATCHES[kind], data, grid)
            in_products |= {n for n in here if n.startswith(f"{name}.") and n.endswith("weight")}
    axes = dict(zip("xyz", grid, strict=True))
    for name, parameter in network.named_parameters():
        if name not in here:
            continue
        owner = next((p for n, p in products.items() if name.startswith(f"{n}.")), None)
        over_z = owner is not None and name in in_products and grid[2] > 1
        group = data if over_z else samples
        if name in in_experts:
            total += 2 * (1 + parameter.numel() / mesh.expert) * ring(data // mesh.expert)
            continue
        total += 2 * ring(group)  # whether it has a gradient
        if name in in_products:
            continue
        parts = axes.get(owner.division.outputs, 1) if owner is not None else 1
        total += 2 * parameter.numel() / parts * ring(group)
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            total += 2 * (parameter.numel() + 1) * ring(grid[1])
    if stages > 1:
        share = BATCHES[kind] / samples
        activations = share * (CELLS // PATCH) ** 2 * WIDTH
        total += activations * ((place > 0) + (place < stages - 1))
        total += share * CHANNELS * CELLS**2 * (place < stages - 1)
    return 8 * total


def main() -> None:
    """Run the cases of one rank."""
    folder, cases = Path(sys.argv[1]), json.loads(sys.argv[2])
    for number, case in enumerate(cases):
        from scitoolkit.core.processes import current_rank

        torch.save(trained(case), folder / f"{number}-{current_rank()}.pt")


if __name__ == "__main__":
    from scitoolkit.training.launch import leave

    main()
    leave(0)
