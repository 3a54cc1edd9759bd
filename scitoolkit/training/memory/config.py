"""The `memory:` and `pruning:` parts of a training's configuration, without importing torch."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from scitoolkit.core.config import Config, DataPath
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.plugins import Kind

# Entries fulfil `memory.store.ActivationStore`.
activation_stores: Kind[Any] = Kind(
    "activation store", "keeps activations for the backward pass", imports_torch=True
)


class MemoryConfig(Config):
    """How the activations that the backward pass needs are kept.

    Example:
        >>> MemoryConfig(activations="comet").gradient_error
        0.01
    """

    activations: str = Field(description="a registered store: comet, planned, recompute, offload")
    gradient_error: PositiveFloat = Field(default=0.01, description="wanted, relative, of all")
    measure_every: PositiveInt = Field(default=100, description="steps between measurements")
    smallest: NonNegativeInt = Field(default=4096, description="values; less is kept exactly")
    folder: DataPath | None = Field(
        default=None, description="on a disk, for activations of a CPU; planned and offload"
    )

    @field_validator("activations")
    @classmethod
    def _known(cls, name: str) -> str:
        known = activation_stores.names()
        if name not in known:
            raise ValueError(f"unknown store {name!r}; known: {', '.join(known) or 'none'}")
        return name


def refuse_unread(config: MemoryConfig, read: Collection[str]) -> None:
    """Raise a ConfigError for keys that are set and that a store does not read.

    Args:
        config: of the store.
        read: keys beside `activations`.
    """
    unread = sorted(config.model_fields_set - {"activations", *read})
    if unread:
        raise ConfigError(
            f"activations: {config.activations} does not read {', '.join(unread)}",
            where="training.memory",
            fix="leave it out",
        )


class PruningConfig(Config):
    """Which entries of matrices and convolutions are kept; vectors are kept whole.

    Example:
        >>> PruningConfig(share=0.9).share
        0.9
    """

    share: float | None = Field(
        default=None, gt=0, lt=1,
        description="set this share of each matrix to zero, the smallest; None: what is zero",
    )  # fmt: skip
    channels: list[str] = Field(
        default_factory=list,
        description="layers that lose whole output channels, the smallest; all others stay whole",
    )

    @model_validator(mode="after")
    def _a_share_of_channels(self) -> PruningConfig:
        if self.channels and self.share is None:
            raise ValueError("channels without share: share=0.5 prunes half of each layer's")
        return self
