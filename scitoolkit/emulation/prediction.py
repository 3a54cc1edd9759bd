"""Resumable predictions: a rollout after the end of a file, or one step from every sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.devices import placed
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.unit_conversion import conversion
from scitoolkit.emulation.config import DataConfig, EmulationConfig
from scitoolkit.emulation.data import Data, matched
from scitoolkit.emulation.drivers import Drivers, open_drivers, require_held
from scitoolkit.emulation.ensemble import AnyEmulator, with_draws
from scitoolkit.emulation.intervals import Intervals, member_statistics
from scitoolkit.emulation.prediction_coordinates import coordinates_of
from scitoolkit.emulation.rollout import (
    Frames,
    Rollout,
    copies,
    jitter_of,
    mean_of,
    step_once,
)
from scitoolkit.emulation.spatial.joined import over_processes
from scitoolkit.emulation.stages import EmulationStages
from scitoolkit.emulation.step_input import numbers_of, times_from, within
from scitoolkit.emulation.transfer import on_grid
from scitoolkit.emulation.unfamiliar import checked
from scitoolkit.emulation.variables import STEP, Layout, Variable
from scitoolkit.io.calendar_steps import times_after
from scitoolkit.io.dates import moved, of_one_kind
from scitoolkit.io.facts import is_dates
from scitoolkit.io.parts import PART_BYTES, Parts, identity, ranges
from scitoolkit.io.stream import StreamedVariable, stream_fields
from scitoolkit.surrogate import Trained, open_checked
from scitoolkit.training.processes import on_rank_zero
from scitoolkit.training.ranks.rounds import completed

log = get_logger(__name__)
HOLD = "hold"
"""Word instead of a forcing file: inputs that change in time keep their last values."""


def predict_file(
    trained: Trained,
    source: Path,
    output: Path,
    steps: int | None = None,
    lead: int | None = None,
    forcing: Path | None = None,
    times: str | None = None,
) -> Path:
    """Apply an emulator to a file.

    An emulator with a state computes `rollout.predict` steps after the last sample; an emulator
    without one, or `rollout.predict: 0`, maps every sample to its outputs. Parts of the prediction
    are stored next to the output until it is complete, so that the same call continues after an
    interruption, bit for bit. Several processes divide the samples of a map, or compute slabs of
    the fields (`spatial`). Calibrated intervals are written as NAME_low and NAME_high, NaN after
    the calibrated steps.

    Args:
        trained: the emulator.
        source: the file to start from.
        output: the file to write.
        steps: number of steps, instead of `rollout.predict`.
        lead: samples of a step, for an emulator of several leads; `data.lead` unless given.
        forcing: file of the inputs that change in time and that no step computes, at the times of
            all steps but the first; HOLD holds their last values.
        times: times of the steps, separated by commas, for an emulator whose input is the length
            of a step; by default equal steps like those of the file.

    Raises:
        ConfigError: a lead or a step outside the range of training, or inputs that change in time
            without `forcing`.
        DataError: a forcing without one of the times, parts of another prediction exist, the grid
            of the file is not supported, or the output cannot be written.
        NumericalError: the rollout is not finite.
    """
    config: EmulationConfig = trained.config
    emulator: AnyEmulator = placed(trained.model)
    intervals = None if config.uncertainty is None else Intervals.load(trained.folder.path)
    lead = _checked_lead(emulator.layout, config, lead, intervals)
    data = _opened(trained, source)
    if len(data.blocks) > 1:
        raise DataError(
            f"{len(data.blocks)} simulations; a prediction continues one",
            where=data.where,
            fix="predict from the file of one simulation",
        )
    if len(data.stretches) > 1:
        raise DataError(
            f"times are missing before sample {data.stretches[1].start}; a prediction continues "
            "one stretch",
            where=data.where,
            fix=f"predict from a file of one stretch: ds.isel({data.layout.sample_dim}=slice(...))",
        )
    if data.num_samples <= config.data.samples_before:
        raise DataError(
            f"{data.num_samples} samples",
            where=data.where,
            allowed=f"more than {config.data.samples_before}: data.history is "
            f"{config.data.history}",
        )
    ahead = None if times is None else _stated_times(emulator.layout, data, times, steps)
    if ahead is not None:
        steps = len(ahead)
    steps = config.rollout.predict if steps is None else steps
    rolled = is_rolled(config, emulator.layout, steps)
    drivers: Drivers | None = None
    try:
        # Without a lead, outputs have the times of their inputs.
        until = _two_times(data, trained) if ahead is None and lead else data.times
        if ahead is None:
            ahead = _future(until, steps, lead)
        lengths = _step_lengths(emulator.layout, data, ahead) if rolled else None
        drivers = _drivers(trained, data, forcing, ahead) if rolled else None
        if forcing is not None and not rolled:
            raise ConfigError(
                "every sample is mapped by itself",
                where="predict --forcing",
                allowed="a rollout: an emulator with a state, and --steps of 1 or more",
            )
        emulator = on_grid(emulator, config, data.layout, data.where)
        if config.training.divides_fields:
            emulator = over_processes(emulator, config)
        emulator = with_draws(emulator, config)
        before = config.data.samples_before
        first, outputs_at = (0, ahead) if rolled else (before, _valid(data, until, lead)[before:])
        variables = _variables(trained)
        if rolled and intervals is not None:
            variables |= _bounds_of(variables, intervals)
        pieces = [
            range(first + r.start, first + r.stop)
            for r in ranges(len(outputs_at), _samples_of_a_part(variables, data))
        ]
        parts = Parts(
            Path(output),
            len(pieces),
            {
                "model": trained.folder.digest(),
                "file": identity(source),
                "first": first,
                "samples": len(outputs_at),
                "lead": lead,
                "rolled": rolled,
                "intervals": intervals is not None,
                **(
                    {}
                    if drivers is None
                    else {"forcing": list(map(identity, drivers.data.campaign.files))}
                ),
            },
        )
        start = data.num_samples - 1 if rolled else before
        data = checked(trained, data, start)
        if drivers is not None:
            drivers = replace(drivers, data=checked(trained, drivers.data))
        work: Callable[[int], dict[str, np.ndarray]]
        if rolled:
            forced = None if drivers is None and lengths is None else _Forced(drivers, lengths)
            work = _RolledParts(emulator, config, data, pieces, parts, intervals, lead, forced)
        else:
            work = _MappedParts(emulator, data, pieces, lead)
        # A rollout is sequential, and processes that divide the fields compute each part together.
        divided = not rolled and not config.training.divides_fields
        with completed(parts, work, divided=divided) as writes:
            if writes:
                stream_fields(
                    _samples(parts, emulator.layout),
                    variables,
                    coordinates_of(emulator.layout, data, outputs_at),
                    emulator.layout.sample_dim,
                    output,
                )
                parts.remove()
        return Path(output)
    finally:
        data.dataset.close()
        if drivers is not None:
            drivers.data.close()


def _drivers(
    trained: Trained, data: Data, forcing: Path | None, ahead: np.ndarray
) -> Drivers | None:
    """Return the forcing of a rollout; refuse to hold inputs that change in time unasked."""
    config, layout = trained.config, trained.model.layout
    hold = forcing is not None and str(forcing) == HOLD
    held = _held_forcings(config, layout, data)
    drivers, channels = None, set[str]()
    if forcing is not None and not hold:
        computed = {v.name for v in layout.outputs}
        names = [n for n in config.data.inputs if not set(data.campaign.names[n]) <= computed]
        if not names:
            raise ConfigError("every input is computed by a step", where="predict --forcing")
        # A step takes its inputs at its beginning: the first at the last sample of the file.
        times = np.concatenate(of_one_kind([data.times[-1:], ahead[:-1]]))
        drivers = open_drivers(trained, forcing, names, data, times)
        channels = set(drivers.data.layout.variables)
    try:
        left = [name for name in held if name not in channels]
        require_held(left, data.where, len(ahead), hold=hold)
        if data.num_samples == 1 and len(ahead) > 1 and not hold:
            constant = data.constant | channels
            if untold := [n for n in _uncomputed(config, layout, data) if n not in constant]:
                log.warning(
                    "%s: one sample does not tell whether %s change in time; they are held at it. "
                    "Fix: predict --forcing FILE; or --forcing hold",
                    data.where,
                    ", ".join(untold),
                )
    except ConfigError:
        if drivers is not None:
            drivers.data.close()
        raise
    return drivers


def _opened(trained: Trained, source: Path) -> Data:
    """Return the inputs of a file, compared with those of the training."""
    section = _inputs_only(trained.config)
    config = trained.config.model_copy(update={"data": section})
    data: Data = open_checked(EmulationStages(), config, source, trained.facts)
    like = replace(trained.model.layout, outputs=trained.model.layout.inputs)
    return matched(data, section, like, warn=True, compare_step=trained.facts is None)


def _stated_times(layout: Layout, data: Data, times: str, steps: int | None) -> np.ndarray:
    """Return the times of a prediction that the user states."""
    if layout.step_range is None:
        raise ConfigError(
            "the length of a step is no input of the emulator",
            where="predict --times",
            fix="--steps; or train with data.time_steps=input on uneven steps",
        )
    ahead = times_from(times, data.times[-1:])
    if steps is not None and steps != len(ahead):
        raise ConfigError(f"{steps} steps and {len(ahead)} times", where="predict --times")
    return ahead


def _step_lengths(layout: Layout, data: Data, ahead: np.ndarray) -> np.ndarray | None:
    """Return the length of each step in the unit of the training; None if it is no input.

    Raises:
        ConfigError: a length outside the range of the training.
    """
    if layout.step_range is None or not len(ahead):
        return None
    factor, offset = data.lines.get(STEP, (1.0, 0.0))
    times = np.concatenate(of_one_kind([data.times[-1:], ahead]))
    lengths = np.diff(numbers_of(times)) * factor + offset
    wrong = ~within(lengths, layout.step_range)
    if wrong.any():
        low, high = layout.step_range
        raise ConfigError(
            f"a step of {lengths[np.argmax(wrong)]:g} to {ahead[np.argmax(wrong)]}",
            where="predict --times",
            allowed=f"steps from {low:g} to {high:g}, as in the training",
            fix="intermediate times, or training on such steps",
        )
    return lengths


def is_rolled(config: EmulationConfig, layout: Layout, steps: int | None) -> bool:
    """Return whether a prediction is a rollout."""
    steps = config.rollout.predict if steps is None else steps
    return bool(layout.state) and config.data.lead > 0 and steps > 0


def _uncomputed(config: EmulationConfig, layout: Layout, data: Data) -> list[str]:
    """Return the inputs that no step computes, no parameters, that the data have."""
    computed = {v.name for v in layout.outputs} | {*config.data.parameters}
    if layout.step_range is not None:
        computed.add(STEP)
    return [
        v.name for v in layout.inputs if v.name not in computed and v.name in data.layout.variables
    ]


def _held_forcings(config: EmulationConfig, layout: Layout, data: Data) -> list[str]:
    """Return the inputs that no step computes, no parameters, that change in time in the data."""
    names = _uncomputed(config, layout, data)
    if not names:
        return []
    # Three samples show a change in time without a pass over the file; the middle one, because the
    # first and the last may be at the same phase of a period.
    samples = sorted({0, data.num_samples // 2, data.num_samples - 1})
    first, *others = (data.frame(sample) for sample in samples)
    return [
        name
        for name in names
        if any(not np.array_equal(first[name], frame[name], equal_nan=True) for frame in others)
    ]


def _variables(trained: Trained) -> dict[str, StreamedVariable]:
    layout, facts = trained.model.layout, trained.facts

    def attributes(variable: Variable) -> dict[str, str]:
        out = {"units": variable.units, "long_name": variable.long_name}
        stated = {name: text for name, text in out.items() if text}
        return stated | (facts.meaning(variable.name) if facts else {})

    return {
        v.name: StreamedVariable(
            v.dims,
            v.shape,
            attributes(v),
            fill_value=float("nan") if layout.mask and v.is_field else None,
        )
        for v in layout.outputs
    }


def _samples_of_a_part(variables: Mapping[str, StreamedVariable], data: Data) -> int:
    """Return the number of samples of a part, so that its inputs or outputs fill PART_BYTES."""
    written = sum(math.prod(v.shape) for v in variables.values())
    read = sum(math.prod(v.shape) for v in data.layout.variables.values())
    return max(1, PART_BYTES // (4 * max(written, read, 1)))


def _samples(parts: Parts, layout: Layout) -> Iterator[Frames]:
    """Yield the samples of all parts."""
    for number in range(parts.count):
        arrays = {n: v for n, v in parts.load(number).items() if "/" not in n}
        for place in range(len(next(iter(arrays.values()), ()))):
            yield layout.blank({n: v[place] for n, v in arrays.items()})


def _checked_lead(
    layout: Layout, config: EmulationConfig, lead: int | None, intervals: Intervals | None
) -> int:
    """Return the lead of a prediction: `lead`, or that of the configuration if it is None."""
    usual = config.data.lead
    if lead is None or lead == usual:
        return usual
    if not layout.leads:
        raise ConfigError(
            f"a lead of {lead} samples",
            where="predict --lead",
            allowed=str(usual),
            fix="train with data.leads=[...] for an emulator of several leads",
        )
    low, high = min(layout.leads), max(layout.leads)
    if not low <= lead <= high:
        raise ConfigError(
            f"a lead of {lead} samples",
            where="predict --lead",
            allowed=f"{low} to {high}",
        )
    if intervals is not None:
        raise ConfigError(
            f"intervals are calibrated in steps of {usual} samples, not of {lead}",
            where="predict --lead",
            fix=f"--lead {usual}",
        )
    if lead not in layout.leads:
        log.warning("the emulator learned leads %s: %d is interpolated", list(layout.leads), lead)
    return lead


def _bounds_of(
    variables: Mapping[str, StreamedVariable], intervals: Intervals
) -> dict[str, StreamedVariable]:
    """Return the variables of the lower and upper ends of the intervals."""
    return {
        f"{name}_{end}": replace(
            v, attrs={**v.attrs, "long_name": f"{side} end of the {intervals.coverage:g} interval"}
        )
        for name, v in variables.items()
        for end, side in (("low", "lower"), ("high", "upper"))
    }


def _inputs_only(config: EmulationConfig) -> DataConfig:
    """Return a data section that reads only the inputs."""
    units = {n: u for n, u in config.data.units.items() if n in config.data.inputs}
    return config.data.model_copy(
        update={"outputs": config.data.inputs, "units": units, "lead": config.data.lead or 1}
    )


@dataclass(frozen=True)
class _Forced:
    """Inputs that no step computes, at the beginning of each step: drivers, and its length."""

    drivers: Drivers | None
    lengths: np.ndarray | None

    def __call__(self, step: int) -> dict[str, np.ndarray]:
        driven = {} if self.drivers is None else self.drivers(step)
        return driven | self.length(step)

    def length(self, step: int) -> dict[str, np.ndarray]:
        """Return the length of a step as an input; nothing if it is none."""
        if self.lengths is None:
            return {}
        return {STEP: np.asarray(self.lengths[step], np.float32)}


class _MappedParts:
    """Outputs of the samples of a part, called with its number; samples are the first dim."""

    def __init__(
        self, emulator: AnyEmulator, data: Data, pieces: Sequence[range], lead: int
    ) -> None:
        self._emulator, self._data, self._pieces, self._lead = emulator, data, pieces, lead

    def __call__(self, number: int) -> dict[str, np.ndarray]:
        layout = self._emulator.layout
        inputs = self._data.inputs_of(self._pieces[number], layout, self._lead)
        return _stacked([step_once(self._emulator, frame) for frame in inputs])


class _RolledParts:
    """Steps of a rollout, called with the numbers of parts in ascending order.

    A part also holds the state at its end, as `MEMBER/VARIABLE`, from which the next one starts.
    """

    def __init__(
        self,
        emulator: AnyEmulator,
        config: EmulationConfig,
        data: Data,
        pieces: Sequence[range],
        parts: Parts,
        intervals: Intervals | None,
        lead: int,
        forced: _Forced | None = None,
    ) -> None:
        self._emulator, self._intervals = emulator, intervals
        self._pieces, self._parts = pieces, parts
        # Intervals were calibrated on rollouts without it.
        jitter = None if intervals is not None else jitter_of(config, emulator.layout)
        first = data.inputs(data.num_samples - 1, emulator.layout, lead)
        if forced is not None:
            first |= forced.length(0)
        self._running = Rollout(emulator, first, forced, jitters=copies(jitter, emulator))
        self._next = 0
        if intervals is not None and pieces[-1].stop > intervals.steps:
            log.warning(
                "intervals are calibrated for %d steps and are NaN afterwards. Fix: "
                "uncertainty.steps",
                intervals.steps,
            )

    def __call__(self, number: int) -> dict[str, np.ndarray]:
        piece = self._pieces[number]
        if piece.start != self._next:
            # Resumed: the previous part holds the state after its last step, under names with a
            # slash.
            before = on_rank_zero(lambda: self._parts.load(number - 1))
            state = {n: v for n, v in before.items() if "/" in n}
            self._running.continue_at(piece.start, state)
        frames = _stacked([self._outputs(step, self._running.advance()) for step in piece])
        self._next = piece.stop
        return frames | self._running.state()

    def _outputs(self, step: int, members: Sequence[Frames]) -> Frames:
        if self._intervals is None:
            return mean_of(self._emulator, members)
        out: dict[str, np.ndarray] = {}
        for name in members[0]:
            out[name], spread = member_statistics(members, name)
            ends = (np.full_like(out[name], np.nan),) * 2
            if step < self._intervals.steps:
                ends = self._intervals.bounds(name, step, out[name], spread)
            for end, values in zip(("low", "high"), ends, strict=True):
                out[f"{name}_{end}"] = self._emulator.layout.blank({name: values})[name]
        return out


def _stacked(samples: Sequence[Frames]) -> dict[str, np.ndarray]:
    return {name: np.stack([s[name] for s in samples]) for name in samples[0]}


def _two_times(data: Data, trained: Trained) -> np.ndarray:
    """Return the times of a file; before a single one, the time a step of the training earlier.

    Raises:
        DataError: the step of the training is no fixed length of time.
    """
    times, dim = data.times, data.layout.sample_dim
    if len(times) != 1 or dim not in data.dataset.coords:
        return times
    length = _trained_step(data, trained)
    if length is None:
        raise DataError(
            "one sample states no step",
            where=f"{data.where}: {dim}",
            allowed="two samples or more; one if all steps of the training are as long in the unit "
            "of the file",
            fix="a file with the sample before; predict --times if steps are an input",
        )
    return np.concatenate(of_one_kind([moved(times, -length), times]))


def _trained_step(data: Data, trained: Trained) -> Any:
    """Return the length of time between samples of the training, to subtract from times of data.

    None if it varies, is counted in the calendar, or has another unit than the file.
    """
    here, before = (
        next((d for d in facts.dims if d.role == "time"), None) if facts else None
        for facts in (data.facts, trained.facts)
    )
    if here is None or before is None:  # a model from before there were facts
        step, lead = trained.model.layout.step, trained.config.data.lead
        return step / lead if step and not is_dates(data.times) else None
    step = before.step
    if step is None or not step.is_even or before.kind != here.kind:
        return None
    if here.kind == "dates":
        if step.unit != "s":
            return None
        length = np.timedelta64(round(step.number * 1e6), "us")
        return length if data.times.dtype.kind == "M" else length.item()
    same = step.unit == here.units or not (step.unit and here.units)
    line = (1.0, 0.0) if same else conversion(step.unit, here.units)
    return None if line is None else step.number * line[0]


def _future(times: np.ndarray, steps: int, lead: int) -> np.ndarray:
    """Return the times of a rollout: dates by the calendar, else by the last step.

    Args:
        times: of the file, at least two, or numbers of samples.
        steps: of the rollout.
        lead: samples of a step.
    """
    if len(times) > 1 and is_dates(times):
        # All samples are counted and every `lead`-th is used: months differ in length, so that
        # `lead` times the last step would be another date.
        return times_after(times, steps * lead)[lead - 1 :: lead]
    step = times[-1] - times[-2] if len(times) > 1 else np.asarray(1, dtype="int64")
    return np.asarray([times[-1] + k * lead * step for k in range(1, steps + 1)])


def _valid(data: Data, until: np.ndarray, lead: int) -> np.ndarray:
    """Return the sample coordinate of mapped samples: `lead` steps after each sample.

    Args:
        data: the samples.
        until: their times, at least two.
        lead: samples of a step.
    """
    times = data.times
    if not lead or len(until) < 2:
        return times
    if STEP in data.campaign.row_values:
        rise = (until[-1] - until[-2]) * np.arange(1, lead + 1)
        return np.concatenate(of_one_kind([until, moved(until[-1:], rise)]))[-len(times) :]
    if is_dates(until):
        # The dates of the samples themselves, and those that the calendar has after the last.
        return np.concatenate(of_one_kind([until, times_after(until, lead)]))[-len(times) :]
    return np.asarray(times + lead * (until[-1] - until[-2]))
