"""Emitters of C for uvw paths: vectors run over the output channels, named q here."""

from __future__ import annotations

from scitoolkit.ops.tensor_product.cpu_lanes import Lane, channel_loops
from scitoolkit.ops.tensor_product.cpu_terms import Term

ARRAYS = {False: ("x", "w"), True: ("x", "w", "dx", "dw")}


def _frame(term: Term, double: bool, lines: list[str], tail: str = "") -> str:
    rows = " ".join(f"const real *{name} = {name}s[e];" for name in ARRAYS[double])
    scalars = term.scalars("a", "as[e]") + (term.scalars("b", "bs[e]") if double else "")
    inner = "\n".join(lines)
    return (
        f"for (int e = 0; e < ne; e++) {{\n{rows}\n{scalars}\n"
        f"for (int u = 0; u < {term.muls[0]}; u++) {{\n{inner}\n}}\n{tail}\n}}"
    )


def _before_channels(text: str, lines: str) -> str:
    """Put what starts the sums over u before the loop over u."""
    marker = "for (int u = 0;"
    return text.replace(marker, f"{lines}\n{marker}", 1)


def _place(term: Term) -> str:
    _, mul2, mul3 = term.muls
    return f"{term.path.weight_offset}+(u*{mul2}+v)*{mul3}+q"


def _products(term: Term, double: bool) -> list[str]:
    """Scalars of one input channel: what each output component gets per unit of weight."""
    lines = [f"const acc x{i} = x[{term.x(i)}+u];" for i in term.rows]
    lines += [f"const acc m{k} = {term.over_rows(k, 'a', 'x')};" for k in term.columns]
    if double:
        lines += [f"const acc o{i} = dx[{term.x(i)}+u];" for i in term.rows]
        for k in term.columns:
            both = f"{term.over_rows(k, 'a', 'o')} + {term.over_rows(k, 'b', 'x')}"
            lines.append(f"const acc n{k} = {both};")
    return lines


def nodes(term: Term, double: bool) -> str:
    """Add one path of the tile's edges to the receiver's row.

    The sum over u of an edge is formed before it joins the row: float32 rounds a short sum and a
    sum of sums less than one long sum over the input channels of all edges.
    """
    width = term.muls[2]
    sums = {k: f"s+{n * width}+q" for n, k in enumerate(term.columns)}

    def body(lane: Lane) -> str:
        lines = [f"const T w_ = {lane.load(f'w+{_place(term)}')};"]
        if double:
            lines.append(f"const T dw_ = {lane.load(f'dw+{_place(term)}')};")
        for k in term.columns:
            value = f"w_*n{k} + dw_*m{k}" if double else f"w_*m{k}"
            lines.append(f"{lane.accumulator(sums[k])} += {value};")
        return "\n".join(lines)

    def into_row(lane: Lane) -> str:
        return "\n".join(
            f"{lane.accumulator(f'z+{term.z(k)}+q')} += {lane.accumulator(sums[k])};"
            for k in term.columns
        )

    loops = channel_loops(width, 1, body, "q")
    lines = [*_products(term, double), loops]
    text = _frame(term, double, lines, channel_loops(width, 1, into_row, "q"))
    return _before_channels(text, f"acc s[{len(sums) * width}] = {{0}};")


def edges(term: Term, double: bool) -> str:
    """Write one path's gradients of the tile's edges: features, weights, attributes."""
    shared, factor = term.spec.shared_weights, "n" if double else "m"

    def body(lane: Lane) -> str:
        suffix = "v" if lane.type == "vec" else "t"
        lines = [f"const T w_ = {lane.load(f'w+{_place(term)}')};"]
        if double:
            lines.append(f"const T dw_ = {lane.load(f'dw+{_place(term)}')};")
        lines += [f"const T q{k} = {lane.load(f'g+{term.z(k)}+q')};" for k in term.columns]
        lines += [f"r{suffix}{k} += w_*q{k};" for k in term.columns]
        if double:
            lines += [f"e{suffix}{k} += dw_*q{k};" for k in term.columns]
        kind = ("add" if shared else "put") + ("" if lane.type == "vec" else "1")
        products = " + ".join(f"{factor}{k}*q{k}" for k in term.columns)
        return "\n".join([*lines, f"{kind}(gw+{_place(term)}, {products});"])

    names = ("r", "e") if double else ("r",)
    begin = [f"vec {n}v{k} = {{0}}; acc {n}t{k} = 0;" for n in names for k in term.columns]
    end = [f"const acc {n}{k} = total({n}v{k}) + {n}t{k};" for n in names for k in term.columns]
    for i in term.rows:
        value = term.over_columns(i, "a", "r")
        if double:
            value = f"{term.over_columns(i, 'b', 'r')} + {term.over_columns(i, 'a', 'e')}"
        end.append(f"gx[{term.x(i)}+u] += {value};")
    for (i, k), (slot, sign) in term.pairs.items():
        value = f"o{i}*r{k} + x{i}*e{k}" if double else f"x{i}*r{k}"
        end.append(f"p{slot} {'+=' if sign > 0 else '-='} {value};")
    start = [f"acc p{slot} = 0;" for slot in term.slots]
    finish = []
    for j in range(term.spec.in2[term.path.in2].components):
        value = term.into_attributes(j, term.slots, "p")
        if value:
            finish.append(f"gy[{term.y(j)}] += {value};")
    body_lines = [*_products(term, double), *begin]
    body_lines += [channel_loops(term.muls[2], 1, body, "q"), *end]
    head = "acc *gx = gxs[e], *gy = gys[e]; gradw *gw = gws[e];"
    text = _frame(term, double, body_lines, "\n".join(finish))
    return _before_channels(text, "\n".join([head, *start]))


def attributes(term: Term, double: bool) -> str:
    """Nothing is left to do: the edges' pass forms these sums."""
    return ""
