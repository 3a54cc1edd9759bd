"""Planned activation memory: each part is saved, packed, offloaded or recomputed.

Before the first step several plans are measured: recomputation of all parts (coarse and fine),
packing of all, offloading of all, and plans from dynamic programming (`plan`). For each plan a real
step is run, and its peak memory, time and gradient error are measured. A plan is only chosen if it
needs less memory than recomputation alone and its gradient error is within the target; if its error
later exceeds twice the target, recomputation replaces it.

Source: Chen et al. 2016, arXiv:1604.06174 (recomputation); Jin et al. 2021, arXiv:2111.09562.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from logging import Logger
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import BackendError, ConfigError, DataError, NumericalError
from scitoolkit.core.log import get_logger
from scitoolkit.training.memory.comet import Comet
from scitoolkit.training.memory.config import MemoryConfig
from scitoolkit.training.memory.device_time import Moment
from scitoolkit.training.memory.live_bytes import peak_live_bytes
from scitoolkit.training.memory.offload import Offload
from scitoolkit.training.memory.parts import divided, observe
from scitoolkit.training.memory.plan import (
    LOSSY,
    MOVED,
    OFFLOAD,
    PACK,
    RECOMPUTE,
    RECOMPUTE_OFFLOADED,
    RECOMPUTE_PACKED,
    RECOMPUTED,
    SAVE,
    MemoryPlan,
    PackingCost,
    plans,
    uniform,
)
from scitoolkit.training.memory.replaced import replaced, save_unchanged

log: Logger = get_logger(__name__)
# Largest fraction of all saved bytes per part; each value gives a division to try.
SHARES = (1 / 3, 1 / 8, 1 / 20)
# Number of measured plans from dynamic programming, and of adaptation rounds of a lossy plan.
MEASURED, ROUNDS = 3, 8
MOST_SECONDS = 1.3
# Largest memory relative to the baseline; a smaller gain is not worth a gradient error.
LEAST_GAIN = 0.98
# Consecutive measurements above twice the target error before falling back to recomputation.
PATIENCE = 3

Gradients = Mapping[str, Tensor | None]
"""Gradients by parameter name; None for a parameter without one."""


@dataclass(frozen=True)
class PlanTrial:
    """A measured plan; `error` is the relative error of all gradients together."""

    plan: MemoryPlan
    comet: Comet | None
    peak: int
    seconds: float
    error: float


class PlannedMemory:
    """Activation store that saves, packs, offloads or recomputes each part by measurement.

    Args:
        model: any model.
        config: target error of all gradients together, and the folder, without which CPU
            activations are not offloaded.

    Attributes:
        exact: False, because packed activations have an error.
        trials: all measured plans; empty in a resumed run.
        chosen: the chosen plan; None before `prepare` and in a resumed run.

    Example:
        >>> def block():
        ...     return nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.Tanh())
        >>> net = nn.Sequential(*(block() for _ in range(8)))
        >>> store = PlannedMemory(net, MemoryConfig(activations="planned"))
        >>> x = torch.ones(4096, 64)
        >>> def gradients():
        ...     net.zero_grad()
        ...     with store.saving({"x": x}, 1.0):
        ...         loss = net(x).square().mean()
        ...     loss.backward()
        ...     return {name: p.grad for name, p in net.named_parameters()}
        >>> store.prepare(gradients)
        >>> store.chosen.peak < store.trials[0].peak
        True
    """

    exact: ClassVar[bool] = False

    def __init__(self, model: nn.Module, config: MemoryConfig) -> None:
        self._model, self._config = model, config
        self._device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self._plan, self._fallback = MemoryPlan({}, 0.0, 0.0), MemoryPlan({}, 0.0, 0.0)
        self._comet: Comet | None = None
        moves = self._device.type != "cpu" or config.folder is not None
        self._offload: Offload | None = Offload(model, config) if moves else None
        self._exceeded = 0
        self._prepared = False
        self.trials: list[PlanTrial] = []
        self.chosen: PlanTrial | None = None

    def prepare(self, gradients: Callable[[], Gradients]) -> None:
        """Measure plans and choose one; does nothing in a resumed run.

        Args:
            gradients: runs a step without side effects and returns its gradients.

        Raises:
            BackendError: the training runs on several processes, whose plans might differ.
        """
        if self._prepared:
            return
        self._prepared = True
        if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
            raise BackendError(
                "memory.activations=planned on several processes",
                allowed="one process",
                fix="memory.activations=comet",
            )
        observed = observe(self._model, gradients)
        exact = _copied(gradients())
        whole = self._measured(MemoryPlan({}, 0.0, 0.0), None, gradients, exact)
        divisions = {
            tuple(p.name for p in parts): parts
            for parts in (divided(observed, share) for share in SHARES)
            if parts
        }
        uniforms = [uniform(parts, RECOMPUTE) for parts in divisions.values()]
        recomputed = list(self._possible(uniforms, gradients, exact))
        baseline = min([whole, *recomputed], key=lambda trial: trial.peak)
        tried = [whole, *recomputed, *self._kept(divisions.values(), whole, gradients, exact)]
        self.trials = tried
        good = [
            trial
            for trial in tried
            if trial.error <= self._config.gradient_error
            and trial.seconds <= MOST_SECONDS * baseline.seconds
            and trial.peak <= LEAST_GAIN * baseline.peak
        ]
        self.chosen = min(good, key=lambda trial: trial.peak) if good else baseline
        self._plan, self._comet = self.chosen.plan, self.chosen.comet
        self._fallback = baseline.plan
        log.info("activations: %s", _summary(self.chosen, baseline, whole))

    def _kept(
        self, divisions: Any, whole: PlanTrial, gradients: Callable[[], Gradients], exact: Gradients
    ) -> Iterator[PlanTrial]:
        """Yield measured plans that pack or offload: from dynamic programming, and uniform ones."""
        tried: list[PlanTrial] = []
        packing = self._packing(whole, gradients, exact, tried)
        offloading = self._offloading(whole, gradients, exact, tried)
        yield from tried
        if packing is None and offloading is None:
            return
        candidates = [plan for parts in divisions for plan in plans(parts, packing, offloading)]
        candidates = sorted(candidates, key=lambda plan: (plan.peak, plan.seconds))[:MEASURED]
        for again, how in ((RECOMPUTE_PACKED, packing), (RECOMPUTE_OFFLOADED, offloading)):
            if how is not None:
                candidates += [uniform(parts, again, packing, offloading) for parts in divisions]
        yield from self._possible(candidates, gradients, exact)

    def _possible(
        self, candidates: Iterable[MemoryPlan], gradients: Callable[[], Gradients], exact: Gradients
    ) -> Iterator[PlanTrial]:
        """Yield measured plans, skipping those whose parts modify their input in place."""
        for plan in candidates:
            packer = self._packer() if plan.lossy else None
            try:
                yield self._measured(plan, packer, gradients, exact, rounds=ROUNDS)
            except NumericalError as error:
                log.info("skipping a memory plan: %s", error)
                for parameter in self._model.parameters():
                    parameter.grad = None

    def _packing(
        self,
        whole: PlanTrial,
        gradients: Callable[[], Gradients],
        exact: Gradients,
        tried: list[PlanTrial],
    ) -> PackingCost | None:
        """Measure packing of everything; return its cost, or None if it saves nothing."""
        if (comet := self._packer()) is None:
            return None
        plan = MemoryPlan({"": PACK}, 0.0, 0.0)
        trial = self._measured(plan, comet, gradients, exact, rounds=ROUNDS)
        tried.append(trial)
        if not comet.kept_bytes or comet.raw_bytes <= comet.kept_bytes:
            return None
        seconds = max(trial.seconds - whole.seconds, 0.0)
        return PackingCost(comet.raw_bytes / comet.kept_bytes, seconds / comet.raw_bytes)

    def _offloading(
        self,
        whole: PlanTrial,
        gradients: Callable[[], Gradients],
        exact: Gradients,
        tried: list[PlanTrial],
    ) -> PackingCost | None:
        """Measure offloading of everything; return its cost, or None if it is impossible."""
        if self._offload is None:
            return None
        try:
            trial = self._measured(MemoryPlan({"": OFFLOAD}, 0.0, 0.0), None, gradients, exact)
        except DataError as error:
            log.warning("activations are not offloaded: %s", error)
            self._offload = None
            return None
        tried.append(trial)
        if not self._offload.moved_bytes:
            return None
        seconds = max(trial.seconds - whole.seconds, 0.0)
        return PackingCost(math.inf, seconds / self._offload.moved_bytes)

    def _packer(self) -> Comet | None:
        try:
            return Comet(self._model, self._config)
        except BackendError as error:
            log.info("activations are not packed: %s", error)
            return None

    def _measured(
        self,
        plan: MemoryPlan,
        comet: Comet | None,
        gradients: Callable[[], Gradients],
        exact: Gradients,
        rounds: int = 1,
    ) -> PlanTrial:
        """Measure a plan by real steps; a lossy one is adapted between them."""
        self._plan, self._comet = plan, comet
        error = math.inf
        for _ in range(rounds):
            pairs, before = _errors(gradients(), exact), error
            error = _relative(pairs)
            if comet is None or error <= self._config.gradient_error or error > 0.95 * before:
                break
            comet.adapt(pairs)
        seconds = self._seconds(gradients)
        peak = peak_live_bytes(gradients, self._device)
        log.debug("plan %s: %d bytes, %.3g s, error %.2g", plan.choices, peak, seconds, error)
        return PlanTrial(plan, comet, peak, seconds, error)

    def _seconds(self, gradients: Callable[[], Gradients]) -> float:
        """Return the time of a step: of the GPU, or CPU time plus time blocked on the disk."""
        if self._device.type == "cuda":
            begin = Moment(self._device)
            gradients()
            return begin.seconds_until(Moment(self._device))
        started = self._clock()
        gradients()
        return self._clock() - started

    def _clock(self) -> float:
        waited = self._offload.place.blocked if self._offload else 0.0
        return time.process_time() + waited

    @contextlib.contextmanager
    def saving(self, batch: Batch, finer: float) -> Iterator[None]:
        """Return a context in which activations are stored as planned; see `Comet.saving`."""
        with contextlib.ExitStack() as stack:
            if self._plan.moves:
                assert self._offload is not None
                stack.enter_context(self._offload.following(batch))
            for name, choice in self._plan.choices.items():
                if name and choice != PACK:
                    stack.enter_context(
                        replaced(
                            self._model.get_submodule(name),
                            recomputes=choice in RECOMPUTED,
                            hooks=self._hooks(choice),
                        )
                    )
            if self._plan.choices.get("") == OFFLOAD:
                stack.enter_context(self._hooks(OFFLOAD)())
            if self._comet is not None:
                stack.enter_context(self._comet.saving(batch, finer))
            yield

    def _hooks(self, choice: str) -> Callable[[], Any]:
        """Return the factory of a part's context; a null context defers to the enclosing hooks."""
        if choice in MOVED:
            assert self._offload is not None
            return self._offload.hooks
        return contextlib.nullcontext if choice in LOSSY else save_unchanged

    def adapt(self, errors: Mapping[str, tuple[float, float]]) -> None:
        """Adapt the packing; fall back to recomputation if its error stays far above the target."""
        if self._comet is None:
            return
        self._comet.adapt(errors)
        error = _relative(errors)
        exceeds = error > 2 * self._config.gradient_error  # NaN, a failed rehearsal, does not count
        self._exceeded = self._exceeded + 1 if exceeds else 0
        if self._exceeded >= PATIENCE:
            log.warning("gradient error %.2g of packed activations: recomputing from now on", error)
            self._plan, self._comet = self._fallback, None

    def state_dict(self) -> dict[str, Any]:
        """Return the plan and the quantisation steps."""
        return {
            "choices": dict(self._plan.choices),
            "fallback": dict(self._fallback.choices),
            "packing": self._comet.state_dict() if self._comet else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore plan and quantisation steps; nothing is measured again."""
        self._plan = MemoryPlan(dict(state["choices"]), 0.0, 0.0)
        self._fallback = MemoryPlan(dict(state["fallback"]), 0.0, 0.0)
        if self._plan.moves and self._offload is None:
            raise ConfigError(
                "the checkpoint's memory plan offloads activations, but no folder is given",
                where="training.memory.folder",
                fix="training.memory.folder=FOLDER",
            )
        self._comet = None
        if state["packing"] is not None:
            self._comet = Comet(self._model, self._config)
            self._comet.load_state_dict(state["packing"])
        self._prepared = True


def _copied(gradients: Gradients) -> Gradients:
    return {n: None if g is None else g.detach().clone() for n, g in gradients.items()}


def _errors(approximate: Gradients, exact: Gradients) -> dict[str, tuple[float, float]]:
    """Return squared error and squared norm of each gradient."""
    pairs = {}
    for name, two in exact.items():
        one = approximate[name]
        if one is not None and two is not None:
            error = float((one.double() - two.double()).square().sum())
            pairs[name] = error, float(two.double().square().sum())
    return pairs


def _relative(pairs: Mapping[str, tuple[float, float]]) -> float:
    """Return the relative error of all gradients together."""
    error, norm = (math.sqrt(sum(pair[i] for pair in pairs.values())) for i in (0, 1))
    return error / max(norm, 1e-300)


def _summary(chosen: PlanTrial, baseline: PlanTrial, whole: PlanTrial) -> str:
    counts = {
        c: list(chosen.plan.choices.values()).count(c)
        for c in (SAVE, *sorted(LOSSY | MOVED), RECOMPUTE)
    }
    what = ", ".join(f"{n} x {c}" for c, n in counts.items() if n) or "all saved"
    return (
        f"{what}; {chosen.peak / 2**20:.1f} MiB of live bytes in a step, recomputation alone "
        f"{baseline.peak / 2**20:.1f}, all saved {whole.peak / 2**20:.1f}; gradient error "
        f"{chosen.error:.2g}"
    )
