"""Emulators as functions of arrays with the range of their training inputs, for export to C."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from logging import Logger

import numpy as np

from scitoolkit.core.data_facts import DataFacts, Dim, Step
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import open_data
from scitoolkit.emulation.emulator import Emulator
from scitoolkit.emulation.ensemble import Ensemble
from scitoolkit.emulation.export import PlainEmulator, example_inputs
from scitoolkit.emulation.noise import ROLLOUT, noise_of
from scitoolkit.emulation.variables import LEAD, NOISE, Layout, Variable
from scitoolkit.surrogate import Trained

log: Logger = get_logger(__name__)
MOST_FRAMES = 256
"""Samples of the training split for the ranges of the inputs, evenly spread."""
EXAMPLES = 3
TYPICAL = 16
"""Samples of the training split for fitting a compression."""
TYPICAL_BYTES = 64 << 20
"""Largest size of these samples, unless EXAMPLES samples are larger."""
HELD_OUT = 32
"""Samples of the validation split for the error of a compression."""


def single(trained: Trained) -> Emulator:
    """Return the emulator of a surrogate, on the CPU.

    Raises:
        ConfigError: an ensemble.
    """
    if isinstance(trained.model, Ensemble):
        raise ConfigError(
            f"an ensemble of {len(trained.model.members)}; the mean of rollouts is not the rollout "
            "of a mean",
            where=str(trained.folder.directory),
            fix="train one to export: uncertainty.members=1",
        )
    emulator: Emulator = trained.model.cpu().eval()
    return emulator


def traced(trained: Trained) -> Sequence[TracedFunction]:
    """Return one step of an emulator as a traced function.

    Raises:
        ConfigError: an ensemble.
    """
    emulator, folder = single(trained), trained.folder
    config: EmulationConfig = trained.config
    low, high = _box(folder, config, emulator.layout)
    held_out = _frames(folder, config, emulator.layout, "validation", HELD_OUT)
    inputs = [
        replace(_spec(v), low=low.get(v.name), high=high.get(v.name))
        for v in emulator.layout.inputs
    ]
    bytes_of_sample = sum(4 * math.prod(v.shape) for v in emulator.layout.inputs)
    number = max(EXAMPLES, min(TYPICAL, TYPICAL_BYTES // bytes_of_sample))
    typical = _frames(folder, config, emulator.layout, "train", number)
    examples = [
        # Tails of the random examples would exceed ranges such as |b| <= 1/2.
        np.clip(t.numpy(), low.get(v.name), high.get(v.name)) if v.name in low else t.numpy()
        for v, t in zip(emulator.layout.inputs, example_inputs(emulator, EXAMPLES), strict=True)
    ]
    outputs = [_spec(v) for v in emulator.layout.outputs]
    return [
        TracedFunction(
            PlainEmulator(emulator),
            inputs,
            outputs,
            examples,
            held_out=held_out,
            typical=typical,
            facts=_of_a_step(trained.facts, config.data.lead, emulator.layout),
        )
    ]


def _of_a_step(facts: DataFacts | None, lead: int, layout: Layout) -> DataFacts | None:
    """Return facts in which the step of the time is that of the emulator, none if it varies."""

    def of_the_emulator(dim: Dim) -> Dim:
        if dim.role != "time" or dim.step is None:
            return dim
        own = dim.step
        step = Step(lead * own.number, own.unit, lead * own.low, lead * own.high)
        return replace(dim, step=None if layout.leads else step)

    return facts and replace(facts, dims=tuple(map(of_the_emulator, facts.dims)))


def _spec(variable: Variable) -> ArraySpec:
    return ArraySpec(variable.name, tuple(variable.dims), tuple(variable.shape), variable.units)


def _box(
    folder: ModelFolder, config: EmulationConfig, layout: Layout
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the range of each input in the training split, if it is available."""
    low: dict[str, np.ndarray] = {}
    high: dict[str, np.ndarray] = {}
    try:
        edges = folder.record()["parts"]["train"]
        data = open_data(config.data, like=layout)
    except DataError as error:
        log.warning("no box of the training inputs: %s", error)
        return low, high
    try:
        samples = np.concatenate(
            [np.arange(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True)]
        )
        samples = samples[samples < data.num_samples]  # others were replayed from other files
        oldest = max((v.age for v in layout.earlier), default=0) * config.data.lead
        chosen = samples[:: -(-len(samples) // MOST_FRAMES)]
        for sample in chosen[chosen >= oldest]:
            frame = data.inputs(int(sample), layout, config.data.lead)
            for variable in (v for v in layout.inputs if v.name in frame):
                values = frame[variable.name]
                name = variable.name
                least, most = (
                    (values.min(), values.max()) if variable.is_field else (values, values)
                )
                low[name] = np.minimum(low.get(name, least), least)
                high[name] = np.maximum(high.get(name, most), most)
    finally:
        data.dataset.close()
    if layout.leads:
        low[LEAD], high[LEAD] = (np.array(f(layout.leads), np.float32) for f in (min, max))
    return low, high


def _frames(
    folder: ModelFolder, config: EmulationConfig, layout: Layout, part: str, most: int
) -> list[np.ndarray]:
    """Return evenly spread inputs of a split; empty if the data are not available."""
    try:
        edges = folder.record()["parts"][part]
        data = open_data(config.data, like=layout)
    except (DataError, KeyError):
        return []
    try:
        oldest = max((v.age for v in layout.earlier), default=0) * config.data.lead
        samples = [k for a, b in zip(edges[::2], edges[1::2], strict=True) for k in range(a, b)]
        samples = [k for k in samples if k < data.num_samples]
        samples = [k for k in samples[:: -(-len(samples) // most) or 1] if k >= oldest]
        frames = [data.inputs(k, layout, config.data.lead) for k in samples]
        if layout.noise:
            state = layout.state[0]
            frames = [{**f, NOISE: noise_of(f[state], [layout.noise], ROLLOUT)} for f in frames]
        return (
            [np.stack([np.asarray(f[v.name], np.float32) for f in frames]) for v in layout.inputs]
            if frames
            else []
        )
    finally:
        data.dataset.close()
