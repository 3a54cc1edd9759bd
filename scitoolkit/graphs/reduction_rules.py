"""Rules for reductions over distributed rows, which reduce over the rows of all ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from scitoolkit.graphs.indexing import reduced_dims
from scitoolkit.graphs.local_rows import LocalRows, Rule, Unsupported, arguments
from scitoolkit.graphs.shape_rules import divide
from scitoolkit.graphs.tags import TARGET, DistributedCount, Tag, flat, put_tag, tag_of
from scitoolkit.training.ranks.collectives import GatherRows, SumOverRanks, gather_counts


def _reduce(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    x = args[0] if args else kwargs.get("input")
    tag = tag_of(x)
    # `max(a, b)` compares two tensors; the second argument of the others, such as the fractions of
    # `quantile`, is not of rows.
    of_two = name in ("max", "min") and ("other" in kwargs or isinstance(args[-1], Tensor))
    if tag is None or (of_two and len(args) + len(kwargs) > 1):
        return divide(local, func, name, args, kwargs)
    if tag.role is not None and name in ("max", "amax") and len(args) == 1 and not kwargs:
        # `edge_index.max() + 1` is how layers count nodes. Local indices reach into the halo, whose
        # rows the layer must not allocate.
        if local.ranks.size > 1:
            local.note_plain_count("the largest number in edge_index")
        return x.new_tensor(local.num_own - 1)
    dims, keep = reduced_dims(name, x, args, kwargs)
    if tag.dim not in dims:
        out = func(*args, **kwargs)
        moved = tag.dim - (0 if keep else sum(d < tag.dim for d in dims))
        for part in out if isinstance(out, tuple) else (out,):
            put_tag(part, replace(tag, dim=moved, role=None))
        return out
    if local.ranks.size == 1:
        return func(*args, **kwargs)
    local.need_all(tag)
    if tag.role is not None:
        local.note_plain_count(f"{name} of numbers of nodes")
    # A mean is a sum over all ranks by a count over all ranks: means of ranks with unequal numbers
    # of rows do not average to it.
    if name == "sum" or (name == "mean" and x.is_floating_point()):
        sums = SumOverRanks.apply(
            torch.sum(x, dims, keepdim=keep, dtype=kwargs.get("dtype")), local.ranks
        )
        return sums if name == "sum" else sums / local.numbers(x, tag, dims)
    if name in ("var", "std"):
        return _deviation(local, name, x, tag, dims, keep, args, kwargs)
    if (
        name in ("any", "all", "max", "min", "amax", "amin")
        and not x.requires_grad
        and len(dims) == x.dim()
    ):
        # A number without a gradient, such as the bound of a loop: one number a rank is exchanged,
        # not all rows.
        return _agreed(local, func, x)
    # Medians, norms, quantiles and the like are no sums of parts: all rows on every rank.
    return func(local.whole(x), *args[1:], **{k: v for k, v in kwargs.items() if k != "input"})


def _deviation(
    local: LocalRows, name: str, x: Tensor, tag: Tag, dims: Any, keep: bool, args: Any, kwargs: Any
) -> Tensor:
    bools = [a for a in args[1:] if isinstance(a, bool)]
    correction = kwargs.get("correction", kwargs.get("unbiased", bools[0] if bools else 1))
    count = local.numbers(x, tag, dims)
    # Two passes, since the sum of squares minus the square of the sum cancels in float32.
    mean = SumOverRanks.apply(x.sum(dims, keepdim=True), local.ranks) / count
    squares = SumOverRanks.apply((x - mean).square().sum(dims, keepdim=keep), local.ranks)
    variance = squares / max(0, count - int(correction))
    return variance.sqrt() if name == "std" else variance


def _agreed(local: LocalRows, func: Any, x: Tensor) -> Tensor:
    """Reduce local elements, then the results of all ranks that have elements."""
    # A rank may have no rows, and nothing has no maximum; all ranks must take part all the same.
    counts = gather_counts(local.ranks, x.numel())
    own = func(x).view(1) if x.numel() else x.new_zeros(1)
    flags = own.dtype == torch.bool
    ones = GatherRows.apply(own.to(torch.uint8) if flags else own, local.ranks, (1,) * len(counts))
    ones = ones[[n > 0 for n in counts]]
    return func(ones.bool() if flags else ones)


def _along(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Softmax and similar: along the rows of all ranks if the dimension is distributed."""
    x = args[0] if args else kwargs["input"]
    tag = tag_of(x)
    # Cumulative sums of integers are offsets into local rows.
    if tag is None or not x.is_floating_point():
        return local.passed(func, name, args, kwargs)
    default = {"normalize": 1, "instance_norm": x.dim() - 1}.get(name)
    place = 2 if name == "normalize" else 1
    dim = kwargs.get(
        "dim", args[place] if len(args) > place and name != "instance_norm" else default
    )
    # instance_norm reads (batch, channel, rows...): it mixes rows only if these are its last
    # dimensions.
    along = tag.dim >= 2 if name == "instance_norm" else dim is None or dim % x.dim() == tag.dim
    if not along:
        return local.passed(func, name, args, kwargs)
    kwargs = {k: v for k, v in kwargs.items() if k != "input"}
    # Exact but not divided: every rank computes all rows and keeps its own, as their order matters.
    return local.own_rows(func(local.whole(x), *args[1:], **kwargs), tag)


def _gathered(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Call a function on the rows of all ranks; the result is the same on each."""
    tags = [tag for a in flat((args, tuple(kwargs.values()))) if (tag := tag_of(a)) is not None]
    # Counts of local node indices are rows of local nodes.
    if local.ranks.size == 1 or not tags or any(tag.role is not None for tag in tags):
        out = local.passed(func, name, args, kwargs)
        if name == "bincount" and tags and tags[0].role == TARGET:
            if len(out) == local.num_own:
                return put_tag(out, Tag(0, local.part.nodes))
            local.note_plain_count("bincount without minlength")
        return out

    def whole(a: Any) -> Any:
        a = a.total if isinstance(a, DistributedCount) else a
        return local.whole(a) if tag_of(a) is not None else a

    return func(*map(whole, args), **{key: whole(value) for key, value in kwargs.items()})


_LAST_DIM = {"kthvalue": 2, "mode": 1, "topk": 2}  # by default; position of the argument `dim`


def _gathered_along(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Gather all rows, unless the function acts along another dimension."""
    x = args[0] if args else kwargs.get("input")
    tag = tag_of(x)
    if name in _LAST_DIM and tag is not None:
        place = _LAST_DIM[name]
        dim = kwargs.get("dim", args[place] if len(args) > place else -1)
        if dim % x.dim() != tag.dim:
            out = func(*args, **kwargs)
            for part in out:
                put_tag(part, replace(tag, role=None) if part.dim() == x.dim() else None)
            return local.tagged(out, name, args, kwargs) if out[0].dim() != x.dim() else out
    return _gathered(local, func, name, args, kwargs)


def _layer_norm(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    x, shape, weight, bias, eps = arguments(
        ("input", "normalized_shape", "weight", "bias", "eps"), args, kwargs, {"eps": 1e-5}
    )
    tag, normalised = tag_of(x), (shape,) if isinstance(shape, int) else tuple(shape)
    if tag is None or local.ranks.size == 1 or tag.dim < x.dim() - len(normalised):
        return local.passed(func, name, args, kwargs)
    if weight is not None or bias is not None:
        raise Unsupported("layer_norm with weights for each node")
    # `normalized_shape` names the number of local rows; that of all rows replaces it.
    rows = local.whole(x)
    return local.own_rows(func(rows, rows.shape[-len(normalised) :], eps=eps), tag)


RULES: dict[str, Rule] = {
    "layer_norm": _layer_norm,
    **dict.fromkeys(
        """aminmax bincount corrcoef cov histc kthvalue mode tensordot topk""".split(),
        _gathered_along,
    ),
    **dict.fromkeys(
        """sum mean std var norm linalg_norm linalg_vector_norm amax amin max min prod median
        any all logsumexp argmax argmin nanmean nansum quantile std_mean var_mean
        count_nonzero""".split(),
        _reduce,
    ),
    **dict.fromkeys(
        """softmax log_softmax softmin cumsum cumprod normalize instance_norm
        logcumsumexp""".split(),
        _along,
    ),
}
