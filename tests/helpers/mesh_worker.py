"""A rank that trains a small network in float64 on a mesh and writes its whole weights."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scitoolkit.core.config import Config
from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.emulation.models.config import models
from scitoolkit.emulation.models.mlp import MLP
from scitoolkit.emulation.models.transformer import FieldTransformer
from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.training import Trainer, TrainingConfig
from scitoolkit.training.launch import current_rank, leave
from scitoolkit.training.processes import process_group
from scitoolkit.training.strategies.mesh.division import Division, Stage
from scitoolkit.training.strategies.mesh.experts import ExpertLayer, divided_experts
from scitoolkit.training.traffic import TrafficCounter

SAMPLES, INPUTS, OUTPUTS = 16, 2, 2


class TwoSteps:
    """Task that calls the network twice, as a rollout does, and draws noise."""

    def __init__(self, network: nn.Module, *, noise: float) -> None:
        self.model: nn.Module = network
        self.noise = noise

    def loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        x = batch["x"] + self.noise * torch.randn_like(batch["x"])
        one = self.model(x)
        loss = (one - batch["y"]).square().mean() + 0.3 * self.model(one).square().mean()
        return loss, {"first": (one - batch["y"]).abs().mean()}

    def metrics(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"loss": self.loss(batch)[0]}

    def batch_size(self, batch: dict[str, Tensor]) -> int:
        return len(batch["x"])


class FusedHeads(nn.Module):
    """A network whose declaration divides the rows of one matrix of several parts."""

    def __init__(self):
        super().__init__()
        self.fused, self.last = nn.Linear(2, 8), nn.Linear(4, 2)

    def forward(self, x, condition=None):
        one, two = self.fused(x).chunk(2, -1)
        return self.last(one * two.sin())

    def division(self):
        return {"fused": Division(outputs="y"), "last": Division(inputs="y")}


class PartialGain(nn.Module):
    """A network that does not declare that a gain is applied to a part of the values."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 8), nn.Linear(8, 2)
        self.gain = nn.Linear(1, 1)

    def forward(self, x, condition=None):
        return self.last(self.gain(self.first(x).unsqueeze(-1)).squeeze(-1).sin())

    def division(self):
        return {"first": Division(outputs="y"), "last": Division(inputs="y")}


class OneStage(FusedHeads):
    def stages(self):
        return [Stage(("fused", "last"), lambda h, x, condition: self(x))]


def refusal(name: str) -> dict[str, str]:
    """Train a network that does not fit two processes; return the error."""
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(2, 2))
    if name == "heads":
        model = FieldTransformer(2, 2, ["circular"], width=24, heads=3, blocks=1, patch=1)
    elif name == "odd experts":
        model = FieldTransformer(2, 2, ["circular"], width=8, heads=1, blocks=1, experts=3)
    elif name != "undeclared":
        networks = {"fused": FusedHeads, "partial": PartialGain, "stages": OneStage}
        model = networks.get(name, lambda: MLP(2, 2))()
    meshes = {"no grid": {"tensor": [2, 1, 1]}, "stages": {"pipeline": 2}}
    meshes |= {"no experts": {"expert": 2}, "odd experts": {"expert": 2}}
    mesh = meshes.get(name, {"tensor": 2})
    if name == "no grid":
        model = FusedHeads()
    x = torch.randn(8, 2, 6) if name == "heads" else torch.randn(8, 2)
    config = TrainingConfig(
        strategy="mesh", mesh=mesh, steps=1, batch_size=8, device="cpu", progress=False
    )
    rank, shares = (current_rank(), 2) if name == "shares" else config.share_of_batch()
    loader = TensorLoader({"x": x, "y": x}, 8, rank=rank, world_size=shares)
    try:
        Trainer(TwoSteps(model, noise=0.0), config).fit(loader)
    except ScitoolkitError as error:
        return {"error": str(error)}
    return {"error": ""}


def experts_apart() -> dict[str, float]:
    """Compare experts on two processes with those of one, for uneven numbers of rows."""
    config = TrainingConfig(strategy="ddp", device="cpu")
    with process_group(config):
        rank = current_rank()
        torch.manual_seed(0)
        whole = ExpertLayer(32, 8, experts=4, chosen=2).double()
        sizes = [100, 180]
        rows = torch.randn(sum(sizes), 32, dtype=torch.float64)
        expected = whole(rows)
        expected.square().sum().backward()
        part = ExpertLayer(32, 8, experts=4, chosen=2).double()
        part.load_state_dict(whole.state_dict())
        own = slice(2 * rank, 2 * rank + 2)
        part.into = nn.Parameter(part.into.detach()[own].clone())
        part.out = nn.Parameter(part.out.detach()[own].clone())
        mine = rows.split(sizes)[rank].clone().requires_grad_()
        counter = TrafficCounter()
        with counter.counting():
            out = divided_experts(part, torch.distributed.group.WORLD)(mine)
            out.square().sum().backward()
        _, which = whole.routes(rows)
        homes = [(chosen // 2).flatten() for chosen in which.split(sizes)]
        away = sum(int((home != k).sum()) for k, home in enumerate(homes))
    assert part.into.grad is not None
    assert whole.into.grad is not None
    pairs = [(out, expected.split(sizes)[rank]), (part.into.grad, whole.into.grad[own])]
    errors = [float(((a - b).abs().max() / b.abs().max()).detach()) for a, b in pairs]
    return {"error": max(errors), "bytes": counter.total().bytes, "formula": 8 * 2 * away * 32}


def trained(case: dict[str, Any]) -> dict[str, Tensor]:
    """Train as a case describes; return the weights, the best loss and the gradient norm.

    Args:
        case: `model` and `padding` of the network, `training` section, and optionally `noise`,
            `run` (a folder) and `resume`.
    """
    torch.manual_seed(current_rank())  # strategies give all ranks the weights of rank 0
    model, padding = models.get(case["model"]["name"]), case["padding"]
    network = model.model_validate(case["model"]).build(INPUTS, OUTPUTS, padding).double()
    for parameter in network.parameters():  # not zero, so that every gradient counts
        with torch.no_grad():
            parameter.add_(0.1 * torch.randn_like(parameter))
    config = TrainingConfig.model_validate(
        {
            "optimizer": {"name": "adamw", "lr": 0.02},
            "batch_size": 8,
            "clip_norm": 0.1,
            "steps": 3,
            "device": "cpu",
            "progress": False,
            "timeout_seconds": 60,
            "log_every": 1,
            **case["training"],
        }
    )
    generator = torch.Generator().manual_seed(9)
    size = [8, 6][: len(padding)]
    x = torch.randn(SAMPLES, INPUTS, *size, generator=generator, dtype=torch.float64)
    with process_group(config):
        rank, shares = config.share_of_batch()
        data = {"x": x, "y": x.flip(1).sin()}
        loaders = [TensorLoader(data, 8, rank=rank, world_size=shares) for _ in range(2)]
        run = None
        if "run" in case and current_rank() == 0:
            folder = Path(case["run"])
            resume = bool(case.get("resume"))
            run = RunDirectory(folder) if resume else RunDirectory.create(folder, "run", Config())
        trainer = Trainer(TwoSteps(network, noise=case.get("noise", 0.0)), config, run=run)
        trainer.fit(*loaders, resume=bool(case.get("resume")))
    assert trainer.best is not None
    state = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
    return {**state, "best loss": torch.tensor(trainer.best["loss"], dtype=torch.float64)}


def main() -> int:
    """Run one rank; the exit code is that of its error."""
    folder, cases = Path(sys.argv[1]), json.loads(sys.argv[2])
    try:
        for number, case in enumerate(cases):
            result: Any = experts_apart() if "apart" in case else None
            if result is None:
                result = refusal(case["refused"]) if "refused" in case else trained(case)
            torch.save(result, folder / f"{number}-{current_rank()}.pt")
    except ScitoolkitError as error:
        (folder / f"error-{current_rank()}").write_text(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    leave(main())
