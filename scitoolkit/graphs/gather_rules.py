"""Rules for gathers and scatters of distributed rows, with halo exchange."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scitoolkit.graphs.indexing import indexed_dims, tag_of_selection
from scitoolkit.graphs.local_rows import LocalRows, Rule, Unsupported, arguments
from scitoolkit.graphs.tags import TARGET, Tag, put_tag, role_of, tag_of
from scitoolkit.training.ranks.collectives import ReturnHalo, SumOverRanks


def _gather(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    x, dim, index = arguments(("self", "dim", "index"), args, kwargs, input="self")
    dim = dim % x.dim()
    # Indices of sources count own rows first and rows of the halo after them, which is the order in
    # which `extended` appends what it receives.
    whole = local.extended(x, dim) if local.needs_halo(x, dim, index) else x
    out = func(whole, dim, index)
    tag, rows = tag_of(x), tag_of(index)
    if rows is not None:
        place = dim if name == "index_select" else rows.dim
        # Gathering from indices by indices gives indices: edge_index[0][mask] still holds sources.
        role = tag.role if tag is not None and rows.role is None else None
        return put_tag(out, Tag(place, rows.ids, role, rows.is_section))
    return local.tagged(out, name, (x,), {})


def _getitem(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    x, index = args
    parts = index if isinstance(index, tuple) else (index,)
    whole, dim = x, 0
    # At most one dimension is distributed, so that the first index that reaches the halo decides.
    for part, dim in indexed_dims(parts, x):
        if isinstance(part, Tensor) and local.needs_halo(x, dim, part):
            whole = local.extended(x, dim)
            break
    out = func(whole, index)
    if isinstance(out, Tensor):
        tag = tag_of_selection(x, parts, out)
        put_tag(out, tag)
    return out


def _scatter(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    x, dim, index, source = arguments(
        ("self", "dim", "index", "src"), args, kwargs, input="self", source="src", value="src"
    )
    dim = dim % x.dim()
    reduce = kwargs.get("reduce", args[4] if len(args) > 4 else "sum" if "add" in name else None)
    total, alpha = reduce in ("sum", "add"), kwargs.get("alpha", 1)
    role = role_of(index)
    if local.needs_halo(x, dim, index):
        if not total:
            return _onto_sources(local, func, name, (x, dim, index, source), args, kwargs)
        # Sums onto sources: a rank has edges whose source is another's. Each rank sums into own and
        # halo rows; the halo's part returns to its owner. This is the transpose of the exchange of
        # a gather, so that each is the exact derivative of the other.
        size = list(x.shape)
        size[dim] += local.part.halo.rows_received
        wide = _add(name, x.new_zeros(size), dim, index, source, alpha).movedim(dim, 0)
        sums = ReturnHalo.apply(wide, local.ranks, local.part.halo, local.num_own)
        sums = sums.movedim(0, dim)
        out = x.add_(sums) if name.endswith("_") else x + sums
        return put_tag(out, Tag(dim, local.part.nodes))
    # An edge lies with its target, so that nothing is missing from the sums of own rows.
    if role == TARGET and x.size(dim) == local.num_own:
        return put_tag(func(*args, **kwargs), Tag(dim, local.part.nodes))
    rows = tag_of(source) if tag_of(index) is None else tag_of(index)
    # A result without distributed rows, such as one row a graph, has contributions of all ranks.
    if tag_of(x) is None and role is None and rows is not None:
        place = min(dim, index.dim() - 1)
        if tag_of(index) is None and index.size(place) == source.size(dim):
            put_tag(index, Tag(place, rows.ids))
        return _pooled(local, func, name, (x, dim, index, source), args, kwargs, total=total)
    return local.passed(func, name, args, kwargs)


def _onto_sources(
    local: LocalRows, func: Any, name: str, call: Any, args: Any, kwargs: Any
) -> Tensor:
    """Reduce the edges of all ranks by source, on every rank, where partial results do not add."""
    x, dim, index, source = call
    if tag_of(index) is None or tag_of(source) is None or tag_of(x) is None:
        raise Unsupported(f"{name} onto the sources of edges")
    # Local places of sources mean nothing on other ranks: node numbers of the whole graph replace
    # them before they are gathered.
    numbers = local.extended(local.part.nodes, 0)[index]
    index = local.whole(put_tag(numbers, tag_of(index)), by_number=False)
    source = local.whole(source, by_number=False)
    # Maxima and products of parts do not combine with the value that `x` starts from, which would
    # count once a rank: the whole is computed once, in the order of a single process.
    rows = func(local.whole(x), dim, index, source, *args[4:], **_further(kwargs))
    out = local.own_rows(rows, Tag(dim, local.part.nodes))
    return x.copy_(out) if name.endswith("_") else out


def _further(kwargs: Any) -> dict[str, Any]:
    """Return the arguments of a scatter besides its tensors and dimension."""
    tensors = ("dim", "index", "src", "source", "value", "input")
    return {k: v for k, v in kwargs.items() if k not in tensors}


def _pooled(
    local: LocalRows, func: Any, name: str, call: Any, args: Any, kwargs: Any, *, total: bool
) -> Tensor:
    """Scatter the rows of all ranks into a replicated tensor."""
    x, dim, index, source = call
    local.need_all(tag_of(index))
    local.need_all(tag_of(source))
    if total:
        part = _add(name, torch.zeros_like(x), dim, index, source, kwargs.get("alpha", 1))
        # Zeros, not `x`, take the part: `x` is the same on every rank and must be added once.
        sums = SumOverRanks.apply(part, local.ranks)
        return x.add_(sums) if name.endswith("_") else x + sums
    index = local.whole(index)
    source = local.whole(source) if tag_of(source) is not None else source
    return func(x, dim, index, source, *args[4:], **_further(kwargs))


def _add(name: str, x: Tensor, dim: int, index: Tensor, source: Any, alpha: Any) -> Tensor:
    if not isinstance(source, Tensor):
        source = torch.full_like(index, source, dtype=x.dtype)
    if "index" in name:
        return x.index_add(dim, index, source, alpha=alpha)
    return x.scatter_add(dim, index, source)


RULES: dict[str, Rule] = {
    "index_select": _gather,
    "gather": _gather,
    "__getitem__": _getitem,
    **dict.fromkeys(
        """scatter_add_ scatter_add index_add_ index_add scatter_reduce_ scatter_reduce scatter_
        scatter index_reduce_""".split(),
        _scatter,
    ),
}
