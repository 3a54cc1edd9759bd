"""Plug-in kind `potential` and the base class of its configurations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from scitoolkit.core.config import Config
from scitoolkit.core.contracts import Batch
from scitoolkit.core.plugins import Kind

if TYPE_CHECKING:
    from scitoolkit.potentials.model import Potential


class ModelConfig(Config, ABC):
    """Configuration of a potential; a member of the kind `potential` is a subclass.

    A member also has `cutoff` (Å) and `precision`, as fields or properties.

    Attributes:
        tables: whether `Potential.compress` can tabulate networks of some of its models.
        library: function that returns a model's `LibrarySource` without `zbl`, as `module:name`;
            empty for models that cannot be exported.
        example: settings of a small model, float64; tests and `scitoolkit new` start from it.
        optimizer: default optimizer of a training from random weights; empty for that of any job.
        loss: default weights of energy and forces there; empty for those of `LossConfig`.
    """

    tables: ClassVar[bool] = False
    library: ClassVar[str] = ""
    example: ClassVar[Mapping[str, Any]] = {}
    optimizer: ClassVar[Mapping[str, Any]] = {}
    loss: ClassVar[Mapping[str, float]] = {}

    name: str

    if TYPE_CHECKING:  # a field of most members, a property of others

        @property
        def cutoff(self) -> float: ...

    def resolve_auto_sel(self, graphs: Sequence[Batch], type_map: Sequence[str]) -> Self:
        """Return the configuration with every `auto` replaced by a number counted in `graphs`.

        Args:
            graphs: training configurations with the edges within `cutoff`.
            type_map: species.
        """
        return self

    def summary(self) -> dict[str, Any]:
        """Return entries about the model for the report of `validate`."""
        return {}

    @abstractmethod
    def build(self, type_map: Sequence[str]) -> Potential:
        """Return the untrained model; every `auto` must have been resolved."""


EQUIVARIANT_OPTIMIZER: Mapping[str, Any] = {"name": "adam", "lr": 1e-2}
"""Of message passing, whose weights take rates ten times those of a perceptron."""
EQUIVARIANT_LOSS: Mapping[str, float] = {
    "start_pref_e": 10.0,
    "limit_pref_e": 100.0,
    "start_pref_f": 100.0,
    "limit_pref_f": 100.0,
}
"""Of short trainings: energies that differ by more than forces tell are learned from the start."""

models: Kind[type[ModelConfig]] = Kind(
    "potential", "energies and forces of atoms", contract="scitoolkit.testing:PotentialContract"
)
"""Configuration classes by `name:`."""
