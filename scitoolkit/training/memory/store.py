"""Interface of activation stores, which hold the tensors saved for the backward pass.

Lossy stores are adapted by measurement: from time to time the trainer computes the gradients of a
step twice, with the current and with a coarser quantisation, and passes the difference of each
parameter's gradient to the store.
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

# The second evaluation is twice as coarse, so that it needs less memory than the step itself: a
# finer one would set the memory peak of the training. SEEN is the ratio of the difference of the
# two gradients to the error, if the error grows like the step to the power 0.8 (smooth fields).
FINER, SEEN = 0.5, 1.43


class ActivationStore(Protocol):
    """Activation store, registered in the entry-point group `scitoolkit.activation_store`.

    Attributes:
        exact: whether gradients are unaffected; an exact store is not measured.
    """

    exact: ClassVar[bool]

    def __init__(self, model: nn.Module, config: MemoryConfig) -> None:
        """Create the store of a model."""

    def prepare(self, gradients: Callable[[], Mapping[str, Tensor | None]]) -> None:
        """Prepare the store before the first step of a new or resumed run.

        Args:
            gradients: runs a step in the context of `saving` without side effects, and returns
                the gradients by parameter name.
        """

    def saving(self, batch: Batch, finer: float) -> contextlib.AbstractContextManager[None]:
        """Return the context of a forward pass; `finer` divides the error bounds."""

    def adapt(self, errors: Mapping[str, tuple[float, float]]) -> None:
        """Adapt to (squared error, squared norm) of the gradient by parameter, over all ranks."""

    def state_dict(self) -> dict[str, Any]:
        """Return the adaptive state as JSON types."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""


class ActivationMemory:
    """The activation store of a training and its adaptation; does nothing without `config`.

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
        """Return the context of a forward pass with gradients."""
        return self.store.saving(batch, self._finer) if self.store else contextlib.nullcontext()

    def measures(self, step: int) -> bool:
        """Return whether step number `step` (from 0) is measured; early steps are more often."""
        if self._config is None or self.store is None or self.store.exact:
            return False
        every = self._config.measure_every
        return step % every == 0 or (step < every and step & (step - 1) == 0)

    def prepare(self, backward: Callable[[], None]) -> None:
        """Prepare the store before the first step; `backward` runs a forward and backward pass."""
        if self.store is None or self._is_prepared:
            return
        self._is_prepared = True

        def gradients() -> dict[str, Tensor | None]:
            with self._rehearsal():
                backward()
                return self._gradients()

        self.store.prepare(gradients)

    def coarser_gradients(self, backward: Callable[[], None]) -> list[Tensor | None] | None:
        """Return the gradients with a coarser quantisation; None if their computation failed."""
        self._finer = FINER
        try:
            with self._rehearsal():
                backward()
                return list(self._gradients().values())
        except Exception:
            return None  # the step itself will raise the same error
        finally:
            self._finer = 1.0

    def _gradients(self) -> dict[str, Tensor | None]:
        return {n: None if p.grad is None else local(p.grad).clone() for n, p in self._named}

    @contextlib.contextmanager
    def _rehearsal(self) -> Iterator[None]:
        """Restore random state and buffers afterwards, so that the step itself is unaffected."""
        random_state = rng_state()
        buffers = [(b, b.detach().clone()) for b in self._model.buffers()]
        try:
            yield
        finally:
            set_rng_state(random_state)
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)
            for _, parameter in self._named:
                parameter.grad = None

    def compare(self, coarser: list[Tensor | None] | None) -> list[float]:
        """Return this rank's squared errors and squared norms, alternating, by parameter."""
        if coarser is None:
            return [math.nan] * (2 * len(self._named))
        out: list[float] = []
        for (_, parameter), coarse in zip(self._named, coarser, strict=True):
            if coarse is None or parameter.grad is None:
                out += [0.0, 0.0]
            else:
                error = local(parameter.grad) - coarse
                square = float(error.double().square().sum()) / SEEN**2
                out += [square, float(local(parameter.grad).double().square().sum())]
        return out

    def adapt(self, compared: list[float]) -> None:
        """Adapt the store to the measurements of all ranks, which are summed."""
        totals = self._strategy.sum(compared)
        assert self.store is not None
        pairs = zip(totals[::2], totals[1::2], strict=True)
        self.store.adapt({n: pair for (n, _), pair in zip(self._named, pairs, strict=True)})

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state of the store, or None."""
        return self.store.state_dict() if self.store else None

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Restore the result of `state_dict`."""
        if self.store is not None and state is not None:
            self.store.load_state_dict(state)
