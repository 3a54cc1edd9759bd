"""Public functions of graph attention (GAT and GATv2)."""

from __future__ import annotations

from torch import Tensor

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.attention import additive, cpu, operators, reference, triton_kernels
from scitoolkit.ops.codegen import GeneratedC, Operation, Triton
from scitoolkit.ops.codegen.dispatch import check_tensor
from scitoolkit.ops.spmm.matrix import SparseMatrix


def _reference(
    matrix: SparseMatrix, left: Tensor, right: Tensor, x: Tensor, slope: float
) -> Tensor:
    return reference.attention(matrix.rows, matrix.column, left, right, x, slope)


def _additive_reference(
    matrix: SparseMatrix, left: Tensor, x: Tensor, vector: Tensor, slope: float
) -> Tensor:
    return reference.additive(matrix.rows, matrix.column, left, x, vector, slope)


OPERATION = Operation(
    "graph_attention",
    "softmax attention over the neighbours in a graph (GAT)",
    _reference,
    1,
    "scitoolkit.ops.attention.examples:examples",
)


ADDITIVE = Operation(
    "additive_attention",
    "softmax attention over the neighbours with additive scores (GATv2)",
    _additive_reference,
    1,
    "scitoolkit.ops.attention.examples:additive_examples",
)


def _pattern(matrix: SparseMatrix, *tensors: Tensor) -> tuple[Tensor, ...]:
    return *matrix.indices_for(*tensors)[:4], *(tensor.contiguous() for tensor in tensors)


@GeneratedC.serve("graph_attention", prepare=cpu.kernels, source=cpu.source_of)
def _attention(
    matrix: SparseMatrix, left: Tensor, right: Tensor, x: Tensor, slope: float
) -> Tensor:
    return operators.attention(*_pattern(matrix, left, right, x), slope)[0]


@GeneratedC.serve("additive_attention", prepare=additive.kernels, source=additive.source)
def _additive(
    matrix: SparseMatrix, left: Tensor, x: Tensor, vector: Tensor, slope: float
) -> Tensor:
    return operators.additive(*_pattern(matrix, left, x, vector), slope)[0]


@Triton.serve("graph_attention", prepare=triton_kernels.kernels)
def _gpu_attention(
    matrix: SparseMatrix, left: Tensor, right: Tensor, x: Tensor, slope: float
) -> Tensor:
    return operators.gpu_attention(*_pattern(matrix, left, right, x), slope)[0]


@Triton.serve("additive_attention", prepare=triton_kernels.additive_kernels)
def _gpu_additive(
    matrix: SparseMatrix, left: Tensor, x: Tensor, vector: Tensor, slope: float
) -> Tensor:
    return operators.gpu_additive(*_pattern(matrix, left, x, vector), slope)[0]


def graph_attention(
    matrix: SparseMatrix,
    left: Tensor,
    right: Tensor,
    x: Tensor,
    *,
    slope: float = 0.2,
    backend: str = "auto",
) -> Tensor:
    """Graph attention: averages of neighbours' rows, weighted by the softmax of scores.

    For each head the weights of a row's nonzeros are the softmax of
    LeakyReLU(left[row] + right[column]) (Velickovic et al. 2018, equation 3). Scores and weights
    are recomputed in the backward pass and never stored. Once differentiable in left, right and x.

    Args:
        matrix: sparsity pattern, shape (rows, columns), on the device of x; values are ignored.
        left: shape (rows, heads), float32 or float64.
        right: shape (columns, heads).
        x: shape (columns, heads, width).
        slope: slope of LeakyReLU below 0.
        backend: auto (the kernel for the tensors' device if it can run, else the reference, with
            one warning), cpu, triton, reference, or the name of an installed kernel backend.

    Returns:
        Shape (rows, heads, width); zero for rows without nonzeros.

    Raises:
        DataError: a shape, dtype or device that does not match.
        ConfigError: a slope outside of [0, 1], or an unknown backend.
        BackendError: the named backend cannot run.

    Example:
        >>> import torch
        >>> matrix = SparseMatrix.from_coo([0, 0], [0, 1], None, shape=(1, 2))
        >>> x = torch.tensor([[[1.0]], [[3.0]]])
        >>> graph_attention(matrix, torch.zeros(1, 1), torch.zeros(2, 1), x).tolist()
        [[[2.0]]]
    """
    heads, width = _heads_and_width(matrix, x, slope)
    check_tensor("left", left, (matrix.num_rows, heads), x)
    check_tensor("right", right, (matrix.num_columns, heads), x)
    return OPERATION.choose(f"{heads}x{width}", x, backend)(matrix, left, right, x, slope)


def additive_attention(
    matrix: SparseMatrix,
    left: Tensor,
    x: Tensor,
    vector: Tensor,
    *,
    slope: float = 0.2,
    backend: str = "auto",
) -> Tensor:
    """Graph attention with additive scores <vector, LeakyReLU(left[row] + x[column])> per head.

    Unlike in `graph_attention` the ranking of neighbours by weight can depend on the row (GATv2,
    Brody et al. 2022, equation 7). Once differentiable in left, x and vector.

    Args:
        matrix: sparsity pattern, shape (rows, columns), on the device of x; values are ignored.
        left: shape (rows, heads, width), float32 or float64.
        x: shape (columns, heads, width).
        vector: shape (heads, width).
        slope: slope of LeakyReLU below 0.
        backend: as for `graph_attention`.

    Returns:
        Shape (rows, heads, width); zero for rows without nonzeros.

    Raises:
        DataError: a shape, dtype or device that does not match.
        ConfigError: a slope outside of [0, 1], or an unknown backend.
        BackendError: the named backend cannot run.

    Example:
        >>> import torch
        >>> matrix = SparseMatrix.from_coo([0, 0], [0, 1], None, shape=(1, 2))
        >>> x = torch.tensor([[[1.0]], [[3.0]]])
        >>> additive_attention(matrix, torch.zeros(1, 1, 1), x, torch.zeros(1, 1)).tolist()
        [[[2.0]]]
    """
    heads, width = _heads_and_width(matrix, x, slope)
    check_tensor("left", left, (matrix.num_rows, heads, width), x)
    check_tensor("vector", vector, (heads, width), x)
    return ADDITIVE.choose(f"{heads}x{width}", x, backend)(matrix, left, x, vector, slope)


def _heads_and_width(matrix: SparseMatrix, x: Tensor, slope: float) -> tuple[int, int]:
    if x.ndim != 3 or 0 in x.shape[1:]:
        raise DataError(
            f"expected x of shape ({matrix.num_columns}, heads, width), got {tuple(x.shape)}"
        )
    check_tensor("x", x, (matrix.num_columns, "heads", "width"), x)
    matrix.check_device(x)
    if not 0 <= slope <= 1:
        raise ConfigError(f"slope={slope}", allowed="0 to 1")
    return x.shape[1], x.shape[2]
