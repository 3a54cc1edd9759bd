"""Emulator: a network that advances the state, a diagnostic network and guards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.seeds import derive_seed
from scitoolkit.emulation.checks import check_dims, check_guards, check_mask
from scitoolkit.emulation.guards.axes import Grid
from scitoolkit.emulation.models.config import FieldModelConfig
from scitoolkit.emulation.models.padding import AnyPadding
from scitoolkit.emulation.normalized_network import (
    CONDITION_WIDTH,
    NormalizedNetwork,
    Statistics,
    channels_in,
    channels_out,
)
from scitoolkit.emulation.poles import paddings_of
from scitoolkit.emulation.variables import NOISE, Layout, Variable

if TYPE_CHECKING:
    from scitoolkit.emulation.config import EmulationConfig


class Emulator(nn.Module):
    """Map from named inputs to named outputs, all in physical units.

    Args:
        layout: all variables and the grid.
        advance: network from the inputs to the outputs without the diagnostic ones.
        diagnose: network from these outputs, and the inputs that are not outputs, to the diagnostic
            outputs. A diagnostic output that is also an input changes by the difference of the
            values of `diagnose` for the new and the old state, so that its bias cancels.
        guards: maps (new state, old state) -> new state, applied in order.
        determined: outputs that the guards compute from others and that no network returns.
    """

    def __init__(
        self,
        layout: Layout,
        advance: NormalizedNetwork,
        diagnose: NormalizedNetwork | None = None,
        guards: Sequence[nn.Module] = (),
        determined: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.layout: Layout = layout
        self.advance: NormalizedNetwork = advance
        self.diagnose: NormalizedNetwork | None = diagnose
        self.guards: nn.ModuleList = nn.ModuleList(guards)
        self.determined: tuple[str, ...] = tuple(determined)

    def forward(
        self, *inputs: Tensor, truth: dict[str, Tensor] | None = None
    ) -> tuple[Tensor, ...]:
        """Return the outputs of the layout, each (B, *dims), from its inputs.

        Args:
            inputs: (B, *dims) each, in the order of `layout.inputs`.
            truth: true outputs; if given, diagnostic outputs are computed from them instead of
                from the emulator's outputs.
        """
        outputs = self._named(self.advance, self.advance(*inputs))
        if self.diagnose is not None and not self._all_determined():
            by_name = {v.name: x for v, x in zip(self.layout.inputs, inputs, strict=True)}
            outputs = {
                **outputs,
                **self._diagnosed(by_name, {**by_name, **outputs, **(truth or {})}),
            }
        if len(self.guards):
            old = {v.name: x for v, x in zip(self.layout.inputs, inputs, strict=True)}
            for guard in self.guards:
                outputs = guard(outputs, old)
            fields = {v.name for v in self.layout.outputs if v.is_field}
            outputs = {n: self.advance.hide(x) if n in fields else x for n, x in outputs.items()}
        return tuple(outputs[v.name] for v in self.layout.outputs)

    def _all_determined(self) -> bool:
        """Return whether guards compute all diagnostic outputs, so that `diagnose` is idle."""
        assert self.diagnose is not None
        return {v.name for v in self.diagnose.layout.outputs} <= set(self.determined)

    def _diagnosed(self, old: dict[str, Tensor], new: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the diagnostic outputs.

        Args:
            old: the inputs.
            new: the inputs, updated with the new state.
        """
        part = self.diagnose
        assert part is not None
        names = [v.name for v in part.layout.inputs]
        if not any(v.name in old for v in part.layout.outputs):
            return self._named(part, part(*(new[n] for n in names)))
        # The change of an output is the difference of two diagnoses, so that errors that are the
        # same before and after a step do not add up in a rollout. One batch computes both.
        both = self._named(part, part(*(torch.cat([new[n], old[n]]) for n in names)))
        out = {}
        for name, value in both.items():
            after, before = value.chunk(2)
            out[name] = old[name] + after - before if name in old else after
        return out

    @staticmethod
    def _named(part: NormalizedNetwork, values: tuple[Tensor, ...]) -> dict[str, Tensor]:
        return {v.name: x for v, x in zip(part.layout.outputs, values, strict=True)}

    def set_statistics(self, statistics: Statistics) -> None:
        """Set the normalisation, measured on the training split."""
        for part in (self.advance, self.diagnose):
            if part is not None:
                part.set_statistics(statistics)

    @property
    def learned(self) -> list[Variable]:
        """Outputs of the networks: those that no guard determines."""
        return [v for v in self.layout.outputs if v.name not in self.determined]

    def output_scales(self) -> list[Tensor]:
        """Return the scale of each learned output: of its change if the change is learned."""
        scales: dict[str, Tensor] = {}
        for part in (self.advance, self.diagnose):
            if part is not None:
                pieces = part.out_scale.split([v.size for v in part.layout.outputs])
                scales |= self._named(part, pieces)
        return [scales[v.name] for v in self.learned]


def build(config: EmulationConfig, layout: Layout) -> Emulator:
    """Return an untrained emulator; equal seeds give equal weights.

    Raises:
        ConfigError: settings that do not fit the layout, such as an unknown dim.
    """
    check_dims(config, layout)
    check_mask(config, layout)
    grid = grid_of(config, layout)
    determined = check_guards(config, layout)
    guards = [guard.build(grid) for guard in config.guards]
    late = [*(config.diagnostic.outputs if config.diagnostic else []), *determined]
    now = tuple(v for v in layout.outputs if v.name not in late)
    advance = replace(layout, outputs=now)
    conditions = conditions_of(config, layout)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(config.seed, 0))
        first = network_of(config, advance, config.model, config.transport, conditions=conditions)
        if config.diagnostic is None:
            return Emulator(layout, first, None, guards, determined)
        # A diagnostic output follows from the state: the noise of a step is in it already.
        rest = tuple(v for v in layout.inputs if v.name not in (*layout.recurrent, NOISE))
        conditions = tuple(name for name in conditions if name != NOISE)
        diagnosed = tuple(v for v in layout.outputs if v.name in config.diagnostic.outputs)
        diagnose = replace(layout, inputs=(*now, *rest), outputs=diagnosed)
        second = network_of(config, diagnose, config.diagnostic.model, None, conditions=conditions)
        return Emulator(layout, first, second, guards, determined)


def grid_of(config: EmulationConfig, layout: Layout) -> Grid:
    """Return the grid of the fields for guards."""
    periodic = [d for d in layout.grid if config.boundary.get(d) == "circular"]
    return Grid(layout.grid, layout.coordinates, periodic, layout.weights())


def conditions_of(config: EmulationConfig, layout: Layout) -> tuple[str, ...]:
    """Return the names of the inputs that scale and shift channels of the networks.

    These are parameters and all other inputs without grid dims that no step changes.

    Raises:
        ConfigError: there are no such inputs or no others, or the model cannot be conditioned.
    """
    noise = [NOISE] if layout.noise else []
    if config.conditioning == "channels":
        return tuple(noise)
    conditions = [
        v.name
        for v in layout.inputs
        if not v.is_field and v.name not in (*layout.recurrent, *noise)
    ]
    if not conditions:
        raise ConfigError(
            "conditioning film, but every input is a field or changes in a step",
            where="conditioning",
            allowed="film with data.parameters, data.leads or a forcing without grid dims",
            fix="conditioning=channels",
        )
    if len(conditions) + len(noise) == len(layout.inputs) and not layout.grid:
        raise ConfigError(
            f"conditioning film, but {', '.join(conditions)} are the only inputs",
            where="conditioning",
            fix="conditioning=channels",
        )
    models = {"model": config.model}
    if config.diagnostic is not None:
        models["diagnostic.model"] = config.diagnostic.model
    for key, model in models.items():
        if not model.conditioned:
            raise ConfigError(
                f"{key} {model.name} does not support conditioning",
                where="conditioning",
                fix="conditioning=channels, or `conditioned = True` in the model's section",
            )
    return (*conditions, *noise)


def network_of(
    config: EmulationConfig,
    layout: Layout,
    model: FieldModelConfig,
    carried: dict[str, int] | None,
    *,
    padding: Sequence[AnyPadding] | None = None,
    local: Layout | None = None,
    conditions: Sequence[str] = (),
) -> NormalizedNetwork:
    """Return an untrained network for the variables of a layout.

    Args:
        config: the job.
        layout: inputs and outputs.
        model: configuration of the network.
        carried: {dim: cells} of the transport, None for none.
        padding: one entry per grid dim; by default from `config.boundary`.
        local: layout of the slab of this process, for fields that processes divide.
        conditions: names of inputs that scale and shift channels.
    """
    if padding is None:
        padding = paddings_of(config, layout)
    outputs = channels_out(layout, residual=config.residual, transports=carried is not None)
    channels = channels_in(layout, config.coordinates, conditions)
    if conditions:
        network = model.build(channels, outputs, padding, CONDITION_WIDTH)
    else:
        network = model.build(channels, outputs, padding)
    return NormalizedNetwork(
        local or layout,
        network,
        coordinates=config.coordinates,
        residual=config.residual,
        carried=carried,
        padding=padding,
        conditions=conditions,
    )
