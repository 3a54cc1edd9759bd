"""The fitting network of a Deep Potential for inference: energies and derivatives in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from scitoolkit.core.errors import DataError
from scitoolkit.ops.codegen import GeneratedC, Operation
from scitoolkit.ops.fitting_network import operators, reference
from scitoolkit.ops.fitting_network.reference import Layer
from scitoolkit.ops.fitting_network.spec import FittingSpec

OPERATION = Operation(
    "fitting_network",
    "energies of moments and their first derivatives, for inference",
    reference.network,
    0,
    "scitoolkit.ops.fitting_network.examples:examples",
)
GeneratedC.serve(OPERATION.name, prepare=operators.kernels)(operators.network)


def available(spec: FittingSpec, dtype: torch.dtype) -> bool:
    """Return whether the kernel can run here; log once why not."""
    return OPERATION.has_kernel(spec, dtype)


class FittingNetwork:
    """The parameters of one network, packed for the backend that runs it.

    Args:
        spec: widths.
        layers: weight (in, out), bias (out,) and step (out,) or None of each layer, the linear
            output last; the first layer's rows are those of D flattened, m slowest.
        backend: auto, or the name of a kernel backend.

    Raises:
        DataError: shapes that are not the spec's.
        BackendError: a backend is asked for that cannot run.

    Source: the shortcuts of deepmd-kit, as `environment_matrix.reference.embedding`.

    Example:
        >>> layers = [(torch.ones(2, 3), torch.zeros(3), None),
        ...           (torch.ones(3, 1), torch.zeros(1), None)]
        >>> network = FittingNetwork(FittingSpec(2, 1, (3,)), layers)
        >>> [part.shape for part in network(torch.zeros(5, 2, 4))]
        [torch.Size([5]), torch.Size([5, 2, 4])]
    """

    dtype: torch.dtype

    @torch.no_grad()
    def __init__(
        self, spec: FittingSpec, layers: Sequence[Layer], *, backend: str = "auto"
    ) -> None:
        first = layers[0][0]
        if first.shape != (spec.basis * spec.axis, spec.widths[0]):
            raise DataError(
                f"the first layer is {tuple(first.shape)}, expected "
                f"({spec.basis * spec.axis}, {spec.widths[0]})"
            )
        self.spec: FittingSpec = spec
        self.dtype = first.dtype
        self._run = OPERATION.choose(spec, first, backend)(spec, layers)

    def __call__(self, moments: Tensor) -> tuple[Tensor, Tensor]:
        """Return energies (n,) and their derivatives (n, basis, 4) in the moments (likewise).

        Raises:
            DataError: moments of another shape or dtype.
        """
        if moments.shape[1:] != (self.spec.basis, 4) or moments.dtype != self.dtype:
            raise DataError(
                f"moments are {tuple(moments.shape)} {moments.dtype}, expected "
                f"(n, {self.spec.basis}, 4) {self.dtype}"
            )
        return self._run(moments)
