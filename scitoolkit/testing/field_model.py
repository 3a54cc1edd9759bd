"""Contract suite of field models, to inherit in tests.

Example:
    class TestMyModel(FieldModelContract):
        @pytest.fixture
        def model(self):
            return MyModel(width=4)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from scitoolkit.emulation.models.config import FieldModelConfig, models
from scitoolkit.emulation.models.padding import AnyPadding
from scitoolkit.testing.device import check_module, device_part
from scitoolkit.testing.member import check_registered, check_settings

INPUTS, OUTPUTS, CONDITION = 2, 3, 5
PADDING: tuple[AnyPadding, ...] = ("circular", "zeros", "edge")
ODD = (12, 9, 7)

_MEMBER = '''\
"""The field model `{name}`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from scitoolkit.emulation.models.config import FieldModelConfig

if TYPE_CHECKING:
    from torch import nn


class {cls}(FieldModelConfig):
    """One line for `scitoolkit ls field_model`: what {name} does."""

    tied_to_box: ClassVar[bool] = False  # the weights do not depend on the length of the box
    name: Literal["{name}"] = "{name}"
    width: int = 3

    def build(self, inputs, outputs, padding, conditioning=0) -> nn.Module:
        """Return the network: here one convolution over `width` cells."""
        from scitoolkit.emulation.models.layers import Conv

        return Conv(inputs, outputs, padding, self.width)
'''


class FieldModelContract:
    """Contract suite of field models; override the fixture `model` with a small one.

    Attributes:
        dims: numbers of space dims that the model supports; (0,) for a model of vectors.
    """

    dims: ClassVar[Sequence[int]] = (1, 2, 3)

    member_template: ClassVar[str] = _MEMBER

    @pytest.fixture
    def model(self) -> FieldModelConfig:
        """Return the configuration of the model under test."""
        raise NotImplementedError("override the fixture `model`")

    def test_registered_under_its_name(self, model: FieldModelConfig) -> None:
        """The registry returns this class, which has a summary."""
        check_registered(models, model)

    def test_keys_of_others_are_refused(self, model: FieldModelConfig) -> None:
        """Unknown keys are refused; known ones are unchanged after they are written and read."""
        check_settings(model)

    def test_the_grid_is_kept(self, model: FieldModelConfig) -> None:
        """Outputs are finite on the cells of the inputs, of any number and with any padding."""
        for dims in self.dims:
            for turn in range(max(dims, 1)):
                padding = (*PADDING[turn:], *PADDING[:turn])[:dims]
                x = _fields(2, INPUTS, *ODD[:dims])
                out = _network(model, padding)(x)
                assert out.shape == (2, OUTPUTS, *ODD[:dims])
                assert torch.isfinite(out).all()

    def test_samples_do_not_depend_on_each_other(self, model: FieldModelConfig) -> None:
        """A sample of a batch has the outputs that it has alone, also while training."""
        x = _fields(3, INPUTS, *self._size())
        network = _network(model, self._padding()).train()
        together = network(x)
        for i, one in enumerate(x.split(1)):
            torch.testing.assert_close(together[i : i + 1], network(one), atol=1e-9, rtol=0)

    def test_all_inputs_and_all_weights_are_used(self, model: FieldModelConfig) -> None:
        """Every input channel changes the output, and every trained parameter has a gradient.

        A parameter without gradient makes gradient exchanges between processes wait or fail.
        """
        x = _fields(2, INPUTS, *self._size()).requires_grad_()
        network = _network(model, self._padding())
        network(x).square().sum().backward()
        assert x.grad is not None
        assert (x.grad.reshape(2, INPUTS, -1) != 0).any(2).all()
        unused = [n for n, p in network.named_parameters() if p.requires_grad and p.grad is None]
        assert not unused

    @device_part
    def test_a_gpu_gives_the_same_numbers(self, model: FieldModelConfig) -> None:
        """Outputs and gradients are those of the CPU, and the network can be moved back."""
        x = _fields(2, INPUTS, *self._size())
        network = _network(model, self._padding()).eval()
        check_module(network, lambda device: network(x.to(device)))

    def test_the_state_restores_the_network(self, model: FieldModelConfig) -> None:
        """A network that loads the state of another one has equal outputs, bit for bit."""
        x = _fields(2, INPUTS, *self._size())
        network = _network(model, self._padding()).eval()
        other = _network(model, self._padding(), seed=1).eval()
        assert not torch.equal(other(x), network(x))
        other.load_state_dict(network.state_dict())
        assert torch.equal(other(x), network(x))

    def test_periodic_dims_have_no_border_and_walls_have_one(self, model: FieldModelConfig) -> None:
        """A shift along a periodic dim shifts the output; one across a wall does not."""
        self._needs_space()
        cells = max(model.whole_cells(), 2)
        x = _fields(1, INPUTS, 4 * cells)
        for padding in PADDING:
            network = _network(model, [padding])
            shifted = network(x.roll(cells, 2))
            change = (shifted - network(x).roll(cells, 2)).abs().max()
            assert change < 1e-9 if padding == "circular" else change > 1e-7

    def test_boxes_may_be_longer_unless_tied_to_box(self, model: FieldModelConfig) -> None:
        """Without `tied_to_box`, two periods of a field have two periods of its output.

        Predictions on longer boxes are accepted or refused by this attribute.
        """
        self._needs_space(tied=model.tied_to_box)
        x = _fields(1, INPUTS, 4 * max(model.whole_cells(), 2))
        network = _network(model, ["circular"])
        twice = network(torch.cat([x, x], 2))
        torch.testing.assert_close(twice, torch.cat([network(x)] * 2, 2), atol=1e-9, rtol=0)

    def test_cells_may_be_finer_unless_tied_to_cells(self, model: FieldModelConfig) -> None:
        """Without `tied_to_cells`, a smooth field on half the cell width has nearly its output.

        Predictions on other cell widths are accepted or refused by this attribute.
        """
        self._needs_space(tied=model.tied_to_cells)
        cells = 16 * max(model.whole_cells(), 2)
        angle = 2 * torch.pi * torch.arange(2 * cells, dtype=torch.float64) / (2 * cells)
        fine = torch.stack([torch.sin(angle), torch.cos(2 * angle)])[None]
        network = _network(model, ["circular"])
        coarse = network(fine[:, :, ::2])
        assert (network(fine)[:, :, ::2] - coarse).abs().max() < 0.02 * coarse.std()

    def test_conditions_belong_to_their_samples(self, model: FieldModelConfig) -> None:
        """With `conditioned`, a sample depends on its condition, differentiably, and no other."""
        if not model.conditioned:
            pytest.skip("the model has no condition")
        x = _fields(2, INPUTS, *self._size())
        condition = _fields(2, CONDITION).requires_grad_()
        network = _network(model, self._padding(), CONDITION)
        both = network(x, condition)
        torch.testing.assert_close(both[:1], network(x[:1], condition[:1]), atol=1e-9, rtol=0)
        assert (both - network(x, condition.detach().flip(0))).abs().max() > 1e-4
        both[0].square().sum().backward()
        assert condition.grad is not None
        assert condition.grad[0].abs().min() > 0
        assert condition.grad[1].abs().max() == 0

    def _size(self) -> tuple[int, ...]:
        return ODD[: self._most()]

    def _padding(self) -> Sequence[AnyPadding]:
        return PADDING[: self._most()]

    def _most(self) -> int:
        return max(d for d in self.dims if d < 3)

    def _needs_space(self, *, tied: bool = False) -> None:
        if 1 not in self.dims:
            pytest.skip("the model has no space dim")
        if tied:
            pytest.skip("the model declares no such property")


def _fields(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _network(
    model: FieldModelConfig, padding: Sequence[AnyPadding], conditioning: int = 0, seed: int = 0
) -> nn.Module:
    """Return the network in float64 with random weights: some start as zero and hide mistakes."""
    network = model.build(INPUTS, OUTPUTS, padding, conditioning).double()
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.1, generator=generator)
    return network
