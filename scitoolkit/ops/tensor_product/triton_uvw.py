"""Emitters of Triton for uvw paths, with tiles of weights over input and output channels u, q.

    nodes     m[k, u] = sum_i a[i, k] x[i, u];       z[k, q]  += sum_u w[u, q] m[k, u]
    senders   r[k, u] = sum_q w[u, q] g[k, q];       gx[i, u] += sum_k a[i, k] r[k, u]
    edges     gw[u, q] = sum_k m[k, u] g[k, q];      gy[j] += sum_iku C[i, j, k] x[i, u] r[k, u]

Each edge has separate weights, so a matrix product would not reuse them: each tile is read once,
multiplied and summed. The double backward follows by the product rule.
"""

from __future__ import annotations

from collections.abc import Callable

from scitoolkit.ops.tensor_product.triton_terms import (
    ROWS,
    TILE,
    AssignedLines,
    Channels,
    TritonTerm,
    added,
)


def inputs(term: TritonTerm) -> Channels:
    """Return the input channels of a path, with a separate index variable."""
    return Channels(f"u{term.index}", term.sides[0].mul, TILE[0])


def outputs(term: TritonTerm) -> Channels:
    """Return the output channels of a path, with a separate index variable."""
    return Channels(f"q{term.index}", term.sides[2].mul, TILE[1])


def place(term: TritonTerm, row: str, v: int, u: Channels, q: Channels) -> str:
    """Return the addresses of a tile of weights."""
    _, mul2, mul3 = (side.mul for side in term.sides)
    start = f"{row} + {term.path.weight_offset + v * mul3}"
    return f"{start} + {u.name}[:, None] * {mul2 * mul3} + {q.name}[None, :]"


def tile_mask(u: Channels, q: Channels) -> str:
    """Return the mask of a tile, empty if the tile is full."""
    masks = [f"{u.mask}[:, None]"] if u.mask else []
    return " & ".join(masks + ([f"{q.mask}[None, :]"] if q.mask else []))


def _tile(
    term: TritonTerm, body: AssignedLines, name: str, v: int, u: Channels, q: Channels
) -> str:
    value = term.context.load(place(term, ROWS[name], v, u, q), tile_mask(u, q))
    return body.let(f"{name}{term.index}_{v}", value)


def _products(
    term: TritonTerm, body: AssignedLines, v: int, u: Channels, varied: bool
) -> dict[int, str]:
    """Return m[k], or its derivative along dx and dy, for one channel of the attributes."""
    variables = {}
    for k in term.columns:
        arrays = (("a", "o"), ("b", "x")) if varied else (("a", "x"),)
        parts = [
            term.over_rows(body, k, a, v, lambda i, array=array: term.feature(body, array, i, u))
            for a, array in arrays
        ]
        variables[k] = body.let(f"{'n' if varied else 'm'}{term.index}_{v}_{k}", added(parts))
    return variables


def _loop(body: AssignedLines, channels: Channels) -> tuple[str, AssignedLines]:
    """Return the head and the body of a loop over blocks of channels."""
    inner = AssignedLines(body.context, body)
    inner.add(*channels.begin(f"{channels.name}_0"))
    return f"for {channels.name}_0 in range(0, {channels.mul}, {channels.width}):", inner


def nodes(term: TritonTerm, body: AssignedLines, q: Channels, sums: dict[int, str]) -> None:
    """Emit the addition of one edge to the accumulators `sums[k]` of its receiver."""
    u = inputs(term)
    head, inner = _loop(body, u)
    for v in range(term.sides[1].mul):
        weight = _tile(term, inner, "w", v, u, q)
        plain = _products(term, inner, v, u, varied=False)
        varied = _products(term, inner, v, u, varied=True) if term.context.double else plain
        for k in term.columns:
            inner.add(f"{sums[k]} += tl.sum({weight} * {varied[k]}[:, None], 0)")
            if term.context.double:
                other = _tile(term, inner, "f", v, u, q)
                inner.add(f"{sums[k]} += tl.sum({other} * {plain[k]}[:, None], 0)")
    body.loop(head, inner)


def _folded(
    term: TritonTerm, body: AssignedLines, v: int, u: Channels, store: bool = False
) -> list[dict[int, str]]:
    """Emit the loop over q for r[k] of the weights, and in the double backward of their cotangent.

    With `store` the loop also stores the gradient of the weights.
    """
    q = outputs(term)
    head, inner = _loop(body, q)
    variables = []
    for name, tile in (("r", "w"), ("e", "f")) if term.context.double else (("r", "w"),):
        names = {k: f"{name}{term.index}_{v}_{k}" for k in term.columns}
        for k, sum_k in names.items():
            body.add(f"{sum_k} = {term.context.zeros(u.width)}")
            weight = _tile(term, inner, tile, v, u, q)
            inner.add(f"{sum_k} += tl.sum({weight} * {term.cotangent(inner, k, q)}[None, :], 1)")
        variables.append(names)
    if store:
        value, mask = _outer(term, inner, v, u, q, body), tile_mask(u, q)
        masked = f", mask={mask}" if mask else ""
        inner.add(f"tl.store({place(term, 'gw', v, u, q)}, {value}{masked})")
    body.loop(head, inner)
    return variables


def _varied(
    term: TritonTerm, folded: list[dict[int, str]], plain: str, cotangent: str
) -> list[tuple[str, dict[int, str]]]:
    """Return pairs of (other factor, sums over weights) of the product rule."""
    if not term.context.double:
        return [(plain, folded[0])]
    return [(cotangent, folded[0]), (plain, folded[1])]


def senders(term: TritonTerm, body: AssignedLines, u: Channels, sums: dict[int, str]) -> None:
    """Emit the addition of one edge to the accumulators `sums[i]` of its sender's gradient."""
    for v in range(term.sides[1].mul):
        for i, value in _features(term, body, v, _folded(term, body, v, u)).items():
            body.add(f"{sums[i]} += {value}")


def _features(
    term: TritonTerm, body: AssignedLines, v: int, folded: list[dict[int, str]]
) -> dict[int, str]:
    """Return the gradient of each component of the features from one channel of the attributes."""
    return {
        i: added(
            term.over_columns(body, i, a, v, lambda k, names=names: names[k])
            for a, names in _varied(term, folded, "a", "b")
        )
        for i in term.rows
    }


def edges(
    term: TritonTerm,
    body: AssignedLines,
    add: Callable[[AssignedLines, Channels, int, int, str], None],
    add_features: Callable[[AssignedLines, Channels, int, str], None] | None = None,
) -> None:
    """Emit the gradients of one edge; those of weights per edge are stored.

    Args:
        term: the path.
        body: the edge's body.
        add: `add(body, channels, j, v, value)` emits the gradient of attributes, a vector over
            input channels inside of their loop.
        add_features: `add_features(body, channels, i, value)` emits the gradient of features.
    """
    u = inputs(term)
    head, inner = _loop(body, u)
    for v in range(term.sides[1].mul):
        own = not term.context.spec.shared_weights
        folded = _folded(term, inner, v, u, store=own)
        for array, names in _varied(term, folded, "x", "o"):
            products = term.open_attributes(
                inner,
                f"{array}m{term.index}_{v}_",
                lambda i, array=array: term.feature(inner, array, i, u),
                lambda k, names=names: names[k],
            )
            for j, value in products.items():
                add(inner, u, j, v, value)
        if add_features is not None:
            for i, value in _features(term, inner, v, folded).items():
                add_features(inner, u, i, value)
    body.loop(head, inner)


def _outer(
    term: TritonTerm, body: AssignedLines, v: int, u: Channels, q: Channels, source: AssignedLines
) -> str:
    factors = _products(term, source, v, u, varied=term.context.double)
    return added(
        f"{factors[k]}[:, None] * {term.cotangent(body, k, q)}[None, :]" for k in term.columns
    )


def shared_weights(
    term: TritonTerm, body: AssignedLines, v: int, u: Channels, q: Channels
) -> dict[str, tuple[str, str]]:
    """Emit the addition of one edge to a tile of the gradient of shared weights."""
    name = f"s{term.index}_{v}"
    body.add(f"{name} += {_outer(term, body, v, u, q, body)}")
    return {name: (place(term, "gw", v, u, q), tile_mask(u, q))}
