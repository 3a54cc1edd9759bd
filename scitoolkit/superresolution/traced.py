"""Super-resolution models as two functions for export to C: `encode` and `decode`.

`encode` returns the latent grids of a window of coarse nodes and of its reflections; `decode`
returns the fields at points between these nodes. Along dims that are neither walled nor periodic
coordinates are relative to the first node of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from logging import Logger
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.superresolution.config import SuperresolutionConfig
from scitoolkit.superresolution.mirrors import Encoded, Reflection, reflections
from scitoolkit.superresolution.model import LatentGrid, MeshfreeFlowNet
from scitoolkit.superresolution.simulations import open_simulations
from scitoolkit.superresolution.surrogate import Header, SuperresolutionSurrogate

log: Logger = get_logger(__name__)
POINTS = 64
"""Points of the comparison with the model."""


def traced(directory: Path) -> Sequence[TracedFunction]:
    """Return `encode` and `decode` of a run or surrogate.

    Raises:
        ConfigError: the configuration has `spectrum`.
    """
    folder = ModelFolder(directory)
    config = folder.config(SuperresolutionConfig)
    if config.spectrum is not None:
        raise ConfigError(
            "the spectral correction needs whole fields, but exported functions evaluate points",
            where=f"{folder.path}: spectrum",
            fix="export a run without spectrum",
        )
    found = SuperresolutionSurrogate.load(folder.path)
    head = found.header
    chosen = reflections(head.mirrors if found.config.average else {}, head.dims, head.fields)
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
    coarse = np.reshape(head.mean, shape) + 0.5 * np.reshape(head.std, shape) * noise
    encode = _Encode(found.model, chosen)
    given = [torch.from_numpy(a.astype(np.float32)) for a in (coarse[:1], *nodes)]
    with torch.no_grad():
        latent = encode(*given)
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
            _Decode(found.model, chosen),
            decode,
            [out],
            [latent[0].numpy(), *nodes, points],
            "decode",
        ),
    ]


class _Encode(nn.Module):
    """From (B, fields, ...) and nodes (n,) per dim to latent grids (B, image, channel, ...)."""

    def __init__(self, model: MeshfreeFlowNet, chosen: Sequence[Reflection]) -> None:
        super().__init__()
        self.model, self.chosen = model, chosen

    def forward(self, low: Tensor, *nodes: Tensor) -> Tensor:
        batch = [n.expand(low.shape[0], -1) for n in nodes]
        return torch.stack(
            [grid.vectors for _, grid, _ in Encoded(self.model, low, batch, self.chosen).parts], 1
        )


class _Decode(nn.Module):
    """From latent grids (image, channel, ...), nodes (n,) and points (B, d) to (B, fields)."""

    def __init__(self, model: MeshfreeFlowNet, chosen: Sequence[Reflection]) -> None:
        super().__init__()
        self.model, self.chosen = model, chosen

    def forward(self, latent: Tensor, *rest: Tensor) -> Tensor:
        *nodes, points = rest
        given = iter(latent)
        encoded = Encoded(
            self.model,
            latent.new_zeros((1, len(self.model.mean), *map(len, nodes))),
            [n[None] for n in nodes],
            self.chosen,
            encode=lambda _, places: LatentGrid(next(given)[None], self.model.fine_nodes(places)),
        )
        return encoded.query(points[None])[0, 0]


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
        found = [simulations.dataset(n)[list(head.fields)] for n in range(len(simulations))]
    except DataError as error:
        log.warning("no box of the training inputs: %s", error)
        return None, None
    shape = (len(head.fields), *[1] * len(head.dims))
    low = np.array([min(float(d[f].min()) for d in found) for f in head.fields])
    high = np.array([max(float(d[f].max()) for d in found) for f in head.fields])
    return low.reshape(shape), high.reshape(shape)
