"""Test-time augmentation: averages of predictions over reflections of the input.

A model trained on mirrored crops is only approximately symmetric. The mean of its predictions for
all reflections of the input, mirrored back, is exactly symmetric and has a smaller error, as the
errors of the reflections differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scitoolkit.ops import taylor
from scitoolkit.ops.taylor import MultiIndex, Operator
from scitoolkit.superresolution.model import LatentGrid, MeshfreeFlowNet


@dataclass(frozen=True)
class Reflection:
    """One combination of mirrors.

    Attributes:
        axes: indices of the reversed dims.
        signs: one per field, -1 for fields that change sign.
    """

    axes: tuple[int, ...]
    signs: tuple[float, ...]


def reflections(
    mirrors: Mapping[str, Sequence[str]], dims: Sequence[str], fields: Sequence[str]
) -> list[Reflection]:
    """Return the reflections for all combinations of mirrors; the first is the identity.

    Args:
        mirrors: {dim: fields that change sign when the dim is reversed}.
        dims: in the order of the axes.
        fields: in the order of the channels.

    Example:
        >>> [i.axes for i in reflections({"z": ["w"], "x": ["u"]}, ["t", "z", "x"], ["u", "w"])]
        [(), (2,), (1,), (1, 2)]
        >>> reflections({"z": ["w"]}, ["z"], ["u", "w"])[1].signs
        (1.0, -1.0)
    """
    images = []
    for chosen in itertools.product((False, True), repeat=len(mirrors)):
        reversed_dims = [d for d, c in zip(mirrors, chosen, strict=True) if c]
        signs = [1.0] * len(fields)
        for dim in reversed_dims:
            for name in mirrors[dim]:
                signs[fields.index(name)] *= -1
        axes = tuple(sorted(dims.index(d) for d in reversed_dims))
        images.append(Reflection(axes, tuple(signs)))
    return images


class EncodedMirrors:
    """Encoded low-resolution fields and their reflections; queries average over them.

    Args:
        model: the network.
        low: (B, fields, n...), physical units.
        nodes: (B, n) coordinates of each dim.
        chosen: from `reflections`.
        encode: from mirrored fields and nodes to latent grids; `model.encode` unless given.
    """

    def __init__(
        self,
        model: MeshfreeFlowNet,
        low: Tensor,
        nodes: Sequence[Tensor],
        chosen: Sequence[Reflection],
        encode: Callable[[Tensor, Sequence[Tensor]], LatentGrid] | None = None,
    ) -> None:
        self.model = model
        encode = encode or model.encode
        self.parts: list[tuple[Reflection, LatentGrid, dict[int, Tensor]]] = []
        for image in chosen:
            values, places = low, list(nodes)
            sums: dict[int, Tensor] = {}
            for axis in image.axes:
                values = values.flip(axis + 2)
                if model.periods[axis] is not None:  # node 0 stays: the nodes are even
                    values = values.roll(1, axis + 2)
                    sums[axis] = 2 * places[axis][:, :1]
                else:
                    sums[axis] = _ends(model, places[axis], axis)
                    places[axis] = (sums[axis] - places[axis]).flip(1)
            signs = low.new_tensor(image.signs).view(1, -1, *[1] * len(nodes))
            self.parts.append((image, encode(values * signs, places), sums))

    def query(self, points: Tensor, plan: taylor.Plan | None = None) -> Tensor:
        """Return `MeshfreeFlowNet.query` averaged over reflections, (streams, B, N, fields)."""
        plan = plan or self.model.value_plan
        total: Tensor | None = None
        for image, grid, sums in self.parts:
            moved = points.clone()
            for axis, ends in sums.items():
                moved[..., axis] = ends - points[..., axis]
            turned = list(_turned(plan, image.axes))
            own = taylor.make_plan(plan.dims, [op for op, _ in turned])
            values = self.model.query(grid, moved, own)
            signs = values.new_tensor([sign for _, sign in turned]).view(-1, 1, 1, 1)
            part = values[[own.index(op) for op, _ in turned]]
            part = part * signs * values.new_tensor(image.signs)
            total = part if total is None else total + part
        assert total is not None
        return total / len(self.parts)


def _ends(model: MeshfreeFlowNet, nodes: Tensor, axis: int) -> Tensor:
    """Return the sum of the two ends that a mirror exchanges, (B, 1).

    A walled dim is mirrored about the middle of the domain, others about the middle of the nodes.
    """
    extent = model.extents[axis]
    if extent is not None:
        return torch.full_like(nodes[:, :1], sum(extent))
    return nodes[:, :1] + nodes[:, -1:]


def _turned(plan: taylor.Plan, axes: Sequence[int]) -> Iterator[tuple[Operator, float]]:
    """Yield, for every stream, the operator in mirrored coordinates and its sign.

    The sign is that of the first term, so that a single derivative keeps its operator.
    """

    def parity(index: MultiIndex) -> float:
        return (-1.0) ** sum(index[axis] for axis in axes)

    for op in plan.operators:
        sign = parity(op[0][0])
        yield tuple((index, c * parity(index) * sign) for index, c in op), sign
