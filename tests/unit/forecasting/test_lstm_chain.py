from __future__ import annotations

import pytest
import torch

from scitoolkit.core.errors import ConfigError
from scitoolkit.forecasting.config import ArchitectureConfig
from scitoolkit.forecasting.lstm import LSTMChain, PodLSTM

HEADS = ["last_state", "all_steps", "encoder_decoder"]


def test_a_chain_is_what_its_nodes_and_skips_say():
    torch.manual_seed(0)
    chain = LSTMChain(4, [6, 0, 3], [(0, 1), (1, 2), (0, 3)]).eval()
    x = torch.randn(2, 5, 4)
    first, _ = chain.layers["1"](x)
    first = torch.relu(first + chain.maps["0-1"](x))
    second = torch.relu(first + first)
    third, _ = chain.layers["3"](second)
    third = torch.relu(third + chain.maps["0-3"](x))
    torch.testing.assert_close(chain(x)[0], third)
    assert chain.width == 3
    assert set(chain.maps) == {"0-1", "0-3"}


def test_a_chain_of_one_layer_is_an_lstm():
    torch.manual_seed(0)
    chain, x = LSTMChain(4, [6]), torch.randn(2, 5, 4)
    torch.testing.assert_close(chain(x)[0], chain.layers["1"](x)[0])


def test_states_carry_on_where_a_chain_stopped():
    chain, x = LSTMChain(4, [6, 0, 5], [(0, 2), (1, 3)]), torch.randn(2, 7, 4)
    whole, _ = chain(x)
    _, memory = chain(x[:, :4])
    torch.testing.assert_close(chain(x[:, 4:], memory)[0], whole[:, 4:])


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("nodes", [[0, 0], [8, 0, 4]])
def test_every_head_works_on_every_chain(head, nodes):
    network = PodLSTM(7, 5, inputs=8, leads=6, head=head, nodes=nodes, skips=[(0, 2)])
    out = network(torch.randn(3, 8, 7))
    assert out.shape == (3, 6, 5)
    out.sum().backward()
    assert all(p.grad is not None for p in network.readout.parameters())


@pytest.mark.parametrize("skip", [[2, 1], [1, 1], [0, 4]])
def test_skips_that_do_not_fit_are_refused(skip):
    with pytest.raises(ConfigError, match="does not fit 3 nodes"):
        ArchitectureConfig(nodes=[1, 2, 3], skips=[skip])


def test_a_skip_that_is_listed_twice_is_refused():
    with pytest.raises(ConfigError, match=r"skip \[0, 2\] is listed twice"):
        ArchitectureConfig(nodes=[1, 2, 3], skips=[(0, 2), (1, 3), (0, 2)])
