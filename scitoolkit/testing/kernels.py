"""Contract suite of kernel backends: every operation is compared with its reference."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen.backends import KernelBackend
from scitoolkit.ops.codegen.dispatch import Operation
from scitoolkit.ops.codegen.examples import Example, Numbers
from scitoolkit.ops.codegen.kinds import kernel_backends, operations

_TEST = """\
from __future__ import annotations

from scitoolkit.testing import KernelContract

from scitoolkit_{name} import {cls}


class Test{cls}(KernelContract):
    backend = {cls}
"""
TOLERANCE = {torch.float64: 1e-9, torch.float32: 3e-4}


class KernelContract:
    """Contract suite of kernel backends; set `backend`.

    Attributes:
        backend: the backend, or its name if it is installed by an entry point.
        device: the device of the examples.
        skip: operations that the subclass tests elsewhere.
        namespace: prefix of the registered operators that exported programs must contain; "" for
            any.

    Example:
        >>> class TestMine(KernelContract):
        ...     backend = "cpu"
    """

    backend: ClassVar[str | type[KernelBackend]]
    device: ClassVar[str] = "cpu"
    skip: ClassVar[tuple[str, ...]] = ()
    namespace: ClassVar[str] = ""

    @staticmethod
    def skeleton_test(kind: str, name: str, cls: str) -> str:
        """Return the test of a new backend."""
        return _TEST.format(name=name, cls=cls)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test for every operation that the backend supports."""
        member = self.member()
        if "operation" in metafunc.fixturenames:
            loaded = [operations.get(name) for name in operations if name not in self.skip]
            served = [operation for operation in loaded if member.serves(operation.name)]
            metafunc.parametrize("operation", served, ids=[operation.name for operation in served])
        if "dtype" in metafunc.fixturenames:
            dtypes = member.dtypes or tuple(TOLERANCE)
            metafunc.parametrize("dtype", dtypes, ids=[str(kind)[6:] for kind in dtypes])

    def test_values_and_all_derivatives_equal_the_reference(
        self, operation: Operation, dtype: torch.dtype
    ) -> None:
        """Compare each example while uninitialised memory is filled with NaN."""
        # Two derivatives are what forces need: they are gradients, and their loss is differentiated
        # again.
        order = 2 if operation.derivatives is None else operation.derivatives
        for example in operation.iterate_examples(Numbers(dtype, self.device)):
            run = self.chosen(operation, example)
            with poisoned():
                actual = derivatives(run, example, order)
            expected = derivatives(operation.reference, example, order)
            for level, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
                where = f"{operation.name}, {example.label}, derivative {level}"
                assert_close(ours, theirs, TOLERANCE[dtype], where)

    def test_derivatives_beyond_the_kernels_are_refused_by_name(self, operation: Operation) -> None:
        """Unsupported derivatives raise BackendError instead of being wrong or missing."""
        if operation.derivatives is None:
            return
        example = next(operation.iterate_examples(Numbers(self.dtype(), self.device)))
        run = self.chosen(operation, example)
        with pytest.raises(BackendError, match=r"no .*derivative"):
            derivatives(run, example, operation.derivatives + 1)

    def test_other_dtypes_are_refused(self, operation: Operation) -> None:
        """A dtype that the backend does not support raises BackendError on selection."""
        if not self.member().dtypes:
            return
        example = next(operation.iterate_examples(Numbers(self.dtype(), self.device)))
        like = torch.zeros(1, dtype=torch.float16, device=self.device)
        with pytest.raises(BackendError, match="float16"):
            operation.choose(example.spec, like, self.member().name, *example.options)

    def test_tracers_and_transforms_get_what_the_table_says(self, operation: Operation) -> None:
        """torch.func works with the kernels, or BackendError is raised."""
        example = next(operation.iterate_examples(Numbers(self.dtype(), self.device)))
        transforms = self.member().implementations[operation.name].transforms

        def total(first: Tensor) -> Tensor:
            run = self.chosen(operation, example)
            return outputs_of(run, example, (first, *example.tensors[1:]))[0].sum()

        if transforms:
            torch.func.grad(total)(example.tensors[0])
            return
        with pytest.raises(BackendError, match=r"torch\.func"):
            torch.func.grad(total)(example.tensors[0])

    def test_torch_compile_records_one_graph(self, operation: Operation) -> None:
        """Compiled values and derivatives are equal, or the backend is refused by name."""
        example, run = self.traced_example(operation)
        torch.compiler.reset()
        compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
        order = 1 if operation.derivatives is None else min(1, operation.derivatives)
        if not self.member().implementations[operation.name].traceable:
            with pytest.raises(Exception, match=r"do not run under torch\.compile"):
                derivatives(compiled, example, order)
            return
        actual = derivatives(compiled, example, order)
        expected = derivatives(run, example, order)
        for level, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
            where = f"{operation.name} compiled, {example.label}, derivative {level}"
            assert_close(ours, theirs, TOLERANCE[self.dtype()], where)

    def test_torch_export_keeps_the_numbers(self, operation: Operation) -> None:
        """The exported program has the operators of `namespace` and equal outputs."""
        example, run = self.traced_example(operation)
        module = _Module(run)
        if not self.member().implementations[operation.name].traceable:
            with pytest.raises(BackendError, match=r"do not run under torch\.compile"):
                torch.export.export(module, example.tensors)
            return
        program = torch.export.export(module, example.tensors)
        targets = [str(node.target) for node in program.graph.nodes]
        assert any(name.startswith(self.namespace) for name in targets), targets
        actual, expected = (
            outputs_of(run, example, example.tensors) for run in (program.module(), module)
        )
        where = f"{operation.name} exported, {example.label}"
        assert_close(actual, expected, TOLERANCE[self.dtype()], where)

    def dtype(self) -> torch.dtype:
        """Return the dtype of tests that run once: float64 if the backend supports it."""
        dtypes = self.member().dtypes
        return torch.float64 if torch.float64 in dtypes or not dtypes else dtypes[0]

    def member(self) -> type[KernelBackend]:
        """Return the backend under test."""
        if isinstance(self.backend, str):
            return kernel_backends.get(self.backend)
        return self.backend

    def traced_example(self, operation: Operation) -> tuple[Example, Callable[..., Any]]:
        """Return the first example and a function of its tensors that also selects the backend."""
        first = next(operation.iterate_examples(Numbers(self.dtype(), self.device)))

        backend = self.member().name

        def run(*tensors: Tensor) -> Any:
            chosen = operation.choose(first.spec, tensors[0], backend, *first.options)
            return first.call(chosen, *tensors)

        return replace(first, call=lambda run, *tensors: run(*tensors)), run

    def chosen(self, operation: Operation, example: Example) -> Callable[..., Any]:
        """Return the implementation of the backend under test, without fallback."""
        like = example.tensors[0]
        return operation.choose(example.spec, like, self.member().name, *example.options)


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Fill uninitialised memory with NaN, so that unwritten elements are detected."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


class _Module(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self._function(*tensors)


def outputs_of(run: Callable[..., Any], example: Example, tensors: tuple[Tensor, ...]) -> list[Any]:
    """Return the outputs of a call as a list."""
    outputs = example.call(run, *tensors)
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def derivatives(run: Callable[..., Any], example: Example, order: int) -> list[list[Tensor]]:
    """Return the outputs, then per order the gradients by all tensors and cotangents."""
    inputs = [tensor.detach().clone().requires_grad_(order > 0) for tensor in example.tensors]
    level = outputs_of(run, example, tuple(inputs))
    levels = [level]
    for depth in range(order):
        recorded = [tensor for tensor in level if tensor.requires_grad]
        cotangents = [_cotangent(tensor, depth) for tensor in recorded]
        more = depth + 1 < order
        level = list(
            torch.autograd.grad(
                recorded, inputs, cotangents, create_graph=more, materialize_grads=True
            )
        )
        levels.append(level)
        inputs = [*inputs, *cotangents]
    return [[tensor.detach() for tensor in level] for level in levels]


def _cotangent(like: Tensor, depth: int) -> Tensor:
    numbers = torch.arange(like.numel(), dtype=like.dtype, device=like.device)
    return torch.sin(numbers + depth).view_as(like).requires_grad_()


def assert_close(ours: list[Tensor], theirs: list[Tensor], tolerance: float, where: str) -> None:
    """Compare tensors relative to the largest magnitude of each."""
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert one.shape == other.shape, f"{where}: shape of tensor {number}"
        if one.numel():
            error = float((one - other).abs().max())
            bound = tolerance * max(1.0, float(other.abs().max()))
            assert error <= bound, f"{where}: tensor {number} differs by {error} > {bound}"
