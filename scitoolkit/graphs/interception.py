"""Distributed execution of any model by intercepting its gathers, scatters and reductions.

A rank holds the rows of its nodes. An edge belongs to the rank of its target; a source index
beyond the local rows refers to a halo row, which is not stored. A TorchFunctionMode intercepts
every torch call of the forward pass:

- a gather by edge sources first fetches the halo rows;
- a scatter onto edge sources sends partial rows to their owners; as each edge exists on one rank,
  in- and out-degrees are those of the whole graph;
- a reduction over distributed rows reduces over the rows of all ranks;
- the maximum of an edge_index is the last local node, because torch-geometric derives the number
  of nodes from it;
- a function without a rule runs on local rows only if it is known to act on each row alone
  (`gathered_functions.py`), else on the rows of all ranks.

The distributed dimension follows from the tags of the inputs (`tags.py`), never from a size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from scitoolkit.graphs import gather_rules, layer_rules, random_rules, reduction_rules, shape_rules
from scitoolkit.graphs.call_sites import CallSites
from scitoolkit.graphs.gathered_functions import acts_by_row, on_all_rows, reads_places, with_totals
from scitoolkit.graphs.local_rows import LocalRows, Rule, Unsupported
from scitoolkit.graphs.part import Part
from scitoolkit.graphs.recomputation import repeated_by
from scitoolkit.graphs.signatures import positional
from scitoolkit.graphs.tags import SOURCE, TARGET, Tag, flat, localised, put_tag, tag_of
from scitoolkit.graphs.whole_modules import call_on_all_rows, on_rows

_RULES: dict[str, Rule] = {
    **shape_rules.RULES,
    **gather_rules.RULES,
    **reduction_rules.RULES,
    **layer_rules.RULES,
    **random_rules.RULES,
}


def _ignored(what: str = "") -> None: ...


class Distributed(TorchFunctionMode):
    """Context in which a model's forward pass on local rows computes as on the whole graph.

    Args:
        part: this rank's nodes and edges.
        seed: seed of the dropout masks, which depend on it and on node and edge numbers only; None
            disables dropout.
        draw_seed: seed of other random numbers of rows.
        sites: records or checks the places in the user's code that call torch; None does neither.
    """

    def __init__(
        self, part: Part, seed: int | None, draw_seed: int, sites: CallSites | None = None
    ) -> None:
        super().__init__()
        self._sites = sites
        self._part = part
        noted = sites.note_plain_count if sites is not None else _ignored
        self._local = LocalRows(part, seed, draw_seed, noted)
        self._replaces: bool = False
        self._read_edges: Tensor | None = None

    def __enter__(self) -> Distributed:
        self._repetition = repeated_by(self._repeat)
        self._repetition.__enter__()
        return super().__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        self._repetition.__exit__(kind, error, trace)

    def _repeat(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that computes in the backward pass what `function` computes now."""
        local = self._local
        calls = local.calls, local.draws

        def again(*args: Any, **kwargs: Any) -> Any:
            # The repetition runs after other layers have advanced the counters: it must draw with
            # the numbers of the first run, and leave the counters to the layers that follow.
            before = local.calls, local.draws
            local.calls, local.draws = calls
            try:
                with self:
                    return function(*args, **kwargs)
            finally:
                local.calls, local.draws = before

        return again

    # --- inputs and outputs ---------------------------------------------------------------------

    def nodes(self, x: Tensor) -> Tensor:
        """Return rows of local nodes, tagged."""
        # A view carries the tag, so that the caller's tensor stays without one outside of the mode.
        return put_tag(x.view_as(x), Tag(0, self._part.nodes))

    def edges(self, x: Tensor) -> Tensor:
        """Return rows of local edges, tagged."""
        return put_tag(x.view_as(x), Tag(0, self._part.edge_numbers))

    def edge_index(self) -> Tensor:
        """Return the local edge_index, tagged."""
        pair = self._part.edges
        return put_tag(pair.view_as(pair), Tag(1, self._part.edge_numbers, (SOURCE, TARGET)))

    def unread_edges(self) -> Tensor:
        """Return a placeholder of the local edges, which the first operation on it replaces."""
        self._replaces = True
        return self._part.unread_edges

    def _with_edges(self, argument: Any) -> Any:
        """Replace placeholders in arguments by the edges."""
        # Only a layer without a sparse form reads the edges. Where all layers are products, the
        # int64 pairs (16 bytes an edge) are never made.
        if argument is self._part.unread_edges:
            if self._read_edges is None:
                self._read_edges = self.edge_index()
            return self._read_edges
        if isinstance(argument, (tuple, list)) and not isinstance(argument, torch.Size):
            return type(argument)([self._with_edges(part) for part in argument])
        return argument

    # --- dispatch -------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._replaces:
            args = self._with_edges(tuple(args))
            kwargs = {key: self._with_edges(value) for key, value in kwargs.items()}
        name = getattr(func, "__name__", "")
        is_property = name in ("__get__", "__set__")
        if is_property:
            name = getattr(func.__self__, "__name__", "")
        if self._sites is not None:
            self._sites.visit(name)
        if func is call_on_all_rows:
            return on_rows(self, self._local, args[0], args[1:], kwargs)
        args, kwargs = localised(tuple(args)), localised(kwargs)
        args, kwargs = with_totals(name, *positional(name, args, kwargs))
        self._refuse_writes(func, name, args, kwargs)
        out = self._called(func, name, args, kwargs, is_property)
        if self._sites is not None and self._local.ranks.size > 1:
            self._sites.record(self._local.ranks.rank, name, out)
            if reads_places(name, args, kwargs, out):
                self._local.note_plain_count(f"{name} of numbers of nodes")
        return out

    def _called(self, func: Any, name: str, args: Any, kwargs: Any, is_property: bool) -> Any:
        rule = _RULES.get(name)
        if rule is not None:
            return rule(self._local, func, name, args, kwargs)
        local = self._local
        # A property, such as `x.T` or `x.grad`, comes as the `__get__` of its descriptor.
        if is_property or local.ranks.size == 1:
            return local.passed(func, name, args, kwargs)
        if acts_by_row(name, args, kwargs, self._part.nodes):
            return local.passed(func, name, args, kwargs)
        return on_all_rows(local, func, name, args, kwargs)

    def _refuse_writes(self, func: Any, name: str, args: Any, kwargs: Any) -> None:
        """Refuse calls that put other rows into a tensor whose tag says which it has."""
        written = name if getattr(func, "__name__", "") == "__set__" and name == "data" else ""
        if kwargs.get("out") is not None:
            written = f"{name} with out="
        if not written or self._local.ranks.size == 1:
            return
        # Numbers of rows, such as the offsets that layers compute, are local in any case.
        every = flat((args, tuple(kwargs.values())))
        if any(tag_of(a) is not None and a.is_floating_point() for a in every):
            raise Unsupported(f"{written} of rows that are divided among processes")
