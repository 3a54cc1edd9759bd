"""Search over configurations: spaces, strategies, evaluators, and a log that loses nothing."""

from __future__ import annotations

from scitoolkit.core.lazy import lazy_names

_HOMES: dict[str, str | None] = {
    "AgingEvolution": "strategies.evolution",
    "BayesianSearch": "strategies.bayesian",
    "DeepHyperEvaluator": "evaluators.deephyper",
    "Evaluator": "evaluators",
    "EvaluatorConfig": "evaluators",
    "History": "history",
    "InProcess": "evaluators",
    "Limits": "evaluators",
    "Objective": "trial",
    "Proposal": "strategies",
    "Processes": "evaluators.processes",
    "RandomSearch": "strategies.random",
    "Search": "manager",
    "Simulated": "evaluators",
    "Space": "space",
    "Strategy": "strategies",
    "StrategyConfig": "strategies",
    "SuccessiveHalving": "strategies.halving",
    "Threads": "evaluators",
    "TrialContext": "trial",
    "chain": "parameters",
    "choice": "parameters",
    "integer": "parameters",
    "load_history": "history",
    "real": "parameters",
    "spaces": None,
}
__all__ = sorted(_HOMES)


__getattr__ = lazy_names(__name__, _HOMES)
