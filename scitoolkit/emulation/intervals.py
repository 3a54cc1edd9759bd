"""Prediction intervals of rollouts, calibrated per lead on held-out trajectories.

The error at a point is modelled as `sqrt(a spread^2 + b)` times a standardised residual: `spread`
is the standard deviation of the members, a and b >= 0 are fitted by least squares to the squared
errors of the calibration trajectories, and the residual has their empirical quantiles (a
normalised split-conformal interval; Angelopoulos & Bates 2021, arXiv:2107.07511, section 2.3).
With one member the width does not depend on the state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls

from scitoolkit.core.errors import CheckpointError, DataError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.log import get_logger
from scitoolkit.emulation.config import EmulationConfig, UncertaintyConfig
from scitoolkit.emulation.data import Data
from scitoolkit.emulation.ensemble import AnyEmulator
from scitoolkit.emulation.noise import fair_crps
from scitoolkit.emulation.rollout import Frames, rollout_members

log = get_logger(__name__)
FILE = "intervals.json"
POINTS, ENOUGH = 4096, 20
LEVELS = (np.arange(39) + 0.5) / 39


@dataclass(frozen=True)
class Lead:
    """Error model of the members' mean after a number of steps.

    Attributes:
        slope: a, factor of the members' variance.
        floor: b, in the variable's unit squared.
        low: quantile of the standardised residuals at the lower end of the interval.
        high: quantile at the upper end.
        quantiles: quantiles at LEVELS, ascending: the predictive distribution.
    """

    slope: float
    floor: float
    low: float
    high: float
    quantiles: list[float]

    def scale(self, spread: np.ndarray) -> np.ndarray:
        """Return the standard deviation of the error for a standard deviation of the members."""
        return np.sqrt(self.slope * np.asarray(spread, np.float64) ** 2 + self.floor)


@dataclass(frozen=True)
class Intervals:
    """Calibrated intervals of an emulator.

    Attributes:
        coverage: nominal share of true values inside.
        trajectories: number of calibration simulations.
        leads: {output: a `Lead` for each step}.
    """

    coverage: float
    trajectories: int
    leads: dict[str, list[Lead]]

    @property
    def steps(self) -> int:
        """Number of calibrated steps."""
        return len(next(iter(self.leads.values())))

    def bounds(
        self, name: str, step: int, mean: np.ndarray, spread: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (low, high) of an output, (*dims) each; `step` 0 is the first step."""
        lead = self.leads[name][step]
        scale = lead.scale(spread)
        return mean + lead.low * scale, mean + lead.high * scale

    def save(self, folder: Path) -> None:
        """Write the intervals next to the weights."""
        write_atomic(folder / FILE, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Intervals:
        """Read what `save` wrote.

        Raises:
            CheckpointError: a missing or damaged file.
        """
        path = folder / FILE
        try:
            stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            leads = {
                n: [Lead(**lead) for lead in by_step] for n, by_step in stored["leads"].items()
            }
            return cls(stored["coverage"], stored["trajectories"], leads)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"intervals cannot be read ({error})", where=str(path)) from None


@dataclass
class Pairs:
    """True and forecast values of one step at random points of several rollouts, (points,) each.

    Attributes:
        truth: of the file.
        mean: of the members.
        spread: the members' standard deviation.
        crps: the members' fair CRPS; the absolute error of a single member.
        rank: number of members below the truth, and half of those that are equal to it.
        members: number of members; 0 if `crps` and `rank` are not known.
    """

    truth: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    crps: np.ndarray = field(default_factory=lambda: np.zeros(0))
    rank: np.ndarray = field(default_factory=lambda: np.zeros(0))
    members: int = 0

    def share_inside(self, coverage: float) -> float | None:
        """Return the share of true values between the j-th members from below and above.

        The share of m members that are draws from the truth's distribution is
        (m + 1 - 2 j) / (m + 1); j is the largest with at least `coverage`. None for fewer members.

        Example:
            >>> zeros = np.zeros(20)
            >>> Pairs(zeros, zeros, zeros, zeros, np.arange(20), 19).share_inside(0.9)
            0.9
        """
        j = int((1 - coverage) / 2 * (self.members + 1) + 1e-9)
        if j < 1:
            return None
        return float(((self.rank >= j) & (self.rank <= self.members - j)).mean())


def member_statistics(frames: Sequence[Frames], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of an output over the members, (*dims) float64 each."""
    values = np.stack([f[name] for f in frames]).astype(np.float64)
    spread = values.std(0, ddof=1) if len(values) > 1 else np.zeros_like(values[0])
    return values.mean(0), spread


def roll_on_data(
    emulator: AnyEmulator, data: Data, blocks: Sequence[range], config: EmulationConfig
) -> dict[str, list[Pairs]]:
    """Roll out from several starts per trajectory and pair the forecasts with true values.

    Args:
        emulator: an emulator or an ensemble.
        data: the opened campaign.
        blocks: samples of the trajectories, each range within one simulation.
        config: the job.

    Returns:
        {output: one `Pairs` per step}; all steps have the same starts.

    Raises:
        DataError: no trajectory is long enough.
    """
    settings = config.uncertainty
    assert settings is not None
    lead, steps = config.data.lead, settings.steps
    before, span = config.data.samples_before, lead * settings.steps
    firsts = [b.start + before for b in blocks if len(b) > before + span]
    if not firsts:
        raise DataError(
            f"no trajectory of more than {before + span} samples among {len(blocks)}",
            where=data.where,
            fix="fewer uncertainty.steps, or longer simulations",
        )
    lasts = [b.stop - span for b in blocks if len(b) > before + span]
    starts = [
        int(s)
        for a, b in zip(firsts, lasts, strict=True)
        for s in np.unique(np.linspace(a, b - 1, settings.starts).astype(int))
    ]
    valid, outputs = emulator.layout.valid, emulator.layout.outputs
    names = [v.name for v in outputs]
    points = {
        v.name: np.flatnonzero(valid if valid is not None and v.is_field else np.ones(v.shape))
        for v in outputs
    }
    parts: dict[str, list[list[Pairs]]] = {n: [[] for _ in range(steps)] for n in names}
    for number, start in enumerate(starts):
        frames = rollout_members(
            emulator,
            data.inputs(start, emulator.layout, lead),
            steps,
            forcing=data.forcing(start, lead),
        )
        for step, members in enumerate(frames):
            truth = data.frame(start + (step + 1) * lead)
            for name in names:
                parts[name][step].append(
                    _drawn(truth[name], members, name, points[name], (number, step))
                )
    return {n: [_joined(drawn) for drawn in by_step] for n, by_step in parts.items()}


def _drawn(
    truth: np.ndarray,
    members: Sequence[Frames],
    name: str,
    points: np.ndarray,
    seed: tuple[int, int],
) -> Pairs:
    """Return at most POINTS random points of a frame; `seed` differs by rollout and step."""
    mean, spread = member_statistics(members, name)
    if len(points) > POINTS:
        points = np.random.default_rng(seed).choice(points, POINTS, replace=False)
    true, mean, spread = (x.astype(np.float64).ravel()[points] for x in (truth, mean, spread))
    values = np.stack([frame[name].ravel()[points] for frame in members]).astype(np.float64)
    errors = torch.from_numpy(values - true)[None]
    score = fair_crps(errors)[0] if len(members) > 1 else errors[0, 0].abs()
    # Where a value is certain, as at a wall, all members are the truth: it is inside their band.
    rank = 0.5 * ((values < true).sum(0) + (values <= true).sum(0))
    return Pairs(true, mean, spread, score.numpy(), rank, len(members))


def _joined(parts: Sequence[Pairs]) -> Pairs:
    columns = ("truth", "mean", "spread", "crps", "rank")
    joined = {c: np.concatenate([getattr(p, c) for p in parts]) for c in columns}
    return Pairs(**joined, members=parts[0].members)


def calibrate(
    emulator: AnyEmulator, data: Data, blocks: Sequence[range], config: EmulationConfig
) -> Intervals:
    """Return intervals calibrated on the errors of held-out trajectories.

    Args:
        emulator: an emulator or an ensemble.
        data: the opened campaign.
        blocks: samples of the calibration trajectories, each range within one simulation.
        config: the job, with `uncertainty`.

    Raises:
        DataError: no trajectory is long enough.
    """
    settings = config.uncertainty
    assert settings is not None
    simulations = len(
        {int(data.campaign.index.simulation_of(np.array([b.start]))[0]) for b in blocks}
    )
    if simulations < ENOUGH:
        log.warning(
            "intervals are calibrated on %d trajectories; with fewer than %d their coverage on new "
            "ones is uncertain. Fix: more simulations in the validation part",
            simulations,
            ENOUGH,
        )
    pairs = roll_on_data(emulator, data, blocks, config)
    leads = {n: [_lead(p, settings) for p in by_step] for n, by_step in pairs.items()}
    return Intervals(settings.coverage, simulations, leads)


def _lead(pairs: Pairs, settings: UncertaintyConfig) -> Lead:
    error = pairs.truth - pairs.mean
    squares = np.stack([pairs.spread**2, np.ones_like(error)], 1)
    unit = max(float((error**2).mean()), 1e-300)
    slope, floor = nnls(squares / unit, error**2 / unit)[0]
    # Members that agree by chance do not make the error zero.
    lead = Lead(float(slope), max(float(floor), 1e-3 * unit), 0.0, 0.0, [])
    residual = error / lead.scale(pairs.spread)
    tail = (1 - settings.coverage) / 2
    low, high = np.quantile(residual, [tail, 1 - tail])
    quantiles = np.quantile(residual, LEVELS).tolist()
    return Lead(lead.slope, lead.floor, float(low), float(high), quantiles)


@dataclass(frozen=True)
class IntervalScores:
    """Scores of intervals on test trajectories, for each step.

    Attributes:
        coverage: share of true values inside.
        crps: continuous ranked probability score, in the output's unit.
        mae: mean absolute error of the members' mean.
        width: mean width.
        spread_over_error: root mean square spread of the members, with the factor (m + 1) / m of
            its square for m members, over the root mean square error of their mean; 1 for members
            that are draws from the distribution of the truth (Fortin et al. 2014,
            doi:10.1175/JHM-D-14-0008.1).
        members_crps: fair CRPS of the members without calibration.
        members_coverage: share of true values inside the members' own band; None for too few
            members, see `Pairs.share_inside`.
    """

    coverage: list[float]
    crps: list[float]
    mae: list[float]
    width: list[float]
    spread_over_error: list[float]
    members_crps: list[float]
    members_coverage: list[float | None]


def score(intervals: Intervals, pairs: dict[str, list[Pairs]]) -> dict[str, IntervalScores]:
    """Return the scores of each output for a result of `roll_on_data`."""
    scores = {}
    for name, by_step in pairs.items():
        rows = [_scores(intervals, name, step, p) for step, p in enumerate(by_step)]
        scores[name] = IntervalScores(*(list(column) for column in zip(*rows, strict=True)))
    return scores


def crps(truth: np.ndarray, quantiles: np.ndarray) -> float:
    """Return the mean continuous ranked probability score of quantile forecasts.

    Twice the pinball loss, averaged over levels (Gneiting & Ranjan 2011,
    doi:10.1198/jbes.2010.08110, eq. 5).

    Args:
        truth: (points,).
        quantiles: (levels, points) at LEVELS.
    """
    below = truth < quantiles
    return float(2 * np.mean((below - LEVELS[:, None]) * (quantiles - truth)))


def _scores(intervals: Intervals, name: str, step: int, pairs: Pairs) -> Iterator[float | None]:
    low, high = intervals.bounds(name, step, pairs.mean, pairs.spread)
    lead, error = intervals.leads[name][step], pairs.truth - pairs.mean
    quantiles = np.array(lead.quantiles)[:, None] * lead.scale(pairs.spread)
    yield float(((pairs.truth >= low) & (pairs.truth <= high)).mean())
    yield crps(error, quantiles)
    yield float(np.abs(error).mean())
    yield float((high - low).mean())
    rms = float(np.sqrt((error**2).mean()))
    fair = 1 + 1 / pairs.members if pairs.members else 1.0
    yield float(np.sqrt(fair * (pairs.spread**2).mean())) / rms if rms else 0.0
    yield float(pairs.crps.mean()) if pairs.members else float("nan")
    yield pairs.share_inside(intervals.coverage)
