"""Rules for matrix products, batch normalisation, attention and dropout on distributed rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from scitoolkit.graphs.local_rows import LocalRows, Rule, Unsupported, arguments
from scitoolkit.graphs.tags import flat, put_tag, tag_of
from scitoolkit.ops.node_dropout import node_dropout
from scitoolkit.training.ranks.collectives import SumOverRanks

_SELU_LIMIT = 1.7580993408473766  # minus the value of SELU at -infinity
_OF_DROPOUT = ("input", "p", "training")
_ATTENTION: dict[str, list[str]] = {
    name: names.split()
    for name, names in (
        ("scaled_dot_product_attention", "query key value attn_mask dropout_p is_causal"),
        (
            "multi_head_attention_forward",
            """query key value embed_dim_to_check num_heads in_proj_weight in_proj_bias bias_k
            bias_v add_zero_attn dropout_p out_proj_weight out_proj_bias""",
        ),
    )
}


def _matmul(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    # Which rank holds what of a product A B, by the dimension of A and of B that is distributed:
    #
    # A rows                    local rows of the result; B is the same on all ranks
    # A columns and B rows      the contraction runs over the ranks: partial products are added
    # B rows or A columns only  the other factor has all rows: the distributed one is gathered
    # A rows and B columns      all pairs of nodes: the columns are gathered, the rows stay
    # B columns                 local columns of the result
    a, b = args[:2]
    if name == "__rmatmul__":
        return _matmul(local, torch.matmul, "matmul", (b, a), {})
    left, right = tag_of(a), tag_of(b)
    inner = max(0, b.dim() - 2)
    if right is not None and right.dim == inner:
        if left is not None and left.dim == a.dim() - 1:
            local.need_all(right)
            return SumOverRanks.apply(func(a, b), local.ranks)
        b = local.whole(b)
    elif right is not None and right.dim == b.dim() - 1 and left is not None:
        b = local.whole(b)
    elif left is not None and left.dim == a.dim() - 1:
        a, left = local.whole(a), None
    out = func(a, b)
    if left is not None:
        return put_tag(out, replace(left, role=None))
    right = tag_of(b)
    return put_tag(out, right and replace(right, dim=out.dim() - 1, role=None))


def _addmm(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    rest = {k: v for k, v in kwargs.items() if k not in ("beta", "alpha")}
    if len(args) != 3 or rest:
        return local.passed(func, name, args, kwargs)
    # By its parts: where the product is summed over ranks, a fused call would add `beta * input`
    # once a rank.
    product = _matmul(local, torch.matmul, "matmul", args[1:], {})
    total = kwargs.get("beta", 1) * args[0] + kwargs.get("alpha", 1) * product
    return put_tag(total, tag_of(product))


def _einsum(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    operands = list(flat(args[1:]))
    inputs, result = _letters(args[0], [operand.dim() for operand in operands])
    letters = {
        letter[tag.dim]: tag
        for letter, operand in zip(inputs, operands, strict=True)
        if (tag := tag_of(operand)) is not None
    }
    if len(letters) > 1:
        raise Unsupported("einsum of two distributed dimensions")
    out = func(*args, **kwargs)
    for letter, tag in letters.items():
        if letter not in result:
            local.need_all(tag)
            return SumOverRanks.apply(out, local.ranks)
        put_tag(out, replace(tag, dim=result.index(letter), role=None))
    return out


def _letters(equation: str, dims: list[int]) -> tuple[list[str], str]:
    """Return a letter for each dimension of the operands and of the result of an einsum.

    Example:
        >>> _letters("...b, ba", [2, 2]), _letters("ij->", [2])
        ((['0b', 'ba'], '0a'), (['ij'], ''))
    """
    inputs, arrow, result = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    # Dimensions of `...` are counted from the right, as in broadcasting; digits stand for them.
    widths = [dim - len(term.replace("...", "")) for dim, term in zip(dims, terms, strict=True)]
    rest = "".join(map(str, reversed(range(max(widths))))) if "..." in inputs else ""
    terms = [
        term.replace("...", rest[len(rest) - width :])
        for term, width in zip(terms, widths, strict=True)
    ]
    if arrow:
        return terms, result.replace("...", rest)
    # Without an arrow: the letters that occur once, in alphabetical order (as NumPy's einsum).
    once = sorted(c for c in set(inputs) if c.isalpha() and inputs.count(c) == 1)
    return terms, rest + "".join(once)


def _batch_norm(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    names = "input running_mean running_var weight bias training momentum eps".split()
    x, mean, var, weight, bias, training, momentum, eps = arguments(names, args, kwargs)
    tag = tag_of(x)
    if tag is not None and tag.dim == 1 and local.ranks.size > 1:
        # Each node is a channel, whose mean and variance are over local numbers only; parameters
        # are of all nodes.
        if any(values is not None for values in (mean, var, weight, bias)):
            raise Unsupported("batch_norm with weights or averages for each node")
        return local.passed(func, name, args, kwargs)
    if tag is None or not training or local.ranks.size == 1:
        return local.passed(func, name, args, kwargs)
    # Ioffe and Szegedy (2015), with mean and variance over the rows of all ranks. The output
    # divides by the biased variance, the running average holds the unbiased one, as in torch.
    dims = tuple(d for d in range(x.dim()) if d != 1)
    count = local.numbers(x, tag, dims)
    center = SumOverRanks.apply(x.sum(dims, keepdim=True), local.ranks) / count
    spread = SumOverRanks.apply((x - center).square().sum(dims, keepdim=True), local.ranks) / count
    if mean is not None:
        with torch.no_grad():
            mean.lerp_(center.view(-1).to(mean.dtype), momentum)
            var.lerp_((spread * (count / max(1, count - 1))).view(-1).to(var.dtype), momentum)
    out = (x - center) / (spread + eps).sqrt()
    shape = [-1 if d == 1 else 1 for d in range(x.dim())]
    out = out if weight is None else out * weight.view(shape)
    out = out if bias is None else out + bias.view(shape)
    return put_tag(out, tag)


def _attention(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Attention over all nodes: local queries, keys and values of all ranks."""
    if local.ranks.size == 1 and local.seed is not None:
        return local.passed(func, name, args, kwargs)
    named = dict(zip(_ATTENTION[name], args, strict=False)) | kwargs
    tag = tag_of(named["query"])
    _no_dropout(local, named)
    # Each query is a row of the result and stays; its softmax runs over the keys of all nodes.
    for key in ("key", "value", "key_padding_mask"):
        if tag_of(named.get(key)) is not None:
            named[key] = local.whole(named[key])
    if tag is not None and named.get("attn_mask") is not None:
        # A mask has a row for each query and a column for each key: which of both is local is not
        # in its tag.
        raise Unsupported("attention over all nodes with a mask")
    out = func(**named)
    if tag is None:
        return out
    if isinstance(out, tuple):
        # Weights have a dimension of queries before that of keys; queries one of batches after it.
        if (weights := out[1]) is not None:
            put_tag(weights, replace(tag, dim=weights.dim() - 2 if tag.dim == 0 else 0, role=None))
        return put_tag(out[0], tag), weights
    return put_tag(out, tag)


def _no_dropout(local: LocalRows, named: dict[str, Any]) -> None:
    active = named.get("training", True) and named.get("dropout_p", 0.0) > 0
    if active and local.ranks.size > 1:
        raise Unsupported("dropout of the weights of attention over all nodes")
    if local.seed is None:
        named["dropout_p"] = 0.0


def _written(rule: Rule) -> Rule:
    """Return a rule that also writes its result into the input if the call has `inplace=True`."""

    def written(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        inplace = len(args) > 3 and args[3]
        if not (kwargs.get("inplace", inplace) or name.endswith("_")):
            return rule(local, func, name, args, kwargs)
        x = args[0] if args else kwargs["input"]
        tag = tag_of(x)
        return put_tag(x.copy_(rule(local, func, name, args, kwargs)), tag)

    return written


def _dropout(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    defaults = {"p": 0.5, "training": True}
    x, p, training = arguments(_OF_DROPOUT, args, kwargs, defaults, train="training")
    if not training or p == 0.0:
        return local.tagged(x.view_as(x), name, (x,), {})
    tag = tag_of(x)
    rows = x if tag is None else x.movedim(tag.dim, 0)
    every = torch.arange(len(rows) if x.dim() else 1, device=x.device)
    ids = every if tag is None else tag.ids
    if ids is None:
        if local.ranks.size > 1:
            raise Unsupported("dropout of rows that are neither nodes nor edges")
        ids = every
    if local.seed is None:
        return local.tagged(x.view_as(x), name, (x,), {})
    # The mask of a row follows from its number, not from its place: any partition drops the same.
    out = node_dropout(rows.reshape(len(ids), -1), ids, p, local.next_seed()).view(rows.shape)
    return out if tag is None else put_tag(out.movedim(0, tag.dim), tag)


def _structured_dropout(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Dropout of channels (`dropout1d`), and that of self-normalising networks."""
    defaults = {"p": 0.5, "training": name == "dropout1d"}
    x, p, training = arguments(_OF_DROPOUT, args, kwargs, defaults, train="training")
    tag = tag_of(x)
    if not training or p == 0.0 or local.seed is None:
        return local.tagged(x.view_as(x), name, (x,), {})
    if tag is None or tag.dim or tag.ids is None or (name == "dropout1d" and x.dim() < 3):
        if tag is None or local.ranks.size == 1:
            return local.passed(func, name, args, kwargs)
        raise Unsupported(f"{name} of rows that are neither nodes nor edges")
    # One number for each row and channel, from the dropout of ones; that of a channel is repeated.
    ones = x.new_ones(x.shape[:2] if name == "dropout1d" else x.shape)
    mask = _dropout(local, func, "dropout", (put_tag(ones, tag), p), {})
    if name == "dropout1d":
        return put_tag(x * mask.unsqueeze(-1), tag)
    # Dropped numbers are the lower limit of SELU; the result keeps mean 0 and variance 1.
    scale = 1.0 / math.sqrt((_SELU_LIMIT**2 * p + 1) * (1 - p))
    out = torch.where(mask > 0, x, -_SELU_LIMIT) * scale + _SELU_LIMIT * scale * p
    return put_tag(out, tag)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv"), _matmul),
    "addmm": _addmm,
    "einsum": _einsum,
    "batch_norm": _batch_norm,
    **dict.fromkeys(_ATTENTION, _attention),
    **dict.fromkeys(("dropout", "dropout_"), _written(_dropout)),
    **dict.fromkeys(("dropout1d", "alpha_dropout"), _written(_structured_dropout)),
}
