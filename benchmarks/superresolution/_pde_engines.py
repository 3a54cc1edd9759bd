"""A training step under the equations of convection, with three ways to compute derivatives.

All use one model and one batch: a U-Net of 1.50 million parameters (the paper has 1.46), its ImNet
(209,924) on a 4 x 16 x 16 latent grid, 512 points per crop, four equations. `original` is the
published layer rebuilt from its description: every `dif` of the text is a separate call of
`torch.autograd.grad` through the whole decoder (25 calls). `jvp` nests forward-mode derivatives,
with second derivatives in x and z only, since the equations contain no others. `ours` is
`ops.taylor`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scitoolkit.superresolution.blend import locate
from scitoolkit.superresolution.config import ImNetConfig, PdeConfig
from scitoolkit.superresolution.convolution import corners
from scitoolkit.superresolution.decoder import Decoder
from scitoolkit.superresolution.encoder import Encoder
from scitoolkit.superresolution.equations import PDE, Residuals
from scitoolkit.superresolution.model import LatentGrid, MeshfreeFlowNet
from scitoolkit.superresolution.task import Physics

FIELDS, DIMS = ("p", "b", "u", "w"), ("t", "z", "x")
NODES, POINTS, CHANNELS = (4, 16, 16), 512, 32
GAMMA, P, R = 0.0125, 1e-3, 1e-3
EQUATIONS = {
    "continuity": "dif(u,x) + dif(w,z)",
    "buoyancy": "dif(b,t) + u*dif(b,x) + w*dif(b,z) - P*(dif(b,x,x) + dif(b,z,z))",
    "momentum_x": "dif(u,t) + u*dif(u,x) + w*dif(u,z) + dif(p,x) - R*(dif(u,x,x) + dif(u,z,z))",
    "momentum_z": "dif(w,t) + u*dif(w,x) + w*dif(w,z) + dif(p,z) - b - R*(dif(w,x,x) + dif(w,z,z))",
}


class Problem:
    """The model, a batch, and one step by every engine.

    Args:
        batch: crops.
        dtype: of parameters and data.
    """

    def __init__(self, batch: int, dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(0)
        encoder = Encoder(
            len(FIELDS),
            [False] * 3,
            widths=[16, 32, 64, 128],
            blocks=1,
            stages=[],
            channels_out=CHANNELS,
        )
        decoder = Decoder(3, CHANNELS, len(FIELDS), **ImNetConfig().arguments())
        self.model = MeshfreeFlowNet(
            encoder,
            decoder,
            periods=[None] * 3,
            extents=[None] * 3,
            mean=torch.zeros(4),
            std=torch.ones(4),
            interpolate=False,
        ).to(dtype)
        self.nodes = [torch.linspace(0, 1, n, dtype=dtype).repeat(batch, 1) for n in NODES]
        self.low = torch.randn(batch, 4, *NODES, dtype=torch.float64).to(dtype)
        self.points = torch.rand(batch, POINTS, 3, dtype=torch.float64).to(dtype)
        self.values = torch.randn(batch, POINTS, 4, dtype=torch.float64).to(dtype)
        pde = PDE.parse(EQUATIONS, fields=FIELDS, dims=DIMS, constants={"P": P, "R": R})
        scales = dict.fromkeys(EQUATIONS, 1.0)
        self.physics = Physics(Residuals(pde), PdeConfig(equations=EQUATIONS), scales)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-6)

    def step(self, engine: str) -> None:
        """Do one training step; `none` is the regression alone."""
        self.optimizer.zero_grad()
        self.loss(engine)[0].backward()
        self.optimizer.step()

    def gradient(self) -> Tensor:
        """Return the gradient of the last loss by all parameters."""
        return torch.cat([p.grad.flatten() for p in self.model.parameters()])

    def loss(self, engine: str) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss and the residuals, (B, N) each."""
        grid = self.model.encode(self.low, self.nodes)
        found, residuals = getattr(self, engine)(grid)
        total = (found - self.values).abs().mean()
        if residuals:
            parts = torch.stack([r.abs().mean() for r in residuals.values()])
            total = total + GAMMA * parts.mean()
        return total, residuals

    def none(self, grid: LatentGrid) -> tuple[Tensor, dict[str, Tensor]]:
        return self.model.query(grid, self.points)[0], {}

    def ours(self, grid: LatentGrid) -> tuple[Tensor, dict[str, Tensor]]:
        streams = self.model.query(grid, self.points, self.physics.plan)
        return streams[0], self.physics.evaluate(streams)

    def original(self, grid: LatentGrid) -> tuple[Tensor, dict[str, Tensor]]:
        points = self.points.clone().requires_grad_()
        found = self.plain(grid, points)
        p, b, u, w = found.unbind(-1)

        def dif(y: Tensor, dim: str) -> Tensor:
            (slope,) = torch.autograd.grad(y, points, torch.ones_like(y), create_graph=True)
            return slope[..., DIMS.index(dim)]

        def transport(y: Tensor, coefficient: float) -> Tensor:
            second = dif(dif(y, "x"), "x") + dif(dif(y, "z"), "z")
            return dif(y, "t") + u * dif(y, "x") + w * dif(y, "z") - coefficient * second

        return found, {
            "continuity": dif(u, "x") + dif(w, "z"),
            "buoyancy": transport(b, P),
            "momentum_x": transport(u, R) + dif(p, "x"),
            "momentum_z": transport(w, R) + dif(p, "z") - b,
        }

    def jvp(self, grid: LatentGrid) -> tuple[Tensor, dict[str, Tensor]]:
        def function(points: Tensor) -> Tensor:
            return self.plain(grid, points)

        def along(dim: str) -> Tensor:
            direction = torch.zeros_like(self.points)
            direction[..., DIMS.index(dim)] = 1
            return direction

        def first(points: Tensor, dim: str) -> tuple[Tensor, Tensor]:
            return torch.func.jvp(function, (points,), (along(dim),))

        found, d_t = first(self.points, "t")
        second = {}
        for dim in ("z", "x"):
            second[dim] = torch.func.jvp(
                lambda at, d=dim: first(at, d)[1], (self.points,), (along(dim),)
            )
        (d_z, d_zz), (d_x, d_xx) = second["z"], second["x"]
        b, u, w = (found[..., i] for i in (1, 2, 3))

        def transport(i: int, coefficient: float) -> Tensor:
            spread = coefficient * (d_xx + d_zz)[..., i]
            return d_t[..., i] + u * d_x[..., i] + w * d_z[..., i] - spread

        return found, {
            "continuity": d_x[..., 2] + d_z[..., 3],
            "buoyancy": transport(1, P),
            "momentum_x": transport(2, R) + d_x[..., 0],
            "momentum_z": transport(3, R) + d_z[..., 0] - b,
        }

    def plain(self, grid: LatentGrid, points: Tensor) -> Tensor:
        """Return the blended field in operations that torch differentiates itself."""
        where = [locate(points[..., d], grid.nodes[d], None) for d in range(3)]
        table = grid.vectors[:, :CHANNELS].flatten(2).transpose(1, 2)
        flat, weights, offsets = [], [], []
        for corner in corners(3):
            number, weight, offset = 0, 1.0, []
            for along, side, size in zip(where, corner, NODES, strict=True):
                number = number * size + along.node[side]
                weight = weight * (along.position if side else 1 - along.position)
                offset.append(along.offset[side] * along.scale[side])
            flat.append(number)
            weights.append(weight)
            offsets.append(torch.stack(offset, -1))
        step = torch.arange(len(points))[:, None] * table.shape[1]
        chosen = table.reshape(-1, CHANNELS)[torch.stack(flat) + step]
        decoded = self.decoder(torch.stack(offsets), chosen)
        return (torch.stack(weights)[..., None] * decoded).sum(0)

    def decoder(self, offsets: Tensor, latent: Tensor) -> Tensor:
        """Return the ImNet's output, its inputs fed to every hidden layer."""
        inputs = torch.cat([offsets, latent], -1)
        layers = list(self.model.decoder.layers)
        hidden = layers[0](inputs)
        for number, layer in enumerate(layers[1:], 1):
            hidden = torch.nn.functional.softplus(hidden)
            if number < len(layers) - 1:
                hidden = torch.cat([hidden, inputs], -1)
            hidden = layer(hidden)
        return hidden
