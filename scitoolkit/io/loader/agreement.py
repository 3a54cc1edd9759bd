"""Ranks that plan by themselves check, once an epoch, that they have the same plan.

If they did not, they would wait for each other in vain some steps later.
"""

from __future__ import annotations

import torch.distributed

from scitoolkit.core.errors import ConfigError


def process_of(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return rank and world size, from torch.distributed where they are not given."""
    running = torch.distributed.is_available() and torch.distributed.is_initialized()
    if world_size is None:
        world_size = torch.distributed.get_world_size() if running else 1
    if rank is None:
        rank = torch.distributed.get_rank() if running else 0
    return rank, world_size


def require_agreement(mine: dict[str, object], world_size: int) -> None:
    """Compare what every process says of its plan; of one process there is nothing to compare.

    Args:
        mine: what this process follows, JSON types.
        world_size: number of processes that should follow the same.

    Raises:
        ConfigError: on all ranks, when they differ.
    """
    running = torch.distributed.is_available() and torch.distributed.is_initialized()
    if world_size == 1 or not running or torch.distributed.get_world_size() != world_size:
        return
    said: list[dict[str, object]] = [{} for _ in range(world_size)]
    torch.distributed.all_gather_object(said, mine)
    for key in said[0]:
        values = [other.get(key) for other in said]
        if any(value != values[0] for value in values):
            raise ConfigError(
                f"the ranks do not follow the same plan: {key} is {values}",
                fix="the same files, seed, buffer and batch size on every rank",
            )
