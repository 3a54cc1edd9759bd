"""Gradient exchanges as config members, without importing torch.

A member builds a `BucketSum`, which sums a bucket of gradients over the ranks, or a
`ShardExchange`, which gives each rank its shard of the sums. `buckets.OrderedBuckets` assigns
gradients to buckets and schedules sending for all members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from scitoolkit.core.config import Config
from scitoolkit.core.plugins import Choice, Kind

if TYPE_CHECKING:
    from scitoolkit.training.exchange.sums import BucketSum, ShardExchange


class ExchangeConfig(Config):
    """Base class of gradient exchanges.

    Attributes:
        relative_error: bound on the norm of the error of a sum of two gradients, over the norm of
            the exact sum of their absolute values.
        sums: whether `build` is supported: all ranks get all sums, for strategy `ddp`.
        shards: whether `build_shards` is supported: each rank gets its shard, for strategy
            `sharded` at stages 1 and 2.
    """

    relative_error: ClassVar[float]
    sums: ClassVar[bool] = True
    shards: ClassVar[bool] = False
    name: str
    bucket_mib: PositiveFloat = Field(
        default=8.0, description="gradients sent together, in MiB of their dtype"
    )

    def build(self) -> BucketSum:
        """Return the bucket sum; requires a process group."""
        raise NotImplementedError

    def build_shards(self) -> ShardExchange:
        """Return the shard exchange; requires a process group."""
        raise NotImplementedError


exchanges: Kind[type[ExchangeConfig]] = Kind(
    "exchange",
    "sums gradients over processes",
    contract="scitoolkit.testing:ExchangeContract",
)
AnyExchange = Annotated[ExchangeConfig, Choice(exchanges)]


class Full(ExchangeConfig):
    """All-reduce in the precision of the gradients."""

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
    """All-reduce of gradients rounded to bfloat16: half the bytes, about three digits."""

    relative_error: ClassVar[float] = 2**-7
    name: Literal["bf16"] = "bf16"

    def build(self) -> BucketSum:
        """Return the sum in bfloat16."""
        from scitoolkit.training.exchange.sums import Bfloat16Sum

        return Bfloat16Sum()


class ErrorBounded(ExchangeConfig):
    """Entropy-coded gradients with an adaptive error bound: a sixth of the bytes."""

    relative_error: ClassVar[float] = 0.2
    name: Literal["error_bounded"] = "error_bounded"
    share: float = Field(
        default=0.1, ge=1e-4, le=0.3, description="initial bound over the root mean square"
    )
    most: float = Field(default=0.1, ge=1e-4, le=0.5, description="largest adapted share")

    def build(self) -> BucketSum:
        """Return the error-bounded sum."""
        from scitoolkit.training.exchange.error_bounded import ErrorBoundedSum

        return ErrorBoundedSum(min(self.share, self.most), self.most)


class Sdp4Bit(ExchangeConfig):
    """SDP4Bit: 4-bit differences of weights, gradients in 8 and 4 bits: a sixth of the bytes.

    For `strategy: sharded` at stages 1 and 2, where each process keeps its shard of the weights.
    """

    relative_error: ClassVar[float] = 0.15
    sums: ClassVar[bool] = False
    shards: ClassVar[bool] = True
    name: Literal["sdp4bit"] = "sdp4bit"
    hadamard: bool = Field(
        default=False, description="apply a Hadamard transform to each 32 gradients first"
    )
    processes_per_node: PositiveInt | None = Field(
        default=None, description="processes per node (8-bit exchange); default: the launcher's"
    )

    def build_shards(self) -> ShardExchange:
        """Return the quantised exchange."""
        from scitoolkit.training.exchange.sdp4bit import Sdp4BitShards

        return Sdp4BitShards(self.hadamard, self.processes_per_node)
