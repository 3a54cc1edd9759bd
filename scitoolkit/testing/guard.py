"""Contract suite of guards, to inherit in tests.

Example:
    class TestMyGuard(GuardContract):
        @pytest.fixture
        def guard(self):
            return MyGuard(...)
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from scitoolkit.core.devices import CPU
from scitoolkit.emulation.guards.axes import Grid
from scitoolkit.emulation.guards.base import GuardConfig, guards
from scitoolkit.testing.device import check_near, device_part, require_gpu
from scitoolkit.testing.member import check_registered, check_settings

NX, NZ = 16, 12


class GuardContract:
    """Contract suite of guards on a channel: x periodic, walls in z, variables b, u, w and p."""

    @pytest.fixture
    def guard(self) -> GuardConfig:
        """Return the guard under test."""
        raise NotImplementedError

    @pytest.fixture
    def grid(self) -> Grid:
        """Return the grid, with Chebyshev-Gauss points in z."""
        return channel()

    @pytest.fixture
    def states(self, grid: Grid) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return a new and an old state of three samples that violate all invariants."""
        generator = torch.Generator().manual_seed(0)
        shape = (3, *grid.sizes.values())
        new, old = ({n: torch.randn(shape, generator=generator) for n in "buwp"} for _ in range(2))
        return new, old

    def test_registered_under_its_name(self, guard):
        """The registry returns this class, which has a summary; settings survive a round trip."""
        check_registered(guards, guard)
        check_settings(guard)

    def test_it_is_a_projection_or_a_damping(self, guard, grid, states):
        """A second application changes nothing (projection) or less than the first (damping)."""
        new, old = states
        module = guard.build(grid)
        once = module(dict(new), old)
        twice = module(dict(once), old)
        for name in once:
            first = (once[name] - new[name]).abs().max()
            again = (twice[name] - once[name]).abs().max()
            assert again <= max(0.6 * float(first), 2e-4 * float(once[name].abs().max()))

    def test_samples_do_not_depend_on_each_other(self, guard, grid, states):
        """A batch gives the same result as its samples one by one."""
        new, old = states
        module = guard.build(grid)
        batch = module(dict(new), old)
        alone = module({n: v[1:2] for n, v in new.items()}, {n: v[1:2] for n, v in old.items()})
        for name in batch:
            assert torch.allclose(batch[name][1:2], alone[name], atol=1e-4 * _size(batch[name]))

    def test_the_given_state_is_not_changed(self, guard, grid, states):
        """Neither the dictionary nor the tensors are modified."""
        new, old = states
        copies = {n: v.clone() for n, v in new.items()}
        guard.build(grid)(new, old)
        assert new.keys() == copies.keys()
        assert all(torch.equal(new[n], copies[n]) for n in copies)

    def test_gradients_are_finite(self, guard, grid, states):
        """Gradients through the guard are finite."""
        new, old = states
        leaves = {n: v.requires_grad_() for n, v in new.items()}
        out = guard.build(grid)(dict(leaves), old)
        torch.stack([v.square().mean() for v in out.values()]).sum().backward()
        assert all(v.grad is None or bool(v.grad.isfinite().all()) for v in leaves.values())

    @device_part
    def test_a_gpu_gives_the_same_numbers(self, guard, grid, states):
        """States and gradients are those of the CPU, and the guard can be moved back."""
        new, old = states
        module = guard.build(grid)

        def call(device):
            moved = {name: v.to(device) for name, v in new.items()}
            out = module(moved, {name: v.to(device) for name, v in old.items()})
            return [out[name] for name in sorted(out)]

        expected = call(CPU)
        device = require_gpu()
        module.to(device)
        computed = call(device)
        module.to(CPU)
        names = sorted(new)
        check_near(
            dict(zip(names, computed, strict=True)), dict(zip(names, expected, strict=True)), device
        )

    def test_nothing_is_saved_with_the_weights(self, guard, grid):
        """Its matrices follow from the grid and are not part of the state."""
        assert not guard.build(grid).state_dict()

    def test_unknown_dims_are_refused_by_name(self, guard):
        """A grid with other dims is refused, unless the guard needs no dims."""
        from scitoolkit.core.errors import ConfigError

        other = Grid({"r": 8}, {"r": list(range(8))}, ["r"], np.ones(8))
        if not {"over", "dims", "dim", "velocity"} & guard.model_fields_set:
            return
        with pytest.raises(ConfigError, match=r"dim|velocity"):
            guard.build(other)


def channel(nx: int = NX, nz: int = NZ) -> Grid:
    """Return a grid that is periodic in x, with walls at z = -1/2 and 1/2."""
    z = -0.5 * np.cos(np.pi * (np.arange(nz) + 0.5) / nz)
    widths = np.gradient(z)
    weights = np.broadcast_to(widths / widths.mean(), (nx, nz))
    return Grid(
        {"x": nx, "z": nz},
        {"x": (4 * np.arange(nx) / nx).tolist(), "z": z.tolist()},
        ["x"],
        weights,
    )


def _size(value: Tensor) -> float:
    return float(value.abs().max())
