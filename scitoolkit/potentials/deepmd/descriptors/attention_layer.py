"""Parameters of an attention layer of se_atten."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from scitoolkit.ops.neighbour_attention import LayerWeights
from scitoolkit.potentials.deepmd.descriptors.fields import AttentionFields


class AttentionLayer(nn.Module):
    """Parameters of gated self-attention among the neighbours of an atom.

    `ops.neighbour_attention` evaluates the layer, in torch or in kernels.

    Args:
        config: the settings.
        width: number of basis functions.
        generator: of the initial weights.
        dtype: of the weights.

    Attributes:
        not_compiled: why `training.compile` is refused.
    """

    not_compiled: ClassVar[str] = "the kernels of neighbour_attention cannot be traced"

    def __init__(
        self, config: AttentionFields, width: int, generator: torch.Generator, dtype: torch.dtype
    ) -> None:
        super().__init__()
        hidden = config.attention_width
        self.config = config

        def normal(fan_in: int, fan_out: int) -> nn.Parameter:
            values = torch.randn(fan_in, fan_out, generator=generator, dtype=torch.float64)
            return nn.Parameter((values * (fan_in + fan_out) ** -0.5).to(dtype))

        self.project: nn.Parameter = normal(width, 3 * hidden)
        self.mix: nn.Parameter = normal(hidden, width)
        self.project_bias: nn.Parameter = nn.Parameter(torch.zeros(3 * hidden, dtype=dtype))
        self.mix_bias: nn.Parameter = nn.Parameter(torch.zeros(width, dtype=dtype))
        self.norm_weight: nn.Parameter = nn.Parameter(torch.ones(width, dtype=dtype))
        self.norm_bias: nn.Parameter = nn.Parameter(torch.zeros(width, dtype=dtype))

    def weights(self) -> LayerWeights:
        """Return the parameters as input of `ops.neighbour_attention`."""
        return LayerWeights(
            self.project,
            self.project_bias,
            self.mix,
            self.mix_bias,
            self.norm_weight,
            self.norm_bias,
        )
