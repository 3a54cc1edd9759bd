"""Configuration of a mesh job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from scitoolkit.core.config import Config, DataPath
from scitoolkit.core.job_config import SeededConfig
from scitoolkit.graphs.config import PartitionConfig
from scitoolkit.graphs.strategy import GraphTrainingConfig
from scitoolkit.surrogate.config import IntervalsConfig, TrainedStart


class MeshDataConfig(Config):
    """The trajectories.

    Attributes:
        path: HDF5 file as described by `scitoolkit.graphs.mesh_data.MeshFile`.
        meshes: names of the meshes to train on; all by default.
    """

    path: DataPath
    meshes: list[str] | None = None


class TrajectorySplit(Config):
    """Number of validation and test trajectories, taken from the end of the file."""

    validation: PositiveInt = 2
    test: PositiveInt = 2


class MeshModelConfig(Config):
    """The network and the numerical scheme.

    Attributes:
        hidden: width of the hidden layers.
        rounds: number of message-passing rounds.
        stages: stages of the scheme per step; each transports the quantity by one edge.
        unrolled: number of steps of the training rollouts.
    """

    hidden: PositiveInt = 32
    rounds: PositiveInt = 3
    stages: PositiveInt = 2
    unrolled: int = Field(default=2, ge=1)


class MeshConfig(SeededConfig):
    """Configuration of a mesh job: trajectories, partition, model and training.

    Attributes:
        intervals: of rollouts, one width for each step; each trajectory counts once.
        start: trained weights to start from, instead of random ones.
        training: `batch_size` counts trajectories.
    """

    renamed: ClassVar[Mapping[str, str]] = {
        "data.validation": "split.validation",
        "data.test": "split.test",
    }

    domain: Literal["mesh_transport"] = "mesh_transport"
    data: MeshDataConfig
    split: TrajectorySplit = TrajectorySplit()
    graph: PartitionConfig = PartitionConfig()
    model: MeshModelConfig = MeshModelConfig()
    intervals: IntervalsConfig | None = None
    start: TrainedStart | None = None
    training: GraphTrainingConfig = GraphTrainingConfig(epochs=60, batch_size=2)
