"""Generator of the C kernels: gather + tensor product + scatter, unrolled over the constants.

All kernels share one traversal: receivers in order, the edges of a receiver in tiles, and for each
tile all paths, so that the data of a path stay in registers and the L1 cache. `forward` adds to the
receiver's row. `backward` and `double_backward` also write the gradients of each edge and add to
the gradient row of its sender. Receivers are partitioned into chunks that depend only on the graph.
A chunk accumulates the gradients of its senders in private rows of its thread, which stay in cache,
and adds them to the result after all preceding chunks have done so (see `Edges`). Hence there are
no atomics, and the result does not depend on the number of threads.
"""

from __future__ import annotations

from types import ModuleType

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen.emit import banner, indented
from scitoolkit.ops.tensor_product import cpu_edges, cpu_tile, cpu_uuu, cpu_uvu, cpu_uvw
from scitoolkit.ops.tensor_product.cpu_prelude import WIDEST, prelude
from scitoolkit.ops.tensor_product.cpu_terms import ScalarTable, Term
from scitoolkit.ops.tensor_product.spec import TensorProductSpec

EMITTERS = {"uvu": cpu_uvu, "uvw": cpu_uvw, "uuu": cpu_uuu}
MAX_STACK = 1 << 20  # bytes of a thread's tile; the stacks of OpenMP threads may have only 2 MiB
KERNELS = ("forward", "backward", "double_backward")
SPINS = 4096  # spin iterations before sched_yield: some tens of microseconds

GRAPH = (
    "i64 nodes, i64 num_edges, i64 chunks, const i64 *chunk_ptr, const i64 *ptr, "
    "const i64 *order, const i64 *sender, const i64 *slot, const i64 *slot_ptr, "
    "const i64 *slot_node"
)
INPUTS = "const real *X, const real *Y, const real *W"
# Cotangents have a row stride; a missing cotangent is a single row of zeros with stride 0.
COTANGENTS = "const real *DX, i64 sdx, const real *DY, i64 sdy, const real *DW, i64 sdw"
# Kernels add to GX and to GW of shared weights. OWN has `own_size` private elements per thread.
GRADIENTS = "acc *GX, real *GY, gradw *GW, acc *OWN, i64 own_size"
SIGNATURES = {
    "forward": f"{GRAPH}, {INPUTS}, real *Z",
    "backward": f"{GRAPH}, {INPUTS}, const real *G, {GRADIENTS}",
    "double_backward": f"{GRAPH}, {INPUTS}, const real *G, {COTANGENTS}, real *Z, {GRADIENTS}",
}


def private_size(spec: TensorProductSpec, most_slots: int) -> int:
    """Return the elements of private scratch per thread for at most `most_slots` senders."""
    size = most_slots * spec.dim_in1 + (spec.weight_numel if spec.shared_weights else 0)
    return -(-size // WIDEST) * WIDEST  # avoids false sharing of cache lines


def _passes(spec: TensorProductSpec, table: ScalarTable, kernel: str) -> tuple[str, str]:
    """Return one C function per pass and path over a tile, and the calls of these functions.

    Compiling them as a single function would take far longer. `noipa` is needed because GCC 12
    considers small passes free of side effects: they write only through pointers in the tile.
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
                    f"{banner(f'{kind}, {spec.describe(number)}')}\n"
                    "static __attribute__((noinline, noipa)) "
                    f"void {kind}_{number}(struct tile *T) {{\n"
                    f"OPEN\nfor (int v = 0; v < {count}; v++) {{\n{text}\n}}\n}}"
                )
                calls.append(f"{kind}_{number}(&tile);")
    return "\n".join(functions), "\n".join(calls)


def _kernel(spec: TensorProductSpec, table: ScalarTable, kernel: str, over: ModuleType) -> str:
    grads = kernel != "forward"
    functions, calls = _passes(spec, table, kernel)
    parameters = SIGNATURES[kernel]
    names = ", ".join(text.replace("*", " ").split()[-1] for text in parameters.split(","))
    scratch, own = (", acc *own, acc *own_weights", ", own, own_weights") if grads else ("", "")
    call = f"{kernel}_chunk(chunk, {names}{own});"
    # `backward` starts with the weights that `forward` has left in the caches.
    order = "chunks - 1 - c" if kernel == "backward" else "c"
    passes = cpu_tile.struct(spec, table, kernel) + functions
    return f"""
{cpu_edges.numbers_are_vectors(passes) if over is cpu_edges else passes}
extern int omp_get_thread_num(void);
static void {kernel}_chunk(i64 chunk, {parameters}{scratch}) {{
{over.traversal(spec, kernel, calls)}
}}
void {kernel}({parameters}, i64 threads) {{
i64 turn = 0; (void)turn; /* chunk that may add to GX and GW; threads take chunks in rising order */
#pragma omp parallel for num_threads(threads) if(threads > 1) schedule(monotonic:dynamic, 1)
for (i64 c = 0; c < chunks; c++) {{
const i64 chunk = {order};
{_with_private_rows(spec, call) if grads else call}
}}
}}
"""


def _with_private_rows(spec: TensorProductSpec, call: str) -> str:
    """Return C that clears private rows, runs a chunk on them and adds them to GX in its turn."""
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


def generate(spec: TensorProductSpec, kernel: str, real: str, accumulate: str = "") -> str:
    """Return the C source of one kernel of `spec`.

    Args:
        spec: a tensor product of any modes.
        kernel: forward, backward or double_backward.
        real: float or double, the type of inputs and gradients.
        accumulate: float or double, the type of arithmetic and sums; `real` if empty.

    Raises:
        BackendError: the tensor product is too wide for the kernels' stack.

    Example:
        >>> spec = TensorProductSpec.channelwise("8x0e", "0e", "0e")
        >>> "void forward(" in generate(spec, "forward", "float")
        True
    """
    acc = accumulate or real
    table = ScalarTable.build(spec)
    over = cpu_edges if cpu_edges.suits(spec, table, acc) else cpu_tile
    size = over.stack_bytes(spec, table)
    if size > MAX_STACK:
        raise BackendError(
            f"the kernel needs {size} bytes of stack", allowed=f"at most {MAX_STACK}"
        )
    if over is cpu_edges:
        begin = [prelude(spec, real, acc, 1), cpu_edges.functions(), table.source_over_edges()]
    else:
        begin = [prelude(spec, real, acc, cpu_tile.TILE), table.source()]
    title = banner(f"{kernel} of {spec.describe()}, {real}, sums in {acc}")
    return indented("\n".join([title, *begin, _kernel(spec, table, kernel, over)]))
