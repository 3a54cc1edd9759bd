"""Tags that mark the distributed dimension of a tensor, and their propagation by operations."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from operator import index
from typing import Any, Self

import torch
from torch import Tensor, nn

from scitoolkit.graphs.code_owner import code_owner

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
        is_place: whether the values follow from places among the local rows, as of `arange(n)`.
    """

    dim: int
    ids: Tensor | None = None
    role: str | tuple[str, ...] | None = None
    is_section: bool = False
    is_place: bool = False


class DistributedCount(int):
    """Number of local rows, in a shape of a local tensor.

    Attributes:
        total: the number on all ranks.
    """

    total: int

    @classmethod
    def of(cls, size: int, total: int) -> Self:
        """Return a count of `size` local rows."""
        count = cls(size)
        count.total = total
        return count


class RowCount(DistributedCount):
    """Number of local rows from `x.size(0)`.

    Attributes:
        tag: tag of the dimension.
    """

    tag: Tag


class TotalCount(int):
    """Number of rows on all ranks, which a model reads from `x.size(0)`; torch takes the local one.

    Whatever Python computes from it is of all ranks. Sums and products with integers are counts
    themselves, since a model makes shapes of them.

    Attributes:
        local: the number of local rows; None for a number that has none.
        converted: called when `int` makes a plain number of it, which is the local one.
    """

    # Not the other way round: `.5 * n`, `math.log(n)` and `range(n)` read the value of an integer
    # without a call that could be intercepted, but every call of torch is.

    local: DistributedCount | None = None
    converted: Callable[[], None]

    @classmethod
    def of(cls, local: DistributedCount, converted: Callable[[], None]) -> TotalCount:
        """Return the total of a number of local rows."""
        count = cls(local.total)
        count.local, count.converted = local, converted
        return count

    def __int__(self) -> int:
        if self.local is None:
            return self.__index__()
        self.converted()
        return self.local.__index__()

    def __hash__(self) -> int:
        return int.__hash__(self)

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, TotalCount) or self.local is None or self.local != other:
            return int.__eq__(self, other) is True
        # Layers compare sizes with the largest index + 1, which is a local number.
        in_library = code_owner(sys._getframe(1).f_code) != "user"
        return in_library or int.__eq__(self, other) is True

    def __ne__(self, other: Any) -> bool:
        in_library = code_owner(sys._getframe(1).f_code) != "user"
        return not (self == other if in_library else int.__eq__(self, other) is True)

    def __abs__(self) -> Any:
        return self if index(self) >= 0 else -self

    def __round__(self, digits: Any = 0) -> Any:
        return round(index(self), digits) if digits else self

    def __neg__(self) -> Any:
        return self._computed(operator.sub, 0, self)

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

    def _computed(self, function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        if any(isinstance(side, (list, tuple, str)) for side in (a, b)):
            # `n * [0]` becomes a tensor of local rows.
            return function(*(int(side) if isinstance(side, int) else side for side in (a, b)))
        if not (isinstance(a, int) and isinstance(b, int)):
            return NotImplemented
        total = function(index(a), index(b))
        if self.local is None:
            return total
        local = function(*(index(localised(side)) for side in (a, b)))
        return TotalCount.of(DistributedCount.of(local, total), self.converted)


def localised(value: Any) -> Any:
    """Return an argument of torch, with numbers of local rows instead of those of all ranks."""
    if isinstance(value, TotalCount):
        return index(value) if value.local is None else value.local
    kind = type(value)
    if kind in (tuple, list, torch.Size):
        return kind([localised(part) for part in value])
    if kind is dict:
        return {key: localised(part) for key, part in value.items()}
    if kind is slice:
        return slice(*(localised(bound) for bound in (value.start, value.stop, value.step)))
    return value


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
        return _merged(tag, argument, out) if _MOVES.get(name) is _reshaped else None
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


def _merged(tag: Tag, argument: Tensor, out: Tensor) -> Tag | None:
    """Return the tag of rows that a reshape joins with the features after them, or parts again.

    Row r of n features becomes the rows r n, ..., r n + n - 1, as in `x.view(-1, 3)` of x (N, 6).
    """
    before, size = math.prod(argument.shape[: tag.dim]), argument.size(tag.dim)
    for dim in range(out.dim()):
        rows = out.size(dim)
        if math.prod(out.shape[:dim]) != before or min(rows, size) == 0:
            continue
        if rows % size == 0 and rows > size:
            ids = tag.ids
            if ids is not None:
                places = torch.arange(rows // size, device=ids.device)
                ids = (ids[:, None] * len(places) + places).flatten()
            return Tag(dim, ids)
        if size % rows == 0 and tag.ids is not None:
            parts = tag.ids.view(rows, -1)
            first = parts[:, :1]
            whole = first + torch.arange(size // rows, device=first.device)
            if bool((parts == whole).all() and (first % (size // rows) == 0).all()):
                return Tag(dim, first.flatten() // (size // rows))
    return None


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
    **dict.fromkeys("t T H mT mH adjoint transpose swapaxes swapdims".split(), _transposed),
    **dict.fromkeys(("movedim", "moveaxis"), _moved_dim),
    **dict.fromkeys("view reshape flatten unflatten".split(), _reshaped),
    "permute": _permuted,
    "unsqueeze": _unsqueezed,
    "squeeze": _squeezed,
    "select": _selected,
}
