"""Operators along one dim: cumulative sums, extrema with their places, sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scitoolkit.deploy.builder import Builder
from scitoolkit.deploy.values import C_TYPES, View, contiguous, numel

_CUMULATIVE = """{wide} total = {start};
for (int64_t k = 0; k < {n}; k++) {{ total = total {sign} p[k]; q[k] = total; }}"""
_RUNNING = """int64_t at = 0;
for (int64_t k = 0; k < {n}; k++) {{
  if (p[k] != p[k] || (p[at] == p[at] && p[k] {sign}= p[at])) at = k;
  q[k] = p[at]; places[k] = at;
}}"""
_EXTREME = """int64_t at = 0;
for (int64_t k = 1; k < {n}; k++) if (p[at] == p[at] && (p[k] {sign} p[at] || p[k] != p[k])) at = k;
*q = p[at]; *places = at;"""
_SORT = """stk_sort_{type}(p, {n}, {falling}, places, spare);
for (int64_t k = 0; k < {n}; k++) q[k] = p[places[k]];"""
_LOGARITHM = """double total = -INFINITY;
for (int64_t k = 0; k < {n}; k++) {{
  const double a = stk_larger((double)p[k], total), b = stk_smaller((double)p[k], total);
  total = a == b && fabs(a) == INFINITY ? a : a + log1p(exp(b - a));
  q[k] = total;
}}"""
_TEXTS = {
    "cumsum": (_CUMULATIVE, {"sign": "+", "start": "0"}),
    "cumprod": (_CUMULATIVE, {"sign": "*", "start": "1"}),
    "logcumsumexp": (_LOGARITHM, {}),
    "cummax": (_RUNNING, {"sign": ">"}),
    "cummin": (_RUNNING, {"sign": "<"}),
    "max": (_EXTREME, {"sign": ">"}),
    "min": (_EXTREME, {"sign": "<"}),
    "argmax": (_EXTREME, {"sign": ">"}),
    "argmin": (_EXTREME, {"sign": "<"}),
    "sort": (_SORT, {}),
}
ALONG = (
    *("aten.cumsum.default", "aten.cumprod.default", "aten.logcumsumexp.default"),
    *("aten.cummax.default", "aten.cummin.default", "aten.max.dim", "aten.min.dim"),
    *("aten.argmax.default", "aten.argmin.default", "aten.sort.default", "aten.sort.stable"),
)
"""Their targets."""


def along(builder: Builder, target: str, args: Sequence[Any], like: Any) -> Any:
    """Return the results of an operator along a dim; see `Lowering.lower`."""
    name = target.split(".")[1]
    x = builder.view(args[0])
    options = list(args[1:])
    falling = False
    if name == "sort":
        if target.endswith("stable"):
            options = options[1:]
        falling = bool(options[1])
    dim = options[0]
    if dim is None:  # argmax and argmin of all elements
        x, dim = contiguous(builder.dense(x).buffer, (numel(x.shape),)), 0
    dim = dim % max(len(x.shape), 1)
    order = [d for d in range(len(x.shape)) if d != dim] + ([dim] if x.shape else [])
    rows = builder.store(x.permute(order), builder.new([x.shape[d] for d in order], x.dtype))
    count = x.shape[dim] if x.shape else 1
    text, words = _TEXTS[name]
    one_each = text in (_EXTREME,)
    shape = rows.shape[:-1] if one_each else rows.shape
    values, places = builder.new(shape, x.dtype), builder.new(shape, "int64")
    spare = builder.new((count,), "int64")
    typed = C_TYPES[x.dtype]
    whole = not x.dtype.startswith("float")
    lines = text.format(
        n=count,
        type=typed,
        wide="int64_t" if whole else "double",
        falling=int(falling),
        **words,
    ).replace("\n", "\n  ")
    names = [v.buffer.name for v in (rows, values, places, spare)]
    step = 1 if one_each else count
    builder.emit(
        f"for (int64_t r = 0; r < {numel(rows.shape[:-1])}; r++) {{\n"
        f"  const {typed} *p = {names[0]} + r * {count};\n"
        f"  {typed} *q = {names[1]} + r * {step};\n"
        f"  int64_t *places = {names[2]} + r * {step}, *spare = {names[3]};\n"
        f"  (void)places; (void)spare;\n  {lines}\n}}",
        rows,
        values,
        places,
        spare,
    )
    back = [order.index(d) for d in range(len(order))]

    def placed(view: View, result: Any) -> View:
        if one_each:
            return contiguous(view.buffer, tuple(result.shape))
        return view.permute(back)

    if isinstance(like, tuple | list):
        return placed(values, like[0]), placed(places, like[1])
    return placed(places if name.startswith("arg") else values, like)
