"""Generator of the C kernel of the fitting network.

SIMD is over atoms: a tile is 3 vectors of atoms, and feature k of a tile is `x[k][3]`. A layer
multiplies a panel of ROWS broadcast weights by a tile, with 3 x ROWS accumulators in registers. Its
output has the layout of the next layer's input, so nothing is transposed; the derivative reads the
same panels along the other dimension. The descriptor D[m, a] = sum_c T[m, c] T[a, c] is symmetric
where both indices are below `axis`; such a pair is one input with the sum of both weights.
"""

from __future__ import annotations

from itertools import pairwise

from scitoolkit.ops.codegen import vectors
from scitoolkit.ops.codegen.compile import read
from scitoolkit.ops.codegen.emit import banner
from scitoolkit.ops.fitting_network.spec import NONE, FittingSpec, shortcut


def generate(spec: FittingSpec, real: str) -> str:
    """Return the C source of the kernel of a spec; `real` is float or double."""
    sizes = (spec.inputs, *spec.widths)
    shortcuts = [NONE, *(shortcut(a, b) for a, b in pairwise(sizes[1:]))]
    size = {"double": 8, "float": 4}[real]
    widths = " x ".join(map(str, (*spec.widths, 1)))
    title = f"fitting network of widths {widths}, {spec.basis} x {spec.axis} descriptor, {real}"
    return "\n".join(
        [
            banner(title),
            f"#define REAL {real}",
            f"#define IS_DOUBLE {int(real == 'double')}",
            f"#ifdef __AVX512F__\n#define LANES {64 // size}\n#define ROWS 8\n#else",
            f"#define LANES {32 // size}\n#define ROWS 4\n#endif",
            f"#define M {spec.basis}",
            f"#define AXIS {spec.axis}",
            f"#define LAYERS {len(spec.widths)}",
            f"#define WIDEST {max(spec.widths)}",
            f"static const int SIZE[] = {{{', '.join(map(str, sizes))}}};",
            f"static const int SHORTCUT[] = {{{', '.join(map(str, shortcuts))}}};",
            read(vectors.__file__, "vtanh.c"),
            read(__file__, "fitting_network.c"),
        ]
    )
