"""The `training.memory` and `training.pruning` sections, without importing torch."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from scitoolkit.core.config import OutputPath
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.plugins import Kind
from scitoolkit.core.suggest import did_you_mean
from scitoolkit.training.requirements import TrainingPart

# Members implement `memory.store.ActivationStore`.
activation_stores: Kind[Any] = Kind(
    "activation store",
    "stores activations for the backward pass",
    contract="scitoolkit.testing:ActivationStoreContract",
    imports_torch=True,
)


class MemoryConfig(TrainingPart):
    """Storage of the activations needed by the backward pass.

    Example:
        >>> MemoryConfig(activations="comet").gradient_error
        0.01
    """

    activations: str = Field(description="name of the activation store")
    gradient_error: PositiveFloat = Field(default=0.01, description="target relative error")
    measure_every: PositiveInt = Field(default=100, description="steps between measurements")
    smallest: NonNegativeInt = Field(default=4096, description="smaller tensors are exact")
    folder: OutputPath | None = Field(
        default=None, description="disk folder for CPU activations; read by planned and offload"
    )

    def excludes(self) -> dict[str, str]:
        """Return the keys of `training:` that do not work with stored activations."""
        return {"compile": "a compiled network stores its activations itself"}

    @field_validator("activations")
    @classmethod
    def _known(cls, name: str) -> str:
        stores = activation_stores.names()
        if name not in stores:
            listed = ", ".join(stores) or "none"
            raise ValueError(f"unknown store {name!r}; known: {listed}{did_you_mean(name, stores)}")
        return name


def refuse_unread(config: MemoryConfig, read: Collection[str]) -> None:
    """Check that no key is set that the store does not read.

    Args:
        config: configuration of the store.
        read: keys that it reads in addition to `activations`.

    Raises:
        ConfigError: a key is set that the store does not read.
    """
    unread = sorted(config.model_fields_set - {"activations", *read})
    if unread:
        raise ConfigError(
            f"activations: {config.activations} does not read {', '.join(unread)}",
            where="training.memory",
            fix="remove it",
        )


class PruningConfig(TrainingPart):
    """Pruning of matrices and convolutions; vectors are not pruned.

    Example:
        >>> PruningConfig(share=0.9).share
        0.9
    """

    needs: ClassVar[tuple[str, ...]] = ("elementwise",)
    share: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="fraction of each matrix to set to zero, smallest first; None: prune zeros",
    )
    channels: list[str] = Field(
        default_factory=list,
        description="layers whose smallest output channels are pruned; no others are",
    )

    def excludes(self) -> dict[str, str]:
        """Return the keys of `training:` that do not work with vectors of unpruned entries."""
        return {
            "memory": "it reads whole gradients",
            "sharding.offload": "the unpruned entries stay on the device",
        }

    @model_validator(mode="after")
    def _a_share_of_channels(self) -> PruningConfig:
        if self.channels and self.share is None:
            raise ValueError("channels needs share: share=0.5 prunes half of each layer's channels")
        return self
