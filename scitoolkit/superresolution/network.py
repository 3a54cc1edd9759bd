"""The network of a super-resolution model, built from a description of its training data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch

from scitoolkit.superresolution.config import EncoderConfig, ModelConfig
from scitoolkit.superresolution.crops import CropLayout
from scitoolkit.superresolution.decoder import Decoder
from scitoolkit.superresolution.encoder import Encoder
from scitoolkit.superresolution.model import MeshfreeFlowNet
from scitoolkit.superresolution.resunet import ResidualUNet


@dataclass(frozen=True)
class Header:
    """Description of the training data of a model.

    Attributes:
        fields, units: of the channels.
        dims, dim_units: of the coordinates.
        periods: length of each periodic dim, None for others.
        layout: of a training crop.
        extents: (first, last) coordinate of each dim of the training file.
        spacing: mean distance of low-resolution nodes of each dim.
        scales: {equation: size of its terms}.
        constants: {name: value} for equations.
        used: names of the constants that occur in the equations of the training.
        mirrors: {dim: fields that change sign when the dim is reversed}.
        coarser: factors of further thinning that the model was trained on.
        factor: that of `layout` and `spacing`.
    """

    fields: tuple[str, ...]
    units: tuple[str, ...]
    dims: tuple[str, ...]
    dim_units: tuple[str, ...]
    periods: tuple[float | None, ...]
    layout: CropLayout
    extents: tuple[tuple[float, float], ...]
    spacing: tuple[float, ...]
    scales: Mapping[str, float]
    constants: Mapping[str, float]
    mirrors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    used: tuple[str, ...] = ()
    coarser: tuple[int, ...] = (1,)
    factor: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return JSON types."""
        return {**vars(self), "layout": vars(self.layout)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Header:
        """Return the header of a result of `to_json`; mean and std of older ones are buffers."""
        plain = {f.name: _tuples(data[f.name]) for f in fields(cls) if f.name in data}
        layout = CropLayout(**{k: tuple(v) for k, v in data["layout"].items()})
        return cls(**{**plain, "layout": layout})

    @property
    def window(self) -> tuple[int, ...]:
        """Number of low-resolution nodes of a crop in each dim."""
        out = []
        for size, every, whole, period in zip(
            self.layout.size, self.layout.every, self.layout.whole, self.periods, strict=True
        ):
            closed = whole and period is not None
            out.append(size // every if closed else (size - 1) // every + 1)
        return tuple(out)

    @property
    def closed(self) -> tuple[bool, ...]:
        """Which dims the model treats as periodic: periodic dims that crops span."""
        return tuple(
            w and p is not None for w, p in zip(self.layout.whole, self.periods, strict=True)
        )

    @property
    def reference(self) -> tuple[float | None, ...]:
        """Spacing of the low resolution of factor 1; None where the model has only one."""
        return tuple(
            spacing / self.factor if len(self.coarser) > 1 and every > 1 else None
            for spacing, every in zip(self.spacing, self.layout.every, strict=True)
        )

    def thinned(self, factor: int) -> Header:
        """Return the header of the low resolution of another factor."""
        change = [factor / self.factor if every > 1 else 1.0 for every in self.layout.every]
        every = tuple(round(n * c) for n, c in zip(self.layout.every, change, strict=True))
        spacing = tuple(n * c for n, c in zip(self.spacing, change, strict=True))
        layout = replace(self.layout, every=every)
        return replace(self, layout=layout, spacing=spacing, factor=factor)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def build_encoder(
    config: EncoderConfig, channels_in: int, dims: Sequence[str], periodic: Sequence[bool]
) -> Encoder | ResidualUNet:
    """Return an untrained encoder."""
    widths, channels = config.widths, config.channels
    if config.name == "resunet":
        return ResidualUNet(channels_in, periodic, widths=widths, channels_out=channels)
    stages = [(s.channels, [s.refine.get(d, 1) for d in dims]) for s in config.stages]
    return Encoder(
        channels_in,
        periodic,
        widths=widths,
        blocks=config.blocks,
        stages=stages,
        channels_out=channels,
    )


class FieldNetwork(MeshfreeFlowNet):
    """A network for fields, dims and crops like those of its training.

    Args:
        header: description of the training data.
        config: the architecture.
    """

    def __init__(self, header: Header, config: ModelConfig) -> None:
        closed, count = header.closed, len(header.fields)
        extents = [
            extent if walled else None
            for extent, walled in zip(header.extents, header.layout.walled, strict=True)
        ]
        channels_in = count + sum(e is not None for e in (*extents, *header.reference))
        super().__init__(
            build_encoder(config.encoder, channels_in, header.dims, closed),
            Decoder(len(header.dims), config.encoder.channels, count, **config.decoder.arguments()),
            periods=[p if c else None for p, c in zip(header.periods, closed, strict=True)],
            extents=extents,
            spacings=header.reference,
            mean=torch.zeros(count),
            std=torch.ones(count),
            weights=config.blend,
            interpolate=config.interpolate,
        )
        self.header: Header = header
        self.config: ModelConfig = config

    def in_box(self, periods: Sequence[float | None]) -> FieldNetwork:
        """Return the network with the same weights and other periods."""
        return self._with(replace(self.header, periods=tuple(periods)))

    def thinned(self, factor: int) -> FieldNetwork:
        """Return the network with the same weights for the low resolution of another factor."""
        return self._with(self.header.thinned(factor))

    def _with(self, header: Header) -> FieldNetwork:
        other = FieldNetwork(header, self.config)
        other.load_state_dict(self.state_dict())
        return other.train(self.training)
