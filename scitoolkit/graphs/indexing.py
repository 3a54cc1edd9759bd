"""Propagation of tags through indexing, and the dimensions read by reductions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from scitoolkit.graphs.tags import EITHER, DistributedCount, Tag, tag_of


def as_index(tag: Tag, out: Tensor) -> Tag:
    """Return the tag for a result: the role is kept only if it can be an index."""
    if out.is_floating_point() or out.dtype == torch.bool:
        return replace(tag, role=None)
    return tag


def indexed_dims(parts: tuple[Any, ...], x: Tensor) -> Iterator[tuple[Any, int]]:
    """Yield pairs of a part of an index and the dimension of x that it indexes."""
    dim = 0
    for number, part in enumerate(parts):
        if part is None:
            continue
        if part is Ellipsis:
            dim = x.dim() - sum(_width(p) for p in parts[number + 1 :])
            continue
        yield part, dim
        dim += _width(part)


def _width(part: Any) -> int:
    """Return the number of dimensions of x that a part of an index consumes."""
    if part is None or part is Ellipsis:
        return 0
    return part.dim() if isinstance(part, Tensor) and part.dtype == torch.bool else 1


def tag_of_selection(x: Tensor, parts: tuple[Any, ...], out: Tensor) -> Tag | None:
    """Return the tag of x[parts]."""
    tag = tag_of(x)
    role = tag.role if tag is not None else None
    tag_of_result: Tag | None = None
    parts = tuple(torch.as_tensor(part) if isinstance(part, list) else part for part in parts)
    place = seen = 0  # dimensions of the result and of x so far
    tensors = False
    for number, part in enumerate(parts):
        width, here = _width(part), None
        if part is Ellipsis:
            width = x.dim() - seen - sum(_width(p) for p in parts[number + 1 :])
        if tag is not None and seen <= tag.dim < seen + width:
            here = tag
        if isinstance(part, Tensor):
            tag_of_result = tag_of_result or _selected(part, here, place, out)
            if isinstance(role, tuple) and not seen and part.dtype != torch.bool and part.dim():
                role = tuple(role[k] for k in part.tolist())  # rows of an edge_index
            # Index tensors are broadcast with each other: together they make one block of
            # dimensions, which the first of them creates.
            place += 0 if tensors else 1 if part.dtype == torch.bool else part.dim()
            tensors = True
        elif part is Ellipsis:
            tag_of_result = tag_of_result or (here and replace(here, dim=place + here.dim - seen))
            place += width
        elif isinstance(part, slice):
            if here is not None and tag_of_result is None:
                ids = here.ids[part] if here.ids is not None else None
                section = here.is_section or _is_section(part, x.size(here.dim))
                tag_of_result = replace(here, dim=place, ids=ids, is_section=section)
            place += 1
        elif part is None:
            place += 1
        elif isinstance(role, tuple) and seen == 0:
            role = role[part]
        seen += width
    if tag_of_result is None and tag is not None and tag.dim >= seen:
        tag_of_result = replace(tag, dim=place + tag.dim - seen)
    if tag_of_result is None or not 0 <= tag_of_result.dim < out.dim():
        return None
    return as_index(replace(tag_of_result, role=EITHER if _is_no_pair(role, out) else role), out)


def _is_no_pair(role: Any, out: Tensor) -> bool:
    return isinstance(role, tuple) and out.dim() != 2


def _is_section(part: slice, size: int) -> bool:
    """Return whether a slice ends at a constant; `[1:]` and `[:-1]` compare neighbours."""
    bounds = [b for b in (part.start, part.stop) if not isinstance(b, DistributedCount)]
    return any(b is not None and b != size and abs(int(b)) > 1 for b in bounds)


def _selected(part: Tensor, here: Tag | None, place: int, out: Tensor) -> Tag | None:
    """Return the tag of rows selected by a mask or an index."""
    rows = tag_of(part)
    if part.dtype != torch.bool:
        return rows and replace(rows, dim=place + rows.dim, role=None, is_place=False)
    rows = rows or here
    if rows is None:
        return None
    ids = rows.ids
    if ids is not None and part.dim() == 1:
        ids = ids[part]
    elif out.size(place) != part.numel():
        ids = None
    return Tag(place, ids, is_section=rows.is_section)


def reduced_dims(name: str, x: Tensor, args: Any, kwargs: Any) -> tuple[tuple[int, ...], bool]:
    """Return the dimensions of a reduction, and whether it keeps them."""
    rest = list(args[1:])
    # Their second argument is the order of the norm, q or k, not a dimension.
    if name in ("norm", "linalg_vector_norm", "linalg_norm", "quantile", "kthvalue") and rest:
        rest.pop(0)
    dim = kwargs.get("dim")
    if dim is None and rest and not isinstance(rest[0], bool):
        dim = rest.pop(0)
    bools = [a for a in rest if isinstance(a, bool)]
    if name in ("var", "std", "var_mean", "std_mean"):
        bools = bools[1:]  # the first is `unbiased`
    keep = kwargs.get("keepdim", bools[-1] if bools and dim is not None else False)
    if dim is None or dim == () or isinstance(dim, str):
        return tuple(range(x.dim())), keep
    return tuple(d % max(1, x.dim()) for d in ((dim,) if isinstance(dim, int) else dim)), keep
