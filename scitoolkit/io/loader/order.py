"""Order of samples in an epoch and their distribution over ranks, as functions of (seed, epoch).

Global batches are slices of one permutation that does not depend on the world size, so a run can be
resumed on another number of ranks with the same batches. Every rank computes the whole order
without communication, with O(samples) integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scitoolkit.core.errors import ConfigError


@dataclass(frozen=True)
class SampleBlocks:
    """Blocks of adjacent samples in a file, for block-wise shuffling.

    Args:
        of: (num_samples,) int, block of every sample, numbered from 0.
        window: number of samples that are mixed with each other.

    Example:
        >>> blocks = SampleBlocks(np.array([0, 0, 1, 1, 2, 2]), window=2)
        >>> order = blocks.mix(np.arange(6, dtype=np.uint64), np.array([2, 0, 1], np.uint64))
        >>> order.tolist()
        [2, 3, 4, 5, 0, 1]
    """

    of: np.ndarray
    window: int

    @property
    def count(self) -> int:
        """Number of blocks."""
        return int(self.of.max()) + 1

    def mix(self, draws: np.ndarray, block_draws: np.ndarray) -> np.ndarray:
        """Return the samples with blocks in random order, and samples mixed within each window.

        Args:
            draws: (num_samples,) random uint64.
            block_draws: (count,) random uint64.
        """
        place = np.empty(self.count, np.int64)
        place[np.argsort(block_draws, kind="stable")] = np.arange(self.count)
        by_block = np.argsort(place[self.of], kind="stable")
        windows = np.arange(len(by_block)) // max(1, self.window)
        return by_block[np.lexsort((draws[by_block], windows))]

    def mates(self, permutation: np.ndarray, batch_size: int) -> float:
        """Return the mean number of other samples of the same block in a sample's batch."""
        batch = np.arange(len(permutation)) // batch_size
        _, counts = np.unique(batch * self.count + self.of[permutation], return_counts=True)
        return float((counts * (counts - 1)).sum() / len(permutation))


@dataclass(frozen=True)
class EpochOrder:
    """Order of the samples of every epoch.

    Args:
        num_samples: size of the data set, at least 1.
        batch_size: samples per GLOBAL batch, over all ranks.
        seed: of the permutations.
        shuffle: whether to permute every epoch; otherwise samples are in stored order.
        drop_last: whether to drop an incomplete last batch.
        blocks: shuffle by blocks instead of samples.

    Raises:
        ConfigError: no samples, or with `drop_last` not enough for one batch.

    Example:
        >>> order = EpochOrder(num_samples=5, batch_size=2, shuffle=False)
        >>> [order.global_batch(epoch=0, step=s).tolist() for s in range(order.num_batches)]
        [[0, 1], [2, 3], [4]]
    """

    num_samples: int
    batch_size: int
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    blocks: SampleBlocks | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size {self.batch_size} is less than 1", allowed="1 or more")
        if self.seed < 0:
            raise ConfigError(f"seed {self.seed} is negative", allowed="0 or more")
        if self.num_samples < 1:
            raise ConfigError("the set has no samples", fix="check the split and the window length")
        if self.num_batches < 1:
            raise ConfigError(
                f"batch_size {self.batch_size} is more than the {self.num_samples} samples, "
                "and drop_last leaves no batch",
                fix=f"batch_size={self.num_samples} or drop_last=false",
            )

    @property
    def num_batches(self) -> int:
        """Number of global batches per epoch."""
        whole, rest = divmod(self.num_samples, self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    @property
    def words(self) -> str:
        """Description of the order."""
        if self.blocks is not None:
            return f"chunks shuffled every epoch, samples within {self.blocks.window} samples"
        return "shuffled every epoch" if self.shuffle else "as stored"

    def identity(self) -> dict[str, Any]:
        """Return the inputs of the order other than the epoch (JSON types)."""
        return {
            "num_samples": self.num_samples,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            **({} if self.blocks is None else {"window": self.blocks.window}),
        }

    def permutation(self, epoch: int) -> np.ndarray:
        """Return the sample indices of an epoch in order, (num_samples,) int64."""
        if not self.shuffle:
            return np.arange(self.num_samples, dtype=np.int64)
        # The stream of Philox is specified, unlike that of `default_rng`.
        generator = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        draws = generator.bit_generator.random_raw(self.num_samples)
        if self.blocks is not None:
            return self.blocks.mix(draws, generator.bit_generator.random_raw(self.blocks.count))
        # argsort of raw draws instead of Generator.permutation, whose algorithm numpy may change.
        return np.argsort(draws, kind="stable")

    def global_batch(self, epoch: int, step: int) -> np.ndarray:
        """Return the sample indices of one global batch, (<= batch_size,) int64."""
        return self.cut(self.permutation(epoch), step)

    def cut(self, permutation: np.ndarray, step: int) -> np.ndarray:
        """Return batch `step` of a permutation."""
        return permutation[step * self.batch_size : (step + 1) * self.batch_size]


def rank_share(batch: np.ndarray, rank: int, world_size: int) -> tuple[np.ndarray, int | None]:
    """Return one rank's contiguous slice of a global batch.

    A partial batch is distributed over the ranks as evenly as possible. A rank without samples gets
    the batch's first sample as filler, because every rank must participate in every step.

    Args:
        batch: (n,) sample indices of the global batch, n >= 1.
        rank: this process.
        world_size: number of processes.

    Returns:
        The slice, and `num_valid`: 0 for a filler, otherwise None (all samples count).

    Example:
        >>> [rank_share(np.arange(3), r, 4)[0].tolist() for r in range(4)]
        [[0], [1], [2], [0]]
        >>> rank_share(np.arange(3), 3, 4)[1]
        0
    """
    share, extra = divmod(len(batch), world_size)
    start = rank * share + min(rank, extra)
    mine = batch[start : start + share + (rank < extra)]
    return (mine, None) if len(mine) else (batch[:1], 0)
