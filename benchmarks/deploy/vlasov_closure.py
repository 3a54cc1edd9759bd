"""Heat flux of electron fluid equations from a network that is trained through their solver.

Moments of Landau-damped waves by the generator `vlasov_landau` are the truth. Density, velocity and
pressure of electrons obey the fluid equations of `_vlasov_fluid.c`, which lack the heat flux. A
network computes it in every cell from temperature, density and velocity of the whole box, so that
it can damp waves of every length as particles do. It is trained by the error of rollouts,
differentiated through the solver, and runs from C in a solver in C. Errors are those over ten
plasma periods at wave numbers and amplitudes that training has not seen, against no heat flux and
the closure of Hammett and Perkins (1990, doi:10.1103/PhysRevLett.64.3019), which is exact for small
frequencies and wave numbers.
"""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

CELLS, DT = 32, 0.1
PERIODS = 10
FRAMES = round(PERIODS * 2 * math.pi / DT)
TRAINING = [(k, a) for k in (0.3, 0.36, 0.42, 0.48, 0.54, 0.6) for a in (0.01, 0.05)]
HIDDEN = [(k, a) for k in (0.33, 0.39, 0.45, 0.51, 0.57) for a in (0.02, 0.04)]
UPDATES, BATCH = 240, 24
Closure = Callable[[Tensor, Tensor], Tensor]
"""Returns the heat flux (..., cells) of states (..., 4, cells) and wave numbers (..., 1)."""


def truth(waves: list[tuple[float, float]]) -> tuple[Tensor, Tensor]:
    """Return states (waves, frames, 4, cells) of n, u, p and E, and wave numbers (waves, 1)."""
    from scitoolkit.generators.vlasov.members import Landau

    states = []
    for wavenumber, amplitude in waves:
        generator = Landau(
            wavenumber=wavenumber,
            amplitude=amplitude,
            cells_x=CELLS,
            duration=FRAMES * DT,
            frames=FRAMES + 1,
        )
        frames = generator.generate(0).frames
        n, u, temperature, field = (frames[name].values for name in ("n", "u", "T", "E"))
        states.append(np.stack([n, u, n * temperature, field], 1))
    return torch.tensor(np.array(states)), torch.tensor(waves, dtype=torch.float64)[:, :1]


def slope(values: Tensor, wavenumber: Tensor) -> Tensor:
    """Return the derivative along the last dim, by central differences of fourth order."""
    near, far = (values.roll(-k, -1) - values.roll(k, -1) for k in (1, 2))
    return (8 * near - far) / (12 * 2 * math.pi / CELLS) * wavenumber


class HeatFlux(nn.Module):
    """The heat flux (cells, 1) from a row of numbers (cells, 3 CELLS + 1) for each cell.

    A row has T - 1, n - 1 and u of all cells, in order from the cell itself, and the wave number. A
    wave of twice the amplitude has twice the flux; the flux has the symmetry of the equations under
    x -> -x, u -> -u.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.linear = nn.Linear(9 * CELLS, 1, bias=False)
        self.layers = nn.Sequential(nn.Linear(3 * CELLS + 1, width), nn.SiLU(), nn.Linear(width, 1))
        for layer in (self.linear, self.layers[-1]):
            nn.init.zeros_(layer.weight)
        mirrored = torch.cat([torch.zeros(1), torch.arange(CELLS - 1, 0, -1)]).long()
        self.register_buffer("order", torch.cat([mirrored + k * CELLS for k in range(3)]))
        signs = torch.ones(3 * CELLS)
        signs[2 * CELLS :] = -1
        self.register_buffer("signs", signs)

    def forward(self, rows: Tensor) -> Tensor:
        wave, k = rows[..., :-1], rows[..., -1:]
        size = wave.abs().amax(-1, keepdim=True) + 1e-9
        shape = wave / size
        return size * (self._flux(shape, k) - self._flux(shape[..., self.order] * self.signs, k))

    def _flux(self, shape: Tensor, k: Tensor) -> Tensor:
        linear = self.linear(torch.cat([shape, shape * k, shape * k * k], -1))
        return linear + self.layers(torch.cat([shape, k], -1))


def rows_of(states: Tensor, wavenumber: Tensor) -> Tensor:
    """Return the rows (..., cells, 3 CELLS + 1) that `HeatFlux` reads."""
    n, u, p = states[..., 0, :], states[..., 1, :], states[..., 2, :]
    places = (torch.arange(CELLS)[:, None] + torch.arange(CELLS)) % CELLS
    waves = [values[..., places] for values in (p / n - 1, n - 1, u)]
    k = wavenumber[..., None].expand(*waves[0].shape[:-1], 1)
    return torch.cat([*waves, k], -1)


def through(network: nn.Module) -> Closure:
    """Return a network as a closure."""
    return lambda states, wavenumber: network(rows_of(states, wavenumber))[..., 0]


def without(states: Tensor, wavenumber: Tensor) -> Tensor:
    """Return no heat flux."""
    return torch.zeros_like(states[..., 0, :])


def hammett_perkins(states: Tensor, wavenumber: Tensor) -> Tensor:
    """Return the flux -sqrt(8 / pi) i sign(k) T_k of each wave k of the temperature."""
    waves = torch.fft.rfft(states[..., 2, :] / states[..., 0, :])
    waves[..., 0] = 0
    return torch.fft.irfft(-1j * math.sqrt(8 / math.pi) * waves, n=CELLS)


def rollout(states: Tensor, wavenumber: Tensor, closure: Closure, steps: int) -> Tensor:
    """Return the states (..., 1 + steps, 4, cells) of the solver in `_vlasov_fluid.c`."""

    def rate(states: Tensor) -> Tensor:
        n, u, p, field = states.unbind(-2)
        flux = closure(states, wavenumber)
        dn, du, dp, dq = (slope(f, wavenumber) for f in (n * u, u, p, flux))
        return torch.stack([-dn, -u * du - dp / n - field, -u * dp - 3 * p * du - dq, n * u], -2)

    made = [states]
    for _ in range(steps):
        first = states + DT * rate(states)
        second = 0.75 * states + 0.25 * (first + DT * rate(first))
        states = states / 3 + 2 / 3 * (second + DT * rate(second))
        made.append(states)
    return torch.stack(made, -3)


def trained(states: Tensor, wavenumbers: Tensor) -> HeatFlux:
    """Return a network trained by the error of rollouts that lengthen during training."""
    torch.manual_seed(0)
    network = HeatFlux().double()
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, UPDATES)
    rest = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64)[:, None]
    for update in range(UPDATES):
        steps = (5, 10, 20, 40)[4 * update // UPDATES]
        rows = torch.randint(0, len(states), (BATCH, 1))
        starts = torch.randint(0, FRAMES + 1 - steps, (BATCH, 1))
        wanted = states[rows, starts + torch.arange(steps + 1)]
        made = rollout(wanted[:, 0], wavenumbers[rows[:, 0]], through(network), steps)
        scale = (wanted - rest).square().mean((1, 2, 3), keepdim=True)
        loss = ((made - wanted).square() / scale).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if update % 25 == 0:
            print(update, steps, float(loss.detach().sqrt()), file=sys.stderr, flush=True)
    return network


def in_c(network: nn.Module, starts: Tensor, wavenumbers: Tensor, folder: Path) -> np.ndarray:
    """Return the last states of the solver in C with the network exported to C."""
    from scitoolkit.core.traced import ArraySpec, TracedFunction
    from scitoolkit.deploy import ExportConfig
    from scitoolkit.deploy.export import export

    specs = [ArraySpec("rows", ("number",), (3 * CELLS + 1,))], [ArraySpec("q", ("one",), (1,))]
    function = TracedFunction(network, *specs)
    export([function], folder / "heat_flux.c", ExportConfig(dtype="float64"))
    solver, library = Path(__file__).with_name("_vlasov_fluid.c"), folder / "solver.so"
    command = ["cc", "-O3", "-march=native", "-shared", "-fPIC", f"-I{folder}", "-std=gnu11"]
    command += [str(solver), str(folder / "heat_flux.c"), "-o", str(library), "-lm"]
    subprocess.run(command, check=True)
    advance = ctypes.CDLL(str(library)).advance
    advance.argtypes = [ctypes.c_int64, ctypes.c_double, ctypes.c_double, ctypes.c_void_p]
    states = np.ascontiguousarray(starts.numpy().copy())
    for state, wavenumber in zip(states, wavenumbers[:, 0], strict=True):
        status = advance(FRAMES, DT, float(wavenumber), state.ctypes.data)
        if status != 0:
            raise RuntimeError(f"status {status} from the solver in C")
    return states


def errors(made: Tensor, wanted: Tensor) -> Tensor:
    """Return the rms error (waves,) of E over all frames, relative to its rms."""
    difference = (made - wanted)[:, :, 3].square().mean((1, 2))
    return (difference / wanted[:, :, 3].square().mean((1, 2))).sqrt()


def run() -> dict:
    """Return the figures; see the module docstring."""
    from _measure import machine

    training, hidden = truth(TRAINING), truth(HIDDEN)
    network = trained(*training)
    closures = {
        "none": without,
        "hammett_perkins": hammett_perkins,
        "network": through(network),
    }
    wanted, wavenumbers = hidden
    with torch.no_grad():
        runs = {n: rollout(wanted[:, 0], wavenumbers, c, FRAMES) for n, c in closures.items()}
    figures: dict = {}
    for name, made in runs.items():
        of_waves = errors(made, wanted).nan_to_num(math.inf)
        figures[name] = {"error": float(of_waves.mean()), "worst_wave": float(of_waves.max())}
    print(figures, file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        ends = in_c(network, wanted[:, 0], wavenumbers, Path(folder))
    last = runs["network"][:, -1].numpy()
    difference = float(np.abs(ends - last).max() / np.abs(wanted[:, 0, 3].numpy()).max())
    if not difference < 1e-6:
        raise RuntimeError(f"the solver in C differs by {difference:.2g}")
    return {
        **figures,
        "plasma_periods": PERIODS,
        "network_over_none": figures["network"]["error"] / figures["none"]["error"],
        "network_over_hammett_perkins": figures["network"]["error"]
        / figures["hammett_perkins"]["error"],
        "c_difference": difference,
        "machine": machine(),
    }
