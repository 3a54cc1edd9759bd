"""Generator of the C kernels: gather + tensor product + scatter, unrolled over the constants.

One walk serves all kernels: receivers in order, the edges of a receiver in tiles, and for a tile
path after path, so that what a path reads and writes stays in registers and the first cache.
`forward` adds to the receiver's row. `backward` and `double_backward` also write the gradients of
each edge and add to the gradient row of its sender. Receivers are cut into chunks that depend on
the graph alone; each chunk has a gradient row of its own for every sender it meets (see `Edges`),
and rows of one sender are added up in the order of the chunks. So there are no atomics, and the
result does not depend on the number of threads.
"""

from __future__ import annotations

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.tensor_product import cpu_uuu, cpu_uvu, cpu_uvw
from scitoolkit.ops.tensor_product.cpu_terms import ScalarTable, Term
from scitoolkit.ops.tensor_product.spec import TensorProductSpec

EMITTERS = {"uvu": cpu_uvu, "uvw": cpu_uvw, "uuu": cpu_uuu}
TILE = 4  # edges of one receiver that a path sees before the next path
MAX_STACK = 1 << 20  # bytes of one thread's tile; threads of OpenMP may have stacks of 2 MiB
KERNELS = ("forward", "backward", "double_backward")

PRELUDE = """
#include <stdint.h>
#include <string.h>
typedef int64_t i64;
typedef {real} real;
typedef {acc} acc;
typedef {gradw} gradw;
#ifdef __AVX512F__
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define LANES ((int)(BYTES / sizeof(acc)))
#define TILE {tile}
typedef acc vec __attribute__((vector_size(BYTES), may_alias));
typedef acc vecu __attribute__((vector_size(BYTES), aligned(sizeof(acc)), may_alias));
typedef real part __attribute__((vector_size(BYTES/sizeof(acc)*sizeof(real))));
typedef real partu __attribute__((vector_size(BYTES/sizeof(acc)*sizeof(real)),
                                  aligned(sizeof(real)), may_alias));
#define ld(p) __builtin_convertvector(*(const partu *)(p), vec)
#define ld1(p) ((acc)*(p))
#define add(p, v) (*(vecu *)(p) += (v))
#define add1(p, v) (*(p) += (v))
#define put1(p, v) (*(p) = (real)(v))
#if {aligned} && defined(__AVX__) && !defined(__AVX512F__) && !defined(__clang__)
#define STREAMS 1
#define put(p, v) do {{ const partu v_ = __builtin_convertvector((v), part); \\
  if (stream) {nontemporal}; else *(partu *)(p) = v_; }} while (0)
#else
#define STREAMS 0
#define put(p, v) (*(partu *)(p) = __builtin_convertvector((v), part))
#endif
static inline vec gather(const real *p, int stride) {{
  vec v; for (int l = 0; l < LANES; l++) v[l] = p[l*stride]; return v;
}}
#define put_scatter(p, stride, v) do {{ const vec v_ = (v); \\
  for (int l = 0; l < LANES; l++) (p)[l*(stride)] = (real)v_[l]; }} while (0)
#define add_scatter(p, stride, v) do {{ const vec v_ = (v); \\
  for (int l = 0; l < LANES; l++) (p)[l*(stride)] += v_[l]; }} while (0)
static inline acc total(vec v) {{ acc s = 0; for (int l = 0; l < LANES; l++) s += v[l]; return s; }}
static inline void prefetch(const void *p, i64 bytes) {{
  for (i64 b = 0; b < bytes; b += 64) __builtin_prefetch((const char *)p + b);
}}
"""
# Writing past the caches pays when the rows do not stay in them until somebody reads them.
STREAM_BYTES = 4 << 20
NONTEMPORAL = {
    ("float", "float"): "__builtin_ia32_movntps256((float *)(p), v_)",
    ("double", "double"): "__builtin_ia32_movntpd256((double *)(p), v_)",
    ("float", "double"): "__builtin_ia32_movntps((float *)(p), v_)",
}

GRAPH = (
    "i64 nodes, i64 num_edges, i64 chunks, const i64 *chunk_ptr, const i64 *ptr, "
    "const i64 *order, const i64 *sender, const i64 *row, const i64 *extra"
)
INPUTS = "const real *X, const real *Y, const real *W"
# Cotangents come with a row stride, 0 for a single row of zeros that stands for a missing one.
COTANGENTS = "const real *DX, i64 sdx, const real *DY, i64 sdy, const real *DW, i64 sdw"
GRADIENTS = "acc *GX, acc *EX, real *GY, gradw *GW"
SIGNATURES = {
    "forward": f"{GRAPH}, {INPUTS}, acc *Z",
    "backward": f"{GRAPH}, {INPUTS}, const real *G, {GRADIENTS}",
    "double_backward": f"{GRAPH}, {INPUTS}, const real *G, {COTANGENTS}, acc *Z, {GRADIENTS}",
}


def supports(spec: TensorProductSpec) -> bool:
    """Tell whether every path of `spec` has a generated kernel."""
    return all(path.mode in EMITTERS for path in spec.paths)


def _passes(spec: TensorProductSpec, table: ScalarTable, kind: str, double: bool) -> str:
    blocks = []
    for path in spec.paths:
        text = getattr(EMITTERS[path.mode], kind)(Term(spec, table, path), double)
        if text:
            count = spec.in2[path.in2].mul
            blocks.append(f"for (int v = 0; v < {count}; v++) {{\n{text}\n}}")
    return "\n".join(blocks)


def _tile(spec: TensorProductSpec, table: ScalarTable, kernel: str) -> str:
    """Declare and fill the rows and scalars of the tile's edges."""
    double, grads = kernel == "double_backward", kernel != "forward"
    arrays = ["xs", "ys", "ws"] + (["dxs", "dys", "dws"] if double else [])
    lines = [f"const real *{', *'.join(f'{name}[TILE]' for name in arrays)};"]
    aligned = "__attribute__((aligned(64)))"
    lines.append(f"acc as[TILE][{table.size}] {aligned};")
    if double:
        lines.append(f"acc bs[TILE][{table.size}] {aligned};")
    if grads:
        size = max(spec.dim_in2, 1)
        lines.append("acc *gxs[TILE], *gys[TILE]; gradw *gws[TILE];")
        lines.append(f"acc gyr[TILE][{size}]; vec sums[TILE][{size}];")
        lines.append("memset(gyr, 0, sizeof(gyr)); memset(sums, 0, sizeof(sums));")
    own = "0" if spec.shared_weights else f"i*{spec.weight_numel}"
    lines += [
        "for (int e = 0; e < ne; e++) {",
        "const i64 i = order[t+e], s = sender[i];",
        f"xs[e] = X + s*{spec.dim_in1}; ys[e] = Y + i*{spec.dim_in2}; ws[e] = W + {own};",
        "scalars(ys[e], as[e]);",
    ]
    if double:
        lines.append("dxs[e] = DX + s*sdx; dys[e] = DY + i*sdy; dws[e] = DW + i*sdw;")
        lines.append("scalars(dys[e], bs[e]);")
    if grads:
        size = spec.dim_in1
        lines.append(f"gxs[e] = (row[i] < nodes ? GX : EX - nodes*{size}) + row[i]*{size};")
        chunk = f"chunk*{spec.weight_numel}" if spec.shared_weights else own
        lines.append(f"gys[e] = gyr[e]; gws[e] = GW + {chunk};")
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
    return (
        f"for (int e = 0; e < ne; e++) {{ real *gy = GY + order[t+e]*{size};\n"
        f"for (int j = 0; j < {size}; j++) gy[j] = (real)(gyr[e][j] + total(sums[e][j])); }}"
    )


def _kernel(spec: TensorProductSpec, table: ScalarTable, kernel: str) -> str:
    double, grads = kernel == "double_backward", kernel != "forward"
    node, work = [], [_tile(spec, table, kernel)]
    if kernel != "backward":
        node.append(f"acc *z = Z + n*{spec.dim_out}; memset(z, 0, {spec.dim_out}*sizeof(acc));")
        work.append(_passes(spec, table, "nodes", double))
    if grads:
        node.append(f"const real *g = G + n*{spec.dim_out};")
        work += [_passes(spec, table, each, double) for each in ("edges", "attributes")]
        work.append(_store_attributes(spec))
    parameters = SIGNATURES[kernel]
    names = ", ".join(each.replace("*", " ").split()[-1] for each in parameters.split(","))
    weights = f"num_edges*{spec.weight_numel}*sizeof(real)"
    stream = (
        f"const int stream = STREAMS && {weights} > {STREAM_BYTES} && (uintptr_t)GW % BYTES == 0;"
        if grads
        else "const int stream = 0;"
    )
    return f"""
static void {kernel}_chunk(i64 chunk, {parameters}) {{
{stream} (void)stream;
const i64 last = ptr[chunk_ptr[chunk+1]];
for (i64 n = chunk_ptr[chunk]; n < chunk_ptr[chunk+1]; n++) {{
{chr(10).join(node)}
for (i64 t = ptr[n]; t < ptr[n+1]; t += TILE) {{
const int ne = ptr[n+1] - t < TILE ? (int)(ptr[n+1] - t) : TILE;
const i64 ahead = t + ne < last ? (order[t+ne] - order[t])*{spec.weight_numel} : 0; (void)ahead;
{chr(10).join(work)}
}}
}}
if (stream) __sync_synchronize();
}}
void {kernel}({parameters}, i64 threads) {{
{_zero_rows(spec) if grads else ""}
#pragma omp parallel for num_threads(threads) if(threads > 1) schedule(dynamic, 1)
for (i64 chunk = 0; chunk < chunks; chunk++) {kernel}_chunk(chunk, {names});
{_add_rows(spec) if grads else ""}
}}
"""


def _zero_rows(spec: TensorProductSpec) -> str:
    size = f"{spec.dim_in1}*sizeof(acc)"
    return f"""
#pragma omp parallel for num_threads(threads) if(threads > 1)
for (i64 n = 0; n < nodes; n++) {{
  memset(GX + n*{spec.dim_in1}, 0, {size});
  memset(EX + extra[n]*{spec.dim_in1}, 0, (extra[n+1] - extra[n])*{size});
}}"""


def _add_rows(spec: TensorProductSpec) -> str:
    return f"""
#pragma omp parallel for num_threads(threads) if(threads > 1)
for (i64 n = 0; n < nodes; n++) for (i64 r = extra[n]; r < extra[n+1]; r++)
  for (int i = 0; i < {spec.dim_in1}; i++) GX[n*{spec.dim_in1}+i] += EX[r*{spec.dim_in1}+i];"""


def _check_stack(spec: TensorProductSpec, table: ScalarTable) -> None:
    size = 8 * TILE * (2 * table.size + spec.dim_in2 * 17)
    if size > MAX_STACK:
        raise BackendError(
            f"the scalars of {TILE} edges take {size} bytes", allowed=f"at most {MAX_STACK}"
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
    places = [spec.weight_numel, *(path.weight_offset for path in spec.paths)]
    prelude = PRELUDE.format(
        real=real,
        acc=acc,
        gradw="acc" if spec.shared_weights else "real",
        tile=TILE,
        aligned=int(not any(place % 16 for place in places) and not spec.shared_weights),
        nontemporal=NONTEMPORAL[real, acc],
    )
    return "\n".join([prelude, table.source(), _kernel(spec, table, kernel)])
