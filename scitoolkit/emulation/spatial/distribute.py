"""Emulators on slabs: every process has a slab of all fields and a copy of the weights."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.emulator import Emulator, network_of
from scitoolkit.emulation.models.padding import AnyPadding
from scitoolkit.emulation.normalized_network import NormalizedNetwork
from scitoolkit.emulation.poles import paddings_of
from scitoolkit.emulation.spatial.slabs import Slabs
from scitoolkit.emulation.transfer import on_cells
from scitoolkit.emulation.variables import Layout
from scitoolkit.training.ranks.communicator import Communicator

_LEAST = 4
"""Least number of cells of a slab on the coarsest level; with fewer, halos exceed the slab."""


def divided_dim(config: EmulationConfig, layout: Layout, processes: int) -> str:
    """Return the dim to divide: `spatial_dim`, or the longest dim that can be divided.

    Raises:
        ConfigError: a setting that does not support slabs, or no such dim.
    """
    if layout.mask:
        raise ConfigError(
            "training.strategy spatial does not divide masks",
            where="data.mask",
            fix="training.strategy=ddp",
        )
    if config.rollout.noise:
        raise ConfigError(
            "processes would draw the same noise in every slab",
            where="rollout.noise",
            fix="rollout.noise=0, or training.strategy=ddp",
        )
    reasons = {dim: _forbidden(dim, config, layout, processes) for dim in layout.grid}
    wanted = config.spatial_dim
    if wanted is not None and wanted not in reasons:
        raise ConfigError(
            f"{wanted!r} is not a dim of the grid",
            where="spatial_dim",
            allowed=", ".join(reasons),
            fix=nearest_name(wanted, list(reasons)) or "",
        )
    open_dims = [d for d in reasons if not reasons[d]]
    if wanted is None and open_dims:
        return max(open_dims, key=lambda d: layout.grid[d])
    if wanted is None or reasons[wanted]:
        told = {wanted: reasons[wanted]} if wanted is not None else reasons
        raise ConfigError(
            "; ".join(f"{dim}: {reason}" for dim, reason in told.items()),
            where="training.strategy spatial",
            allowed=", ".join(open_dims) or "none of the dims",
            fix=f"spatial_dim={open_dims[0]}" if open_dims else "fewer processes, or strategy=ddp",
        )
    return wanted


def _forbidden(dim: str, config: EmulationConfig, layout: Layout, processes: int) -> str:
    """Return the reason why a dim cannot be divided; "" if it can."""
    models = [config.model, *([config.diagnostic.model] if config.diagnostic else [])]
    whole, size = max(m.whole_cells() for m in models), layout.grid[dim]
    if dim in config.symmetries.shift or dim in config.symmetries.mirror:
        return "symmetries move cells along it from process to process"
    if size % (processes * whole):
        return f"{size} cells are not a multiple of {processes} processes x {whole}"
    # A halo of one cell on the coarsest level is `whole` cells here.
    least = _LEAST * whole if whole > 1 else _LEAST
    if size // processes < least:
        return f"slabs of {size // processes} cells, fewer than {least}"
    if "pole" in config.boundary.values() and config.boundary.get(dim) in ("pole", "circular"):
        return "cells beyond a pole are half a turn away"
    reach = (config.transport or {}).get(dim, 0)
    if reach > size // processes:
        return f"transport reaches {reach} cells, but a slab has {size // processes}"
    return ""


class Gathered(nn.Module):
    """Guard of the whole grid, applied to the gathered slabs.

    Args:
        guard: built for the whole grid.
        slabs: the divided dim.
        dim: its index in (B, *grid).
        fields: names of the fields.
    """

    def __init__(self, guard: nn.Module, slabs: Slabs, dim: int, fields: set[str]) -> None:
        super().__init__()
        self.guard = guard
        self.slabs, self.dim, self.fields = slabs, dim, fields

    def forward(self, new: Mapping[str, Tensor], old: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the new state, this process's slab of every field."""
        guarded: dict[str, Tensor] = self.guard(self._joined(new), self._joined(old))
        return {
            n: self.slabs.own(x, self.dim) if n in self.fields else x for n, x in guarded.items()
        }

    def _joined(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            n: self.slabs.whole(x, self.dim) if n in self.fields else x for n, x in state.items()
        }


def slab_layout(layout: Layout, dim: str, slabs: Slabs) -> Layout:
    """Return the layout of this process's slab."""
    cells = layout.grid[dim] // slabs.size
    coordinates = {
        d: c[slabs.rank * cells : (slabs.rank + 1) * cells] if d == dim else c
        for d, c in layout.coordinates.items()
    }
    return on_cells(layout, {**layout.grid, dim: cells}, coordinates)


def distribute(
    emulator: Emulator, config: EmulationConfig, ranks: Communicator, dim: str
) -> Emulator:
    """Return the emulator of this process's slab.

    Args:
        emulator: the emulator of the whole grid, equal on all processes.
        config: its job.
        ranks: the processes.
        dim: the divided dim.

    Returns:
        An emulator of slabs with the weights and statistics of the whole one. The mean of its loss
        over processes is the loss on the whole grid, and likewise for gradients.
    """
    whole = emulator.layout
    slabs = Slabs(ranks, config.boundary.get(dim, "zeros"))
    layout = slab_layout(whole, dim, slabs)
    padding: list[AnyPadding] = [
        slabs if d == dim else own
        for d, own in zip(whole.grid, paddings_of(config, whole), strict=True)
    ]
    place = list(whole.grid).index(dim)

    def part(of: NormalizedNetwork, diagnoses: bool) -> NormalizedNetwork:
        model = config.model
        if diagnoses:
            assert config.diagnostic is not None
            model = config.diagnostic.model
        local = slab_layout(of.layout, dim, slabs)
        carried = None if diagnoses else config.transport
        made = network_of(
            config,
            of.layout,
            model,
            carried,
            padding=padding,
            local=local,
            conditions=of.conditions,
        )
        made.to(of.position.dtype)
        position = slabs.own(of.position, 1 + place).clone()
        del made.position
        # Not a buffer, as it differs between processes and must not be broadcast.
        made.position = position
        made.load_state_dict(of.state_dict())
        return made

    fields = {v.name for v in (*whole.inputs, *whole.outputs) if v.is_field}
    # A guard that treats each cell by itself needs no other slab; integrals and projections do.
    guards = [
        guard if settings.cellwise else Gathered(guard, slabs, 1 + place, fields)
        for settings, guard in zip(config.guards, emulator.guards, strict=True)
    ]
    diagnose = None if emulator.diagnose is None else part(emulator.diagnose, True)
    return Emulator(layout, part(emulator.advance, False), diagnose, guards, emulator.determined)
