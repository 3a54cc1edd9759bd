"""C source of the fitting network, generated for the widths of a spec.

All arrays have atoms along the lanes: a tile is 3 vectors of atoms, and feature k of a tile is
`x[k][3]`. A layer is then a product of a panel of ROWS weights (broadcast) with a tile (loaded),
3 x ROWS accumulators in registers, and its output has the layout that the next layer reads, so
that nothing is ever transposed; the derivative reads the same panels along their other side. The
descriptor D[m, a] = sum_c T[m, c] T[a, c] is symmetric where both indices are below `axis`; those
pairs are one input with the sum of both weights.
"""

from __future__ import annotations

from itertools import pairwise

from scitoolkit.ops.codegen import vectors
from scitoolkit.ops.codegen.compile import read
from scitoolkit.ops.fitting_network.spec import NONE, FittingSpec, shortcut


def generate(spec: FittingSpec, real: str) -> str:
    """Return the C source for `real` (float or double)."""
    sizes = (spec.inputs, *spec.widths)
    shortcuts = [NONE, *(shortcut(a, b) for a, b in pairwise(sizes[1:]))]
    size = {"double": 8, "float": 4}[real]
    return "\n".join(
        [
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
