"""The plug-in kind `lowering`: how operators of a traced model become C."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from scitoolkit.core.plugins import Kind

if TYPE_CHECKING:
    from scitoolkit.deploy.builder import Builder
    from scitoolkit.deploy.values import Value


class Lowering(ABC):
    """Operators of one family.

    Attributes:
        targets: ATen operators that it takes, as torch prints them, such as `aten.mm.default`.
    """

    targets: ClassVar[Sequence[str]]

    @classmethod
    @abstractmethod
    def lower(cls, builder: Builder, target: str, args: Sequence[Any], like: Any) -> Value | Any:
        """Return the value of an operator, writing what it needs into the builder.

        Args:
            builder: the program so far.
            target: one of `targets`.
            args: all arguments of the operator's schema in order; tensors are `Value`s, or
                `torch.Tensor`s where they are constants.
            like: the tensor (without data) that torch says it returns; a tuple of several.

        Raises:
            ConfigError: a form of the operator that is not supported.
        """


lowerings: Kind[type[Lowering]] = Kind("lowering", "turns operators of a traced model into C")
"""Everything that a traced model may consist of."""
