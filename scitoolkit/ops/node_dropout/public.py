"""Public function for dropout of node features."""

from __future__ import annotations

import torch
from torch import Tensor

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.codegen import GeneratedC, Operation, Triton
from scitoolkit.ops.node_dropout import cpu, reference, triton_source

OPERATION = Operation(
    "node_dropout",
    "dropout whose mask depends only on seed, row number and column",
    reference.node_dropout,
    None,
    "scitoolkit.ops.node_dropout.examples:examples",
)
GeneratedC.serve("node_dropout", prepare=cpu.kernels, source=cpu.source)(cpu.node_dropout)
Triton.serve("node_dropout", prepare=triton_source.gpu_kernels)(triton_source.gpu_node_dropout)


def node_dropout(x: Tensor, rows: Tensor, p: float, seed: int, *, backend: str = "auto") -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p).

    The mask is a function of (seed, row number, column), so that it does not depend on how the
    rows of a matrix are distributed over processes.

    Args:
        x: shape (n, width), float32 or float64.
        rows: global number of each row, shape (n,), integer.
        p: probability in [0, 1), rounded to multiples of 2^-24.
        seed: any integer; use a new one for every call during training.
        backend: auto, or the name of a kernel backend.

    Returns:
        Shape and dtype of x.

    Raises:
        ConfigError: p out of range.
        DataError: row numbers whose shape does not match x, or that are not integers.
        BackendError: the named backend cannot run.

    Example:
        >>> x = torch.ones(4, 6)
        >>> whole = node_dropout(x, torch.arange(4), 0.5, seed=3)
        >>> part = node_dropout(x[:2], torch.tensor([3, 1]), 0.5, seed=3)
        >>> bool((part == whole[[3, 1]]).all())
        True
    """
    if not 0 <= p < 1:
        raise ConfigError(f"dropout p={p}", allowed="0 <= p < 1")
    if x.ndim != 2 or tuple(rows.shape) != (x.shape[0],):
        raise DataError(f"x of shape {tuple(x.shape)} with {tuple(rows.shape)} row numbers")
    if rows.dtype not in (torch.int64, torch.int32, torch.int16):
        raise DataError(f"expected integer row numbers, got {rows.dtype}")
    run = OPERATION.choose("", x, backend)
    rows = rows.long().contiguous()
    return run(x, rows, reference.signed(seed), round(p * 2**24), 1.0 / (1.0 - p))
