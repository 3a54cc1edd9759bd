"""The plug-in kind `lowering`: translation of ATen operators to C."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from scitoolkit.core.plugins import Kind

if TYPE_CHECKING:
    from scitoolkit.deploy.builder import Builder
    from scitoolkit.deploy.values import Value


class Lowering(ABC):
    """Lowering of a family of operators.

    Attributes:
        targets: names of ATen operators as torch prints them, such as `aten.mm.default`.
    """

    targets: ClassVar[Sequence[str]]

    @classmethod
    @abstractmethod
    def lower(cls, builder: Builder, target: str, args: Sequence[Any], like: Any) -> Value | Any:
        """Return the value of an operator; statements and buffers are added to the builder.

        Args:
            builder: the program under construction.
            target: one of `targets`.
            args: all arguments of the operator's schema in order; tensors are `Value`s, or
                `torch.Tensor`s if they are constants.
            like: fake tensor of the result, or a tuple of several.

        Raises:
            ConfigError: an unsupported form of the operator.
        """


lowerings: Kind[type[Lowering]] = Kind("lowering", "turns operators of a traced model into C")
"""All operators that can be exported."""
