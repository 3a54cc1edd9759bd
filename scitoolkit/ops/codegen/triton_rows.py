"""The Triton that kernels over rows share: one row a thread, straight lines over a block of rows.

The counterpart of `vectors.py`; `rows.run_triton` launches the kernels.
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
    """Return the expression of component i of the rows of `size` of an array."""
    return f"tl.load({name} + row * {size} + {i}, mask=inside, other=0.0)"


def store(name: str, size: int, i: int, value: str) -> str:
    """Return the line that writes component i of the rows of `size` of an array."""
    return f"tl.store({name} + row * {size} + {i}, {value}, mask=inside)"


def kernel(name: str, arguments: str, lines: list[str]) -> str:
    """Return the kernel `name(N, arguments)`: `lines` for a block of rows.

    In the lines `row` numbers the rows, and `inside` tells which of them there are.

    Example:
        >>> "def forward(N, X, Z):" in kernel("forward", "X, Z", [])
        True
    """
    body = "\n".join("    " + line for line in [*BEGIN, *lines])
    head = '\n\n@triton.jit(do_not_specialize=["N"])'
    return f"{head}\ndef {name}(N, {arguments}):\n{body}\n"
