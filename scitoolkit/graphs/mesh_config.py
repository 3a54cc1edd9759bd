"""The configuration of a job on meshes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from scitoolkit.core.config import Config, DataPath
from scitoolkit.core.job_config import SeededConfig
from scitoolkit.graphs.config import PartitionConfig
from scitoolkit.graphs.strategy import GraphTrainingConfig


class MeshDataConfig(Config):
    """Which trajectories.

    Attributes:
        path: HDF5, as `scitoolkit.graphs.mesh_data.read_meshes` describes.
        meshes: names of the meshes to learn from; all by default.
    """

    path: DataPath
    meshes: list[str] | None = None


class TrajectorySplit(Config):
    """How many trajectories are kept from training, the last ones of the file."""

    validation: PositiveInt = 2
    test: PositiveInt = 2


class MeshModelConfig(Config):
    """The network and the scheme.

    Attributes:
        hidden: width.
        rounds: of messages.
        stages: rounds of the scheme in a step; each carries the quantity by one edge.
        unrolled: steps that a training error looks ahead.
    """

    hidden: PositiveInt = 32
    rounds: PositiveInt = 3
    stages: PositiveInt = 2
    unrolled: int = Field(default=2, ge=1)


class MeshConfig(SeededConfig):
    """A job on meshes: the trajectories, how the mesh is shared, the model and its training.

    `training.batch_size` counts trajectories.
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
    training: GraphTrainingConfig = GraphTrainingConfig(epochs=60, batch_size=2)
