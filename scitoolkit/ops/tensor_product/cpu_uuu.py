"""Emitters of C for uuu paths: features and attributes are multiplied channel by channel."""

from __future__ import annotations

from scitoolkit.ops.tensor_product.cpu_lanes import SimdLane, channel_loops
from scitoolkit.ops.tensor_product.cpu_terms import Term
from scitoolkit.ops.tensor_product.spec import CG_ZERO

ARRAYS = {False: ("x", "y", "w"), True: ("x", "y", "w", "dx", "dy", "dw")}


def _entries(term: Term) -> list[tuple[int, int, int, str]]:
    constants = term.spec.coefficients(term.path)
    bound = CG_ZERO * max(abs(term.path.scale), 1e-30)
    return [
        (i, j, k, f"(num){float(constants[i, j, k]).hex()}")
        for i in range(constants.shape[0])
        for j in range(constants.shape[1])
        for k in range(constants.shape[2])
        if abs(constants[i, j, k]) > bound
    ]


def _loads(term: Term, lane: SimdLane, double: bool) -> list[str]:
    spec, path = term.spec, term.path
    sides = {"x": (spec.in1[path.in1], "x", "o"), "y": (spec.in2[path.in2], "y", "p")}
    lines = []
    for name, without in (("w", "1"), ("dw", "0")) if double else (("w", "1"),):
        value = (
            lane.load(f"{name}+{path.weight_offset}+u")
            if path.has_weight
            else (f"(T){{0}} + (num){without}")
        )
        lines.append(f"const T {name}_ = {value};")
    for name, (side, plain, cotangent) in sides.items():
        for i in range(side.components):
            place = f"{side.offset + i * side.mul}+u"
            lines.append(f"const T {plain}{i} = {lane.load(f'{name}+{place}')};")
            if double:
                lines.append(f"const T {cotangent}{i} = {lane.load(f'd{name}+{place}')};")
    for i in range(sides["x"][0].components):
        lines.append(f"const T t{i} = w_*x{i};")
        if double:
            lines.append(f"const T d{i} = w_*o{i} + dw_*x{i};")
    return lines


def _frame(term: Term, double: bool, body, head: str = "") -> str:
    rows = " ".join(f"const real *{name} = {name}s[e];" for name in ARRAYS[double])
    loops = channel_loops(term.muls[0], 1, body)
    return f"if (v == 0) for (int e = 0; e < ne; e++) {{\n{rows} {head}\n{loops}\n}}"


def nodes(term: Term, double: bool) -> str:
    """Return the pass that adds one path of the tile's edges to the receiver's row."""

    def body(lane: SimdLane) -> str:
        lines = _loads(term, lane, double)
        for k in sorted({k for _, _, k, _ in _entries(term)}):
            parts = []
            for i, j, kk, c in _entries(term):
                if kk == k:
                    pair = f"(d{i}*y{j} + t{i}*p{j})" if double else f"(t{i}*y{j})"
                    parts.append(f"{c}*{pair}")
            place = f"z+{term.z(k)}+u"
            lines.append(f"{lane.accumulator(place)} += {' + '.join(parts)};")
        return "\n".join(lines)

    return _frame(term, double, body)


def edges(term: Term, double: bool) -> str:
    """Return the pass that writes one path's gradients: features, weights, attributes."""
    entries = _entries(term)
    side = term.spec.in2[term.path.in2]

    def body(lane: SimdLane) -> str:
        lines, products = _loads(term, lane, double), []
        for k in sorted({k for _, _, k, _ in entries}):
            lines.append(f"const T q{k} = {lane.load(f'g+{term.z(k)}+u')};")
        for i in sorted({i for i, _, _, _ in entries}):
            chosen = [(j, k, c) for ii, j, k, c in entries if ii == i]
            plain = " + ".join(f"{c}*(y{j}*q{k})" for j, k, c in chosen)
            lines.append(f"const T r{i} = {plain};")
            value, product = f"w_*r{i}", f"x{i}*r{i}"
            if double:
                other = " + ".join(f"{c}*(p{j}*q{k})" for j, k, c in chosen)
                lines.append(f"const T h{i} = {other};")
                value, product = f"w_*h{i} + dw_*r{i}", f"o{i}*r{i} + x{i}*h{i}"
            lines.append(f"{lane.accumulator(f'gx+{term.x(i)}+u')} += {value};")
            products.append(product)
        left = "d" if double else "t"
        for j in sorted({j for _, j, _, _ in entries}):
            value = " + ".join(f"{c}*({left}{i}*q{k})" for i, jj, k, c in entries if jj == j)
            place = f"gy+{side.offset + j * side.mul}+u"
            lines.append(f"{lane.accumulator(place)} += {value};")
        if term.path.has_weight:
            add = term.spec.shared_weights
            numel, value = term.spec.weight_numel, " + ".join(products)
            lines.append(lane.store_weight(term.path.weight_offset, 1, value, numel, add))
        return "\n".join(lines)

    return _frame(term, double, body, "acc *gx = gxs[e], *gy = gys[e]; gradw *gw = gws[e];")


def attributes(term: Term, double: bool) -> str:
    """Return no pass: `edges` computes these sums."""
    return ""
