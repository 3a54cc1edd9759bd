"""Generator of the Triton kernels of radial bases, with one edge per thread.

As in C all arithmetic is in float64. That is slow on some GPUs, but takes little time compared with
the kernels that use the basis.
"""

from __future__ import annotations

from scitoolkit.ops.codegen.triton_rows import HEAD, kernel, load, store
from scitoolkit.ops.radial import formulas
from scitoolkit.ops.radial.spec import RadialSpec

FUNCTIONS = """

@triton.jit
def within(a, outside):
    return tl.where(outside, 0.0, a)


@triton.jit
def exponential(a):
    return tl.exp(a)
"""


def _load(name: str, size: int = 1, i: int = 0) -> str:
    return f"{load(name, size, i)}.to(tl.float64)"


def _assigned(lines: formulas.Lines) -> list[str]:
    return [f"{name} = {value}" for name, value in lines]


def _start(spec: RadialSpec) -> list[str]:
    return [
        f"distance = {_load('X')}",
        f"outside = distance >= {spec.cutoff!r}",  # NaN stays NaN
        "r = within(distance, outside)",
        *_assigned(formulas.start(spec)),
    ]


def _forward(spec: RadialSpec) -> list[str]:
    lines = _start(spec)
    for n in range(spec.num_basis):
        lines += _assigned(formulas.function(spec, n))
        lines.append(store("Z", spec.num_basis, n, f"F{n}"))
    return lines


def _summed(spec: RadialSpec, derivative: str) -> list[str]:
    """Assign `total`, the sum over functions of the incoming gradient times a derivative."""
    lines = [*_start(spec), "total = r * 0.0"]
    for n in range(spec.num_basis):
        lines += _assigned(formulas.function(spec, n))
        lines.append(f"total += {_load('G', spec.num_basis, n)} * {derivative}{n}")
    return lines


def _backward(spec: RadialSpec) -> list[str]:
    return [*_summed(spec, "D"), store("GX", 1, 0, "total")]


def _double_backward(spec: RadialSpec) -> list[str]:
    """Gradients of <d, gradient> with respect to G and the distances."""
    return [
        *_summed(spec, "E"),
        f"d = {_load('DX')}",
        *(store("GG", spec.num_basis, n, f"D{n} * d") for n in range(spec.num_basis)),
        store("GX", 1, 0, "total * d"),
    ]


def generate(spec: RadialSpec) -> str:
    """Return the Triton source of forward, backward and double_backward of `spec`.

    Example:
        >>> "def forward(N, X, Z):" in generate(RadialSpec("bessel", 8, 5.0, 6))
        True
    """
    return (
        HEAD
        + FUNCTIONS
        + kernel("forward", "X, Z", _forward(spec))
        + kernel("backward", "X, G, GX", _backward(spec))
        + kernel("double_backward", "X, G, DX, GG, GX", _double_backward(spec))
    )
