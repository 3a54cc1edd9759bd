"""Training task of emulators: normalised error over one or more steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scitoolkit.core.contracts import Batch, Progress
from scitoolkit.emulation.config import RolloutConfig
from scitoolkit.emulation.emulator import Emulator
from scitoolkit.emulation.leads import Leads
from scitoolkit.emulation.symmetries import Symmetries
from scitoolkit.emulation.variables import STEP, Layout


class EmulationTask:
    """One-step and autoregressive (rollout) training.

    Errors are relative to the typical size of an output, or of its change in one step if the change
    is learned, so that predicting the mean or no change has an error of about 1.

    Args:
        model: the emulator.
        rollout: consecutive steps, pushforward, noise.
        symmetries: applied at random to training batches; None for none.
        weights: (*grid) weights of cells of mean 1; None for equal ones.
        leads: for an emulator of several leads: one is drawn for each training batch, and metrics
            are means over all; None for one lead.
        guarded: {output that a guard computes from others: scale of its errors} in the loss.
        loss_weights: {output: weight} in the loss, 1 if not given.

    Batches hold every variable of the layout as (B, step, *dims): step 0 is the first input, step
    k the output after k steps. With lead 0 there is a single step, with `leads` the samples of
    every lead's steps.
    """

    layout: Layout
    score = "mse"
    """What the metrics of outputs are named after."""

    def __init__(
        self,
        model: Emulator,
        rollout: RolloutConfig | None = None,
        symmetries: Symmetries | None = None,
        weights: Tensor | None = None,
        leads: Leads | None = None,
        guarded: Mapping[str, float] | None = None,
        loss_weights: Mapping[str, float] | None = None,
    ) -> None:
        self.model: Emulator = model
        self._guarded = dict(guarded or {})
        counted = [*(v.name for v in model.learned), *self._guarded]
        weights_of = [(loss_weights or {}).get(name, 1.0) for name in counted]
        self._counted = [i for i, weight in enumerate(weights_of) if weight]
        self._weights_of = torch.tensor([weight for weight in weights_of if weight])
        self._alike: bool = all(weight == 1.0 for weight in weights_of)
        self.layout = model.layout
        self.rollout: RolloutConfig | Any = rollout or RolloutConfig()
        self.symmetries = symmetries
        self.weights: Tensor = torch.ones(()) if weights is None else weights.float()
        self.leads = leads
        self._share_done = 0.0

    def at(self, progress: Progress) -> None:
        """Receive the progress of the training, which starts rollouts at `rollout.begin`."""
        self._share_done = progress.share

    def loss(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Return the mean normalised squared error over outputs and steps."""
        growth: Mapping[str, float] = {}
        batch = self._with_draws(batch, training=True)
        if self.leads is not None:
            lead = self.leads.draw()
            batch, growth = self.leads.of(batch, lead), self.leads.growth[lead]
        if self.symmetries is not None:
            batch = self.symmetries.draw(batch)
        batch = self._expanded(batch)
        available = batch[self.layout.outputs[0].name].shape[1] - 1
        free, steps = 0, min(1, available)
        if self._share_done >= self.rollout.begin:
            free, steps = self._drawn(self.rollout.pushforward), self.rollout.steps
        state = self._start(batch)
        for step in range(free):
            with torch.no_grad():
                answer = self.model(*self._inputs(batch, state, step))
            state = self._advance(state, answer)
        errors: list[Tensor] = []
        for step in range(free, free + max(steps, 1)):
            target = step + 1 if available else 0
            truth = self._truth(batch, target) if self._share_done < self.rollout.begin else None
            answer = self.model(*self._inputs(batch, state, step), truth=truth)
            errors.append(self._mean(self._errors(batch, answer, target, growth)))
            state = self._advance(state, answer)
        return torch.stack(errors).mean(), {}

    def metrics(self, batch: Batch) -> Mapping[str, Tensor | float]:
        """Return `loss`, the mean over all steps of the batch, and `SCORE_NAME` of each output.

        With several leads these are means over the leads, with a `loss_leadN` for each lead.
        """
        batch = self._with_draws(batch, training=False)
        if self.leads is None:
            return self._metrics(batch, {})
        by_lead = {
            lead: self._metrics(self.leads.of(batch, lead), self.leads.growth[lead])
            for lead in self.leads.values
        }
        first = by_lead[self.leads.values[0]]
        means = {n: torch.stack([metrics[n] for metrics in by_lead.values()]).mean() for n in first}
        return {
            **means,
            **{f"loss_lead{lead}": metrics["loss"] for lead, metrics in by_lead.items()},
        }

    def _metrics(self, batch: Batch, growth: Mapping[str, float]) -> dict[str, Tensor]:
        batch = self._expanded(batch)
        available = batch[self.layout.outputs[0].name].shape[1] - 1
        state = self._start(batch)
        errors = []
        for step in range(max(available, 1)):
            answer = self.model(*self._inputs(batch, state, step))
            errors.append(self._errors(batch, answer, step + 1 if available else 0, growth))
            state = self._advance(state, answer)
        mean = torch.stack(errors).mean(0)
        by_output = {f"{self.score}_{v.name}": mean[i] for i, v in enumerate(self.model.learned)}
        return {"loss": self._mean(mean), **by_output}

    def batch_size(self, batch: Batch) -> int:
        """Return the number of samples."""
        return len(batch[self.layout.inputs[0].name])

    def _with_draws(self, batch: Batch, *, training: bool) -> Batch:
        """Return a batch with random inputs; this task has none."""
        return batch

    def _expanded(self, batch: Batch) -> Batch:
        """Return a batch with a row for each forecast of a sample; this task has one."""
        return batch

    def _penalty(self, errors: Tensor) -> Tensor:
        """Return the penalty of scaled errors, (B, ...)."""
        return errors**2

    def _drawn(self, pushforward: int) -> int:
        """Draw the number of steps without gradient from torch's generator."""
        if not self.rollout.draw_pushforward or not pushforward:
            return pushforward
        return int(torch.randint(pushforward + 1, ()))

    def _start(self, batch: Batch) -> dict[str, Tensor]:
        """Return the state at step 0, with noise during training."""
        state = {name: batch[name][:, 0] for name in self.layout.recurrent}
        if self.rollout.noise and self.model.training:
            scales = self.model.output_scales()
            for i, variable in enumerate(self.model.learned):
                if variable.name in state:
                    clean = state[variable.name]
                    noise = torch.randn_like(clean) * scales[i].view(1, *_ones(clean, scales[i]))
                    state[variable.name] = clean + self.rollout.noise * noise
        return state

    def _inputs(self, batch: Batch, state: dict[str, Tensor], step: int) -> list[Tensor]:
        """Return the inputs of a step: recurrent ones from `state`, others from the batch."""
        return [
            state[v.name] if v.name in state else batch[v.name][:, step] for v in self.layout.inputs
        ]

    def _truth(self, batch: Batch, step: int) -> dict[str, Tensor]:
        return {v.name: batch[v.name][:, step] for v in self.layout.outputs}

    def _advance(self, state: dict[str, Tensor], answer: tuple[Tensor, ...]) -> dict[str, Tensor]:
        new = {v.name: value for v, value in zip(self.layout.outputs, answer, strict=True)}
        return self.layout.advanced(state, new)

    def _errors(
        self, batch: Batch, answer: tuple[Tensor, ...], step: int, growth: Mapping[str, float]
    ) -> Tensor:
        """Return the mean penalties of scaled errors of learned and guarded outputs, (outputs,).

        Args:
            batch: the truth.
            answer: the outputs.
            step: index of the truth in the batch.
            growth: {output: factor of its scale}; 1 if not given.
        """
        out, cells = [], self._cells(batch, step)
        values = {v.name: a for v, a in zip(self.layout.outputs, answer, strict=True)}
        scales = {
            v.name: s for v, s in zip(self.model.learned, self.model.output_scales(), strict=True)
        } | {name: torch.tensor([s]) for name, s in self._guarded.items()}
        variables = {v.name: v for v in self.layout.outputs}
        changes = self.model.advance.changes
        for variable, scale in ((variables[name], s) for name, s in scales.items()):
            value = values[variable.name]
            scale = scale.to(value.device) * growth.get(variable.name, 1.0)
            moving = scale > 0  # a value that does not is exact, or not in the loss
            scale = torch.where(moving, scale, 1.0)
            error = value - batch[variable.name][:, step]
            if variable.name in changes:
                # Errors of short steps count as much as those of long ones.
                relative = self.model.advance.relative_step(batch[STEP][:, step - 1])
                error = error / relative.view(-1, *([1] * (error.ndim - 1)))
            if variable.is_field:
                out.append((self._penalty(error / scale) * cells.to(error.device)).mean())
            else:
                flat = error.reshape(len(error), -1)
                out.append(self._penalty(flat / scale * moving).mean())
        return torch.stack(out)

    def _cells(self, batch: Batch, step: int) -> Tensor:
        """Return the weights of cells, (*grid), or (B, *grid) with a mask of each step."""
        if not self.layout.mask_of_step:
            return self.weights
        valid = batch[self.layout.mask_of_step][:, step] > 0.5
        left = self.weights.to(valid.device) * valid
        # Of each sample, not of the batch: its loss must not depend on the samples beside it.
        mean = left.mean(dim=tuple(range(1, left.ndim)), keepdim=True)
        return left / mean.clamp_min(torch.finfo(left.dtype).tiny)

    def _mean(self, errors: Tensor) -> Tensor:
        """Return the weighted mean of the errors of outputs, (outputs,)."""
        if self._alike:
            return errors.mean()
        weights = self._weights_of.to(errors)
        return (errors[self._counted] * weights).sum() / weights.sum()


def cell_weights(volumes: np.ndarray, floor: float) -> np.ndarray:
    """Return the weights of cells in the loss, mean 1: their volumes, mean 1, plus a floor.

    Cells without volume, outside of a mask, have weight 0.

    Example:
        >>> cell_weights(np.array([0.5, 1.5]), 1.0).tolist()
        [0.75, 1.25]
    """
    if not floor:
        return volumes
    counted = (volumes > 0) / (volumes > 0).mean()
    return (volumes + floor * counted) / (1 + floor)


def _ones(value: Tensor, scale: Tensor) -> list[int]:
    """Return the shape of a scale for broadcasting: one number, or one per value of a vector."""
    return [1] * (value.ndim - 1) if len(scale) == 1 else list(value.shape[1:])
