"""Growth rates of a surrogate trained online on two-stream runs, against the dispersion relation.

The workflow `vlasov_surrogate` is trained as shipped. At parameters drawn with another seed the
surrogate is rolled out from the lowest initial energy of the training simulations, so nothing is
simulated there; the rate is determined by the same function as for simulations and compared with
the root of the dispersion relation. Gate: that function finds the root in simulations.
"""

from __future__ import annotations

import tempfile

import numpy as np
import torch
from _measure import machine
from _places import ROOT

from scitoolkit import api
from scitoolkit.core.draw import DrawConfig
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.rollout import rollout
from scitoolkit.generators.vlasov.members import TwoStream
from scitoolkit.generators.vlasov.rates import growth_rate

WORKFLOW = ROOT / "workflows" / "vlasov_surrogate"
UNSEEN, SIMULATED, SEED = 64, 3, 12345


def run() -> dict:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        trained = api.train(WORKFLOW, [f"run.root={folder}", "training.progress=false"])
        config = EmulationConfig.model_validate(api.load(WORKFLOW)[1].model_dump())
        emulator = surrogate.load(trained.path / "model", config)
        files = sorted((trained.path / "simulations").glob("*.nc"))[: config.data.stream.reservoir]
        start = min(float(TwoStream.read(f)[0]["log_field_energy"][0]) for f in files)
    draw = DrawConfig(method="random", samples=UNSEEN, parameters=config.data.draw.parameters)
    generator, sets = config.data.generator, draw.draw(SEED)
    gate = [simulated_error(generator.with_parameters(s)) for s in sets[:SIMULATED]]
    if max(gate) > 0.01:
        raise AssertionError(f"simulations differ from the root by {max(gate):.1%}")
    errors = [error(emulator, generator.with_parameters(s), s, start) for s in sets]
    return {
        "growth_rate_error_max": max(errors),
        "growth_rate_error_median": float(np.median(errors)),
        "growth_rate_error_of_simulations": max(gate),
        "parameter_sets": UNSEEN,
        "simulations": config.data.draw.samples,
        "machine": machine(),
    }


def error(emulator, generator, parameters, start: float) -> float:
    """Return the relative error of a rollout's growth rate."""
    given = {"log_field_energy": start, **parameters}
    first = {v.name: np.full(v.shape, given[v.name], np.float32) for v in emulator.layout.inputs}
    frames = rollout(emulator, first, generator.frames - 1)
    energies = [start, *(float(np.ravel(f["log_field_energy"])[0]) for f in frames)]
    times = np.linspace(0, generator.duration, generator.frames)
    exact = generator.exact_root().imag
    return abs(growth_rate(times, np.exp(energies)) / exact - 1)


def simulated_error(generator) -> float:
    frames = generator.generate(0).frames
    times, energies = frames["time"].values, np.exp(frames["log_field_energy"].values)
    return abs(growth_rate(times, energies) / generator.exact_root().imag - 1)
