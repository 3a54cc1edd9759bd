"""Operators written with others, which have lowerings; used when a module is traced."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
FROM_TORCH = (
    *("grid_sampler_2d", "_softmax", "_log_softmax", "addcmul", "lerp", "mish", "hardswish"),
    *("hardsigmoid", "upsample_bicubic2d"),
    *(f"{name}_backward" for name in ("elu", "hardtanh", "leaky_relu", "softplus", "mish")),
    *(f"{name}_backward" for name in ("hardswish", "hardsigmoid", "gelu", "threshold")),
)
"""Operators that are written with others by torch."""


def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return batch normalisation in evaluation mode; torch's own decomposition is not functional.

    The second and third result, statistics for a backward pass, are empty.
    """
    scale = torch.rsqrt(variance + eps)
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    shape = (1, -1, *[1] * (x.ndim - 2))
    empty = x.new_zeros(0)
    return x * scale.view(shape) + shift.view(shape), empty, empty


def own_statistics(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return batch normalisation by the statistics of x, of which an instance norm consists."""
    dims = [0, *range(2, x.ndim)]
    variance, mean = torch.var_mean(x, dims, correction=0)
    return batch_norm(x, weight, bias, mean, variance, momentum, eps)


def repeat(x: Tensor, repeats: Sequence[int]) -> Tensor:
    """Return copies of x along each dim."""
    x = x.reshape(*[1] * (len(repeats) - x.ndim), *x.shape)
    for dim, count in enumerate(repeats):
        x = torch.cat([x] * count, dim) if count != 1 else x
    return x


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return the diagonal of two dims as the last dim."""
    x = x.movedim((dim1, dim2), (-2, -1))
    x = x[..., max(-offset, 0) :, max(offset, 0) :]
    size = min(x.shape[-2:])
    x = x[..., :size, :size]
    return x.reshape(*x.shape[:-2], size * size)[..., :: size + 1]


def unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """Return windows along a dim; their places are the last dim."""
    starts = range(0, x.shape[dim] - size + 1, step)
    windows = [x.narrow(dim, start, size).movedim(dim, -1) for start in starts]
    return torch.stack(windows, dim % x.ndim)


def vector_norm(
    x: Tensor,
    order: float = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """Return the norm over dims."""
    x = (x if dtype is None else x.to(dtype)).abs()
    dims = list(range(x.ndim)) if dim is None or dim == [] else dim
    if order == math.inf:
        return x.amax(dims, keepdim)
    if order == -math.inf:
        return x.amin(dims, keepdim)
    if order == 0:
        return (x != 0).to(x.dtype).sum(dims, keepdim)
    if order == 1:
        return x.sum(dims, keepdim)
    if order == 2:
        return (x * x).sum(dims, keepdim).sqrt()
    return (x**order).sum(dims, keepdim) ** (1 / order)


def distances(x: Tensor, y: Tensor, order: float, mode: int | None = None) -> Tensor:
    """Return the distances of all pairs of rows."""
    change = x.unsqueeze(-2) - y.unsqueeze(-3)
    return torch.linalg.vector_norm(change, order, dim=-1)


def trilinear(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_c: Sequence[int],
    sums: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """Return the sum of the product of three tensors over dims, with new dims in each of them."""
    parts = []
    for tensor, dims in ((a, expand_a), (b, expand_b), (c, expand_c)):
        for dim in sorted(dims):
            tensor = tensor.unsqueeze(dim)
        parts.append(tensor)
    product = parts[0] * parts[1] * parts[2]
    return product.sum(list(sums)) if sums else product


def adaptive_mean(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the means over windows that divide each of the last dims."""
    return _adaptive(x, sizes, lambda part, dim: part.mean(dim, keepdim=True))


def adaptive_max(x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the maxima over windows that divide each of the last dims; no indices."""
    made = _adaptive(x, sizes, lambda part, dim: part.amax(dim, keepdim=True))
    return made, torch.full_like(made, -1, dtype=torch.int64)


def _adaptive(x: Tensor, sizes: Sequence[int], reduced: Callable[[Tensor, int], Tensor]) -> Tensor:
    for dim, size in enumerate(sizes, x.ndim - len(sizes)):
        count = x.shape[dim]
        ends = [(i * count // size, -(-(i + 1) * count // size)) for i in range(size)]
        x = torch.cat([reduced(x.narrow(dim, a, b - a), dim) for a, b in ends], dim)
    return x


def topk(
    x: Tensor, count: int, dim: int = -1, largest: bool = True, ordered: bool = True
) -> tuple[Tensor, Tensor]:
    """Return the first entries of the sorted values."""
    values, places = torch.sort(x, dim=dim, descending=largest)
    return values.narrow(dim, 0, count), places.narrow(dim, 0, count)


def kth_value(x: Tensor, place: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return an entry of the sorted values."""
    entries = [t.narrow(dim, place - 1, 1) for t in torch.sort(x, dim=dim)]
    values, places = entries if keepdim else [t.squeeze(dim) for t in entries]
    return values, places


def median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the lower median; NaN if one value is NaN, which is sorted last."""
    values, places = torch.sort(x, dim=dim)
    middle, last = (x.shape[dim] - 1) // 2, x.shape[dim] - 1
    wrong = values.narrow(dim, last, 1).isnan()
    made = [
        torch.where(wrong, t.narrow(dim, last, 1), t.narrow(dim, middle, 1))
        for t in (values, places)
    ]
    first, second = made if keepdim else [t.squeeze(dim) for t in made]
    return first, second


def bucketize(x: Tensor, limits: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Return the number of limits below each value, or not above it."""
    value = x.unsqueeze(-1)
    above = value < limits if right else value <= limits
    return (
        (~above)
        .to(torch.int32 if out_int32 else torch.int64)
        .sum(-1)
        .to(torch.int32 if out_int32 else torch.int64)
    )


def convolution_backward(
    change: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the change of the input of a convolution: a convolution transposed the other way."""
    if wanted[1] or wanted[2] or not wanted[0]:
        raise NotImplementedError("derivatives by weights")
    more = [0] * len(stride)
    if not transposed:  # cells at the end that no window reached
        sizes = zip(x.shape[2:], change.shape[2:], weight.shape[2:], strict=True)
        options = zip(stride, padding, dilation, strict=True)
        more = [
            n - ((count - 1) * step - 2 * pad + gap * (width - 1) + 1)
            for (n, count, width), (step, pad, gap) in zip(sizes, options, strict=True)
        ]
    own = (change, weight, None, stride, padding, dilation, not transposed, more, groups)
    return aten.convolution.default(*own), None, None


def strided(x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int = 0) -> Tensor:
    """Return x in another shape, where these strides are those of its memory in order."""
    in_order = [math.prod(size[k + 1 :]) for k in range(len(size))]
    steps = zip(size, stride, in_order, strict=True)
    if not x.is_contiguous() or offset or math.prod(size) != x.numel():
        raise NotImplementedError("as_strided of other memory")
    if any(n > 1 and own != wanted for n, own, wanted in steps):
        raise NotImplementedError(f"as_strided with strides {tuple(stride)}")
    return x.reshape(size)


def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Return means at indices, or reductions without the elements of x at which others meet."""
    if x.dtype != source.dtype or not x.is_floating_point() or (include_self and reduce != "mean"):
        return NotImplemented
    neutral = {"prod": 1.0, "amax": -math.inf, "amin": math.inf}.get(reduce, 0.0)
    counts = torch.zeros_like(x).scatter_add(dim, index, torch.ones_like(source))
    x = x if include_self else torch.where(counts > 0, neutral, x)
    if reduce == "mean":
        return x.scatter_add(dim, index, source) / (counts + include_self).clamp(min=1)
    return x.scatter_reduce(dim, index, source, reduce)


def zeros_as(like: Tensor, other: Tensor, *, self_num_batch_dims: int = 0) -> Tensor:
    """Return the zeros that a tangent of a changed tensor starts from."""
    return like.new_zeros(other.shape)


def rrelu(
    x: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> tuple[Tensor, Tensor]:
    """Return a randomised ReLU in evaluation mode, whose slope is the mean of its limits."""
    if training:
        return NotImplemented
    return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise


TABLE: Mapping[Any, Callable[..., Any]] = {
    aten._native_batch_norm_legit_no_training.default: batch_norm,
    aten._native_batch_norm_legit.no_stats: own_statistics,
    aten.repeat.default: repeat,
    aten.diagonal.default: diagonal,
    aten.unfold.default: unfold,
    aten.linalg_vector_norm.default: vector_norm,
    aten._cdist_forward.default: distances,
    aten._trilinear.default: trilinear,
    aten._adaptive_avg_pool2d.default: adaptive_mean,
    aten._adaptive_avg_pool3d.default: adaptive_mean,
    aten.adaptive_max_pool2d.default: adaptive_max,
    aten.adaptive_max_pool3d.default: adaptive_max,
    aten.topk.default: topk,
    aten.kthvalue.default: kth_value,
    aten.median.dim: median,
    aten.bucketize.Tensor: bucketize,
    aten.convolution_backward.default: convolution_backward,
    aten.as_strided.default: strided,
    aten.scatter_reduce.two: scatter_reduce,
    aten.rrelu_with_noise_functional.default: rrelu,
    aten._new_zeros_with_same_feature_meta.default: zeros_as,
}
"""Operators that are written with others here."""


def decompositions(left: tuple[str, ...]) -> dict[Any, Any]:
    """Return the operators to take apart, without those whose names start as in `left`."""
    return dict(_table(left))  # a copy, which torch changes


@functools.cache
def _table(left: tuple[str, ...]) -> dict[Any, Any]:
    # Collecting torch's operators takes longer than the trace of a small module.
    table = dict(torch.export.default_decompositions())
    for op in list(table):
        name = op.name().removeprefix("aten::").partition(".")[0]
        if name.startswith(left) and not name.endswith("_backward"):
            table.pop(op)
    packets = [getattr(aten, name) for name in FROM_TORCH if hasattr(aten, name)]
    table.update(torch._decomp.get_decompositions(packets))
    table.update(TABLE)
    return table
