"""C source of the kernels of 1X1V and 1X2V, generated from the exact integrals of a basis.

A SIMD lane is a cell of v, so no transposition is needed. A face is reduced to its few trace modes,
which are computed once for both adjacent cells: the right faces of a column are the left faces of
the next one, and the faces in v of a column are stored in a buffer. One pass reads f, writes the
stage and sums the current. In 1X2V v is vx: there is no flux along vy, so a row of cells of one vy
is updated like a column of 1X1V.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scitoolkit.generators.vlasov.basis import Integrals, Kind, integrals
from scitoolkit.ops.codegen.compile import read
from scitoolkit.ops.codegen.emit import banner, indented
from scitoolkit.ops.codegen.vectors import prelude

PAD = 8
"""Padding before and after the cells of v in memory: one AVX-512 vector of doubles."""


def generate(p: str, kind: Kind, velocities: str = "1") -> str:
    """Return the C source for polynomial degree `p` (as text) and a kind of basis.

    Args:
        p: degree.
        kind: of the basis.
        velocities: 1 or 2.

    Example:
        >>> "advance(" in generate("1", "tensor")
        True
    """
    k = integrals(int(p), kind, 1 + int(velocities))
    parts = [
        banner(f"Vlasov 1X{velocities}V, modal {kind} basis, p = {p}: {k.num} modes a cell"),
        prelude("double"),
        f"#define N {k.num}\n#define M {k.field}\n#define F {k.faces}",
        f"#define DEGREE {p}\n#define PAD {PAD}",
        read(__file__, "lanes.c"),
        f"static const real EDGE[M] = {{{_values(k.edge)}}};",
        f"static const real PARITY[N] = {{{_values(k.parity[:, :2].prod(1))}}};",
        "static const real RISE[M][M] = {" + ", ".join(f"{{{_values(r)}}}" for r in k.rise) + "};",
        indented(_x_faces(k)),
        indented(_v_faces(k)),
        indented(_cells(k)),
        indented(_density(k)),
        read(__file__, "vlasov.c"),
    ]
    return "\n".join(parts)


def _x_faces(k: Integrals) -> str:
    """Return the function of v times the upwind trace at the lower faces in x of a row."""
    both = {
        side: _loads(k.num, f"{row} + {{m}} * S + i")
        + [f"t{n} = {_sum(k.trace_x[side][n], 'f{}')};" for n in range(k.faces)]
        for side, row in ((1, "low"), (-1, "high"))
    }
    stores = [
        f"STORE(to + {n} * nv + i, {' + '.join([f'c * t{n}', *_scaled('hv', k.times[n], 't{}')])});"
        for n in range(k.faces)
    ]
    return _function(
        "x_faces",
        "const real *restrict low, const real *restrict high, const real *restrict vc, real hv, "
        "i64 nv, i64 S, real *restrict to",
        [
            "const vec c = LOAD(vc + i);",
            "vec " + ", ".join(f"t{n}" for n in range(k.faces)) + ";",
            banner("a face lies at v = 0 and a vector on one side of it: upwinding is a branch"),
            "if (vc[i] > 0) {",
            *both[1],
            "} else {",
            *both[-1],
            "}",
            *stores,
        ],
    )


def _v_faces(k: Integrals) -> str:
    """Return the function of the flux a f at the lower faces in v, zero at both ends."""
    lines = []
    for name, side, place in (("low", 1, "i - 1"), ("high", -1, "i")):
        lines += [f"vec {', '.join(f'{name}{n}' for n in range(k.faces))};", "{"]
        lines += _loads(k.num, f"f + {{m}} * S + {place}")
        lines += [f"{name}{n} = {_sum(k.trace_v[side][n], 'f{}')};" for n in range(k.faces)]
        lines.append("}")
    lines += [f"const vec s{n} = low{n} + high{n};" for n in range(k.faces)]
    for out in range(k.faces):
        parts = [
            term for n in range(k.field) for term in _scaled(f"a[{n}]", k.triple[n, :, out], "s{}")
        ]
        # F = a (f- + f+) / 2 - tau (f+ - f-) / 2, in the modes of the face; tau bounds |a|, or is 0
        # for the central flux.
        value = f"0.5 * ({' + '.join(parts)}) - (0.5 * tau) * (high{out} - low{out})"
        lines.append(f"STORE(to + {out} * S + i, {value});")
    return _function(
        "v_faces",
        "const real *restrict f, const real *restrict a, real tau, i64 nv, i64 S, "
        "real *restrict to",
        lines,
        after=["for (int k = 0; k < F; k++) to[k * S] = to[k * S + nv] = 0;"],
    )


def _cells(k: Integrals) -> str:
    """Return the function that updates a row of cells and sums its current."""
    faces, field = range(k.faces), range(k.field)
    lines = ["const vec c = LOAD(vc + i);", *_loads(k.num, "f + {m} * S + i")]
    for axis, low, high in (
        ("x", "left + {n} * nv + i", "right + {n} * nv + i"),
        ("v", "v + {n} * S + i", "v + {n} * S + i + 1"),
    ):
        for n in faces:
            lines += [
                f"const vec {axis}l{n} = LOAD({low.format(n=n)}), "
                f"{axis}h{n} = LOAD({high.format(n=n)}), "
                f"{axis}s{n} = {axis}l{n} + {axis}h{n}, {axis}d{n} = {axis}l{n} - {axis}h{n};"
            ]
    for m in range(k.num):
        along_x = [
            *_scaled("c", k.advect[m]),
            *_scaled("hv", k.advect_eta[m]),
            *_faces("x", k.trace_x, m),
        ]
        along_v = [t for n in field for t in _scaled(f"a[{n}]", k.accelerate[m, n])]
        along_v += _faces("v", k.trace_v, m)
        rate = f"rx * ({' + '.join(along_x)}) + rv * ({' + '.join(along_v)})"
        value = f"ca * LOAD(base + {m} * S + i) + cb * f{m} + {rate}"
        lines.append(f"STORE(out + {m} * S + i, {value});")
    lines += [
        f"j{n} += {' + '.join(_scaled('c', k.moments[0, n]) + _scaled('hv', k.moments[1, n]))};"
        for n in field
    ]
    return _function(
        "cells",
        "const real *restrict base, const real *restrict f, real *restrict out, "
        "const real *restrict a, const real *restrict left, const real *restrict right, "
        "const real *restrict v, const real *restrict vc, real rx, real rv, real hv, real ca, "
        "real cb, i64 nv, i64 S, real *restrict J",
        lines,
        before=["vec " + ", ".join(f"j{n} = Z" for n in field) + ";"],
        after=[f"J[{n}] = hv * across(j{n});" for n in field],
    )


def _density(k: Integrals) -> str:
    """Return the function that adds a species' charge density to the modes of a row."""
    return _function(
        "density",
        "const real *restrict f, real charge, i64 nv, i64 S, real *restrict rho",
        [
            *_loads(k.num, "f + {m} * S + i"),
            *(f"j{n} += {_sum(k.moments[0, n], 'f{}')};" for n in range(k.field)),
        ],
        before=["vec " + ", ".join(f"j{n} = Z" for n in range(k.field)) + ";"],
        after=[f"rho[{n}] += charge * across(j{n});" for n in range(k.field)],
    )


def _function(
    name: str,
    parameters: str,
    body: list[str],
    before: list[str] | None = None,
    after: list[str] | None = None,
) -> str:
    """Return a function with a loop over vectors of cells of v."""
    return "\n".join(
        [
            f"static void {name}({parameters}) {{",
            "const vec Z = {0};",
            *(before or []),
            "for (i64 i = 0; i < nv; i += LANES) {",
            *body,
            "}",
            *(after or []),
            "}",
        ]
    )


def _loads(num: int, place: str) -> list[str]:
    return [f"const vec f{m} = LOAD({place.format(m=m)});" for m in range(num)]


def _faces(axis: str, trace: Mapping[int, np.ndarray], mode: int) -> list[str]:
    """Return the flux into a mode through both faces, whose traces are equal up to sign."""
    low, high = trace[-1][:, mode], trace[1][:, mode]
    # Minus the flux out of both faces: F_low psi(-1) - F_high psi(1). A mode that is even across
    # the cell needs the difference of the fluxes, an odd one their sum, which are formed once for
    # all modes.
    even = np.allclose(low, high)
    return _terms(low, f"{axis}d{{}}" if even else f"{axis}s{{}}")


def _terms(row: np.ndarray, name: str) -> list[str]:
    """Return the terms `constant * name` of the nonzero constants."""
    return [f"{float(c)!r} * {name.format(i)}" for i, c in enumerate(row) if c]


def _scaled(factor: str, row: np.ndarray, name: str = "f{}") -> list[str]:
    """Return the product of a factor and the sum of a row, or no term if the row is zero."""
    return [f"{factor} * ({_sum(row, name)})"] if row.any() else []


def _sum(row: np.ndarray, name: str) -> str:
    return " + ".join(_terms(row, name)) or "Z"


def _values(row: np.ndarray) -> str:
    return ", ".join(repr(float(v)) for v in row)
