"""Search strategy `gaussian_process`: Bayesian optimisation without hidden state."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc
from threadpoolctl import ThreadpoolController

from scitoolkit.search.space import Codes, Space
from scitoolkit.search.strategies.base import Feasible, Proposal, Strategy
from scitoolkit.search.strategies.evolution import AgingEvolution
from scitoolkit.search.strategies.gaussian_process.acquisition import (
    Acquisition,
    region_side,
    trust_region,
    whole,
)
from scitoolkit.search.strategies.gaussian_process.embedding import Array, Embedding
from scitoolkit.search.strategies.gaussian_process.priors import Priors, exponent
from scitoolkit.search.strategies.gaussian_process.process import GaussianProcess
from scitoolkit.search.trial import Trial

GLOBAL_EVERY = 4
"""One proposal in this many maximises the acquisition globally, the others in the trust region."""
# Losses: size to which larger ones are scaled, and where they are clipped, so that squares are
# finite in float64. `_CHECKED`: refused candidates after which a sample is drawn. `_FEWEST`:
# results that a model needs.
_LARGE, _LARGEST = 1e50, 1e100
_CHECKED = 64
_FEWEST = 3
_HOPELESS = 50.0
_FARTHEST = 10.0
_NEAREST = 1e-6
_OFF = -1.0
_POPULATION, _TOURNAMENT = 50, 10


class GaussianProcessSearch(Strategy):
    """Bayesian optimisation: expected improvement in a trust region, every fourth time globally.

    Each proposal is a function of the trials, the seed and its number: the process is fitted from
    a fixed starting point and the trust region is recomputed, so that a replay needs no fits and
    a resumed search continues as if uninterrupted (with the same build of numpy and scipy; the
    computation is single-threaded). Failed trials are assigned the worst loss, pruned ones the
    upper quartile, and violated limits add a penalty that grows with the violation. Running trials
    are assumed to return the predicted loss. Several objectives are scalarised with random weights
    (ParEGO). With successive halving, losses at small budgets are shifted by the median difference
    to the next budget.

    Args:
        start: number of points of a shifted Sobol sequence before the first model.
        until: number of trials after which evolution takes over, because the cost of a fit is
            cubic in the number of trials.

    Source:
        expected improvement: Jones et al. 1998, doi:10.1023/A:1008306431147; ParEGO: Knowles
        2006, doi:10.1109/TEVC.2005.851274.
    """

    name = "gaussian_process"

    def __init__(self, start: int = 8, until: int = 200) -> None:
        self.num_start, self.until = start, until

    def start(self, space: Space, seed: int, feasible: Feasible) -> None:
        """Initialise without trials."""
        super().start(space, seed, feasible)
        self.embedding: Embedding = Embedding(space)
        self.priors: Priors = Priors(self.embedding)
        self.issued: dict[int, Codes] = {}
        self.rows: dict[int, Array] = {}
        self.results: dict[int, list[tuple[float, ...]]] = {}
        self.failed: set[int] = set()
        self.pruned: set[int] = set()
        self.first: dict[int, int] = {}
        self.violations: dict[int, float] = {}
        population = min(_POPULATION, self.until)
        self.later: AgingEvolution = AgingEvolution(population, min(_TOURNAMENT, population))
        self.later.start(space, seed, feasible)

    def propose(self, rng: random.Random) -> Proposal:
        """Return a point of the initial design, of the model, or, after `until`, of evolution."""
        if self.count >= self.until:
            return self.later.propose(rng)
        observed = len(self.results.keys() - self.failed - self.pruned)
        if self.count < self.num_start or observed < _FEWEST or not self.embedding.free.any():
            return Proposal(self._initial(rng), "start")
        with _blas().limit(limits=1, user_api="blas"):
            return self._modelled(rng)

    def on_issue(self, trial: Trial) -> None:
        """Record a running trial."""
        super().on_issue(trial)
        self.issued[trial.id] = trial.codes
        self.later.on_issue(trial)

    def observe(self, trial: Trial) -> None:
        """Record the losses of a stage, or the failure, in the order of the log."""
        before = self.results.pop(trial.id, [])
        self.results[trial.id] = before
        if trial.status == "done":
            before.append(trial.values)
            self.violations[trial.id] = trial.violation
            self.first.setdefault(trial.id, trial.reached)
        elif trial.status == "pruned":
            self.pruned.add(trial.id)
        else:
            self.failed.add(trial.id)
        self.later.observe(trial)

    def state(self) -> dict[str, Any]:
        """Return the counters of issued, finished and failed trials."""
        return {**super().state(), "known": len(self.results), "failed": len(self.failed)}

    def describe(self) -> dict[str, Any]:
        """Return name and settings."""
        return {"name": self.name, "start": self.num_start, "until": self.until}

    # --- proposals --------------------------------------------------------------------------

    def _initial(self, rng: random.Random) -> Codes:
        sobol = _sobol(len(self.embedding.axes), self.seed, self.num_start)
        rows = self.embedding.lift(self.priors.start(sobol))
        points = iter([rows[self.count]] if self.count < self.num_start else [])

        def draw() -> Codes:
            row = next(points, None)
            codes = None if row is None else self.embedding.codes(row)
            usable = codes is not None and self.space.allows(codes)
            return codes if codes is not None and usable else self.space.sample_codes(rng)

        return self.sample_unseen(rng, draw)

    def _modelled(self, rng: random.Random) -> Proposal:
        generator = np.random.default_rng(rng.getrandbits(64))
        numbers = list(self.results)
        losses = self.losses(numbers, generator)
        scaled = compressed(losses)
        rows = self._rows(numbers)
        process = GaussianProcess(self.embedding.features(rows), self.embedding.category, scaled)
        running = [n for n in self.issued if n not in self.results]
        process.add(self.embedding.features(self._rows(running)))
        best = int(np.argmin(losses))
        local = self.count % GLOBAL_EVERY > 0
        region = whole(self.embedding)
        if local:
            side = region_side(losses, int(self.embedding.free.sum()), self.num_start)
            region = trust_region(self.embedding, process, rows[best], side)
        around = rows[np.argsort(losses, kind="stable")[:3]]
        acquisition = Acquisition(
            self.embedding,
            process,
            scaled[best],
            region,
            generator,
            self.priors,
            exponent(len(numbers)),
        )
        issued = self._rows(list(self.issued))
        codes = self._first_new(acquisition.candidates(around), issued)
        if codes is not None:
            return Proposal(codes, "region" if local else "global")
        return Proposal(self.sample_unseen(rng, lambda: self.space.sample_codes(rng)), "random")

    def _rows(self, numbers: list[int]) -> Array:
        """Return the rows (N, V) of trials, cached per trial."""
        for number in numbers:
            if number not in self.rows:
                self.rows[number] = self.embedding.rows([self.issued[number]])[0]
        return np.array([self.rows[n] for n in numbers]).reshape(-1, len(self.embedding.axes))

    def _first_new(self, candidates: Iterator[Array], known: Array) -> Codes | None:
        """Return the first feasible candidate further than 1e-6 from all issued trials."""
        filled = np.where(np.isnan(known), _OFF, known)
        refused: set[Codes] = set()
        for row in candidates:
            # The kernel matrix of two equal points is singular, and a real value that differs in
            # its last digits would have other codes.
            near = np.abs(filled - np.where(np.isnan(row), _OFF, row)).max(axis=1) < _NEAREST
            codes = self.embedding.codes(row)
            if near.any() or codes in self.seen or codes in refused:
                continue
            if self.space.allows(codes) and self.feasible(codes):
                return codes
            refused.add(codes)
            if len(refused) >= _CHECKED:
                return None
        return None

    def losses(self, numbers: list[int], generator: np.random.Generator) -> Array:
        """Return one loss (N,) per finished trial, comparable over budgets and objectives."""
        observed = [n for n in numbers if n not in self.failed and n not in self.pruned]
        last = np.array([self.results[n][-1] for n in observed], dtype=np.float64)
        reached = np.array([self.first[n] + len(self.results[n]) - 1 for n in observed])
        # Exact powers of two, so that huge losses neither overflow nor all reach the clip.
        half = np.median(np.abs(last) / 2, axis=0)  # half: the sum of two must not overflow
        powers = np.maximum(np.frexp(half)[1] + 1 - math.frexp(_LARGE)[1], 0)
        table = np.ldexp(last, -powers) + self._shifts(powers)[reached]
        joined = dict(
            zip(observed, joint(np.clip(table, -_LARGEST, _LARGEST), generator), strict=True)
        )
        # Pruned trials are among the worse half of the others: the middle of that half.
        joined |= dict.fromkeys(self.pruned, float(np.quantile(list(joined.values()), 0.75)))
        return beyond_limits(
            [joined.get(n) for n in numbers], [self.violations.get(n, 0.0) for n in numbers]
        )

    def _shifts(self, powers: NDArray[np.int_]) -> Array:
        """Return (stages, objectives): median change of losses from each budget to the largest.

        Args:
            powers: (objectives,) powers of two that the losses are divided by.
        """
        by_stage = [
            dict(enumerate(self.results[n], start=first)) for n, first in self.first.items()
        ]
        stages = 1 + max(stage for values in by_stage for stage in values)
        shifts = np.zeros((stages, len(powers)))
        for stage in reversed(range(stages - 1)):
            change = [
                np.subtract(np.ldexp(values[stage + 1], -powers), np.ldexp(values[stage], -powers))
                for values in by_stage
                if stage in values and stage + 1 in values
            ]
            shifts[stage] = shifts[stage + 1] + (np.median(change, axis=0) if change else 0.0)
        return shifts


def joint(losses: Array, generator: np.random.Generator) -> Array:
    """Return losses (N,) of K objectives (N, K): augmented Chebyshev norm, random weights."""
    if losses.shape[1] == 1:
        return losses[:, 0]
    low, high = losses.min(axis=0), losses.max(axis=0)
    scaled = (losses - low) / np.where(high > low, high - low, 1.0)
    weighted = generator.dirichlet(np.ones(losses.shape[1])) * scaled
    return weighted.max(axis=1) + 0.05 * weighted.sum(axis=1)


def beyond_limits(losses: list[float | None], violations: list[float]) -> Array:
    """Return losses (N,) with a penalty for violated limits; failed trials (None) get the worst.

    The penalty is continuous at the limit, where the optimum often lies, and steep enough that no
    infeasible trial is the best.

    Args:
        losses: one per trial, None if it failed.
        violations: relative excess over the limits, 0 if feasible.

    Example:
        >>> beyond_limits([1.0, -5.0, None, 0.0], [0.0, 0.5, 0.0, 0.0]).tolist()
        [1.0, 2.5, 2.5, 0.0]
    """
    beyond = np.minimum(np.array(violations), _FARTHEST)
    finite = [v for v in losses if v is not None]
    within = [v for v, b in zip(losses, beyond, strict=True) if v is not None and not b]
    spread = (max(finite) - min(finite)) or 1.0
    steepness, best = 2.5 * spread, min(within, default=max(finite))
    for value, far in zip(losses, beyond, strict=True):
        if value is not None and far and value < best:
            steepness = max(steepness, min(1.5 * (best - value) / far, 25 * spread))
    worst = max(v + steepness * b for v, b in zip(losses, beyond, strict=True) if v is not None)
    return np.array(
        [worst if v is None else v + steepness * b for v, b in zip(losses, beyond, strict=True)]
    )


def compressed(losses: Array) -> Array:
    """Return standardised losses (N,), compressed logarithmically above the median.

    Losses further than 50 median absolute deviations above the median are clipped, so that a loss
    that overflowed does not make all others indistinguishable.

    Example:
        >>> compressed(np.array([0.0, 1.0, 2.0, 1e9])).round(1).tolist()
        [-1.0, -0.5, -0.1, 1.6]
    """
    middle = np.median(losses)
    scale = np.median(np.abs(losses - middle)) or losses.std() or 1.0
    out = (losses - middle) / scale
    # The model assumes normal noise of one size, and a few diverged trials would set it: what is
    # worse than the median only has to look bad, not by how much.
    out = np.where(out > 0, np.log1p(np.clip(out, 0, _HOPELESS)), out)
    return (out - out.mean()) / (out.std() or 1.0)


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def _sobol(dimensions: int, seed: int, count: int) -> Array:
    """Return the first points (count, dimensions) of a Sobol sequence, randomly shifted by seed."""
    power = max(1, (count - 1).bit_length())
    points = qmc.Sobol(dimensions, scramble=False).random_base2(power)[:count]
    return (points + np.random.default_rng([seed, dimensions]).random(dimensions)) % 1.0
