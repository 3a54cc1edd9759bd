"""Random allowed settings of all generators: how many samples that are 10 % off are not marked.

Settings are drawn over wide ranges, resolved or not, of sizes at which a sample takes about a
second. The true error of a sample is measured by finer schemes than its own measure uses, at other
times: fields of a chaotic generator from stored states over three turnover times, or to the end of
the run, those of others over the whole run; Vlasov simulations against twice the cells; other
trajectories on meshes of a quarter of the edges; forces of all structures.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.generators.atom_frames import FramesGenerator
from scitoolkit.generators.base import Generator, Sample, generators
from scitoolkit.generators.conservation_laws import ConservationLawsGenerator
from scitoolkit.generators.mesh_tracer import MeshTracer, load_mesh
from scitoolkit.generators.pde_problems import PROBLEMS
from scitoolkit.generators.resolution import TURNOVERS, difference_error, sizes
from scitoolkit.generators.stepped import SteppedGenerator
from scitoolkit.generators.vlasov.base import VlasovGenerator

DRAWS = 200
OFF, GOOD = 0.1, 0.01
"""Errors above which a sample must not pass, and below which it need not be marked."""
Settings = dict[str, object]
Random = np.random.Generator


def between(rng: Random, low: float, high: float) -> float:
    """Return a number whose logarithm is uniform."""
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))


def even(rng: Random, low: int, high: int) -> int:
    return 2 * round(between(rng, low, high) / 2)


def kuramoto_sivashinsky(rng: Random) -> Settings:
    return {
        "length": between(rng, 6, 80),
        "cells": even(rng, 16, 128),
        "time_step": between(rng, 0.01, 1),
        "interval": int(rng.integers(1, 20)),
        "spinup": int(rng.integers(0, 60)),
        "frames": int(rng.integers(2, 60)),
        "amplitude": between(rng, 0.01, 10),
    }


def lorenz96(rng: Random) -> Settings:
    return {
        "forcing": between(rng, 2, 30),
        "points": int(rng.integers(4, 60)),
        "time_step": between(rng, 0.005, 0.2),
        "spinup": int(rng.integers(0, 300)),
        "frames": int(rng.integers(2, 300)),
    }


def gray_scott(rng: Random) -> Settings:
    return {
        "feed": between(rng, 0.01, 0.08),
        "kill": between(rng, 0.04, 0.07),
        "length": between(rng, 0.3, 2.5),
        "cells": even(rng, 16, 72),
        "time_step": between(rng, 0.5, 30),
        "interval": int(rng.integers(1, 10)),
        "spinup": int(rng.integers(0, 20)),
        "frames": int(rng.integers(2, 20)),
        "spots": int(rng.integers(1, 10)),
    }


def decaying_turbulence(rng: Random) -> Settings:
    return {
        "viscosity": between(rng, 1e-4, 0.1),
        "cells": even(rng, 16, 80),
        "peak": between(rng, 2, 10),
        "time_step": between(rng, 1e-3, 0.05),
        "interval": int(rng.integers(1, 10)),
        "spinup": int(rng.integers(0, 20)),
        "frames": int(rng.integers(2, 20)),
    }


def rayleigh_benard(rng: Random) -> Settings:
    step = between(rng, 2e-3, 0.05)
    return {
        "rayleigh": between(rng, 1e3, 1e6),
        "prandtl": between(rng, 0.1, 10),
        "length": between(rng, 1, 6),
        "cells": even(rng, 16, 48),
        "levels": int(rng.integers(12, 28)),
        "time_step": step,
        "interval": step * int(rng.integers(1, 20)),
        "spinup": step * int(rng.integers(0, 400)),
        "frames": int(rng.integers(2, 20)),
    }


def _vlasov(rng: Random, rows: int = 8) -> Settings:
    return {
        "wavenumber": between(rng, 0.15, 0.8),
        "amplitude": between(rng, 1e-6, 0.5),
        "cells_x": int(rng.integers(4, 33)),
        "cells_v": 16 * int(rng.integers(1, rows + 1)),
        "degree": int(rng.integers(1, 4)),
        "duration": float(rng.uniform(1, 50)),
        "frames": int(rng.integers(2, 20)),
    }


def _ions(rng: Random) -> Settings:
    return {
        "mass_ratio": between(rng, 20, 400),
        "ion_temperature": between(rng, 0.05, 1),
        "cells_v": 16 * int(rng.integers(1, 7)),
    }


def vlasov_landau(rng: Random) -> Settings:
    return _vlasov(rng)


def vlasov_two_stream(rng: Random) -> Settings:
    return {**_vlasov(rng), "drift": rng.uniform(1, 5), "thermal": between(rng, 0.3, 1.5)}


def vlasov_bump_on_tail(rng: Random) -> Settings:
    beam = {
        "drift": rng.uniform(3, 6),
        "thermal": between(rng, 0.3, 1),
        "share": rng.uniform(0, 0.3),
    }
    return {**_vlasov(rng), **beam}


def vlasov_ion_acoustic(rng: Random) -> Settings:
    return {**_vlasov(rng), **_ions(rng)}


def vlasov_sheath(rng: Random) -> Settings:
    small = {"size": between(rng, 8, 64), "duration": float(rng.uniform(1, 20))}
    return {**_vlasov(rng), **_ions(rng), **small}


def vlasov_anisotropy(rng: Random) -> Settings:
    return {
        **_vlasov(rng, rows=3),
        "cells_x": int(rng.integers(4, 9)),
        "cells_vy": int(rng.integers(4, 13)),
        "duration": float(rng.uniform(1, 8)),
        "thermal": between(rng, 0.3, 2),
        "thermal_y": between(rng, 0.3, 2),
        "collision_frequency": float(rng.choice([0.0, 0.1, 0.5])),
    }


def mesh_tracer(rng: Random) -> Settings:
    return {
        "courant": between(rng, 0.1, 10),
        "diffusion": between(rng, 0.01, 10),
        "substeps": int(rng.integers(1, 6)),
        "steps": int(rng.integers(1, 20)),
        "trajectories": 3,
    }


def _crystals(rng: Random) -> Settings:
    return {
        "displacement": float(rng.uniform(0, 0.3)),
        "strain": float(rng.uniform(0, 0.08)),
        "repeats": int(rng.integers(1, 3)),
        "frames": 2,
        "method": str(rng.choice(["dense", "submatrix", "chebyshev"])),
        "hops": int(rng.integers(1, 4)),
        "temperature": float(rng.choice([0.0, 0.1, 0.5])),
    }


def tight_binding_carbon(rng: Random) -> Settings:
    return {**_crystals(rng), "lattice": float(rng.uniform(3.2, 4))}


def tight_binding_silicon(rng: Random) -> Settings:
    return {**_crystals(rng), "lattice": float(rng.uniform(5, 6))}


def ase_teacher(rng: Random) -> Settings:
    return {
        "molecule": str(rng.choice(["CH3CH2OH", "H2O", "C6H6", "CO2"])),
        "calculator": str(rng.choice(["emt", "lj"])),
        "displacement": float(rng.uniform(0, 0.2)),
        "frames": 3,
    }


def pde(rng: Random) -> Settings:
    problem = str(rng.choice(["advection", "burgers", "kdv", "fisher_kpp", "allen_cahn"]))
    constants = {
        k: v * between(rng, 0.03, 3) for k, v in PROBLEMS[problem].get("constants", {}).items()
    }
    return {
        "problem": problem,
        "constants": constants,
        "cells": even(rng, 16, 160),
        "time_step": between(rng, 5e-4, 0.2),
        "interval": int(rng.integers(1, 20)),
        "spinup": int(rng.integers(0, 10)),
        "frames": int(rng.integers(2, 20)),
        "longest": int(rng.integers(1, 8)),
    }


def conservation_laws(rng: Random) -> Settings:
    problem = str(rng.choice(["burgers_inviscid", "advection", "shock_tube", "gas_1d"]))
    cells = 4 * round(between(rng, 5, 60))
    length = {"burgers_inviscid": 2 * math.pi, "advection": 2 * math.pi}.get(problem, 1.0)
    return {
        "problem": problem,
        "cells": cells,
        "time_step": between(rng, 0.05, 0.4) * length / cells / 2.5,
        "interval": int(rng.integers(1, 20)),
        "spinup": int(rng.integers(0, 10)),
        "frames": int(rng.integers(2, 20)),
        "longest": int(rng.integers(1, 8)),
    }


KINDS: Mapping[str, Callable[[Random], Settings]] = {
    kind.__name__: kind
    for kind in (
        kuramoto_sivashinsky,
        lorenz96,
        gray_scott,
        decaying_turbulence,
        rayleigh_benard,
        vlasov_landau,
        vlasov_two_stream,
        vlasov_bump_on_tail,
        vlasov_ion_acoustic,
        vlasov_sheath,
        vlasov_anisotropy,
        mesh_tracer,
        tight_binding_carbon,
        tight_binding_silicon,
        ase_teacher,
        pde,
        conservation_laws,
    )
}


def _rms(fields: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(fields**2, tuple(range(1, fields.ndim))))


def true_error(generator: Generator, sample: Sample, seed: int) -> float:
    """Return the error of a sample relative to the size of its fields or forces."""
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(generator, SteppedGenerator):
            error = _of_steps(generator, sample, seed)
        elif isinstance(generator, VlasovGenerator):
            error = _of_vlasov(generator, sample, seed)
        elif isinstance(generator, ConservationLawsGenerator):
            error = _of_volumes(generator, seed)
        elif isinstance(generator, MeshTracer):
            error = _of_meshes(generator, sample, seed)
        else:
            error = _of_forces(generator, sample, seed)
    return error if math.isfinite(error) else math.inf


def _of_steps(generator: SteppedGenerator, sample: Sample, seed: int) -> float:
    states = generator.states(sample, seed)
    overall, total = sizes(np.moveaxis(states, 1, 0)), generator.num_steps()
    compare = generator.comparison(2.5, 4)
    if not generator.chaotic:
        counts = [max(1, round(total * share)) for share in (0.25, 0.5, 0.75, 1)]
        pairs = compare(states[0], sorted(set(counts)))
        stored = pairs[-2:] if len(pairs) > 1 else pairs
        return max(float((_rms(b - a) / np.maximum(overall, 1e-300)).max()) for a, b in stored)
    # Steps from each state to the end of the run: beyond it there is no sample that could be off.
    settings = generator.model_dump()
    between = settings.get("interval", 1)
    between = round(between / settings["time_step"]) if isinstance(between, float) else between
    left = between * np.arange(len(states))[::-1]
    rng, errors = np.random.default_rng(seed), []
    rates = [
        float((_rms(compare(s, [1])[0][0] - s) / np.maximum(overall, 1e-300)).max())
        for s in states[:: max(1, len(states) // 8)]
    ]
    window = max(1, min(round(TURNOVERS / max(np.mean(rates), 1e-9)), int(left[0]), total))
    inside = np.flatnonzero(left >= window) if left[0] >= window else np.zeros(1, int)
    for state in states[rng.choice(inside, size=3)]:
        size = np.maximum(np.maximum(overall, sizes(state)), 1e-300)
        first, second = compare(state, [window])[0]
        errors.append(_rms(second - first) / size)
    return float(np.mean(errors, 0).max())


def _of_vlasov(generator: VlasovGenerator, sample: Sample, seed: int) -> float:
    finer = generator._scaled(0.5)
    assert finer is not None
    reference = generator._compared(finer.generate(seed).frames)
    worst = 0.0
    for name, values in generator._compared(sample.frames).items():
        size = max(float(sizes(values[None])[0]), 1e-10)
        worst = max(worst, float(_rms((values - reference[name])[None])[0]) / size)
    return worst


def _of_volumes(generator: ConservationLawsGenerator, seed: int) -> float:
    settings = {"cells": 4 * generator.cells, "time_step": generator.time_step / 4}
    finer = generator.model_copy(update={**settings, "interval": 4 * generator.interval})
    own = generator.by_field(generator.averages(seed))
    reference = finer.by_field(finer.averages(seed), 4)
    return max(
        float(_rms((own[f] - reference[f])[None])[0]) / max(float(sizes(own[f][None])[0]), 1e-10)
        for f in own
    )


def _of_meshes(generator: MeshTracer, sample: Sample, seed: int) -> float:
    worst = 0.0
    for number, path in enumerate(generator._files()):
        for trajectory in range(1, generator.trajectories):
            fine = generator.refined(load_mesh(path), seed + number, 2, trajectory)
            own = sample.frames.children[path.stem]["tracer"].values[trajectory]  # type: ignore[attr-defined]
            size = float(sizes(own[None].astype(float))[0])
            worst = max(worst, float(_rms((fine - own)[None])[0]) / size)
    return worst


def _of_forces(generator: FramesGenerator, sample: Sample, seed: int) -> float:
    method = getattr(generator, "method", "")
    worst = 0.0
    for frame in sample.frames:
        atoms, own = frame.copy(), frame.get_forces()
        exact = (
            generator
            if method in ("", "dense")
            else generator.model_copy(update={"method": "dense"})
        )
        atoms.calc = exact._calculator()
        forces = atoms.get_forces()
        size = max(float(np.sqrt(np.mean(forces**2))), 1e-3)
        worst = max(worst, float(np.sqrt(np.mean((own - forces) ** 2))) / size)
        worst = max(worst, difference_error(atoms, seed + 1))
    return worst


def draw(number: int, meshes: Path) -> tuple[Generator, int]:
    """Return the generator of a draw, and its seed.

    Raises:
        ConfigError: the settings are not allowed.
    """
    rng = np.random.default_rng([7, number])
    name = list(KINDS)[number % len(KINDS)]
    settings = KINDS[name](rng)
    if name == "mesh_tracer":
        settings["meshes"] = meshes
    return generators.get(name)(**settings), int(rng.integers(2**31))


def write_meshes(folder: Path) -> None:
    import skfem
    from skfem.io.json import to_file

    for refinements in (2, 3):
        to_file(skfem.MeshTri.init_circle(refinements), str(folder / f"circle{refinements}.json"))


def count(numbers: Iterable[int]) -> dict[str, object]:
    """Return how many draws are refused, marked and passed, and what is wrong."""
    counts = {"draws": 0, "not_allowed": 0, "refused": 0, "marked": 0, "passed": 0}
    off: list[str] = []
    strict, worst = 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        write_meshes(Path(folder))
        for number in numbers:
            try:
                generator, seed = draw(number, Path(folder))
                generator = generator.with_parameters({})
            except ScitoolkitError:
                counts["not_allowed"] += 1
                continue
            counts["draws"] += 1
            try:
                with np.errstate(all="ignore"):
                    sample = generator.sample({}, seed)
            except ScitoolkitError:
                counts["refused"] += 1
                continue
            error = true_error(generator, sample, seed)
            told = sample.accuracy.error if sample.accuracy else math.nan
            shown = f"{number} {generator.name}: true {error:.2g}, stated {told:.2g}"
            print(shown, "marked" if sample.missed else "", file=sys.stderr, flush=True)
            if sample.missed:
                counts["marked"] += 1
                strict += error < GOOD
                continue
            counts["passed"] += 1
            worst = max(worst, error)
            if not error <= OFF:
                off.append(shown)
    return {
        **counts,
        "passed_10_percent_off": len(off),
        "passed_10_percent_off_names": off,
        "passed_error_max": worst,
        "marked_below_1_percent": strict,
    }


def run() -> dict:
    number, draws = 0, 0
    # The first numbers that contain as many allowed draws as wanted.
    with tempfile.TemporaryDirectory() as folder:
        write_meshes(Path(folder))
        while draws < DRAWS:
            try:
                draw(number, Path(folder))[0].with_parameters({})
                draws += 1
            except ScitoolkitError:
                pass
            number += 1
    return count(range(number))
