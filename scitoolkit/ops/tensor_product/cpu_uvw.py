"""Emitters of C for uvw paths: each edge multiplies vectors by its weight matrix.

The attributes turn the features of channel u into m[k, u] = sum_i a[i, k] x[i, u]. Then

    nodes   z[k, q] += sum_u w[u, q] m[k, u]
    edges   r[k, u]  = sum_q w[u, q] g[k, q];  gw[u, q] = sum_k m[k, u] g[k, q]
            gx[i, u] += sum_k a[i, k] r[k, u];  p[i, k] = sum_u x[i, u] r[k, u]

SIMD is over the output channels q, along the rows of the weights, which are read once and in
order. Sums over q are reduced across lanes for LANES rows at a time. The double backward is the
same with x -> (dx, x), w -> (dw, w), a -> (b, a) by the product rule; n and h are the derivatives
of m and r.
"""

from __future__ import annotations

from scitoolkit.ops.tensor_product.cpu_lanes import SimdLane, channel_loops
from scitoolkit.ops.tensor_product.cpu_terms import Term, with_sums

ARRAYS = {False: ("x", "w"), True: ("x", "w", "dx", "dw")}
MAX_SUMS = 8  # accumulators that fit into registers together with their operands
BLOCK = 16  # channels u whose sums are reduced together: whole vectors of any width
AHEAD = 2048  # prefetch distance in bytes of weights; the rows of edges are contiguous


def _each_edge(term: Term, double: bool, body: str) -> str:
    rows = " ".join(f"const real *{name} = {name}s[e];" for name in ARRAYS[double])
    scalars = term.scalars("a", "as[e]") + (term.scalars("b", "bs[e]") if double else "")
    return f"for (int e = 0; e < ne; e++) {{\n{rows}\n{scalars}\n{body}\n}}"


def _weights_place(term: Term, row: str = "u") -> str:
    _, mul2, mul3 = term.muls
    return f"{term.path.weight_offset}+({row}*{mul2}+v)*{mul3}+q"


def _load_weights(
    term: Term, lane: SimdLane, double: bool, row: str, name: str, t: int
) -> list[str]:
    lines = []
    for array in ("w", "dw") if double else ("w",):
        place = f"{array}+{_weights_place(term, row)}"
        if lane.type == "vec":
            far = f"(const char *)({lane.at(place, t)})+{AHEAD}"
            lines.append(f"if ({t}*BYTES % 64 == 0) __builtin_prefetch({far}, 0, 2);")
        lines.append(f"const T {array}{name} = {lane.load(place, t)};")
    return lines


def _products(term: Term, double: bool) -> str:
    """Return C that fills m (and n): the output components of channel u per unit of weight."""
    mul1 = term.muls[0]
    place = {k: f"{number * mul1}+u" for number, k in enumerate(term.columns)}

    def body(lane: SimdLane) -> str:
        lines = [f"const T x{i} = {lane.load(f'x+{term.x(i)}+u')};" for i in term.rows]
        if double:
            lines += [f"const T o{i} = {lane.load(f'dx+{term.x(i)}+u')};" for i in term.rows]
        for k in term.columns:
            lines.append(f"{lane.accumulator(f'm+{place[k]}')} = {term.over_rows(k, 'a', 'x')};")
            if double:
                both = f"{term.over_rows(k, 'a', 'o')} + {term.over_rows(k, 'b', 'x')}"
                lines.append(f"{lane.accumulator(f'n+{place[k]}')} = {both};")
        return "\n".join(lines)

    size = len(term.columns) * mul1
    arrays = ", ".join(f"{name}[{size}]" for name in (("m", "n") if double else ("m",)))
    return f"acc {arrays};\n{channel_loops(mul1, 1, body)}"


def nodes(term: Term, double: bool) -> str:
    """Return the pass that adds one path of the tile's edges to the receiver's row.

    Each edge's sum over u is computed before it is added to the row: in float32 a sum of short sums
    has a smaller rounding error than one long sum over the input channels of all edges.
    """
    mul1, _, mul3 = term.muls
    numbered = list(enumerate(term.columns))

    def body(lane: SimdLane) -> str:
        places = [(number, k, t) for number, k in numbered for t in lane.indices]
        lines = [f"T s{k}_{t} = {{0}};" for _, k, t in places]
        lines.append(f"for (int u = 0; u < {mul1}; u++) {{")
        for t in lane.indices:
            lines += _load_weights(term, lane, double, "u", f"_{t}", t)
        for number, k, t in places:
            here = f"[{number * mul1}+u]"
            value = f"w_{t}*n{here} + dw_{t}*m{here}" if double else f"w_{t}*m{here}"
            lines.append(f"s{k}_{t} += {value};")
        lines.append("}")
        for _, k, t in places:
            lines.append(f"{lane.accumulator(f'z+{term.z(k)}+q', t)} += s{k}_{t};")
        return "\n".join(lines)

    width = _power_of_two(MAX_SUMS // len(numbered))
    loops = channel_loops(mul3, width, body, "q")
    return _each_edge(term, double, f"{_products(term, double)}\n{loops}")


def _power_of_two(most: int) -> int:
    return 1 << max(most, 1).bit_length() - 1


def edges(term: Term, double: bool) -> str:
    """Return the pass that writes one path's gradients: features, weights, attributes."""
    mul1 = term.muls[0]
    sums = ("r", "h") if double else ("r",)
    together = _power_of_two(MAX_SUMS // (len(term.columns) * len(sums)))
    while mul1 % together:  # rows of weights that share loads of g
        together //= 2
    block = [f"vec {s}v[{len(term.columns)}][{BLOCK}];" for s in sums]
    block += [f"acc {s}t[{len(term.columns)}][{BLOCK}];" for s in sums]
    block += [f"for (int l = 0; l < count; l += {together}) {{", "const int row = begin + l;"]
    block += [_rows(term, double, together, sums), "}"]
    text = f"""
for (int begin = 0; begin < {mul1}; begin += {BLOCK}) {{
const int count = {mul1} - begin < {BLOCK} ? {mul1} - begin : {BLOCK};
{chr(10).join(block)}
int l = 0;
for (; l + LANES <= count; l += LANES) {{ typedef vec T; const int u = begin + l;
{_after(term, double, SimdLane("vec", 1), sums)}
}}
for (; l < count; l++) {{ typedef acc T; const int u = begin + l;
{_after(term, double, SimdLane("acc", 1), sums)}
}}
}}"""
    head = "acc *gx = gxs[e]; gradw *gw = gws[e];"
    body = with_sums(term, term.entries, 1, text)
    return _each_edge(term, double, f"{head}\n{_products(term, double)}\n{body}")


def _rows(term: Term, double: bool, together: int, sums: tuple[str, ...]) -> str:
    """Return C for `together` rows of the weights: their gradients, and sums over q."""
    mul1, _, mul3 = term.muls
    shared, numel = term.spec.shared_weights, term.spec.weight_numel
    numbered = list(enumerate(term.columns))
    fits = f"{numel} % LANES == 0 && {term.path.weight_offset} % LANES == 0 && {mul3} % LANES == 0"
    factor = "n" if double else "m"
    places = [(s, k, b) for s in sums for k in term.columns for b in range(together)]

    def body(lane: SimdLane) -> str:
        kind = "v" if lane.type == "vec" else "t"
        lines = [
            f"const T q{k}_{t} = {lane.load(f'g+{term.z(k)}+q', t)};"
            for k in term.columns
            for t in lane.indices
        ]
        # Write whole cache lines of gradients: non-temporal stores of half a line cost a full one.
        for b in range(together):
            row = f"(row+{b})"
            for t in lane.indices:
                lines += _load_weights(term, lane, double, row, f"_{b}_{t}", t)
                for s, array in zip(sums, ("w", "dw"), strict=False):
                    lines += [
                        f"{s}{kind}{k}_{b} += {array}_{b}_{t}*q{k}_{t};" for k in term.columns
                    ]
            for t in lane.indices:
                value = " + ".join(f"{factor}[{n * mul1}+row+{b}]*q{k}_{t}" for n, k in numbered)
                place = lane.at(f"gw+{_weights_place(term, row)}", t)
                lines.append(lane.store(place, value, shared, fits))
        return "\n".join(lines)

    begin = [f"vec {s}v{k}_{b} = {{0}}; acc {s}t{k}_{b} = 0;" for s, k, b in places]
    column = {k: number for number, k in numbered}
    end = [
        f"{s}v[{column[k]}][l+{b}] = {s}v{k}_{b}; {s}t[{column[k]}][l+{b}] = {s}t{k}_{b};"
        for s, k, b in places
    ]
    return "\n".join([*begin, channel_loops(mul3, 2, body, "q"), *end])


def _after(term: Term, double: bool, lane: SimdLane, sums: tuple[str, ...]) -> str:
    """Return C that turns sums over q into gradients of features and of entries, for channels u."""
    lines = []
    for number, k in enumerate(term.columns):
        for s in sums:
            value = (
                f"totals({s}v[{number}]+l) + *(const vecu *)({s}t[{number}]+l)"
                if lane.type == "vec"
                else f"total({s}v[{number}][l]) + {s}t[{number}][l]"
            )
            lines.append(f"const T {s}{k} = {value};")
    lines += [f"const T x{i} = {lane.load(f'x+{term.x(i)}+u')};" for i in term.rows]
    if double:
        lines += [f"const T o{i} = {lane.load(f'dx+{term.x(i)}+u')};" for i in term.rows]
    for i in term.rows:
        value = term.over_columns(i, "a", "r")
        if double:
            value = f"{term.over_columns(i, 'b', 'r')} + {term.over_columns(i, 'a', 'h')}"
        lines.append(f"{lane.accumulator(f'gx+{term.x(i)}+u')} += {value};")
    name = "m{}_0" if lane.type == "vec" else "n{}"
    for (i, k), (entry, sign) in term.pairs.items():
        value = f"o{i}*r{k} + x{i}*h{k}" if double else f"x{i}*r{k}"
        lines.append(f"s{name.format(entry)} {'+=' if sign > 0 else '-='} {value};")
    return "\n".join(lines)


def attributes(term: Term, double: bool) -> str:
    """Return no pass: `edges` computes these sums."""
    return ""
