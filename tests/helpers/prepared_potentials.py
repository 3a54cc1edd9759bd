"""A potential before its training, with its graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.data import GraphSet
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.stages import PotentialStages
from scitoolkit.surrogate import start


@dataclass
class Prepared:
    """What precedes a training; `network` is what is trained, `config` has the settled keys."""

    config: PotentialConfig
    model: Potential
    network: Any
    train: GraphSet
    validation: GraphSet
    e0_source: str


def prepare(config: PotentialConfig) -> Prepared:
    """Return model and training graphs of a configuration."""
    stages = PotentialStages()
    begun = start(stages, config)
    return Prepared(
        stages.settled(config, begun.opened.measured),
        begun.model,
        begun.task.model,
        begun.loaders["train"]._graphs,
        begun.loaders["validation"]._graphs,
        begun.opened.data.e0_source,
    )
