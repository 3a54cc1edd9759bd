"""Random numbers of distributed rows, which depend on node and edge numbers, not on the partition.

The numbers of row i are those of counter i of a counter-based generator. In the check the plain
model draws them by position, so that both draw the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from scitoolkit.graphs.local_rows import LocalRows, Rule, Unsupported
from scitoolkit.graphs.tags import DistributedCount, RowCount, Tag, flat, put_tag, tag_of
from scitoolkit.ops.node_dropout.reference import random_bits, signed

_UNIFORM, _NORMAL = ("rand", "rand_like", "uniform_"), ("randn", "randn_like", "normal_")
_DRAWN = (*_UNIFORM, *_NORMAL, "exponential_", "bernoulli", "bernoulli_")
_OTHERS = (
    *("randint", "randint_like", "randperm", "multinomial", "normal", "poisson", "random_"),
    *("alpha_dropout_", "feature_alpha_dropout", "feature_dropout"),
    *("rrelu", "rrelu_", "geometric_", "cauchy_", "log_normal_", "binomial"),
)


def by_position(draws: Callable[[], int], func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Call a function; random numbers are those of the position of their row.

    Args:
        draws: returns the number of the next draw.
        func: torch function.
        name: its name.
        args, kwargs: its arguments.
    """
    if name == "gumbel_softmax":
        return _gumbel(
            lambda x: by_position(draws, None, "exponential_", (x,), {}), *args, **kwargs
        )
    if name not in _DRAWN or kwargs.get("generator") is not None:
        return func(*args, **kwargs)
    out = _like(func, name, args, kwargs)
    rows = torch.arange(len(out) if out.dim() else 1, device=out.device)
    return _filled(out, rows, draws(), name, args, kwargs)


def _drawn(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    tag = _tag(args, kwargs)
    if tag is None and local.seed is not None:
        return func(*args, **kwargs)  # the generators are equal on all ranks
    if tag is not None and (tag.dim or tag.ids is None or kwargs.get("generator") is not None):
        if local.ranks.size == 1:
            return local.passed(func, name, args, kwargs)
        raise Unsupported(f"{name} of rows that are neither nodes nor edges")
    out = _like(func, name, args, kwargs)
    if tag is None or tag.ids is None:
        return by_position(local.next_draw, func, name, args, kwargs)
    # The plain model of the check draws by position, from 0 for nodes and for edges alike.
    first = local.part.num_nodes  # the number of the first edge
    rows = torch.where(tag.ids >= first, tag.ids - first, tag.ids)
    return put_tag(_filled(out, rows, local.next_draw(), name, args, kwargs), Tag(0, tag.ids))


def _gumbel_softmax(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    x = args[0] if args else kwargs["logits"]
    tag = tag_of(x)
    if tag is None:
        return func(*args, **kwargs)
    dim = kwargs.get("dim", args[4] if len(args) > 4 else -1)
    if dim % x.dim() == tag.dim and local.ranks.size > 1:
        raise Unsupported("gumbel_softmax over nodes or edges")

    def noise(like: Tensor) -> Tensor:
        return _drawn(local, None, "exponential_", (put_tag(like, tag),), {})

    return put_tag(_gumbel(noise, *args, **kwargs), tag)


def _gumbel(
    exponential: Callable[[Tensor], Tensor],
    logits: Tensor,
    tau: float = 1.0,
    hard: bool = False,
    eps: float = 0.0,
    dim: int = -1,
) -> Tensor:
    """Gumbel softmax like torch's, with exponential numbers from a function."""
    # -log(E) of an exponential number E is Gumbel distributed, so that the argmax of logits + noise
    # is a sample of softmax(logits) (Jang et al. 2017, eq. 1).
    noise = -exponential(torch.empty_like(logits, requires_grad=False)).log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    one = torch.zeros_like(logits).scatter_(dim, soft.max(dim, keepdim=True)[1], 1.0)
    # Straight-through estimator: the value is one-hot, the gradient that of the softmax.
    return one - soft.detach() + soft


def _refused(local: LocalRows, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    counts = any(isinstance(a, DistributedCount) for a in flat((args, tuple(kwargs.values()))))
    if local.ranks.size > 1 and (counts or _tag(args, kwargs) is not None):
        raise Unsupported(f"random numbers of {name} for nodes or edges")
    return local.passed(func, name, args, kwargs)


def _tag(args: Any, kwargs: Any) -> Tag | None:
    """Return the tag of the first argument with one, or of a row count in a shape."""
    sizes = 0
    for argument in flat((args, tuple(kwargs.values()))):
        if isinstance(argument, RowCount):
            return Tag(sizes, argument.tag.ids)
        if (tag := tag_of(argument)) is not None:
            return tag
        sizes += isinstance(argument, int)
    return None


def _like(func: Any, name: str, args: Any, kwargs: Any) -> Tensor:
    """Return a tensor for the result, without drawing random numbers."""
    if name in ("rand", "randn"):
        device = kwargs.get("device") or torch.get_default_device()
        return torch.empty_like(func(*args, **{**kwargs, "device": "meta"}), device=device)
    x = args[0] if args else kwargs["input"]
    if name.endswith("_"):
        return x
    return torch.empty_like(x, dtype=kwargs.get("dtype"), device=kwargs.get("device"))


@torch.no_grad()
def _filled(out: Tensor, rows: Tensor, draw: int, name: str, args: Any, kwargs: Any) -> Tensor:
    width = out.numel() // max(1, len(rows))
    # Uniform in (0, 1), at the middles of 2^24 intervals: never 0, whose logarithm is infinite.
    first, second = (
        (random_bits(rows, width, signed(2 * draw + k)).double() + 0.5) / 2**24 for k in (0, 1)
    )
    values = first
    if name in _NORMAL:
        # Box and Muller (1958).
        values = (-2 * first.log()).sqrt() * (2 * math.pi * second).cos()
        if name == "normal_":
            mean, deviation = _numbers(args, kwargs, ("mean", 0.0), ("std", 1.0))
            values = mean + deviation * values
    elif name == "uniform_":
        low, high = _numbers(args, kwargs, ("from", 0.0), ("to", 1.0))
        values = low + (high - low) * values
    elif name == "exponential_":
        (rate,) = _numbers(args, kwargs, ("lambd", 1.0))
        # Inverse of the distribution function 1 - exp(-rate x), at 1 - first.
        values = -first.log() / rate
    elif name in ("bernoulli", "bernoulli_"):
        default = 0.5 if name == "bernoulli_" else args[0]
        p = args[1] if len(args) > 1 else kwargs.get("p", default)
        values = (first.view(out.shape) < p).double()
    return out.copy_(values.view(out.shape))


def _numbers(args: Any, kwargs: Any, *defaults: tuple[str, float]) -> list[float]:
    rest = list(args[1:])
    return [rest[i] if i < len(rest) else kwargs.get(n, d) for i, (n, d) in enumerate(defaults)]


RULES: dict[str, Rule] = {
    **dict.fromkeys(_DRAWN, _drawn),
    **dict.fromkeys(_OTHERS, _refused),
    "gumbel_softmax": _gumbel_softmax,
}
