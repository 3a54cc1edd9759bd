"""Network between variables in physical units, with normalisation inside the module.

The module also contains coordinates, transport and the residual form, so that a saved or exported
emulator is complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.emulation.models.padding import AnyPadding as Padding
from scitoolkit.emulation.models.padding import SharedDim
from scitoolkit.emulation.models.transport import transport
from scitoolkit.emulation.variables import STEP, Layout, cell_widths

VECTOR_CHANNELS = 32
"""Largest number of channels of vector inputs; longer vectors are projected to this number."""

CONDITION_WIDTH = 64
"""Size of the condition of `Film` layers."""

MEASURED = ("mean", "scale", "out_mean", "out_scale")
"""Buffers of the normalisation; all others follow from the grid."""

POOL_CHANNELS = 64
"""Channels whose mean and root mean square over the grid give the vector outputs."""


@dataclass(frozen=True)
class Statistics:
    """Statistics for normalisation by variable: one number for a field, one per value of a vector.

    Attributes:
        values: {name: (mean, standard deviation)}.
        changes: {name: root mean square change from input to output}, for the state; 0 for what
            never changes, and for other outputs that have one value.
    """

    values: dict[str, tuple[Tensor, Tensor]]
    changes: dict[str, Tensor]


@runtime_checkable
class Parted(Protocol):
    """A network whose outputs follow from features that are smaller than its inputs."""

    def encoded(self, x: Tensor, condition: Tensor | None = None) -> tuple[Tensor, Sequence[int]]:
        """Return features and the sizes of the space dims from (B, inputs, *space)."""

    def decoded(self, h: Tensor, space: Sequence[int]) -> Tensor:
        """Return (B, outputs, *space) from what `encoded` returned."""


class NormalizedNetwork(nn.Module):
    """Network from the inputs to the outputs of a layout, normalised inside.

    Args:
        layout: variables and grid.
        network: of `channels_in(layout)` input and `channels_out(layout)` output channels, and with
            a condition of CONDITION_WIDTH values if there are `conditions`.
        coordinates: grid dims whose position is an input of the network.
        residual: whether the change of an output that is also an input is learned.
        carried: {dim: cells} that a field may move by in a step, for outputs that are also inputs;
            the network then returns displacements too. None for no transport.
        padding: one entry per grid dim, for the transport.
        conditions: names of vector inputs that scale and shift channels of the network (`Film`);
            other vector inputs are channels that are constant in space.

    Buffers `mean`, `scale` (one value per input channel) and `out_mean`, `out_scale` (one per
    output channel) are set by `set_statistics`.
    """

    embed: nn.Linear | nn.Identity

    mean: Tensor
    scale: Tensor
    out_mean: Tensor
    out_scale: Tensor
    position: Tensor
    valid: Tensor

    def __init__(
        self,
        layout: Layout,
        network: nn.Module,
        *,
        coordinates: Sequence[str] = (),
        residual: bool = True,
        carried: Mapping[str, int] | None = None,
        padding: Sequence[Padding] = (),
        conditions: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.layout: Layout = layout
        self.padding: list[Padding] = list(padding)
        self.network = network
        self.space: int = len(layout.grid)
        self.fields_in: list[int] = [i for i, v in enumerate(layout.inputs) if v.is_field]
        self.conditions: tuple[str, ...] = tuple(conditions)
        names = [v.name for v in layout.inputs]
        self.conditions_in: list[int] = [names.index(name) for name in conditions]
        self.vectors_in: list[int] = [
            i for i, v in enumerate(layout.inputs) if not v.is_field and v.name not in conditions
        ]
        self.fields_out: list[int] = [i for i, v in enumerate(layout.outputs) if v.is_field]
        self.vectors_out: list[int] = [i for i, v in enumerate(layout.outputs) if not v.is_field]
        self.source: list[int] = [
            names.index(v.name) if residual and v.name in names else -1 for v in layout.outputs
        ]
        # A change is proportional to a short step: the network learns its rate.
        self.step_in: int = names.index(STEP) if residual and STEP in names else -1
        size_in = sum(v.size for v in layout.inputs)
        size_out = sum(v.size for v in layout.outputs)
        for name, size in (("mean", size_in), ("out_mean", size_out)):
            self.register_buffer(name, torch.zeros(size))
        for name, size in (("scale", size_in), ("out_scale", size_out)):
            self.register_buffer(name, torch.ones(size))
        valid = layout.valid
        self.masked: bool = valid is not None
        cells = torch.empty(0) if valid is None else torch.from_numpy(valid)
        # `valid` and `position` follow from the layout, which is saved with the weights.
        self.register_buffer("valid", cells, persistent=False)
        places = position_channels(layout, coordinates)
        self.register_buffer("position", places, persistent=False)
        # Fields with values only where the mask of the step is 1, and the place of that mask.
        self.mask_in: int = names.index(layout.mask_of_step) if layout.mask_of_step else -1
        self.partly: list[int] = [
            i for i in self.fields_in if self.mask_in >= 0 and names[i] in layout.recurrent
        ]
        self.reach: list[int] = [(carried or {}).get(dim, 0) for dim in layout.grid]
        self.transports: bool = carried is not None
        length = sum(layout.inputs[i].size for i in self.vectors_in)
        self.embed = (
            nn.Linear(length, VECTOR_CHANNELS) if length > VECTOR_CHANNELS else nn.Identity()
        )
        values = sum(layout.inputs[i].size for i in self.conditions_in)
        self.condition: nn.Module | None = condition_network(values) if values else None
        vector = sum(layout.outputs[i].size for i in self.vectors_out)
        self.pool: nn.Linear | None = (
            nn.Linear(2 * POOL_CHANNELS, vector) if vector and self.space else None
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        state_dict.pop(prefix + "position", None)  # files of 0.2 have it
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def set_statistics(self, statistics: Statistics) -> None:
        """Set the normalisation: values of the inputs, values or changes of the outputs."""
        inputs = [statistics.values[v.stored_as] for v in self.layout.inputs]
        outputs = []
        for variable, source in zip(self.layout.outputs, self.source, strict=True):
            mean, scale = statistics.values[variable.name]
            # No mean for a change: a steady state must be a fixed point.
            mean = mean if source < 0 else torch.zeros_like(mean)
            outputs.append((mean, statistics.changes.get(variable.name, scale)))
        with torch.no_grad():
            self.mean.copy_(torch.cat([mean for mean, _ in inputs]))
            self.scale.copy_(torch.cat([scale for _, scale in inputs]))
            self.out_mean.copy_(torch.cat([mean for mean, _ in outputs]))
            self.out_scale.copy_(torch.cat([scale for _, scale in outputs]))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs (B, *dims) of the layout in physical units from its inputs."""
        inputs = self._with_means(inputs)
        condition = None
        if self.condition is not None:
            condition = self.condition(self._normalized_vectors(inputs, self.conditions_in))
        return self._outputs(inputs, self._channels_out(inputs, condition))

    def _channels_out(self, inputs: Sequence[Tensor], condition: Tensor | None) -> Tensor:
        """Return what the network makes of the inputs, (B, C, *grid)."""
        if torch.is_grad_enabled() or not isinstance(self.network, Parted):
            rest = () if condition is None else (condition,)
            return self.network(self._channels_in(inputs), *rest)
        # No name, nor the tuple of a call of the module, holds the channels in: they are freed
        # before the channels out exist.
        return self.network.decoded(*self.network.encoded(self._channels_in(inputs), condition))

    def _with_means(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the inputs with the mean of a field in cells outside of the step's mask."""
        out = list(inputs)
        for i in self.partly:
            mean = self._select(self.mean, [i])
            out[i] = torch.where(inputs[self.mask_in] > 0.5, inputs[i], mean)
        return tuple(out)

    def hide(self, fields: Tensor) -> Tensor:
        """Set the invalid cells of fields, (..., *grid), to 0."""
        return torch.where(self.valid, fields, 0.0) if self.masked else fields

    def _channels_in(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return (B, C, *grid): fields, then vectors constant in space, then positions."""
        batch = inputs[0].shape[0]
        shape = (-1, -1, *([1] * self.space))
        parts: list[Tensor] = []
        if self.fields_in:
            fields = torch.stack([inputs[i] for i in self.fields_in], 1)
            mean, scale = (
                self._select(t, self.fields_in).view(1, *shape[1:]) for t in (self.mean, self.scale)
            )
            # In place, as large fields leave no memory for copies.
            parts.append(self.hide(fields.sub_(mean).div_(scale)))
        if self.vectors_in:
            channels = self.embed(self._normalized_vectors(inputs, self.vectors_in))
            grid = tuple(self.layout.grid.values())
            parts.append(channels.reshape(batch, -1, *shape[2:]).expand(-1, -1, *grid))
        if self.position.shape[0]:
            parts.append(self.position.expand(batch, *self.position.shape))
        return torch.cat(parts, 1) if len(parts) > 1 else parts[0]

    def _outputs(self, inputs: Sequence[Tensor], channels: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs in physical units from the channels of the network."""
        out: list[Tensor | None] = [None] * len(self.layout.outputs)
        starts = np.cumsum([0, *(v.size for v in self.layout.outputs)]).tolist()
        carried = self._carried(inputs, channels)
        relative = self.relative_step(inputs[self.step_in]) if self.step_in >= 0 else None
        # In place where no gradient needs the channels: outputs take no further memory.
        plain = torch.is_grad_enabled() or torch.compiler.is_compiling()
        add, multiply = (Tensor.add, Tensor.mul) if plain else (Tensor.add_, Tensor.mul_)
        for channel, i in enumerate(self.fields_out):
            at = starts[i]
            value = add(multiply(channels[:, channel], self.out_scale[at]), self.out_mean[at])
            if relative is not None and i in carried:
                value = multiply(value, relative.view(-1, *([1] * self.space)))
            out[i] = self.hide(add(value, carried[i]) if i in carried else value)
        if self.vectors_out:
            first_vector = len(self.fields_out) + len(carried) * self.space * self.transports
            pooled = channels[:, first_vector:]
            vector = pooled if self.pool is None else self.pool(self._pool(pooled))
            first = 0
            for i in self.vectors_out:
                variable = self.layout.outputs[i]
                at = slice(starts[i], starts[i + 1])
                value = vector[:, first : first + variable.size]
                value = (value * self.out_scale[at] + self.out_mean[at]).reshape(
                    -1, *variable.shape
                )
                first += variable.size
                if relative is not None and self.source[i] >= 0:
                    value = value * relative.view(-1, *([1] * len(variable.shape)))
                out[i] = value + inputs[self.source[i]] if self.source[i] >= 0 else value
        return tuple(out)  # type: ignore[arg-type]

    def relative_step(self, step: Tensor) -> Tensor:
        """Return steps relative to the mean step of the training, (B,)."""
        mean = self._select(self.mean, [self.step_in])
        return step.reshape(-1) / torch.where(mean > 0, mean, torch.ones_like(mean))

    @property
    def changes(self) -> set[str]:
        """Names of the outputs whose change over the step is learned relative to its length."""
        if self.step_in < 0:
            return set()
        pairs = zip(self.layout.outputs, self.source, strict=True)
        return {variable.name for variable, source in pairs if source >= 0}

    def _carried(self, inputs: Sequence[Tensor], channels: Tensor) -> dict[int, Tensor]:
        """Return {output: the input that its change is added to}, transported if configured."""
        which = [i for i in self.fields_out if self.source[i] >= 0]
        if not which:
            return {}
        if not self.transports:
            return {i: inputs[self.source[i]] for i in which}
        fields = torch.stack([inputs[self.source[i]] for i in which], 1)
        first, count = len(self.fields_out), len(which) * self.space
        moves = channels[:, first : first + count].unflatten(1, (len(which), self.space))
        carried = transport(fields, moves, self.reach, self.padding)
        # A field that never changed in the training part is not carried along either.
        starts = np.cumsum([0, *(v.size for v in self.layout.outputs)]).tolist()
        moving = self.out_scale[[starts[i] for i in which]] > 0
        fields = torch.where(moving.view(-1, *[1] * self.space), carried, fields)
        return {i: fields[:, channel] for channel, i in enumerate(which)}

    def _pool(self, channels: Tensor) -> Tensor:
        """Return (B, 2 C): mean and root mean square over the grid."""
        flat = channels.flatten(2)
        means = torch.cat([flat.mean(2), (flat * flat).mean(2)], 1)
        for shared in (p for p in self.padding if isinstance(p, SharedDim)):
            means = shared.sum(means) / shared.size
        mean, square = means.chunk(2, 1)
        return torch.cat([mean, square.add(1e-12).sqrt()], 1)

    def _normalized_vectors(self, inputs: Sequence[Tensor], which: Sequence[int]) -> Tensor:
        """Return (B, values) of some vector inputs."""
        flat = torch.cat([inputs[i].reshape(inputs[i].shape[0], -1) for i in which], 1)
        return (flat - self._select(self.mean, which)) / self._select(self.scale, which)

    def _select(self, values: Tensor, which: Sequence[int]) -> Tensor:
        """Return the entries of some inputs."""
        parts = values.split([v.size for v in self.layout.inputs])
        return torch.cat([parts[i] for i in which])


def mean_values(part: NormalizedNetwork) -> dict[str, np.float32]:
    """Return {input field: its mean in the training part}, by which missing values are replaced."""
    means = part.mean.split([v.size for v in part.layout.inputs])
    pairs = zip(part.layout.inputs, means, strict=True)
    return {v.name: np.float32(mean.item()) for v, mean in pairs if v.is_field}


def condition_network(values: int) -> nn.Sequential:
    """Return the network from `values` normalised inputs to the condition."""
    return nn.Sequential(
        nn.Linear(values, CONDITION_WIDTH),
        nn.GELU(approximate="tanh"),
        nn.Linear(CONDITION_WIDTH, CONDITION_WIDTH),
        nn.GELU(approximate="tanh"),
    )


def channels_out(layout: Layout, *, residual: bool, transports: bool) -> int:
    """Return the number of output channels of a network for a layout."""
    fields = [v for v in layout.outputs if v.is_field]
    vectors = sum(v.size for v in layout.outputs if not v.is_field)
    moved = sum(1 for v in fields if v.name in layout.state) if residual and transports else 0
    pooled = 0 if not vectors else POOL_CHANNELS if layout.grid else vectors
    return len(fields) + moved * len(layout.grid) + pooled


def channels_in(layout: Layout, coordinates: Sequence[str], conditions: Sequence[str] = ()) -> int:
    """Return the number of input channels of a network, without those of `conditions`."""
    fields = sum(1 for v in layout.inputs if v.is_field)
    vectors = sum(v.size for v in layout.inputs if not v.is_field and v.name not in conditions)
    return fields + min(vectors, VECTOR_CHANNELS) + position_channels(layout, coordinates).shape[0]


def position_channels(layout: Layout, coordinates: Sequence[str]) -> Tensor:
    """Return (C, *grid): positions in [-1, 1], the logarithm of uneven spacing, and the mask.

    If no input is a field, the positions of all dims are included, as nothing else distinguishes
    the cells.
    """
    sizes = tuple(layout.grid.values())
    wanted = list(coordinates)
    if sizes and not any(v.is_field for v in layout.inputs):
        wanted = list(layout.grid)
    channels: list[np.ndarray] = []
    for dim in wanted:
        axis = list(layout.grid).index(dim)
        values = np.asarray(layout.coordinates.get(dim, np.arange(layout.grid[dim])), dtype=float)
        low, high = values.min(), values.max()
        shape = [1] * len(sizes)
        shape[axis] = len(values)
        lines = [2 * (values - low) / max(high - low, 1e-300) - 1]
        widths = cell_widths(values)
        if widths.max() > 1.01 * widths.min():
            lines.append(0.5 * np.log(widths / widths.mean()))
        channels += [np.broadcast_to(line.reshape(shape), sizes) for line in lines]
    if layout.valid is not None:
        channels.append(layout.valid.astype(float))
    if not channels:
        return torch.zeros(0, *sizes)
    return torch.from_numpy(np.stack(channels)).float()
