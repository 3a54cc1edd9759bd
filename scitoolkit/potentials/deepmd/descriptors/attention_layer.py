"""Gated self-attention among the neighbours of an atom, in plain torch.

The attention matrices are (N, most neighbours, most neighbours) for each layer, so that large
systems want more memory than the other descriptors do.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scitoolkit.potentials.deepmd.descriptors.fields import AttentionFields

LOGIT_SHIFT = 20.0  # deepmd-kit's: a neighbour at the cutoff has the logit -20


class AttentionLayer(nn.Module):
    """Gated self-attention among the neighbours of an atom, added, and normalised.

    Args:
        config: the settings.
        width: number of basis functions.
        generator: of the initial weights.
        dtype: of the weights.
    """

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

    def forward(self, basis: Tensor, fade: Tensor, cosines: Tensor | None, slots: Slots) -> Tensor:
        """Return the new basis functions (E, M).

        Args:
            basis: (E, M).
            fade: (N, K) switch of each neighbour, 0 where there is none.
            cosines: (N, K, K) between the directions of neighbours.
            slots: where edges lie in (N, K).
        """
        config = self.config
        parts = (basis @ self.project + self.project_bias).chunk(3, dim=1)
        if config.normalize:
            parts = tuple(part / part.norm(dim=1, keepdim=True) for part in parts)
        query, key, value = (slots.spread(part) for part in parts)
        scale = config.temperature
        if scale is None:
            scale = (config.attention_width * config.scaling) ** -0.5
        logits = torch.bmm(query * scale, key.transpose(1, 2))
        if config.smooth:
            pair = fade[:, :, None] * fade[:, None, :]
            logits = (logits + LOGIT_SHIFT) * pair - LOGIT_SHIFT
            # Absent neighbours, up to `sel`, take part with the logit of one at the cutoff.
            least = logits.detach().amax(2, keepdim=True).clamp_min(-LOGIT_SHIFT)
            powers = (logits - least).exp()
            absent = torch.exp(-LOGIT_SHIFT - least) * slots.absent
            weights = powers / (powers.sum(2, keepdim=True) + absent) * pair
        else:
            there = slots.present.to(logits.dtype)
            weights = logits.masked_fill(~slots.present[:, None, :], -torch.inf)
            weights = weights.masked_fill(~slots.present.any(1)[:, None, None], 0.0)
            weights = weights.softmax(2) * there[:, :, None] * there[:, None, :]
        if cosines is not None:
            weights = weights * cosines
        out = slots.gather(torch.bmm(weights, value)) @ self.mix + self.mix_bias
        return nn.functional.layer_norm(
            basis + out, basis.shape[1:], self.norm_weight, self.norm_bias, config.norm_epsilon
        )


class Slots:
    """Edges (E,), sorted by atom, as places (N, K) of a table of the most neighbours.

    Attributes:
        present: (N, K) whether there is an edge.
        absent: `sel` less K.
    """

    def __init__(self, centre: Tensor, num_atoms: int, sel: int) -> None:
        counts = torch.bincount(centre, minlength=num_atoms)
        most = int(counts.max().clamp_min(1))
        place = (
            torch.arange(len(centre), device=centre.device) - (counts.cumsum(0) - counts)[centre]
        )
        self._flat, self._shape = centre * most + place, (num_atoms, most)
        self.present: Tensor = torch.arange(most, device=centre.device) < counts[:, None]
        self.absent: int = sel - most

    def spread(self, values: Tensor) -> Tensor:
        """Return (N, K, ...) of (E, ...), zero where there is no edge."""
        room = values.new_zeros(self._shape[0] * self._shape[1], *values.shape[1:])
        return room.index_add(0, self._flat, values).view(*self._shape, *values.shape[1:])

    def gather(self, values: Tensor) -> Tensor:
        """Return (E, ...) of (N, K, ...)."""
        return values.flatten(0, 1)[self._flat]
