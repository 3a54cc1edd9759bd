"""Axes of a mesh of processes: how many of them divide what."""

from __future__ import annotations

from pydantic import Field, PositiveInt, model_validator

from scitoolkit.core.config import Config
from scitoolkit.core.errors import ConfigError


class MeshAxes(Config):
    """Axes of `strategy: mesh`; their product is the number of processes.

    Example:
        >>> mesh = MeshAxes(pipeline=2, tensor=(1, 2, 1))
        >>> mesh.shares(8), mesh.grid
        (2, (1, 2, 1))
    """

    pipeline: PositiveInt = Field(default=1, description="processes with consecutive stages")
    data: PositiveInt | None = Field(
        default=None, description="shares of the batch; None for the processes that remain"
    )
    expert: PositiveInt = Field(
        default=1, description="processes of the axis data that hold the experts apart"
    )
    tensor: PositiveInt | tuple[PositiveInt, PositiveInt, PositiveInt] = Field(
        default=1, description="processes that divide products, or their grid x, y, z"
    )
    microbatches: PositiveInt | None = Field(
        default=None, description="parts of a batch in the pipeline; twice its stages"
    )

    @model_validator(mode="after")
    def _experts_alone(self) -> MeshAxes:
        if self.expert > 1 and (self.pipeline > 1 or self.tensor not in (1, (1, 1, 1))):
            other = "pipeline" if self.pipeline > 1 else "tensor"
            raise ValueError(f"expert {self.expert} and {other}: expert only divides the axis data")
        return self

    @property
    def grid(self) -> tuple[int, int, int]:
        """Grid x, y, z of the products."""
        return (1, self.tensor, 1) if isinstance(self.tensor, int) else self.tensor

    def shares(self, processes: int) -> int:
        """Return the size of the axis data.

        Raises:
            ConfigError: the axes do not give the number of processes.
        """
        x, y, z = self.grid
        model = self.pipeline * x * y * z
        data = processes // model if self.data is None else self.data
        if data * model != processes:
            axes = f"pipeline {self.pipeline}, tensor {x} x {y} x {z}"
            axes += "" if self.data is None else f", data {self.data}"
            raise ConfigError(
                f"a mesh of {axes} on {processes} processes",
                where="training.mesh",
                allowed=f"a multiple of {model} processes" if self.data is None else "",
                fix=f"--nproc {max(1, data) * model}",
            )
        if data % self.expert:
            raise ConfigError(
                f"expert {self.expert} of data {data}",
                where="training.mesh.expert",
                allowed="a divisor of data, whose processes hold the experts",
            )
        return data
