"""Exchanges of gradients as config members, without importing torch.

A member builds the `BucketSum` that sums one bucket of gradients over the ranks, or the
`ShardExchange` that leaves each rank its part of the sums; which gradients a bucket holds, and when
it is sent, is that of `buckets.OrderedBuckets` for all members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from scitoolkit.core.config import Config
from scitoolkit.core.plugins import Choice, Kind

if TYPE_CHECKING:
    from scitoolkit.training.exchange.sums import BucketSum, ShardExchange


class ExchangeConfig(Config):
    """Base of the exchanges.

    Attributes:
        relative_error: of a sum of two gradients at most, as a norm over the norm of the exact sum
            of their absolute values.
        sums: whether `build` gives all ranks all sums, as the strategy `ddp` needs them.
        shards: whether `build_shards` gives each rank its part, as `sharded` needs it at the
            stages 1 and 2.
    """

    relative_error: ClassVar[float]
    sums: ClassVar[bool] = True
    shards: ClassVar[bool] = False
    name: str
    bucket_mib: PositiveFloat = Field(
        default=8.0, description="gradients sent together, in MiB of their dtype"
    )

    def build(self) -> BucketSum:
        """Return the sum of buckets; the process group must have been joined."""
        raise NotImplementedError

    def build_shards(self) -> ShardExchange:
        """Return the exchange of parts; the process group must have been joined."""
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
    shards: ClassVar[bool] = True
    name: Literal["full"] = "full"

    def build(self) -> BucketSum:
        """Return the sum in full precision."""
        from scitoolkit.training.exchange.sums import FullSum

        return FullSum()

    def build_shards(self) -> ShardExchange:
        """Return the exchange in full precision."""
        from scitoolkit.training.exchange.sums import FullShards

        return FullShards()


class Bfloat16(ExchangeConfig):
    """All-reduce of gradients rounded to bfloat16: half the bytes, three digits."""

    relative_error: ClassVar[float] = 2**-7
    name: Literal["bf16"] = "bf16"

    def build(self) -> BucketSum:
        """Return the sum in bfloat16."""
        from scitoolkit.training.exchange.sums import Bfloat16Sum

        return Bfloat16Sum()


class ErrorBounded(ExchangeConfig):
    """Gradients within an error bound, entropy-coded: a sixth of the bytes; the bound adapts."""

    relative_error: ClassVar[float] = 0.2
    name: Literal["error_bounded"] = "error_bounded"
    share: float = Field(
        default=0.1, ge=1e-4, le=0.3, description="first bound over the root mean square"
    )
    most: float = Field(default=0.1, ge=1e-4, le=0.5, description="the share is not raised above")

    def build(self) -> BucketSum:
        """Return the sum of coded numbers."""
        from scitoolkit.training.exchange.error_bounded import ErrorBoundedSum

        return ErrorBoundedSum(min(self.share, self.most), self.most)


class Sdp4Bit(ExchangeConfig):
    """SDP4Bit: 4-bit differences of weights, gradients in 8 and 4 bits: a sixth of the bytes.

    For `strategy: sharded` at the stages 1 and 2, where each process keeps its part of the weights.
    """

    relative_error: ClassVar[float] = 0.15
    sums: ClassVar[bool] = False
    shards: ClassVar[bool] = True
    name: Literal["sdp4bit"] = "sdp4bit"
    hadamard: bool = Field(
        default=False, description="turn each 32 gradients before they are quantised"
    )
    processes_per_node: PositiveInt | None = Field(
        default=None, description="that exchange 8 bits; as torchrun, Slurm or --nproc say"
    )

    def build_shards(self) -> ShardExchange:
        """Return the quantised exchange."""
        from scitoolkit.training.exchange.sdp4bit import Sdp4BitShards

        return Sdp4BitShards(self.hadamard, self.processes_per_node)
