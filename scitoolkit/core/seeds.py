"""Seeding, saving and restoring the random number generators of Python, NumPy and torch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np


def seed_everything(seed: int, *, rank: int = 0) -> None:
    """Seed Python, NumPy and torch; each rank gets a different, reproducible stream."""
    import torch

    mixed = int(np.random.SeedSequence([seed, rank]).generate_state(1)[0])
    random.seed(mixed)
    np.random.seed(mixed)
    torch.manual_seed(mixed)


def derive_seed(seed: int, *keys: int) -> int:
    """Derive an independent 63-bit seed for each combination of keys.

    Example:
        >>> derive_seed(0, 1) != derive_seed(0, 2)
        True
    """
    words = np.random.SeedSequence([seed, *keys]).generate_state(2, dtype=np.uint32)
    return int(words[0]) << 31 ^ int(words[1])


def rng_state() -> dict[str, Any]:
    """Return the generator states of Python, NumPy and torch as tensors and JSON types."""
    import torch

    kind, keys, position, has_gauss, gauss = np.random.get_state()
    state: dict[str, Any] = {
        "python": _listed(random.getstate()),
        "numpy": [kind, np.asarray(keys).tolist(), int(position), int(has_gauss), float(gauss)],
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_rng_state(state: dict[str, Any]) -> None:
    """Restore a state returned by `rng_state`; raises if any part is missing or malformed."""
    import torch

    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.asarray(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def _listed(value: Any) -> Any:
    return [_listed(v) for v in value] if isinstance(value, tuple) else value
