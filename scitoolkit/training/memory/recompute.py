"""Recomputation of activations in the backward pass (activation checkpointing).

Only the inputs of blocks are stored, where a block is an element of an outermost `ModuleList` or
`Sequential`. In contrast to `planned` nothing is measured, and every strategy and device is
supported. Results are bit-identical; a step takes about a third longer.

Source: Chen et al. 2016, https://arxiv.org/abs/1604.06174.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.training.memory.config import MemoryConfig, refuse_unread
from scitoolkit.training.memory.replaced import replaced


class Recompute:
    """Activation store that recomputes blocks from their inputs; exact.

    Args:
        model: the model whose blocks are recomputed.
        config: only `activations` may be set.

    Raises:
        ConfigError: the model has no blocks, or the configuration sets keys that are not read.
    """

    exact: ClassVar[bool] = True

    def __init__(self, model: nn.Module, config: MemoryConfig) -> None:
        refuse_unread(config, ())
        self.blocks: list[nn.Module] = blocks(model)
        if not self.blocks:
            raise ConfigError(
                "the model has no ModuleList or Sequential of blocks to recompute",
                where="training.memory.activations",
                fix="remove training.memory",
            )

    def prepare(self, gradients: Callable[[], Mapping[str, Tensor | None]]) -> None:
        """Do nothing: there is nothing to choose."""

    @contextlib.contextmanager
    def saving(self, batch: Mapping[str, Tensor], finer: float) -> Iterator[None]:
        """Return a context in which blocks store only their inputs."""
        with contextlib.ExitStack() as stack:
            for block in self.blocks:
                stack.enter_context(replaced(block, recomputes=True, hooks=contextlib.nullcontext))
            yield

    def adapt(self, errors: Mapping[str, tuple[float, float]]) -> None:
        """Do nothing: there is no error."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""


def blocks(model: nn.Module) -> list[nn.Module]:
    """Return the elements with parameters of the outermost `ModuleList`s and `Sequential`s.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Sequential(nn.Linear(2, 1)))
        >>> blocks(model) == [model[0], model[2]]
        True
    """
    if isinstance(model, nn.ModuleList | nn.Sequential):
        return [block for block in model if any(True for _ in block.parameters())]
    return [block for child in model.children() for block in blocks(child)]
