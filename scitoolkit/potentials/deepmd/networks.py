"""Small networks of equal shape with stacked weights, which keeps the number of tensors low."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from scitoolkit.ops.environment_matrix.reference import Layer, embedding
from scitoolkit.ops.fitting_network.by_type import outputs_by_type


class StackedNetworks(nn.Module):
    """`count` networks of fully connected tanh layers with deepmd-kit's residual connections.

    A layer as wide as its input adds the input; one twice as wide adds the input concatenated with
    itself. Layers with a time step scale their tanh by it.

    Args:
        count: number of networks.
        inputs: width of the input.
        widths: of the hidden layers.
        resnet_dt: layers with a time step, see `ResnetSteps`.
        linear_output: whether a linear output layer follows.
        generator: of the initial weights: normal, of variance 1/(fan_in + fan_out); biases have
            variance 1.
        dtype: of the weights.
        outputs: width of the output layer.
    """

    step: nn.ParameterDict

    def __init__(
        self,
        count: int,
        inputs: int,
        widths: Sequence[int],
        *,
        resnet_dt: str,
        linear_output: bool,
        generator: torch.Generator,
        dtype: torch.dtype,
        outputs: int = 1,
    ) -> None:
        super().__init__()
        self.count: int = count
        self.widths: tuple[int, ...] = tuple(widths)
        self.linear_output: bool = linear_output
        sizes = [inputs, *widths, *([outputs] if linear_output else [])]

        def normal(*shape: int, scale: float, mean: float = 0.0) -> nn.Parameter:
            values = torch.randn(count, *shape, generator=generator, dtype=torch.float64)
            return nn.Parameter((values * scale + mean).to(dtype))

        self.weight: nn.ParameterList = nn.ParameterList()
        self.bias: nn.ParameterList = nn.ParameterList()
        self.step = nn.ParameterDict()
        for number, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            self.weight.append(normal(fan_in, fan_out, scale=(fan_in + fan_out) ** -0.5))
            last = linear_output and number == len(widths)
            self.bias.append(normal(fan_out, scale=0.0 if last else 1.0))
            if not last and (
                resnet_dt == "all" or (resnet_dt == "same_width" and fan_in == fan_out)
            ):
                self.step[str(number)] = normal(fan_out, scale=0.001, mean=0.1)

    def networks(self) -> list[list[Layer]]:
        """Return the layers of each network, including the linear output."""
        # unbind instead of [network]: its backward writes each gradient once.
        steps = [
            self.step[str(k)].unbind() if str(k) in self.step else (None,) * self.count
            for k in range(len(self.weight))
        ]
        columns = [
            list(zip(w.unbind(), b.unbind(), s, strict=True))
            for w, b, s in zip(self.weight, self.bias, steps, strict=True)
        ]
        return [[column[network] for column in columns] for network in range(self.count)]

    def outputs_by_type(self, inputs: Tensor, types: Tensor) -> Tensor:
        """Return the outputs (N, K) of the networks `types` (N,), without a loop over these."""
        return outputs_by_type(self.stacked(), inputs, types)

    def stacked(self) -> list[Layer]:
        """Return the layers of all networks at once, with the networks as first dimension."""
        steps = [self.step[str(k)] if str(k) in self.step else None for k in range(len(self.bias))]
        return list(zip(self.weight, self.bias, steps, strict=True))


def linear_output(layers: Sequence[Layer], inputs: Tensor) -> Tensor:
    """Apply hidden layers and one linear output to inputs (N, ·); return (N,)."""
    return linear_outputs(layers, inputs).squeeze(1)


def linear_outputs(layers: Sequence[Layer], inputs: Tensor) -> Tensor:
    """Apply hidden layers and K linear outputs to inputs (N, ·); return (N, K)."""
    weight, bias, _ = layers[-1]
    return embedding(inputs, layers[:-1]) @ weight + bias
