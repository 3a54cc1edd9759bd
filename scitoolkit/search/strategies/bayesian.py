"""Search strategy `bayesian`: Bayesian optimisation by DeepHyper's CBO."""

from __future__ import annotations

import math
import random
import tempfile
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from scitoolkit.core.errors import ConfigError, missing_extra
from scitoolkit.search.parameters import Categorical, Real, Stepped
from scitoolkit.search.space import Codes, Space
from scitoolkit.search.strategies.base import Feasible, Proposal, Strategy
from scitoolkit.search.strategies.config import StrategyConfig
from scitoolkit.search.trial import Trial


class BayesianSearch(Strategy):
    """Centralised Bayesian optimisation with a random-forest surrogate.

    The acquisition function is maximised over sampled candidates (`sampling`), and parallel
    workers are served by `qUCBd`; DeepHyper's defaults cost about 25 times as much per trial and
    leave most of a large pool of workers idle. If a proposal was already evaluated, a mutation of
    it is used. A replay repeats all calls of ask and tell, so that a resumed search continues as
    if uninterrupted, at the cost of refitting the forest.

    Args:
        candidates: number of sampled candidates per proposal.
        settings: further arguments of `deephyper.hpo.CBO`.

    Source:
        Balaprakash et al. 2018, doi:10.1109/HiPC.2018.00014; Egelé et al. 2023, arXiv:2207.00479.
    """

    name = "bayesian"
    uses_priors = False

    def __init__(self, candidates: int = 500, settings: Mapping[str, Any] | None = None) -> None:
        self.candidates: int = candidates
        self.settings: dict[str, Any] = dict(settings or {})

    def start(self, space: Space, seed: int, feasible: Feasible) -> None:
        """Initialise with an untrained forest."""
        super().start(space, seed, feasible)
        self._asked: dict[str, Any] | None = None
        self._optimizer = self._make()

    def propose(self, rng: random.Random) -> Proposal:
        """Return DeepHyper's proposal, or a mutation of it if it was already evaluated."""
        proposed = self._codes(self._ask())
        first = True

        def draw() -> Codes:
            nonlocal first
            codes = proposed if first else self.space.mutate_codes(proposed, rng)
            first = False
            return codes

        codes = self.sample_unseen(rng, draw)
        return Proposal(codes, "bayesian" if codes == proposed else "near bayesian")

    def _ask(self) -> dict[str, Any]:
        """Return DeepHyper's next point; it is requested once per issued trial."""
        if not self._named():  # DeepHyper needs a parameter with two values
            return {}
        if self._asked is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                (self._asked,) = self._optimizer.ask(1)
        return self._asked

    def on_issue(self, trial: Trial) -> None:
        """Record the trial; on replay, advance the optimiser's generator as in the live search."""
        self._ask()
        self._asked = None
        super().on_issue(trial)

    def observe(self, trial: Trial) -> None:
        """Pass the result to the optimiser, which maximises and accepts failures."""
        # DeepHyper takes results that begin with F for failures.
        result: Any = "F_failed"
        if trial.status == "done":
            loss = [-value for value in trial.values]
            result = loss[0] if len(loss) == 1 else loss
        if not self._named():
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._optimizer.tell([(self._arguments(trial.codes), result)])

    def describe(self) -> dict[str, Any]:
        """Return name and settings."""
        return {"name": self.name, "candidates": self.candidates, **self.settings}

    # --- conversion to and from DeepHyper ---------------------------------------------------

    def _make(self) -> Any:
        try:
            from deephyper.hpo import CBO, HpProblem
        except ImportError:
            raise missing_extra("deephyper", "search", "the strategy `bayesian`") from None
        problem = HpProblem()
        for name, kind in self._named():
            try:
                problem.add_hyperparameter(_range(kind), name)
            except ValueError as error:
                variable = list(self.space.variables)[int(name[1:])]
                raise ConfigError(f"DeepHyper refuses it: {error}", where=variable) from None
        arguments: dict[str, Any] = {
            "acq_optimizer": "sampling",
            "acq_optimizer_kwargs": {"n_points": self.candidates},
            "multi_point_strategy": "qUCBd",
            "log_dir": tempfile.mkdtemp(prefix="scitoolkit-cbo-"),
            "checkpoint_history_to_csv": False,
            **self.settings,
        }
        return CBO(problem, random_state=self.seed % 2**31, **arguments)

    def _named(self) -> list[tuple[str, Any]]:
        """Return a plain name for every variable with more than one value."""
        kinds = enumerate(self.space.variables.values())
        return [(f"x{i:04d}", kind) for i, kind in kinds if kind.levels > 1]

    def _codes(self, arguments: Mapping[str, Any]) -> Codes:
        codes: list[Any] = [None] * len(self.space.variables)
        for i in self.space.order:
            if not self.space.active(i, codes):
                continue
            kind = list(self.space.variables.values())[i]
            argument = arguments.get(f"x{i:04d}")
            codes[i] = 0 if argument is None else _to_code(kind, argument)
        return tuple(codes)

    def _arguments(self, codes: Codes) -> dict[str, Any]:
        out = {}
        for (name, kind), code in (((n, k), codes[int(n[1:])]) for n, k in self._named()):
            out[name] = _from_code(kind, 0 if code is None and not isinstance(kind, Real) else code)
        return out


class BayesianConfig(StrategyConfig):
    """Bayesian optimisation with a random forest, by DeepHyper's CBO.

    Attributes:
        candidates: number of sampled candidates per proposal.
    """

    requires: ClassVar[tuple[str, ...]] = ("deephyper",)

    name: Literal["bayesian"] = "bayesian"
    candidates: PositiveInt = 500

    def build_search(self) -> BayesianSearch:
        """Return the strategy."""
        return BayesianSearch(self.candidates)


def _range(kind: Any) -> Any:
    """Return DeepHyper's range of a variable: numbers are ordered, other values are names."""
    if isinstance(kind, Real):
        return (kind.low, kind.high, "log-uniform") if kind.log else (kind.low, kind.high)
    if isinstance(kind, Stepped):
        return (0, int(kind.levels) - 1)
    return [_from_code(kind, i) for i in range(kind.levels)]


def _ordered(kind: Categorical) -> bool:
    return all(type(v) in (int, float) and math.isfinite(v) for v in kind.values)


def _from_code(kind: Any, code: Any) -> Any:
    if isinstance(kind, Real):
        return kind.low if code is None else float(code)
    if isinstance(kind, Categorical):
        return kind.values[int(code)] if _ordered(kind) else f"v{int(code)}"
    return int(code)


def _to_code(kind: Any, given: Any) -> Any:
    if isinstance(kind, Real):
        return min(max(float(given), kind.low), kind.high)
    if isinstance(kind, Categorical):
        return kind.code(given) if _ordered(kind) else int(str(given)[1:])
    return int(given)
