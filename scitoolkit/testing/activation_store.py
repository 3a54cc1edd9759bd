"""Contract suite of activation stores, to inherit in tests.

Example:
    class TestMyStore(ActivationStoreContract):
        @pytest.fixture
        def config(self):
            return MemoryConfig(activations="my_store")
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.testing.device import check_near, device_part, require_gpu
from scitoolkit.training.memory.config import MemoryConfig, activation_stores
from scitoolkit.training.memory.live_bytes import peak_live_bytes
from scitoolkit.training.memory.store import ActivationMemory
from scitoolkit.training.strategies.base import SingleStrategy

CPU = torch.device("cpu")
ROUNDS = 8  # measured steps of a lossy store


def waves(*shape: int) -> Tensor:
    """Return a smooth field of a shape (N, C, H, W)."""
    y, x = torch.meshgrid(*(torch.linspace(0, 6, n) for n in shape[-2:]), indexing="ij")
    phase = torch.linspace(0, 5, shape[0] * shape[1]).reshape(*shape[:2], 1, 1)
    return (x + phase).sin() * (2 * y + phase).cos()


class Convolutions(nn.Sequential):
    """Blocks with running statistics, activations in place, dropout and pooling."""

    def __init__(self) -> None:
        blocks = [
            nn.Sequential(
                nn.Conv2d(c, 8, 3, padding=1),
                nn.BatchNorm2d(8),
                nn.ReLU(inplace=True),
                nn.Dropout(0.1),
            )
            for c in (2, 8, 8, 8)
        ]
        super().__init__(*blocks, nn.MaxPool2d(2), nn.Conv2d(8, 4, 1))


class Attention(nn.Module):
    """Integers, masks, views, complex numbers; one block is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(10, 16), nn.Linear(16, 48), nn.Linear(16, 2)
        block = nn.Sequential(nn.Linear(16, 16), nn.GELU())
        self.blocks: nn.ModuleList = nn.ModuleList(
            [block, nn.Sequential(nn.Linear(16, 16), nn.Tanh()), block]
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return a scalar of (B, L)."""
        q, k, v = self.qkv(self.embed(x)).chunk(3, -1)
        scores = (q @ k.transpose(1, 2)).masked_fill((x == 0)[:, None], -10.0)
        hidden = nn.functional.dropout(scores.softmax(-1), 0.2, self.training) @ v
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return (
            self.out(torch.fft.rfft(hidden, dim=1).abs()).sum() + hidden[40:].square().mean().sqrt()
        )


class Forces(nn.Module):
    """Derivatives of an energy, which are differentiated again."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: nn.Sequential = nn.Sequential(
            nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 4) of (B, 4)."""
        x = x.detach().requires_grad_()
        return torch.autograd.grad(self.layers(x).sum(), x, create_graph=True)[0]


NETWORKS: dict[str, tuple[type[nn.Module], Callable[[], Tensor]]] = {
    "convolutions": (Convolutions, lambda: waves(4, 2, 32, 32)),
    "attention": (Attention, lambda: torch.arange(64 * 32).reshape(64, 32) ** 2 % 10),
    "forces": (Forces, lambda: waves(1, 1, 512, 4)[0, 0]),
}


class Steps:
    """Steps of a network with an activation store, or without one, as the trainer runs them."""

    def __init__(
        self,
        network: str,
        config: MemoryConfig | None,
        *,
        training: bool = True,
        device: torch.device = CPU,
    ) -> None:
        torch.manual_seed(0)
        build, data = NETWORKS[network]
        self.model: nn.Module = build().train(training).to(device)
        self.batch: dict[str, Tensor] = {"x": data().to(device)}
        named = list(self.model.named_parameters())
        self.memory: ActivationMemory = ActivationMemory(
            self.model, config, SingleStrategy(device), named
        )
        self.loss, self.count = torch.empty(()), 0

    def backward(self) -> None:
        """Run a forward and a backward pass."""
        self.model.zero_grad()
        torch.manual_seed(3)
        with self.memory.saving(self.batch):
            loss = self.model(self.batch["x"]).square().mean()
        loss.backward()
        self.loss = loss.detach()

    def gradients(self) -> dict[str, Tensor]:
        """Return the gradients of a step."""
        self.count += 1
        self.memory.prepare(self.backward)
        self.backward()
        return {n: p.grad for n, p in self.model.named_parameters() if p.grad is not None}

    def adapted(self) -> Steps:
        """Run the measured steps of a lossy store."""
        for _ in range(ROUNDS if self.memory.measures(0) else 0):
            self.gradients()  # raises errors, of which `coarser_gradients` returns None
            coarser = self.memory.coarser_gradients(self.backward)
            self.gradients()
            self.memory.adapt(self.memory.compare(coarser))
        return self


def error(gradients: dict[str, Tensor], exact: dict[str, Tensor]) -> float:
    """Return the relative error of all gradients together."""
    assert gradients.keys() == exact.keys()
    square = sum(float((gradients[n] - g).double().square().sum()) for n, g in exact.items())
    return math.sqrt(square / sum(float(g.double().square().sum()) for g in exact.values()))


class ActivationStoreContract:
    """Contract suite of activation stores; override the fixture `config`."""

    @staticmethod
    def skeleton(name: str, cls: str) -> tuple[str, str]:
        """Return module and test of a new store, for `scitoolkit new`."""
        return _MEMBER.format(name=name, cls=cls), _TEST.format(name=name, cls=cls)

    @pytest.fixture
    def config(self) -> MemoryConfig:
        """Return the section `training.memory` that selects the store under test."""
        raise NotImplementedError("override the fixture `config`")

    def test_it_is_listed(self, config: MemoryConfig) -> None:
        """The store is registered with a summary; `exact` is a property of the class."""
        member = activation_stores.member(config.activations)
        assert member.summary
        assert not member.problem
        assert activation_stores.get(config.activations).exact in (True, False)

    def test_a_key_that_an_exact_store_cannot_read_is_refused(self, config: MemoryConfig) -> None:
        """`gradient_error` is refused by an exact store, and read by another."""
        store = activation_stores.get(config.activations)
        changed = config.model_copy(update={"gradient_error": 0.5})
        try:
            store(Convolutions(), changed)
        except ConfigError:
            assert store.exact
        else:
            assert not store.exact

    @pytest.mark.parametrize("training", [True, False])
    @pytest.mark.parametrize("network", NETWORKS)
    def test_gradients(self, config: MemoryConfig, network: str, training: bool) -> None:
        """Gradients are exact, or within three times the target after measured steps.

        Buffers, random numbers and losses without derivatives are bit-identical in any case.
        `finer` changes the error of a lossy store; otherwise the trainer measures none.
        """
        plain = Steps(network, None, training=training)
        steps = Steps(network, config, training=training).adapted()
        for _ in range(steps.count + 1):  # each of which changes the running statistics
            exact = plain.gradients()
        random, gradients = torch.rand(3), steps.gradients()
        assert torch.equal(torch.rand(3), random)
        if network != "forces" or not steps.memory.measures(0):
            assert torch.equal(steps.loss, plain.loss)
        for (name, buffer), expected in zip(
            steps.model.named_buffers(), plain.model.buffers(), strict=True
        ):
            assert torch.equal(buffer, expected), name
        off = error(gradients, exact)
        if not steps.memory.measures(0):
            assert all(torch.equal(gradients[name], gradient) for name, gradient in exact.items())
        elif off > 0:
            assert off <= 3 * config.gradient_error
            coarser = steps.memory.coarser_gradients(steps.backward)
            assert coarser is not None
            named = dict(zip(gradients, (g for g in coarser if g is not None), strict=True))
            assert error(named, exact) > 1.2 * off

    @device_part
    @pytest.mark.parametrize("network", NETWORKS)
    def test_gradients_on_a_gpu(self, config: MemoryConfig, network: str) -> None:
        """They are those of a step without a store, exactly or within three times the target."""
        device = require_gpu()
        if getattr(config, "folder", None) is not None:  # of activations of the CPU
            config = config.model_copy(update={"folder": None})
        plain = Steps(network, None, training=False, device=device).gradients()
        steps = Steps(network, config, training=False, device=device).adapted()
        gradients = steps.gradients()
        assert all(gradient.device.type == "cuda" for gradient in gradients.values())
        if steps.memory.measures(0):
            assert error(gradients, plain) <= 3 * config.gradient_error
        else:
            check_near(gradients, {name: g.cpu() for name, g in plain.items()}, device)

    @pytest.mark.parametrize("network", NETWORKS)
    def test_nothing_is_kept_after_a_step(self, config: MemoryConfig, network: str) -> None:
        """Modules, their hooks and the state are those of a model without a store.

        No tensors are held, also after an error in the forward pass.
        """
        steps, plain = Steps(network, config), Steps(network, None)
        steps.gradients()
        loss = float(steps.loss)
        steps.model.zero_grad()
        before = _live_bytes()
        steps.backward()
        steps.model.zero_grad()
        with contextlib.suppress(FloatingPointError), steps.memory.saving(steps.batch):
            steps.model(steps.batch["x"])
            raise FloatingPointError
        assert _live_bytes() <= before
        assert _layout(steps.model) == _layout(plain.model)
        steps.backward()
        assert float(steps.loss) == loss

    def test_a_step_needs_less_memory(self, config: MemoryConfig) -> None:
        """The largest number of live bytes in a step decreases."""
        plain, steps = (Steps("convolutions", c) for c in (None, config))
        for steps_to_warm in (plain, steps.adapted()):
            steps_to_warm.gradients()
        peak = peak_live_bytes(plain.backward, CPU)
        assert peak_live_bytes(steps.backward, CPU) < 0.95 * peak

    @pytest.mark.parametrize("network", NETWORKS)
    def test_a_resumed_run_continues_with_its_state(
        self, config: MemoryConfig, network: str
    ) -> None:
        """A store that is restored from JSON gives the same gradients, and is not prepared."""
        first = Steps(network, config).adapted()
        exact = first.gradients()
        second = Steps(network, config)
        second.memory.load_state_dict(json.loads(json.dumps(first.memory.state_dict())))
        gradients = second.gradients()
        assert second.memory.state_dict() == first.memory.state_dict()
        assert all(torch.equal(gradients[name], gradient) for name, gradient in exact.items())

    @pytest.mark.parametrize("count", [8, 2048])
    def test_a_change_in_place_is_found(self, config: MemoryConfig, count: int) -> None:
        """A saved tensor that is modified before the backward pass raises, or was copied."""
        steps = Steps("forces", config)
        steps.gradients()
        layers: Any = steps.model.layers
        x = torch.linspace(-1, 1, 4 * count).reshape(count, 4)

        def gradient(change: float) -> Tensor:
            steps.model.zero_grad()
            with steps.memory.saving({"x": x}):
                out = layers[:2](x).exp()
            if change:
                out.add_(change)
            out.sum().backward()
            return layers[0].weight.grad.clone()

        expected = gradient(0.0)
        try:
            changed = gradient(1.0)
        except (NumericalError, RuntimeError):
            return
        assert error({"": changed}, {"": expected}) < 0.3


def _layout(model: nn.Module) -> dict[str, Any]:
    """Return the attributes, number of hooks and entries of the state of each module."""
    attributes: dict[str, Any] = {
        name: (sorted(vars(m)), [len(v) for k, v in sorted(vars(m).items()) if "_hooks" in k])
        for name, m in model.named_modules()
    }
    return {**attributes, "state": list(model.state_dict())}


def _live_bytes() -> int:
    gc.collect()
    tensors = [x for x in gc.get_objects() if type(x) in (Tensor, nn.Parameter)]
    return sum(t.numel() * t.element_size() for t in tensors)


_MEMBER = '''\
"""The activation store `{name}`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from scitoolkit.training.memory.config import MemoryConfig, refuse_unread
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks


class {cls}:
    """One line for `scitoolkit ls activation store`: what {name} does."""

    exact: ClassVar[bool] = True

    def __init__(self, model: nn.Module, config: MemoryConfig) -> None:
        """Create the store of a model."""
        refuse_unread(config, ())

    def prepare(self, gradients: Callable[[], Mapping[str, Tensor | None]]) -> None:
        """Prepare the store before the first step of a new or resumed run."""

    def saving(
        self, batch: Mapping[str, Tensor], finer: float
    ) -> contextlib.AbstractContextManager[Any]:
        """Return the context of a forward pass; `finer` divides the error bounds."""
        return saved_tensors_hooks(self._pack, self._unpack)

    def adapt(self, errors: Mapping[str, tuple[float, float]]) -> None:
        """Adapt to (squared error, squared norm) of the gradient by parameter."""

    def state_dict(self) -> dict[str, Any]:
        """Return the adaptive state as JSON types."""
        return {{}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""

    def _pack(self, tensor: Tensor) -> Any:
        raise NotImplementedError("write this method")

    def _unpack(self, packed: Any) -> Tensor:
        raise NotImplementedError("write this method")
'''
_TEST = """\
from __future__ import annotations

import pytest
from scitoolkit.testing import ActivationStoreContract
from scitoolkit.training.memory.config import MemoryConfig


class Test{cls}(ActivationStoreContract):
    @pytest.fixture
    def config(self):
        return MemoryConfig(activations="{name}")
"""
