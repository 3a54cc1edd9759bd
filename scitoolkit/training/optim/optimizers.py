"""Optimizers as config members: capabilities as class attributes, `build(parameters)` makes one.

Torch is imported in `build`, so that reading a configuration stays fast.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from scitoolkit.core.config import Config
from scitoolkit.core.plugins import Choice, Kind

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    Parameters = Iterable[nn.Parameter] | Iterable[dict[str, Any]]

FUSED_FROM = 200_000  # parameters


class OptimizerConfig(Config):
    """Base of the optimizers.

    Attributes:
        uses_closure: a step evaluates the loss more than once.
        uses_residuals: a step evaluates the residuals of a `core.contracts.ResidualTask`.
        shardable: works on a part of each parameter, as the strategy `sharded` holds it.
        elementwise: changes each number by its own gradient alone, as pruned training needs it.
        grouped: takes parameters in groups of different settings.
        precisions: values of `training.precision` that it works with.
        lr: learning rate before the schedule.
    """

    uses_closure: ClassVar[bool] = False
    uses_residuals: ClassVar[bool] = False
    shardable: ClassVar[bool] = False
    elementwise: ClassVar[bool] = False
    grouped: ClassVar[bool] = True
    precisions: ClassVar[tuple[str, ...]] = ("float32", "bf16", "fp16")
    name: str
    lr: PositiveFloat = Field(default=1e-3, description="learning rate before the schedule")

    def build(self, parameters: Parameters) -> Optimizer:
        """Return the optimizer over `parameters`, or over groups of them in torch's form.

        All of its state must be in `state` (by parameter) and in `param_groups`, as numbers, JSON
        types and tensors: that is what a checkpoint restores.
        """
        raise NotImplementedError


optimizers: Kind[type[OptimizerConfig]] = Kind(
    "optimizer",
    "updates the parameters",
    contract="scitoolkit.testing:OptimizerContract",
)
AnyOptimizer = Annotated[OptimizerConfig, Choice(optimizers)]


def _worth_fusing(parameters: list[Any]) -> bool:
    """Return whether one pass over memory saves time: many plain parameters on the CPU.

    A million in float64 take 2 ms a step instead of 13.
    """
    groups = [p["params"] if isinstance(p, dict) else [p] for p in parameters]
    parameters = [p for group in groups for p in group]
    plain = all(p.device.type == "cpu" and not hasattr(p, "full_tensor") for p in parameters)
    return plain and sum(p.numel() for p in parameters) >= FUSED_FROM


class AdamSettings(OptimizerConfig):
    """Base of Adam with coupled and with decoupled weight decay."""

    shardable: ClassVar[bool] = True
    elementwise: ClassVar[bool] = True
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    epsilon: PositiveFloat = 1e-8
    weight_decay: float = Field(default=0.0, ge=0)

    def arguments(self) -> dict[str, Any]:
        """Return the settings by torch's names."""
        return {
            "lr": self.lr, "betas": (self.beta1, self.beta2), "eps": self.epsilon,
            "weight_decay": self.weight_decay,
        }  # fmt: skip


class AdamW(AdamSettings):
    """Adam with decoupled weight decay.

    Example:
        >>> from torch import nn
        >>> optimizer = AdamW(lr=0.01).build(nn.Linear(2, 1).parameters())
        >>> optimizer.param_groups[0]["lr"]
        0.01
    """

    name: Literal["adamw"] = "adamw"
    weight_decay: float = Field(default=0.01, ge=0)

    def build(self, parameters: Parameters) -> Optimizer:
        """Return the torch optimizer over `parameters`."""
        import torch

        return torch.optim.AdamW(parameters, **self.arguments())


class Adam(AdamSettings):
    """Adam; `weight_decay` is an L2 term of the gradient."""

    name: Literal["adam"] = "adam"

    def build(self, parameters: Parameters) -> Optimizer:
        """Return the torch optimizer over `parameters`."""
        import torch

        given: list[Any] = list(parameters)
        fused = True if _worth_fusing(given) else None
        return torch.optim.Adam(given, fused=fused, **self.arguments())


class SGD(OptimizerConfig):
    """Stochastic gradient descent with momentum."""

    shardable: ClassVar[bool] = True
    elementwise: ClassVar[bool] = True
    name: Literal["sgd"] = "sgd"
    lr: PositiveFloat = 1e-2
    momentum: float = Field(default=0.9, ge=0, lt=1)
    nesterov: bool = False
    weight_decay: float = Field(default=0.0, ge=0)

    def build(self, parameters: Parameters) -> Optimizer:
        """Return the torch optimizer over `parameters`."""
        import torch

        return torch.optim.SGD(
            parameters,
            lr=self.lr,
            momentum=self.momentum,
            nesterov=self.nesterov and self.momentum > 0,
            weight_decay=self.weight_decay,
        )


class Muon(OptimizerConfig):
    """Muon for matrices and convolutions, Adam for the rest; see `muon.MuonAdam`.

    `lr` is Adam's; a matrix moves `matrix_ratio` times as fast.
    """

    name: Literal["muon"] = "muon"
    matrix_ratio: PositiveFloat = 10.0
    momentum: float = Field(default=0.95, ge=0, lt=1)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.99, ge=0, lt=1)
    weight_decay: float = Field(default=0.01, ge=0)

    def build(self, parameters: Parameters) -> Optimizer:
        """Return the optimizer over `parameters`."""
        from scitoolkit.training.optim.muon import MuonAdam

        return MuonAdam(
            parameters,
            lr=self.lr,
            matrix_ratio=self.matrix_ratio,
            momentum=self.momentum,
            betas=(self.beta1, self.beta2),
            weight_decay=self.weight_decay,
        )


class LAMB(AdamSettings):
    """Adam with each tensor's step scaled to its weights' norm, for large batches.

    Example:
        >>> from torch import nn
        >>> optimizer = LAMB().build(nn.Linear(2, 1).parameters())
        >>> optimizer.param_groups[0]["lr"]
        0.01
    """

    elementwise: ClassVar[bool] = False
    name: Literal["lamb"] = "lamb"
    lr: PositiveFloat = 1e-2
    epsilon: PositiveFloat = 1e-6
    weight_decay: float = Field(default=0.01, ge=0)

    def build(self, parameters: Parameters) -> Optimizer:
        """Return the optimizer over `parameters`."""
        from scitoolkit.training.optim.layerwise import Lamb

        return Lamb(parameters, **self.arguments())


class LARS(OptimizerConfig):
    """Momentum with each tensor's gradient scaled to its weights' norm, for large batches."""

    shardable: ClassVar[bool] = True
    name: Literal["lars"] = "lars"
    lr: PositiveFloat = 1.0
    trust: PositiveFloat = 0.01
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)

    def build(self, parameters: Parameters) -> Optimizer:
        """Return the optimizer over `parameters`."""
        from scitoolkit.training.optim.layerwise import Lars

        return Lars(
            parameters,
            lr=self.lr,
            trust=self.trust,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )


class Jorge(OptimizerConfig):
    """Shampoo's preconditioning by products of matrices; see `jorge.JorgeDescent`."""

    name: Literal["jorge"] = "jorge"
    lr: PositiveFloat = 3e-2
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    every: PositiveInt = Field(default=1, description="steps between updates of the roots")
    largest: PositiveInt = Field(default=2048, description="longer sides are not preconditioned")
    floor: float = Field(default=0.0, ge=0, lt=1, description="least share of the old average")

    def build(self, parameters: Parameters) -> Optimizer:
        """Return the optimizer over `parameters`."""
        from scitoolkit.training.optim.jorge import JorgeDescent

        return JorgeDescent(parameters, **self.model_dump(exclude={"name"}))


class GaussNewton(OptimizerConfig):
    """Damped Gauss-Newton for tasks with `residual`: small models, losses of squares.

    It minimises the mean over samples of the squared residuals. `lr` is not used.
    """

    uses_residuals: ClassVar[bool] = True
    grouped: ClassVar[bool] = False
    precisions: ClassVar[tuple[str, ...]] = ("float32",)
    name: Literal["gauss_newton"] = "gauss_newton"
    lr: PositiveFloat = Field(default=1.0, le=1.0, ge=1.0, description="the damping sets steps")
    damping: PositiveFloat = Field(default=1e-3, description="first damping over max diag(J'J)")
    trials: PositiveInt = Field(default=8, description="dampings tried in a step")
    inner: PositiveInt = Field(
        default=100, description="conjugate-gradient steps, beyond 3000 residuals and parameters"
    )

    def build(self, parameters: Parameters) -> Optimizer:
        """Return the optimizer over `parameters`."""
        from scitoolkit.core.processes import world_size
        from scitoolkit.training.optim import gauss_newton

        weights: list[Any] = list(parameters)
        return gauss_newton.GaussNewton(
            weights,
            damping=self.damping,
            trials=self.trials,
            inner=self.inner,
            several_ranks=world_size() > 1,
        )


class LBFGS(OptimizerConfig):
    """Limited-memory BFGS, for small models and whole-set batches."""

    uses_closure: ClassVar[bool] = True
    grouped: ClassVar[bool] = False
    precisions: ClassVar[tuple[str, ...]] = ("float32", "bf16")
    name: Literal["lbfgs"] = "lbfgs"
    lr: PositiveFloat = 1.0
    max_iterations: PositiveInt = 20
    history: PositiveInt = 10
    line_search: bool = True

    def build(self, parameters: Parameters) -> Optimizer:
        """Return the torch optimizer over `parameters`."""
        import torch

        return torch.optim.LBFGS(
            parameters,
            lr=self.lr,
            max_iter=self.max_iterations,
            history_size=self.history,
            line_search_fn="strong_wolfe" if self.line_search else None,
        )
