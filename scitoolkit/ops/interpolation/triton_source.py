"""Triton kernels of piecewise polynomials, with the arguments of the C ones.

A program of one warp holds a block of columns of an interval's coefficients in registers and loops
over a part of the interval's edges, so that sums over edges need no exchange between threads. Sums
over parts and over blocks of columns are left to torch: there are no atomics, and results are
bit-identical from call to call.
"""

from __future__ import annotations

import functools
from types import ModuleType

import torch
from torch import Tensor

from scitoolkit.ops.codegen import load_triton, on_device
from scitoolkit.ops.interpolation.grid import NUM_COEFFICIENTS

LANES = 128  # most columns of a program
EDGES = 8  # edges per tile
PARTS = 4  # of an interval's edges: intervals have very different numbers of them

HEAD = """
import triton
import triton.language as tl
"""
SIZES = "W: tl.constexpr, LANES: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr"


def _horner(factors: list[int]) -> str:
    """Return Horner's scheme of the polynomial with the last coefficients times `factors`."""
    first = NUM_COEFFICIENTS - len(factors)
    text = f"{factors[-1]}.0 * a{NUM_COEFFICIENTS - 1}[None, :]"
    for k in reversed(range(len(factors) - 1)):
        text = f"({factors[k]}.0 * a{first + k}[None, :] + t * ({text}))"
    return text


def _kernel(
    name: str, arguments: str, edge: list[str], *, reads: bool = True, gradient: str = ""
) -> str:
    """Return a kernel with the lines `edge` for each tile of edges.

    Args:
        name: of the kernel.
        arguments: names of the arrays.
        edge: lines that use a0 to a7, and t, e, inside of a tile.
        reads: load the coefficients of the interval.
        gradient: weight of the powers of t in the gradients ga0 to ga7 of the coefficients.
    """
    powers = range(NUM_COEFFICIENTS)
    at = f"(i * {NUM_COEFFICIENTS} + {{k}}) * W + w"
    body = [
        "i = tl.program_id(0).to(tl.int64)",
        "w = tl.program_id(1) * LANES + tl.arange(0, LANES)",
        "part = tl.program_id(2)",
        "valid = w < W",
    ]
    if reads:
        body += [f"a{k} = tl.load(CO + {at.format(k=k)}, mask=valid, other=0.0)" for k in powers]
    if gradient:
        body += [f"ga{k} = tl.zeros([LANES], T.dtype.element_ty)" for k in powers]
    body += [
        "end = tl.load(ptr + i + 1)",
        "for first in range(tl.load(ptr + i) + part * EDGES, end, PARTS * EDGES):",
        "    n = first + tl.arange(0, EDGES)",
        "    inside = n < end",
        "    mask = inside[:, None] & valid[None, :]",
        "    e = tl.load(order + n, mask=inside, other=0)",
        "    t = tl.load(T + e, mask=inside, other=0.0)[:, None]",
        *("    " + line for line in edge),
    ]
    if gradient == "values":
        body += ["    power = g", "    ga0 += tl.sum(power, 0)"]
        for k in powers[1:]:
            body += ["    power = power * t", f"    ga{k} += tl.sum(power, 0)"]
    elif gradient == "slopes":
        body += ["    power = g * d", "    ga1 += tl.sum(power, 0)"]
        for k in powers[2:]:
            body += ["    power = power * t", f"    ga{k} += {k}.0 * tl.sum(power, 0)"]
    if gradient:
        place = f"GA + part * (tl.num_programs(0) * ({NUM_COEFFICIENTS} * W)) + {at}"
        body += [f"tl.store({place.format(k=k)}, ga{k}, mask=valid)" for k in powers]
    lines = "\n".join("    " + line for line in body)
    return (
        f'\n\n@triton.jit(do_not_specialize=["N"])\n'
        f"def {name}(N, ptr, order, T, {arguments}, {SIZES}):\n{lines}\n"
    )


def generate() -> str:
    """Return the Triton source of values, slopes and their gradients, for both precisions.

    Example:
        >>> "def slopes_gradient(N, ptr, order, T, CO, G, D, GG, GT, GA," in generate()
        True
    """
    slope = _horner(list(range(1, NUM_COEFFICIENTS)))
    curve = _horner([k * (k - 1) for k in range(2, NUM_COEFFICIENTS)])
    g = "g = tl.load(G + e[:, None] * W + w[None, :], mask=mask, other=0.0)"
    at = "e[:, None] * W + w[None, :]"
    sums = "tl.store(GT + tl.program_id(1) * N + e, {0}, mask=inside)"
    values = [f"tl.store(OUT + {at}, {_horner([1] * NUM_COEFFICIENTS)}, mask=mask)"]
    slopes = [g, sums.format(f"tl.sum(g * {slope}, 1)")]
    second = [
        g,
        "d = tl.load(D + e, mask=inside, other=0.0)[:, None]",
        f"tl.store(GG + {at}, d * {slope}, mask=mask)",
        sums.format(f"tl.sum(d * g * {curve}, 1)"),
    ]
    return (
        HEAD
        + _kernel("values", "CO, OUT", values)
        + _kernel("values_gradient", "G, GA", [g], reads=False, gradient="values")
        + _kernel("slopes", "CO, G, GT", slopes)
        + _kernel("slopes_gradient", "CO, G, D, GG, GT, GA", second, gradient="slopes")
    )


@functools.lru_cache(maxsize=4)
def gpu_kernels(spec: str, dtype: torch.dtype) -> ModuleType:
    """Return the module of the kernels for both precisions; the spec is always empty."""
    return load_triton(generate())


def _lanes(width: int) -> tuple[int, int]:
    """Return the columns of a program, and the number of blocks of columns."""
    lanes = min(1 << max(width - 1, 0).bit_length(), LANES)
    return lanes, -(-width // lanes)


def _launch(
    name: str, ptr: Tensor, order: Tensor, local: Tensor, width: int, *others: Tensor
) -> None:
    lanes, blocks = _lanes(width)
    intervals, sizes = len(ptr) - 1, {"W": width, "LANES": lanes, "EDGES": EDGES, "PARTS": PARTS}
    if blocks:
        with on_device(local):
            getattr(gpu_kernels("", local.dtype), name)[(intervals, blocks, PARTS)](
                len(local), ptr, order, local, *others, **sizes, num_warps=1
            )


def run_values(coefficients: Tensor, local: Tensor, ptr: Tensor, order: Tensor) -> Tensor:
    """Return the values, shape (E, W)."""
    out = coefficients.new_empty(len(local), coefficients.shape[2])
    _launch("values", ptr, order, local, out.shape[1], coefficients, out)
    return out


def run_values_gradient(
    grad: Tensor, local: Tensor, coefficients: Tensor, ptr: Tensor, order: Tensor
) -> Tensor:
    """Return the gradient with respect to the coefficients, of which only the shape is used."""
    parts = coefficients.new_empty(PARTS, *coefficients.shape)
    _launch("values_gradient", ptr, order, local, grad.shape[1], grad, parts)
    return parts.sum(0)


def run_slopes(
    grad: Tensor, local: Tensor, coefficients: Tensor, ptr: Tensor, order: Tensor
) -> Tensor:
    """Return the sum over columns of the cotangent times the slope for each edge."""
    parts = local.new_empty(_lanes(grad.shape[1])[1], len(local))
    _launch("slopes", ptr, order, local, grad.shape[1], coefficients, grad, parts)
    return parts.sum(0)


def run_slopes_gradient(
    direction: Tensor,
    grad: Tensor,
    local: Tensor,
    coefficients: Tensor,
    ptr: Tensor,
    order: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of <direction, slopes> in (grad, local, coefficients)."""
    by_grad = torch.empty_like(grad)
    by_local = local.new_empty(_lanes(grad.shape[1])[1], len(local))
    parts = coefficients.new_empty(PARTS, *coefficients.shape)
    arrays = (coefficients, grad, direction, by_grad, by_local, parts)
    _launch("slopes_gradient", ptr, order, local, grad.shape[1], *arrays)
    return by_grad, by_local.sum(0), parts.sum(0)
