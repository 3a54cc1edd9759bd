"""Evaluation of one step and of rollouts against baselines: errors in units, and spectra."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.emulation.climate import Climate, LongRollout, long_rollout
from scitoolkit.emulation.climatology import FieldClimatology, days_of_year
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import Data
from scitoolkit.emulation.ensemble import AnyEmulator, members_of, with_draws
from scitoolkit.emulation.intervals import Intervals, IntervalScores, roll_on_data, score
from scitoolkit.emulation.metrics import spectrum, squared_error
from scitoolkit.emulation.motion import Motion
from scitoolkit.emulation.normalized_network import mean_values
from scitoolkit.emulation.regions import RegionalScores, regions_of
from scitoolkit.emulation.rollout import (
    Frames,
    jitter_of,
    linear_extrapolation,
    persistence,
    rollout,
    step_once,
)
from scitoolkit.emulation.variables import STEP, Layout, weights_of_step
from scitoolkit.io.facts import is_dates

log = get_logger(__name__)
OWN, PERSISTENCE, LINEAR = "emulator", "persistence", "linear extrapolation"
MATCHED = "emulator, where linear extrapolation has a frame before it"
REPEATED = "emulator, in steps of data.lead"
NORMAL = "climatology"
MAX_STARTS, MAX_STEPS, SPECTRA = 16, 64, 8


class Evaluation:
    """Scores of an emulator on test samples.

    Errors are root mean squares over samples and cells, weighted by cell volumes; those of rollouts
    are also averaged over the starts.

    Args:
        emulator: the emulator.
        data: the opened file.
        blocks: test samples, each range within one simulation.
        config: the job.
        intervals: calibrated prediction intervals to score; None for none.
        climatology: of the training part, for anomalies; None for none.

    Attributes:
        regional, regional_rollouts: scores by region of one step, and of each step of rollouts;
            None without regions and climatology.
        interval_scores: {output: scores of the intervals}; None without intervals.
        by_lead: {lead: {forecast: {output: RMSE}}} of an emulator of several leads.
        motion: planes of the first rollout, of the field with the largest relative change in a
            step; None without rollouts of fields.
        one_step: {forecast: {output: RMSE after one step}}.
        plain, plain_rollouts: as `one_step` and `rollouts`, with equal weights of all cells.
        rollouts: {forecast: {output: [RMSE after step 1, 2, ...]}}; None for steps without a value.
        deviation: {output: volume-weighted standard deviation of the truth}.
    """

    layout: Layout
    lead: int
    weights: dict[str, np.ndarray]
    one_step: Any
    plain: Any
    deviation: dict[str, float]
    rollouts: dict[str, dict[str, list[float | None]]]
    starts: int

    def __init__(
        self,
        emulator: AnyEmulator,
        data: Data,
        blocks: Sequence[range],
        config: EmulationConfig,
        intervals: Intervals | None = None,
        climatology: FieldClimatology | None = None,
    ) -> None:
        self.emulator: AnyEmulator = emulator
        self.data: Data = data
        self.config: EmulationConfig = config
        self.layout, self.lead = emulator.layout, config.data.lead
        self.outputs: list[str] = [v.name for v in self.layout.outputs]
        self.weights = {
            v.name: data.layout.weights() if v.is_field else np.ones(v.shape)
            for v in self.layout.outputs
        }
        self._fields = {v.name for v in self.layout.outputs if v.is_field}
        valid = self.layout.valid
        alike = 1.0 if valid is None else valid / valid.mean()
        self.alike: dict[str, float | Any] = {
            v.name: alike if v.is_field else 1.0 for v in self.layout.outputs
        }
        self.num_samples: int = sum(map(len, blocks))
        before = config.data.samples_before
        # Samples whose history would reach into another part or simulation are left out.
        self.blocks: list[range] = [b[before:] for b in blocks if len(b) > self.lead + before]
        if not self.blocks:
            raise DataError(
                f"{self.num_samples} samples to test on",
                where=data.where,
                allowed=f"more than {self.lead + before}",
                fix="split.test, or data.test=FILE",
            )
        self.spectra: dict[str, dict[str, list[np.ndarray]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self.frames: dict[int, dict[str, Frames]] = {}
        self.climatology: FieldClimatology | None = self._on_this_grid(climatology)
        self.regional, self.regional_rollouts = self._regional(), self._regional()
        self.one_step, self.plain, self.deviation = self._one_step()
        self.motion: Motion | None = None
        self.plain_rollouts: dict[str, dict[str, list[float | None]]] = {}
        self.rollouts, self.starts = self._rollouts() if self.has_rollout else ({}, 0)
        self.interval_scores: dict[str, IntervalScores] | None = None
        if intervals is not None:
            pairs = roll_on_data(emulator, data, blocks, config)
            self.interval_scores = score(intervals, pairs)
        self.by_lead: dict[int, dict[str, dict[str, float]]] = {
            lead: self._at_lead(lead) for lead in self.layout.leads
        }
        self.truth_climate: Climate = self._climate()
        self.long: LongRollout | None = self._long_rollout() if self.goes_on else None

    def _on_this_grid(self, climatology: FieldClimatology | None) -> FieldClimatology | None:
        """Return the climatology of these cells; None if it is of others, or of an old model."""
        if climatology is None:
            return None
        cells = tuple(self.data.layout.grid.values())
        if any(mean.shape[1:] != cells for mean in climatology.means.values()):
            log.warning("the climatology is of the grid of the training: no anomaly correlations")
            return None
        if climatology.by == "day_of_year" and not self._has_dates:
            log.warning("the climatology needs dates: no anomaly correlations")
            return None
        return climatology

    @property
    def _has_dates(self) -> bool:
        return self.data.row_times is not None and is_dates(self.data.row_times)

    def _regional(self) -> RegionalScores | None:
        """Return empty scores by region; None if there is nothing to score but the whole grid."""
        regions = regions_of(self.config, self.data)
        if len(regions) == 1 and self.climatology is None:
            return None
        return RegionalScores(regions, [v.name for v in self.layout.outputs if v.is_field])

    def _lengths(self, start: int, steps: int) -> list[float] | None:
        """Return the lengths of the step to a sample and of those after it; None if even."""
        lengths = self.data.campaign.row_values.get(STEP)
        if lengths is None:
            return None
        rows = start + self.lead * np.arange(-1, steps)
        return [float(value) for value in lengths[rows]]

    def normal(self, sample: int) -> Frames | None:
        """Return the climatology at the time of a sample; None without one."""
        if self.climatology is None:
            return None
        if self.climatology.by == "constant":
            return self.climatology.at(np.zeros(2))
        assert self.data.row_times is not None
        return self.climatology.at(days_of_year(self.data.row_times[[sample]])[0])

    def _add_regional(
        self,
        scores: RegionalScores | None,
        step: int,
        sample: int,
        truth: Frames,
        forecasts: Mapping[str, Frames],
    ) -> None:
        if scores is None:
            return
        normal = self.normal(sample)
        if self.layout.mask_of_step:
            valid = truth[self.layout.mask_of_step] > 0.5
            scores = scores.where(valid)
        for kind in (OWN, PERSISTENCE):
            if kind in forecasts:
                scores.add(kind, step, truth, forecasts[kind], normal)
        if normal is not None:
            scores.add(NORMAL, step, truth, normal, None)

    @property
    def has_rollout(self) -> bool:
        """Whether rollouts of two steps or more are possible."""
        return bool(self.lead and self.layout.state) and self._longest > 2 * self.lead

    @property
    def goes_on(self) -> bool:
        """Whether a rollout can continue beyond the data: its other inputs are constant in time."""
        steps = self.config.rollout.long
        available = {*self.layout.recurrent, *self.data.constant}
        available |= {v.name for v in self.layout.inputs if not v.stored}
        return self.has_rollout and steps > 0 and available >= {v.name for v in self.layout.inputs}

    def _cells(self, name: str, truth: Frames, *, alike: bool = False) -> Any:
        """Return the weights of an output's cells at the time of the truth."""
        weights = (self.alike if alike else self.weights)[name]
        if name not in self._fields:
            return weights
        return weights_of_step(weights, self.layout, truth)

    def _climate(self) -> Climate:
        fields = [v.name for v in self.layout.outputs if v.is_field]
        weights = self.data.layout.weights()
        return Climate(fields, self.config.quantities, weights, self.spectral_axis)

    def _long_rollout(self) -> LongRollout:
        """Return the climate of a rollout beyond the data, from the first test sample."""
        for block in self.blocks:
            for sample in block:
                self.truth_climate.add(self.frame(sample))
        steps = self.config.rollout.long
        jitter = jitter_of(self.config, self.layout)
        first = self.inputs(self.blocks[0].start)
        emulator = self.emulator
        if self.layout.noise:  # the mean of members has no climate
            emulator = with_draws(members_of(emulator)[0], self.config, 1)
        frames = rollout(emulator, first, steps, jitter=jitter)
        return long_rollout(frames, self._climate(), steps, self.truth_climate.ranges())

    @property
    def _longest(self) -> int:
        return max(map(len, self.blocks))

    def frame(self, sample: int) -> Frames:
        """Return the variables of one sample, the emulator's mean outside of the step's mask."""
        frame = self.data.frame(sample)
        if not self.layout.mask_of_step:
            return frame
        valid = frame[self.layout.mask_of_step] > 0.5
        means = mean_values(members_of(self.emulator)[0].advance)
        filled = {n: np.where(valid, frame[n], means[n]) for n in self._fields & set(means)}
        return frame | filled

    def inputs(self, sample: int) -> Frames:
        """Return the inputs of one sample, earlier values included."""
        return self.data.inputs(sample, self.layout, self.lead)

    def _one_step(self) -> tuple[Any, Any, dict[str, float]]:
        errors, plain = _Errors(), _Errors()
        moments: dict[str, list[list[float]]] = defaultdict(list)
        pairs = [(block, s) for block in self.blocks for s in block[: len(block) - self.lead]]
        for block, sample in pairs:
            now = self.frame(sample)
            truth = self.frame(sample + self.lead) if self.lead else now
            forecasts: dict[str, Frames] = {OWN: step_once(self.emulator, self.inputs(sample))}
            if self.lead:
                forecasts[PERSISTENCE] = now
                if sample - self.lead >= block.start:
                    before = self.frame(sample - self.lead)
                    forecasts[LINEAR] = next(
                        linear_extrapolation(before, now, 1, self._lengths(sample, 1))
                    )
            for name in self.outputs:
                value, weights = truth[name].astype(np.float64), self._cells(name, truth)
                moments[name].append([(value * weights).mean(), (value**2 * weights).mean()])
                for forecast, frames in forecasts.items():
                    errors.add(forecast, name, 0, squared_error(truth[name], frames[name], weights))
                    alike = squared_error(
                        truth[name], frames[name], self._cells(name, truth, alike=True)
                    )
                    plain.add(forecast, name, 0, alike)
            self._add_regional(self.regional, 0, sample + self.lead, truth, forecasts)
            self._keep_spectra("one step", truth, forecasts[OWN])
            if sample == self.blocks[0].start and not self.lead:
                self._show(0, truth, forecasts[OWN])
        deviation = {}
        for name, rows in moments.items():
            mean, square = np.mean(rows, axis=0)
            deviation[name] = float(np.sqrt(max(square - mean**2, 0.0)))
        return errors.first(), plain.first(), deviation

    def _rollouts(self) -> tuple[dict[str, dict[str, list[float | None]]], int]:
        longest = (self._longest - 1) // self.lead
        length = min(self.config.rollout.evaluate or longest, longest, MAX_STEPS)
        # A start near the end of a block gives a shorter rollout: means of late steps are of fewer
        # starts.
        possible = [(b, s) for b in self.blocks for s in b[: len(b) - self.lead]]
        chosen = np.unique(np.linspace(0, len(possible) - 1, MAX_STARTS).astype(int))
        first = self.blocks[0]
        fields = [v.name for v in self.layout.outputs if v.is_field]
        shown = min(length, (len(first) - 1) // self.lead)
        if fields and shown > 1:
            self.motion = Motion(self.layout, max(fields, key=self._activity), shown)
        errors, plain = _Errors(), _Errors()
        for block, start in (possible[i] for i in chosen):
            self._one_rollout(errors, plain, block, start, length)
        self.plain_rollouts = self._series(plain, length)
        return self._series(errors, length), len(chosen)

    def _at_lead(self, lead: int) -> dict[str, dict[str, float]]:
        """Return the errors of a single step of one lead and of repeated steps of `data.lead`."""
        errors, usual = _Errors(), self.lead
        starts = [s for b in self.blocks for s in b[: max(len(b) - lead, 0)]]
        if not starts:
            return {}
        chosen = np.unique(np.linspace(0, len(starts) - 1, MAX_STARTS).astype(int))
        for start in (starts[i] for i in chosen):
            now, truth = self.frame(start), self.frame(start + lead)
            own = step_once(self.emulator, self.data.inputs(start, self.layout, lead))
            forecasts: dict[str, Frames] = {OWN: own, PERSISTENCE: now}
            # Only multiples of the usual lead can be reached in repeated steps.
            if self.layout.state and lead > usual and lead % usual == 0:
                *_, last = rollout(
                    self.emulator,
                    self.inputs(start),
                    lead // usual,
                    jitter=jitter_of(self.config, self.layout),
                    forcing=self.data.forcing(start, usual),
                )
                forecasts[REPEATED] = last
            for forecast, frames in forecasts.items():
                for name in self.outputs:
                    weights = self._cells(name, truth)
                    squared = squared_error(truth[name], frames[name], weights)
                    errors.add(forecast, name, 0, squared)
        return errors.first()

    def _series(self, errors: _Errors, length: int) -> dict[str, dict[str, list[float | None]]]:
        return {
            forecast: {name: errors.series(forecast, name, length) for name in self.outputs}
            for forecast in (OWN, PERSISTENCE, LINEAR, MATCHED)
        }

    def _one_rollout(
        self, errors: _Errors, plain: _Errors, block: range, start: int, length: int
    ) -> None:
        lead, first, shown = self.lead, self.frame(start), min(SPECTRA, length)
        length = min(length, (block.stop - 1 - start) // lead)
        is_first = start == self.blocks[0].start
        baselines: dict[str, Iterator[Frames]] = {PERSISTENCE: persistence(first, length)}
        if start - lead >= block.start:
            baselines[LINEAR] = linear_extrapolation(
                self.frame(start - lead), first, length, self._lengths(start, length)
            )
        own = rollout(
            self.emulator,
            self.inputs(start),
            length,
            jitter=jitter_of(self.config, self.layout),
            forcing=self.data.forcing(start, lead),
        )
        keep = {1, (length + 1) // 2, length}
        for step, forecast in enumerate(own, start=1):
            truth = self.frame(start + step * lead)
            frames_of = {
                OWN: forecast,
                **{name: next(frames) for name, frames in baselines.items()},
            }
            if LINEAR in baselines:
                # Starts without an earlier frame have no linear extrapolation: it is compared with
                # the emulator on the starts that both have.
                frames_of[MATCHED] = forecast
            for kind, frame in frames_of.items():
                for name in self.outputs:
                    weights = self._cells(name, truth)
                    errors.add(
                        kind, name, step - 1, squared_error(truth[name], frame[name], weights)
                    )
                    alike = squared_error(
                        truth[name], frame[name], self._cells(name, truth, alike=True)
                    )
                    plain.add(kind, name, step - 1, alike)
            at = start + step * lead
            self._add_regional(self.regional_rollouts, step - 1, at, truth, frames_of)
            if step == shown:
                self._keep_spectra(f"rollout step {step}", truth, forecast)
            if is_first and step in keep:
                self._show(step, truth, forecast)
            if is_first and self.motion is not None:
                self.motion.add(step, truth, forecast)

    def _activity(self, name: str) -> float:
        """Return the change of an output in a step relative to its standard deviation."""
        return self.one_step[PERSISTENCE][name] / (self.deviation[name] or np.inf)

    def _show(self, step: int, truth: Frames, forecast: Frames) -> None:
        blank = self.layout.blank
        self.frames[step] = {"truth": blank(truth), OWN: blank(forecast)}

    def _keep_spectra(self, label: str, truth: Frames, forecast: Frames) -> None:
        axis = self.spectral_axis
        if axis is None or self.layout.mask_of_step:
            return
        for variable in self.layout.outputs:
            if variable.is_field:
                name, weights = variable.name, self.weights[variable.name]
                spectra = self.spectra[name]
                spectra[f"truth, {label}"].append(spectrum(truth[name], axis, weights))
                spectra[label].append(spectrum(forecast[name], axis, weights))

    @property
    def spectral_axis(self) -> int | None:
        """The first periodic dim of the grid along which a mask does not change."""
        dims, valid = list(self.layout.grid), self.layout.valid
        return next(
            (
                i
                for i, d in enumerate(dims)
                if self.config.boundary.get(d) == "circular"
                and (valid is None or (valid == valid.take([0], i)).all())
            ),
            None,
        )

    def ratio(self, errors: Mapping[str, Mapping[str, float]], baseline: str) -> dict[str, float]:
        """Return {output: error of the emulator over that of a baseline}."""
        other = errors[baseline]
        return {n: errors[OWN][n] / other[n] for n in self.outputs if other[n] > 0}

    def steps_better(self, name: str, baseline: str) -> int:
        """Return the number of initial steps of a rollout with a smaller error than a baseline."""
        own = self.rollouts[MATCHED if baseline == LINEAR else OWN][name]
        count = 0
        for mine, other in zip(own, self.rollouts[baseline][name], strict=True):
            # Written so that an error of NaN is not better.
            if mine is None or other is None or not mine < other:
                break
            count += 1
        return count


class _Errors:
    """Mean squared errors by forecast, output and step."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str, int], list[float]] = defaultdict(lambda: [0.0, 0.0])

    def add(self, forecast: str, name: str, step: int, squared: float) -> None:
        entry = self._sums[forecast, name, step]
        entry[0] += squared
        entry[1] += 1

    def get(self, forecast: str, name: str, step: int) -> float | None:
        total, count = self._sums.get((forecast, name, step), (0.0, 0.0))
        return float(np.sqrt(total / count)) if count else None

    def series(self, forecast: str, name: str, length: int) -> list[float | None]:
        return [self.get(forecast, name, step) for step in range(length)]

    def first(self) -> dict[str, dict[str, float]]:
        """Return the errors of step 0: {forecast: {output: RMSE}}."""
        out: dict[str, dict[str, float]] = defaultdict(dict)
        for (forecast, name, step), (total, count) in self._sums.items():
            if step == 0:
                out[forecast][name] = float(np.sqrt(total / count))
        return dict(out)
