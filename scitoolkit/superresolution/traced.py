"""Super-resolution models as two functions for export to C: `encode` and `decode`.

`encode` returns the latent grids of a window of coarse nodes and of its reflections; `decode`
returns the fields at points between these nodes. Along dims that are neither walled nor periodic
coordinates are relative to the first node of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from logging import Logger
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.superresolution.config import SuperresolutionConfig
from scitoolkit.superresolution.mirrors import EncodedMirrors, Reflection, reflections
from scitoolkit.superresolution.model import LatentGrid, MeshfreeFlowNet
from scitoolkit.superresolution.network import Header
from scitoolkit.superresolution.simulations import open_simulations
from scitoolkit.superresolution.surrogate import SuperresolutionSurrogate

log: Logger = get_logger(__name__)
POINTS = 64
"""Points of the comparison with the model."""


def traced(config: SuperresolutionConfig, model: nn.Module) -> Sequence[TracedFunction]:
    """Return `encode` and `decode` of a trained model.

    Raises:
        ConfigError: the configuration has `spectrum`.
    """
    if config.spectrum is not None:
        raise ConfigError(
            "the spectral correction needs whole fields, but exported functions evaluate points",
            where="spectrum",
            fix="export a run without spectrum",
        )
    surrogate = SuperresolutionSurrogate(model)
    head = surrogate.header
    chosen = reflections(head.mirrors if surrogate.config.average else {}, head.dims, head.fields)
    members = surrogate.members
    low, high = _box(config, head)
    window, nodes = head.window, _typical_nodes(head)
    fields = ArraySpec(
        "fields",
        ("field", *head.dims),
        (len(head.fields), *window),
        ", ".join(f"{f} {u}" for f, u in zip(head.fields, head.units, strict=True)),
        low,
        high,
    )
    places = [
        ArraySpec(f"nodes_{d}", (d,), (n,), u, shared=True)
        for d, n, u in zip(head.dims, window, head.dim_units, strict=True)
    ]
    generator = np.random.default_rng(0)
    shape = (1, len(head.fields), *[1] * len(window))
    noise = generator.normal(size=(2, len(head.fields), *window))
    mean, std = (b.double().numpy().reshape(shape) for b in (members[0].mean, members[0].std))
    coarse = mean + 0.5 * std * noise
    encode = _Encode(members, chosen)
    example = [torch.from_numpy(a.astype(np.float32)) for a in (coarse[:1], *nodes)]
    with torch.no_grad():
        latent = encode(*example)
    shares = generator.uniform(0.05, 0.95, (POINTS, len(window)))
    ends = np.array([[n[0], n[-1]] for n in nodes])
    points = ends[:, 0] + shares * (ends[:, 1] - ends[:, 0])
    vectors = ArraySpec("latent", ("image", "channel", *head.dims), tuple(latent.shape[1:]), "1")
    decode = [
        ArraySpec(vectors.name, vectors.dims, vectors.shape, "1", shared=True),
        *places,
        ArraySpec("points", ("dim",), (len(window),), ", ".join(head.dim_units)),
    ]
    out = ArraySpec("values", ("field",), (len(head.fields),), fields.units)
    return [
        TracedFunction(encode, [fields, *places], [vectors], [coarse, *nodes], "encode"),
        TracedFunction(
            _Decode(members, chosen),
            decode,
            [out],
            [latent[0].numpy(), *nodes, points],
            "decode",
        ),
    ]


class _Encode(nn.Module):
    """From (B, fields, ...) and nodes (n,) per dim to latent grids (B, image, channel, ...).

    The images of every member of an ensemble follow each other.
    """

    def __init__(self, members: Sequence[MeshfreeFlowNet], chosen: Sequence[Reflection]) -> None:
        super().__init__()
        self.members, self.chosen = nn.ModuleList(members), chosen

    def forward(self, low: Tensor, *nodes: Tensor) -> Tensor:
        batch = [n.expand(low.shape[0], -1) for n in nodes]
        members = (m for m in self.members if isinstance(m, MeshfreeFlowNet))
        encoded = [EncodedMirrors(member, low, batch, self.chosen) for member in members]
        return torch.stack([grid.vectors for one in encoded for _, grid, _ in one.parts], 1)


class _Decode(nn.Module):
    """From latent grids (image, channel, ...), nodes (n,) and points (B, d) to (B, fields)."""

    def __init__(self, members: Sequence[MeshfreeFlowNet], chosen: Sequence[Reflection]) -> None:
        super().__init__()
        self.members, self.chosen = nn.ModuleList(members), chosen

    def forward(self, latent: Tensor, *rest: Tensor) -> Tensor:
        *nodes, points = rest
        images = iter(latent)

        def values(member: Any) -> Tensor:
            encoded = EncodedMirrors(
                member,
                latent.new_zeros((1, len(member.mean), *map(len, nodes))),
                [n[None] for n in nodes],
                self.chosen,
                encode=lambda _, at: LatentGrid(next(images)[None], member.fine_nodes(at)),
            )
            return encoded.query(points[None])[0, 0]

        out = [values(member) for member in self.members]
        return out[0] if len(out) == 1 else torch.stack(out).mean(0)


def _typical_nodes(head: Header) -> list[np.ndarray]:
    """Return evenly spaced nodes of a window at the spacing of the training."""
    out = []
    for count, spacing, (first, last), walled, closed in zip(
        head.window, head.spacing, head.extents, head.layout.walled, head.closed, strict=True
    ):
        start = first if walled or closed else 0.0
        step = (last - first) / (count - 1) if walled else spacing
        out.append((start + step * np.arange(count)).astype(np.float32))
    return out


def _box(config: SuperresolutionConfig, head: Header) -> tuple[np.ndarray | None, ...]:
    """Return the extremes of each field over the training files, if they are available."""
    try:
        simulations = open_simulations(config.data.path, config.data, fields=head.fields)
        fields_of = [simulations.dataset(n)[list(head.fields)] for n in range(len(simulations))]
    except DataError as error:
        log.warning("no box of the training inputs: %s", error)
        return None, None
    shape = (len(head.fields), *[1] * len(head.dims))
    low = np.array([min(float(d[f].min()) for d in fields_of) for f in head.fields])
    high = np.array([max(float(d[f].max()) for d in fields_of) for f in head.fields])
    return low.reshape(shape), high.reshape(shape)
