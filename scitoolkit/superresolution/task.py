"""Training task: regression at random points, residuals of equations, boundary conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch, Progress
from scitoolkit.core.errors import ConfigError
from scitoolkit.ops import taylor
from scitoolkit.superresolution.config import BoundaryConfig, PdeConfig
from scitoolkit.superresolution.equations import Key, Residuals
from scitoolkit.superresolution.model import LatentGrid, MeshfreeFlowNet


@dataclass(frozen=True)
class Physics:
    """Residuals of equations for the loss.

    Attributes:
        residuals: evaluates the equations.
        config: weights and points.
        scales: {equation: size of its terms on the training data}, which makes residuals
            dimensionless and comparable.
        plan: the derivatives that the equations require.
    """

    residuals: Residuals
    config: PdeConfig
    scales: Mapping[str, float]
    plan: taylor.Plan = field(init=False)

    def __post_init__(self) -> None:
        """Set the plan."""
        dims = len(self.residuals.pde.names.dims)
        object.__setattr__(self, "plan", taylor.make_plan(dims, self.residuals.operators()))

    def evaluate(
        self, streams: Tensor, points: Tensor | None = None, origin: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return residual over scale of each equation, shape (B, N).

        Args:
            streams: (streams, B, N, fields) of `MeshfreeFlowNet.query` under `plan`.
            points: (B, N, d), for equations with explicit coordinates.
            origin: (B, d) to be added to them.
        """
        names = self.residuals.pde.names
        values: dict[Key, Tensor] = {
            key: streams[self.plan.index(key[1]), ..., names.fields.index(key[0])]
            for key in self.residuals.keys
        }
        coordinates = {}
        if points is not None:
            absolute = points if origin is None else points + origin[:, None].to(points.dtype)
            coordinates = {d: absolute[..., i] for i, d in enumerate(names.dims)}
        return {
            name: residual / self.scales[name]
            for name, residual in self.residuals.evaluate(values, coordinates).items()
        }


class SuperresolutionTask:
    """Training task: regression + gamma x residuals + boundary conditions.

    All losses are dimensionless: errors are in standard deviations of each field, residuals in
    sizes of their equation's terms.

    Args:
        model: the network.
        loss: `l1` (the paper's) or `l2`.
        physics: equations of the residual loss; None for none.
        boundaries: boundary conditions.
        boundary_weight: weight of their loss.
        fields: names of the channels.
        dims: names of the coordinates.
        coarser: factors of further thinning, of which each optimizer step has one, in turn.
        thinned: axes of the dims that they thin.

    Raises:
        ConfigError: a residual loss with an activation that is not smooth enough.
    """

    def __init__(
        self,
        model: MeshfreeFlowNet,
        *,
        loss: str = "l1",
        physics: Physics | None = None,
        boundaries: Sequence[BoundaryConfig] = (),
        boundary_weight: float = 0.0,
        fields: Sequence[str] = (),
        dims: Sequence[str] = (),
        coarser: Sequence[int] = (1,),
        thinned: Sequence[int] = (),
    ) -> None:
        self.model: nn.Module = model
        self._coarser, self._axes, self._step = tuple(coarser), tuple(thinned), 0
        self.kind: str = loss
        # Whether this optimizer step is in `steps_seen`; None without a trainer: each loss counts.
        self._counted: bool | None = None
        self.boundary_weight: float = boundary_weight
        self.physics: Physics | None = (
            physics if physics is not None and physics.config.weight > 0 else None
        )
        self.boundaries: list[tuple[int, int, BoundaryConfig]] = [
            (fields.index(b.field), dims.index(b.dim), b) for b in boundaries if boundary_weight
        ]
        if self.physics is not None:
            require_smooth(model.decoder.activation, self.physics.residuals.pde.order)

    def _norm(self, error: Tensor) -> Tensor:
        return error.abs().mean() if self.kind == "l1" else error.square().mean()

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor | float]]:
        """Return the loss and its parts."""
        # By the step, so that all processes, accumulated batches and closures have the same.
        batch = self._thinned(batch, self._coarser[self._step % len(self._coarser)])
        streams, residuals = self._predict(batch)
        error = (streams - batch["values"]) / self._model.std
        regression = self._norm(error)
        logged: dict[str, Tensor | float] = {"regression": regression.detach()}
        total = regression
        if residuals:
            parts = {name: self._norm(r) for name, r in residuals.items()}
            logged |= {f"residual_{name}": part.detach() for name, part in parts.items()}
            total = total + self._gamma() * self._weighted(parts)
        if self.boundaries:
            boundary = self._boundary_loss(batch)
            logged["boundary"] = boundary.detach()
            total = total + self.boundary_weight * boundary
        return total, logged

    def metrics(self, batch: Batch) -> dict[str, Tensor | float]:
        """Return `loss`, of the regression only and thus independent of gamma, and `nrmse`.

        With several resolutions these are over all of them.
        """
        errors = []
        for factor in self._coarser:
            thin = self._thinned(batch, factor)
            predicted = self.model(thin["low"], _nodes(thin), batch["points"])[0]
            errors.append((predicted - batch["values"]) / self._model.std)
        error = torch.stack(errors)
        return {"loss": self._norm(error), "nrmse": error.square().mean().sqrt()}

    def _thinned(self, batch: Batch, factor: int) -> Batch:
        """Return a batch whose low resolution has every `factor`-th node."""
        if factor == 1:
            return batch
        every = slice(None, None, factor)
        axes = range(batch["low"].ndim - 2)
        low = batch["low"][(..., *(every if a in self._axes else slice(None) for a in axes))]
        nodes = {f"nodes_{a}": batch[f"nodes_{a}"][:, every] for a in self._axes}
        return {**batch, "low": low, **nodes}

    def batch_size(self, batch: Batch) -> int:
        """Return the number of crops."""
        return len(batch["low"])

    @property
    def _model(self) -> MeshfreeFlowNet:
        inner = getattr(self.model, "module", self.model)  # DistributedDataParallel wraps it
        assert isinstance(inner, MeshfreeFlowNet)
        return inner

    def _predict(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return values at the regression points and residuals, in one forward pass of the model.

        A second pass would break the gradient synchronisation of DistributedDataParallel.
        """
        if self.physics is None:
            return self.model(batch["low"], _nodes(batch), batch["points"])[0], {}
        plan = self.physics.plan
        if "pde_points" not in batch:
            streams = self.model(batch["low"], _nodes(batch), batch["points"], plan)
            return streams[0], self._residuals(streams, batch["points"], batch)
        values, streams = self.model(
            batch["low"], _nodes(batch), batch["points"], None, batch["pde_points"], plan
        )
        return values[0], self._residuals(streams, batch["pde_points"], batch)

    def _residuals(self, streams: Tensor, points: Tensor, batch: Batch) -> dict[str, Tensor]:
        assert self.physics is not None
        return self.physics.evaluate(streams, points, batch.get("origin"))

    def at(self, progress: Progress) -> None:
        """Receive the progress, before every optimizer step and every validation.

        The warm-up counts optimizer steps: batches that a step accumulates, the evaluations of a
        closure and measurements of memory are losses of the same step. So is the resolution, which
        is the finest without a trainer.
        """
        self._step = progress.step
        if self.physics is not None and self.physics.config.warmup_steps:
            self._model.steps_seen.fill_(progress.step)
            self._counted = False

    def _gamma(self) -> Tensor | float:
        """Return the weight of the residuals, which grows linearly during the warm-up."""
        assert self.physics is not None
        config = self.physics.config
        if not config.warmup_steps:
            return config.weight
        seen = self._model.steps_seen
        if self.model.training and not self._counted:
            # In place: the buffer itself counts, and is saved with the weights.
            seen += 1
            if self._counted is not None:
                self._counted = True
        return config.weight * torch.clamp(seen / config.warmup_steps, max=1.0).float()

    def _weighted(self, parts: dict[str, Tensor]) -> Tensor:
        assert self.physics is not None
        config = self.physics.config
        weights: dict[str, Tensor | float] = {n: config.weights.get(n, 1.0) for n in parts}
        if config.balance == "gradient" and torch.is_grad_enabled():
            balance = self._balance(parts)
            weights = {n: w * balance[n] for n, w in weights.items()}
        total = sum(weights[n] * part for n, part in parts.items())
        return total / len(parts)  # type: ignore[return-value]

    def _balance(self, parts: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return factors that give all equations equal gradients at the decoder's last layer.

        They are computed from this batch only, without state. Source: Wang, Teng,
        Perdikaris, SIAM J. Sci. Comput. 43 (2021), eq. 40, without the moving average.
        """
        last = self._model.decoder.linears[-1].weight
        norms = {
            name: torch.autograd.grad(part, last, retain_graph=True)[0].norm()
            for name, part in parts.items()
        }
        mean = torch.stack(list(norms.values())).mean()
        return {name: (mean / norm.clamp_min(1e-12)).detach() for name, norm in norms.items()}

    def _boundary_loss(self, batch: Batch) -> Tensor:
        """Return the mean violation of the boundary conditions at projections of the points.

        Crops that do not reach a boundary are left out of its mean.
        """
        model = self._model
        grid: LatentGrid = model.encode(batch["low"], _nodes(batch))
        total: Tensor | None = None
        for channel, axis, condition in self.boundaries:
            points = batch["points"].clone()
            slope, shift = batch["reflection"][:, axis].unbind(-1)
            # The boundary in the coordinates of the crop, which may be mirrored (x -> slope x +
            # shift) and start at another origin.
            at = slope * condition.at + shift - batch["origin"][:, axis]
            points[..., axis] = at[:, None].to(points.dtype)
            inside = _reaches(_nodes(batch)[axis], at)
            index = tuple(int(i == axis) for i in range(points.shape[-1]))
            plan = taylor.make_plan(points.shape[-1], [index] if condition.order else [])
            values = model.query(grid, points, plan)[condition.order, ..., channel]
            # A mirror changes the sign of some fields, and that of a first derivative across the
            # boundary.
            sign = batch["signs"][:, channel] * (slope.float() if condition.order else 1.0)
            error = (values - condition.value * sign[:, None]) / model.std[channel]
            per_sample = (error.abs() if self.kind == "l1" else error.square()).mean(1)
            violation = (per_sample * inside).sum() / inside.sum().clamp_min(1.0)
            total = violation if total is None else total + violation
        assert total is not None
        return total / len(self.boundaries)


def require_smooth(activation: str, order: int) -> None:
    """Check that an activation has the derivatives that the equations require.

    Raises:
        ConfigError: it is unknown or not smooth enough.
    """
    if activation not in taylor.names():
        raise ConfigError(
            f"no derivatives are implemented for activation {activation!r}",
            where="model.decoder",
            allowed=", ".join(taylor.names()),
        )
    if taylor.smoothness(activation) < order:
        smooth = [n for n in taylor.names() if taylor.smoothness(n) >= order and n != "rsqrt"]
        raise ConfigError(
            f"activation {activation!r} has no derivative of order {order}: it is zero or "
            "undefined, so a loss of these equations would mean nothing",
            where="model.decoder.activation",
            allowed=", ".join(smooth),
            fix="model.decoder.activation=softplus",
        )


def _reaches(nodes: Tensor, at: Tensor) -> Tensor:
    """Return 1 for crops that reach a coordinate, to half a cell beyond their end nodes, else 0.

    Args:
        nodes: (B, n) coordinates of the low resolution.
        at: (B,) coordinates.
    """
    first = nodes[:, 0] - 0.5 * (nodes[:, 1] - nodes[:, 0])
    last = nodes[:, -1] + 0.5 * (nodes[:, -1] - nodes[:, -2])
    return ((at >= first) & (at <= last)).float()


def _nodes(batch: Batch) -> tuple[Tensor, ...]:
    count = sum(key.startswith("nodes_") for key in batch)
    return tuple(batch[f"nodes_{axis}"] for axis in range(count))
