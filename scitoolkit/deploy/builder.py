"""Program under construction: C statements, buffers, constants, and their uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.lazy import LazyModule
from scitoolkit.deploy import loops
from scitoolkit.deploy.bits.codes import Uniform
from scitoolkit.deploy.values import (
    C_TYPES,
    Buffer,
    Expr,
    Value,
    View,
    contiguous,
    memory_order,
    numel,
    ordered,
)

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")  # listing the lowerings needs none

ALIGN = 64


@dataclass
class Processor:
    """Processor that generated code is tuned for.

    Attributes:
        lanes: float32 numbers per vector register.
        registers: number of vector registers.
        rows: number of rows for which constant weights are packed; by default those of each
            product. With one value, functions of one and of many samples share packed weights.
    """

    lanes: int = 16
    registers: int = 32
    rows: int | None = None

    def width(self, dtype: str) -> int:
        """Return the number of elements of a dtype per register."""
        return self.lanes // 2 if dtype == "float64" else self.lanes


@dataclass
class Builder:
    """Statements, buffers and constants of one function.

    Attributes:
        target: processor.
        prefix: prefix of the names of constants and tables, which are global in a file.
        statements: (C text, buffers read or written), in order.
        tiles: product kernels that the text calls: (dtype, rows, vectors).
        work: number of multiply-adds of products, an estimate of the time of a call.
        coded: {`matrix_key`: codes} of quantised matrices.
        bit_tiles: quantised product kernels that the text calls: (bits, bits of
            inputs, rows, vectors).
        used: keys of the quantised matrices in the text.
        operators: names of the operators of the traced module.
    """

    target: Processor
    prefix: str = ""
    statements: list[tuple[str, set[Buffer]]] = field(default_factory=list)
    tiles: set[tuple[str, int, int]] = field(default_factory=set)
    work: int = 0
    coded: Mapping[bytes, Uniform] = field(default_factory=dict)
    bit_tiles: set[tuple[int, int, int, int]] = field(default_factory=set)
    used: set[bytes] = field(default_factory=set)
    operators: set[str] = field(default_factory=set)
    constants: dict[bytes, Buffer] = field(default_factory=dict)
    tables: dict[tuple[int, ...], str] = field(default_factory=dict)
    workspace: list[Buffer] = field(default_factory=list)

    def emit(self, text: str, *touched: View) -> None:
        """Add a statement that reads or writes some views."""
        self.statements.append((text, {view.buffer for view in touched}))

    def buffer(self, size: int, dtype: str) -> Buffer:
        """Return a new workspace buffer."""
        made = Buffer(f"b{len(self.workspace)}", size, dtype, "workspace")
        self.workspace.append(made)
        return made

    def new(
        self, shape: Sequence[int], dtype: str, order: Sequence[int] = (), pad: int = 0
    ) -> View:
        """Return a new workspace view of a shape with a memory order of dims."""
        order = order or range(len(shape))
        inner = pad or (shape[order[-1]] if shape else 1)
        size = numel(shape) // max(1, shape[order[-1]] if shape else 1) * inner
        return ordered(self.buffer(size, dtype), shape, order, pad)

    def constant(self, values: torch.Tensor | np.ndarray) -> View:
        """Return a view of a constant; equal constants are stored once."""
        array = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values
        if array.dtype == bool:
            array = array.astype(np.int64)
        if str(array.dtype) not in C_TYPES:
            raise ConfigError(
                f"a constant of dtype {array.dtype}",
                where="export to C",
                allowed=", ".join(sorted(C_TYPES)),
                fix="compute in float32",
            )
        selection = tuple(0 if s == 0 else slice(None) for s in array.strides)
        dense = np.ascontiguousarray(array[selection]) if 0 in array.strides else array
        dense = np.ascontiguousarray(dense)
        key = dense.dtype.str.encode() + dense.tobytes()
        if key not in self.constants:
            name = f"{self.prefix}c{len(self.constants)}"
            self.constants[key] = Buffer(name, dense.size, str(dense.dtype), "constant", dense)
        view = contiguous(self.constants[key], dense.shape)
        strides = iter(view.strides)
        return View(
            view.buffer,
            tuple(array.shape),
            tuple(0 if s == 0 else next(strides) for s in array.strides),
        )

    def table(self, entries: tuple[int, ...]) -> str:
        """Return the name of a constant array of offsets."""
        return self.tables.setdefault(entries, f"{self.prefix}t{len(self.tables)}")

    def value(self, operand: Value | torch.Tensor) -> Value:
        """Return a value unchanged, a constant tensor as a view."""
        return self.constant(operand) if isinstance(operand, torch.Tensor) else operand

    def view(self, operand: Value | torch.Tensor) -> View:
        """Return a value as a view, computing an expression."""
        value = self.value(operand)
        return self.store(value) if isinstance(value, Expr) else value

    def dense(self, operand: Value | torch.Tensor) -> View:
        """Return a value as a view in C order."""
        view = self.view(operand)
        if view.strides == contiguous(view.buffer, view.shape).strides:
            return view
        return self.store(view, self.new(view.shape, view.dtype))

    def refuse(self, operand: Value | torch.Tensor, condition: str) -> View:
        """Return a value in C order, after a check that makes all outputs NaN if it fails.

        Args:
            operand: integers, which have no NaN that would tell an error.
            condition: text that is true of a number `{0}` that torch refuses.
        """
        view = self.dense(operand)
        text = condition.format(f"{view.buffer.name}[{view.offset} + i]")
        self.emit(
            "#pragma omp simd reduction(|:stk_refused)\n"
            f"for (int64_t i = 0; i < {numel(view.shape)}; i++) stk_refused |= {text};",
            view,
        )
        return view

    def store(self, value: Value, into: View | None = None) -> View:
        """Write a value to a view; by default to a new one in the order of its arguments."""
        if into is None:
            into = self.new(value.shape, value.dtype, _order(value))
        text, touched = loops.nest(value, into, self.table)
        self.emit(text, into, *touched)
        return into


def _order(value: Value) -> list[int]:
    """Return the memory order of the largest view in an expression."""
    largest: View | None = None
    for leaf in _leaves(value):
        if (
            leaf.buffer.kind != "constant"
            and 0 not in leaf.strides
            and (largest is None or leaf.buffer.size > largest.buffer.size)
        ):
            largest = leaf
    return list(range(len(value.shape))) if largest is None else memory_order(largest)


def _leaves(value: Value, shape: tuple[int, ...] | None = None) -> list[View]:
    shape = shape or value.shape
    if isinstance(value, View):
        return [value] if value.shape == shape else []
    return [leaf for arg in value.args for leaf in _leaves(arg, shape)]
