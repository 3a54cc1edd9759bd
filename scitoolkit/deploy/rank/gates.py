"""Rank selection by gradient descent: one gate per layer over nested factors.

The differentiable selection of HALOC (Xiao et al. 2023, doi:10.1609/aaai.v37i9.26244), with
measured times. The channels between the factors of a layer are masked beyond its rank, so that rank
r uses the first r channels and all ranks are trained together. Each step trains the factors along
one path (all smallest ranks, all full layers, or random ranks: nested dropout, Rippel et al. 2014,
arXiv:1402.0915, which orders the channels) and the gates along a path sampled from them
(Gumbel-softmax, Jang et al. 2017, arXiv:1611.01144), on different samples. The targets are the
outputs of the surrogate. Unlike `Study.chosen`, which adds the changes by single layers, this
measures the joint change of all layers, but it is stochastic and takes minutes. Gates are
initialised at the exact choice, as random ranks change outputs too much to show the effect of a
layer. Of both choices the one with the smaller change of outputs is returned.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.log import get_logger
from scitoolkit.deploy.rank.joined import by_public_name, joined
from scitoolkit.deploy.rank.score import Score
from scitoolkit.deploy.rank.study import SEEN, Layer, Option, Study, ranks_of
from scitoolkit.ops.low_rank import nested_factors, replaced

log = get_logger(__name__)
STEPS = 240
"""Steps of the factors, and as many of the gates."""
PRESSURE = 2.0
"""Weight of the logarithm of the time over its target, if it is exceeded."""
GATE_RATE, FACTOR_RATE = 0.05, 1e-5
"""Learning rates of Adam; for factors, relative to their root mean square."""
WARM, COLD = 3.0, 0.3
"""Temperatures of the gates at the first and the last step."""
FLOOR = 1e-6
"""Squared relative change below which a further decrease does not count."""
START = 3.0
"""Initial logit of the option of the exact choice; that of the others is 0."""


class Gate(nn.Module):
    """Layer with selectable rank: nested factors, and logits of its options.

    Args:
        layer: its options.
        first: the initial option.
        whole: nested factors of full rank.

    Attributes:
        logits: of the options.
        weights: (option,) weights for the next call, one-hot in value.
    """

    def __init__(self, layer: Layer, first: Option, whole: nn.Sequential) -> None:
        super().__init__()
        self.whole = whole
        start = [START if o is first else 0.0 for o in layer.options]
        self.logits = nn.Parameter(torch.tensor(start))
        self.weights: Tensor = torch.zeros(len(layer.options))
        self.linear = isinstance(whole[0], nn.Linear)
        self.masks = [
            torch.stack(
                [
                    (torch.arange(n) < (n if o.ranks is None else o.ranks[side])).float()
                    for o in layer.options
                ]
            )
            for side, n in enumerate(layer.full)
        ]

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer at the selected rank."""
        x = self.whole[0](x)
        for mask, inner in zip(self.masks, list(self.whole)[1:], strict=True):
            own = self.weights @ mask
            x = inner(x * (own if self.linear else own.view(-1, *[1] * (x.ndim - 2))))
        return x

    def take(self, option: int) -> None:
        """Select an option for the next calls."""
        self.weights = nn.functional.one_hot(torch.tensor(option), len(self.logits)).float()

    def draw(self, temperature: float, generator: torch.Generator) -> None:
        """Sample an option by the logits, with straight-through gradients."""
        uniform = torch.rand(len(self.logits), generator=generator).clamp(1e-9, 1 - 1e-7)
        noisy = self.logits - torch.log(-torch.log(uniform))
        soft = torch.softmax(noisy / temperature, 0)
        hard = nn.functional.one_hot(soft.argmax(), len(soft)).float()
        self.weights = hard + soft - soft.detach()


def chosen_by_gates(
    found: Study,
    given: Sequence[Sequence[np.ndarray]],
    share: float,
    *,
    steps: int = STEPS,
    seed: int = 0,
) -> dict[str, Option]:
    """Return {layer: option}: the most probable options within a share of the time.

    Returns the exact choice if it changes outputs less.

    Args:
        found: options and their times.
        given: typical inputs of each function.
        share: of the time of the unchanged layers.
        steps: of the factors, and of the gates.
        seed: of paths and samples.

    Raises:
        ConfigError: a share below that of the smallest ranks.
    """
    exact = found.chosen(share)
    root = joined(copy.deepcopy([f.module for f in found.functions]))
    score = Score(root, found.functions, given, SEEN)
    gates = _gated(root, found, exact)
    times = [torch.tensor([o.seconds for o in layer.options]) for layer in found.layers]
    target = share * found.seconds()
    factors = [p for gate in gates for p in gate.whole.parameters()]
    root.requires_grad_(False)
    for parameter in factors:
        parameter.requires_grad_(True)
    rates = [
        {"params": [p], "lr": FACTOR_RATE * float(p.detach().square().mean().sqrt()) + 1e-12}
        for p in factors
    ]
    by_factors, by_gates = (
        torch.optim.Adam(rates),
        torch.optim.Adam([gate.logits.requires_grad_(True) for gate in gates], lr=GATE_RATE),
    )
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        _take_path(gates, step % 3, generator)
        _descend(by_factors, torch.log(score.of(_sample(score, 0, generator)) + FLOOR), factors)
        for gate in gates:
            gate.draw(WARM * (COLD / WARM) ** (step / steps), generator)
        time = sum(
            (
                (torch.softmax(gate.logits, 0) * own).sum()
                for gate, own in zip(gates, times, strict=True)
            ),
            torch.zeros(()),
        )
        loss = torch.log(score.of(_sample(score, 1, generator)) + FLOOR)
        loss = loss + PRESSURE * torch.relu(torch.log(time / target))
        _descend(by_gates, loss, [gate.logits for gate in gates])
    costs = [(-torch.log_softmax(gate.logits, 0)).tolist() for gate in gates]
    both = exact, found.chosen(share, costs)
    changes = [found.change(given, ranks_of(chosen)) for chosen in both]
    log.info("squared change of ranks chosen exactly %.3g, by gates %.3g", *changes)
    return both[changes[1] < changes[0]]


def _gated(root: nn.Module, found: Study, first: Mapping[str, Option]) -> list[Gate]:
    """Replace each layer by a gate."""
    names = by_public_name(root)
    layers = {names[layer.name]: layer for layer in found.layers}
    gates: dict[str, Gate] = {}

    def gate(name: str, module: nn.Module, _: Sequence[int]) -> nn.Sequential:
        layer = layers[name]
        gates[name] = Gate(
            layer, first[layer.name], nested_factors(module, found.moments[layer.name])
        )
        return nn.Sequential(gates[name])

    replaced(root, {name: layer.full for name, layer in layers.items()}, gate)
    return [gates[name] for name in layers]


def _take_path(gates: Sequence[Gate], kind: int, generator: torch.Generator) -> None:
    """Select for all layers the full layer (0), the smallest rank (1), or a random option (2)."""
    for gate in gates:
        sizes = [mask.sum(1) for mask in gate.masks]
        least = int(torch.stack(sizes).prod(0).argmin())
        any_one = int(torch.randint(len(gate.logits), (), generator=generator))
        gate.take((0, least, any_one)[kind])


def _sample(score: Score, half: int, generator: torch.Generator) -> int:
    """Draw a sample: even ones train the factors, odd ones the gates."""
    own = range(half, len(score), 2) or range(len(score))
    return own[int(torch.randint(len(own), (), generator=generator))]


def _descend(optimizer: torch.optim.Optimizer, loss: Tensor, parameters: Sequence[Tensor]) -> None:
    for parameter, gradient in zip(
        parameters, torch.autograd.grad(loss, list(parameters), allow_unused=True), strict=True
    ):
        parameter.grad = gradient
    optimizer.step()
