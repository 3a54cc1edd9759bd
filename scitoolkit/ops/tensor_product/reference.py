"""Reference tensor product and convolution in plain torch: readable, differentiable, slow.

Tests compare every backend with it. Rows are in the ir_mul layout. Letters: E edges (rows),
u, v, w channels of in1, in2, out; i, j, k components.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scitoolkit.ops.tensor_product.spec import IrrepSlice, Path, TensorProductSpec, wigner_3j

EQUATIONS = {
    "uvu": "eiu,ejv,ijk,{e}uv->eku",
    "uvw": "eiu,ejv,ijk,{e}uvw->ekw",
    "uuu": "eiu,eju,ijk,{e}u->eku",
}


@torch.compiler.assume_constant_result
def _couplings(l1: int, l2: int, l3: int) -> list:
    return wigner_3j(l1, l2, l3).tolist()  # a list, as torch.compile has no array constants


def _view(row: Tensor, segment: IrrepSlice) -> Tensor:
    size = segment.mul * segment.components
    part = row[:, segment.offset : segment.offset + size]
    return part.reshape(row.shape[0], segment.components, segment.mul)


def _weights(spec: TensorProductSpec, path: Path, weight: Tensor) -> Tensor:
    a, b, c = spec.in1[path.in1], spec.in2[path.in2], spec.out[path.out]
    shape = {"uvu": (a.mul, b.mul), "uvw": (a.mul, b.mul, c.mul), "uuu": (a.mul,)}[path.mode]
    if not path.has_weight:
        return weight.new_ones(shape if spec.shared_weights else (1, *shape))
    part = weight.narrow(-1, path.weight_offset, spec.num_weights(path))
    return part.reshape(shape if spec.shared_weights else (-1, *shape))


def tensor_product(spec: TensorProductSpec, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Return the tensor product of each row, shape (E, dim_out).

    Args:
        spec: the tensor product.
        x: features, shape (E, dim_in1).
        y: attributes, shape (E, dim_in2).
        weight: shape (E, weight_numel), or (weight_numel,) when shared.
    """
    rows = x.shape[0]
    parts = [x.new_zeros(rows, segment.components, segment.mul) for segment in spec.out]
    for path in spec.paths:
        degrees = spec.in1[path.in1].degree, spec.in2[path.in2].degree, spec.out[path.out].degree
        couplings = torch.tensor(_couplings(*degrees), dtype=torch.float64, device=x.device)
        constants = (couplings * path.scale).to(x.dtype)
        weights = _weights(spec, path, weight)
        if not spec.shared_weights:
            weights = weights.expand(rows, *weights.shape[1:])
        equation = EQUATIONS[path.mode].format(e="" if spec.shared_weights else "e")
        left, right = _view(x, spec.in1[path.in1]), _view(y, spec.in2[path.in2])
        parts[path.out] = parts[path.out] + torch.einsum(equation, left, right, constants, weights)
    return torch.cat([part.flatten(1) for part in parts], dim=1)


def tensor_product_convolution(
    spec: TensorProductSpec,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    sender: Tensor,
    receiver: Tensor,
    num_nodes: int,
) -> Tensor:
    """Return the sum of tensor products over each node's incoming edges.

    Args:
        spec: the tensor product.
        x: node features, shape (num_nodes, dim_in1).
        y: edge attributes, shape (E, dim_in2).
        weight: shape (E, weight_numel), or (weight_numel,) if shared.
        sender, receiver: node of each edge, shape (E,), int64.
        num_nodes: number of nodes.

    Returns:
        Shape (num_nodes, dim_out).
    """
    message = tensor_product(spec, x[sender], y, weight)
    return x.new_zeros(num_nodes, spec.dim_out).index_add(0, receiver, message)
