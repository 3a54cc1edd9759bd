"""Any model on many ranks: the gathers, scatters and reductions of its forward pass, intercepted.

A rank holds the rows of its nodes. An edge belongs to the rank of its target; a source index
beyond the local rows names a row of the halo, which is stored nowhere. While the model runs, a
TorchFunctionMode sees every torch call:

- a gather by the edges' sources fetches the halo's rows first;
- a scatter onto the edges' sources sends partial rows to their owners, which answers how degrees
  are counted: each edge exists once, so in- and out-degrees are those of the whole graph;
- a reduction over distributed rows is a reduction over the rows of all ranks;
- the largest place of an edge_index is the last own node, as torch-geometric asks for the count.

Which dimension is distributed follows from the tags of the inputs (`tags.py`), never from a size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.collectives import (
    FetchHalo,
    GatherRows,
    ReturnHalo,
    SumOverRanks,
    gather_counts,
)
from scitoolkit.graphs.indexing import (
    as_index,
    indexed_dims,
    reduced_dims,
    tag_of_selection,
)
from scitoolkit.graphs.part import Part
from scitoolkit.graphs.tags import (
    EITHER,
    SOURCE,
    TARGET,
    RowCount,
    Tag,
    after,
    flat,
    put_tag,
    role_of,
    tag_of,
)
from scitoolkit.ops.node_dropout import node_dropout

Rule = Callable[..., Any]


class Distributed(TorchFunctionMode):
    """Runs a model's forward pass on one rank's rows as if it had the rows of all ranks.

    Args:
        part: this rank's nodes and edges.
        seed: of the dropout, which depends on it and on the numbers of nodes and edges alone; None
            for no dropout.
    """

    def __init__(self, part: Part, seed: int | None) -> None:
        super().__init__()
        self._part, self._ranks = part, part.ranks
        self._own = len(part.nodes)
        self._seed, self._calls = seed, 0
        self._replaces: bool = False
        self._read_edges: Tensor | None = None

    # --- inputs and outputs ---------------------------------------------------------------------

    def nodes(self, x: Tensor) -> Tensor:
        """Return rows of own nodes, tagged."""
        return put_tag(x.view_as(x), Tag(0, self._part.nodes))

    def edges(self, x: Tensor) -> Tensor:
        """Return rows of own edges, tagged."""
        return put_tag(x.view_as(x), Tag(0, self._part.edge_numbers))

    def edge_index(self) -> Tensor:
        """Return own edges, tagged."""
        pair = self._part.edges
        return put_tag(pair.view_as(pair), Tag(1, self._part.edge_numbers, (SOURCE, TARGET)))

    def unread_edges(self) -> Tensor:
        """Return the placeholder of this rank's edges; the first operation reads them."""
        self._replaces = True
        return self._part.unread_edges

    def _with_edges(self, given: Any) -> Any:
        """Put the edges in place of those that were not read yet."""
        if given is self._part.unread_edges:
            if self._read_edges is None:
                self._read_edges = self.edge_index()
            return self._read_edges
        if isinstance(given, (tuple, list)) and not isinstance(given, torch.Size):
            return type(given)([self._with_edges(each) for each in given])
        return given

    # --- dispatch -------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._replaces:
            args = self._with_edges(tuple(args))
            kwargs = {key: self._with_edges(value) for key, value in kwargs.items()}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = getattr(func.__self__, "__name__", "")
        rule = _RULES.get(name)
        if rule is not None:
            return rule(self, func, name, args, kwargs)
        return self._passed(func, name, args, kwargs)

    def _passed(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Call a function that keeps rows apart, and pass the tag on."""
        return self._tagged(func(*args, **kwargs), name, args, kwargs)

    def _tagged(self, out: Any, name: str, args: Any, kwargs: Any) -> Any:
        every = flat((args, tuple(kwargs.values())))
        given = [(a, tag) for a in every if (tag := tag_of(a)) is not None]
        for each in flat((out,)):
            if not isinstance(each, Tensor) or isinstance(each, nn.Parameter):
                continue
            for a, known in () if name.startswith("new_") else given:
                tag = known if each is a else after(name, known, a, each, args)
                if tag is not None:
                    keeps = name in _KEEPS_PLACES
                    put_tag(each, as_index(tag, each) if keeps else replace(tag, role=None))
                    break
            else:
                self._by_count(each, args, kwargs)
        return out

    def _by_count(self, out: Tensor, args: Any, kwargs: Any) -> None:
        """Tag what is made of the size of a distributed dimension, such as zeros."""
        for count in flat((args, tuple(kwargs.values()))):
            if isinstance(count, RowCount) and count in out.shape and tag_of(out) is None:
                put_tag(out, Tag(list(out.shape).index(count), count.tag.ids))

    # --- sizes ----------------------------------------------------------------------------------

    def _size(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        out, tag = func(*args, **kwargs), tag_of(args[0])
        if tag is None:
            return out
        x = args[0]
        rows = RowCount.of(
            x.size(tag.dim), tag, lambda: sum(gather_counts(self._ranks, x.size(tag.dim)))
        )
        if isinstance(out, torch.Size):
            return torch.Size([rows if d == tag.dim else n for d, n in enumerate(out)])
        dim = args[1] if len(args) > 1 else kwargs["dim"]
        return rows if dim % x.dim() == tag.dim else out

    def _divide(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        args = tuple(a.total() if isinstance(a, RowCount) else a for a in args)
        return self._passed(func, name, args, kwargs)

    # --- gathers --------------------------------------------------------------------------------

    def _extended(self, x: Tensor, dim: int) -> Tensor:
        rows = x.movedim(dim, 0)
        halo = FetchHalo.apply(rows, self._ranks, self._part.halo)
        return torch.cat([rows, halo]).movedim(0, dim)

    def _needs_halo(self, x: Tensor, dim: int, index: Any) -> bool:
        return role_of(index) in (SOURCE, EITHER) and x.size(dim) == self._own

    def _gather(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        x, dim, index = _arguments(("self", "dim", "index"), args, kwargs, input="self")
        dim = dim % x.dim()
        whole = self._extended(x, dim) if self._needs_halo(x, dim, index) else x
        out = func(whole, dim, index)
        tag, rows = tag_of(x), tag_of(index)
        if rows is not None:
            place = dim if name == "index_select" else rows.dim
            role = tag.role if tag is not None and rows.role is None else None
            return put_tag(out, Tag(place, rows.ids, role))
        return self._tagged(out, name, (x,), {})

    def _getitem(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        x, index = args
        parts = index if isinstance(index, tuple) else (index,)
        whole, dim = x, 0
        for part, dim in indexed_dims(parts, x):
            if isinstance(part, Tensor) and self._needs_halo(x, dim, part):
                whole = self._extended(x, dim)
                break
        out = func(whole, index)
        if isinstance(out, Tensor):
            tag = tag_of_selection(x, parts, out)
            put_tag(out, tag)
        return out

    # --- scatters -------------------------------------------------------------------------------

    def _scatter(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        x, dim, index, source = _arguments(
            ("self", "dim", "index", "src"), args, kwargs, input="self", source="src", value="src"
        )
        dim = dim % x.dim()
        reduce = kwargs.get(
            "reduce", args[4] if len(args) > 4 else "sum" if "add" in name else None
        )
        total = reduce in ("sum", "add")
        role = role_of(index)
        if self._needs_halo(x, dim, index):
            if not total:
                raise Unsupported(f"{name} with {reduce} onto the sources of edges")
            size = list(x.shape)
            size[dim] += self._part.halo.rows_received
            wide = _add(name, x.new_zeros(size), dim, index, source).movedim(dim, 0)
            near, far = wide[: self._own], wide[self._own :]
            far = ReturnHalo.apply(far, self._ranks, self._part.halo, self._own)
            sums = (near + far).movedim(0, dim)
            out = x.add_(sums) if name.endswith("_") else x + sums
            return put_tag(out, Tag(dim, self._part.nodes))
        if role == TARGET and x.size(dim) == self._own:
            return put_tag(func(*args, **kwargs), Tag(dim, self._part.nodes))
        rows = tag_of(source) if tag_of(index) is None else tag_of(index)
        if tag_of(x) is None and role is None and rows is not None:
            place = min(dim, index.dim() - 1)
            if tag_of(index) is None and index.size(place) == source.size(dim):
                put_tag(index, Tag(place, rows.ids))
            return self._pooled(func, name, (x, dim, index, source), args, kwargs, total=total)
        return self._passed(func, name, args, kwargs)

    def _pooled(
        self, func: Any, name: str, call: Any, args: Any, kwargs: Any, *, total: bool
    ) -> Tensor:
        """Scatter the rows of all ranks onto replicated ones."""
        x, dim, index, source = call
        if total:
            part = _add(name, torch.zeros_like(x), dim, index, source)
            sums = SumOverRanks.apply(part, self._ranks)
            return x.add_(sums) if name.endswith("_") else x + sums
        index = self._whole(index)
        source = self._whole(source) if tag_of(source) is not None else source
        more = {
            k: v
            for k, v in kwargs.items()
            if k not in ("dim", "index", "src", "source", "value", "input")
        }
        return func(x, dim, index, source, *args[4:], **more)

    # --- reductions -----------------------------------------------------------------------------

    def _whole(self, x: Tensor) -> Tensor:
        """Return the rows of all ranks, ordered by their numbers where these are known."""
        tag = tag_of(x)
        assert tag is not None
        rows = x.movedim(tag.dim, 0)
        counts = tuple(gather_counts(self._ranks, len(rows)))
        known = gather_counts(self._ranks, int(tag.ids is not None))
        rows = GatherRows.apply(rows, self._ranks, counts)
        if all(known):
            rows = rows[GatherRows.apply(tag.ids, self._ranks, counts).argsort()]
        return rows.movedim(0, tag.dim)

    def _own_rows(self, whole: Tensor, tag: Tag) -> Tensor:
        """Return this rank's rows of a tensor over all nodes."""
        if tag.ids is None or whole.size(tag.dim) != self._part.num_nodes:
            raise Unsupported("an operation along rows that are not nodes")
        return put_tag(whole.index_select(tag.dim, tag.ids), tag)

    def _reduce(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        x = args[0] if args else kwargs.get("input")
        tag = tag_of(x)
        if tag is None or any(isinstance(a, Tensor) for a in args[1:]) or "other" in kwargs:
            return self._divide(func, name, args, kwargs)
        if tag.role is not None and name in ("max", "amax") and len(args) == 1 and not kwargs:
            return x.new_tensor(self._own - 1)
        dims, keep = reduced_dims(name, x, args, kwargs)
        if tag.dim not in dims:
            out = func(*args, **kwargs)
            moved = tag.dim - (0 if keep else sum(d < tag.dim for d in dims))
            for each in out if isinstance(out, tuple) else (out,):
                put_tag(each, replace(tag, dim=moved, role=None))
            return out
        if self._ranks.size == 1:
            return func(*args, **kwargs)
        if name == "sum" or (name == "mean" and x.is_floating_point()):
            sums = SumOverRanks.apply(
                torch.sum(x, dims, keepdim=keep, dtype=kwargs.get("dtype")), self._ranks
            )
            return sums if name == "sum" else sums / self._numbers(x, tag, dims)
        if name in ("var", "std"):
            return self._deviation(name, x, tag, dims, keep, args, kwargs)
        if (
            name in ("any", "all", "max", "min", "amax", "amin")
            and not x.requires_grad
            and len(dims) == x.dim()
        ):
            return self._agreed(func, name, x)
        return func(self._whole(x), *args[1:], **{k: v for k, v in kwargs.items() if k != "input"})

    def _numbers(self, x: Tensor, tag: Tag, dims: tuple[int, ...]) -> int:
        """Count the numbers that a reduction over dims reads, on all ranks."""
        count = sum(gather_counts(self._ranks, x.size(tag.dim)))
        for d in dims:
            count *= 1 if d == tag.dim else x.size(d)
        return count

    def _deviation(
        self, name: str, x: Tensor, tag: Tag, dims: Any, keep: bool, args: Any, kwargs: Any
    ) -> Tensor:
        bools = [a for a in args[1:] if isinstance(a, bool)]
        correction = kwargs.get("correction", kwargs.get("unbiased", bools[0] if bools else 1))
        count = self._numbers(x, tag, dims)
        mean = SumOverRanks.apply(x.sum(dims, keepdim=True), self._ranks) / count
        squares = SumOverRanks.apply((x - mean).square().sum(dims, keepdim=keep), self._ranks)
        variance = squares / max(0, count - int(correction))
        return variance.sqrt() if name == "std" else variance

    def _agreed(self, func: Any, name: str, x: Tensor) -> Tensor:
        """Reduce own numbers to one, then those of the ranks that have any."""
        counts = gather_counts(self._ranks, x.numel())
        own = func(x).view(1) if x.numel() else x.new_zeros(1)
        flags = own.dtype == torch.bool
        ones = GatherRows.apply(
            own.to(torch.uint8) if flags else own, self._ranks, (1,) * len(counts)
        )
        ones = ones[[n > 0 for n in counts]]
        return func(ones.bool() if flags else ones)

    def _along(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Softmax and the like: along the rows of all ranks where the dimension is distributed."""
        x = args[0] if args else kwargs["input"]
        tag = tag_of(x)
        # Running sums of integers are offsets into own rows.
        if tag is None or not x.is_floating_point():
            return self._passed(func, name, args, kwargs)
        default = {"normalize": 1, "instance_norm": x.dim() - 1}.get(name)
        place = 2 if name == "normalize" else 1
        dim = kwargs.get(
            "dim", args[place] if len(args) > place and name != "instance_norm" else default
        )
        along = tag.dim >= 2 if name == "instance_norm" else dim is None or dim % x.dim() == tag.dim
        if not along:
            return self._passed(func, name, args, kwargs)
        kwargs = {k: v for k, v in kwargs.items() if k != "input"}
        return self._own_rows(func(self._whole(x), *args[1:], **kwargs), tag)

    def _batch_norm(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        names = (
            "input",
            "running_mean",
            "running_var",
            "weight",
            "bias",
            "training",
            "momentum",
            "eps",
        )
        x, mean, var, weight, bias, training, momentum, eps = _arguments(names, args, kwargs)
        tag = tag_of(x)
        if tag is None or not training or self._ranks.size == 1:
            return self._passed(func, name, args, kwargs)
        dims = tuple(d for d in range(x.dim()) if d != 1)
        count = self._numbers(x, tag, dims)
        center = SumOverRanks.apply(x.sum(dims, keepdim=True), self._ranks) / count
        spread = (
            SumOverRanks.apply((x - center).square().sum(dims, keepdim=True), self._ranks) / count
        )
        if mean is not None:
            with torch.no_grad():
                mean.lerp_(center.view(-1).to(mean.dtype), momentum)
                var.lerp_((spread * (count / max(1, count - 1))).view(-1).to(var.dtype), momentum)
        out = (x - center) / (spread + eps).sqrt()
        shape = [-1 if d == 1 else 1 for d in range(x.dim())]
        out = out if weight is None else out * weight.view(shape)
        out = out if bias is None else out + bias.view(shape)
        return put_tag(out, tag)

    # --- products -------------------------------------------------------------------------------

    def _matmul(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        a, b = args[:2] if len(args) > 1 else (args[0], kwargs.get("other", kwargs.get("mat2")))
        if name == "__rmatmul__":
            return self._matmul(torch.matmul, "matmul", (b, a), {})
        left, right = tag_of(a), tag_of(b)
        inner = max(0, b.dim() - 2)
        if right is not None and right.dim == inner:
            if left is not None and left.dim == a.dim() - 1:
                return SumOverRanks.apply(func(a, b), self._ranks)
            b = self._whole(b)
        elif right is not None and right.dim == b.dim() - 1 and left is not None:
            b = self._whole(b)
        elif left is not None and left.dim == a.dim() - 1:
            a, left = self._whole(a), None
        out = func(a, b)
        if left is not None:
            return put_tag(out, replace(left, role=None))
        right = tag_of(b)
        return put_tag(out, right and replace(right, dim=out.dim() - 1, role=None))

    def _einsum(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        equation, operands = args[0], list(flat(args[1:]))
        if not isinstance(equation, str) or "." in equation:
            return self._passed(func, name, args, kwargs)
        inputs, _, result = equation.replace(" ", "").partition("->")
        letters = {
            letter[tag.dim]: tag
            for letter, each in zip(inputs.split(","), operands, strict=True)
            if (tag := tag_of(each)) is not None
        }
        if len(letters) > 1:
            raise Unsupported("einsum of two distributed dimensions")
        out = func(*args, **kwargs)
        for letter, tag in letters.items():
            if letter not in result:
                return SumOverRanks.apply(out, self._ranks)
            put_tag(out, replace(tag, dim=result.index(letter), role=None))
        return out

    def _attention(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Attention over all nodes: own queries, the keys and values of all ranks."""
        if self._ranks.size == 1 and self._seed is not None:
            return self._passed(func, name, args, kwargs)
        given = dict(zip(_ATTENTION[name], args, strict=False)) | kwargs
        tag = tag_of(given["query"])
        self._no_dropout(given)
        for key in ("key", "value", "key_padding_mask"):
            if tag_of(given.get(key)) is not None:
                given[key] = self._whole(given[key])
        if tag is not None and given.get("attn_mask") is not None:
            raise Unsupported("attention over all nodes with a mask")
        out = func(**given)
        if tag is None:
            return out
        if isinstance(out, tuple):
            return put_tag(out[0], tag), out[1]
        return put_tag(out, tag)

    def _no_dropout(self, given: dict[str, Any]) -> None:
        active = given.get("training", True) and given.get("dropout_p", 0.0) > 0
        if active and self._ranks.size > 1:
            raise Unsupported("dropout of the weights of attention over all nodes")
        if self._seed is None:
            given["dropout_p"] = 0.0

    # --- dropout --------------------------------------------------------------------------------

    def _dropout(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        x, p, training = _arguments(
            ("input", "p", "training"),
            args,
            kwargs,
            train="training",
            default={"p": 0.5, "training": True},
        )
        if not training or p == 0.0:
            return self._tagged(x.view_as(x), name, (x,), {})
        tag = tag_of(x)
        rows = x if tag is None else x.movedim(tag.dim, 0)
        ids = torch.arange(len(x) if x.dim() else 1) if tag is None else tag.ids
        if ids is None:
            if self._ranks.size > 1:
                raise Unsupported("dropout of rows that are neither nodes nor edges")
            ids = torch.arange(len(rows))
        if self._seed is None:
            return self._tagged(x.view_as(x), name, (x,), {})
        self._calls += 1
        seed = self._seed * 1_000_003 + self._calls
        out = node_dropout(rows.reshape(len(ids), -1), ids, p, seed).view(rows.shape)
        return out if tag is None else put_tag(out.movedim(0, tag.dim), tag)


class Unsupported(ConfigError):
    """An operation that has no distributed form."""

    def __init__(self, what: str) -> None:
        super().__init__(what, where="model", fix="train on one process")


def _add(name: str, x: Tensor, dim: int, index: Tensor, source: Any) -> Tensor:
    if not isinstance(source, Tensor):
        source = torch.full_like(index, source, dtype=x.dtype)
    if "index" in name:
        return x.index_add(dim, index, source)
    return x.scatter_add(dim, index, source)


def _arguments(
    names: Any, args: Any, kwargs: Any, default: Any = None, **aliases: str
) -> list[Any]:
    """Return arguments by name, given by position or keyword."""
    given = dict(default or {}) | dict(zip(names, args, strict=False))
    given |= {aliases.get(key, key): value for key, value in kwargs.items()}
    return [given.get(name) for name in names]


def _joined(mode: Distributed, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Tag concatenated or stacked tensors: numbers of rows follow, equal roles stay."""
    out = func(*args, **kwargs)
    tensors = args[0] if args else kwargs["tensors"]
    dim = kwargs.get("dim", args[1] if len(args) > 1 else 0) % out.dim()
    tags = [tag_of(t) for t in tensors]
    lead = next((t for t in tags if t is not None), None)
    if lead is None:
        return out
    roles = [t.role for t in tags if t is not None and t.role is not None]
    if name == "stack":
        role: Any = (
            tuple(t.role if t is not None and t.role else EITHER for t in tags)
            if roles and dim == 0
            else None
        )
        return put_tag(out, Tag(lead.dim + (lead.dim >= dim), lead.ids, role))
    ids = lead.ids
    if dim == lead.dim:
        every = [t.ids for t in tags if t is not None and t.ids is not None]
        ids = torch.cat(every) if len(every) == len(tags) else None
    role = None
    if roles:
        role = roles[0] if all(r == roles[0] for r in roles) else EITHER
    return put_tag(out, as_index(Tag(lead.dim, ids, role), out))


def _flipped(mode: Distributed, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    out, tag = func(*args, **kwargs), tag_of(args[0])
    if tag is None:
        return out
    dims = list(flat((args[1:], tuple(kwargs.values()))))
    role = tag.role[::-1] if isinstance(tag.role, tuple) and dims in ([0], [-2]) else tag.role
    flips_rows = tag.dim in [d % out.dim() for d in dims]
    ids = tag.ids.flip(0) if flips_rows and tag.ids is not None else tag.ids
    return put_tag(out, Tag(tag.dim, ids, role))


def _unbound(mode: Distributed, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    out, tag = func(*args, **kwargs), tag_of(args[0])
    if tag is None:
        return out
    dim = kwargs.get("dim", args[1] if len(args) > 1 and name == "unbind" else 0)
    if name == "unbind":
        if dim % args[0].dim() == tag.dim:
            return out
        roles = tag.role if isinstance(tag.role, tuple) else (tag.role,) * len(out)
        for each, role in zip(out, roles, strict=True):
            put_tag(each, Tag(tag.dim - (tag.dim > dim), tag.ids, role))
        return out
    return mode._tagged(out, name, args, kwargs)


_KEEPS_PLACES = {
    "view", "reshape", "expand", "expand_as", "clone", "to", "long", "contiguous", "unsqueeze",
    "squeeze", "detach", "repeat", "repeat_interleave", "flatten", "t", "T", "transpose",
    "view_as", "broadcast_to", "chunk", "split", "requires_grad_", "masked_select", "int",
}  # fmt: skip

_ATTENTION: dict[str, tuple[str, ...]] = {
    "scaled_dot_product_attention": (
        "query", "key", "value", "attn_mask", "dropout_p", "is_causal",
    ),
    "multi_head_attention_forward": (
        "query", "key", "value", "embed_dim_to_check", "num_heads", "in_proj_weight",
        "in_proj_bias", "bias_k", "bias_v", "add_zero_attn", "dropout_p", "out_proj_weight",
        "out_proj_bias",
    ),
}  # fmt: skip

_RULES: dict[str, Rule] = {
    "size": Distributed._size, "shape": Distributed._size,
    **dict.fromkeys(("div", "div_", "true_divide", "__truediv__", "__rtruediv__", "__rdiv__"),
                    Distributed._divide),
    "index_select": Distributed._gather, "gather": Distributed._gather,
    "__getitem__": Distributed._getitem,
    **dict.fromkeys(("scatter_add_", "scatter_add", "index_add_", "index_add", "scatter_reduce_",
                     "scatter_reduce", "scatter_", "scatter", "index_reduce_"),
                    Distributed._scatter),
    **dict.fromkeys(("sum", "mean", "std", "var", "norm", "linalg_norm", "linalg_vector_norm",
                     "amax", "amin", "max", "min", "prod", "median", "any", "all", "logsumexp",
                     "argmax", "argmin", "nanmean", "nansum", "quantile", "std_mean", "var_mean",
                     "count_nonzero"), Distributed._reduce),
    **dict.fromkeys(("softmax", "log_softmax", "softmin", "cumsum", "cumprod", "normalize",
                     "instance_norm", "logcumsumexp"), Distributed._along),
    "batch_norm": Distributed._batch_norm,
    **dict.fromkeys(("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv"),
                    Distributed._matmul),
    "einsum": Distributed._einsum,
    **dict.fromkeys(_ATTENTION, Distributed._attention),
    "dropout": Distributed._dropout, "dropout_": Distributed._dropout,
    "cat": _joined, "concat": _joined, "stack": _joined,
    "flip": _flipped, "unbind": _unbound,
}  # fmt: skip
