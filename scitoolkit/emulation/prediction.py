"""Predictions written as they are made: a rollout after a file's end, or one map per sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.emulation.config import DataConfig, EmulationConfig
from scitoolkit.emulation.data import Data, open_data
from scitoolkit.emulation.ensemble import AnyEmulator
from scitoolkit.emulation.intervals import Intervals, member_statistics
from scitoolkit.emulation.rollout import Frames, jitter_of, rollout, rollout_members, step_once
from scitoolkit.emulation.spatial.joined import over_processes
from scitoolkit.emulation.transfer import on_grid
from scitoolkit.emulation.variables import Layout
from scitoolkit.io.stream import StreamedVariable, stream_fields
from scitoolkit.training import current_rank

log = get_logger(__name__)


def predict_file(
    emulator: AnyEmulator,
    config: EmulationConfig,
    source: Path,
    output: Path,
    steps: int | None = None,
    intervals: Intervals | None = None,
    lead: int | None = None,
) -> Path:
    """Apply the emulator to a file.

    An emulator that can be fed back goes `rollout.predict` steps beyond the last sample; any
    other one, and `rollout.predict: 0`, maps every sample to its outputs.

    Args:
        emulator: the emulator.
        config: its job.
        source: the file to start from.
        output: the file to write.
        steps: instead of `rollout.predict`.
        intervals: written as NAME_low and NAME_high; NaN after the steps that are calibrated.
        lead: samples of a step, of an emulator that learned several leads; `data.lead` unless
            given.

    Raises:
        ConfigError: a lead that the emulator did not learn.
        DataError: the file is not on the emulator's grid, or the output cannot be written.
        NumericalError: the rollout is not finite.
    """
    lead = _checked_lead(emulator.layout, config, lead, intervals)
    data = open_data(_inputs_only(config), source, like=_inputs_layout(emulator))
    if len(data.blocks) > 1:
        raise DataError(
            f"{len(data.blocks)} simulations; a prediction continues one", where=data.where,
            fix="predict from the file of one simulation",
        )  # fmt: skip
    if data.num_samples <= config.data.samples_before:
        raise DataError(
            f"{data.num_samples} samples", where=data.where,
            allowed=f"more than {config.data.samples_before}: data.history is "
            f"{config.data.history}",
        )  # fmt: skip
    steps = config.rollout.predict if steps is None else steps
    rolled = bool(emulator.layout.state) and config.data.lead > 0 and steps > 0
    try:
        emulator = over_processes(on_grid(emulator, config, data.layout, data.where), config)
        if rolled:
            samples = _rolled(emulator, config, data, steps, intervals, lead)
            times = _future(data, steps, lead)
        else:
            samples = _mapped(emulator, data, config.data, lead)
            times = _valid(data, lead)[config.data.samples_before :]
        variables = {
            v.name: StreamedVariable(
                v.dims, v.shape,
                {k: x for k, x in (("units", v.units), ("long_name", v.long_name)) if x},
                fill_value=float("nan") if emulator.layout.mask and v.is_field else None,
            )
            for v in emulator.layout.outputs
        }  # fmt: skip
        if rolled and intervals is not None:
            variables |= _bounds_of(variables, intervals)
        samples = map(emulator.layout.blank, samples)
        if current_rank() > 0:
            for _ in samples:
                pass  # this process computes its slabs, and the first one writes
            return Path(output)
        return stream_fields(samples, variables, _coordinates(emulator, data, times),
                             emulator.layout.sample_dim, output)  # fmt: skip
    finally:
        data.dataset.close()


def _checked_lead(
    layout: Layout, config: EmulationConfig, lead: int | None, intervals: Intervals | None
) -> int:
    """Return the lead of a prediction: that of the configuration unless one is wanted."""
    usual = config.data.lead
    if lead is None or lead == usual:
        return usual
    if not layout.leads:
        raise ConfigError(
            f"a lead of {lead} samples", where="predict --lead", allowed=str(usual),
            fix="train with data.leads=[...] for an emulator of several leads",
        )  # fmt: skip
    low, high = min(layout.leads), max(layout.leads)
    if not low <= lead <= high:
        raise ConfigError(
            f"a lead of {lead} samples", where="predict --lead", allowed=f"{low} to {high}",
        )  # fmt: skip
    if intervals is not None:
        raise ConfigError(
            f"intervals are calibrated in steps of {usual} samples, not of {lead}",
            where="predict --lead", fix=f"--lead {usual}",
        )  # fmt: skip
    if lead not in layout.leads:
        log.warning("the emulator learned leads %s: %d is interpolated", list(layout.leads), lead)
    return lead


def _bounds_of(
    variables: Mapping[str, StreamedVariable], intervals: Intervals
) -> dict[str, StreamedVariable]:
    """Return the variables of the intervals' ends."""
    return {
        f"{name}_{end}": replace(
            v, attrs={**v.attrs, "long_name": f"{side} end of the {intervals.coverage:g} interval"}
        )
        for name, v in variables.items() for end, side in (("low", "lower"), ("high", "upper"))
    }  # fmt: skip


def _inputs_only(config: EmulationConfig) -> DataConfig:
    """Return a data section that asks for nothing but the inputs."""
    units = {n: u for n, u in config.data.units.items() if n in config.data.inputs}
    return config.data.model_copy(
        update={"outputs": config.data.inputs, "units": units, "lead": config.data.lead or 1}
    )


def _inputs_layout(emulator: AnyEmulator) -> Layout:
    return replace(emulator.layout, outputs=emulator.layout.inputs)


def _rolled(
    emulator: AnyEmulator, config: EmulationConfig, data: Data, steps: int,
    intervals: Intervals | None, lead: int,
) -> Iterator[Frames]:  # fmt: skip
    first = data.inputs(data.num_samples - 1, emulator.layout, lead)
    if intervals is None:
        yield from rollout(emulator, first, steps, jitter=jitter_of(config, emulator.layout))
        return
    if steps > intervals.steps:
        log.warning(
            "intervals are calibrated for %d steps and NaN after them. Fix: uncertainty.steps",
            intervals.steps,
        )
    for step, members in enumerate(rollout_members(emulator, first, steps)):
        out: dict[str, np.ndarray] = {}
        for name in members[0]:
            out[name], spread = member_statistics(members, name)
            ends = (np.full_like(out[name], np.nan),) * 2
            if step < intervals.steps:
                ends = intervals.bounds(name, step, out[name], spread)
            for end, values in zip(("low", "high"), ends, strict=True):
                out[f"{name}_{end}"] = emulator.layout.blank({name: values})[name]
        yield out


def _mapped(emulator: AnyEmulator, data: Data, config: DataConfig, lead: int) -> Iterator[Frames]:
    for i in range(config.samples_before, data.num_samples):
        yield step_once(emulator, data.inputs(i, emulator.layout, lead))


def _future(data: Data, steps: int, lead: int) -> np.ndarray:
    """Return the sample coordinate of a rollout: the file's last step, repeated."""
    times = data.times
    step = times[-1] - times[-2] if len(times) > 1 else np.asarray(1, dtype="int64")
    if times.dtype.kind == "M" and len(times) == 1:
        step = np.timedelta64(1, "s")
    return np.asarray([times[-1] + k * lead * step for k in range(1, steps + 1)])


def _valid(data: Data, lead: int) -> np.ndarray:
    """Return the sample coordinate of what is mapped: `lead` steps after each sample."""
    times = data.times
    if not lead or len(times) < 2:
        return times
    return times + lead * (times[-1] - times[-2])


def _coordinates(emulator: AnyEmulator, data: Data, times: np.ndarray) -> xr.Dataset:
    dim = emulator.layout.sample_dim
    found = {d: data.dataset[d] for d in emulator.layout.grid if d in data.dataset.coords}
    coords = {d: (d, c.values, dict(c.attrs)) for d, c in found.items()}
    out = xr.Dataset(coords={dim: (dim, times), **coords})
    if dim in data.dataset.coords:
        original = data.dataset[dim]
        out[dim].attrs.update(original.attrs)
        kept = {k: v for k, v in original.encoding.items() if k in ("units", "calendar")}
        out[dim].encoding.update(kept)
    return out
