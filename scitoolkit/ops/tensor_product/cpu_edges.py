"""Traversal of a chunk with SIMD over edges, for features with few channels.

With few channels, vectors over channels would be mostly empty. Instead the rows of WIDTH edges of
one receiver are transposed into buffers with one vector per element, and the passes of the paths
run on these one channel at a time. Padding edges in the last vector have zero attributes and
contribute nothing.
"""

from __future__ import annotations

from scitoolkit.ops.codegen.compile import read
from scitoolkit.ops.codegen.vectors import transposed_in_place
from scitoolkit.ops.tensor_product.cpu_prelude import WIDEST, steps_over_edges
from scitoolkit.ops.tensor_product.cpu_terms import ScalarTable
from scitoolkit.ops.tensor_product.spec import TensorProductSpec

MODES = ("uvu", "uuu")
MOST_BYTES = 1 << 17  # of buffers; beyond the size of the L2 cache they bring no gain

_TRANSPOSED = "\n".join(
    f"#if WIDTH == {lanes}\n{transposed_in_place(lanes)}\n#endif" for lanes in (2, 4, 8, 16)
)


def functions() -> str:
    """Return the C that transposes rows of edges into vectors over edges, and back."""
    transpose = f"static inline void transpose(vec *a) {{\n{_TRANSPOSED}\n}}\n"
    return transpose + read(__file__, "edges.c")


def suits(spec: TensorProductSpec, table: ScalarTable, acc: str) -> bool:
    """Return whether vectors over edges are faster for a spec than vectors over channels."""
    over_channels, over_edges = steps_over_edges(spec, acc)
    return (
        all(path.mode in MODES for path in spec.paths)
        and over_edges < over_channels
        and stack_bytes(spec, table) <= MOST_BYTES
    )


def numbers_are_vectors(passes: str) -> str:
    """Return the C source of the passes vectorised over edges instead of channels."""
    names = ("real", "acc", "gradw")
    begin = [f"#define {name} vec" for name in names]
    end = [f"#undef {name}" for name in (*names, "LANES")]
    return "\n".join([*begin, "#undef LANES", "#define LANES 65536", passes, *end])


def traversal(spec: TensorProductSpec, kernel: str, calls: str) -> str:
    """Return C that runs the passes over the edges of a chunk's receivers, WIDTH at a time."""
    double, grads, rows = kernel == "double_backward", kernel != "forward", kernel != "backward"
    own = "0" if spec.shared_weights else f"i*{spec.weight_numel}"
    inputs = {
        "x": (f"X + s*{spec.dim_in1}", spec.dim_in1),
        "y": (f"Y + i*{spec.dim_in2}", spec.dim_in2),
        "w": (f"W + {own}", spec.weight_numel),
    }
    if double:
        inputs["dx"] = ("DX + s*sdx", spec.dim_in1)
        inputs["dy"] = ("DY + i*sdy", spec.dim_in2)
        inputs["dw"] = ("DW + i*sdw", spec.weight_numel)
    head = ["struct tile tile; tile.ne = 1; tile.stream = 0; tile.ahead = 0;"]
    for name, (_, size) in inputs.items():
        head.append(f"vec {name}_[{max(1, size)}]; const real *r{name}[WIDTH];")
        head.append(f"tile.{name}s[0] = {name}_;")
    node, fill, store, end, finish = [], [], [], "", ""
    for name, (place, size) in inputs.items():
        fill.append(f"r{name}[l] = {place};")
        store.append(f"gather_rows({name}_, r{name}, {size});")
    for name in ("y", "dy") if double else ("y",):
        scalars = "as" if name == "y" else "bs"
        store.append(
            f"for (int j = 0; j < {spec.dim_in2}; j++) "
            f"for (int l = count; l < WIDTH; l++) {name}_[j][l] = 0;\n"
            f"scalars({name}_, tile.{scalars}[0]);"
        )
    if rows:
        head.append(f"vec z[{_whole(spec.dim_out)}]; tile.z = z;")
        node.append(f"for (int k = 0; k < {_whole(spec.dim_out)}; k++) z[k] = (vec){{0}};")
        end = f"""
for (int k = 0; k < {spec.dim_out}; k += WIDTH) {{
const vec s = totals(z + k);
for (int l = 0; l < WIDTH && k + l < {spec.dim_out}; l++) Z[n*{spec.dim_out}+k+l] = (real)s[l];
}}"""
    back = []
    if grads:
        of_weights = max(1, spec.weight_numel)
        head.append(
            f"vec g_[{max(1, spec.dim_out)}], gx_[{max(1, spec.dim_in1)}], gw_[{of_weights}];\n"
            "tile.g = g_; tile.gxs[0] = gx_; tile.gws[0] = gw_; tile.gys[0] = tile.gyr[0];\n"
            "acc *rgx[WIDTH]; real *rgy[WIDTH];"
        )
        node.append(
            f"for (int k = 0; k < {spec.dim_out}; k++) "
            f"g_[k] = (vec){{0}} + (num)G[n*{spec.dim_out}+k];"
        )
        fill.append(f"rgx[l] = own + slot[i]*{spec.dim_in1}; rgy[l] = GY + i*{spec.dim_in2};")
        store.append(f"for (int j = 0; j < {spec.dim_in1}; j++) gx_[j] = (vec){{0}};")
        store.append("for (int j = 0; j < ATTRIBUTES; j++) tile.gyr[0][j] = (vec){0};")
        back.append(f"add_rows(rgx, gx_, {spec.dim_in1}, count);")
        back.append(f"put_rows(rgy, tile.gyr[0], {spec.dim_in2}, count);")
        if spec.shared_weights:
            head.append(f"for (int j = 0; j < {of_weights}; j++) gw_[j] = (vec){{0}};")
            finish = (
                f"for (int j = 0; j < {spec.weight_numel}; j++) own_weights[j] = total(gw_[j]);"
            )
        else:
            head.append("real *rgw[WIDTH];")
            fill.append(f"rgw[l] = GW + {own};")
            back.append(f"put_rows(rgw, gw_, {spec.weight_numel}, count);")
    return f"""
{chr(10).join(head)}
for (i64 n = chunk_ptr[chunk]; n < chunk_ptr[chunk+1]; n++) {{
{chr(10).join(node)}
for (i64 t = ptr[n]; t < ptr[n+1]; t += WIDTH) {{
const int count = ptr[n+1] - t < WIDTH ? (int)(ptr[n+1] - t) : WIDTH;
for (int l = 0; l < WIDTH; l++) {{
const i64 i = order[t + (l < count ? l : count - 1)], s = sender[i]; (void)s;
{chr(10).join(fill)}
}}
{chr(10).join(store)}
{calls}
{chr(10).join(back)}
}}
{end}
}}
{finish}"""


def _whole(size: int) -> str:
    return f"(({max(1, size)} + WIDTH - 1) / WIDTH * WIDTH)"


def stack_bytes(spec: TensorProductSpec, table: ScalarTable) -> int:
    """Return the bytes of stack of a chunk for the widest vectors."""
    rows = 3 * spec.dim_in1 + 4 * spec.dim_in2 + 3 * spec.weight_numel + 2 * spec.dim_out
    return WIDEST * (rows + 2 * table.size + 64)
