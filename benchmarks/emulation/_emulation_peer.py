"""Peers of the emulators, trained for some CPU seconds: neuraloperator, the Well, PhysicsNeMo.

`python _emulation_peer.py NAME PROBLEM.npz RATES TRIAL SECONDS OUTPUT.npz` runs in the peers'
environment: a trial for each rate, then one training at the best. Training follows the Well (AdamW,
weight decay 1e-4, warm-up and cosine, mean squared error, normalised fields), except that the
increment of a step is learned, which is the easier target.
"""

from __future__ import annotations

import json
import math
import re
import sys
import sysconfig
import time
import types
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

WARM_UP, WEIGHT_DECAY, CHECKS = 0.05, 1e-4, 8


def network(name: str, channels: int, grid: tuple[int, ...]) -> nn.Module:
    """Return a peer of 1 to 2 million parameters for a grid of one or two dims."""
    flat = len(grid) == 1
    if name in ("fno", "tfno"):
        from neuralop.models import FNO, TFNO

        if name == "fno":
            modes, width = ((32,), 96) if flat else ((16, 16), 32)
            return FNO(
                n_modes=modes,
                in_channels=channels,
                out_channels=channels,
                hidden_channels=width,
                n_layers=4,
            )
        modes, width = ((32,), 208) if flat else ((32, 16), 64)
        return TFNO(
            n_modes=modes,
            in_channels=channels,
            out_channels=channels,
            hidden_channels=width,
            n_layers=4,
            factorization="tucker",
            rank=0.1,
        )
    if name.startswith("physicsnemo"):
        _without_torchvision()
    if name == "physicsnemo_fno":
        from physicsnemo.models.fno import FNO as DimFNO

        return DimFNO(
            channels,
            channels,
            dimension=len(grid),
            latent_channels=96,
            num_fno_layers=4,
            num_fno_modes=32,
            padding=0,
        )
    if name == "physicsnemo_afno":
        from physicsnemo.models.afno import AFNO

        return AFNO(list(grid), channels, channels, [4, 4], embed_dim=192, depth=4, num_blocks=8)
    _without_timm()
    from the_well.benchmark.models import UNetClassic, UNetConvNext

    if name == "unet_classic":
        return UNetClassic(channels, channels, len(grid), grid, init_features=26 if flat else 16)
    return UNetConvNext(channels, channels, len(grid), grid, blocks_per_stage=1, init_features=16)


def _without_torchvision() -> None:
    """Declare torchvision's operators, none of which is used: it has none for a torch of CPUs."""
    if _DECLARED:
        return
    packages = Path(sysconfig.get_paths()["purelib"])
    source = (packages / "torchvision" / "_meta_registrations.py").read_text()
    operators = set(re.findall(r'register_meta\("(\w+)"', source))
    library = torch.library.Library("torchvision", "DEF")
    for name in operators | set(re.findall(r'torchvision::(\w+)"', source)):
        library.define(f"{name}(Tensor x) -> Tensor")
    _DECLARED.append(library)


_DECLARED: list[object] = []
"""Libraries of operators, which end with their objects."""


def _without_timm() -> None:
    """Put `DropPath` where the Well's models look for it: timm needs torchvision on CPU torch."""
    for module in ("timm", "timm.layers", "timm.models", "timm.models.layers"):
        stub = types.ModuleType(module)
        stub.DropPath = nn.Identity
        stub.trunc_normal_ = nn.init.trunc_normal_
        sys.modules.setdefault(module, stub)


class Residual(nn.Module):
    """Normalised state to the next state, by the normalised change."""

    def __init__(self, net: nn.Module, train: Tensor) -> None:
        super().__init__()
        shape = (1, -1, *([1] * (train.ndim - 3)))
        dims = [d for d in range(train.ndim) if d != 2]
        change = train[:, 1:] - train[:, :-1]
        self.net = net
        self.register_buffer("mean", train.mean(dims).view(shape))
        self.register_buffer("scale", train.std(dims).view(shape))
        self.register_buffer("step", change.square().mean(dims).sqrt().view(shape))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.step * self.net((x - self.mean) / self.scale)


def fit(model: Residual, problem: dict, rate: float, seconds: float) -> tuple[int, float]:
    """Train for a number of CPU seconds with the best validated weights; return steps and loss."""
    train, validation = (torch.from_numpy(problem[n]) for n in ("train", "validation"))
    batch = int(problem["batch"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=WEIGHT_DECAY)
    generator = torch.Generator().manual_seed(0)
    best, kept, steps, checks = math.inf, tensors(model), 0, 0
    begin = time.process_time()
    while (share := (time.process_time() - begin) / seconds) < 1:
        for group in optimizer.param_groups:
            cosine = 0.5 * (1 + math.cos(math.pi * share))
            group["lr"] = rate * (share / WARM_UP if share < WARM_UP else cosine)
        which = torch.randint(len(train), (batch,), generator=generator)
        when = torch.randint(train.shape[1] - 1, (batch,), generator=generator)
        x, y = train[which, when], train[which, when + 1]
        model.train()
        optimizer.zero_grad(set_to_none=True)
        loss = ((model(x) - y) / model.step).square().mean()
        loss.backward()
        optimizer.step()
        steps += 1
        if share * CHECKS > checks + 1:
            checks += 1
            found = validate(model, validation, batch)
            if found < best:
                best = found
                kept = tensors(model)
    found = validate(model, validation, batch)
    if found > best:
        model.load_state_dict(kept)
    return steps, min(found, best)


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the weights and buffers; neuraloperator's state also holds a dict."""
    return {n: t.clone() for n, t in model.state_dict().items() if isinstance(t, Tensor)}


def validate(model: Residual, data: Tensor, batch: int) -> float:
    """Return the mean squared one-step error over the typical change."""
    model.eval()
    pairs = [(data[i, :-1], data[i, 1:]) for i in range(len(data))]
    with torch.no_grad():
        errors = [
            ((model(x) - y) / model.step).square().mean()
            for first, second in pairs
            for x, y in zip(first.split(4 * batch), second.split(4 * batch), strict=True)
        ]
    found = float(torch.stack(errors).mean())
    return found if math.isfinite(found) else math.inf


def forecasts(model: Residual, test: Tensor, steps: int) -> dict[str, np.ndarray]:
    """Return one step from every frame, and a rollout from the first one of every trajectory."""
    model.eval()
    with torch.no_grad():
        one = torch.stack([torch.cat([model(x) for x in run[:-1].split(8)]) for run in test])
        state, frames = test[:, 0], []
        for _ in range(steps):
            state = model(state)
            frames.append(state)
    return {"one_step": one.numpy(), "rollout": torch.stack(frames, 1).numpy()}


def main(name: str, source: str, rates: str, trial: str, seconds: str, output: str) -> None:
    torch.set_num_threads(1)
    with np.load(source) as file:
        problem = dict(file)

    def model_at_start() -> Residual:
        torch.manual_seed(0)
        net = network(name, problem["train"].shape[2], problem["train"].shape[3:])
        return Residual(net, torch.from_numpy(problem["train"]))

    chosen = [float(rate) for rate in rates.split(",")]
    trials = [fit(model_at_start(), problem, rate, float(trial))[1] for rate in chosen]
    rate = chosen[int(np.argmin(trials))]
    model = model_at_start()
    net = model.net
    begin = time.process_time()
    steps, loss = fit(model, problem, rate, float(seconds))
    record = {
        "rate": rate,
        "trials": trials,
        "validation": loss,
        "steps": steps,
        "cpu_seconds": time.process_time() - begin,
        "parameters": sum(p.numel() * (1 + p.is_complex()) for p in net.parameters()),
    }
    found = forecasts(model, torch.from_numpy(problem["test"]), int(problem["steps"]))
    np.savez(Path(output), **found)
    print(json.dumps(record))


if __name__ == "__main__":
    main(*sys.argv[1:])
