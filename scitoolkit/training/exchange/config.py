"""Exchanges of gradients as config members, without importing torch.

A member builds the `BucketSum` that sums one bucket of gradients over the ranks; which gradients a
bucket holds, and when it is sent, is that of `buckets.GradientBuckets` for all members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat

from scitoolkit.core.config import Config
from scitoolkit.core.plugins import Choice, Kind

if TYPE_CHECKING:
    from scitoolkit.training.exchange.sums import BucketSum


class ExchangeConfig(Config):
    """Base of the exchanges.

    Attributes:
        relative_error: of a sum of two gradients at most, as a norm over the norm of the exact sum
            of their absolute values.
    """

    relative_error: ClassVar[float]
    name: str
    bucket_mib: PositiveFloat = Field(
        default=8.0, description="gradients sent together, in MiB of their dtype"
    )

    def build(self) -> BucketSum:
        """Return the sum of buckets; the process group must have been joined."""
        raise NotImplementedError


exchanges: Kind[type[ExchangeConfig]] = Kind(
    "exchange",
    "sums gradients over processes",
    contract="scitoolkit.testing:ExchangeContract",
)
AnyExchange = Annotated[ExchangeConfig, Choice(exchanges)]


class Full(ExchangeConfig):
    """All-reduce in the gradients' own precision."""

    relative_error: ClassVar[float] = 1e-6
    name: Literal["full"] = "full"

    def build(self) -> BucketSum:
        """Return the sum in full precision."""
        from scitoolkit.training.exchange.sums import FullSum

        return FullSum()


class Bfloat16(ExchangeConfig):
    """All-reduce of gradients rounded to bfloat16: half the bytes, three digits."""

    relative_error: ClassVar[float] = 2**-7
    name: Literal["bf16"] = "bf16"

    def build(self) -> BucketSum:
        """Return the sum in bfloat16."""
        from scitoolkit.training.exchange.sums import Bfloat16Sum

        return Bfloat16Sum()
