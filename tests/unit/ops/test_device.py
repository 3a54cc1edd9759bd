"""Every operation on a GPU, by whichever backend serves it, gives the numbers of the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scitoolkit.ops.codegen import operations
from scitoolkit.ops.codegen.examples import Example, Numbers
from scitoolkit.testing.device import check_near, require_gpu
from scitoolkit.testing.kernels import derivatives

pytestmark = pytest.mark.device


def _named(levels: Any) -> dict[str, torch.Tensor]:
    return {
        f"derivative {level}, tensor {place}": tensor
        for level, tensors in enumerate(levels)
        for place, tensor in enumerate(tensors)
        if tensor is not None
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", sorted(operations))
def test_values_and_gradients(name: str, dtype: torch.dtype) -> None:
    device, operation = require_gpu(), operations.get(name)
    order = 1 if operation.derivatives is None else min(operation.derivatives, 1)

    def values(example: Example, by_reference: bool) -> dict[str, torch.Tensor]:
        chosen = operation.choose(example.spec, example.tensors[0], "auto", *example.options)
        run = operation.reference if by_reference else chosen
        return _named(derivatives(run, example, order))

    on_cpu = operation.iterate_examples(Numbers(dtype))
    on_gpu = operation.iterate_examples(Numbers(dtype, "cuda"))
    for theirs, ours in zip(on_cpu, on_gpu, strict=True):
        check_near(values(ours, False), values(theirs, True), device)
