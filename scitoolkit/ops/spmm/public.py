"""Public functions of sparse products."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from scitoolkit.core.errors import DataError
from scitoolkit.ops.codegen import GeneratedC, Operation, Triton
from scitoolkit.ops.spmm import operators, reference, triton_kernels
from scitoolkit.ops.spmm.matrix import SparseMatrix


def _spmm_reference(matrix: SparseMatrix, x: Tensor) -> Tensor:
    return reference.spmm(matrix.rows, matrix.column, matrix.value, x, matrix.num_rows)


def _sddmm_reference(matrix: SparseMatrix, left: Tensor, right: Tensor) -> Tensor:
    return reference.sddmm(matrix.rows, matrix.column, left, right)


EXAMPLES = "scitoolkit.ops.spmm.examples"
SPMM = Operation(
    "spmm", "sparse matrix times dense matrix", _spmm_reference, None, f"{EXAMPLES}:spmm_examples"
)
SDDMM = Operation(
    "sddmm",
    "product of two dense matrices, sampled at a sparse pattern",
    _sddmm_reference,
    None,
    f"{EXAMPLES}:sddmm_examples",
)


def _arguments(matrix: SparseMatrix, *tensors: Tensor | None) -> list[Tensor | None]:
    operands = [None if tensor is None else tensor.contiguous() for tensor in tensors]
    return [*matrix.indices_for(*tensors), *operands]


@GeneratedC.serve("spmm", prepare=operators.kernels, source=operators.source)
def _spmm(matrix: SparseMatrix, x: Tensor) -> Tensor:
    return operators.spmm(*_arguments(matrix, matrix.value, x))


@GeneratedC.serve("sddmm", prepare=operators.kernels, source=operators.source)
def _sddmm(matrix: SparseMatrix, left: Tensor, right: Tensor) -> Tensor:
    return operators.sddmm(*_arguments(matrix, left, right))


@Triton.serve("spmm", prepare=triton_kernels.kernels)
def _gpu_spmm(matrix: SparseMatrix, x: Tensor) -> Tensor:
    return operators.gpu_spmm(*_arguments(matrix, matrix.value, x))


@Triton.serve("sddmm", prepare=triton_kernels.kernels)
def _gpu_sddmm(matrix: SparseMatrix, left: Tensor, right: Tensor) -> Tensor:
    return operators.gpu_sddmm(*_arguments(matrix, left, right))


_PRODUCTS: dict[str, Callable[..., Tensor]] = {
    GeneratedC.name: operators.run_product,
    Triton.name: triton_kernels.run_product,
}


def product_kernel(x: Tensor, backend: str = "auto") -> Callable[..., Tensor] | None:
    """Return the kernel of the product for `x` (rows, width), compiled if needed.

    Returns:
        `run(pointer, column, value, x, into=None)`, which records no derivative and adds to
        `into` if given; None if no kernel can run, for example for width 0.

    Raises:
        ConfigError: an unknown backend.
        BackendError: the named backend cannot run.
    """
    if not x.shape[1]:
        return None
    return _PRODUCTS.get(SPMM.backend(str(x.shape[1]), x, backend))


def _check(name: str, tensor: Tensor, rows: int, of: str) -> None:
    if tensor.ndim != 2 or tensor.shape[0] != rows:
        raise DataError(
            f"expected {name} of shape ({rows}, width), one row for each of the matrix's {of}, "
            f"got {tuple(tensor.shape)}"
        )


def spmm(matrix: SparseMatrix, x: Tensor, *, backend: str = "auto") -> Tensor:
    """Sparse matrix times dense matrix, differentiable in both any number of times.

    On a CPU one thread sums each row in stored order, so the result is bit-identical for any number
    of threads. On a GPU rows are summed in tiles of nonzeros without atomics, so the result is
    bit-identical from call to call.

    Args:
        matrix: shape (rows, columns), on the device of x (`matrix.to(device)`).
        x: shape (columns, width), float32 or float64, the dtype of the matrix's values.
        backend: auto (the kernel for the tensors' device if it can run, else the reference, with
            one warning), cpu, triton, reference, or the name of an installed kernel backend.

    Returns:
        Shape (rows, width); zero for rows without nonzeros.

    Raises:
        DataError: a shape, dtype or device that does not match.
        ConfigError: an unknown backend.
        BackendError: the named backend cannot run.

    Example:
        >>> import torch
        >>> matrix = SparseMatrix.from_coo([0, 0, 1], [0, 1, 1], [1.0, 2.0, 3.0], shape=(2, 2))
        >>> spmm(matrix, torch.tensor([[1.0], [10.0]])).tolist()
        [[21.0], [30.0]]
    """
    _check("x", x, matrix.num_columns, "columns")
    matrix.check_device(x)
    value = matrix.value
    if value is not None and value.dtype != x.dtype:
        raise DataError(f"expected x of {value.dtype} like the matrix, got {x.dtype}")
    if not x.shape[1]:
        return _spmm_reference(matrix, x)
    return SPMM.choose(str(x.shape[1]), x, backend)(matrix, x)


def sddmm(matrix: SparseMatrix, left: Tensor, right: Tensor, *, backend: str = "auto") -> Tensor:
    """Sampled dense-dense product: <left[row], right[column]> for each nonzero of a pattern.

    Differentiable in both matrices any number of times.

    Args:
        matrix: shape (rows, columns); its values are ignored.
        left: shape (rows, width), float32 or float64.
        right: shape (columns, width), dtype of `left`.
        backend: as for `spmm`.

    Returns:
        Shape (nnz,), in the order of the matrix's nonzeros.

    Raises:
        DataError: a shape, dtype or device that does not match.
        ConfigError: an unknown backend.
        BackendError: the named backend cannot run.

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
            f"expected left and right of equal width and dtype, got {tuple(left.shape)} "
            f"{left.dtype} and {tuple(right.shape)} {right.dtype}"
        )
    matrix.check_device(left)
    matrix.check_device(right)
    if not left.shape[1]:
        return _sddmm_reference(matrix, left, right)
    return SDDMM.choose(str(left.shape[1]), left, backend)(matrix, left, right)
