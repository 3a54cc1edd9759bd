"""Sparse matrix in CSR form with the transpose needed for gradients."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from scitoolkit.core.errors import DataError
from scitoolkit.ops.codegen import is_recorded

INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class SparseMatrix:
    """A sparse matrix in CSR form; products sum the nonzeros of a row in stored order.

    Attributes:
        pointer: start of each row, shape (rows + 1,), int64.
        column: column of each nonzero, shape (nnz,), int32.
        value: shape (nnz,), float32 or float64; None if all nonzeros are 1.
        num_columns: number of columns.

    Example:
        >>> matrix = SparseMatrix.from_coo([1, 0, 1], [0, 1, 1], [2.0, 3.0, 4.0], shape=(2, 2))
        >>> matrix.dense().tolist()
        [[0.0, 3.0], [2.0, 4.0]]
    """

    pointer: Tensor
    column: Tensor
    value: Tensor | None
    num_columns: int

    @classmethod
    def from_csr(cls, pointer: Any, column: Any, value: Any, num_columns: int) -> SparseMatrix:
        """Return the matrix of arrays or tensors in CSR form.

        Tensors remain on their device, which must be the same for all.

        Args:
            pointer: start of each row, shape (rows + 1,), integer.
            column: column of each nonzero, shape (nnz,), integer, in any order within a row.
            value: shape (nnz,), or None.
            num_columns: number of columns.

        Raises:
            DataError: lengths, dtypes or devices that do not match, pointers that decrease, or a
                column out of range.
        """
        pointer, column = _index(pointer).long().contiguous(), _index(column)
        if pointer.ndim != 1 or not len(pointer) or column.ndim != 1:
            raise DataError(f"pointer {tuple(pointer.shape)} and column {tuple(column.shape)}")
        nnz = column.numel()
        falls = bool((pointer.diff() < 0).any())
        if falls or int(pointer[0]) != 0 or int(pointer[-1]) != nnz:
            raise DataError(
                f"row pointers run from {int(pointer[0])} to {int(pointer[-1])}"
                f"{' and decrease in between' if falls else ''}",
                allowed=f"from 0 to {nnz}, the number of nonzeros, without a decrease",
            )
        if num_columns > INT32_MAX:
            raise DataError(f"{num_columns} columns", allowed=f"at most {INT32_MAX}")
        if nnz and not 0 <= int(column.min()) <= int(column.max()) < num_columns:
            raise DataError(
                f"columns {int(column.min())} to {int(column.max())}",
                allowed=f"0 to {num_columns - 1}",
            )
        if value is not None:
            value = torch.as_tensor(value)
            if tuple(value.shape) != (nnz,):
                raise DataError(f"{tuple(value.shape)} values for {nnz} nonzeros")
            value = value.contiguous()
        made = cls(pointer, column.int().contiguous(), value, num_columns)
        made.check_device(column)
        return made if value is None else made.check_device(value)

    @classmethod
    def from_coo(cls, row: Any, column: Any, value: Any, shape: tuple[int, int]) -> SparseMatrix:
        """Return the matrix of coordinates, sorted by row and column.

        Duplicate coordinates remain separate nonzeros, which products sum. Sorting happens on the
        CPU; the matrix is on the device of `row` if that is a tensor.

        Args:
            row: row of each nonzero, shape (nnz,), integer.
            column: column of each nonzero, shape (nnz,), integer.
            value: shape (nnz,), or None.
            shape: rows and columns.

        Raises:
            DataError: lengths or dtypes that do not match, or an index out of range.
        """
        device = row.device if isinstance(row, Tensor) else torch.device("cpu")
        row, column = (np.asarray(_index(side).cpu(), dtype=np.int64) for side in (row, column))
        if row.shape != column.shape or row.ndim != 1:
            raise DataError(f"{row.shape} rows and {column.shape} columns")
        for name, index, size in (("row", row, shape[0]), ("column", column, shape[1])):
            if len(index) and not 0 <= index.min() <= index.max() < size:
                raise DataError(
                    f"{name} indices {index.min()} to {index.max()}", allowed=f"0 to {size - 1}"
                )
        order = np.lexsort((column, row))
        pointer = np.zeros(shape[0] + 1, np.int64)
        np.cumsum(np.bincount(row, minlength=shape[0]), out=pointer[1:])
        if value is not None:
            value = torch.as_tensor(value).cpu()[torch.from_numpy(order)]
        return cls.from_csr(pointer, column[order], value, shape[1]).to(device)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.pointer) - 1

    @property
    def nnz(self) -> int:
        """Number of stored nonzeros."""
        return len(self.column)

    @property
    def rows(self) -> Tensor:
        """Row of each nonzero, shape (nnz,), int64."""
        cached = self.__dict__.get("_rows")
        if cached is not None:
            return cached
        counts = self.pointer.diff()
        numbers = torch.arange(self.num_rows, device=counts.device)
        made = torch.repeat_interleave(numbers, counts, output_size=self.nnz)
        if not torch.compiler.is_compiling():
            self.__dict__["_rows"] = made
        return made

    @property
    def transposed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Transpose in CSR form: pointer, column, and the index of each nonzero in this matrix."""
        cached = self.__dict__.get("_transposed")
        if cached is not None:
            return cached
        # searchsorted instead of bincount, whose output size torch.compile does not know.
        ordered, order = torch.sort(self.column, stable=True)
        columns = torch.arange(self.num_columns + 1, dtype=ordered.dtype, device=ordered.device)
        made = torch.searchsorted(ordered, columns), self.rows[order].int(), order
        if not torch.compiler.is_compiling():  # traced tensors have no data to cache
            self.__dict__["_transposed"] = made
        return made

    def indices_for(self, *operands: Tensor | None) -> tuple[Tensor, ...]:
        """Return the index tensors of an operator: pointer, column, and those of the transpose.

        Only gradients need the transpose, which requires a sort: its tensors are empty if autograd
        records none of the operands.
        """
        if is_recorded(*operands):
            return self.pointer, self.column, *self.transposed
        none = (index.new_empty(0) for index in (self.pointer, self.column, self.pointer))
        return self.pointer, self.column, *none

    @functools.cached_property
    def transposed_csr(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Transpose in CSR form: pointer, column, and values without derivatives (None: all 1).

        scipy makes it without the index of each nonzero, which takes 8 bytes per nonzero, as do
        the rows that the index is sorted from; the peak of a training's memory is here.
        """
        value = None if self.value is None else self.value.detach()
        in_numpy = value is None or value.dtype in (torch.float32, torch.float64)
        if not in_numpy or self.nnz > INT32_MAX or self.column.device.type != "cpu":
            pointer, column, order = self.transposed
            return pointer, column, None if value is None else value[order]
        # scipy requires values; those of a pattern are not used.
        values = np.empty(self.nnz, np.int8) if value is None else value.numpy()
        shape = (self.num_rows, self.num_columns)
        index = (self.column.numpy(), self.pointer.int().numpy())
        made = sp.csr_matrix((values, *index), shape=shape, copy=False).tocsc()
        pointer, column = torch.from_numpy(made.indptr).long(), torch.from_numpy(made.indices).int()
        return pointer, column, None if value is None else torch.from_numpy(made.data)

    def check_device(self, tensor: Tensor) -> SparseMatrix:
        """Return the matrix if it is on the device of a tensor.

        Raises:
            DataError: the tensor is on another device.
        """
        if self.pointer.device != tensor.device:
            raise DataError(
                f"the sparse matrix is on {self.pointer.device}, a tensor on {tensor.device}",
                fix=f"matrix.to({str(tensor.device)!r})",
            )
        return self

    def to(self, device: torch.device) -> SparseMatrix:
        """Return the matrix on a device; itself if it is already there."""
        if self.pointer.device == device:
            return self
        value = None if self.value is None else self.value.to(device)
        return SparseMatrix(
            self.pointer.to(device), self.column.to(device), value, self.num_columns
        )

    def with_value(self, value: Tensor | None) -> SparseMatrix:
        """Return a matrix with the same pattern, sharing the indices, and other values."""
        other = SparseMatrix(self.pointer, self.column, value, self.num_columns)
        for name in ("_rows", "_transposed"):
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other

    def dense(self) -> Tensor:
        """Return the dense matrix, shape (rows, columns), for tests and small examples."""
        value = self.value
        if value is None:
            value = torch.ones(self.nnz, device=self.column.device)
        out = value.new_zeros(self.num_rows, self.num_columns)
        return out.index_put((self.rows, self.column.long()), value, accumulate=True)


def _index(values: Any) -> Tensor:
    """Return indices as a tensor; rounding of other numbers would be silent."""
    index = values if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
    if index.numel() and (index.is_floating_point() or index.is_complex()):
        raise DataError(f"indices of {index.dtype}", allowed="integers")
    return index
