"""Check before the first step that all ranks have the same model, settings and data."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from scitoolkit.core.errors import ConfigError
from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.processes import gather_objects

MAY_DIFFER = {"progress", "profile", "loggers", "device"}  # change neither results nor messages


def check_ranks_agree(model: nn.Module, config: TrainingConfig, num_batches: int) -> None:
    """Compare hashes of model structure, settings and epoch length; every rank must call it.

    Initial weights may differ, because strategies broadcast those of rank 0.

    Args:
        model: the user's model, before a strategy shards it.
        config: the `training:` section.
        num_batches: batches per epoch.

    Raises:
        ConfigError: on all ranks, naming the item that differs and the ranks on which it does, or a
            parameter whose shape the first batch decides.
    """
    if lazy := [name for name, p in model.named_parameters() if is_lazy(p)]:
        raise ConfigError(
            f"parameter {lazy[0]} has no shape before the first batch",
            where="model",
            allowed="parameters with a shape, on several processes",
            fix="model(x) with a batch x before the training",
        )
    described: dict[str, Any] = {
        "training": config.model_dump(mode="json", exclude=MAY_DIFFER),
        "model": [
            (n, list(t.shape), str(t.dtype), t.requires_grad) for n, t in model.named_parameters()
        ],
        "batches of an epoch": num_batches,
    }
    hashes = {
        name: hashlib.sha256(json.dumps(value).encode()).hexdigest()
        for name, value in described.items()
    }
    ranks = gather_objects(hashes)
    for name in hashes:
        others = [
            str(r)
            for r, hashes_of_rank in enumerate(ranks)
            if hashes_of_rank[name] != ranks[0][name]
        ]
        if others:
            raise ConfigError(
                f"not those of rank 0 on rank {', '.join(others)}",
                where=name,
                fix="start all ranks with the same configuration, code and data",
            )
