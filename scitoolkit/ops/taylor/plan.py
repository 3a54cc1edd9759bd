"""Plan of the derivatives that are propagated through a network, and of their dependencies.

A stream is a linear differential operator: a sum of coefficients times partial derivatives, which
are multi-indices (orders by coordinate). The derivative of an activation g(a) follows Faa di
Bruno's formula, a sum over the partitions of the differentiations into blocks. The one-block
partition is linear in the stream, so that a whole operator such as the Laplacian is one stream;
only the blocks of the other partitions are additional streams.

Source: Griewank, Utke, Walther, "Evaluating higher derivative tensors by forward propagation of
univariate Taylor series", Math. Comp. 69 (2000); the Laplacian as one stream: Li et al., "Forward
Laplacian", arXiv 2307.08214, eq. 5.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MultiIndex = tuple[int, ...]
Operator = tuple[tuple[MultiIndex, float], ...]
"""Sorted (multi-index, coefficient) pairs: hashable, so that it can be a key."""


def operator(terms: Mapping[MultiIndex, float] | MultiIndex) -> Operator:
    """Return the differential operator {multi-index: coefficient}, or of one multi-index.

    Example:
        >>> operator((1, 0))
        (((1, 0), 1.0),)
        >>> operator({(0, 2): 2.0, (2, 0): 1.0})
        (((0, 2), 2.0), ((2, 0), 1.0))
    """
    if isinstance(terms, tuple):
        return ((terms, 1.0),)
    return tuple(sorted((tuple(k), float(v)) for k, v in terms.items()))


@dataclass(frozen=True)
class StreamProduct:
    """`coefficient` times g^(order) times the product of the streams `factors`."""

    order: int
    coefficient: float
    factors: tuple[int, ...]


@dataclass(frozen=True)
class Leibniz:
    """`coefficient` times d^weight w times the stream `factor` in the product rule for w f."""

    coefficient: float
    weight: MultiIndex
    factor: int


@dataclass(frozen=True)
class Plan:
    """The streams of a set of operators with all streams on which they depend.

    Attributes:
        dims: number of coordinates.
        operators: operator of each stream; the first is the value itself.
        products: for every stream s, the terms of Faa di Bruno's formula other than g' s.
        leibniz: for every stream, the terms of its product rule, including itself.
        order: highest derivative of activations that is needed.
    """

    dims: int
    operators: tuple[Operator, ...]
    products: tuple[tuple[StreamProduct, ...], ...]
    leibniz: tuple[tuple[Leibniz, ...], ...]
    order: int

    def index(self, wanted: Operator | MultiIndex) -> int:
        """Return the index of the stream of an operator or multi-index."""
        key = wanted if wanted and isinstance(wanted[0], tuple) else operator(wanted)  # type: ignore[arg-type]
        return self.operators.index(key)

    @property
    def first(self) -> list[tuple[int, int, float]]:
        """(stream, coordinate, coefficient) of all first derivatives in the operators."""
        return [
            (stream, index.index(1), coefficient)
            for stream, op in enumerate(self.operators)
            for index, coefficient in op
            if sum(index) == 1
        ]

    def __len__(self) -> int:
        """Return the number of streams."""
        return len(self.operators)


def make_plan(dims: int, wanted: Iterable[Operator | MultiIndex]) -> Plan:
    """Return the plan of given operators with all operators on which they depend.

    Example:
        >>> laplacian = operator({(2, 0): 1.0, (0, 2): 1.0})
        >>> plan = make_plan(2, [laplacian])
        >>> len(plan)  # value, two first derivatives, one stream for the sum of the second
        4
        >>> [(p.coefficient, p.factors) for p in plan.products[plan.index(laplacian)]]
        [(1.0, (1, 1)), (1.0, (2, 2))]
    """
    zero = operator((0,) * dims)
    needed: set[Operator] = {zero}
    queue = [w if w and isinstance(w[0], tuple) else operator(w) for w in wanted]  # type: ignore[arg-type]
    while queue:
        op = queue.pop()
        if op in needed:
            continue
        needed.add(op)
        # Blocks of a partition are single multi-indices even where the operator is a sum: only the
        # one-block term is linear in it.
        for index, _ in op:
            queue += [operator(block) for block in _below(index)]
    ops = sorted(needed, key=_rank)
    place = {op: n for n, op in enumerate(ops)}
    products = tuple(_products(op, place) for op in ops)
    leibniz = tuple(_leibniz(op, place) for op in ops)
    order = max((p.order for terms in products for p in terms), default=1)
    return Plan(dims, tuple(ops), products, leibniz, order)


def _rank(op: Operator) -> tuple[int, list[MultiIndex]]:
    """Return the sort key of an operator: by order, then by coordinates."""
    return max(sum(i) for i, _ in op), [tuple(-k for k in i) for i, _ in op]


def _below(index: MultiIndex) -> list[MultiIndex]:
    """Return the multi-indices below `index`, without `index` and zero."""
    ranges = [range(k + 1) for k in index]
    return [i for i in itertools.product(*ranges) if i != index and any(i)]


def _products(op: Operator, place: Mapping[Operator, int]) -> tuple[StreamProduct, ...]:
    total: Counter[tuple[int, ...]] = Counter()
    for index, coefficient in op:
        # d2/dx2 d/dy is the set {x, x, y} of three differentiations, each of which is distinct in
        # the formula: equal blocks are counted as often as they arise.
        letters = [d for d, k in enumerate(index) for _ in range(k)]
        for blocks in _partitions(list(range(len(letters)))):
            if len(blocks) > 1:
                streams = sorted(
                    place[operator(_as_index([letters[i] for i in block], len(index)))]
                    for block in blocks
                )
                total[tuple(streams)] += coefficient  # type: ignore[assignment]
    return tuple(StreamProduct(len(f), float(c), f) for f, c in sorted(total.items()))


def _partitions(items: list[int]) -> Iterable[list[list[int]]]:
    """Yield all partitions of a set into blocks."""
    if not items:
        yield []
        return
    head, *rest = items
    for partition in _partitions(rest):
        yield [[head], *partition]
        for i, block in enumerate(partition):
            yield [*partition[:i], [head, *block], *partition[i + 1 :]]


def _as_index(letters: list[int], dims: int) -> MultiIndex:
    return tuple(letters.count(d) for d in range(dims))


def _leibniz(op: Operator, place: Mapping[Operator, int]) -> tuple[Leibniz, ...]:
    dims = len(op[0][0])
    terms = [Leibniz(1.0, (0,) * dims, place[op])]
    total: Counter[tuple[MultiIndex, int]] = Counter()
    for index, coefficient in op:
        for weight in [*_below(index), index]:
            if not any(weight):
                continue
            rest = tuple(a - b for a, b in zip(index, weight, strict=True))
            # Of a differentiations, b go to the weight in C(a, b) ways, along each coordinate.
            ways = math.prod(math.comb(a, b) for a, b in zip(index, weight, strict=True))
            total[(weight, place[operator(rest)])] += coefficient * ways  # type: ignore[assignment]
    terms += [Leibniz(float(c), w, f) for (w, f), c in sorted(total.items())]
    return tuple(terms)
