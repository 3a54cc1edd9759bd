"""Operations on distributed rows from which the interception rules are built.

Source indices beyond the local rows refer to halo rows, which are fetched when they are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.indexing import as_index
from scitoolkit.graphs.part import Part
from scitoolkit.graphs.tags import (
    EITHER,
    SOURCE,
    RowCount,
    Tag,
    after,
    flat,
    put_tag,
    role_of,
    tag_of,
)
from scitoolkit.training.ranks.collectives import FetchHalo, GatherRows, gather_counts

_KEEPS_PLACES = frozenset(
    """view reshape expand expand_as clone to long contiguous unsqueeze squeeze detach repeat
    repeat_interleave flatten t T transpose view_as broadcast_to chunk split requires_grad_
    masked_select int""".split()
)


_MAKES_PLACES = ("arange", "range", "nonzero", "argwhere")


class LocalRows:
    """Rows of one rank, with halo exchange, gathering and tagging.

    Args:
        part: this rank's nodes and edges.
        seed: seed of the dropout; None disables dropout.
        draw_seed: seed of other random numbers of rows.
        note_plain_count: called, with words for it, when the model takes the number of local rows
            as a plain number.

    Attributes:
        calls, draws: number of dropout layers and of other random draws so far.
    """

    def __init__(
        self, part: Part, seed: int | None, draw_seed: int, note_plain_count: Callable[..., None]
    ) -> None:
        self.part, self.ranks = part, part.ranks
        self.note_plain_count = note_plain_count
        self.num_own: int = len(part.nodes)
        self.seed = seed
        self.calls: int = 0
        self.draws: int = 0
        self._draw_seed = draw_seed
        self._totals: dict[int, tuple[Any, int]] = {}

    def next_seed(self) -> int:
        """Return the seed of the next dropout layer, the same on all ranks."""
        assert self.seed is not None
        self.calls += 1
        return self.seed * 1_000_003 + self.calls

    def next_draw(self) -> int:
        """Return the number of the next draw of random numbers, the same on all ranks."""
        self.draws += 1
        return self._draw_seed * 1_000_003 + self.draws

    def passed(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Call a function that acts on rows independently, and propagate the tag."""
        return self.tagged(func(*args, **kwargs), name, args, kwargs)

    def tagged(self, out: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Tag the outputs of a function according to its arguments."""
        every = flat((args, tuple(kwargs.values())))
        distributed = [(a, tag) for a in every if (tag := tag_of(a)) is not None]
        for result in flat((out,)):
            if not isinstance(result, Tensor) or isinstance(result, nn.Parameter):
                continue
            # `x.new_zeros(...)` reads only dtype and device of x: its shape tells the tag, not x.
            for a, its_tag in () if name.startswith("new_") else distributed:
                tag = its_tag if result is a else after(name, its_tag, a, result, args)
                if tag is not None:
                    keeps = name in _KEEPS_PLACES
                    tag = as_index(tag, result) if keeps else replace(tag, role=None)
                    place = name in _MAKES_PLACES or (name == "where" and len(args) == 1)
                    place |= tag.is_place and name != "embedding" and result.dtype != torch.bool
                    put_tag(result, replace(tag, is_place=place))
                    break
            else:
                self._by_count(result, name, args, kwargs)
        return out

    def _by_count(self, out: Tensor, name: str, args: Any, kwargs: Any) -> None:
        """Tag a tensor created from the size of a distributed dimension, such as zeros."""
        for count in flat((args, tuple(kwargs.values()))):
            # A `RowCount` is an int that remembers its dimension: zeros(x.size(0), 8) are rows of
            # nodes, and zeros(41, 8) with the same number are not.
            if not isinstance(count, RowCount) or count not in out.shape:
                continue
            if tag_of(out) is None:
                put_tag(
                    out,
                    Tag(
                        list(out.shape).index(count), count.tag.ids, is_place=name in _MAKES_PLACES
                    ),
                )
            elif self.ranks.size > 1:
                self.note_plain_count(f"{name} of x.size(0) twice")

    def need_all(self, tag: Tag | None) -> None:
        """Refuse a result of the rows of all ranks, of which only a section is given.

        Raises:
            Unsupported: the rows are between two constants, which count local rows.
        """
        if tag is not None and tag.is_section and self.ranks.size > 1:
            raise Unsupported("rows `x[a:b]` of nodes or edges joined with those of other ranks")
        if tag is not None and tag.is_place and self.ranks.size > 1:
            self.note_plain_count("a number of all places, as in arange(x.size(0)).max(),")

    def extended(self, x: Tensor, dim: int) -> Tensor:
        """Return the rows followed by halo rows."""
        rows = FetchHalo.apply(x.movedim(dim, 0), self.ranks, self.part.halo, True)
        return rows.movedim(0, dim)

    def needs_halo(self, x: Tensor, dim: int, index: Any) -> bool:
        """Return whether an index into a dimension may refer to halo rows."""
        needs = role_of(index) in (SOURCE, EITHER) and x.size(dim) == self.num_own
        if needs:
            self.need_all(tag_of(index))  # ranks have other numbers of pieces
        return needs

    def whole(self, x: Tensor, *, by_number: bool = True) -> Tensor:
        """Return the rows of all ranks, ordered by number if the numbers are known, else by rank.

        Args:
            x: tagged.
            by_number: False for the order of the ranks in any case.
        """
        tag = tag_of(x)
        assert tag is not None
        self.need_all(tag)
        rows = x.movedim(tag.dim, 0)
        counts, order = self._order(len(rows), tag.ids if by_number else None)
        rows = GatherRows.apply(rows, self.ranks, counts)
        if order is not None:
            rows = rows[order]
        return rows.movedim(0, tag.dim)

    def places(self, x: Tensor) -> Tensor:
        """Return where this rank's rows are in `whole(x)`, shape (rows,)."""
        tag = tag_of(x)
        assert tag is not None
        counts, order = self._order(x.size(tag.dim), tag.ids)
        # `whole` is sorted[k] = gathered[order[k]]; the inverse permutation, argsort of the order,
        # tells where gathered row `begin + i` of this rank went.
        begin = sum(counts[: self.ranks.rank])
        own = torch.arange(begin, begin + x.size(tag.dim), device=x.device)
        return own if order is None else order.argsort()[own]

    def _order(self, size: int, ids: Tensor | None) -> tuple[tuple[int, ...], Tensor | None]:
        """Return the rows of each rank, and the order by number if every rank knows numbers."""
        counts = tuple(gather_counts(self.ranks, size))
        # All ranks must take the same branch, since the next line is a collective: one rank without
        # numbers, such as one without rows, decides for all.
        if not all(gather_counts(self.ranks, int(ids is not None))):
            return counts, None
        return counts, GatherRows.apply(ids, self.ranks, counts).argsort()

    def own_rows(self, whole: Tensor, tag: Tag) -> Tensor:
        """Return this rank's rows of a tensor over all nodes."""
        if tag.ids is None or whole.size(tag.dim) != self.part.num_nodes:
            raise Unsupported("an operation along rows that are not nodes")
        return put_tag(whole.index_select(tag.dim, tag.ids), tag)

    def total(self, size: int, tag: Tag) -> int:
        """Return the number of rows of a distributed dimension on all ranks."""
        if self.ranks.size == 1:
            return size
        if tag.ids is self.part.nodes:
            return self.part.num_nodes
        key = id(tag.ids)
        if tag.ids is None or key not in self._totals:
            # The row numbers are kept as well, so that their `id` stays theirs.
            self._totals[key] = tag.ids, sum(gather_counts(self.ranks, size))
        return self._totals[key][1]

    def numbers(self, x: Tensor, tag: Tag, dims: tuple[int, ...]) -> int:
        """Return how many elements a reduction over `dims` reads, on all ranks."""
        self.need_all(tag)
        count = self.total(x.size(tag.dim), tag)
        for d in dims:
            count *= 1 if d == tag.dim else x.size(d)
        return count


Rule = Callable[[LocalRows, Any, str, Any, Any], Any]
"""Rule called with the local rows, the torch function, its name, and its arguments."""


class Unsupported(ConfigError):
    """Error for an operation without a distributed implementation."""

    def __init__(self, what: str) -> None:
        super().__init__(what, where="model", fix="train on one process")


def arguments(names: Any, args: Any, kwargs: Any, default: Any = None, **aliases: str) -> list[Any]:
    """Return arguments in the order of `names`, from positional and keyword arguments."""
    by_name = dict(default or {}) | dict(zip(names, args, strict=False))
    by_name |= {aliases.get(key, key): value for key, value in kwargs.items()}
    return [by_name.get(name) for name in names]
