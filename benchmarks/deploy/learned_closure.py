"""A closure of the flux on a coarse grid, trained through the solver and exported to C.

Burgers' equation from random states, viscosity .01, by the generator `pde` on 1,024 cells, averaged
over 64 cells of 16. On these a finite-volume solver has oscillations behind shocks. A network of
the six cells around a face adds to its flux. It is trained by the error of rollouts of 5 to 30
steps, differentiated through the solver, and runs from C in a solver in C. Errors are those of 24
states that neither training nor the choice of a constant has seen, against no closure,
Smagorinsky's with the best constant for the training states, and a scheme with limited slopes
(van Leer 1979) and Godunov's flux, which needs none.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

FINE, CELLS, POINTS, VISCOSITY = 1024, 64, 6, 0.01
DX, DT, FRAMES = 2 * np.pi / CELLS, 0.02, 100
TRAINING, HIDDEN = range(48), range(1000, 1024)
UPDATES, BATCH = 400, 32
Closure = Callable[[Tensor], Tensor]


def truth(seeds: range) -> Tensor:
    """Return averages (states, frames, cells) over the coarse cells of resolved solutions."""
    from scitoolkit.generators.pde import EquationsGenerator

    parts = 8
    generator = EquationsGenerator(
        problem="burgers",
        cells=FINE,
        constants={"nu": VISCOSITY},
        time_step=DT / parts,
        interval=parts,
        spinup=0,
        frames=FRAMES,
        longest=6,
    )
    states = []
    for seed in seeds:
        sample = generator.generate(seed)
        if sample.missed:
            raise RuntimeError(f"state {seed}: {sample.missed}")
        fine = [generator.points(generator.start(seed))[None], sample.frames["u"].values]
        states.append(np.concatenate(fine).reshape(FRAMES + 1, CELLS, -1).mean(-1))
    return torch.tensor(np.array(states), dtype=torch.float32)


class FaceNetwork(nn.Module):
    """The closure's flux (faces, 1) from the cells around each face (faces, 6).

    It is of second degree in the differences of the cells, does not change with a uniform velocity,
    and has the symmetry of the equation under x -> -x, u -> -u.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(POINTS, width), nn.SiLU()),
            *(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)),
        )
        nn.init.zeros_(self.layers[-1].weight)

    def forward(self, cells: Tensor) -> Tensor:
        change = cells - cells.mean(-1, keepdim=True)
        size = change.abs().amax(-1, keepdim=True) + 1e-3
        shape = change / size
        return size * size * (self.layers(shape) + self.layers(-shape.flip(-1)))


def through(network: nn.Module) -> Closure:
    """Return a network as a closure of states (..., cells), at the face after each cell."""

    def closure(u: Tensor) -> Tensor:
        around = [u.roll(POINTS // 2 - 1 - k, -1) for k in range(POINTS)]
        return network(torch.stack(around, -1))[..., 0]

    return closure


def smagorinsky(constant: float) -> Closure:
    """Return the flux -(constant dx)^2 |u_x| u_x (Smagorinsky 1963)."""

    def closure(u: Tensor) -> Tensor:
        slope = (u.roll(-1, -1) - u) / DX
        return -((constant * DX) ** 2) * slope.abs() * slope

    return closure


def limited(u: Tensor) -> Tensor:
    """Return Godunov's flux between slopes limited by van Leer's, minus that of the solver."""
    after = u.roll(-1, -1)
    left, right = u - u.roll(1, -1), after - u
    product = (left * right).clamp(min=0)
    slope = 2 * product / torch.where(product > 0, left + right, 1.0)
    inner, outer = u + slope / 2, after - slope.roll(-1, -1) / 2
    flux = torch.maximum(inner.clamp(min=0).square(), outer.clamp(max=0).square()) / 2
    return flux - (u * u + u * after + after * after) / 6


def rollout(u: Tensor, closure: Closure, steps: int) -> Tensor:
    """Return the states (..., 1 + steps, cells) of the solver in `_closure_solver.c`."""

    def rate(u: Tensor) -> Tensor:
        after = u.roll(-1, -1)
        flux = (u * u + u * after + after * after) / 6 - VISCOSITY * (after - u) / DX + closure(u)
        return (flux.roll(1, -1) - flux) / DX

    states = [u]
    for _ in range(steps):
        first = u + DT * rate(u)
        second = 0.75 * u + 0.25 * (first + DT * rate(first))
        u = u / 3 + 2 / 3 * (second + DT * rate(second))
        states.append(u)
    return torch.stack(states, -2)


def trained(states: Tensor) -> FaceNetwork:
    """Return a network trained by the error of rollouts that lengthen during training."""
    torch.manual_seed(0)
    network = FaceNetwork()
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, UPDATES)
    for update in range(UPDATES):
        steps = (5, 10, 20, 30)[4 * update // UPDATES]
        rows = torch.randint(0, len(states), (BATCH, 1))
        starts = torch.randint(0, FRAMES + 1 - steps, (BATCH, 1))
        wanted = states[rows, starts + torch.arange(steps + 1)]
        made = rollout(wanted[:, 0], through(network), steps)
        loss = (made - wanted).square().mean() / wanted.square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if update % 50 == 0:
            print(update, steps, float(loss.detach().sqrt()), file=sys.stderr, flush=True)
    return network


def in_c(network: nn.Module, starts: Tensor, folder: Path) -> np.ndarray:
    """Return the last states of the solver in C with the network exported to C."""
    from scitoolkit.core.traced import ArraySpec, TracedFunction
    from scitoolkit.deploy.export import export

    specs = [ArraySpec("cells", ("point",), (POINTS,))], [ArraySpec("flux", ("one",), (1,))]
    export([TracedFunction(network, *specs)], folder / "closure.c")
    solver, library = Path(__file__).with_name("_closure_solver.c"), folder / "solver.so"
    command = ["cc", "-O3", "-march=native", "-shared", "-fPIC", f"-I{folder}", "-std=gnu11"]
    command += [str(solver), str(folder / "closure.c"), "-o", str(library), "-lm"]
    subprocess.run(command, check=True)
    advance = ctypes.CDLL(str(library)).advance
    advance.argtypes = [ctypes.c_int64] * 2 + [ctypes.c_float] * 3 + [ctypes.c_void_p]
    states = np.ascontiguousarray(starts.numpy().copy())
    for row in states:
        status = advance(CELLS, FRAMES, DX, DT, VISCOSITY, row.ctypes.data)
        if status != 0:
            raise RuntimeError(f"status {status} from the solver in C")
    return states


def errors(made: Tensor, wanted: Tensor) -> Tensor:
    """Return the rms errors (states, frames) relative to the rms of the states."""
    return ((made - wanted).square().mean(-1) / wanted.square().mean(-1)).sqrt()


def run() -> dict:
    """Return the figures; see the module docstring."""
    from _measure import machine

    training, hidden = truth(TRAINING), truth(HIDDEN)
    constants = np.arange(0, 2, 0.1)

    def error_of(constant: float) -> float:
        with torch.no_grad():
            made = rollout(training[:, 0], smagorinsky(constant), FRAMES)
        return float(errors(made, training).mean().nan_to_num(np.inf))

    constant = float(min(constants, key=error_of))
    network = trained(training)
    closures = {
        "none": smagorinsky(0.0),
        "smagorinsky": smagorinsky(constant),
        "limited_slopes": limited,
        "network": through(network),
    }
    figures: dict = {"smagorinsky_constant": constant}
    with torch.no_grad():
        runs = {name: rollout(hidden[:, 0], c, FRAMES) for name, c in closures.items()}
    for name, made in runs.items():
        of_times = errors(made, hidden)[:, 1:]
        figures[name] = {
            "error": float(of_times.mean()),
            "error_at_end": float(of_times[:, -1].mean()),
            "worst_state": float(of_times.mean(1).max()),
        }
    of_states = {name: errors(made, hidden).mean(1) for name, made in runs.items()}
    own = of_states.pop("network")
    best = torch.stack(list(of_states.values())).amin(0)
    with tempfile.TemporaryDirectory() as folder:
        ends = in_c(network, hidden[:, 0], Path(folder))
    wanted = runs["network"][:, -1].numpy()
    difference = float(np.abs(ends - wanted).max() / np.abs(wanted).max())
    if not difference < 1e-3:
        raise RuntimeError(f"the solver in C differs by {difference:.2g}")
    return {
        **figures,
        "network_over_none": figures["network"]["error"] / figures["none"]["error"],
        "network_over_smagorinsky": figures["network"]["error"] / figures["smagorinsky"]["error"],
        "network_over_limited_slopes": figures["network"]["error"]
        / figures["limited_slopes"]["error"],
        "share_of_states_better_than_all": float((own < best).float().mean()),
        "c_difference": difference,
        "machine": machine(),
    }
