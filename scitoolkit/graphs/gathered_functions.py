"""Functions without a rule: on own rows where they act on each row alone, else on all rows.

No function is taken to act row by row because nothing else is known of it. Torch marks the
operations that act on each element; the tables below hold what moves, reads or fills elements, and
say along which dimensions the others work. All that is left, such as a sort of the nodes, a matrix
inverse over them or a loss that is averaged, is computed on every rank from the rows of all ranks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from scitoolkit.graphs.local_rows import LocalRows, Unsupported
from scitoolkit.graphs.tags import DistributedCount, Tag, flat, put_tag, tag_of

# --- what acts on each row alone ------------------------------------------------------------------

_SAME_ELEMENTS = """
    T H mT mH adjoint alias_copy atleast_1d atleast_2d atleast_3d broadcast_tensors
    broadcast_to clone conj contiguous detach detach_ expand expand_as flatten moveaxis movedim
    permute ravel repeat_interleave requires_grad_ reshape reshape_as resolve_conj resolve_neg
    squeeze swapaxes swapdims t transpose unflatten unsqueeze view view_as
    view_as_complex view_as_real real imag chalf pin_memory
    bfloat16 bool byte cdouble cfloat char cpu cuda data double float half int long numpy_T short to
    type type_as dequantize
""".split()
_FILLS = """
    copy_ fill_ zero_ empty_like full_like ones_like zeros_like new_empty new_full new_ones
    new_tensor new_zeros __setitem__ index_put index_put_ index_fill index_fill_ index_copy
    index_copy_ masked_scatter masked_scatter_
""".split()
_SELECTS = "argwhere masked_select nonzero nonzero_static where".split()
_READS = """
    __bool__ __complex__ __deepcopy__ __float__ __format__ __index__ __int__ __len__ __reduce_ex__
    __repr__ __reversed__ backward data_ptr dense_dim dim dim_order element_size get_device
    has_names is_coalesced is_complex is_conj is_contiguous is_floating_point is_inference is_neg
    is_nonzero is_pinned is_same_size is_set_to is_shared is_signed item ndimension nbytes
    register_hook register_post_accumulate_grad_hook retain_grad sparse_dim storage storage_offset
    stride untyped_storage
""".split()
_SPARSE = """
    _indices _values coalesce crow_indices ccol_indices col_indices indices row_indices sparse_mask
    to_dense to_sparse to_sparse_coo to_sparse_csc to_sparse_csr values
""".split()
_ALIASES = """
    absolute arccos arccosh arcsin arcsinh arctan arctan2 arctanh divide fix floor_divide
    greater greater_equal less less_equal multiply negative not_equal subtract isclose isreal
    log_sigmoid logsigmoid hardswish complex polar prelu softsign tanhshrink hardshrink softshrink
    __and__ __floordiv__ __iand__ __ifloordiv__ __imod__ __invert__ __ior__ __irshift__ __ixor__
    __mod__ __or__ __rand__ __rfloordiv__ __rlshift__ __rmod__ __ror__ __rrshift__ __rshift__
    __rxor__ __xor__ __lshift__ __ilshift__
""".split()
_NOT_SPECIAL = ("special_softmax", "special_log_softmax", "special_logsumexp")
_COMPUTES = frozenset([*_ALIASES, "full_like", "fill_", "masked_fill", "masked_fill_"])
BY_ROW = frozenset(_SAME_ELEMENTS + _FILLS + _SELECTS + _READS + _SPARSE)
"""Names of functions that act on each element or row alone, or read what all rows share."""

# Functions that make tensors of values; the positions of these.
_VALUES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys("tensor as_tensor scalar_tensor".split(), (0,)),
    **dict.fromkeys("full full_like new_tensor".split(), (1,)),
    "new_full": (2,),
    "linspace": (0, 1),
}

# Dimension along which a function works: the position of its argument `dim`, and the default.
_ALONG: dict[str, tuple[int | None, int]] = {
    **dict.fromkeys("argsort sort glu".split(), (1, -1)),
    **dict.fromkeys("cummax cummin cumsum_ cumprod_".split(), (1, -1)),
    **dict.fromkeys(
        """cross diff fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft linalg_cross
        linalg_vecdot""".split(),
        (2, -1),
    ),
    "cosine_similarity": (2, 1),
    **dict.fromkeys("chunk split split_with_sizes tensor_split unsafe_split".split(), (2, 0)),
    **dict.fromkeys("narrow select unfold".split(), (1, 0)),
    "take_along_dim": (2, 0),
    "msort": (None, 0),
}

# Number of last dimensions that a function works on; those before are rows.
_LAST: dict[str, int] = {
    **dict.fromkeys("linear bilinear pairwise_distance diag_embed".split(), 1),
    **dict.fromkeys(
        """baddbmm cdist cholesky cholesky_inverse cholesky_solve det inverse linalg_cholesky
        linalg_cholesky_ex linalg_det linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh
        linalg_inv linalg_inv_ex linalg_lstsq linalg_lu linalg_matrix_exp linalg_matrix_norm
        linalg_matrix_power linalg_matrix_rank linalg_pinv linalg_qr linalg_slogdet linalg_solve
        linalg_solve_triangular linalg_svd linalg_svdvals logdet matrix_exp matrix_power pinverse qr
        slogdet svd triangular_solve tril tril_ triu triu_""".split(),
        2,
    ),
}

_OVER_PLACES = """
    conv conv_transpose avg_pool max_pool lp_pool adaptive_avg_pool adaptive_max_pool
""".split()
# The first dimension is a batch, of at least this many dimensions.
_BATCHED: dict[str, int] = {
    **dict.fromkeys("gru_cell lstm_cell rnn_relu_cell rnn_tanh_cell group_norm".split(), 2),
    **dict.fromkeys(("local_response_norm", "interpolate"), 3),
    **{f"{name}{n}d": n + 2 for n in (1, 2, 3) for name in _OVER_PLACES},
    **dict.fromkeys(("pixel_shuffle", "pixel_unshuffle"), 4),
}
_SEQUENCES = ("gru", "lstm", "rnn_relu", "rnn_tanh")  # batch_first is their last argument
# Aggregations sort messages and group them by target. All messages of a target are on one rank, so
# that its own order is that of each group; whether it is read in another way, the proof tells.
_ORDERS_EDGES = ("sort", "argsort", "take_along_dim")
_CASTS = ("double", "float", "half", "to", "type", "type_as")
_TO_PYTHON = ("numpy", "tolist", "__array__", "__dlpack__")


@functools.cache
def by_element(name: str) -> bool:
    """Return whether a function of this name acts on each element, as torch's operators say.

    Example:
        >>> by_element("relu_"), by_element("__radd__"), by_element("sort")
        (True, True, False)
    """
    return name.removesuffix("_") in BY_ROW or name in BY_ROW or computes(name)


@functools.cache
def computes(name: str) -> bool:
    """Return whether a function computes each element from those at its place and from numbers.

    Example:
        >>> computes("add"), computes("__rpow__"), computes("view")
        (True, True, False)
    """
    plain = name.strip("_") if name.startswith("__") else name.removesuffix("_")
    special = plain.startswith("special_") and plain not in _NOT_SPECIAL
    if special or plain in _COMPUTES or name in _COMPUTES:
        return True
    names = [plain]
    if name.startswith("__"):
        names.append(plain[1:])  # __radd__ and __iadd__ are add
    for operator in names:
        packet = getattr(torch.ops.aten, operator, None)
        if packet is not None and any(
            torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads()
        ):
            return True
    return False


def with_totals(name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return arguments in which a row count that real numbers are computed with is of all ranks.

    One that integers are computed with, such as an offset of local node numbers, stays.
    """
    every = (*args, *kwargs.values())
    if not any(isinstance(a, DistributedCount) for a in every):
        return args, kwargs
    if name in _VALUES:
        return _real_values(name, args, kwargs)
    if not computes(name) or not any(
        isinstance(a, Tensor) and a.is_floating_point() for a in every
    ):
        return args, kwargs
    return tuple(map(_total, args)), {key: _total(value) for key, value in kwargs.items()}


def _total(value: Any) -> Any:
    return value.total if isinstance(value, DistributedCount) else value


def _real_values(name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments of a function that makes tensors of given values."""
    like = next((a for a in args if isinstance(a, Tensor)), None)
    dtype = kwargs.get("dtype") or (like.dtype if like is not None else None)
    if name != "linspace" and not (dtype is not None and dtype.is_floating_point):
        return args, kwargs
    places, keys = _VALUES[name], ("fill_value", "data", "start", "end")
    args = tuple(_total(a) if place in places else a for place, a in enumerate(args))
    return args, {key: _total(a) if key in keys else a for key, a in kwargs.items()}


def reads_places(name: str, args: Any, kwargs: Any, out: Any) -> bool:
    """Return whether numbers of local nodes are compared with, or become, those of all ranks."""
    every = (*args, *kwargs.values())
    tags = [tag for a in every if (tag := tag_of(a)) is not None]
    if not isinstance(out, Tensor) or not any(tag.role or tag.is_place for tag in tags):
        return False
    if name in _CASTS:
        return out.is_floating_point()
    # Sums and multiples, such as offsets of a second set of nodes, are numbers of local nodes.
    reads = computes(name) and name.strip("_").lstrip("ri") not in ("add", "sub", "mul")
    other = any(tag_of(a) is None and not isinstance(a, DistributedCount) for a in every)
    return other and (reads or name in ("isin", "bucketize", "searchsorted"))


def acts_by_row(name: str, args: Any, kwargs: Any, nodes: Tensor) -> bool:
    """Return whether a function acts on each distributed row alone.

    Args:
        name: of the torch function.
        args, kwargs: its arguments, of which some may be tagged.
        nodes: numbers of this rank's nodes, by which their tags are known.
    """
    if by_element(name):
        return True
    if not name.startswith("__"):
        name = name.removeprefix("_").removesuffix("_with_indices")
    tagged = [(x, tag) for x in flat((args, tuple(kwargs.values()))) if (tag := tag_of(x))]
    # Numbers of nodes are local; what is done with them is compared by the proof.
    if not tagged or any(tag.role is not None for _, tag in tagged):
        return True
    if name in _ORDERS_EDGES and not any(tag.ids is nodes for _, tag in tagged):
        return True
    return all(_row_alone(name, x, tag.dim, args, kwargs) for x, tag in tagged)


def _row_alone(name: str, x: Tensor, rows: int, args: Any, kwargs: Any) -> bool:
    """Return whether a function keeps to each row of one of its tensors."""
    if name in _ALONG:
        place, default = _ALONG[name]
        positional = default if place is None or len(args) <= place else args[place]
        dim = kwargs.get("dim", positional)
        return isinstance(dim, int) and dim % max(1, x.dim()) != rows
    if name in _LAST:
        return rows < x.dim() - _LAST[name]
    if name in _BATCHED:
        return rows == 0 and x.dim() >= _BATCHED[name]
    if name in _SEQUENCES:
        return rows == (0 if args[-1] is True else 1)
    special = _SPECIAL.get(name)
    return special is not None and special(x, rows, args, kwargs)


def _first_only(x: Tensor, rows: int, args: Any, kwargs: Any) -> bool:
    """Rows are looked up in a table that all ranks share."""
    return bool(args) and x is args[0]


def _second_only(x: Tensor, rows: int, args: Any, kwargs: Any) -> bool:
    return len(args) > 1 and x is args[1]


def _with_classes(x: Tensor, rows: int, args: Any, kwargs: Any) -> bool:
    """Without a number of classes it is the largest of all rows plus one."""
    return kwargs.get("num_classes", args[1] if len(args) > 1 else -1) > 0


def _padded(x: Tensor, rows: int, args: Any, kwargs: Any) -> bool:
    pad = kwargs.get("pad", args[1] if len(args) > 1 else ())
    return rows < x.dim() - len(pad) // 2


def _normalised(x: Tensor, rows: int, args: Any, kwargs: Any) -> bool:
    shape = kwargs.get("normalized_shape", args[1] if len(args) > 1 else ())
    return rows < x.dim() - len(shape)


def _repeated(x: Tensor, rows: int, args: Any, kwargs: Any) -> bool:
    times = list(flat(args[1:])) or list(flat(kwargs.values()))
    return len(times) >= x.dim() and times[rows + len(times) - x.dim()] == 1


def _rolled(x: Tensor, rows: int, args: Any, kwargs: Any) -> bool:
    dims = kwargs.get("dims", args[2] if len(args) > 2 else None)
    return dims is not None and rows not in [d % x.dim() for d in flat((dims,))]


def _unreduced(x: Tensor, rows: int, args: Any, kwargs: Any) -> bool:
    return kwargs.get("reduction") == "none"


_SPECIAL: dict[str, Callable[[Tensor, int, Any, Any], bool]] = {
    **dict.fromkeys(("bucketize", "embedding", "isin"), _first_only),
    "searchsorted": _second_only,
    "one_hot": _with_classes,
    "pad": _padded,
    "rms_norm": _normalised,
    "repeat": _repeated,
    "tile": _repeated,
    "roll": _rolled,
    **dict.fromkeys(
        """binary_cross_entropy binary_cross_entropy_with_logits cross_entropy gaussian_nll_loss
        huber_loss kl_div l1_loss mse_loss nll_loss poisson_nll_loss smooth_l1_loss""".split(),
        _unreduced,
    ),
}

# --- on the rows of all ranks ---------------------------------------------------------------------


def on_all_rows(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Call a function on the rows of all ranks and return this rank's rows of its results.

    A result that has no dimension of all rows, such as a loss, is the same on all ranks.

    Raises:
        Unsupported: the function writes into its argument, or gives the rows to Python.
    """
    if name in _TO_PYTHON:
        raise Unsupported(f"{name} of rows that are divided among processes")
    if name.endswith("_") and not name.startswith("__"):
        raise Unsupported(f"{name} in place on rows that are divided among processes")
    first: tuple[Tensor, Tag, Tensor] | None = None

    def gathered(value: Any) -> Any:
        nonlocal first
        if isinstance(value, DistributedCount):
            return value.total
        if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
            return type(value)([gathered(part) for part in value])
        tag = tag_of(value)
        if tag is None:
            return value
        whole = local.whole(value)
        first = first or (whole, tag, local.places(value))
        return whole

    args = tuple(gathered(value) for value in args)
    out = func(*args, **{key: gathered(value) for key, value in kwargs.items()})
    assert first is not None, name
    whole, tag, places = first

    def own(value: Any) -> Any:
        if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
            return type(value)([own(part) for part in value])
        if not isinstance(value, Tensor):
            return value
        # As broadcasting, some functions add dimensions on the left.
        for dim in (tag.dim, tag.dim + value.dim() - whole.dim()):
            if 0 <= dim < value.dim() and value.size(dim) == len(whole.movedim(tag.dim, 0)):
                return put_tag(value.index_select(dim, places), Tag(dim, tag.ids))
        return value

    return own(out)
