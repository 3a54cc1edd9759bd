"""The public functions: checked once at the boundary, then the best backend there is."""

from __future__ import annotations

from torch import Tensor

from scitoolkit.core.errors import DataError
from scitoolkit.ops.codegen import use_kernel
from scitoolkit.ops.spmm import operators, reference
from scitoolkit.ops.spmm.matrix import SparseMatrix


def runs_kernel(x: Tensor, backend: str = "auto") -> bool:
    """Return whether the generated kernel runs for `x`; compile it if need be.

    Raises:
        ConfigError: an unknown backend.
        BackendError: backend cpu is asked for and cannot run.
    """
    wanted = use_kernel("sparse product", str(x.shape[1]), x, backend)
    return wanted and x.shape[1] > 0


def _check(name: str, tensor: Tensor, rows: int, of: str) -> None:
    if tensor.ndim != 2 or tensor.shape[0] != rows:
        raise DataError(
            f"expected {name} of shape ({rows}, width), one row for each of the matrix's {of}, "
            f"got {tuple(tensor.shape)}"
        )


def spmm(matrix: SparseMatrix, x: Tensor, *, backend: str = "auto") -> Tensor:
    """Multiply a sparse matrix with a dense one, differentiably in both.

    Rows are summed in stored order by one thread each, so the result is bit-identical for any
    number of threads.

    Args:
        matrix: shape (rows, columns).
        x: shape (columns, width), float32 or float64, the dtype of the matrix's values.
        backend: auto (generated kernel if it can run, else the reference, said once), cpu or
            reference.

    Returns:
        Shape (rows, width); zero for rows without nonzeros.

    Raises:
        DataError: a shape or dtype that does not fit.
        BackendError: backend cpu is asked for and cannot run.

    Example:
        >>> import torch
        >>> matrix = SparseMatrix.from_coo([0, 0, 1], [0, 1, 1], [1.0, 2.0, 3.0], shape=(2, 2))
        >>> spmm(matrix, torch.tensor([[1.0], [10.0]])).tolist()
        [[21.0], [30.0]]
    """
    _check("x", x, matrix.num_columns, "columns")
    value = matrix.value
    if value is not None and value.dtype != x.dtype:
        raise DataError(f"expected x of {value.dtype} like the matrix, got {x.dtype}")
    if not runs_kernel(x, backend):
        return reference.spmm(matrix.rows, matrix.column, value, x, matrix.num_rows)
    pattern = (matrix.pointer, matrix.column, *matrix.transposed)
    if value is not None:
        value = value.contiguous()
    return operators.spmm(*pattern, value, x.contiguous())


def sddmm(matrix: SparseMatrix, left: Tensor, right: Tensor, *, backend: str = "auto") -> Tensor:
    """Return <left[row], right[column]> for each nonzero of the matrix's pattern.

    Args:
        matrix: shape (rows, columns); its values are not used.
        left: shape (rows, width).
        right: shape (columns, width), dtype of `left`.
        backend: as for `spmm`.

    Returns:
        Shape (nnz,), in the order in which the matrix stores its nonzeros.

    Raises:
        DataError: a shape or dtype that does not fit.

    Example:
        >>> import torch
        >>> matrix = SparseMatrix.from_coo([0, 1], [1, 0], None, shape=(2, 2))
        >>> sddmm(matrix, torch.eye(2), torch.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [3.0, 2.0]
    """
    _check("left", left, matrix.num_rows, "rows")
    _check("right", right, matrix.num_columns, "columns")
    if left.shape[1] != right.shape[1] or left.dtype != right.dtype:
        raise DataError(
            f"expected left and right of one width and dtype, got {tuple(left.shape)} "
            f"{left.dtype} and {tuple(right.shape)} {right.dtype}"
        )
    if not runs_kernel(left, backend):
        return reference.sddmm(matrix.rows, matrix.column, left, right)
    pattern = (matrix.pointer, matrix.column, *matrix.transposed)
    return operators.sddmm(*pattern, left.contiguous(), right.contiguous())
