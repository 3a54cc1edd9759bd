"""Generator of the C kernels of spherical harmonics: unrolled recursions, one edge per SIMD lane.

With Y the unit-norm harmonics and D_k their derivative constants (rows of degree l - 1),

    gradient of <g, Y> along k:   <D_k^T g, Y>
    second derivatives of it:     <D_j^T D_k^T g, Y>

so both derivatives reuse the values, and only the vectors are saved for the backward pass.
"""

from __future__ import annotations

import math

from scitoolkit.ops.codegen.emit import banner, indented
from scitoolkit.ops.codegen.vectors import over_blocks, prelude
from scitoolkit.ops.spherical_harmonics.spec import HarmonicsSpec, derivative, index, sectoral

# Letters of the generated code; y is the polar axis, as in e3nn:
#   c<m>, s<m>   real and imaginary part of (z + i x)^m
#   p<l>_<m>     normalised Legendre polynomial of y, homogeneous in the vector
#   Y<i>         harmonics p c (m >= 0) and p s (m < 0), i = index(l, m)
#   square       x^2 + y^2 + z^2, so that the polynomials also hold for vectors of any length
INVERSE = """
#define SQRT(s) ((real)(sizeof(real) == 4 ? sqrtf(s) : sqrt(s)))
static inline vec inverse_length(vec square) {
  vec v; for (int l = 0; l < LANES; l++) v[l] = square[l] > 0 ? 1 / SQRT(square[l]) : 0; return v;
}
"""


def _constant(value: float) -> str:
    return f"(real){value.hex()}"


def _weighted(terms: list[tuple[float, str]]) -> str:
    return " + ".join(f"{_constant(factor)}*{name}" for factor, name in terms) or "(vec){0}"


def _load(spec: HarmonicsSpec) -> list[str]:
    """Declare x, y, z and, for normalised vectors, the inverse length."""
    raw = ["vec x_in[3]; load_rows(x_in, x_rows, 3);", "vec x = x_in[0], y = x_in[1], z = x_in[2];"]
    if not spec.normalize:
        return raw
    return [
        *raw,
        "const vec inverse = inverse_length(x*x + y*y + z*z);",
        "x *= inverse; y *= inverse; z *= inverse;",
    ]


def _values(max_degree: int) -> list[str]:
    """Declare the unit-norm harmonics Y0, Y1, ... up to `max_degree`."""
    lines = ["const vec square = x*x + y*y + z*z, one = (vec){0} + 1, c0 = one, s0 = {0};"]
    for m in range(1, max_degree + 1):
        # (z + i x)^m = (z + i x)^(m-1) (z + i x).
        lines.append(f"const vec c{m} = c{m - 1}*z - s{m - 1}*x, s{m} = c{m - 1}*x + s{m - 1}*z;")
    for m in range(max_degree + 1):
        for degree in range(m, max_degree + 1):
            lines.append(f"const vec p{degree}_{m} = {_polar(degree, m)};")
            lines.append(f"const vec Y{index(degree, m)} = p{degree}_{m}*c{m};")
            if m:
                lines.append(f"const vec Y{index(degree, -m)} = p{degree}_{m}*s{m};")
    return lines


def _polar(degree: int, m: int) -> str:
    if degree == m:
        return f"{_constant(sectoral(m))}*one"
    # Legendre recursion in l with unit norms (Abramowitz and Stegun 8.5.3):
    # sqrt(l^2 - m^2) p_l = (2 l - 1) y p_(l-1) - sqrt((l-1)^2 - m^2) r^2 p_(l-2).
    norm = math.sqrt(degree**2 - m * m)
    value = f"{_constant((2 * degree - 1) / norm)}*y*p{degree - 1}_{m}"
    if degree > m + 1:
        below = math.sqrt((degree - 1) ** 2 - m * m) / norm
        value += f" - {_constant(below)}*square*p{degree - 2}_{m}"
    return value


def _offsets(spec: HarmonicsSpec) -> list[tuple[int, int]]:
    """Return (degree, first column) of every block of the output."""
    blocks, offset = [], 0
    for degree in spec.degrees:
        blocks.append((degree, offset))
        offset += 2 * degree + 1
    return blocks


def _components(max_degree: int, lowest: int = 0) -> list[tuple[int, int]]:
    return [(n, m) for n in range(lowest, max_degree + 1) for m in range(-n, n + 1)]


def _load_gradient(spec: HarmonicsSpec) -> list[str]:
    """Declare G<i>, the incoming gradient with respect to the unit-norm harmonics."""
    lines = [f"vec g_in[{spec.dim_out}]; load_rows(g_in, g_rows, {spec.dim_out});"]
    for degree, m in _components(spec.max_degree):
        places = [offset + degree + m for n, offset in _offsets(spec) if n == degree]
        loads = " + ".join(f"g_in[{place}]" for place in places)
        value = f"{_constant(spec.scale(degree))}*({loads})" if loads else "(vec){0}"
        lines.append(f"const vec G{index(degree, m)} = {value};")
    return lines


def _pulled(source: str, target: str, max_degree: int) -> list[str]:
    """Declare target<k>_<i> = (D_k^T source)_i for degrees below `max_degree`."""
    lines = []
    for axis in range(3):
        for degree, m in _components(max_degree - 1):
            terms = [
                (factor, f"{source}{index(degree + 1, above)}")
                for above in range(-degree - 1, degree + 2)
                for k, factor in derivative(axis, degree + 1, above)
                if k == m
            ]
            lines.append(f"const vec {target}{axis}_{index(degree, m)} = {_weighted(terms)};")
    return lines


def _dot_values(source: str, target: str, max_degree: int) -> list[str]:
    """Declare target<k> = sum_i source<k>_<i> Y<i>."""
    numbers = [index(*component) for component in _components(max_degree - 1)]
    return [
        f"const vec {target}{axis} = "
        + (" + ".join(f"{source}{axis}_{i}*Y{i}" for i in numbers) or "(vec){0}")
        + ";"
        for axis in range(3)
    ]


def _dot(a: str, b: str) -> str:
    return f"({a}0*{b}0 + {a}1*{b}1 + {a}2*{b}2)"


def _project(source: str, target: str) -> list[str]:
    """Declare the components of `source` perpendicular and along (`<target>_along`) u."""
    lines = [f"const vec {target}_along = {_dot(source, 'u')};"]
    lines += [f"const vec {target}{k} = {source}{k} - u{k}*{target}_along;" for k in range(3)]
    return lines


UNIT = ["const vec u0 = x, u1 = y, u2 = z;"]


def _forward(spec: HarmonicsSpec) -> str:
    lines = [*_load(spec), *_values(spec.max_degree), f"vec out[{spec.dim_out}];"]
    for degree, offset in _offsets(spec):
        for m in range(-degree, degree + 1):
            value = f"{_constant(spec.scale(degree))}*Y{index(degree, m)}"
            lines.append(f"out[{offset + degree + m}] = {value};")
    lines.append(f"store_rows(z_rows, out, {spec.dim_out});")
    return over_blocks("forward", {"x_rows": 3}, {"z_rows": spec.dim_out}, "\n".join(lines))


def _gradient(spec: HarmonicsSpec) -> list[str]:
    """Declare g0, g1, g2: the gradient with respect to the (unit) vector."""
    return [
        *_load(spec),
        *_values(spec.max_degree),
        *_load_gradient(spec),
        *_pulled("G", "h", spec.max_degree),
        *_dot_values("h", "g", spec.max_degree),
    ]


def _store_vector(name: str) -> list[str]:
    values = ", ".join(f"{name}{k}" for k in range(3))
    return [f"vec gx_out[3] = {{{values}}};", "store_rows(gx_rows, gx_out, 3);"]


def _backward(spec: HarmonicsSpec) -> str:
    lines = _gradient(spec)
    if spec.normalize:
        lines += UNIT + _project("g", "across")
        lines += [f"const vec r{k} = across{k}*inverse;" for k in range(3)]
    lines += _store_vector("r" if spec.normalize else "g")
    return over_blocks(
        "backward", {"x_rows": 3, "g_rows": spec.dim_out}, {"gx_rows": 3}, "\n".join(lines)
    )


def _double_backward(spec: HarmonicsSpec) -> str:
    """Gradients of <d, gradient> with respect to G and the vectors."""
    lines = [*_gradient(spec), f"vec d_in[3], out[{spec.dim_out}]; load_rows(d_in, dx_rows, 3);"]
    lines += [f"const vec d{k} = d_in[{k}];" for k in range(3)]
    if spec.normalize:  # d u = v along d
        lines += UNIT + _project("d", "dp")
        lines += [f"const vec v{k} = dp{k}*inverse;" for k in range(3)]
    else:
        lines += [f"const vec v{k} = d{k};" for k in range(3)]
    for degree, offset in _offsets(spec):
        for m in range(-degree, degree + 1):
            parts = [
                f"v{axis}*({_weighted([(f, f'Y{index(degree - 1, k)}') for k, f in terms])})"
                for axis in range(3)
                if (terms := derivative(axis, degree, m) if degree else ())
            ]
            value = f"{_constant(spec.scale(degree))}*({' + '.join(parts) or '(vec){0}'})"
            lines.append(f"out[{offset + degree + m}] = {value};")
    lines.append(f"store_rows(gg_rows, out, {spec.dim_out});")
    for degree, m in _components(spec.max_degree - 1):
        i = index(degree, m)
        lines.append(f"const vec q{i} = v0*h0_{i} + v1*h1_{i} + v2*h2_{i};")
    lines += _pulled("q", "w", spec.max_degree - 1)
    lines += _dot_values("w", "t", spec.max_degree - 1)
    if spec.normalize:
        lines += _project("t", "tp") + _project("g", "gp")
        lines.append(f"const vec mixed = {_dot('g', 'dp')};")
        lines += [
            f"const vec r{k} = inverse*(tp{k} - inverse*"
            f"(u{k}*mixed + dp_along*gp{k} + gp_along*dp{k}));"
            for k in range(3)
        ]
    lines += _store_vector("r" if spec.normalize else "t")
    inputs = {"x_rows": 3, "g_rows": spec.dim_out, "dx_rows": 3}
    outputs = {"gg_rows": spec.dim_out, "gx_rows": 3}
    return over_blocks("double_backward", inputs, outputs, "\n".join(lines))


def generate(spec: HarmonicsSpec, real: str) -> str:
    """Return the C source of forward, backward and double_backward of `spec`.

    Args:
        spec: degrees and normalisation.
        real: float or double.

    Example:
        >>> "void forward(" in generate(HarmonicsSpec((0, 1), "component", True), "float")
        True
    """
    kernels = (_forward(spec), _backward(spec), _double_backward(spec))
    title = banner(f"spherical harmonics of degrees {', '.join(map(str, spec.degrees))}, {real}")
    return indented("\n".join([title, prelude(real), INVERSE, *kernels]))
