"""Make Rayleigh-Bénard data of any Rayleigh and Prandtl number, size and seed, or check a file.

    python generate.py --seed 42 --start 20 --stop 29.75 --frames 20 --output DIRECTORY
    python generate.py --check FILE [FILE ...]

Making data needs Dedalus 3, in a separate environment (the install lines are in README.md);
checking needs numpy and h5py only. The solver is Dedalus, not scitoolkit's generator
`rayleigh_benard`: convection is chaotic, so another solver, however exact, would not reproduce the
shipped files. A run of several processes is not supported: start several.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

NAMES = {
    "b": "buoyancy (temperature)",
    "p": "kinematic pressure, integ(p)=0",
    "u": "x velocity",
    "w": "z velocity",
}
EQUATIONS = (
    "u_x+w_z=0; b_t-P*(b_xx+b_zz)=-(u*b_x+w*b_z); u_t-R*lap(u)+p_x=-u.grad(u); "
    "w_t-R*lap(w)+p_z-b=-u.grad(w); P=(Ra*Pr)**-0.5; R=(Ra/Pr)**-0.5"
)
WALLS = "b=+0.5 at z=-Lz/2, b=-0.5 at z=+Lz/2, no slip; periodic in x"
CHUNK_FRAMES = 4
SIGNIFICANT_BITS = 21


@dataclass(frozen=True)
class Flow:
    """A cell of height `lz` and length `lx`, in free-fall units, and how it is solved.

    Attributes:
        rayleigh: Rayleigh number.
        prandtl: Prandtl number.
        nx: Fourier points along x.
        nz: Chebyshev points along z.
        lx: length of the period.
        lz: distance of the walls.
        seed: of the noise that starts convection.
        safety: CFL number; 1 overflows on coarse grids.
        max_dt: largest time step.
    """

    rayleigh: float = 1e6
    prandtl: float = 1.0
    nx: int = 256
    nz: int = 64
    lx: float = 4.0
    lz: float = 1.0
    seed: int = 42
    safety: float = 0.5
    max_dt: float = 0.125


def frames(flow: Flow, times: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
    """Solve from rest with noise; yield {p, b, u, w: (nx, nz) float32, x, z} at each of `times`."""
    import dedalus.public as d3

    coords = d3.CartesianCoordinates("x", "z")
    dist = d3.Distributor(coords, dtype=np.float64)
    xbasis = d3.RealFourier(coords["x"], size=flow.nx, bounds=(0, flow.lx), dealias=3 / 2)
    half = flow.lz / 2
    zbasis = d3.ChebyshevT(coords["z"], size=flow.nz, bounds=(-half, half), dealias=3 / 2)
    x, z = dist.local_grids(xbasis, zbasis)
    p, b = (dist.Field(name=name, bases=(xbasis, zbasis)) for name in "pb")
    u = dist.VectorField(coords, name="u", bases=(xbasis, zbasis))
    solver = _solver(d3, dist, coords, (xbasis, zbasis), (p, b, u), flow)
    solver.stop_sim_time = np.inf
    noise = np.random.RandomState(flow.seed).standard_normal((flow.nx, flow.nz))
    b["g"] += 1e-3 * noise * (half - z) * (z + half)
    cfl = d3.CFL(
        solver,
        initial_dt=flow.max_dt,
        cadence=10,
        safety=flow.safety,
        threshold=0.05,
        max_change=1.5,
        min_change=0.5,
        max_dt=flow.max_dt,
    )
    cfl.add_velocity(u)
    for time in times:
        while abs(solver.sim_time - time) > 1e-9:
            step = cfl.compute_timestep()
            # Land on the output time, so that frames are evenly spaced to rounding.
            if solver.sim_time + step >= time - 1e-12:
                step = time - solver.sim_time
            solver.step(step)
            if solver.iteration % 100 == 0 and not np.isfinite(b["g"]).all():
                raise SystemExit(f"overflow at t={solver.sim_time:g}: use a smaller --safety")
        for field in (p, b, u):
            field.change_scales(1)
        values = {"p": p["g"], "b": b["g"], "u": u["g"][0], "w": u["g"][1]}
        yield {k: v.astype(np.float32) for k, v in values.items()} | {
            "x": x.ravel(),
            "z": z.ravel(),
        }


def _solver(d3, dist, coords, bases, fields, flow: Flow):
    """Return the initial-value problem: Boussinesq equations, tau terms, walls, gauge of p."""
    (xbasis, zbasis), (p, b, u) = bases, fields
    tau_p = dist.Field(name="tau_p")
    tau_b1, tau_b2 = (dist.Field(name=f"tau_b{i}", bases=xbasis) for i in (1, 2))
    tau_u1, tau_u2 = (dist.VectorField(coords, name=f"tau_u{i}", bases=xbasis) for i in (1, 2))
    _, ez = coords.unit_vector_fields(dist)

    def lift(tau):
        return d3.Lift(tau, zbasis.derivative_basis(1), -1)

    names = {
        "P": (flow.rayleigh * flow.prandtl) ** -0.5,
        "R": (flow.rayleigh / flow.prandtl) ** -0.5,
        "half": flow.lz / 2,
        "grad_b": d3.grad(b) + ez * lift(tau_b1),
        "grad_u": d3.grad(u) + ez * lift(tau_u1),
        "p": p,
        "b": b,
        "u": u,
        "ez": ez,
        "lift": lift,
        "tau_p": tau_p,
        "tau_b2": tau_b2,
        "tau_u2": tau_u2,
    }
    unknowns = [p, b, u, tau_p, tau_b1, tau_b2, tau_u1, tau_u2]
    problem = d3.IVP(unknowns, namespace=names)
    problem.add_equation("trace(grad_u) + tau_p = 0")
    problem.add_equation("dt(b) - P*div(grad_b) + lift(tau_b2) = - u@grad(b)")
    problem.add_equation("dt(u) - R*div(grad_u) + grad(p) - b*ez + lift(tau_u2) = - u@grad(u)")
    problem.add_equation("b(z=-half) = 0.5")
    problem.add_equation("u(z=-half) = 0")
    problem.add_equation("b(z=half) = -0.5")
    problem.add_equation("u(z=half) = 0")
    problem.add_equation("integ(p) = 0")
    return problem.build_solver(d3.RK222)


def rounded(values: np.ndarray, bits: int = SIGNIFICANT_BITS) -> np.ndarray:
    """Return float32 values rounded to so many significant bits, which makes them compress.

    21 bits are 4.8e-7 relative at most: residuals of the equations keep four digits.
    """
    drop = 24 - bits
    raw = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    kept = (raw + (1 << (drop - 1))) & ~np.uint64((1 << drop) - 1)
    return kept.astype(np.uint32).view(np.float32)


def write(path: Path, states: list[dict[str, np.ndarray]], times: np.ndarray, attrs: dict) -> Path:
    """Write frames as HDF5 with dimension scales t, x, z: (t, x, z) rounded float32, gzip."""
    with h5py.File(path, "w") as file:
        file.attrs.update(attrs)
        scales = {"t": times, "x": states[0]["x"], "z": states[0]["z"]}
        for name, values in scales.items():
            file[name] = values
            file[name].make_scale(name)
            file[name].attrs["units"] = "1"
        for name, meaning in NAMES.items():
            values = rounded(np.stack([state[name] for state in states]))
            data = file.create_dataset(
                name,
                data=values,
                chunks=(min(CHUNK_FRAMES, len(values)), *values.shape[1:]),
                compression="gzip",
                compression_opts=9,
                shuffle=True,
            )
            data.attrs.update(dims="t x z", long_name=meaning, units="1")
            for i, scale in enumerate(scales):
                data.dims[i].attach_scale(file[scale])
    return path


def make(flow: Flow, times: np.ndarray, output: Path, frames_per_file: int) -> list[Path]:
    """Solve and write files of at most `frames_per_file` frames; return them."""
    import dedalus

    attrs = {
        "rayleigh": flow.rayleigh,
        "prandtl": flow.prandtl,
        "Lx": flow.lx,
        "Lz": flow.lz,
        "seed": flow.seed,
        "bc": WALLS,
        "equations": EQUATIONS,
        "z_grid": "Chebyshev-Gauss nodes, not uniform",
        "script": "generate.py, see README.md",
        "solver": f"dedalus {dedalus.__version__} (d3.IVP, RK222, Fourier x Chebyshev z, "
        "dealias 3/2)",
    }
    output.mkdir(parents=True, exist_ok=True)
    states = list(frames(flow, times))
    paths = []
    for first in range(0, len(times), frames_per_file):
        part = slice(first, first + frames_per_file)
        at = f"t{times[part][0]:g}-{times[part][-1]:g}"
        name = f"rb2d_ra{flow.rayleigh:.0e}_pr{flow.prandtl:g}_s{flow.seed}_{at}.h5"
        paths.append(write(output / name.replace("e+0", "e"), states[part], times[part], attrs))
    return paths


def check(path: Path) -> dict[str, float]:
    """Return how far the frames are from what the equations demand of every single frame.

    Returns:
        `divergence`: RMS of u_x + w_z over the RMS of u_x; `walls`: largest |velocity| in the
        row of points nearest to a wall, over the largest anywhere; `pressure`: the volume mean of
        p over its RMS.
    """
    with h5py.File(path) as file:
        b, p, u, w = (file[name][:].astype(np.float64) for name in NAMES)
        x, z = file["x"][:], file["z"][:]
    period = len(x) * (x[1] - x[0])
    wave = 2j * np.pi * np.fft.rfftfreq(len(x), d=period / len(x))
    u_x = np.fft.irfft(wave[:, None] * np.fft.rfft(u, axis=1), n=len(x), axis=1)
    half, order = 0.5 * (z[-1] - z[0]) / np.cos(0.5 * np.pi / len(z)), len(z) - 1
    w_z = (
        np.polynomial.chebyshev.chebval(
            z / half,
            np.polynomial.chebyshev.chebder(
                np.linalg.solve(np.polynomial.chebyshev.chebvander(z / half, order), _rows(w)),
                axis=0,
            ),
        ).reshape(w.shape[0], w.shape[1], -1)
        / half
    )
    if max(abs(b).max(), 0.5) > 0.6 or not all(np.isfinite(v).all() for v in (b, p, u, w)):
        raise SystemExit(f"{path}: buoyancy outside the walls' values, or values not finite")
    speed = np.hypot(u, w)
    weights = np.gradient(z) / np.gradient(z).sum()
    return {
        "divergence": float(np.sqrt(((u_x + w_z) ** 2).mean() / (u_x**2).mean())),
        "walls": float(speed[..., [0, -1]].max() / speed.max()),
        "pressure": float(abs((p @ weights).mean()) / np.sqrt((p**2).mean())),
    }


def _rows(values: np.ndarray) -> np.ndarray:
    """Return (nz, everything else): the Chebyshev direction first."""
    return values.reshape(-1, values.shape[-1]).T


def main() -> None:
    """Run one of the two commands of the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Flow()
    for name, value in vars(default).items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=type(value), default=value, help=f"default {value}")
    parser.add_argument("--start", type=float, default=20.0, help="time of the first frame")
    parser.add_argument("--stop", type=float, default=29.75, help="time of the last frame")
    parser.add_argument("--every", type=float, default=0.25, help="time between frames")
    parser.add_argument("--frames", type=int, default=20, help="frames in a file at most")
    parser.add_argument("--output", type=Path, help="folder to write to")
    parser.add_argument("--check", type=Path, nargs="+", help="files to check instead")
    options = parser.parse_args()
    if options.check:
        for path in options.check:
            print(path, {k: float(f"{v:.3g}") for k, v in check(path).items()})
    elif options.output:
        flow = Flow(**{name: getattr(options, name) for name in vars(default)})
        times = np.arange(options.start, options.stop + options.every / 2, options.every)
        for path in make(flow, times, options.output, options.frames):
            print(path)
    else:
        parser.print_help(sys.stderr)
        raise SystemExit(2)


if __name__ == "__main__":
    main()
