"""Contract suite of decoders, to inherit in tests.

Example:
    class TestMyDecoder(DecoderContract):
        @pytest.fixture
        def decoder(self):
            return MyDecoder(widths=[8, 8])
"""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from torch import Tensor

from scitoolkit.ops import taylor
from scitoolkit.superresolution.config import DecoderConfig, decoders
from scitoolkit.superresolution.decoder import Decoder
from scitoolkit.testing.device import check_module, device_part
from scitoolkit.testing.member import check_registered, check_settings

DIMS, LATENT, FIELDS = 3, 6, 2
DERIVATIVES = [(1, 0, 0), (0, 0, 1), (0, 2, 0), (0, 1, 1), (1, 0, 2)]

_MEMBER = '''\
"""The decoder `{name}`."""

from __future__ import annotations

from typing import Any, Literal

from scitoolkit.superresolution.config import DecoderConfig


class {cls}(DecoderConfig):
    """One line for `scitoolkit ls decoder`: what {name} does."""

    name: Literal["{name}"] = "{name}"
    widths: list[int] = [32, 32]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `Decoder`: here a perceptron with tanh activations."""
        return {{"widths": self.widths, "activation": "tanh"}}
'''


class DecoderContract:
    """Contract suite of decoders; override the fixture `decoder`."""

    member_template: ClassVar[str] = _MEMBER

    @pytest.fixture
    def decoder(self) -> DecoderConfig:
        """Return the configuration of the decoder under test."""
        raise NotImplementedError("override the fixture `decoder`")

    def test_registered_under_its_name(self, decoder: DecoderConfig) -> None:
        """The registry returns this class, which has a summary."""
        check_registered(decoders, decoder)

    def test_keys_of_others_are_refused(self, decoder: DecoderConfig) -> None:
        """Unknown keys are refused; known ones are unchanged after they are written and read."""
        check_settings(decoder)

    @pytest.mark.parametrize("dims", [1, 2, 4])
    def test_points_do_not_depend_on_each_other(self, decoder: DecoderConfig, dims: int) -> None:
        """Values at points are finite, and equal for one point and for many."""
        network = _network(decoder, dims)
        coordinates, latent = _points(dims)
        plan = taylor.make_plan(dims, [])
        values = network(coordinates, latent, plan)
        assert values.shape == (1, len(latent), FIELDS)
        assert torch.isfinite(values).all()
        torch.testing.assert_close(network(coordinates[:1], latent[:1], plan), values[:, :1])

    def test_derivatives_are_those_of_the_values(self, decoder: DecoderConfig) -> None:
        """Propagated derivatives up to order three equal those of reverse mode."""
        network = _network(decoder, DIMS)
        coordinates, latent = _points(DIMS)
        coordinates.requires_grad_()
        plan = taylor.make_plan(DIMS, DERIVATIVES)
        decoded = network(coordinates, latent, plan)
        values = network(coordinates, latent, taylor.make_plan(DIMS, []))[0]
        torch.testing.assert_close(decoded[0], values)
        for index in DERIVATIVES:
            wanted = torch.stack(
                [_derivative(f, coordinates, index) for f in values.unbind(-1)], -1
            )
            torch.testing.assert_close(decoded[plan.index(index)], wanted, rtol=1e-8, atol=1e-9)

    def test_everything_is_learned_from_derivatives_too(self, decoder: DecoderConfig) -> None:
        """A loss of values and second derivatives has gradients for latent vectors and weights."""
        network = _network(decoder, DIMS)
        coordinates, latent = _points(DIMS)
        plan = taylor.make_plan(DIMS, [(0, 2, 0)])
        network(coordinates, latent.requires_grad_(), plan).square().sum().backward()
        assert latent.grad is not None
        assert (latent.grad != 0).any(0).all()
        assert not [n for n, p in network.named_parameters() if p.grad is None]

    @device_part
    def test_a_gpu_gives_the_same_numbers(self, decoder: DecoderConfig) -> None:
        """Outputs and gradients are those of the CPU, and the network can be moved back."""
        network, (coordinates, latent) = _network(decoder, 2), _points(2)
        plan = taylor.make_plan(2, [])
        check_module(
            network, lambda device: network(coordinates.to(device), latent.to(device), plan)
        )

    def test_the_state_restores_the_network(self, decoder: DecoderConfig) -> None:
        """A network that loads the state of another one has equal values, bit for bit."""
        network, other = _network(decoder, DIMS), _network(decoder, DIMS, seed=1)
        arguments = (*_points(DIMS), taylor.make_plan(DIMS, []))
        assert not torch.equal(other(*arguments), network(*arguments))
        other.load_state_dict(network.state_dict())
        assert torch.equal(other(*arguments), network(*arguments))


def _network(decoder: DecoderConfig, dims: int, seed: int = 0) -> Decoder:
    torch.manual_seed(seed)
    return Decoder(dims, LATENT, FIELDS, **decoder.arguments()).double()


def _points(dims: int) -> tuple[Tensor, Tensor]:
    """Return coordinates relative to a latent node and latent vectors of 7 points."""
    generator = torch.Generator().manual_seed(0)
    coordinates = torch.rand(7, dims, dtype=torch.float64, generator=generator)
    return coordinates, torch.randn(7, LATENT, dtype=torch.float64, generator=generator)


def _derivative(field: Tensor, coordinates: Tensor, index: tuple[int, ...]) -> Tensor:
    for dim, order in enumerate(index):
        for _ in range(order):
            (slope,) = torch.autograd.grad(field.sum(), coordinates, create_graph=True)
            field = slope[:, dim]
    return field
