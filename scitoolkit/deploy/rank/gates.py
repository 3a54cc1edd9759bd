"""Ranks by gradient descent: a gate a layer, over factors that all its ranks share.

The differentiable selection of HALOC (Xiao et al. 2023, doi:10.1609/aaai.v37i9.26244), with
measured times. The channels between a layer's factors are masked behind its rank, so that rank r is
the first r of them and all ranks are trained at once. Each step trains the factors along one path
(all ranks least, all layers whole, or any rank in each: nested dropout, Rippel et al. 2014,
arXiv:1402.0915, which orders the channels) and the gates along a path that they draw
(Gumbel-softmax, Jang et al. 2017, arXiv:1611.01144), on other samples. What is learned is the
outputs of the surrogate itself. A change is seen together with those of all other layers, which
`Study.chosen` adds up instead; but it is drawn, and takes minutes. Gates begin at the exact choice:
from gates that draw any rank, changes are so large that no single layer shows. Of both choices the
one that changes outputs less on the samples is returned.
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
"""Of the factors, and as many of the gates."""
PRESSURE = 2.0
"""Weight of the logarithm of time over its target, beyond it."""
GATE_RATE, FACTOR_RATE = 0.05, 1e-5
"""Of Adam; for factors, of their root mean square."""
WARM, COLD = 3.0, 0.3
"""Temperatures of the gates at the first and the last step."""
FLOOR = 1e-6
"""Squared relative change below which less is no gain."""
START = 3.0
"""Logit of the option that a gate begins at; that of the others is 0."""


class Gate(nn.Module):
    """A layer of all its ranks: nested factors, and the weights of its options.

    Args:
        layer: its options.
        first: the option to begin at.
        whole: nested factors.

    Attributes:
        logits: of the options.
        weights: (option,) of the next call: one option, or several with a gradient.
    """

    def __init__(self, layer: Layer, first: Option, whole: nn.Sequential) -> None:
        super().__init__()
        self.whole = whole
        start = [START if o is first else 0.0 for o in layer.options]
        self.logits = nn.Parameter(torch.tensor(start))
        self.weights: Tensor = torch.zeros(len(layer.options))
        self.linear = isinstance(whole[0], nn.Linear)
        self.masks = [
            torch.stack([
                (torch.arange(n) < (n if o.ranks is None else o.ranks[side])).float()
                for o in layer.options
            ])
            for side, n in enumerate(layer.full)
        ]  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output with the channels of its rank."""
        x = self.whole[0](x)
        for mask, inner in zip(self.masks, list(self.whole)[1:], strict=True):
            own = self.weights @ mask
            x = inner(x * (own if self.linear else own.view(-1, *[1] * (x.ndim - 2))))
        return x

    def take(self, option: int) -> None:
        """Set one option for the next calls."""
        self.weights = nn.functional.one_hot(torch.tensor(option), len(self.logits)).float()

    def draw(self, temperature: float, generator: torch.Generator) -> None:
        """Draw an option by the logits: one forward, the gradient of all (straight through)."""
        uniform = torch.rand(len(self.logits), generator=generator).clamp(1e-9, 1 - 1e-7)
        noisy = self.logits - torch.log(-torch.log(uniform))
        soft = torch.softmax(noisy / temperature, 0)
        hard = nn.functional.one_hot(soft.argmax(), len(soft)).float()
        self.weights = hard + soft - soft.detach()


def chosen_by_gates(
    found: Study, given: Sequence[Sequence[np.ndarray]], share: float, *, steps: int = STEPS,
    seed: int = 0,
) -> dict[str, Option]:  # fmt: skip
    """Return the option of each layer: the most probable ones within a share of the seconds.

    The exact choice is returned where it changes outputs less.

    Args:
        found: options and their times.
        given: typical inputs of each function.
        share: of the seconds of the layers as they are; it is kept as by `Study.chosen`.
        steps: of the factors, and of the gates.
        seed: of paths and draws.

    Raises:
        ConfigError: a share that no ranks reach.
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
    rates = [{"params": [p], "lr": FACTOR_RATE * float(p.detach().square().mean().sqrt()) + 1e-12}
             for p in factors]  # fmt: skip
    by_factors, by_gates = torch.optim.Adam(rates), torch.optim.Adam(
        [gate.logits.requires_grad_(True) for gate in gates], lr=GATE_RATE
    )  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        _take_path(gates, step % 3, generator)
        _descend(by_factors, torch.log(score.of(_sample(score, 0, generator)) + FLOOR), factors)
        for gate in gates:
            gate.draw(WARM * (COLD / WARM) ** (step / steps), generator)
        time = sum(((torch.softmax(gate.logits, 0) * own).sum()
                    for gate, own in zip(gates, times, strict=True)), torch.zeros(()))  # fmt: skip
        loss = torch.log(score.of(_sample(score, 1, generator)) + FLOOR)
        loss = loss + PRESSURE * torch.relu(torch.log(time / target))
        _descend(by_gates, loss, [gate.logits for gate in gates])
    costs = [(-torch.log_softmax(gate.logits, 0)).tolist() for gate in gates]
    both = exact, found.chosen(share, costs)
    changes = [found.change(given, ranks_of(chosen)) for chosen in both]
    log.info("squared change of ranks chosen exactly %.3g, by gates %.3g", *changes)
    return both[changes[1] < changes[0]]


def _gated(root: nn.Module, found: Study, first: Mapping[str, Option]) -> list[Gate]:
    """Put a gate in the place of each layer."""
    names = by_public_name(root)
    layers = {names[layer.name]: layer for layer in found.layers}
    gates: dict[str, Gate] = {}

    def gate(name: str, module: nn.Module, _: Sequence[int]) -> nn.Sequential:
        layer = layers[name]
        gates[name] = Gate(layer, first[layer.name],
                           nested_factors(module, found.moments[layer.name]))  # fmt: skip
        return nn.Sequential(gates[name])

    replaced(root, {name: layer.full for name, layer in layers.items()}, gate)
    return [gates[name] for name in layers]


def _take_path(gates: Sequence[Gate], kind: int, generator: torch.Generator) -> None:
    """Set all layers whole (0), least (1), or each to any of its options (2)."""
    for gate in gates:
        sizes = [mask.sum(1) for mask in gate.masks]
        least = int(torch.stack(sizes).prod(0).argmin())
        any_one = int(torch.randint(len(gate.logits), (), generator=generator))
        gate.take((0, least, any_one)[kind])


def _sample(score: Score, half: int, generator: torch.Generator) -> int:
    """Return a sample: factors learn from the even ones, gates from the odd ones."""
    own = range(half, len(score), 2) or range(len(score))
    return own[int(torch.randint(len(own), (), generator=generator))]


def _descend(optimizer: torch.optim.Optimizer, loss: Tensor, parameters: Sequence[Tensor]) -> None:
    for parameter, gradient in zip(
        parameters, torch.autograd.grad(loss, list(parameters), allow_unused=True), strict=True
    ):
        parameter.grad = gradient
    optimizer.step()
