"""Plug-in kind `descriptor` and the base class of its configurations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import PositiveFloat

from scitoolkit.core.config import Config
from scitoolkit.core.contracts import Batch
from scitoolkit.core.plugins import Kind

if TYPE_CHECKING:
    import torch

    from scitoolkit.potentials.deepmd.descriptors.base import Descriptor
    from scitoolkit.potentials.deepmd.file import Tree
    from scitoolkit.potentials.deepmd.input_section import Section


class DescriptorConfig(Config, ABC):
    """Configuration of a descriptor; a member of the kind `descriptor` is a subclass.

    Attributes:
        cutoff: Å.
        tables: whether `Descriptor.compress` can tabulate its networks.
        holds_types: whether it includes the centre's type, so that types can share a fitting net.
        example: settings of a small descriptor, for tests and `scitoolkit new`.
        deepmd_types: `type` of the descriptor in deepmd-kit's files, all spellings.
    """

    tables: ClassVar[bool] = False
    holds_types: ClassVar[bool] = False
    example: ClassVar[Mapping[str, Any]] = {}
    deepmd_types: ClassVar[tuple[str, ...]] = ()

    name: str
    cutoff: PositiveFloat

    @property
    def num_vectors(self) -> int:
        """Number of vectors that `Descriptor.rotation` returns for an atom; 0 without any."""
        return 0

    def summary(self) -> dict[str, Any]:
        """Return entries about the descriptor for the report of `validate`."""
        return {}

    def resolve_auto_sel(self, graphs: Sequence[Batch], type_map: Sequence[str]) -> Self:
        """Return the configuration with `sel: auto` replaced by counts; warn if `sel` is too small.

        Args:
            graphs: training configurations with the edges within `cutoff`.
            type_map: species.

        Raises:
            DataError: there is no graph.
        """
        return self

    @abstractmethod
    def build(self, num_types: int, generator: torch.Generator, dtype: torch.dtype) -> Descriptor:
        """Return the descriptor with initial weights."""

    @classmethod
    def from_deepmd_input(cls, section: Section) -> dict[str, Any]:
        """Return the settings from a descriptor section of deepmd-kit's input.json."""
        raise NotImplementedError

    @classmethod
    def from_deepmd_tree(cls, tree: Tree, where: str) -> Self:
        """Return the configuration of a descriptor in a `.dp` file.

        Raises:
            DataError: a setting is not supported.
        """
        raise NotImplementedError


descriptors: Kind[type[DescriptorConfig]] = Kind(
    "descriptor",
    "environment of an atom as the input of a Deep Potential's fitting net",
    contract="scitoolkit.testing:PotentialContract",
)
"""Configuration classes by `name:`."""


def deepmd_names() -> dict[str, str]:
    """Return {deepmd-kit's `type` of a descriptor, in all spellings: `name` here}."""
    return {kind: name for name in descriptors for kind in descriptors.get(name).deepmd_types}
