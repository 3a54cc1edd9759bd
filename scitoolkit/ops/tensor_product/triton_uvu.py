"""Emitters of Triton for uvu and uuu paths, with vectors over the channels u of in1 and out.

    nodes     z[k]  += w sum_i a[i, k] x[i]
    senders   gx[i] += w sum_k a[i, k] g[k]
    edges     m[j]   = sum_ik C[i, j, k] x[i] g[k];  gw = sum_j y[j] m[j];  gy[j] += w m[j]

The double backward has their derivatives by the product rule, x -> (dx, x), w -> (dw, w),
a -> (b, a), y -> (dy, y). In uuu paths the attributes are vectors over u as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scitoolkit.ops.tensor_product.triton_terms import (
    ROWS,
    AssignedLines,
    Channels,
    TritonTerm,
    added,
    signed_sum,
    times,
)


def attribute_channels(term: TritonTerm, u: Channels) -> Iterable[int | Channels]:
    """Return the channels of the attributes; in uuu paths the block of channels itself."""
    return [u] if term.path.mode == "uuu" else range(term.sides[1].mul)


def weight_place(term: TritonTerm, row: str, v: int | Channels, u: Channels) -> str:
    """Return the address of a path's weights for one channel of the attributes."""
    if isinstance(v, Channels):
        return f"{row} + {term.path.weight_offset} + {u.name}"
    return f"{row} + {term.path.weight_offset + v} + {u.name} * {term.sides[1].mul}"


def _weights(
    term: TritonTerm, body: AssignedLines, v: int | Channels, u: Channels
) -> tuple[str, str]:
    """Return the variables of the weights and of their cotangent, empty without weights."""
    if not term.path.has_weight:
        return "", ""
    names = []
    for name in ("w", "f") if term.context.double else ("w",):
        value = term.context.load(weight_place(term, ROWS[name], v, u), u.mask)
        names.append(body.let(f"{name}{term.index}_{_tag(v)}", value))
    return names[0], names[-1] if term.context.double else ""


def _tag(v: int | Channels) -> str:
    return v.name if isinstance(v, Channels) else str(v)


def nodes(term: TritonTerm, body: AssignedLines, u: Channels, sums: dict[int, str]) -> None:
    """Emit the addition of one edge to the accumulators `sums[k]` of its receiver."""
    for v in attribute_channels(term, u):
        w, f = _weights(term, body, v, u)
        if len(term.columns) < len(term.rows):
            _nodes_by_columns(term, body, u, v, w, f, sums)
        else:
            _nodes_by_rows(term, body, u, v, w, f, sums)


def _nodes_by_columns(term, body, u, v, w, f, sums) -> None:
    for k in term.columns:
        total = term.over_rows(body, k, "a", v, lambda i: term.feature(body, "x", i, u))
        if not term.context.double:
            body.add(f"{sums[k]} += {times(w, f'({total})')}")
            continue
        by_x = term.over_rows(body, k, "a", v, lambda i: term.feature(body, "o", i, u))
        by_y = term.over_rows(body, k, "b", v, lambda i: term.feature(body, "x", i, u))
        body.add(f"{sums[k]} += {times(w, f'({added([by_x, by_y])})')}")
        if f:
            body.add(f"{sums[k]} += {f} * ({total})")


def _nodes_by_rows(term, body, u, v, w, f, sums) -> None:
    """Multiply by the weights once per component of in1, if these are not more than of out."""
    prefix = f"{term.index}_{_tag(v)}"
    for i in term.rows:
        x = term.feature(body, "x", i, u)
        left = body.let(f"t{prefix}_{i}", times(w, x))
        if term.context.double:
            value = times(w, term.feature(body, "o", i, u))
            varied = body.let(f"d{prefix}_{i}", f"{value} + {f} * {x}" if f else value)
        for (row, k), (_, sign) in term.pairs.items():
            if row != i:
                continue
            a = term.scalar(body, "a", i, k, v)
            if term.context.double:
                b = term.scalar(body, "b", i, k, v)
                value = f"{a} * {varied} + {b} * {left}"
            else:
                value = f"{a} * {left}"
            body.add(f"{sums[k]} {'+=' if sign > 0 else '-='} {value}")


def senders(term: TritonTerm, body: AssignedLines, u: Channels, sums: dict[int, str]) -> None:
    """Emit the addition of one edge to the accumulators `sums[i]` of its sender's gradient."""
    for v in attribute_channels(term, u):
        w, f = _weights(term, body, v, u)
        for i in term.rows:
            plain = term.over_columns(body, i, "a", v, lambda k: term.cotangent(body, k, u))
            if not term.context.double:
                body.add(f"{sums[i]} += {times(w, f'({plain})')}")
                continue
            varied = term.over_columns(body, i, "b", v, lambda k: term.cotangent(body, k, u))
            body.add(f"{sums[i]} += {times(w, f'({varied})')}")
            if f:
                body.add(f"{sums[i]} += {f} * ({plain})")


def _without_attributes(term: TritonTerm, body: AssignedLines, u: Channels) -> list[dict[int, str]]:
    """Return m[j] of x, and for the double backward that of its cotangent."""
    return [
        term.open_attributes(
            body,
            f"{name}{term.index}_",
            lambda i, array=array: term.feature(body, array, i, u),
            lambda k: term.cotangent(body, k, u),
        )
        for name, array in ((("m", "x"), ("l", "o")) if term.context.double else (("m", "x"),))
    ]


def _weight_gradient(term: TritonTerm, body: AssignedLines, v: int | Channels, products) -> str:
    parts = [(term.attribute(body, "y", j, v), value) for j, value in products[-1].items()]
    if term.context.double:
        parts += [(term.attribute(body, "h", j, v), value) for j, value in products[0].items()]
    return signed_sum((1, f"{y} * {value}") for y, value in parts)


def edges(
    term: TritonTerm,
    body: AssignedLines,
    u: Channels,
    add: Callable[[int, int | Channels, str], None],
) -> None:
    """Emit the gradients of one edge: attributes via `add(j, v, value)`, weights as stores."""
    products = _without_attributes(term, body, u)
    for v in attribute_channels(term, u):
        w, f = _weights(term, body, v, u)
        for j, value in products[-1].items():
            total = times(w, value)
            add(j, v, f"{total} + {f} * {products[0][j]}" if f else total)
        if term.path.has_weight and not term.context.spec.shared_weights:
            mask = f", mask={u.mask}" if u.mask else ""
            value = _weight_gradient(term, body, v, products)
            body.add(f"tl.store({weight_place(term, 'gw', v, u)}, {value}{mask})")


def shared_weights(
    term: TritonTerm, body: AssignedLines, u: Channels
) -> dict[str, tuple[str, str]]:
    """Emit the addition of one edge to the gradients of shared weights.

    Returns:
        Address and mask of each sum, by its variable.
    """
    products = _without_attributes(term, body, u)
    sums = {}
    for v in attribute_channels(term, u):
        name = f"s{term.index}_{_tag(v)}"
        body.add(f"{name} += {_weight_gradient(term, body, v, products)}")
        sums[name] = (weight_place(term, "gw", v, u), u.mask)
    return sums
