"""Tags that mark the distributed dimension of a tensor, and their propagation by operations."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from operator import index
from typing import Any

import torch
from torch import Tensor, nn

_NAME = "_scitoolkit_tag"
SOURCE, TARGET, EITHER = "source", "target", "either"


@dataclass(frozen=True)
class Tag:
    """Tag of a tensor with a dimension that is distributed over the ranks.

    Attributes:
        dim: the distributed dimension.
        ids: number of each entry, unique over all ranks, shape (entries,); None if unknown. Node
            numbers for nodes; edge number plus the number of nodes for edges.
        role: for a tensor of node indices, the end of the edges: `source` indices include the
            halo, `target` indices are local nodes; a tuple with an entry per row of an edge_index.
        is_section: whether the entries are those between two constants, as in `x[:64]`. They are
            other rows than the plain model's, and on the small graph of the check all rows.
    """

    dim: int
    ids: Tensor | None = None
    role: str | tuple[str, ...] | None = None
    is_section: bool = False


class DistributedCount(int):
    """Number of local rows, in a shape; everything that is computed from it is of all ranks.

    Sums and products with numbers are the local count where a shape needs one. Comparisons,
    divisions, remainders and powers, which decide or scale, use the number on all ranks.

    Attributes:
        total: returns the number of rows on all ranks.
        converted: called when `int` makes a plain number of it, which is the local one.
    """

    total: Callable[[], int]
    converted: Callable[[], None]

    @classmethod
    def with_total(
        cls, size: int, total: Callable[[], int], converted: Callable[[], None]
    ) -> DistributedCount:
        """Return a count of `size` local rows."""
        count = cls(size)
        count.total, count.converted = total, converted
        return count

    def __int__(self) -> int:
        self.converted()
        return self.__index__()

    def __hash__(self) -> int:
        return int.__hash__(self)

    def __bool__(self) -> bool:
        return self.total() != 0

    def __float__(self) -> float:
        return float(self.total())

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, DistributedCount):
            return self.total() == other.total()
        # Layers compare sizes with the largest index + 1, which is a local number.
        return int.__eq__(self, other) is True or self.total() == other

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        return self.total() < _total(other)

    def __le__(self, other: Any) -> bool:
        return self.total() <= _total(other)

    def __gt__(self, other: Any) -> bool:
        return self.total() > _total(other)

    def __ge__(self, other: Any) -> bool:
        return self.total() >= _total(other)

    def __truediv__(self, other: Any) -> Any:
        return self.total() / _total(other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.total()

    def __floordiv__(self, other: Any) -> Any:
        return self.total() // _total(other)

    def __rfloordiv__(self, other: Any) -> Any:
        return other // self.total()

    def __mod__(self, other: Any) -> Any:
        return self.total() % _total(other)

    def __rmod__(self, other: Any) -> Any:
        return other % self.total()

    def __divmod__(self, other: Any) -> Any:
        return divmod(self.total(), _total(other))

    def __rdivmod__(self, other: Any) -> Any:
        return divmod(other, self.total())

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        return pow(self.total(), _total(other), modulo)

    def __rpow__(self, other: Any, modulo: Any = None) -> Any:
        return pow(other, self.total(), modulo)

    def __neg__(self) -> Any:
        return self._computed(operator.sub, 0, self)

    def __abs__(self) -> Any:
        return self

    def __round__(self, digits: Any = 0) -> Any:
        return self

    def __add__(self, other: Any) -> Any:
        return self._computed(operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return self._computed(operator.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return self._computed(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._computed(operator.sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return self._computed(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._computed(operator.mul, other, self)

    @staticmethod
    def _computed(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        if any(isinstance(side, (list, tuple, str)) for side in (a, b)):
            return function(*(index(side) if isinstance(side, int) else side for side in (a, b)))
        if not (isinstance(a, int) and isinstance(b, int)):
            return function(_total(a), _total(b))
        size = function(index(a), index(b))
        counted = next(side for side in (a, b) if isinstance(side, DistributedCount))
        return DistributedCount.with_total(
            size, lambda: function(_total(a), _total(b)), counted.converted
        )


class RowCount(DistributedCount):
    """Number of local rows from `x.size(0)`.

    Attributes:
        tag: tag of the dimension.
    """

    tag: Tag

    @classmethod
    def of(
        cls, size: int, tag: Tag, total: Callable[[], int], converted: Callable[[], None]
    ) -> RowCount:
        """Return the size of a dimension with its tag."""
        count = cls(size)
        count.tag, count.total, count.converted = tag, total, converted
        return count


def _total(number: Any) -> Any:
    return number.total() if isinstance(number, DistributedCount) else number


def tag_of(tensor: Any) -> Tag | None:
    """Return the tag of a tensor, or None; parameters and non-tensors have no tag."""
    if not isinstance(tensor, Tensor) or isinstance(tensor, nn.Parameter):
        return None
    return getattr(tensor, _NAME, None)


def put_tag(tensor: Tensor, tag: Tag | None) -> Tensor:
    """Set or remove the tag of a tensor; return the tensor."""
    setattr(tensor, _NAME, tag)
    return tensor


def role_of(tensor: Any) -> str | tuple[str, ...] | None:
    """Return the role of the node indices in a tensor."""
    tag = tag_of(tensor)
    return tag.role if tag is not None else None


def flat(arguments: Any) -> Iterator[Any]:
    """Yield arguments, flattening lists and tuples."""
    for argument in arguments:
        if isinstance(argument, (tuple, list)):
            yield from flat(argument)
        else:
            yield argument


def after(name: str, tag: Tag, argument: Tensor, out: Tensor, args: Any) -> Tag | None:
    """Return the tag of a result whose first tagged argument is `argument`.

    Elementwise operations and those on other dimensions keep the position of the dimension, counted
    from the left, or from the right if broadcasting adds dimensions.
    """
    dim = _moved(name, tag.dim, argument, out, args)
    if dim is None:
        return None
    # Fewer or more rows than before are other rows, whose numbers are unknown.
    ids = tag.ids if out.size(dim) == argument.size(tag.dim) else None
    return replace(tag, dim=dim, ids=ids)


def _moved(name: str, dim: int, argument: Tensor, out: Tensor, args: Any) -> int | None:
    if name in _MOVES and not (name == "squeeze" and out.dim() == argument.dim()):
        return _MOVES[name](dim, argument, out, args)
    size = argument.size(dim)
    # From the right first: broadcasting adds dimensions on the left.
    places = [dim] if out.dim() == argument.dim() else [dim + out.dim() - argument.dim(), dim]
    for place in places:
        if 0 <= place < out.dim() and out.size(place) == size:
            return place
    return None


def _reshaped(dim: int, argument: Tensor, out: Tensor, args: Any) -> int | None:
    """Return the dimension of equal size with equally many elements before it."""
    # Row-major order: a dimension keeps its meaning under a reshape if as many elements precede it
    # and its extent is the same. (N, 8 * 4) to (N, 8, 4) keeps N; (N, 4) to (4, N) does not.
    before = math.prod(argument.shape[:dim])
    places = [
        place
        for place in range(out.dim())
        if math.prod(out.shape[:place]) == before and out.size(place) == argument.size(dim)
    ]
    # With one local row, dimensions of extent 1 are alike: the shape in the call says which it is.
    sizes = dict(enumerate(flat(args[1:])))
    stated = [p for p in places if isinstance(sizes.get(p), DistributedCount) or sizes.get(p) == -1]
    return next(iter(stated or places), None)


def _transposed(dim: int, argument: Tensor, out: Tensor, args: Any) -> int | None:
    a, b = (-1, -2) if len(args) < 3 else args[1:3]
    a, b = a % argument.dim(), b % argument.dim()
    return {a: b, b: a}.get(dim, dim)


def _permuted(dim: int, argument: Tensor, out: Tensor, args: Any) -> int | None:
    order = [d % argument.dim() for d in flat(args[1:])]
    return order.index(dim)


def _moved_dim(dim: int, argument: Tensor, out: Tensor, args: Any) -> int | None:
    return (
        # A small tensor with extent 2 in the distributed dimension and 1 elsewhere goes through the
        # same call: the 2 shows where the dimension ends up.
        torch.empty([1 + (d == dim) for d in range(argument.dim())])
        .movedim(*args[1:])
        .shape.index(2)
    )


def _unsqueezed(dim: int, argument: Tensor, out: Tensor, args: Any) -> int | None:
    return dim + (dim >= args[1] % out.dim())


def _squeezed(dim: int, argument: Tensor, out: Tensor, args: Any) -> int | None:
    gone = [d for d in range(argument.dim()) if argument.size(d) == 1]
    if len(args) > 1:
        # A dimension of another extent stays.
        named = [d % argument.dim() for d in flat(args[1:])]
        gone = [d for d in named if argument.size(d) == 1]
    return None if dim in gone else dim - sum(d < dim for d in gone)


def _selected(dim: int, argument: Tensor, out: Tensor, args: Any) -> int | None:
    gone = args[1] % argument.dim()
    return None if dim == gone else dim - (dim > gone)


_MOVES: dict[str, Callable[..., int | None]] = {
    "t": _transposed,
    "T": _transposed,
    "H": _transposed,
    "mT": _transposed,
    "mH": _transposed,
    "adjoint": _transposed,
    "transpose": _transposed,
    "swapaxes": _transposed,
    "swapdims": _transposed,
    "permute": _permuted,
    "movedim": _moved_dim,
    "moveaxis": _moved_dim,
    "unsqueeze": _unsqueezed,
    "squeeze": _squeezed,
    "select": _selected,
    "view": _reshaped,
    "reshape": _reshaped,
    "flatten": _reshaped,
    "unflatten": _reshaped,
}
