"""Choice of a mesh for a network: the memory of weights and the bytes received, without a training.

Only the products that `division()` names are counted, and gradients of the other parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from scitoolkit.training.strategies.mesh.division import DivisibleNetwork, Division, SummedLinear
from scitoolkit.training.strategies.mesh.grid import (
    DividedProduct,
    part_numbers,
    product_numbers,
    ring,
)
from scitoolkit.training.strategies.mesh.products import Convolution, is_divisible, linear_layers


@dataclass(frozen=True)
class MeshPlan:
    """A mesh of processes and what it costs.

    Attributes:
        data: shares of the batch.
        tensor: grid x, y, z of the products.
        weights: numbers of the parameters that a rank stores.
        received: numbers that a rank receives in a step.
    """

    data: int
    tensor: tuple[int, int, int]
    weights: int
    received: float


def divided_products(network: nn.Module) -> dict[str, tuple[nn.Module, Division]]:
    """Return the products that a network declares, by the name of their module."""
    if not isinstance(network, DivisibleNetwork):
        return {}
    patterns = network.division()
    out: dict[str, tuple[nn.Module, Division]] = {}
    for name, module in network.named_modules():
        division = next((d for p, d in patterns.items() if fnmatchcase(name, p)), None)
        if division is not None and division.partial is None and is_divisible(module):
            out[name] = module, division
    return out


def measured_products(network: nn.Module, *sample: Tensor) -> dict[str, DividedProduct]:
    """Return the products of a network, whose rows are counted in one call.

    Args:
        network: the whole network of one process.
        sample: its arguments for one sample.
    """
    products: dict[str, DividedProduct] = {}
    hooks = []

    def record(name: str, module: Any, division: Division) -> Any:
        def hook(_module: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
            layers, inner = linear_layers(module), inputs[0].requires_grad
            if layers is None:
                taps = math.prod(module.weight.shape[2:])
                rows = output.numel() // module.out_channels
                products[name] = DividedProduct(
                    division, module.in_channels, module.out_channels, rows, taps, inner
                )
                return
            summed = isinstance(module, SummedLinear)
            columns = [layer.in_features for layer in layers]
            outputs = [layer.out_features for layer in layers]
            products[name] = DividedProduct(
                division,
                sum(columns) if summed else columns[0],
                outputs[0] if summed else sum(outputs),
                inputs[0].numel() // columns[0],
                inner=inner,
            )

        return hook

    for name, (module, division) in divided_products(network).items():
        hooks.append(module.register_forward_hook(record(name, module, division)))
    try:
        with torch.enable_grad():  # which tells the inputs that have a gradient
            network(*sample)
    finally:
        for handle in hooks:
            handle.remove()
    return products


def mesh_plans(
    network: nn.Module, products: Mapping[str, DividedProduct], samples: int, processes: int
) -> list[MeshPlan]:
    """Return the meshes without a pipeline on a number of processes, fewest received numbers first.

    Args:
        network: the whole network of one process.
        products: as `measured_products` returns.
        samples: samples of a step on all processes.
        processes: number of processes.
    """
    divided = sum(product.numbers for product in products.values())
    others = sum(p.numel() for p in network.parameters()) - divided
    plans = []
    for data, grid in _meshes(processes):
        shares = data * grid[2]
        if samples % shares or not _fits(network, grid):
            continue
        weights = others + sum(part_numbers(product, grid) for product in products.values())
        received = sum(product_numbers(p, samples, data, grid) for p in products.values())
        received += 2 * others * ring(shares)
        plans.append(MeshPlan(data, grid, int(weights), received))
    return sorted(plans, key=lambda plan: (plan.received, plan.weights))


def _meshes(processes: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
    sizes = [n for n in range(1, processes + 1) if processes % n == 0]
    for x in sizes:
        for y in (n for n in sizes if processes % (x * n) == 0):
            for z in (n for n in sizes if processes % (x * y * n) == 0):
                yield processes // (x * y * z), (x, y, z)


def _fits(network: nn.Module, grid: tuple[int, int, int]) -> bool:
    """Return whether every product divides, and every axis divides a product."""
    products = divided_products(network)
    axes = {axis for _, d in products.values() for axis in (d.inputs, d.outputs)}
    used = all(size == 1 or axis in axes for axis, size in zip("xy", grid, strict=False))
    return used and not any(indivisible(m, d, grid) for m, d in products.values())


def indivisible(module: Any, division: Division, grid: tuple[int, int, int]) -> str:
    """Return which sizes of a product do not divide over a grid, or an empty string.

    Args:
        module: the product.
        division: as declared.
        grid: sizes of the axes x, y, z.

    Example:
        >>> indivisible(nn.Linear(4, 6), Division(outputs="y"), (1, 4, 1))
        '6 outputs among 4 processes'
    """
    layers = linear_layers(module)
    matrix = layers is not None or not isinstance(module, Convolution)
    sizes: dict[str | None, int] = {None: 1, **dict(zip("xyz", grid, strict=True))}
    for weight in [module.weight] if layers is None else [layer.weight for layer in layers]:
        for what, axis, size in (
            ("outputs", division.outputs, weight.shape[0]),
            ("inputs", division.inputs, weight.shape[1]),
        ):
            ranks, unit = sizes[axis], division.unit if axis == "y" else 1
            if size % (ranks * unit):
                return f"{size} {what} among {ranks} processes" + (
                    f" in units of {unit}" if unit > 1 else ""
                )
            if what == "outputs" and matrix and size // ranks % grid[2]:
                return f"{size // ranks} {what} of a process among {grid[2]} of the axis z"
    return ""
