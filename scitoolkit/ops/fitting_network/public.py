"""Fitting network of a Deep Potential for inference: energies and derivatives in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from scitoolkit.core.errors import DataError
from scitoolkit.ops.codegen import GeneratedC, Operation, Triton
from scitoolkit.ops.fitting_network import operators, reference
from scitoolkit.ops.fitting_network.reference import Layer
from scitoolkit.ops.fitting_network.spec import FittingSpec

OPERATION = Operation(
    "fitting_network",
    "atomic energies and their derivatives with respect to the moments, for inference",
    reference.network,
    0,
    "scitoolkit.ops.fitting_network.examples:examples",
)
GeneratedC.serve(OPERATION.name, prepare=operators.kernels, source=operators.source)(
    operators.network
)
Triton.serve(OPERATION.name)(operators.network_by_products)


def available(spec: FittingSpec, like: Tensor) -> bool:
    """Return whether the kernel can run; if not, log the reason once."""
    return OPERATION.has_kernel(spec, like)


class FittingNetwork:
    """A fitting network with its parameters packed for the backend that evaluates it.

    Args:
        spec: widths.
        layers: weight (in, out), bias (out,) and step (out,) or None of each layer, the linear
            output last, all of one dtype (float32 or float64). The rows of the first weight are
            the entries of the flattened descriptor D[m, a], with m as the slower index.
        backend: auto, or the name of a kernel backend.

    Raises:
        DataError: shapes that differ from the spec, or parameters of different dtypes.
        BackendError: the named backend cannot run.

    Source: shortcuts as in deepmd-kit, see `environment_matrix.reference.embedding`.

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
        _check(spec, layers)
        first = layers[0][0]
        self.spec: FittingSpec = spec
        self.dtype = first.dtype
        self._run = OPERATION.choose(spec, first, backend)(spec, layers)

    def __call__(self, moments: Tensor) -> tuple[Tensor, Tensor]:
        """Return atomic energies and their derivatives with respect to the moments.

        Args:
            moments: shape (n, basis, 4), of the dtype of the parameters.

        Returns:
            Energies, shape (n,), and derivatives, shape (n, basis, 4).

        Raises:
            DataError: moments of another shape or dtype.
        """
        if moments.shape[1:] != (self.spec.basis, 4) or moments.dtype != self.dtype:
            raise DataError(
                f"moments are {tuple(moments.shape)} {moments.dtype}, expected "
                f"(n, {self.spec.basis}, 4) {self.dtype}"
            )
        return self._run(moments)


def _check(spec: FittingSpec, layers: Sequence[Layer]) -> None:
    """Check the shapes and dtypes of all parameters: C reads them as one flat array."""
    sizes = (spec.basis * spec.axis, *spec.widths, 1)
    if len(layers) != len(sizes) - 1:
        raise DataError(f"{len(layers)} layers, expected {len(sizes) - 1} with the linear output")
    for number, (layer, *shape) in enumerate(zip(layers, sizes, sizes[1:], strict=False)):
        where = "the first layer" if number == 0 else f"layer {number + 1}"
        weight, bias, step = layer
        if tuple(weight.shape) != tuple(shape):
            raise DataError(f"{where} is {tuple(weight.shape)}, expected {tuple(shape)}")
        for name, vector in (("bias", bias), ("step", step)):
            if vector is not None and tuple(vector.shape) != (shape[1],):
                actual = tuple(vector.shape)
                raise DataError(f"the {name} of {where} is {actual}, expected ({shape[1]},)")
        dtypes = {values.dtype for values in layer if values is not None} | {layers[0][0].dtype}
        if len(dtypes) > 1:
            raise DataError(f"parameters of {' and '.join(sorted(map(str, dtypes)))} in {where}")
