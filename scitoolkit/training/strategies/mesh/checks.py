"""Checks that a model computes the same on a mesh as in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from scitoolkit.core.errors import ConfigError
from scitoolkit.training.deferred import tied

WHERE = "training.mesh"


class ComparedCall:
    """The divided network as a function; its first call is compared with the whole network.

    A declaration may be wrong without an error: the rows of one fused matrix of queries, keys and
    values are not those of one process's heads, for example.

    Args:
        computed: the divided network.
        reference: returns the whole network of one process; called once, by all ranks together.
        groups: ranks by the name of their axis that hold parts of one network.
    """

    def __init__(
        self,
        computed: Callable[..., Tensor],
        reference: Callable[[], nn.Module],
        groups: Mapping[str, dist.ProcessGroup],
    ) -> None:
        self._computed, self._groups = computed, dict(groups)
        self._reference: Callable[[], nn.Module] | None = reference

    def __call__(self, *arguments: Any) -> Tensor:
        """Return the output of the divided network.

        Raises:
            ConfigError: it is not that of the whole network, or ranks have other samples.
        """
        if self._reference is not None:
            self._check_inputs(arguments)
        out = self._computed(*arguments)
        if self._reference is not None:
            whole = self._reference()
            with torch.no_grad():
                expected = whole(*arguments)
            error = float((out.detach() - expected).abs().max() / expected.abs().max())
            allowed = torch.finfo(out.dtype).eps ** 0.5
            # A loss that is not finite has its own message.
            if bool(expected.isfinite().all()) and not error <= allowed and expected.any():
                raise ConfigError(
                    f"{type(whole).__name__} computes other outputs when it is divided, "
                    f"by {error:.1g} of their largest",
                    where=WHERE,
                    fix="training.strategy=ddp, or correct its `division()` and `stages()`",
                )
            self._reference = None
        return out

    def _check_inputs(self, arguments: Sequence[Any]) -> None:
        tensors = [a.detach().double() for a in arguments if isinstance(a, Tensor)]
        sums = [number for t in tensors for number in (t.sum(), t.square().sum())]
        digest = torch.stack([n.nan_to_num() for n in sums])
        for axis, group in self._groups.items():
            bounds = torch.stack([digest, -digest])
            dist.all_reduce(bounds, dist.ReduceOp.MAX, group=group)
            if not torch.equal(bounds[0], -bounds[1]):
                raise ConfigError(
                    f"other samples on the ranks of axis {axis}, which hold parts of one network",
                    where=WHERE,
                    allowed="loaders that read the share of `training.share_of_batch()`",
                )


def check_supported(model: nn.Module) -> None:
    """Check that a model computes the same on a mesh.

    Raises:
        ConfigError: two names share a parameter, samples are mixed, or random numbers are drawn in
            layers of which each rank computes a part.
    """
    if pair := tied(model):
        raise ConfigError(
            f"parameters {pair[0]} and {pair[1]} are tied",
            where=WHERE,
            fix="training.strategy=ddp",
        )
    for name, module in model.named_modules():
        what = ""
        if isinstance(module, _BatchNorm):
            what = "mixes the samples of a batch"
        elif isinstance(module, _DropoutNd) and module.p > 0:
            what = "draws random numbers, other ones for each part of the network"
        if what:
            raise ConfigError(
                f"{name or 'the model'} ({type(module).__name__}) {what}",
                where=WHERE,
                fix="training.strategy=ddp",
            )
