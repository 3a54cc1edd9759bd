"""Triton source shared by kernels over independent rows: one row per thread.

The counterpart of `vectors.py` for the GPU; `rows.run_triton` launches the kernels.
"""

from __future__ import annotations

from scitoolkit.ops.codegen.rows import GPU_ROWS

HEAD = """
import triton
import triton.language as tl
"""

BEGIN = [
    f"row = tl.program_id(0).to(tl.int64) * {GPU_ROWS} + tl.arange(0, {GPU_ROWS})",
    "inside = row < N",
]


def load(name: str, size: int, i: int) -> str:
    """Return the expression that loads component i of a block's rows of `size` columns."""
    return f"tl.load({name} + row * {size} + {i}, mask=inside, other=0.0)"


def store(name: str, size: int, i: int, value: str) -> str:
    """Return the line that stores component i of a block's rows of `size` columns."""
    return f"tl.store({name} + row * {size} + {i}, {value}, mask=inside)"


def kernel(name: str, arguments: str, lines: list[str]) -> str:
    """Return the Triton kernel `name(N, arguments)`, whose body computes a block of rows.

    Args:
        name: of the kernel.
        arguments: names of the arguments after N, the number of rows.
        lines: the body, in which `row` has the rows' numbers and `inside` whether they are below N.

    Example:
        >>> "def forward(N, X, Z):" in kernel("forward", "X, Z", [])
        True
    """
    body = "\n".join("    " + line for line in [*BEGIN, *lines])
    head = '\n\n@triton.jit(do_not_specialize=["N"])'
    return f"{head}\ndef {name}(N, {arguments}):\n{body}\n"
