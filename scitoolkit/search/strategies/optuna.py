"""Search strategy `optuna`: Optuna's samplers (TPE, CMA-ES, Gaussian process, NSGA-II)."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from scitoolkit.core.errors import missing_extra
from scitoolkit.search.parameters import Categorical, Real, Variable
from scitoolkit.search.space import Codes, Space
from scitoolkit.search.strategies.base import Feasible, Proposal, Strategy
from scitoolkit.search.strategies.config import StrategyConfig
from scitoolkit.search.trial import Trial

Sampler = Literal["tpe", "cmaes", "gp", "nsga2"]


class OptunaSearch(Strategy):
    """Search with one of Optuna's samplers; no configuration is evaluated twice.

    The study is stored in memory. Optuna does not save the state of its generators, so a replay
    repeats all calls of ask and tell. A proposal that was already evaluated or is infeasible is
    replaced by a mutation of it, which is added to the study. With successive halving, the study
    receives results at the smallest budget only.

    Args:
        sampler: `tpe`, `cmaes` (categories by TPE), `gp` or `nsga2`.
        settings: further arguments of the sampler's class.

    Source:
        Akiba et al. 2019, arXiv:1907.10902; TPE, Bergstra et al. 2011; CMA-ES, Hansen 2016,
        arXiv:1604.00772.
    """

    name = "optuna"
    uses_priors = False

    def __init__(self, sampler: Sampler = "tpe", settings: Mapping[str, Any] | None = None) -> None:
        self.sampler: Sampler = sampler
        self.settings: dict[str, Any] = dict(settings or {})

    def start(self, space: Space, seed: int, feasible: Feasible) -> None:
        """Initialise with an empty study."""
        super().start(space, seed, feasible)
        self._kinds: list[tuple[str, Variable]] = [
            (f"x{i:04d}", kind) for i, kind in enumerate(space.variables.values())
        ]
        self._asked: tuple[Any, Codes] | None = None
        self._running: dict[int, Any] = {}
        self._told = 0
        self._study = self._new_study(1)

    def propose(self, rng: random.Random) -> Proposal:
        """Return Optuna's proposal, or a mutation of it if it was already evaluated."""
        _, proposed = self._ask()
        draws = iter([proposed])

        def draw() -> Codes:
            return next(draws, None) or self.space.mutate_codes(proposed, rng)

        codes = self.sample_unseen(rng, draw)
        return Proposal(codes, self.sampler if codes == proposed else f"near {self.sampler}")

    def on_issue(self, trial: Trial) -> None:
        """Record the trial; on replay, advance the study's generator as in the live search."""
        if trial.stage == trial.first_stage and trial.of is None:
            asked, codes = self._ask()
            self._asked = None
            if codes != trial.codes:  # enqueued, or a mutation of the proposal
                # Otherwise the study would count it as running for ever, and keep away from it.
                self._study.tell(asked, state=_state("FAIL"))
                asked = None
            self._running[trial.id] = asked
        super().on_issue(trial)

    def observe(self, trial: Trial) -> None:
        """Pass the first result of a trial to the study."""
        if trial.id not in self._running:
            return
        asked, values = self._running.pop(trial.id), list(trial.values)
        failed = trial.status != "done"
        # The number of objectives is known from the first result, and a study cannot change it.
        # Trials asked from the former study are unknown to the new one.
        if not failed and not self._told and len(values) > 1:
            self._study, asked, self._running = self._new_study(len(values)), None, {}
        self._told += not failed
        if asked is not None:
            self._study.tell(asked, state=_state("FAIL")) if failed else self._study.tell(
                asked, values
            )
        elif not failed:
            self._study.add_trial(self._made(trial.codes, values))

    def state(self) -> dict[str, Any]:
        """Return the counter and the number of results passed to the study."""
        return {**super().state(), "told": self._told}

    def describe(self) -> dict[str, Any]:
        """Return name and settings."""
        return {"name": self.name, "sampler": self.sampler, **self.settings}

    # --- conversion to and from Optuna ------------------------------------------------------

    def _ask(self) -> tuple[Any, Codes]:
        """Return Optuna's next trial and its codes; it is requested once per issued trial."""
        if self._asked is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trial = self._study.ask()
                codes: list[Any] = [None] * len(self._kinds)
                for i in self.space.order:
                    if self.space.active(i, codes):
                        codes[i] = _suggested(trial, *self._kinds[i])
            self._asked = trial, tuple(codes)
        return self._asked

    def _made(self, codes: Sequence[Any], values: Sequence[float]) -> Any:
        """Return a finished Optuna trial for a configuration that the study did not propose."""
        from optuna.trial import create_trial

        active = [(n, k, c) for (n, k), c in zip(self._kinds, codes, strict=True) if c is not None]
        return create_trial(
            params={name: code for name, _, code in active},
            distributions={name: _distribution(kind) for name, kind, _ in active},
            values=list(values),
        )

    def _new_study(self, objectives: int) -> Any:
        try:
            import optuna
        except ImportError:
            raise missing_extra("optuna", "search", "the strategy `optuna`") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sampler = _samplers(optuna)[self.sampler](seed=self.seed % 2**31, **self.settings)
        return optuna.create_study(sampler=sampler, directions=["minimize"] * objectives)


def _samplers(optuna: Any) -> dict[str, Callable[..., Any]]:
    made = optuna.samplers

    def cmaes(seed: int, **settings: Any) -> Any:
        return made.CmaEsSampler(
            seed=seed,
            independent_sampler=made.TPESampler(seed=seed, constant_liar=True),
            warn_independent_sampling=False,
            **settings,
        )

    return {
        "tpe": lambda **more: made.TPESampler(**{"constant_liar": True, **more}),
        "cmaes": cmaes,
        "gp": made.GPSampler,
        "nsga2": made.NSGAIISampler,
    }


def _distribution(kind: Variable) -> Any:
    """Return Optuna's distribution of codes: floats, categories, or indices of ordered levels."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if isinstance(kind, Real):
        return FloatDistribution(kind.low, kind.high, log=kind.log)
    levels = int(kind.levels)
    if isinstance(kind, Categorical):
        return CategoricalDistribution(list(range(levels)))
    return IntDistribution(0, levels - 1)


def _suggested(trial: Any, name: str, kind: Variable) -> Any:
    if isinstance(kind, Real):
        return trial.suggest_float(name, kind.low, kind.high, log=kind.log)
    levels = int(kind.levels)
    if isinstance(kind, Categorical):
        return trial.suggest_categorical(name, list(range(levels)))
    return trial.suggest_int(name, 0, levels - 1)


def _state(name: str) -> Any:
    from optuna.trial import TrialState

    return TrialState[name]


class OptunaConfig(StrategyConfig):
    """One of Optuna's samplers: TPE, CMA-ES, Gaussian process or NSGA-II.

    Attributes:
        sampler: `tpe`, `cmaes` (for few real parameters and hundreds of trials), `gp`, or `nsga2`
            (for several objectives).
    """

    requires: ClassVar[tuple[str, ...]] = ("optuna", "cmaes")

    name: Literal["optuna"] = "optuna"
    sampler: Sampler = "tpe"

    def build_search(self) -> OptunaSearch:
        """Return the strategy."""
        return OptunaSearch(self.sampler)
