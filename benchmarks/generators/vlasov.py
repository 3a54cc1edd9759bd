"""Vlasov: ns per degree of freedom and stage against numba and NumPy, rates, conservation, order.

The peers run on the same 1X1V grid (64 x 256 cells, degree 2) in the same call; 1X2V runs on a grid
with as many degrees of freedom and on one whose state exceeds the second-level cache. Peers: numba
in the environment of `make peers` (a collocated, aliased nodal scheme), and NumPy with dense modal
matrices by BLAS. Gkeyll's kernels, whose sources are not part of this repository, can be timed by
users who have them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _measure import alternate, machine, medians
from _places import PEERS

from scitoolkit.generators.vlasov.basis import integrals
from scitoolkit.generators.vlasov.members import Landau, TwoStream
from scitoolkit.generators.vlasov.reference import DenseReference
from scitoolkit.generators.vlasov.simulation import PhaseSpaceGrid, Simulation, Species

PYTHON = PEERS / "numba" / "bin" / "python"
NX, NV, STEPS, ROUNDS = 64, 256, 8, 15
DOFS = NX * NV * 8
SMALL_1X2V, LARGE_1X2V = (16, 64, 6), (32, 64, 16)
TINY = 1e-6


def run() -> dict:
    gate = max(kernel_error(), product_error())
    if gate > 1e-12:
        raise AssertionError(f"the kernels differ from the dense matrices by {gate:.1e}")
    return {
        **speed(),
        **accuracy(),
        **kept_1x2v(),
        "energy_rate_error": energy_rate_error(),
        "order_p1": order(1),
        "order_p2": order(2),
        "order_1x2v_p2": order_1x2v(2),
        **start_seconds(),
        "kernel_error": gate,
        "gkeyll_over_ours": None,
        "machine": machine(),
    }


def wave(x, v):
    return (1 + 1e-2 * np.cos(0.5 * x)) * np.exp(-(v**2) / 2) / np.sqrt(2 * np.pi)


def simulation(threads: int = 1, nx: int = NX, nv: int = NV) -> Simulation:
    return Simulation([Species(wave, 6.0)], PhaseSpaceGrid(4 * np.pi, nx, nv), threads=threads)


def plasma_1x2v(nx: int, nv: int, nvy: int) -> Simulation:
    def start(x, vx, vy):
        phase = 0.5 * x + 0.4 * vy
        return (1 + 0.1 * np.cos(phase)) * np.exp(-(vx**2 + vy**2) / 2) / (2 * np.pi)

    return Simulation([Species(start, 6.0)], PhaseSpaceGrid(4 * np.pi, nx, nv, cells_vy=nvy))


def random_state() -> Simulation:
    made, rng = simulation(nx=6, nv=16), np.random.default_rng(0)
    made.modes()[...] = rng.standard_normal(made.modes().shape)
    field = rng.standard_normal(made.field_modes().shape)
    field[:, 0] -= field[:, 0].mean()
    made.field_modes()[...] = field
    return made


def dense_rates(made: Simulation) -> tuple[np.ndarray, np.ndarray]:
    reference = DenseReference(2, "serendipity")
    place = (made.half_x, made.half_v(0), made.centres_v())
    df = reference.rate(made.modes(), -made.field_modes(), *place)
    de = reference.current(made.modes(), *place[1:])
    de[:, 0] -= de[:, 0].mean()
    return df, de


def kernel_error() -> float:
    """Return the largest difference of one RK3 step from the dense matrices, relative."""
    made, dense = random_state(), random_state()
    dt = 0.5 * made.stable_step()
    start = [made.modes().copy(), made.field_modes().copy()]
    state = list(start)
    for share in (1.0, 0.25, 2 / 3):
        dense.modes()[...], dense.field_modes()[...] = state
        rates = dense_rates(dense)
        state = [
            (1 - share) * u0 + share * (u + dt * du)
            for u0, u, du in zip(start, state, rates, strict=True)
        ]
    made.advance(dt, time_step=dt)
    return float(np.abs(made.modes() - state[0]).max() / np.abs(state[0]).max())


def product_error() -> float:
    """Return the difference of 1X2V from 1X1V where f is a product with a function of vy."""
    flat = simulation(nx=6, nv=16)
    grid = PhaseSpaceGrid(4 * np.pi, 6, 16, cells_vy=1)
    full = Simulation([Species(lambda x, vx, vy: wave(x, vx) / 12 + 0 * vy, 6.0)], grid)
    for made in (flat, full):
        made.advance(1.0, time_step=0.02)
    moments = flat.moments()
    return float(np.abs(full.moments()[:3] - moments).max() / np.abs(moments).max())


class NumpyPeer:
    """The same scheme with dense matrices and no loop in Python but over stages."""

    def __init__(self) -> None:
        k, made = integrals(2, "serendipity"), simulation()
        self.k, self.hx, self.hv, self.v = k, made.half_x, made.half_v(0), made.centres_v()
        self.f = np.ascontiguousarray(made.modes().transpose(0, 2, 1))
        self.a = -made.field_modes()

    def rate(self, f: np.ndarray) -> np.ndarray:
        k, v, hv = self.k, self.v[:, None], self.hv
        out = v * (f @ k.advect.T) + hv * (f @ k.advect_eta.T)
        right, left = f @ k.trace_x[1].T, f @ k.trace_x[-1].T
        trace = np.where(v > 0, right, np.roll(left, -1, 0))
        flux = v * trace + hv * (trace @ k.times.T)
        out = out + np.roll(flux, 1, 0) @ k.trace_x[-1] - flux @ k.trace_x[1]
        out /= self.hx
        local = np.einsum("lnm,xn->xml", k.accelerate, self.a)
        speed = np.matmul(f, local)
        low, high = f[:, :-1] @ k.trace_v[1].T, f[:, 1:] @ k.trace_v[-1].T
        product = np.einsum("njk,xn->xjk", k.triple, self.a)
        tau = (np.abs(self.a) @ k.edge)[:, None, None]
        face = np.matmul(low + high, product) / 2 - tau * (high - low) / 2
        speed[:, :-1] -= face @ k.trace_v[1]
        speed[:, 1:] += face @ k.trace_v[-1]
        return out + speed / hv

    def step(self) -> None:
        f = self.f
        f1 = f + TINY * self.rate(f)
        f2 = 0.75 * f + 0.25 * (f1 + TINY * self.rate(f1))
        self.f = f / 3 + 2 / 3 * (f2 + TINY * self.rate(f2))


def speed() -> dict:
    ours, numpy_peer = simulation(), NumpyPeer()
    ours.advance(TINY, time_step=TINY)
    made = random_state()
    numpy_peer_error(made)
    numba = _Numba() if PYTHON.exists() else None
    if numba is None:
        print("no .venv-peers/numba: `make peers`; over_numba is left out", file=sys.stderr)
    nested: list[float] = []
    small, large = plasma_1x2v(*SMALL_1X2V), plasma_1x2v(*LARGE_1X2V)
    for made in (small, large):
        made.advance(TINY, time_step=TINY)

    def one() -> None:
        ours.advance(STEPS * TINY, time_step=TINY)

    def numba_round() -> None:
        if numba:
            nested.append(numba.round())

    rounds = alternate(
        {
            "ours": one,
            "numpy": numpy_peer.step,
            "numba": numba_round,
            "small": lambda: small.advance(STEPS * TINY, time_step=TINY),
            "large": lambda: large.advance(STEPS * TINY, time_step=TINY),
        },
        ROUNDS,
    )
    found = medians(rounds)
    ns = found["ours"] / (STEPS * 3 * DOFS) * 1e9
    per = {"numpy": found["numpy"] / (3 * DOFS) * 1e9}
    if nested:
        per["numba"] = statistics.median(nested) * 1e9
    best = min(rounds["ours"]) / (STEPS * 3 * DOFS) * 1e9
    return {
        "ns_per_dof": ns,
        "ns_per_dof_best_round": best,
        "ns_per_dof_numpy": per["numpy"],
        "ns_per_dof_numba": per.get("numba"),
        "over_numba": per["numba"] / ns if nested else None,
        "over_numpy": per["numpy"] / ns,
        "ns_per_dof_1x2v": found["small"] / (STEPS * 3 * small.modes().size) * 1e9,
        "ns_per_dof_1x2v_large": found["large"] / (STEPS * 3 * large.modes().size) * 1e9,
        "two_thread_scaling": two_threads(),
    }


def numpy_peer_error(made: Simulation) -> None:
    """Hold the NumPy peer against the dense matrices too."""
    peer = NumpyPeer()
    peer.hx, peer.hv, peer.v = made.half_x, made.half_v(0), made.centres_v()
    peer.a = -made.field_modes()
    found = peer.rate(np.ascontiguousarray(made.modes().transpose(0, 2, 1))).transpose(0, 2, 1)
    df, _ = dense_rates(made)
    assert np.abs(found - df).max() < 1e-12 * np.abs(df).max()


class _Numba:
    """The peer's process: one round on request."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [str(PYTHON), str(Path(__file__).with_name("_vlasov_peer.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "NUMBA_NUM_THREADS": "1"},
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == "ready"

    def round(self) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("1\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def two_threads() -> float:
    """Return the speed of two threads over that of one, wall time; it needs a quiet machine."""
    made = {t: simulation(t, 256, 512) for t in (1, 2)}
    rounds = alternate(
        {str(t): lambda s=s: s.advance(4 * TINY, time_step=TINY) for t, s in made.items()},
        9,
        time.perf_counter,
    )
    return min(rounds["1"]) / min(rounds["2"])


def accuracy() -> dict:
    landau, streams = Landau(duration=25.0, frames=2), TwoStream(frames=2)
    damped, grown = landau.generate(0), streams.generate(0)
    growth, exact = streams.measured_rate(grown.frames), streams.exact_root()
    assert exact is not None
    return {
        "landau_error": abs(landau.measured_rate(damped.frames) + 0.153359),
        "two_stream_error": abs(growth / exact.imag - 1),
        "mass_error": max(damped.invariants["mass"], grown.invariants["mass"]),
        "energy_error": max(damped.invariants["energy"], grown.invariants["energy"]),
    }


def kept_1x2v() -> dict:
    """Return the drifts of a wave in 1X2V whose phase depends on vy."""
    made = plasma_1x2v(16, 32, 8)
    mass, energy = made.mass()[0], made.kinetic_energy() + made.field_energy()
    made.advance(10.0)
    drift = (made.kinetic_energy() + made.field_energy()) / energy - 1
    return {
        "mass_error_1x2v": abs(float(made.mass()[0] / mass) - 1),
        "energy_error_1x2v": abs(drift),
    }


def energy_rate_error() -> float:
    """Return d(energy)/dt of a random state over the part of the particles: zero in space."""
    made = random_state()
    field = made.field_modes().copy()
    # one tiny step of the kernels would round; their rate is that of the dense matrices (gate)
    df, de = dense_rates(made)
    made.modes()[...] = df
    kinetic = made.kinetic_energy()
    return abs(kinetic + made.half_x * float((field * de).sum())) / abs(kinetic)


def order(degree: int) -> float:
    def start(x, v):
        return (1 + 0.5 * np.cos(0.5 * x)) * np.exp(-(v**2) / 2) / np.sqrt(2 * np.pi)

    errors = []
    for n in (32, 64):
        grid = PhaseSpaceGrid(4 * np.pi, n, 2 * n, degree, field="given")
        made = Simulation([Species(start, 6.0)], grid, cfl=0.2)
        made.field_modes()[...] = 0
        made.advance(2.0)
        exact = made.project(lambda x, v: start(x - 2.0 * v, v))
        errors.append(float(np.sqrt(np.square(made.modes() - exact).sum())) / n)
    return float(np.log2(errors[0] / errors[1]))


def order_1x2v(degree: int) -> float:
    def start(x, vx, vy):
        phase = 0.5 * x + 0.3 * vy
        return (1 + 0.5 * np.cos(phase)) * np.exp(-(vx**2 + vy**2) / 2) / (2 * np.pi)

    errors = []
    for n in (16, 32):
        grid = PhaseSpaceGrid(4 * np.pi, n, 2 * n, degree, field="given", cells_vy=n // 4)
        made = Simulation([Species(start, 6.0)], grid, cfl=0.2)
        made.field_modes()[...] = 0
        made.advance(2.0)
        exact = made.project(lambda x, vx, vy: start(x - 2.0 * vx, vx, vy))
        errors.append(float(np.sqrt(np.square(made.modes() - exact).sum() / n**3)))
    return float(np.log2(errors[0] / errors[1]))


def start_seconds() -> dict:
    """Return the seconds to a first step in a new process, with an empty and a filled cache."""
    code = (
        "import time; t = time.perf_counter()\n"
        "from scitoolkit.generators.vlasov.members import Landau\n"
        "Landau(cells_x=8, cells_v=32).simulation().advance(1e-3)\n"
        "print(time.perf_counter() - t)"
    )
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "SCITOOLKIT_CACHE": folder},
            )
            found.append(float(done.stdout))
    return {"first_step_seconds": found[0], "cached_seconds": found[1]}
