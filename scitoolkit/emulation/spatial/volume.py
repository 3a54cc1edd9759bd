"""Predicted communication volume of slabs: a sum over layers.

A layer with a halo of h cells sends h cells of all its C channels to both sides, independent of the
thickness of the slab: 2 h C A numbers for a cross-section of A cells. Halving the grid divides A by
2 for each dim that is not divided.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from scitoolkit.core.errors import ConfigError
from scitoolkit.emulation.models.config import (
    ConvNeXtUNetConfig,
    FieldModelConfig,
    ResNetConfig,
    UNetConfig,
)

Layer = tuple[int, int, float]
"""Halo in cells, input channels, and coarsening factor of a layer."""


def forward_bytes(
    model: FieldModelConfig,
    inputs: int,
    cross_section: list[int],
    *,
    batch: int = 1,
    itemsize: int = 4,
) -> int:
    """Return the bytes that a process with two neighbours receives in one forward pass.

    The backward pass sends the same amount without the first layer.

    Args:
        model: the network.
        inputs: its input channels.
        cross_section: cells along the dims that are not divided.
        batch: number of samples.
        itemsize: bytes per number.

    Raises:
        ConfigError: no formula for the network.

    Example:
        >>> forward_bytes(ResNetConfig(width=8, blocks=1), 2, [16])
        3328
    """
    dims = len(cross_section) + 1
    if isinstance(model, UNetConfig):
        layers = _unet(model, inputs, dims)
    elif isinstance(model, ConvNeXtUNetConfig):
        layers = _convnext(model, inputs, dims)
    elif isinstance(model, ResNetConfig):
        layers = _resnet(model, inputs, dims)
    else:
        raise ConfigError(
            f"no formula for model {model.name}",
            where="model.name",
            allowed="unet, convnext_unet, resnet",
        )
    numbers = sum(
        2 * far * channels * prod(round(n / factor) for n in cross_section)
        for far, channels, factor in layers
    )
    return numbers * batch * itemsize


def _unet(model: UNetConfig, inputs: int, dims: int) -> Iterator[Layer]:
    cells, widths = model.patch**dims, model.widths
    # Patches put their cells into channels: as many numbers, in fewer and thicker layers.
    yield 1, inputs * cells, model.patch
    yield from _levels(widths, 2 * model.blocks, 1, model.patch)
    fine = widths[0] // cells
    yield 1, fine + inputs, 1
    yield 1, max(16, fine), 1


def _convnext(model: ConvNeXtUNetConfig, inputs: int, dims: int) -> Iterator[Layer]:
    yield 1, inputs * model.patch**dims, model.patch
    yield from _levels(model.widths, model.blocks, model.kernel // 2, model.patch)
    yield 1, model.widths[0], model.patch


def _resnet(model: ResNetConfig, inputs: int, dims: int) -> Iterator[Layer]:
    yield 1, inputs * model.patch**dims, model.patch
    for _ in range(2 * model.blocks):
        yield model.kernel // 2, model.width, model.patch
    yield 1, model.width, model.patch


def _levels(widths: list[int], convolutions: int, far: int, patch: int) -> Iterator[Layer]:
    """Yield the layers of a U-Net: encoder, decoder and the interpolations between levels."""
    for level, width in enumerate(widths):
        # Every level but the coarsest is passed on the way down and up.
        passes = 1 if level == len(widths) - 1 else 2
        for _ in range(passes * convolutions):
            yield far, width, patch * 2**level
        if passes == 2:  # the interpolation reads coarse cells next to the slab
            yield 1, width, patch * 2 ** (level + 1)
