"""Optimizers and learning-rate schedules, each a config section picked by `name:`."""

from scitoolkit.training.optim.optimizers import (
    LAMB,
    LARS,
    LBFGS,
    SGD,
    Adam,
    AdamW,
    GaussNewton,
    Jorge,
    Muon,
    optimizers,
)
from scitoolkit.training.optim.schedules import (
    LEGW,
    Constant,
    Cosine,
    Exponential,
    LearningRate,
    Plateau,
    schedules,
)

__all__ = [
    "LAMB",
    "LARS",
    "LBFGS",
    "LEGW",
    "SGD",
    "Adam",
    "AdamW",
    "Constant",
    "Cosine",
    "Exponential",
    "GaussNewton",
    "Jorge",
    "LearningRate",
    "Muon",
    "Plateau",
    "optimizers",
    "schedules",
]
