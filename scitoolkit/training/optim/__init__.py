"""Optimizers and learning-rate schedules, each a config section picked by `name:`."""

from scitoolkit.training.optim.optimizers import LBFGS, SGD, Adam, AdamW, Muon, optimizers
from scitoolkit.training.optim.schedules import (
    Constant,
    Cosine,
    Exponential,
    LearningRate,
    Plateau,
    schedules,
)

__all__ = [
    "LBFGS",
    "SGD",
    "Adam",
    "AdamW",
    "Constant",
    "Cosine",
    "Exponential",
    "LearningRate",
    "Muon",
    "Plateau",
    "optimizers",
    "schedules",
]
