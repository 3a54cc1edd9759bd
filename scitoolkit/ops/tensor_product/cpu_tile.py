"""Traversal of a chunk with SIMD over channels: tiles of edges of one receiver, path by path."""

from __future__ import annotations

from scitoolkit.ops.tensor_product.cpu_terms import ScalarTable
from scitoolkit.ops.tensor_product.spec import TensorProductSpec

TILE = 4  # edges of one receiver per tile

# Argument of the passes over a tile: rows and scalars of its edges, and rows of their receiver.
STRUCT = """
#define ATTRIBUTES (({attributes} + WIDTH - 1) / WIDTH * WIDTH)
struct tile {{
  int ne, stream; i64 ahead;
  const real *xs[TILE], *ys[TILE], *ws[TILE], *dxs[TILE], *dys[TILE], *dws[TILE], *g;
  acc *gxs[TILE], *gys[TILE], *z; gradw *gws[TILE];
  acc as[TILE][{scalars}] __attribute__((aligned(64)));
  acc bs[TILE][{cotangent_scalars}] __attribute__((aligned(64)));
  acc gyr[TILE][ATTRIBUTES]; vec sums[TILE][ATTRIBUTES];
}};
#define OPEN const int ne = T->ne, stream = T->stream; const i64 ahead = T->ahead; \\
  const real *const *xs = T->xs, *const *ys = T->ys, *const *ws = T->ws; \\
  const real *const *dxs = T->dxs, *const *dys = T->dys, *const *dws = T->dws, *g = T->g; \\
  acc *const *gxs = T->gxs, *const *gys = T->gys, *z = T->z; gradw *const *gws = T->gws; \\
  acc (*as)[{scalars}] = T->as, (*bs)[{cotangent_scalars}] = T->bs; \\
  vec (*sums)[ATTRIBUTES] = T->sums;
"""


def struct(spec: TensorProductSpec, table: ScalarTable, kernel: str) -> str:
    """Return the C struct of a tile and the macro `OPEN`, which declares its members as locals."""
    return STRUCT.format(
        attributes=max(1, spec.dim_in2) if kernel != "forward" else 1,
        scalars=table.size,
        cotangent_scalars=table.size if kernel == "double_backward" else 1,
    )


def _fill(spec: TensorProductSpec, kernel: str) -> str:
    """Return C that sets the rows and scalars of a tile's edges."""
    double, grads = kernel == "double_backward", kernel != "forward"
    own = "0" if spec.shared_weights else f"i*{spec.weight_numel}"
    lines = [
        "tile.ne = ptr[n+1] - t < TILE ? (int)(ptr[n+1] - t) : TILE;",
        "const int ne = tile.ne;",
        f"tile.ahead = t + ne < last ? (order[t+ne] - order[t])*{spec.weight_numel} : 0;",
    ]
    if grads:
        lines.append(
            "for (int e = 0; e < ne; e++) for (int j = 0; j < ATTRIBUTES; j++) "
            "{ tile.sums[e][j] = (vec){0}; tile.gyr[e][j] = 0; }"
        )
    lines += [
        "for (int e = 0; e < ne; e++) {",
        "const i64 i = order[t+e], s = sender[i];",
        f"tile.xs[e] = X + s*{spec.dim_in1}; tile.ys[e] = Y + i*{spec.dim_in2};",
        f"tile.ws[e] = W + {own};",
        "scalars(tile.ys[e], tile.as[e]);",
    ]
    if double:
        lines.append("tile.dxs[e] = DX + s*sdx; tile.dys[e] = DY + i*sdy;")
        lines.append("tile.dws[e] = DW + i*sdw; scalars(tile.dys[e], tile.bs[e]);")
    if grads:
        lines.append(f"tile.gxs[e] = own + slot[i]*{spec.dim_in1}; tile.gys[e] = tile.gyr[e];")
        lines.append(f"tile.gws[e] = {'own_weights' if spec.shared_weights else f'GW + {own}'};")
    lines.append("}")
    ahead = [f"prefetch(X + s*{spec.dim_in1}, {spec.dim_in1}*sizeof(real));"]
    if double:
        ahead.append(f"if (sdx) prefetch(DX + s*sdx, {spec.dim_in1}*sizeof(real));")
    lines += [
        "for (i64 p = t + ne; p < t + ne + TILE && p < last; p++) {",
        "const i64 s = sender[order[p]];",
        *ahead,
        "}",
    ]
    return "\n".join(lines)


def _store_attributes(spec: TensorProductSpec) -> str:
    size = spec.dim_in2
    return f"""
for (int e = 0; e < ne; e++) {{
real *gy = GY + order[t+e]*{size};
for (int j = 0; j < {size}; j += LANES) {{
const vec s = totals(tile.sums[e] + j) + *(const vecu *)(tile.gyr[e] + j);
for (int l = 0; l < LANES && j + l < {size}; l++) gy[j+l] = (real)s[l];
}}
}}"""


def traversal(spec: TensorProductSpec, kernel: str, calls: str) -> str:
    """Return C that runs the passes over all tiles of a chunk's receivers."""
    grads, rows, size = kernel != "forward", kernel != "backward", spec.dim_out
    head, node, end = ["struct tile tile;"], [], ""
    work = [_fill(spec, kernel), calls]
    if rows:
        # Sum in the output itself unless it is rounded or stored past the caches.
        head.append(
            f"acc row[{max(1, size)}] __attribute__((aligned(64))); "
            f"const int past = nodes*{size}*sizeof(real) > STREAM_BYTES && {size} % LANES == 0"
            " && (uintptr_t)Z % PART == 0; const int direct = sizeof(acc) == sizeof(real) && !past;"
        )
        node.append(f"acc *z = tile.z = direct ? (acc *)(Z + n*{size}) : row;")
        node.append(f"memset(z, 0, {size}*sizeof(acc));")
        end = f"if (!direct) store_row(Z + n*{size}, row, {size}, past);"
    if grads:
        weights = f"num_edges*{spec.weight_numel}*sizeof(real)"
        past = f"{weights} > STREAM_BYTES && (uintptr_t)GW % PART == 0"
        head.append(f"tile.stream = {'0' if spec.shared_weights else past};")
        node.append(f"tile.g = G + n*{size};")
        work.append(_store_attributes(spec))
    return f"""
{chr(10).join(head)}
const i64 last = ptr[chunk_ptr[chunk+1]];
for (i64 n = chunk_ptr[chunk]; n < chunk_ptr[chunk+1]; n++) {{
{chr(10).join(node)}
for (i64 t = ptr[n]; t < ptr[n+1]; t += TILE) {{
{chr(10).join(work)}
}}
{end}
}}
__sync_synchronize(); /* makes non-temporal stores visible to other threads */
"""


def stack_bytes(spec: TensorProductSpec, table: ScalarTable) -> int:
    """Return the bytes of stack of a chunk for the widest vectors."""
    of_uvw = [  # products of features with attributes, of a path and of its cotangents
        2 * spec.in1[path.in1].mul * spec.out[path.out].components
        for path in spec.paths
        if path.mode == "uvw"
    ]
    tile = TILE * (2 * table.size + (spec.dim_in2 + 16) * 17)
    return 8 * (tile + spec.dim_out + max(of_uvw, default=0))
