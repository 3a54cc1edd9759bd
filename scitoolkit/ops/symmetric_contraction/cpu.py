"""Generator of the C kernels of the symmetric contraction, an unrolled sparse polynomial.

For each channel the contraction is a polynomial in the components of its features,

    z_m = sum_r c_r x_a x_b x_c ...      (rows r with component m and a <= b <= c <= ...)

whose coefficients c_r are linear combinations of an element's weights with constants known at
generation time. They are computed once per element; then straight-line code evaluates the
polynomial for every node of that element, with one channel per SIMD lane. Monomials share prefixes
in a tree; gradients traverse it in reverse, with Horner's scheme. One thread computes a pair of an
element and a block of channels, with the nodes in order, so there are no atomics, and results do
not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterable

from scitoolkit.ops.codegen.compile import read
from scitoolkit.ops.codegen.emit import banner, indented
from scitoolkit.ops.codegen.vectors import PRELUDE
from scitoolkit.ops.symmetric_contraction.spec import ContractionSpec, polynomial
from scitoolkit.ops.symmetric_contraction.tree import Node, prefix_tree

# Letters of the generated code, each a vector over channels:
#   x, d      features of a node, and the direction of a derivative
#   c, gc     coefficients of the rows for one element, and their gradient
#   g, gx     gradient with respect to z (given) and to x (written)
#   q<n>      monomial of the first n factors;  t<n> its derivative along d
#   h<n>      sum of c g times the remaining factors over all rows below a prefix
#   e<n>      derivative of h<n> along d
#   o<m>_<s>  partial sum s of component m of z
ACCUMULATORS = 8  # independent sums, to hide the latency of multiply-adds


def _plus(parts: Iterable[str]) -> str:
    return " + ".join(parts) or "(vec){0}"


class _FunctionWriter:
    """Emitter of one function body by a traversal of the tree; names have the depth as suffix."""

    def __init__(self, spec: ContractionSpec) -> None:
        self.tree = prefix_tree(spec)
        # Few components leave registers free for several sums each: shorter dependency chains.
        self.splits = max(1, ACCUMULATORS // spec.dim_out)
        self.spec = spec
        self.lines: list[str] = []
        self.used: dict[int, int] = {}

    def product(self, depth: int, variable: int, tangent: bool) -> None:
        """Declare the monomial q<depth> and, with `tangent`, its derivative t<depth> along d."""
        if depth == 1:
            self.lines.append(f"const vec q1 = x[{variable}];")
            if tangent:
                self.lines.append(f"const vec t1 = d[{variable}];")
            return
        self.lines.append(f"const vec q{depth} = q{depth - 1}*x[{variable}];")
        if tangent:
            self.lines.append(
                f"const vec t{depth} = t{depth - 1}*x[{variable}] + q{depth - 1}*d[{variable}];"
            )

    def accumulator(self, component: int) -> str:
        number = self.used.get(component, 0)
        # Consecutive terms of a component go to different partial sums, in an order fixed here.
        self.used[component] = number + 1
        return f"o{component}_{number % self.splits}"

    def open_sums(self) -> None:
        for m in range(self.spec.dim_out):
            names = ", ".join(f"o{m}_{s} = {{0}}" for s in range(self.splits))
            self.lines.append(f"vec {names};")

    def close_sums(self, target: str) -> None:
        for m in range(self.spec.dim_out):
            total = _plus(f"o{m}_{s}" for s in range(self.splits))
            self.lines.append(f"{target}[{m}] = {total};")

    def forward(self, node: Node, depth: int = 0, tangent: bool = False) -> None:
        """Sum coefficients times monomials (or times their derivatives along d)."""
        name = f"{'t' if tangent else 'q'}{depth}"
        for row, component in node.rows:
            self.lines.append(f"{self.accumulator(component)} += c[{row}]*{name};")
        for variable, child in node.children.items():
            self.lines.append("{")
            self.product(depth + 1, variable, tangent)
            self.forward(child, depth + 1, tangent)
            self.lines.append("}")

    def coefficients(self, node: Node, depth: int = 0, tangent: bool = False) -> None:
        """Add to the gradient of each coefficient."""
        name = f"{'t' if tangent else 'q'}{depth}"
        for row, component in node.rows:
            self.lines.append(f"gc[{row}] += g[{component}]*{name};")
        for variable, child in node.children.items():
            self.lines.append("{")
            self.product(depth + 1, variable, tangent)
            self.coefficients(child, depth + 1, tangent)
            self.lines.append("}")

    def backward(self, node: Node, depth: int = 0) -> None:
        """Declare h<depth>, the sum of the subtree of this prefix, and add to gx."""
        if depth:
            total = _plus(f"c[{row}]*g[{component}]" for row, component in node.rows)
            self.lines.append(f"vec h{depth} = {total};")
        for variable, child in node.children.items():
            self.lines.append("{")
            if child.children:
                self.product(depth + 1, variable, False)
            self.backward(child, depth + 1)
            below = f"h{depth + 1}"
            if depth:
                # Product rule at this factor: d(q x_v h') = q h' dx_v + x_v h' dq, of which the
                # second part is Horner's step towards the root.
                self.lines.append(f"gx[{variable}] += q{depth}*{below};")
                self.lines.append(f"h{depth} += x[{variable}]*{below};")
            else:
                self.lines.append(f"gx[{variable}] += {below};")
            self.lines.append("}")

    def double(self, node: Node, depth: int = 0) -> None:
        """Emit `backward` and its derivative along d, where e<depth> is that of h<depth>."""
        if depth:
            total = _plus(f"c[{row}]*g[{component}]" for row, component in node.rows)
            self.lines.append(f"vec h{depth} = {total}, e{depth} = {{0}};")
        for variable, child in node.children.items():
            self.lines.append("{")
            below, tangent = f"h{depth + 1}", f"e{depth + 1}"
            if child.children:
                self.product(depth + 1, variable, True)
            self.double(child, depth + 1)
            if depth:
                # Derivative along d of the two lines of `backward`: t is that of q, e of h.
                self.lines.append(f"gx[{variable}] += t{depth}*{below};")
                self.lines.append(f"h{depth} += x[{variable}]*{below};")
                self.lines.append(f"e{depth} += d[{variable}]*{below};")
            if child.children:
                scale = f"q{depth}*" if depth else ""
                self.lines.append(f"gx[{variable}] += {scale}{tangent};")
                if depth:
                    self.lines.append(f"e{depth} += x[{variable}]*{tangent};")
            self.lines.append("}")


def _tables(spec: ContractionSpec) -> str:
    rows = polynomial(spec)
    texts = {
        "static const int32_t row": rows.rows.tolist(),
        "static const int32_t path": rows.paths.tolist(),
        "static const real value": [value.hex() for value in rows.values.tolist()],
    }
    size = max(1, len(rows.rows))
    lines = [
        f"{name}[{size}] = {{{', '.join(map(str, text)) or '0'}}};" for name, text in texts.items()
    ]
    counts = (
        f"#define ROWS {max(1, len(rows.monomials))}\n#define ENTRIES {len(rows.rows)}\n"
        f"#define PATHS {max(1, spec.num_paths)}\n#define IN {spec.dim_in}\n"
        f"#define OUT {spec.dim_out}\n"
    )
    return counts + "\n".join(lines)


def _bodies(spec: ContractionSpec, training: bool) -> str:
    """Return the C functions of one node and one block of channels."""
    functions = []

    def add(signature: str, write) -> None:
        writer = _FunctionWriter(spec)
        write(writer)
        body = "\n".join(writer.lines)
        # Inlined, the long straight-line code would be compiled once for every caller.
        functions.append(f"static __attribute__((noinline)) void {signature} {{\n{body}\n}}")

    def sums(tangent: bool):
        def write(writer: _FunctionWriter) -> None:
            writer.open_sums()
            writer.forward(writer.tree, tangent=tangent)
            writer.close_sums("z")

        return write

    x, d, c = "const vec *restrict x", "const vec *restrict d", "const vec *restrict c"
    g, gx, gc = "const vec *restrict g", "vec *restrict gx", "vec *restrict gc"
    add(f"values({x}, {c}, vec *restrict z)", sums(False))
    add(f"gradients({x}, {c}, {g}, {gx})", lambda w: w.backward(w.tree))
    if not training:
        return "\n".join(functions)
    add(f"slopes({x}, {d}, {c}, vec *restrict z)", sums(True))
    add(f"curvatures({x}, {d}, {c}, {g}, {gx})", lambda w: w.double(w.tree))
    add(f"weigh({x}, {g}, {gc})", lambda w: w.coefficients(w.tree))
    add(f"weigh_slopes({x}, {d}, {g}, {gc})", lambda w: w.coefficients(w.tree, tangent=True))
    return "\n".join(functions)


def _function(name: str, parameters: str, start: str, node: str, end: str) -> str:
    """Return a C function over elements, whose nodes are order[ptr[e]...], and channel blocks."""
    return f"""
void {name}(i64 E, i64 C, const i64 *ptr, const i64 *order, const real *X, const real *W,
{parameters}, i64 threads) {{
const i64 blocks = (C + LANES - 1) / LANES;
#pragma omp parallel for num_threads(threads) if(threads > 1) schedule(dynamic, 1)
for (i64 job = 0; job < E * blocks; job++) {{
const i64 e = job / blocks, at = job % blocks * LANES;
const int width = C - at < LANES ? (int)(C - at) : LANES;
{start}
for (i64 t = ptr[e]; t < ptr[e + 1]; t++) {{
const i64 n = order[t];
vec x[IN]; load_all(x, X + n*IN*C + at, IN, C, width);
{node}
}}
{end}
}}
}}
"""


MIX = """if (ptr[e] == ptr[e + 1]) continue;
vec c[ROWS]; mix(W + e*PATHS*C + at, C, width, c);"""
START_WEIGHTS = "vec gc[ROWS]; memset(gc, 0, sizeof(gc));"
END_WEIGHTS = "unmix(gc, GW + e*PATHS*C + at, C, width);"
LOAD_G = "vec g[OUT]; load_all(g, G + n*OUT*C + at, OUT, C, width);"
LOAD_D = "vec d[IN]; load_all(d, DX + n*IN*C + at, IN, C, width);"
STORE_GX = "store_all(GX + n*IN*C + at, gx, IN, C, width);"


def generate(spec: ContractionSpec, real: str, *, training: bool = True) -> str:
    """Return the C source of the kernels of `spec`.

    Args:
        spec: irreps and correlation.
        real: float or double.
        training: include gradients of weights and second derivatives.

    Example:
        >>> "void forward(" in generate(ContractionSpec.build("0e", "0e", 2), "float")
        True
    """
    # Masks of comparisons have the width of the numbers that they select.
    integer = "int32_t" if real == "float" else "int64_t"
    clear = "vec gx[IN]; memset(gx, 0, sizeof(gx));"
    functions = [
        _function(
            "forward",
            "real *Z",
            MIX,
            "vec z[OUT]; values(x, c, z); store_all(Z + n*OUT*C + at, z, OUT, C, width);",
            "",
        ),
        _function(
            "backward",
            "const real *G, real *GX",
            MIX,
            f"{LOAD_G} {clear} gradients(x, c, g, gx); {STORE_GX}",
            "",
        ),
    ]
    derivatives = [
        _function(
            "backward_weight",
            "const real *G, real *GW",
            START_WEIGHTS,
            f"{LOAD_G} weigh(x, g, gc);",
            END_WEIGHTS,
        ),
        _function(
            "double_backward",
            "const real *G, const real *DX, real *GG, real *GX",
            MIX,
            f"{LOAD_G} {LOAD_D} {clear} vec z[OUT]; slopes(x, d, c, z); "
            f"curvatures(x, d, c, g, gx); {STORE_GX} "
            "store_all(GG + n*OUT*C + at, z, OUT, C, width);",
            "",
        ),
        _function(
            "double_backward_weight",
            "const real *G, const real *DX, real *GW",
            START_WEIGHTS,
            f"{LOAD_G} {LOAD_D} weigh_slopes(x, d, g, gc);",
            END_WEIGHTS,
        ),
    ]
    functions += derivatives if training else []
    head = PRELUDE.format(real=real, element=real, integer=integer)
    sides = [" + ".join(map(str, side)) for side in (spec.irreps_in, spec.irreps_out)]
    order = f"correlation {spec.correlation}"
    title = banner(f"symmetric contraction of {sides[0]} into {sides[1]}, {order}, {real}")
    return indented(
        "\n".join(
            [
                title,
                head,
                _tables(spec),
                read(__file__, "rows.c"),
                _bodies(spec, training),
                *functions,
            ]
        )
    )
