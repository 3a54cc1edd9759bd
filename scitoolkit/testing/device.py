"""The device part of the contract suites: equal numbers on a GPU, and back on the CPU.

Its tests run where torch has a GPU, and in a process whose GPU is pretended; elsewhere they are
skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from scitoolkit.core.devices import CPU, device_of

T = TypeVar("T", bound=Callable[..., Any])
PRETENDED = "Pretended"
"""Name of a pretended GPU."""
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4}
"""Of values and gradients, relative to the largest value of a tensor."""


def device_part(test: T) -> T:
    """Return a test of a contract suite after noting that it needs a GPU, real or pretended.

    An attribute instead of a mark of pytest, which every package with a contract test would have
    to register.
    """
    test.needs_device = True  # type: ignore[attr-defined]
    return test


def require_gpu() -> torch.device:
    """Return the GPU; skip the test where there is none."""
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    return torch.device("cuda", 0)


def require_real_gpu(why: str) -> torch.device:
    """Return the GPU; skip the test where there is none or a pretended one.

    Args:
        why: property of real tensors that the test needs.
    """
    device = require_gpu()
    if torch.cuda.get_device_name(device) == PRETENDED:
        pytest.skip(f"needs a real GPU: {why}")
    return device


def check_module(
    network: nn.Module, call: Callable[[torch.device], Tensor | Sequence[Tensor]]
) -> None:
    """Assert that a module computes the same on a GPU, on it, and as before when it is back.

    Args:
        network: on the CPU; its parameters get gradients.
        call: calls the network, with inputs on the given device, and returns its outputs.

    Raises:
        AssertionError: outputs or gradients differ, or are not on the device of the network.
    """
    gpu = require_gpu()
    expected = _outputs_and_gradients(network, call, CPU)
    try:
        network.to(gpu)
        computed = _outputs_and_gradients(network, call, gpu)
    finally:
        network.to(CPU)
    check_near(computed, expected, gpu)
    again = _outputs_and_gradients(network, call, CPU)
    for name, value in expected.items():
        assert torch.equal(again[name], value), f"{name} differs when the module is back on the CPU"


def check_near(
    computed: Mapping[str, Tensor], expected: Mapping[str, Tensor], device: torch.device
) -> None:
    """Assert that tensors on a device are near tensors on the CPU.

    Args:
        computed: named tensors; each must be on `device`.
        expected: named tensors with the same names, on the CPU.
        device: where the former must be.
    """
    assert computed.keys() == expected.keys()
    for name, value in expected.items():
        own = computed[name]
        assert own.device.type == device.type, f"{name} is on {own.device}"
        scale = float(value.abs().max()) if value.numel() else 0.0
        tolerance = TOLERANCE.get(value.dtype, 0.0) * max(scale, 1.0)
        assert torch.allclose(own.cpu(), value, rtol=0, atol=tolerance, equal_nan=True), (
            f"{name} differs by {float((own.cpu() - value).abs().max())}, largest {scale}"
        )


def _outputs_and_gradients(
    network: nn.Module, call: Callable[[torch.device], Any], device: torch.device
) -> dict[str, Tensor]:
    assert device_of(network).type == device.type
    network.zero_grad(set_to_none=True)
    torch.manual_seed(0)
    answer = call(device)
    outputs = [answer] if isinstance(answer, Tensor) else list(answer)
    recorded = [output.square().sum() for output in outputs if output.requires_grad]
    if recorded:
        torch.stack(recorded).sum().backward()
    named = {f"output {number}": output.detach() for number, output in enumerate(outputs)}
    for name, parameter in network.named_parameters():
        if parameter.grad is not None:
            named[f"gradient of {name}"] = parameter.grad.detach().clone()
    return named
