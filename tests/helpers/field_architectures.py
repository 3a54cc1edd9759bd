"""Ten architectures of surrogates of fields, small, in plain torch."""

from __future__ import annotations

import torch
from surveyed_modules import Call, Modules, SpectralLayer
from torch import Tensor, nn


class Residual(nn.Module):
    """The sum of the input and of a chain of modules."""

    def __init__(self, *chain: nn.Module) -> None:
        super().__init__()
        self.chain = nn.Sequential(*chain)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.chain(x)


class ChannelsLast(nn.Module):
    """A module of the channels of each point."""

    def __init__(self, *chain: nn.Module) -> None:
        super().__init__()
        self.chain = nn.Sequential(*chain)

    def forward(self, x: Tensor) -> Tensor:
        return self.chain(x.movedim(1, -1)).movedim(-1, 1)


class UNet(nn.Module):
    """Two levels of convolutions with a connection between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(2, width, 3, padding=1, padding_mode="circular"),
            nn.GroupNorm(2, width),
            nn.GELU(),
        )
        self.down = nn.Sequential(nn.Conv2d(width, 2 * width, 2, 2), nn.SiLU())
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.last = nn.Conv2d(2 * width, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.first(x)
        return x + self.last(torch.cat([fine, self.up(self.down(fine))], 1))


class MeshStep(nn.Module):
    """A step of a graph network over the constant edges of a mesh."""

    def __init__(self, nodes: int, width: int) -> None:
        super().__init__()
        ring = torch.arange(nodes)
        edges = torch.stack([torch.cat([ring, ring]), torch.cat([ring.roll(-1), ring.roll(2)])])
        self.register_buffer("edges", edges)
        self.message = nn.Sequential(nn.Linear(2 * width, 16), nn.SiLU(), nn.Linear(16, width))
        self.update = nn.Sequential(nn.Linear(2 * width, 16), nn.SiLU(), nn.Linear(16, width))

    def forward(self, x: Tensor) -> Tensor:
        sender, receiver = self.edges
        messages = self.message(torch.cat([x[:, sender], x[:, receiver]], -1))
        sums = torch.zeros_like(x).index_add(1, receiver, messages)
        return x + self.update(torch.cat([x, sums], -1))


class OperatorNet(nn.Module):
    """A deep operator net: coefficients from the values at sensors, a basis at given points."""

    def __init__(self, sensors: int, points: int, width: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(sensors, 16), nn.Tanh(), nn.Linear(16, width))
        self.trunk = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, width))
        self.register_buffer("points", torch.rand(points, 2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bk,pk->bp", self.branch(x), self.trunk(self.points))


class FilterDecoder(nn.Module):
    """A multiplicative filter network: products of sines of the coordinates and a latent state."""

    def __init__(self, latent: int, points: int, width: int) -> None:
        super().__init__()
        self.register_buffer("points", torch.rand(points, 2))
        self.filters = nn.ModuleList(nn.Linear(2, width) for _ in range(3))
        self.mixing = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.latent = nn.ModuleList(nn.Linear(latent, width, bias=False) for _ in range(2))
        self.head = nn.Linear(width, 1)

    def forward(self, z: Tensor) -> Tensor:
        state = torch.sin(self.filters[0](self.points)).expand(len(z), -1, -1)
        for wave, mix, shift in zip(self.filters[1:], self.mixing, self.latent, strict=True):
            state = torch.sin(wave(self.points)) * (mix(state) + shift(z)[:, None])
        return self.head(state)[..., 0]


def architectures() -> Modules:
    """Return {name: (module, shape of a sample)}."""
    torch.manual_seed(0)
    block = Residual(
        nn.Conv2d(8, 8, 7, padding=3, groups=8),
        ChannelsLast(nn.LayerNorm(8), nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)),
    )
    residual = Residual(
        nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.Dropout(0.1)
    )
    fourier = [
        Call(
            lambda wide, narrow, x: nn.functional.gelu(wide(x) + narrow(x)),
            SpectralLayer(6, 3),
            nn.Conv2d(6, 6, 1),
        )
        for _ in range(2)
    ]
    encoder = nn.TransformerEncoderLayer(16, 4, 32, 0.1, "gelu", batch_first=True, norm_first=True)
    return {
        "unet": (UNet(8), (2, 12, 16)),
        "convnext": (nn.Sequential(nn.Conv2d(2, 8, 2, 2), block, nn.Conv2d(8, 2, 1)), (2, 12, 16)),
        "fno": (nn.Sequential(nn.Conv2d(2, 6, 1), *fourier, nn.Conv2d(6, 2, 1)), (2, 12, 16)),
        "transformer": (
            nn.Sequential(
                nn.Linear(4, 16),
                nn.TransformerEncoder(encoder, 2, enable_nested_tensor=False),
                nn.Linear(16, 4),
            ),
            (9, 4),
        ),
        "lstm": (
            Call(
                lambda r, head, x: head(r(x)[0][:, -1]),
                nn.LSTM(5, 12, 2, batch_first=True),
                nn.Linear(12, 5),
            ),
            (7, 5),
        ),
        "gnn_step": (MeshStep(11, 4), (11, 4)),
        "mlp": (
            nn.Sequential(
                nn.Linear(6, 32), nn.SiLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3)
            ),
            (6,),
        ),
        "resnet": (
            nn.Sequential(
                nn.Conv2d(2, 8, 3, padding=1),
                residual,
                nn.AdaptiveAvgPool2d(2),
                nn.Flatten(),
                nn.Linear(32, 4),
            ),
            (2, 12, 16),
        ),
        "deep_operator_net": (OperatorNet(20, 15, 8), (20,)),
        "filter_decoder": (FilterDecoder(6, 15, 12), (6,)),
    }
