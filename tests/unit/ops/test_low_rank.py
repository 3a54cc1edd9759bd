"""Factors of layers: exact where rank allows, least change where it does not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.ops.low_rank import (
    InputMoments,
    empty_factors,
    factorable,
    factors,
    full_ranks,
    layers_of,
    nested_factors,
    replaced,
)

LAYERS = [
    nn.Linear(7, 5),
    nn.Linear(5, 7, bias=False),
    nn.Conv1d(6, 4, 5, padding=2, dilation=2),
    nn.Conv2d(6, 8, 3, stride=2, padding=1, padding_mode="circular"),
    nn.Conv2d(6, 8, 1),
    nn.Conv3d(4, 6, (1, 3, 3), padding=(0, 1, 1)),
    nn.Conv2d(3, 5, 1, padding=1, stride=2),
]
IDS = [str(k) for k in range(len(LAYERS))]


def inputs(layer, samples=3):
    if isinstance(layer, nn.Linear):
        return torch.randn(samples, 4, layer.in_features)
    return torch.randn(samples, layer.in_channels, *[11] * len(layer.kernel_size))


def moment_of(n):
    mixing = torch.randn(n, n, dtype=torch.float64)
    return mixing @ mixing.T


@pytest.mark.parametrize("layer", LAYERS, ids=IDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_full_ranks_are_the_layer(layer, weighted):
    torch.manual_seed(0)
    x = inputs(layer)
    moment = moment_of(layer.weight.shape[1]) if weighted else None
    made = factors(layer, full_ranks(layer), moment)
    torch.testing.assert_close(made(x), layer(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", LAYERS, ids=IDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_layer_of_low_rank_is_found_exactly(layer, weighted):
    torch.manual_seed(1)
    ranks = tuple(max(1, r // 2) for r in full_ranks(layer))
    outputs, channels = layer.weight.shape[:2]
    with torch.no_grad():
        core = torch.randn(ranks[-1], ranks[0], *layer.weight.shape[2:])
        if len(ranks) == 1:
            core = torch.eye(ranks[0]).view(ranks[0], ranks[0], *[1] * (core.ndim - 2))
        left, right = torch.randn(outputs, ranks[-1]), torch.randn(ranks[0], channels)
        before = layer.weight.clone()
        layer.weight.copy_(torch.einsum("or,rs...,si->oi...", left, core, right))
        x = inputs(layer)
        moment = moment_of(channels) if weighted else None
        made = factors(layer, ranks, moment)
        torch.testing.assert_close(made(x), layer(x), rtol=1e-3, atol=1e-4)
        layer.weight.copy_(before)
    assert sum(p.numel() for p in made.parameters()) == sum(
        p.numel() for p in empty_factors(layer, ranks).parameters()
    )


@torch.no_grad()
def test_weighted_factors_change_outputs_least():
    """The error of the weighted decomposition is that of the best projection of the outputs."""
    torch.manual_seed(0)
    layer = nn.Linear(12, 10, bias=False)
    x = torch.randn(400, 4, dtype=torch.float64) @ torch.randn(4, 12, dtype=torch.float64)
    x = (x + 0.1 * torch.randn(400, 12, dtype=torch.float64)).float()
    moment = (x.double().T @ x.double()) / len(x)
    y = layer(x)
    change = {
        k: float((factors(layer, [3], m)(x) - y).square().sum())
        for k, m in (("weighted", moment), ("plain", None))
    }
    best = float(torch.linalg.svdvals(y)[3:].square().sum())
    assert change["weighted"] == pytest.approx(best, rel=1e-3)
    assert change["plain"] > 1.05 * best


@torch.no_grad()
def test_weighted_windows_change_outputs_less_than_plain_ones():
    torch.manual_seed(0)
    layer = nn.Conv2d(8, 8, 3, padding=1)
    mixing = torch.randn(8, 3)
    x = torch.einsum("ij,bjzx->bizx", mixing, torch.randn(4, 3, 20, 20))
    x = x + 0.1 * torch.randn_like(x)
    with InputMoments({"a": layer}) as seen:
        y = layer(x)
    change = [float((factors(layer, (3, 6), m)(x) - y).square().mean()) for m in (seen["a"], None)]
    assert change[0] < 0.7 * change[1]


def test_moments_count_every_cell_and_nothing_after_the_end():
    layer = nn.Conv1d(2, 3, 3, padding=1)
    x = torch.randn(4, 2, 9)
    with InputMoments({"a": layer}) as seen:
        layer(x)
        layer(2 * x)
    layer(100 * x)
    wanted = torch.einsum("bcx,bdx->cd", x, x).double() * 5 / 72
    torch.testing.assert_close(seen["a"], wanted, rtol=1e-5, atol=1e-6)
    assert "b" not in seen


def test_moments_of_inputs_without_a_batch_are_those_of_a_batch_of_one():
    layer, x = nn.Conv2d(3, 4, 3), torch.randn(3, 5, 6)
    found = []
    for given in (x, x[None]):
        with InputMoments({"a": layer}) as seen:
            layer(given)
        found.append(seen["a"])
    torch.testing.assert_close(*found)


def test_a_layer_with_two_names_stays_one():
    shared = nn.Linear(6, 6)
    root = nn.ModuleDict({"a": shared, "b": nn.Sequential(shared, nn.Tanh())})
    assert [names for names, _ in layers_of(root)] == [("a", "b.0")]
    replaced(root, {"b.0": (2,)}, lambda name, layer, ranks: factors(layer, ranks))
    assert root["a"] is root["b"][0]
    assert isinstance(root["a"], nn.Sequential)


def test_what_has_no_factors_is_refused_by_name():
    assert not factorable(nn.Conv2d(4, 4, 3, groups=2))
    assert not factorable(nn.ConvTranspose2d(4, 4, 3))
    with pytest.raises(ConfigError, match="no low-rank form"):
        factors(nn.Conv2d(4, 4, 3, groups=2), (2, 2))
    with pytest.raises(ConfigError, match=r"ranks \[5\].*from 1 to \[4\]"):
        factors(nn.Linear(4, 8), (5,))
    with pytest.raises(ConfigError, match=r"2 from 1 to \[4, 8\]"):
        factors(nn.Conv2d(4, 8, 3), (2,))
    with pytest.raises(ConfigError, match="no linear layer or convolution 'b'"):
        replaced(nn.Sequential(nn.Linear(2, 2)), {"b": (1,)}, lambda *a: nn.Sequential())


@pytest.mark.parametrize("layer", LAYERS, ids=IDS)
def test_nested_factors_are_the_layer_and_their_first_channels_its_lower_ranks(layer):
    x, full = inputs(layer), full_ranks(layer)
    moment = moment_of(layer.weight.shape[1])
    whole = nested_factors(layer, moment)
    torch.testing.assert_close(whole(x), layer(x), rtol=1e-4, atol=1e-4)
    if len(full) > 1:
        return
    rank = full[0] // 2
    middle = whole[0](x)
    kept = torch.arange(full[0]) < rank
    masked = middle * (kept if isinstance(layer, nn.Linear) else kept[:, None, None])
    torch.testing.assert_close(
        whole[1](masked), factors(layer, [rank], moment)(x), rtol=1e-4, atol=1e-4
    )
