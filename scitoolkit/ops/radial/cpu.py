"""Generator of the C kernels of radial bases: value, first and second derivative in one sweep.

Everything is evaluated in float64 whatever the dtype of the distances, one edge a lane. All three
families obey a three-term recursion (or a shared exponential) that is differentiated term by
term, so no term divides by r and r = 0 needs no special case:

    bessel     s_n = sin(n t)/t:  s_{n+1} = 2 cos(t) s_n - s_{n-1},  t = pi r/c in [0, pi)
    chebyshev  T_{n+1} = 2 t T_n - T_{n-1},  t = 2 r/c - 1
"""

from __future__ import annotations

import math

from scitoolkit.ops.codegen.vectors import over_blocks, prelude
from scitoolkit.ops.radial.spec import RadialSpec, envelope_coefficients

NUM_TERMS = 17  # the series in t^2 at t = pi then ends below 1e-17

# exp by 2^k times a polynomial; arguments are never positive.
EXPONENTIAL = """
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


def _horner(coefficients: list[float], variable: str) -> str:
    """Return the polynomial as nested C, lowest coefficient first."""
    text = f"((vec){{0}} + {coefficients[-1].hex()})"
    for each in reversed(coefficients[:-1]):
        text = f"({text}*{variable} + {each.hex()})"
    return text


def _sinc_series(order: int) -> list[float]:
    """Coefficients in t^2 of sin(t)/t, of its derivative over t, and of its second derivative."""
    found = []
    for k in range(NUM_TERMS):
        if order == 0:
            found.append((-1) ** k / math.factorial(2 * k + 1))
        elif order == 1:
            found.append((-1) ** (k + 1) * (2 * k + 2) / math.factorial(2 * k + 3))
        else:
            found.append((-1) ** (k + 1) * (2 * k + 2) * (2 * k + 1) / math.factorial(2 * k + 3))
    return found


def _bessel(spec: RadialSpec) -> list[str]:
    rate = math.pi / spec.cutoff
    scale = math.sqrt(2 / spec.cutoff) * rate
    cosine = [(-1) ** k / math.factorial(2 * k) for k in range(NUM_TERMS)]
    lines = [
        f"const vec t = r*{rate.hex()}, tt = t*t, cosine = {_horner(cosine, 'tt')};",
        f"vec f0 = {{0}}, f1 = {_horner(_sinc_series(0), 'tt')}, sine = t*f1;",
        f"vec d0 = {{0}}, d1 = t*{_horner(_sinc_series(1), 'tt')};",
        f"vec e0 = {{0}}, e1 = {_horner(_sinc_series(2), 'tt')};",
    ]
    step = (
        "{ const vec f2 = 2*cosine*f1 - f0, d2 = 2*cosine*d1 - 2*sine*f1 - d0,"
        " e2 = 2*cosine*e1 - 4*sine*d1 - 2*cosine*f1 - e0;"
        " f0 = f1; f1 = f2; d0 = d1; d1 = d2; e0 = e1; e1 = e2; }"
    )
    for n in range(spec.num_basis):
        lines.append(_product(n, *(scale * rate**k for k in range(3))) + step)
    return lines


def _chebyshev(spec: RadialSpec) -> list[str]:
    rate = 2 / spec.cutoff
    lines = [
        f"const vec t = r*{rate.hex()} - 1.0, zero = {{0}};",
        "vec f1 = zero + 1.0, f0 = t, d1 = zero, d0 = zero + 1.0, e1 = zero, e0 = zero;",
    ]
    step = (
        "{ const vec f2 = 2*t*f1 - f0, d2 = 2*f1 + 2*t*d1 - d0, e2 = 4*d1 + 2*t*e1 - e0;"
        " f0 = f1; f1 = f2; d0 = d1; d1 = d2; e0 = e1; e1 = e2; }"
    )
    for n in range(spec.num_basis):
        lines.append(_product(n, 1.0, rate, rate**2) + step)
    return lines


def _gaussian(spec: RadialSpec) -> list[str]:
    a = spec.gaussian_exponent
    lines = ["vec f1, d1, e1;"]
    for n in range(spec.num_basis):
        center = spec.cutoff * n / (spec.num_basis - 1)
        lines.append(
            f"{{ const vec x = r - {center.hex()}; f1 = exponential({a.hex()}*x*x);"
            f" d1 = {(2 * a).hex()}*x*f1; e1 = {(2 * a).hex()}*(f1 + x*d1); }}"
            + _product(n, 1.0, 1.0, 1.0)
        )
    return lines


def _product(n: int, value: float, first: float, second: float) -> str:
    """Write basis function n times the cutoff, with derivatives, from f1, d1, e1."""
    return (
        f"{{ const vec f = f1*{value.hex()}, d = d1*{first.hex()}, e = e1*{second.hex()};"
        f" F[{n}] = f*w; D[{n}] = d*w + f*w1; E[{n}] = e*w + 2*d*w1 + f*w2; }}\n"
    )


def _sweep(spec: RadialSpec) -> str:
    """The function that fills F, F', F'' of every basis function from the distances r."""
    p = spec.envelope
    slope = -p * (p + 1) * (p + 2) / 2
    rate = 1 / spec.cutoff
    powers = "\n".join(f"const vec u{k} = u{k - 1}*u;" for k in range(2, p))
    below = "((vec){0} + 1.0)" if p == 2 else f"u{p - 2}"
    body = {"bessel": _bessel, "gaussian": _gaussian, "chebyshev": _chebyshev}[spec.kind](spec)
    lines = "\n".join(body)
    return f"""
static inline void sweep(vec r, vec *F, vec *D, vec *E) {{
const ivec inside = ~(r >= {spec.cutoff.hex()}); /* NaN stays NaN */
r = (vec)((ivec)r & inside);
const vec u = r*{rate.hex()}, u1 = u, v = 1.0 - u;
{powers}
vec w = v*v*v*{_horner(envelope_coefficients(p), "u")};
vec w1 = {(slope * rate).hex()}*u{p - 1}*v*v;
vec w2 = {(slope * rate * rate).hex()}*({float(p - 1).hex()}*{below}*v*v - 2.0*u{p - 1}*v);
w = (vec)((ivec)w & inside); w1 = (vec)((ivec)w1 & inside); w2 = (vec)((ivec)w2 & inside);
{lines}
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
    return prelude("double", element=real) + EXPONENTIAL + ROWS + _sweep(spec) + "\n".join(kernels)
