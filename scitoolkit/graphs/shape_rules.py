"""Rules for sizes of distributed dimensions, and for cat, stack, flip and unbind."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from scitoolkit.graphs.gathered_functions import on_all_rows
from scitoolkit.graphs.indexing import as_index
from scitoolkit.graphs.local_rows import LocalRows, Rule, Unsupported
from scitoolkit.graphs.tags import (
    EITHER,
    DistributedCount,
    RowCount,
    Tag,
    TotalCount,
    flat,
    put_tag,
    tag_of,
)


def _size(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    out, tag = func(*args, **kwargs), tag_of(args[0])
    if tag is None:
        return out
    x = args[0]
    if not isinstance(out, torch.Size) and args[1] % x.dim() != tag.dim:
        return out
    size = RowCount.of(x.size(tag.dim), _total(local, x, tag))
    size.tag = tag
    rows = TotalCount.of(size, local.note_plain_count)
    if isinstance(out, torch.Size):
        return torch.Size([rows if d == tag.dim else n for d, n in enumerate(out)])
    return rows


def _total(local: LocalRows, x: Any, tag: Tag) -> int:
    """Return the number of rows on all ranks, or on this one of a section."""
    if tag.is_section and local.ranks.size > 1:
        local.note_plain_count("a size of rows `x[a:b]`")
        return int(x.size(tag.dim))
    return local.total(x.size(tag.dim), tag)


def _elements(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    out, x = func(*args, **kwargs), args[0] if args else kwargs["input"]
    tag = tag_of(x)
    if tag is None:
        return out
    # Only the extent of the distributed dimension differs from rank to rank.
    others = math.prod(n for dim, n in enumerate(x.shape) if dim != tag.dim)
    count = DistributedCount.of(out, _total(local, x, tag) * others)
    return TotalCount.of(count, local.note_plain_count)


def _noted(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Call a function that makes a plain number of the local rows."""
    tag = tag_of(args[0])
    if tag is not None and (name != "__len__" or tag.dim == 0):
        local.note_plain_count("len(x)" if name == "__len__" else name)
    return func(*args, **kwargs)


def divide(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Divide; a local row count in an argument is replaced by the global one."""
    args = tuple(a.total if isinstance(a, DistributedCount) else a for a in args)
    return local.passed(func, name, args, kwargs)


def _squeezed(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Squeeze; a distributed dimension has extent 1 if one row is on all ranks, not on this one."""
    x = args[0] if args else kwargs["input"]
    tag = tag_of(x)
    dims = [d % max(1, x.dim()) for d in flat(args[1:])] if len(args) > 1 else list(range(x.dim()))
    if tag is None or tag.dim not in dims or local.ranks.size == 1:
        return local.passed(func, name, args, kwargs)
    if local.total(x.size(tag.dim), tag) == 1:
        return func(local.whole(x), *args[1:])
    dims.remove(tag.dim)
    return local.passed(torch.Tensor.squeeze, name, (x, dims), {})


def _in_place(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Change the shape of a tensor itself, and its tag, to those of the function without `_`."""
    x, tag, plain = args[0], tag_of(args[0]), name.removesuffix("_")
    if tag is None:
        return func(*args, **kwargs)
    rule = RULES.get(plain, LocalRows.passed)
    call = put_tag(x.detach(), tag), *args[1:]
    out = rule(local, getattr(torch.Tensor, plain), plain, call, kwargs)
    if tag_of(out) is None:
        raise Unsupported(f"{name} of the only row of all processes")
    return put_tag(x.as_strided_(out.shape, out.stride()), tag_of(out))


def _joined(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Tag concatenated or stacked tensors: join row numbers, keep equal roles."""
    out = func(*args, **kwargs)
    tensors, dim = args[0], (args[1] if len(args) > 1 else 0) % out.dim()
    tags = [tag_of(t) for t in tensors]
    lead = next((t for t in tags if t is not None), None)
    if lead is None:
        return out
    roles = [t.role for t in tags if t is not None and t.role is not None]
    if name == "stack":
        # Stacking two index vectors makes an edge_index, whose rows have the roles of the parts.
        role: Any = (
            tuple(t.role if t is not None and t.role else EITHER for t in tags)
            if roles and dim == 0
            else None
        )
        return put_tag(out, replace(lead, dim=lead.dim + (lead.dim >= dim), role=role))
    # Beside each other, features of the same rows keep the row numbers of the first; one after
    # another, rows are as many as all together, and are numbered only if all parts are.
    ids, is_section = lead.ids, lead.is_section
    if dim == lead.dim:
        whole = (local.num_own, local.part.num_edges)
        is_section = any(t is not None and t.is_section for t in tags) and (
            out.size(dim) not in whole
        )
        every = [t.ids for t in tags if t is not None and t.ids is not None]
        ids = torch.cat(every) if len(every) == len(tags) else None
    role = None
    if roles:
        role = roles[0] if all(r == roles[0] for r in roles) else EITHER
    return put_tag(out, as_index(Tag(lead.dim, ids, role, is_section), out))


def _flipped(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    out, tag = func(*args, **kwargs), tag_of(args[0])
    if tag is None:
        return out
    dims = list(flat(args[1:]))
    # Flipping an edge_index exchanges sources and targets; flipping columns of features does not.
    role = tag.role[::-1] if isinstance(tag.role, tuple) and dims in ([0], [-2]) else tag.role
    flips_rows = tag.dim in [d % out.dim() for d in dims]
    ids = tag.ids.flip(0) if flips_rows and tag.ids is not None else tag.ids
    return put_tag(out, replace(tag, ids=ids, role=role))


def _split(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Tag the pieces of edges, which are split where they lie; nodes are split as on one rank."""
    x = args[0]
    tag, dim = tag_of(x), kwargs.get("dim", args[2] if len(args) > 2 else 0)
    if tag is None or dim % x.dim() != tag.dim or local.ranks.size == 1:
        return local.passed(func, name, args, kwargs)
    if tag.role is None:
        return on_all_rows(local, func, name, args, kwargs)
    pieces, begin = func(*args, **kwargs), 0
    for piece in pieces:
        end = begin + piece.size(tag.dim)
        ids = None if tag.ids is None else tag.ids[begin:end]
        put_tag(piece, replace(tag, ids=ids, is_section=True))
        begin = end
    return pieces


def _unbound(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    out, tag = func(*args, **kwargs), tag_of(args[0])
    if tag is None:
        return out
    dim = (args[1] if len(args) > 1 else 0) % args[0].dim()
    # One tensor a local row: their number differs by rank, and none of them is distributed.
    if dim == tag.dim:
        local.note_plain_count("a list of the rows of x")
        return out
    roles = tag.role if isinstance(tag.role, tuple) else (tag.role,) * len(out)
    for part, role in zip(out, roles, strict=True):
        put_tag(part, replace(tag, dim=tag.dim - (tag.dim > dim), role=role))
    return out


RULES: dict[str, Rule] = {
    "size": _size,
    "shape": _size,
    **dict.fromkeys(("__len__", "nbytes", "storage", "stride", "untyped_storage"), _noted),
    **dict.fromkeys(("chunk", "split", "split_with_sizes", "tensor_split"), _split),
    **dict.fromkeys(("numel", "nelement"), _elements),
    **dict.fromkeys("div div_ true_divide __truediv__ __rtruediv__ __rdiv__".split(), divide),
    **dict.fromkeys(("cat", "concat", "concatenate", "stack"), _joined),
    "flip": _flipped,
    "unbind": _unbound,
    "squeeze": _squeezed,
    **dict.fromkeys("t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_".split(), _in_place),
}
