"""Check, once per epoch, that all ranks follow the same plan.

Ranks plan independently; with different plans they would deadlock some steps later.
"""

from __future__ import annotations

import torch.distributed

from scitoolkit.core.errors import ConfigError


def process_of(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return rank and world size, from torch.distributed if they are None."""
    running = torch.distributed.is_available() and torch.distributed.is_initialized()
    if world_size is None:
        world_size = torch.distributed.get_world_size() if running else 1
    if rank is None:
        rank = torch.distributed.get_rank() if running else 0
    return rank, world_size


def require_agreement(mine: dict[str, object], world_size: int) -> None:
    """Compare the descriptions of the plans of all processes.

    Args:
        mine: description of this process's plan, JSON types.
        world_size: number of processes.

    Raises:
        ConfigError: on all ranks, if they differ.
    """
    running = torch.distributed.is_available() and torch.distributed.is_initialized()
    if world_size == 1 or not running or torch.distributed.get_world_size() != world_size:
        return
    gathered: list[dict[str, object]] = [{} for _ in range(world_size)]
    torch.distributed.all_gather_object(gathered, mine)
    for key in gathered[0]:
        values = [other.get(key) for other in gathered]
        if any(value != values[0] for value in values):
            raise ConfigError(
                f"the ranks do not follow the same plan: {key} is {values}",
                fix="use the same files, seed, buffer and batch size on every rank",
            )
