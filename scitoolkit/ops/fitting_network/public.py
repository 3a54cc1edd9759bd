"""The fitting network of a Deep Potential for inference: energies and derivatives in one pass."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from scitoolkit.core.errors import BackendError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.ops.codegen import REAL, call, load_library
from scitoolkit.ops.fitting_network import cpu

Layer = tuple[Tensor, Tensor, Tensor | None]
log = get_logger(__name__)


@dataclass(frozen=True)
class FittingSpec:
    """Widths of a network on the descriptor D[m, a] = sum_c T[m, c] T[a, c].

    Attributes:
        basis: m of the moments T. axis: a, the first ones of them.
        widths: of the hidden tanh layers; one linear output follows.

    Example:
        >>> FittingSpec(100, 16, (240, 240, 240)).inputs
        1480
    """

    basis: int
    axis: int
    widths: tuple[int, ...]

    @property
    def inputs(self) -> int:
        """Number of different entries of the descriptor."""
        return self.basis * self.axis - self.axis * (self.axis - 1) // 2


@functools.lru_cache(maxsize=64)
def _kernels(spec: FittingSpec, dtype: torch.dtype) -> ctypes.CDLL:
    library = load_library(cpu.generate(spec, REAL[dtype]))
    for name in ("rows_of_a_panel", "depth_of_a_panel", "packed_size"):
        getattr(library, name).restype = ctypes.c_int64
    return library


@functools.lru_cache(maxsize=64)
def available(spec: FittingSpec, dtype: torch.dtype) -> bool:
    """Return whether the kernel can run here; says once why not."""
    # A first layer as wide as the whole descriptor has a shortcut past the folded inputs.
    if dtype not in REAL or cpu.shortcut(spec.basis * spec.axis, spec.widths[0]) != cpu.NONE:
        return False
    try:
        _kernels(spec, dtype)
    except BackendError as error:
        log.warning("%s; the slower torch reference is used", error)
        return False
    return True


class FittingNetwork:
    """The packed parameters of one network.

    Args:
        spec: widths.
        layers: weight (in, out), bias (out,) and step (out,) or None of each layer, the linear
            output last; the first layer's rows are those of D flattened, m slowest.

    Raises:
        DataError: shapes that are not the spec's.

    Source: the shortcuts of deepmd-kit, as `environment_matrix.reference.embedding`.

    Example:
        >>> layers = [(torch.ones(2, 3), torch.zeros(3), None),
        ...           (torch.ones(3, 1), torch.zeros(1), None)]
        >>> network = FittingNetwork(FittingSpec(2, 1, (3,)), layers)
        >>> [part.shape for part in network(torch.zeros(5, 2, 4))]
        [torch.Size([5]), torch.Size([5, 2, 4])]
    """

    @torch.no_grad()
    def __init__(self, spec: FittingSpec, layers: Sequence[Layer]) -> None:
        self.spec, (first, _, _) = spec, layers[0]
        if first.shape != (spec.basis * spec.axis, spec.widths[0]):
            raise DataError(
                f"the first layer is {tuple(first.shape)}, expected "
                f"({spec.basis * spec.axis}, {spec.widths[0]})"
            )
        self._library = _kernels(spec, first.dtype)
        panel, parts = (self._library.rows_of_a_panel(), self._library.depth_of_a_panel()), []
        for number, (weight, bias, step) in enumerate(layers[:-1]):
            weight = weight if number else _folded(spec, weight)
            scale = torch.ones_like(bias) if step is None else step
            parts += [_panels(weight.T, *panel), bias, scale]
        output, offset, _ = layers[-1]
        widest = max(spec.widths)
        parts += [pad(output.flatten(), (0, widest - len(output))), offset.flatten()]
        self._packed = torch.cat([part.flatten() for part in parts])
        assert len(self._packed) == self._library.packed_size()

    def __call__(self, moments: Tensor) -> tuple[Tensor, Tensor]:
        """Return energies (n,) and their derivatives (n, basis, 4) in the moments (likewise).

        Raises:
            DataError: moments of another shape or dtype.
        """
        if moments.shape[1:] != (self.spec.basis, 4) or moments.dtype != self._packed.dtype:
            raise DataError(
                f"moments are {tuple(moments.shape)} {moments.dtype}, expected "
                f"(n, {self.spec.basis}, 4) {self._packed.dtype}"
            )
        energy, cotangent = moments.new_empty(len(moments)), torch.empty_like(moments)
        call(
            self._library.fitting, len(moments), moments.contiguous(), self._packed, energy,
            cotangent, torch.get_num_threads(),
        )  # fmt: skip
        return energy, cotangent


def _folded(spec: FittingSpec, weight: Tensor) -> Tensor:
    """Return the weights of the different entries of D, those with a <= m, a slowest."""
    square = weight.view(spec.basis, spec.axis, -1)
    rows = []
    for a in range(spec.axis):
        rows.append(square[a:, a].clone())
        rows[-1][1 : spec.axis - a] += square[a, a + 1 :]
    return torch.cat(rows)


def _panels(weight: Tensor, rows: int, depth: int) -> Tensor:
    """Return weights (out, in) as panels [in / depth][out / rows][depth][rows], zeros added."""
    out, fan_in = weight.shape
    padded = pad(weight, (0, -fan_in % rows, 0, -out % rows)).unflatten(0, (-1, rows))
    return torch.cat([part.transpose(1, 2).flatten() for part in padded.split(depth, dim=2)])
