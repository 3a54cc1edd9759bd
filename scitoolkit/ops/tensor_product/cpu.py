"""Generator of the C kernels: gather + tensor product + scatter, unrolled over the constants.

One walk serves all kernels: receivers in order, the edges of a receiver in tiles, and for a tile
path after path, so that what a path reads and writes stays in registers and the first cache.
`forward` adds to the receiver's row. `backward` and `double_backward` also write the gradients of
each edge and add to the gradient row of its sender. Receivers are cut into chunks that depend on
the graph alone. A chunk adds up its senders' gradients in rows of its thread's own, which stay in
cache, and hands them over when all chunks before it have done so (see `Edges`). So there are no
atomics, and the result does not depend on the number of threads.
"""

from __future__ import annotations

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.tensor_product import cpu_uuu, cpu_uvu, cpu_uvw
from scitoolkit.ops.tensor_product.cpu_prelude import WIDEST, prelude
from scitoolkit.ops.tensor_product.cpu_terms import ScalarTable, Term
from scitoolkit.ops.tensor_product.spec import TensorProductSpec

EMITTERS = {"uvu": cpu_uvu, "uvw": cpu_uvw, "uuu": cpu_uuu}
TILE = 4  # edges of one receiver that a path sees before the next path
MAX_STACK = 1 << 20  # bytes of one thread's tile; threads of OpenMP may have stacks of 2 MiB
KERNELS = ("forward", "backward", "double_backward")
SPINS = 4096  # looks at the turn before a waiting thread lets others run: some tens of microseconds

GRAPH = (
    "i64 nodes, i64 num_edges, i64 chunks, const i64 *chunk_ptr, const i64 *ptr, "
    "const i64 *order, const i64 *sender, const i64 *slot, const i64 *slot_ptr, "
    "const i64 *slot_node"
)
INPUTS = "const real *X, const real *Y, const real *W"
# Cotangents come with a row stride, 0 for a single row of zeros that stands for a missing one.
COTANGENTS = "const real *DX, i64 sdx, const real *DY, i64 sdy, const real *DW, i64 sdw"
# GX, and GW of shared weights, are added to; OWN has `own_size` elements for each thread.
GRADIENTS = "acc *GX, real *GY, gradw *GW, acc *OWN, i64 own_size"
SIGNATURES = {
    "forward": f"{GRAPH}, {INPUTS}, real *Z",
    "backward": f"{GRAPH}, {INPUTS}, const real *G, {GRADIENTS}",
    "double_backward": f"{GRAPH}, {INPUTS}, const real *G, {COTANGENTS}, real *Z, {GRADIENTS}",
}


def supports(spec: TensorProductSpec) -> bool:
    """Tell whether every path of `spec` has a generated kernel."""
    return all(path.mode in EMITTERS for path in spec.paths)


def own_size(spec: TensorProductSpec, most_slots: int) -> int:
    """Elements of scratch that a thread needs for chunks of at most `most_slots` senders."""
    size = most_slots * spec.dim_in1 + (spec.weight_numel if spec.shared_weights else 0)
    return -(-size // WIDEST) * WIDEST  # threads share no line of cache


def _passes(spec: TensorProductSpec, table: ScalarTable, kernel: str) -> tuple[str, str]:
    """One function for each pass of each path over a tile, and the calls of all of them.

    One function for all would take the compiler twice as long.
    """
    double = kernel == "double_backward"
    kinds = {
        "forward": ["nodes"],
        "backward": ["edges", "attributes"],
        "double_backward": ["nodes", "edges", "attributes"],
    }[kernel]
    functions, calls = [], []
    for kind in kinds:
        for number, path in enumerate(spec.paths):
            text = getattr(EMITTERS[path.mode], kind)(Term(spec, table, path), double)
            if text:
                count = spec.in2[path.in2].mul
                functions.append(
                    f"static __attribute__((noinline)) void {kind}_{number}(struct tile *T) {{\n"
                    f"OPEN\nfor (int v = 0; v < {count}; v++) {{\n{text}\n}}\n}}"
                )
                calls.append(f"{kind}_{number}(&tile);")
    return "\n".join(functions), "\n".join(calls)


# What the passes over a tile take: rows of its edges, their scalars, rows of their receiver.
TILE_OF_EDGES = """
#define ATTRIBUTES (({attributes} + LANES - 1) / LANES * LANES)
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


def _tile(spec: TensorProductSpec, table: ScalarTable, kernel: str) -> str:
    """Fill the rows and scalars of the tile's edges."""
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


def _kernel(spec: TensorProductSpec, table: ScalarTable, kernel: str) -> str:
    double, grads, rows = kernel == "double_backward", kernel != "forward", kernel != "backward"
    functions, calls = _passes(spec, table, kernel)
    head, node, tail = ["struct tile tile;"], [], ""
    work = [_tile(spec, table, kernel), calls]
    size = spec.dim_out
    if rows:
        # Rows are summed where they belong, unless they are rounded or written past the caches.
        head.append(
            f"acc row[{max(1, size)}] __attribute__((aligned(64))); "
            f"const int past = nodes*{size}*sizeof(real) > STREAM_BYTES && {size} % LANES == 0"
            " && (uintptr_t)Z % PART == 0; const int direct = sizeof(acc) == sizeof(real) && !past;"
        )
        node.append(f"acc *z = tile.z = direct ? (acc *)(Z + n*{size}) : row;")
        node.append(f"memset(z, 0, {size}*sizeof(acc));")
        tail = f"if (!direct) store_row(Z + n*{size}, row, {size}, past);"
    if grads:
        weights = f"num_edges*{spec.weight_numel}*sizeof(real)"
        past = f"{weights} > STREAM_BYTES && (uintptr_t)GW % PART == 0"
        head.append(f"tile.stream = {'0' if spec.shared_weights else past};")
        node.append(f"tile.g = G + n*{size};")
        work.append(_store_attributes(spec))
    parameters = SIGNATURES[kernel]
    names = ", ".join(each.replace("*", " ").split()[-1] for each in parameters.split(","))
    scratch, own = (", acc *own, acc *own_weights", ", own, own_weights") if grads else ("", "")
    call = f"{kernel}_chunk(chunk, {names}{own});"
    # Each kernel starts with the weights that the one before it has left in the caches.
    order = "chunks - 1 - c" if kernel == "backward" else "c"
    struct = TILE_OF_EDGES.format(
        attributes=max(1, spec.dim_in2) if grads else 0,
        scalars=table.size,
        cotangent_scalars=table.size if double else 0,
    )
    return f"""
{struct}
{functions}
extern int omp_get_thread_num(void);
static void {kernel}_chunk(i64 chunk, {parameters}{scratch}) {{
{chr(10).join(head)}
const i64 last = ptr[chunk_ptr[chunk+1]];
for (i64 n = chunk_ptr[chunk]; n < chunk_ptr[chunk+1]; n++) {{
{chr(10).join(node)}
for (i64 t = ptr[n]; t < ptr[n+1]; t += TILE) {{
{chr(10).join(work)}
}}
{tail}
}}
__sync_synchronize(); /* stores past the caches are seen by whoever reads next */
}}
void {kernel}({parameters}, i64 threads) {{
i64 turn = 0; (void)turn; /* who may hand over; a thread takes its turns in rising order */
#pragma omp parallel for num_threads(threads) if(threads > 1) schedule(monotonic:dynamic, 1)
for (i64 c = 0; c < chunks; c++) {{
const i64 chunk = {order};
{_with_own_rows(spec, call) if grads else call}
}}
}}
"""


def _with_own_rows(spec: TensorProductSpec, call: str) -> str:
    """Clear the thread's own rows, run a chunk on them, and hand them over in the chunk's turn."""
    size = spec.dim_in1
    shared = spec.weight_numel if spec.shared_weights else 0
    return f"""
const i64 first = slot_ptr[chunk], count = slot_ptr[chunk+1] - first;
acc *own = OWN + omp_get_thread_num()*own_size, *own_weights = own + own_size - {shared};
memset(own, 0, count*{size}*sizeof(acc));
memset(own_weights, 0, {shared}*sizeof(acc));
{call}
for (int spins = 0; __atomic_load_n(&turn, __ATOMIC_ACQUIRE) != c; spins++)
  if (spins < {SPINS}) PAUSE; else sched_yield();
for (i64 s = 0; s < count; s++) add_row(GX + slot_node[first+s]*{size}, own + s*{size}, {size});
{f"add_row(GW, own_weights, {shared});" if shared else ""}
__atomic_store_n(&turn, c + 1, __ATOMIC_RELEASE);"""


def _check_stack(spec: TensorProductSpec, table: ScalarTable) -> None:
    size = 8 * TILE * (2 * table.size + (spec.dim_in2 + 16) * 17) + 8 * spec.dim_out
    if size > MAX_STACK:
        raise BackendError(
            f"the scalars of {TILE} edges and a row take {size} bytes",
            allowed=f"at most {MAX_STACK}",
        )


def generate(spec: TensorProductSpec, kernel: str, real: str, accumulate: str = "") -> str:
    """Return the C source of one kernel of `spec`.

    Args:
        spec: a tensor product that `supports` accepts.
        kernel: forward, backward or double_backward.
        real: float or double, what inputs and gradients are stored as.
        accumulate: what is computed and summed in, `real` when empty.

    Raises:
        BackendError: the tensor product is too wide for the kernels' stack.

    Example:
        >>> spec = TensorProductSpec.channelwise("8x0e", "0e", "0e")
        >>> "void forward(" in generate(spec, "forward", "float")
        True
    """
    acc = accumulate or real
    table = ScalarTable.build(spec)
    _check_stack(spec, table)
    return "\n".join([prelude(spec, real, acc, TILE), table.source(), _kernel(spec, table, kernel)])
