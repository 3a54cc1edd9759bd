"""Generator of the C kernels of radial bases: value, first and second derivative in one sweep.

Everything is evaluated in float64 whatever the dtype of the distances, one edge a lane.
"""

from __future__ import annotations

from scitoolkit.ops.codegen.emit import banner, indented
from scitoolkit.ops.codegen.vectors import over_blocks, prelude
from scitoolkit.ops.radial import formulas
from scitoolkit.ops.radial.spec import RadialSpec

# exp by 2^k times a polynomial; arguments are never positive.
FUNCTIONS = """
static inline vec within(vec a, ivec outside) { return (vec)((ivec)a & ~outside); }
static inline vec exponential(vec a) {
  vec k = a * 0x1.71547652b82fep+0 + 0x1.8p52;
  const vec whole = k - 0x1.8p52;
  const vec f = (a - whole * 0x1.62e42fefa39efp-1) - whole * 0x1.abc9e3b39803fp-56;
  vec s = (vec){0} + 1.0 / 6227020800.0;
  const double c[] = {479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0, 720.0,
                      120.0, 24.0, 6.0, 2.0, 1.0, 1.0};
  for (int i = 0; i < 13; i++) s = s * f + 1.0 / c[i];
  const ivec bits = ((ivec)k << 52) + ((ivec)((vec){0} + 1.0));
  const vec scale = (vec)bits;
  return (vec)((ivec)(s * scale) & ~(a <= -700.0));
}
"""


def _declared(lines: formulas.Lines) -> list[str]:
    return [f"const vec {name} = {value};" for name, value in lines]


def _sweep(spec: RadialSpec) -> str:
    """The function that fills F, F', F'' of every basis function from the distances r."""
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


# Rows are of `element`, the type of the tensors; everything between is in float64.
ROWS = """
static inline void load(vec *v, const element *p, int width) {
  for (int j = 0; j < width; j++) for (int l = 0; l < LANES; l++) v[j][l] = p[l * width + j];
}
static inline void store(element *p, const vec *v, int width) {
  for (int j = 0; j < width; j++) for (int l = 0; l < LANES; l++) p[l * width + j] = v[j][l];
}
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
    source = [title, prelude("double", element=real), FUNCTIONS, ROWS, _sweep(spec), *kernels]
    return indented("\n".join(source))
