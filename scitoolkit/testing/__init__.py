"""Contract suites to inherit in tests (`class TestX(CodecContract): ...`), and test helpers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.testing.activation_store import (
        ActivationStoreContract as ActivationStoreContract,
    )
    from scitoolkit.testing.atoms_format import AtomsFormatContract as AtomsFormatContract
    from scitoolkit.testing.codec import CodecContract as CodecContract
    from scitoolkit.testing.codec import EnhancerContract as EnhancerContract
    from scitoolkit.testing.decoder import DecoderContract as DecoderContract
    from scitoolkit.testing.evaluator import EvaluatorContract as EvaluatorContract
    from scitoolkit.testing.exchange import ExchangeContract as ExchangeContract
    from scitoolkit.testing.field_model import FieldModelContract as FieldModelContract
    from scitoolkit.testing.forecaster import ForecasterContract as ForecasterContract
    from scitoolkit.testing.format import FormatContract as FormatContract
    from scitoolkit.testing.generator import GeneratorContract as GeneratorContract
    from scitoolkit.testing.graph_model import GraphModelContract as GraphModelContract
    from scitoolkit.testing.guard import GuardContract as GuardContract
    from scitoolkit.testing.job import JobContract as JobContract
    from scitoolkit.testing.kernels import KernelContract as KernelContract
    from scitoolkit.testing.loader import LoaderContract as LoaderContract
    from scitoolkit.testing.logger import LoggerContract as LoggerContract
    from scitoolkit.testing.optimizer import OptimizerContract as OptimizerContract
    from scitoolkit.testing.potential import PotentialContract as PotentialContract
    from scitoolkit.testing.schedule import ScheduleContract as ScheduleContract
    from scitoolkit.testing.space import SpaceContract as SpaceContract
    from scitoolkit.testing.strategy import StrategyContract as StrategyContract
    from scitoolkit.testing.training_strategy import (
        TrainingStrategyContract as TrainingStrategyContract,
    )

_HOMES = {
    "ActivationStoreContract": "activation_store",
    "AtomsFormatContract": "atoms_format",
    "CodecContract": "codec",
    "DecoderContract": "decoder",
    "EnhancerContract": "codec",
    "EvaluatorContract": "evaluator",
    "ExchangeContract": "exchange",
    "FieldModelContract": "field_model",
    "ForecasterContract": "forecaster",
    "FormatContract": "format",
    "GeneratorContract": "generator",
    "GraphModelContract": "graph_model",
    "GuardContract": "guard",
    "JobContract": "job",
    "KernelContract": "kernels",
    "LoaderContract": "loader",
    "LoggerContract": "logger",
    "OptimizerContract": "optimizer",
    "PotentialContract": "potential",
    "ScheduleContract": "schedule",
    "SpaceContract": "space",
    "StrategyContract": "strategy",
    "TrainingStrategyContract": "training_strategy",
}
__all__ = [*_HOMES]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())
