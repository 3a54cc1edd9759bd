"""Networks, data and baselines of the benchmark `comet`."""

from __future__ import annotations

import contextlib
import itertools

import h5py
import torch
from _places import ROOT
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from scitoolkit.emulation.models import resnet as emulation

FOLDER = ROOT / "datasets" / "rayleigh_benard"
TRAIN = ("rb2d_ra1e6_pr1_s42_t20-24.75.h5", "rb2d_ra1e6_pr1_s42_t25-29.75.h5")
TEST = ("rb2d_ra1e6_pr1_s43_t20-23.75.h5",)
GROUP = 256  # values that share a range, as in ActNN


def frames(names: tuple[str, ...]) -> Tensor:
    """Return (time, 4, 256, 64) of Rayleigh-Bénard convection, normalised by the training part."""

    def read(name: str) -> Tensor:
        with h5py.File(FOLDER / name) as file:
            return torch.stack([torch.from_numpy(file[key][...]) for key in "bpuw"], 1)

    first = read(TRAIN[0])
    mean, scale = first.mean((0, 2, 3), keepdim=True), first.std((0, 2, 3), keepdim=True)
    return torch.cat([(read(name) - mean) / scale for name in names])


def pairs(names: tuple[str, ...], volume: bool) -> dict[str, Tensor]:
    """Return inputs x and targets y: the change after 0.25, or of 8 frames in a row (3-D)."""
    parts = []
    for name in names:
        x = frames((name,))
        if volume:
            parts += [(x[i : i + 8], x[i + 1 : i + 9] - x[i : i + 8]) for i in range(len(x) - 8)]
        else:
            parts += [(x[i], x[i + 1] - x[i]) for i in range(len(x) - 1)]
    x, y = (torch.stack(each) for each in zip(*parts, strict=True))
    if volume:  # (B, time, C, X, Z) -> (B, C, time, X, Z)
        x, y = x.transpose(1, 2).contiguous(), y.transpose(1, 2).contiguous()
    return {"x": x, "y": y / y.std()}


def planned_batch(model: str, data: dict[str, Tensor], size: int) -> dict[str, Tensor]:
    """Return a batch for the comparison with checkpointing: real fields, cut as a model needs."""
    x, y = data["x"], data["y"]
    if model == "resnet18":  # 64 x 64 windows of the fields, ten classes of mean buoyancy change
        x, y = (v.unfold(2, 64, 64).movedim(2, 1).flatten(0, 1) for v in (x, y))
        x, y = x[:size].clone(), y[:size, :1].mean((2, 3)).repeat(1, 10)
    elif model == "transformer":  # columns of the field as tokens
        x, y = (v[:, :, :, ::8].movedim(1, -1).movedim(2, 1).flatten(0, 1) for v in (x, y))
        x, y = x[:size].clone(), y[:size].clone()
    return {"x": x[:size].clone(), "y": y[:size].clone()}


class Residual(nn.Module):
    """Two convolutions with batch normalisation and a shortcut (He et al. 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        return self.relu(h + (x if self.short is None else self.short(x)))


class ResNet(nn.Module):
    """ResNet-(6 blocks + 2) of three stages, with a head that answers on the grid."""

    def __init__(self, width: int, blocks: int, checkpointed: bool = False) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(4, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        widths = [width, 2 * width, 4 * width]
        self.stages = nn.ModuleList()
        before = width
        for i, each in enumerate(widths):
            stage = [
                Residual(before if k == 0 else each, each, 1 + (i > 0 and k == 0))
                for k in range(blocks)
            ]
            self.stages.append(nn.Sequential(*stage))
            before = each
        self.heads = nn.ModuleList(nn.Conv2d(each, 4, 1) for each in widths)
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        h, out = self.stem(x), torch.zeros(())
        for stage, head in zip(self.stages, self.heads, strict=True):
            for block in stage:
                h = run(block, h, self.checkpointed)
            up = head(h)
            if up.shape[-2:] != x.shape[-2:]:
                up = nn.functional.interpolate(up, x.shape[-2:], mode="bilinear")
            out = out + up
        return out


class Emulator(nn.Module):
    """The toolkit's own residual network, periodic in x: pre-activation blocks with GELU."""

    def __init__(self, width: int, blocks: int, checkpointed: bool = False) -> None:
        super().__init__()
        net = emulation.ResNet(4, 4, ["circular", "zeros"], width=width, blocks=blocks)
        self.stem, self.body, self.act, self.head = net.stem, net.body, net.act, net.head
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for block in self.body:
            h = run(block, h, self.checkpointed)
        return self.head(self.act(h))


class UNet3d(nn.Module):
    """A 3-D U-Net of three levels, convolution and GELU (Çiçek et al. 2016)."""

    def __init__(self, width: int, blocks: int, checkpointed: bool = False) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width]

        def level(inputs: int, outputs: int) -> nn.Sequential:
            layers: list[nn.Module] = []
            for k in range(blocks):
                layers += [nn.Conv3d(inputs if k == 0 else outputs, outputs, 3, 1, 1), nn.GELU()]
            return nn.Sequential(*layers)

        self.down = nn.ModuleList(
            level(a, b) for a, b in zip([4, *widths[:-1]], widths, strict=True)
        )
        joined = ((widths[2], widths[1]), (widths[1], widths[0]))
        self.up = nn.ModuleList(level(a + b, b) for a, b in joined)
        self.head = nn.Conv3d(width, 4, 1)
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for i, part in enumerate(self.down):
            x = run(part, nn.functional.avg_pool3d(x, 2) if i else x, self.checkpointed)
            skips.append(x)
        for part, skip in zip(self.up, (skips[1], skips[0]), strict=True):
            x = nn.functional.interpolate(x, skip.shape[2:], mode="nearest")
            x = run(part, torch.cat([x, skip], 1), self.checkpointed)
        return self.head(x)


class ResNet18(nn.Module):
    """ResNet-18 with batch normalisation (He et al. 2016) for images of 64 x 64."""

    def __init__(self, width: int, blocks: int, checkpointed: bool = False) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(4, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        widths = [width, *(width << i for i in range(4) for _ in range(blocks))]
        self.body = nn.ModuleList(
            Residual(a, b, 1 if a == b else 2) for a, b in itertools.pairwise(widths)
        )
        self.head = nn.Linear(widths[-1], 10)
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        h = run(self.stem, x, self.checkpointed)
        for block in self.body:
            h = run(block, h, self.checkpointed)
        return self.head(h.mean((2, 3)))


class Transformer(nn.Module):
    """Encoder layers of width 192 with dropout, normalisation first, over 256 tokens."""

    def __init__(self, width: int, blocks: int, checkpointed: bool = False) -> None:
        super().__init__()
        self.stem = nn.Linear(4, width)
        self.body = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 6, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(blocks)
        )
        self.head = nn.Linear(width, 4)
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for block in self.body:
            h = run(block, h, self.checkpointed)
        return self.head(h)


def run(part: nn.Module, x: Tensor, checkpointed: bool) -> Tensor:
    return checkpoint(part, x, use_reentrant=False) if checkpointed else part(x)


KINDS = {
    "emulator": Emulator,
    "resnet": ResNet,
    "unet3d": UNet3d,
    "resnet18": ResNet18,
    "transformer": Transformer,
}


class Regression:
    """Mean squared error; `context` surrounds the forward pass. Fulfils `contracts.Task`."""

    def __init__(self, model: nn.Module, context=contextlib.nullcontext) -> None:
        self.model, self.context = model, context

    def loss(self, batch):
        with self.context():
            return (self.model(batch["x"]) - batch["y"]).square().mean(), {}

    def metrics(self, batch):
        return {"loss": (self.model(batch["x"]) - batch["y"]).square().mean()}

    def batch_size(self, batch):
        return len(batch["x"])


class Quantised:
    """ActNN's scheme (Chen et al. 2021, arXiv:2104.14129) for the saved tensors of any network.

    Groups of 256 values, each with its least value and range in bfloat16, rounded stochastically
    to 2 or 4 bits; ReLU's output keeps its sign as there. A tensor saved twice is stored once.
    """

    def __init__(self, model: nn.Module, bits: int) -> None:
        self.bits, self.chance = bits, torch.Generator()
        self.known = {p.untyped_storage()._cdata for p in model.parameters()}
        self.seen: dict = {}

    def context(self):
        self.seen.clear()
        return saved_tensors_hooks(self.pack, self.unpack)

    def pack(self, x: Tensor):
        if (
            x.numel() < 4096
            or not x.is_floating_point()
            or (x.untyped_storage()._cdata in self.known)
        ):
            return x if x.is_leaf else x.detach()
        key = (x.data_ptr(), x.shape, x._version)
        found = self.seen.get(key)
        if found is None or found[0]() is None:
            found = self.seen[key] = (weak(x), self.encode(x.detach(), self.bits))
        return found[1]

    def encode(self, x: Tensor, bits: int):
        flat = x.contiguous().reshape(-1)
        groups = nn.functional.pad(flat, (0, -len(flat) % GROUP)).view(-1, GROUP)
        low = groups.amin(1, keepdim=True).bfloat16()
        low = torch.where(low.float() > groups.amin(1, keepdim=True), low - low.abs() / 128, low)
        top = (1 << bits) - 1
        span = ((groups.amax(1, keepdim=True) - low) * 1.008 + 1e-20).bfloat16()
        codes = groups.sub(low).mul_(top / span.float())
        # From a separate generator, so that dropout draws the same numbers with any store.
        codes = codes.add_(torch.rand(codes.shape, generator=self.chance)).clamp_(0, top).byte()
        packed = torch.zeros(len(codes), GROUP * bits // 8, dtype=torch.uint8)
        each = 8 // bits
        for i in range(each):
            packed |= codes[:, i::each] << (i * bits)
        return packed, low, span, x.shape, bits

    def unpack(self, kept):
        if isinstance(kept, Tensor):
            return kept
        packed, low, span, shape, bits = kept
        each, top = 8 // bits, (1 << bits) - 1
        out = torch.empty(len(packed), GROUP)
        for i in range(each):
            out[:, i::each] = (packed >> (i * bits)) & top
        out = out.mul_(span.float() / top).add_(low)
        return out.reshape(-1)[: shape.numel()].view(shape)


class Adapted(Quantised):
    """GACT's scheme (Liu et al. 2022, arXiv:2206.11357): bits of each tensor by its sensitivity.

    The sensitivity is the largest squared difference of gradients with one bit twice, rounded with
    other random numbers, and with eight. From eight bits each, the tensor whose fewer bits cost
    the least variance per bit saved loses some, until the average is reached. Its package needs
    CUDA, also to build; here it shares groups and rounding with `Quantised`.
    """

    def __init__(self, model: nn.Module, average: float) -> None:
        super().__init__(model, 4)
        self.average, self.at = average, 0
        self.allotted: list[int] = []
        self.sizes: list[int] = []
        self.other = -1  # number of the tensor that is rounded with other random numbers

    def context(self):
        self.at = 0
        return super().context()

    def encode(self, x: Tensor, bits: int):
        number, self.at = self.at, self.at + 1
        if number == len(self.allotted):
            self.allotted.append(bits)
            self.sizes.append(x.numel())
        self.chance.manual_seed(2 * number + (number == self.other))
        return super().encode(x, self.allotted[number])

    def adapt(self, gradients) -> None:
        """Choose the bits; `gradients` runs a step and returns its gradients as one vector."""
        gradients()
        sensitivity = []
        for number, before in enumerate(self.allotted):
            self.allotted[number] = 1
            once, self.other = gradients(), number
            twice, self.other = gradients(), -1
            self.allotted[number] = 8
            fine = gradients()
            pairs = ((once, twice, 1), (once, fine, 2), (twice, fine, 2))
            sensitivity.append(max(t * float((a - b).square().sum()) for a, b, t in pairs))
            self.allotted[number] = before
        self.allotted = [8] * len(self.sizes)
        total = sum(self.sizes)

        def cost(number: int) -> float:
            bits = self.allotted[number]
            if bits == 1:
                return float("inf")
            fewer = bits // 2
            more = sensitivity[number] * (4.0 ** (1 - fewer) - 4.0 ** (1 - bits))
            return more / (self.sizes[number] * (bits - fewer))

        while sum(b * n for b, n in zip(self.allotted, self.sizes, strict=True)) > (
            self.average * total
        ):
            least = min(range(len(self.sizes)), key=cost)
            self.allotted[least] //= 2


def weak(x: Tensor):
    from torch.multiprocessing.reductions import StorageWeakRef

    reference = StorageWeakRef(x.untyped_storage())
    return lambda: None if reference.expired() else reference
