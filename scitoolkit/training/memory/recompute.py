"""Activations computed again in the backward pass, instead of being kept.

Of each block (an element of a `ModuleList`, or of a `Sequential` that is no block itself) only the
input is kept: the plan of `planned` without its measurements, for every strategy and device. The
weights that come out are the same bits; a step takes about a third longer.

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
    """Activation store that keeps the inputs of blocks.

    Args:
        model: whose blocks are computed again.
        config: `activations` is all that is read.

    Raises:
        ConfigError: the model has no blocks, or the configuration has keys that are not read.
    """

    exact: ClassVar[bool] = True

    def __init__(self, model: nn.Module, config: MemoryConfig) -> None:
        refuse_unread(config, ())
        self.blocks: list[nn.Module] = blocks(model)
        if not self.blocks:
            raise ConfigError(
                "the model has no ModuleList or Sequential of blocks to compute again",
                where="training.memory.activations",
                fix="leave training.memory out",
            )

    def prepare(self, gradients: Callable[[], Mapping[str, Tensor | None]]) -> None:
        """Do nothing: there is nothing to choose."""

    @contextlib.contextmanager
    def saving(self, batch: Mapping[str, Tensor], finer: float) -> Iterator[None]:
        """Within it the blocks keep their inputs alone."""
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
    """Return the outermost elements of lists and sequences that have parameters.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Sequential(nn.Linear(2, 1)))
        >>> blocks(model) == [model[0], model[2]]
        True
    """
    if isinstance(model, nn.ModuleList | nn.Sequential):
        return [block for block in model if any(True for _ in block.parameters())]
    return [block for child in model.children() for block in blocks(child)]
