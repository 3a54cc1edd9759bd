"""Continuous decoders from coordinates relative to a latent node and its vector to field values.

All decoders are sequences of linear layers and activations, so that one set of rules propagates
derivatives through them; they differ in inputs and initialisation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from scitoolkit.ops import taylor


class Decoder(nn.Module):
    """Decoder f(coordinates, latent vector) -> fields, with derivatives by the coordinates.

    Args:
        dims: number of coordinates.
        channels_in: number of latent channels.
        channels_out: number of fields.
        widths: sizes of the hidden layers.
        activation: name of an activation; derivatives need one with a rule in `ops.taylor`.
        skip: concatenate the inputs to every hidden layer, as in the ImNet of MeshfreeFlowNet
            (Jiang et al., SC20, sec. 4.2).
        features: number of random Fourier features that replace the coordinates (Tancik et al.,
            NeurIPS 2020); 0 for the coordinates themselves.
        omega: first-layer frequency of a SIREN (Sitzmann et al., NeurIPS 2020, sec. 3.2), whose
            initialisation is used for the activation `sin`.
    """

    frequencies: Tensor

    def __init__(
        self,
        dims: int,
        channels_in: int,
        channels_out: int,
        *,
        widths: Sequence[int] = (64, 64),
        activation: str = "softplus",
        skip: bool = False,
        features: int = 0,
        omega: float = 6.0,
    ) -> None:
        super().__init__()
        self.activation: str = activation
        self.skip: bool = skip
        self.register_buffer("frequencies", torch.randn(features, dims) * math.pi)
        self.num_coordinates: int = 2 * features or dims
        inputs = self.num_coordinates + channels_in
        sizes = [inputs, *(w + inputs * skip for w in widths[:-1]), widths[-1]]
        self.layers: nn.ModuleList = nn.ModuleList(
            nn.Linear(a, b) for a, b in zip(sizes, [*widths, channels_out], strict=True)
        )
        self.width: int = max(widths)
        if activation == "sin":
            self._initialise_siren(omega)

    @property
    def linears(self) -> list[nn.Linear]:
        """Linear layers from input to output."""
        return [cast(nn.Linear, layer) for layer in self.layers]

    def _initialise_siren(self, omega: float) -> None:
        for number, layer in enumerate(self.linears):
            bound = math.sqrt(6 / layer.in_features)
            nn.init.uniform_(layer.weight, -bound, bound)
            if number == 0:
                with torch.no_grad():
                    # omega scales the weights of the coordinates alone: latent vectors are no
                    # positions.
                    layer.weight[:, : self.num_coordinates] *= omega

    def forward(
        self,
        coordinates: Tensor,
        latent: Tensor,
        plan: taylor.Plan,
        scales: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """Return streams (streams, ..., channels_out).

        Args:
            coordinates: (..., dims), in units of the latent spacing.
            latent: (..., channels_in).
            plan: which derivatives.
            scales: for each dim, derivative of the coordinate by the physical one, shape (...).
        """
        if len(plan) == 1:
            return self._value(coordinates, latent)[None]
        streams = taylor.seed(coordinates, plan, scales)
        if len(self.frequencies):
            phase = taylor.linear(streams, self.frequencies)
            # cos(p) = sin(p + pi / 2): a constant is added to the value, not to its derivatives,
            # and one rule serves both features.
            shifted = torch.cat([phase[:1] + math.pi / 2, phase[1:]])
            both = torch.cat([phase, shifted], -1)
            streams = taylor.activation(both, "sin", plan)
        hidden = self._first(streams, latent, plan)
        for layer in self.linears[1:]:
            hidden = taylor.activation(hidden, self.activation, plan)
            width = hidden.shape[-1]
            out = taylor.linear(hidden, layer.weight[:, :width])
            if layer.in_features > width:
                out = out + self._inputs(streams, latent, layer.weight[:, width:], plan)
            hidden = taylor.add_to_value(out, layer.bias)
        return hidden

    def _first(self, streams: Tensor, latent: Tensor, plan: taylor.Plan) -> Tensor:
        layer = self.linears[0]
        return taylor.add_to_value(self._inputs(streams, latent, layer.weight, plan), layer.bias)

    def _inputs(self, streams: Tensor, latent: Tensor, weight: Tensor, plan: taylor.Plan) -> Tensor:
        """Return the streams of W [coordinates, latent], with a constant latent vector."""
        count = self.num_coordinates
        out = taylor.linear(streams, weight[:, :count])
        return taylor.add_to_value(out, latent @ weight[:, count:].T)

    def _value(self, coordinates: Tensor, latent: Tensor) -> Tensor:
        if len(self.frequencies):
            phase = coordinates @ self.frequencies.T
            coordinates = torch.cat([torch.sin(phase), torch.cos(phase)], -1)
        inputs = torch.cat([coordinates, latent], -1)
        hidden = self.linears[0](inputs)
        for number, layer in enumerate(self.linears[1:], 1):
            hidden = _PLAIN[self.activation](hidden)
            if self.skip and number < len(self.layers) - 1:
                hidden = torch.cat([hidden, inputs], -1)
            hidden = layer(hidden)
        return hidden


_PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "softplus": nn.functional.softplus,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "sin": torch.sin,
    "silu": nn.functional.silu,
    "gelu": nn.functional.gelu,
    "relu": torch.relu,
    "leaky_relu": nn.functional.leaky_relu,
}
