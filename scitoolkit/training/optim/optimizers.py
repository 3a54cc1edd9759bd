"""Optimizers as config members, with capabilities as class attributes.

Torch is imported only in `build`, so that reading a configuration is fast.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from scitoolkit.core.plugins import Choice, Kind
from scitoolkit.training.requirements import TrainingPart

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    Parameters = Iterable[nn.Parameter] | Iterable[dict[str, Any]]

FUSED_FROM = 200_000  # parameters


class OptimizerConfig(TrainingPart):
    """Base class of optimizers.

    Attributes:
        uses_closure: whether a step evaluates the loss more than once.
        uses_residuals: whether a step evaluates the residuals of a `core.contracts.ResidualTask`.
        shardable: whether it works on shards of parameters, as strategy `sharded` requires.
        elementwise: whether the update of a number depends only on its gradient and state, as
            pruning requires.
        grouped: whether it supports parameter groups.
        precisions: supported values of `training.precision`.
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
        """Return the optimizer of `parameters`, or of groups of them in torch's form.

        All of its state must be in `state` (by parameter) and in `param_groups`, as tensors and
        JSON types; nothing else is restored from a checkpoint.
        """
        raise NotImplementedError


optimizers: Kind[type[OptimizerConfig]] = Kind(
    "optimizer",
    "updates the parameters",
    contract="scitoolkit.testing:OptimizerContract",
)
AnyOptimizer = Annotated[OptimizerConfig, Choice(optimizers)]


def _worth_fusing(parameters: list[Any]) -> bool:
    """Return whether the fused kernel is faster: many plain parameters on the CPU.

    With a million parameters in float64 a step takes 2 ms instead of 13.
    """
    groups = [p["params"] if isinstance(p, dict) else [p] for p in parameters]
    parameters = [p for group in groups for p in group]
    plain = all(p.device.type == "cpu" and not hasattr(p, "full_tensor") for p in parameters)
    return plain and sum(p.numel() for p in parameters) >= FUSED_FROM


class AdamSettings(OptimizerConfig):
    """Base class of Adam variants."""

    shardable: ClassVar[bool] = True
    elementwise: ClassVar[bool] = True
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    epsilon: PositiveFloat = 1e-8
    weight_decay: float = Field(default=0.0, ge=0)

    def arguments(self) -> dict[str, Any]:
        """Return the settings as keyword arguments of torch."""
        return {
            "lr": self.lr,
            "betas": (self.beta1, self.beta2),
            "eps": self.epsilon,
            "weight_decay": self.weight_decay,
        }


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
    """Adam; `weight_decay` is added to the gradient (L2 regularisation)."""

    name: Literal["adam"] = "adam"

    def build(self, parameters: Parameters) -> Optimizer:
        """Return the torch optimizer over `parameters`."""
        import torch

        to_optimize: list[Any] = list(parameters)
        fused = True if _worth_fusing(to_optimize) else None
        return torch.optim.Adam(to_optimize, fused=fused, **self.arguments())


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

    `lr` is the rate of Adam; matrices use `matrix_ratio` times it.
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
    """LAMB: Adam with layer-wise trust ratios, for large batches.

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
    """LARS: momentum with layer-wise trust ratios, for large batches."""

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
    """Jorge: Shampoo preconditioning by matrix products; see `jorge.JorgeDescent`."""

    name: Literal["jorge"] = "jorge"
    lr: PositiveFloat = 3e-2
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    every: PositiveInt = Field(default=1, description="steps between updates of the roots")
    largest: PositiveInt = Field(default=2048, description="longer sides are not preconditioned")
    floor: float = Field(default=0.0, ge=0, lt=1, description="least weight of the old average")

    def build(self, parameters: Parameters) -> Optimizer:
        """Return the optimizer over `parameters`."""
        from scitoolkit.training.optim.jorge import JorgeDescent

        return JorgeDescent(parameters, **self.model_dump(exclude={"name"}))


class GaussNewton(OptimizerConfig):
    """Damped Gauss-Newton for small models and tasks with `residual`.

    It minimises the mean over samples of the squared residuals. `lr` is not used.
    """

    uses_residuals: ClassVar[bool] = True
    grouped: ClassVar[bool] = False
    precisions: ClassVar[tuple[str, ...]] = ("float32",)
    name: Literal["gauss_newton"] = "gauss_newton"
    lr: PositiveFloat = Field(default=1.0, le=1.0, ge=1.0, description="not used")
    damping: PositiveFloat = Field(default=1.0, description="first damping over max diag(J'J)")
    trials: PositiveInt = Field(default=8, description="dampings tried per step")
    inner: PositiveInt = Field(
        default=100, description="conjugate-gradient steps, beyond 3000 residuals and parameters"
    )

    def excludes(self) -> dict[str, str]:
        """Return the keys of `training:` that a least-squares step does not read."""
        own = "it chooses its step length itself"
        return {"schedule": own, "clip_norm": own, "memory": "it computes J of the residuals"}

    def build(self, parameters: Parameters) -> Optimizer:
        """Return the optimizer over `parameters`."""
        from scitoolkit.core.processes import world_size
        from scitoolkit.training.optim import gauss_newton

        weights: list[Any] = list(parameters)
        return gauss_newton.GaussNewtonDescent(
            weights,
            damping=self.damping,
            trials=self.trials,
            inner=self.inner,
            several_ranks=world_size() > 1,
        )


class LBFGS(OptimizerConfig):
    """Limited-memory BFGS, for small models and full batches."""

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
