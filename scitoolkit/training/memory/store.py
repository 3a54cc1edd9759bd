"""Activations in less memory: a registered store keeps what the backward pass will need.

The trainer knows stores by this interface alone. A store keeps activations with an error; now and
then the trainer computes a step's gradients twice, with the configured and with a coarser
quantisation, and tells the store how far the gradient of each parameter moved.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.seeds import rng_state, set_rng_state
from scitoolkit.training.memory.config import MemoryConfig, activation_stores
from scitoolkit.training.sharding import local
from scitoolkit.training.strategies.base import TrainingStrategy

# The rehearsal is twice as coarse, so that it needs less memory than the step itself: a finer one
# sets the peak of the training. The difference of the two gradients is larger than the error by
# this factor, for errors that grow like the step to the power 0.8, as those of smooth fields do.
FINER, SEEN = 0.5, 1.43


class ActivationStore(Protocol):
    """What a package registers in the entry-point group `scitoolkit.activation_store`.

    Attributes:
        exact: the gradients are those without the store, so nothing is measured.
    """

    exact: ClassVar[bool]

    def __init__(self, model: nn.Module, config: MemoryConfig) -> None:
        """Keep activations of `model`."""

    def prepare(self, gradients: Callable[[], Mapping[str, Tensor | None]]) -> None:
        """Make ready before the first step of a new or resumed run.

        Args:
            gradients: runs a step, in the context of `saving`, without changing anything, and
                returns the gradients by parameter.
        """

    def saving(self, batch: Batch, finer: float) -> contextlib.AbstractContextManager[None]:
        """Return the context of a forward pass; `finer` divides the allowed errors."""

    def adapt(self, errors: Mapping[str, tuple[float, float]]) -> None:
        """Take squared gradient error and squared gradient norm by parameter, of all ranks."""

    def state_dict(self) -> dict[str, Any]:
        """Return what has been adapted, as JSON types."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""


class ActivationMemory:
    """The store of a training and when it is adapted; does nothing without a configuration.

    Attributes:
        store: the activation store, or None.
    """

    def __init__(
        self,
        model: nn.Module,
        config: MemoryConfig | None,
        strategy: TrainingStrategy,
        named: list[tuple[str, nn.Parameter]],
    ) -> None:
        self._model, self._config, self._strategy, self._named = model, config, strategy, named
        self._finer, self._is_prepared = 1.0, False
        self.store: ActivationStore | None = None
        if config is not None:
            self.store = activation_stores.get(config.activations)(model, config)

    def saving(self, batch: Batch) -> contextlib.AbstractContextManager[None]:
        """Return the context of a forward pass whose gradients are wanted."""
        return self.store.saving(batch, self._finer) if self.store else contextlib.nullcontext()

    def measures(self, step: int) -> bool:
        """Tell whether step number `step` (from 0) is measured: often at first."""
        if self._config is None or self.store is None or self.store.exact:
            return False
        every = self._config.measure_every
        return step % every == 0 or (step < every and step & (step - 1) == 0)

    def prepare(self, backward: Callable[[], None]) -> None:
        """Let the store try steps before the first one; `backward` runs forward and backward."""
        if self.store is None or self._is_prepared:
            return
        self._is_prepared = True

        def gradients() -> dict[str, Tensor | None]:
            with self._rehearsal():
                backward()
                return self._gradients()

        self.store.prepare(gradients)

    def coarser_gradients(self, backward: Callable[[], None]) -> list[Tensor | None] | None:
        """Return the gradients of a rehearsal with a coarser quantisation; None when it failed."""
        self._finer = FINER
        try:
            with self._rehearsal():
                backward()
                return list(self._gradients().values())
        except Exception:
            return None  # the step itself meets the same error, and reports it
        finally:
            self._finer = 1.0

    def _gradients(self) -> dict[str, Tensor | None]:
        return {n: None if p.grad is None else local(p.grad).clone() for n, p in self._named}

    @contextlib.contextmanager
    def _rehearsal(self) -> Iterator[None]:
        """Restore random numbers and buffers, so that the step itself sees the same."""
        chance = rng_state()
        buffers = [(b, b.detach().clone()) for b in self._model.buffers()]
        try:
            yield
        finally:
            set_rng_state(chance)
            with torch.no_grad():
                for buffer, kept in buffers:
                    buffer.copy_(kept)
            for _, parameter in self._named:
                parameter.grad = None

    def compare(self, coarser: list[Tensor | None] | None) -> list[float]:
        """Return this rank's squared errors and squared norms, one after the other."""
        if coarser is None:
            return [math.nan] * (2 * len(self._named))
        out: list[float] = []
        for (_, parameter), kept in zip(self._named, coarser, strict=True):
            if kept is None or parameter.grad is None:
                out += [0.0, 0.0]
            else:
                error = local(parameter.grad) - kept
                square = float(error.double().square().sum()) / SEEN**2
                out += [square, float(local(parameter.grad).double().square().sum())]
        return out

    def adapt(self, compared: list[float]) -> None:
        """Tell the store what all ranks measured; every rank gets the same numbers."""
        totals = self._strategy.sum(compared)
        assert self.store is not None
        pairs = zip(totals[::2], totals[1::2], strict=True)
        self.store.adapt({n: pair for (n, _), pair in zip(self._named, pairs, strict=True)})

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state of the store, or None."""
        return self.store.state_dict() if self.store else None

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Restore what `state_dict` returned."""
        if self.store is not None and state is not None:
            self.store.load_state_dict(state)
