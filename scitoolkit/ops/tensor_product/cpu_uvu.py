"""Emitters of C for uvu paths with SIMD over the channels u.

There are three passes over a tile of up to TILE edges of one receiver. The arrays xs, ws, ... have
the rows of each edge of the tile, `as` its scalars and `bs` those of the cotangent of y:

    nodes        z[k]  += w sum_i a[i, k] x[i]          z stays in registers for all edges
    edges        r[i]   = sum_k a[i, k] g[k];  gx[i] += w r[i];  gw = sum_i x[i] r[i]
    attributes   m[i, k] = sum_u w x[i] g[k];  gy[j] += sum_ik C[i, j, k] m[i, k]

The double backward is the same with x -> (dx, x), w -> (dw, w), a -> (b, a) by the product rule.
"""

from __future__ import annotations

from scitoolkit.ops.tensor_product.cpu_lanes import SimdLane, channel_loops
from scitoolkit.ops.tensor_product.cpu_terms import Term, with_sums

# Letters of the generated code; a digit after the letter is a component, `_t` the vector of u:
#   x, dx    features of the sender and their tangent (loaded as x and o)
#   w, dw    weights of the path and their tangent
#   a, b     sum_j C[i, j, k] y[j] of an edge, and the same of the tangent of y
#   q        g, the gradient with respect to z;  p = w q, dp = dw q
#   t        w x in `nodes`, the left factor of m elsewhere;  d = w dx + dw x
#   r, h     sum_k a[i, k] q[k] and sum_k b[i, k] q[k]
#   wa, wb   weight times the one scalar of a scalar path, and its derivative
#   s, o     sum_i x[i] q[i] and sum_i dx[i] q[i] of a scalar path
#   sm, sn   running sums of m in vectors and in the remaining channels
NAME = {True: "b", False: "a"}
# Accumulators that fit into registers together with their operands (16 registers with AVX2).
MAX_SUMS = 8


def _each_edge(body: str, *arrays: str) -> str:
    rows = " ".join(f"const real *{name} = {name}s[e];" for name in arrays)
    return f"for (int e = 0; e < ne; e++) {{\n{rows}\n{body}\n}}"


def _scalars(term: Term, double: bool) -> str:
    text = term.scalars("a", "as[e]")
    return text + (" " + term.scalars("b", "bs[e]") if double else "")


def _weights(term: Term, lane: SimdLane, double: bool, ahead: bool = False) -> list[str]:
    """Return loads of the path's weights; `ahead` also prefetches those of the next tile."""
    lines = []
    streamed = term.path.has_weight and term.muls[1] == 1 and not term.spec.shared_weights
    # Weights of an edge are read once, in order: without a prefetch every tile waits for memory.
    if ahead and streamed and lane.type == "vec":
        for name in ("w", "dw") if double else ("w",):
            place = f"(const char *)({name}+{term.path.weight_offset}+u+ahead)+l"
            lines.append(
                f"for (int l = 0; l < {lane.width}*BYTES; l += 64) "
                f"__builtin_prefetch({place}, 0, 2);"
            )
    for name, without in (("w", "1"), ("dw", "0")) if double else (("w", "1"),):
        for t in lane.indices:
            value = (
                lane.load_weight(name, term.path.weight_offset, term.muls[1], t)
                if term.path.has_weight
                else f"(T){{0}} + (num){without}"
            )
            lines.append(f"const T {name}_{t} = {value};")
    return lines


def _load(term: Term, lane: SimdLane, name: str, array: str, i: int, t: int) -> str:
    return f"const T {name}{i}_{t} = {lane.load(f'{array}+{term.x(i)}+u', t)};"


def nodes(term: Term, double: bool) -> str:
    """Return the pass that adds one path of the tile's edges to the receiver's row."""
    # width x columns accumulators and their operands must fit into 16 registers.
    width = {1: 4, 3: 2, 5: 2}.get(len(term.columns), 1)
    arrays = ("x", "w", "dx", "dw") if double else ("x", "w")

    def body(lane: SimdLane) -> str:
        places = [(k, t) for k in term.columns for t in lane.indices]
        sums = [f"T z{k}_{t} = {lane.accumulator(f'z+{term.z(k)}+u', t)};" for k, t in places]
        kind = (
            _nodes_scalar
            if term.is_scalar
            else (_nodes_last if len(term.columns) == 1 < len(term.rows) else _nodes_first)
        )
        lines = [
            _scalars(term, double),
            *_weights(term, lane, double, True),
            *kind(term, lane, double),
        ]
        out = [f"{lane.accumulator(f'z+{term.z(k)}+u', t)} = z{k}_{t};" for k, t in places]
        return "\n".join([*sums, _each_edge("\n".join(lines), *arrays), *out])

    return channel_loops(term.muls[0], width, body)


def _nodes_first(term: Term, lane: SimdLane, double: bool) -> list[str]:
    """Multiply weights by features first, with one product per component of in1."""
    lines = []
    for i in term.rows:
        for t in lane.indices:
            lines.append(_load(term, lane, "x", "x", i, t))
            lines.append(f"const T t{i}_{t} = w_{t}*x{i}_{t};")
            if double:
                lines.append(_load(term, lane, "o", "dx", i, t))
                lines.append(f"const T d{i}_{t} = w_{t}*o{i}_{t} + dw_{t}*x{i}_{t};")
        for (ii, k), (entry, sign) in term.pairs.items():
            if ii == i:
                op = "+=" if sign > 0 else "-="
                for t in lane.indices:
                    value = f"a[{entry}]*{'d' if double else 't'}{i}_{t}"
                    lines.append(f"z{k}_{t} {op} {value};")
                    if double:
                        lines.append(f"z{k}_{t} {op} b[{entry}]*t{i}_{t};")
    return lines


def _nodes_scalar(term: Term, lane: SimdLane, double: bool) -> list[str]:
    lines, entry = [], term.entries[0]
    for t in lane.indices:
        lines.append(f"const T wa_{t} = w_{t}*a[{entry}];")
        if double:
            lines.append(f"const T wb_{t} = dw_{t}*a[{entry}] + w_{t}*b[{entry}];")
        for i in term.rows:
            x = lane.load(f"x+{term.x(i)}+u", t)
            lines.append(f"z{i}_{t} += {f'wb_{t}' if double else f'wa_{t}'}*{x};")
            if double:
                lines.append(f"z{i}_{t} += wa_{t}*{lane.load(f'dx+{term.x(i)}+u', t)};")
    return lines


def _nodes_last(term: Term, lane: SimdLane, double: bool) -> list[str]:
    """For one output component: sum over components of in1 first, then multiply by the weight."""
    lines, k = [], term.columns[0]
    for t in lane.indices:
        lines += [_load(term, lane, "x", "x", i, t) for i in term.rows]
        m = term.over_rows(k, "a", "x", f"_{t}")
        if not double:
            lines.append(f"z{k}_{t} += w_{t}*({m});")
            continue
        lines += [_load(term, lane, "o", "dx", i, t) for i in term.rows]
        n = f"{term.over_rows(k, 'a', 'o', f'_{t}')} + {term.over_rows(k, 'b', 'x', f'_{t}')}"
        lines.append(f"z{k}_{t} += w_{t}*({n}) + dw_{t}*({m});")
    return lines


def _is_folded(term: Term) -> bool:
    """Return whether `edges` also computes the sums of the attributes' gradient."""
    return len(term.entries) + len(term.rows) <= MAX_SUMS + 2 and len(term.entries) <= MAX_SUMS


def edges(term: Term, double: bool) -> str:
    """Return the pass that writes one path's gradients: features, weights, some attributes."""
    # The first derivative has one row of sums (r) for each component of x, the second two (r, h).
    wide = len(term.rows) * (2 if double else 1)
    width = 1 if wide > 5 else 4 if len(term.pairs) == 1 else 2
    # Folding reads x, w and g once for both gradients; with more sums registers would spill.
    folded = _is_folded(term)
    kind = (
        _edges_scalar
        if term.is_scalar
        else (_edges_last if len(term.columns) == 1 < len(term.rows) else _edges_first)
    )

    def body(lane: SimdLane) -> str:
        return "\n".join(
            [*_weights(term, lane, double, not double), *kind(term, lane, double, folded)]
        )

    arrays = ("x", "w", "dx", "dw") if double else ("x", "w")
    loops = channel_loops(term.muls[0], width, body)
    inner = [_scalars(term, double), "acc *gx = gxs[e]; gradw *gw = gws[e]; (void)gw;"]
    if folded:
        loops = with_sums(term, term.entries, _copies(len(term.entries)), loops)
    return _each_edge("\n".join([*inner, loops]), *arrays)


def _store_edges(term: Term, lane: SimdLane, gx: dict[tuple[int, int], str], gw: list[str]):
    lines = [
        f"{lane.accumulator(f'gx+{term.x(i)}+u', t)} += {value};" for (i, t), value in gx.items()
    ]
    if term.path.has_weight:
        shared = term.spec.shared_weights
        lines += [
            lane.store_weight(
                term.path.weight_offset, term.muls[1], value, term.spec.weight_numel, shared, t
            )
            for t, value in enumerate(gw)
        ]
    return lines


def _sum_name(term: Term, lane: SimdLane, entry: int, t: int) -> str:
    """Return the accumulator of an entry; several copies hide the latency of additions."""
    if lane.type != "vec":
        return f"sn{entry}"
    return f"sm{entry}_{t % _copies(len(term.entries))}"


def _copies(entries: int) -> int:
    return 4 if entries == 1 else 2 if entries <= 3 else 1


def _sum_lines(term: Term, lane: SimdLane, entries: list[int]) -> list[str]:
    lines = []
    for (i, k), (entry, sign) in term.pairs.items():
        if entry in entries:
            for t in lane.indices:
                name = _sum_name(term, lane, entry, t)
                lines.append(f"{name} {'+=' if sign > 0 else '-='} t{i}_{t}*q{k}_{t};")
    return lines


def _edges_first(term: Term, lane: SimdLane, double: bool, folded: bool) -> list[str]:
    """Loop over output components, so that one component of the gradient is in a register."""
    lines, gx, gw = [], {}, []
    sums = (("r", "a"), ("h", "b")) if double else (("r", "a"),)
    if folded:
        for i in term.rows:
            lines += [line for t in lane.indices for line in _left(term, lane, double, i, t)]
    # The first product declares its sum: an addition to zero less per component.
    started = set()
    for k in term.columns:
        for t in lane.indices:
            lines.append(f"const T q{k}_{t} = {lane.load(f'g+{term.z(k)}+u', t)};")
        for (i, kk), (entry, sign) in term.pairs.items():
            if kk != k:
                continue
            for target, scalar in sums:
                for t in lane.indices:
                    place, value = f"{target}{i}_{t}", f"{scalar}[{entry}]*q{k}_{t}"
                    if place in started:
                        lines.append(f"{place} {'+=' if sign > 0 else '-='} {value};")
                    else:
                        lines.append(f"T {place} = {'' if sign > 0 else '-'}{value};")
                        started.add(place)
            if folded:
                for t in lane.indices:
                    total = _sum_name(term, lane, entry, t)
                    lines.append(f"{total} {'+=' if sign > 0 else '-='} t{i}_{t}*q{k}_{t};")
    for t in lane.indices:
        parts = []
        for i in term.rows:
            if not folded:
                lines.append(_load(term, lane, "x", "x", i, t))
            gx[i, t] = f"w_{t}*r{i}_{t}"
            parts.append(f"x{i}_{t}*r{i}_{t}")
            if double:
                if not folded:
                    lines.append(_load(term, lane, "o", "dx", i, t))
                gx[i, t] = f"w_{t}*h{i}_{t} + dw_{t}*r{i}_{t}"
                parts[-1] = f"o{i}_{t}*r{i}_{t} + x{i}_{t}*h{i}_{t}"
        gw.append(" + ".join(parts))
    return lines + _store_edges(term, lane, gx, gw)


def _left(term: Term, lane: SimdLane, double: bool, i: int, t: int) -> list[str]:
    """Load the features and declare t, their product with the weights or its derivative."""
    lines = [_load(term, lane, "x", "x", i, t)]
    value = f"w_{t}*x{i}_{t}"
    if double:
        lines.append(_load(term, lane, "o", "dx", i, t))
        value = f"w_{t}*o{i}_{t} + dw_{t}*x{i}_{t}"
    return [*lines, f"const T t{i}_{t} = {value};"]


def _edges_scalar(term: Term, lane: SimdLane, double: bool, folded: bool) -> list[str]:
    lines, gx, gw, entry = [], {}, [], term.entries[0]
    for t in lane.indices:
        both = f"dw_{t}*a[{entry}] + w_{t}*b[{entry}]" if double else f"w_{t}*a[{entry}]"
        lines.append(f"const T wa_{t} = {both};")
        for i in term.rows:
            lines.append(f"const T q{i}_{t} = {lane.load(f'g+{term.z(i)}+u', t)};")
            gx[i, t] = f"wa_{t}*q{i}_{t}"
        for dot, array in (("s", "x"), ("o", "dx")) if double else (("s", "x"),):
            products = " + ".join(
                f"{lane.load(f'{array}+{term.x(i)}+u', t)}*q{i}_{t}" for i in term.rows
            )
            lines.append(f"const T {dot}_{t} = {products};")
        gw.append(f"o_{t}*a[{entry}] + s_{t}*b[{entry}]" if double else f"s_{t}*a[{entry}]")
        total = f"w_{t}*o_{t} + dw_{t}*s_{t}" if double else f"w_{t}*s_{t}"
        lines.append(f"{_sum_name(term, lane, entry, t)} += {total};")
    return lines + _store_edges(term, lane, gx, gw)


def _edges_last(term: Term, lane: SimdLane, double: bool, folded: bool) -> list[str]:
    """For one output component: multiply its gradient by the weight first."""
    lines, gx, gw, k = [], {}, [], term.columns[0]
    for t in lane.indices:
        lines.append(f"const T q_{t} = {lane.load(f'g+{term.z(k)}+u', t)};")
        lines.append(f"const T p_{t} = w_{t}*q_{t};")
        lines += [_load(term, lane, "x", "x", i, t) for i in term.rows]
        total = term.over_rows(k, "a", "x", f"_{t}")
        if double:
            lines.append(f"const T dp_{t} = dw_{t}*q_{t};")
            lines += [_load(term, lane, "o", "dx", i, t) for i in term.rows]
            total = (
                f"{term.over_rows(k, 'a', 'o', f'_{t}')} + {term.over_rows(k, 'b', 'x', f'_{t}')}"
            )
        gw.append(f"q_{t}*({total})")
        for (i, _), (entry, sign) in term.pairs.items():
            value = f"a[{entry}]*dp_{t} + b[{entry}]*p_{t}" if double else f"a[{entry}]*p_{t}"
            gx[i, t] = value if sign > 0 else f"-({value})"
            if folded:
                value = f"o{i}_{t}*p_{t} + x{i}_{t}*dp_{t}" if double else f"x{i}_{t}*p_{t}"
                name = _sum_name(term, lane, entry, t)
                lines.append(f"{name} {'+=' if sign > 0 else '-='} {value};")
    return lines + _store_edges(term, lane, gx, gw)


def attributes(term: Term, double: bool) -> str:
    """Return the pass that writes one path's gradients of attributes, unless `edges` does."""
    if _is_folded(term):
        return ""
    blocks = []
    # A pass for every MAX_SUMS scalars: features are read again, but sums stay in registers.
    for begin in range(0, len(term.entries), MAX_SUMS):
        entries = term.entries[begin : begin + MAX_SUMS]
        pairs = [pair for pair, (entry, _) in term.pairs.items() if entry in entries]

        def body(lane: SimdLane, entries=entries, pairs=pairs) -> str:
            lines = _weights(term, lane, double)
            for k in sorted({k for _, k in pairs}):
                lines.append(f"const T q{k}_0 = {lane.load(f'g+{term.z(k)}+u')};")
            for i in sorted({i for i, _ in pairs}):
                lines += _left(term, lane, double, i, 0)
            return "\n".join([*lines, *_sum_lines(term, lane, entries)])

        loops = channel_loops(term.muls[0], 1, body)
        copies = _copies(len(term.entries))
        blocks.append("{" + with_sums(term, entries, copies, loops) + "}")
    arrays = ("x", "w", "dx", "dw") if double else ("x", "w")
    return _each_edge("\n".join(blocks), *arrays)
