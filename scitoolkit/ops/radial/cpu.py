"""Generator of the C kernels of radial bases, with one edge per SIMD lane.

Values and both derivatives are computed in float64 for distances of any dtype.
"""

from __future__ import annotations

from scitoolkit.ops.codegen.compile import read
from scitoolkit.ops.codegen.emit import banner, indented
from scitoolkit.ops.codegen.vectors import over_blocks, prelude
from scitoolkit.ops.radial import formulas
from scitoolkit.ops.radial.spec import RadialSpec


def _declared(lines: formulas.Lines) -> list[str]:
    return [f"const vec {name} = {value};" for name, value in lines]


def _sweep(spec: RadialSpec) -> str:
    """Return the C function that computes F, F', F'' of all basis functions at distances r."""
    lines = _declared(formulas.start(spec))
    for n in range(spec.num_basis):
        lines += _declared(formulas.function(spec, n))
        lines += [f"{name}[{n}] = {name}{n};" for name in "FDE"]
    text = "\n".join(lines)
    return f"""
static inline void sweep(vec r, vec *F, vec *D, vec *E) {{
const ivec outside = r >= {spec.cutoff!r}; /* NaN stays NaN */
r = within(r, outside);
{text}
}}
"""


def generate(spec: RadialSpec, real: str) -> str:
    """Return the C source of forward, backward and double_backward of `spec`.

    Args:
        spec: kind and cutoff.
        real: float or double, the type of the rows.

    Example:
        >>> "void forward(" in generate(RadialSpec("bessel", 8, 5.0, 6), "float")
        True
    """
    n = spec.num_basis
    start = f"vec r, F[{n}], D[{n}], E[{n}]; load(&r, x_rows, 1); sweep(r, F, D, E);"
    gradient = f"{start}\nvec g[{n}]; load(g, g_rows, {n}); vec sum = {{0}};"
    rows, basis = {"x_rows": 1}, {"g_rows": n}
    kernels = [
        over_blocks("forward", rows, {"z_rows": n}, f"{start}\nstore(z_rows, F, {n});"),
        over_blocks(
            "backward",
            {**rows, **basis},
            {"gx_rows": 1},
            f"{gradient}\nfor (int n = 0; n < {n}; n++) sum += g[n]*D[n];\n"
            "store(gx_rows, &sum, 1);",
        ),
        over_blocks(
            "double_backward",
            {**rows, **basis, "dx_rows": 1},
            {"gg_rows": n, "gx_rows": 1},
            f"{gradient}\nvec d; load(&d, dx_rows, 1);\n"
            f"for (int n = 0; n < {n}; n++) {{ sum += g[n]*E[n]; D[n] *= d; }}\n"
            f"sum *= d; store(gg_rows, D, {n}); store(gx_rows, &sum, 1);",
        ),
    ]
    title = banner(f"radial basis, {spec.kind}, {n} functions, {real}")
    source = [
        title,
        prelude("double", element=real),
        read(__file__, "rows.c"),
        _sweep(spec),
        *kernels,
    ]
    return indented("\n".join(source))
