"""GWLZ's group-wise enhancers: one light network a value range of the decoded field.

A network sees the differences of a point to its 26 neighbours and to the six at distance two, in
units of the error bound, and predicts the error of the base codec there: a sparse 5 x 5 x 5
convolution, a hidden layer and an output, evaluated by fused C. Groups come from the decoded
field and cost no bits. Networks are trained on the field itself while it is compressed (they
travel with it, so nothing has to generalise), start as "no correction" because the last layer is
zero, and are quantised before anything is verified. They are used when they gain more than their
bytes cost.

Source: Jia et al. 2024, arXiv:2404.13470 (group-wise enhancers, residual learning).
"""

from __future__ import annotations

import ctypes
import functools
import struct
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.compression import dyadic
from scitoolkit.compression.enhancers._network_source import SOURCE
from scitoolkit.compression.enhancers.base import Enhancer
from scitoolkit.compression.kernel_arguments import extents, folded, pointer, real
from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import DataError, NumericalError
from scitoolkit.io.loader import ArraySource, BatchLoader
from scitoolkit.ops.codegen import load_library
from scitoolkit.training import Trainer
from scitoolkit.training.config import TrainingConfig

INPUTS = 32
MAX_GROUPS, MAX_HIDDEN = 16, 64
SAMPLES = 1 << 17
BATCH = 2048
LEAST_STEPS = 50
# (groups, hidden width) by number of points: small fields cannot carry large networks.
SIZES = ((1 << 16, ((1, 4),)), (1 << 20, ((1, 8), (2, 12))), (1 << 62, ((2, 12),)))


class Network(Enhancer):
    """One light network a value range of the decoded field, trained on the field itself."""

    name: Literal["network"] = "network"
    trained: ClassVar[bool] = True

    @classmethod
    def unavailable(cls) -> str:
        """Return why the kernels cannot be compiled, "" if they can."""
        return dyadic.unavailable()

    def sizes(self, num_points: int) -> Sequence[tuple[int, int]]:
        """Return (groups, hidden width)."""
        return next(sizes for limit, sizes in SIZES if num_points <= limit)

    def fit(
        self,
        values: np.ndarray,
        decoded: np.ndarray,
        error_bound: float,
        size: Hashable,
        seconds: float,
    ) -> bytes | None:
        """Return trained and quantised weights, None when training diverged."""
        groups, hidden = cast(tuple[int, int], size)
        trained = train(values, decoded, error_bound, groups, hidden, seconds)
        return None if trained is None else trained.to_bytes()

    def apply(
        self, data: bytes | memoryview, decoded: np.ndarray, error_bound: float, clip: float
    ) -> np.ndarray:
        """Return the field with each point's predicted error taken off."""
        return GroupWeights.from_bytes(data).apply(decoded, error_bound, clip)


class GroupNetworks(nn.Module):
    """One two-layer network a group, evaluated together on (samples, groups, 32)."""

    def __init__(self, groups: int, hidden: int) -> None:
        super().__init__()
        self.first: nn.Parameter = nn.Parameter(
            torch.randn(groups, hidden, INPUTS) * (2 / INPUTS) ** 0.5
        )
        self.bias: nn.Parameter = nn.Parameter(torch.zeros(groups, hidden))
        self.second: nn.Parameter = nn.Parameter(torch.zeros(groups, hidden))

    def forward(self, stencils: Tensor) -> Tensor:
        """Return corrections (samples, groups) in units of the bound."""
        states = torch.einsum("ngk,ghk->ngh", stencils, self.first) + self.bias
        return (states.relu() * self.second).sum(-1)


class ResidualTask:
    """Predict the base codec's error; fulfils `contracts.Task`."""

    def __init__(self, model: GroupNetworks) -> None:
        self.model: nn.Module = model

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor | float]]:
        """Return the mean square error in squared bounds."""
        return (self.model(batch["stencils"]) - batch["errors"]).square().mean(), {}

    def metrics(self, batch: Batch) -> dict[str, Tensor | float]:
        """Return the loss."""
        return {"loss": self.loss(batch)[0]}

    def batch_size(self, batch: Batch) -> int:
        """Return the number of samples."""
        return len(batch["errors"])


@dataclass(frozen=True)
class GroupWeights:
    """Quantised weights of all groups.

    Attributes:
        limits: (G - 1,) ascending float32: a point belongs to the group between two of them.
        first: (G, H, 32) int8, second: (G, H) int8, bias: (G, H) int8.
        scales: (3,) float32, the unit of each of the three.
    """

    limits: np.ndarray
    first: np.ndarray
    bias: np.ndarray
    second: np.ndarray
    scales: np.ndarray

    def apply(self, decoded: np.ndarray, bound: float, clip: float) -> np.ndarray:
        """Return the enhanced field; no point moves by more than `clip`."""
        out, shape = np.empty_like(decoded), folded(decoded.shape)
        units = self.scales.astype(decoded.dtype)
        arrays = [
            np.ascontiguousarray(part.astype(decoded.dtype) * unit)
            for part, unit in zip((self.first, self.bias, self.second), units, strict=True)
        ]
        limits = self.limits.astype(decoded.dtype)
        groups, hidden = self.bias.shape
        status = _library(decoded.dtype).network_apply(
            pointer(extents(shape)), pointer(decoded), ctypes.c_double(1 / bound),
            pointer(limits), ctypes.c_int64(groups), ctypes.c_int64(hidden), pointer(arrays[0]),
            pointer(arrays[1]), pointer(arrays[2]), ctypes.c_double(clip), pointer(out),
        )  # fmt: skip
        if status:
            raise MemoryError
        return out

    def to_bytes(self) -> bytes:
        """Return the little-endian form: extents, scales, limits, weights."""
        groups, hidden = self.bias.shape
        parts = (self.scales.astype("<f4"), self.limits.astype("<f4"),
                 self.first, self.bias, self.second)  # fmt: skip
        return struct.pack("<BB", groups, hidden) + b"".join(p.tobytes() for p in parts)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> GroupWeights:
        """Return the enhancer that `to_bytes` wrote.

        Raises:
            DataError: the data does not have the length that its first bytes say.
        """
        data = bytes(data)
        groups, hidden = (data[0], data[1]) if len(data) > 1 else (0, 0)
        start = 2 + 12 + 4 * (groups - 1)
        sizes = (groups * hidden * INPUTS, groups * hidden, groups * hidden)
        fits = 1 <= groups <= MAX_GROUPS and 1 <= hidden <= MAX_HIDDEN
        if not fits or len(data) != start + sum(sizes):
            raise DataError("damaged stream: the networks have another length")
        scales = np.frombuffer(data, "<f4", 3, 2)
        limits = np.frombuffer(data, "<f4", groups - 1, 14)
        first, bias, second = np.split(
            np.frombuffer(data, np.int8, -1, start), np.cumsum(sizes)[:2]
        )
        return cls(
            limits, first.reshape(groups, hidden, INPUTS), bias.reshape(groups, hidden),
            second.reshape(groups, hidden), scales,
        )  # fmt: skip


def train(
    values: np.ndarray, decoded: np.ndarray, bound: float, groups: int, hidden: int, seconds: float
) -> GroupWeights | None:
    """Return trained and quantised networks, or None when training diverged.

    Args:
        values: the original field.
        decoded: what the base decodes to.
        bound: absolute error bound, the unit of inputs and outputs.
        groups: value ranges of equal population.
        hidden: width of the hidden layer.
        seconds: time for training.
    """
    limits, stencils, errors = _samples(values, decoded, bound, groups)
    devices = torch.random.fork_rng(devices=[])
    with devices:
        torch.manual_seed(0)
        task = ResidualTask(GroupNetworks(len(limits) + 1, hidden))
    loader = BatchLoader(ArraySource({"stencils": stencils, "errors": errors}), BATCH, seed=0)
    config = TrainingConfig(
        steps=_steps(task, stencils, errors, seconds), batch_size=BATCH, progress=False,
        optimizer={"name": "adam", "lr": 1e-2}, schedule={"name": "cosine"}, strategy="single",
        device="cpu",
    )  # fmt: skip
    try:
        Trainer(task, config).fit(loader)
    except NumericalError:
        return None
    parts = [p.detach().numpy() for p in (task.model.first, task.model.bias, task.model.second)]  # type: ignore[operator]
    if not all(np.isfinite(p).all() for p in parts):
        return None
    scales = np.array([max(float(np.abs(p).max()), 1e-12) / 127 for p in parts], np.float32)
    first, bias, second = (
        np.rint(p / s).astype(np.int8) for p, s in zip(parts, scales, strict=True)
    )
    return GroupWeights(limits, first, bias, second, scales)


def _steps(task: ResidualTask, stencils: np.ndarray, errors: np.ndarray, seconds: float) -> int:
    """Return how many steps fit into the time, from a few timed passes."""
    batch = {
        "stencils": torch.from_numpy(stencils[:BATCH]), "errors": torch.from_numpy(errors[:BATCH])
    }  # fmt: skip
    passes, start = 5, time.perf_counter()
    for _ in range(passes):
        task.loss(batch)[0].backward()
    task.model.zero_grad()
    # An optimizer step and the loader take about as long as the passes of so small a network.
    per_step = 2 * (time.perf_counter() - start) / passes
    return max(int(seconds / per_step), LEAST_STEPS)


def _samples(
    values: np.ndarray, decoded: np.ndarray, bound: float, groups: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return limits, stencils (N, G, 32) and errors (N, G) of rows spread over the field."""
    shape = folded(values.shape)
    num_rows, width = shape[0] * shape[1], shape[2]
    wanted = min(max(SAMPLES // width, 1), num_rows)
    rows = np.unique(np.linspace(0, num_rows - 1, wanted).astype(np.int64))
    stencils = np.empty((len(rows) * width, INPUTS), np.float32)
    status = _library(decoded.dtype).network_gather(
        pointer(extents(shape)), pointer(decoded), ctypes.c_double(1 / bound),
        ctypes.c_int64(len(rows)), pointer(rows), pointer(stencils),
    )  # fmt: skip
    if status:
        raise MemoryError
    seen = decoded.reshape(num_rows, width)[rows].reshape(-1)
    errors = (values.reshape(num_rows, width)[rows].reshape(-1) - seen) / bound
    shares = np.arange(1, groups) / groups
    limits = np.unique(np.quantile(seen, shares).astype(np.float32))
    group = np.searchsorted(limits, seen, side="right")
    rng = np.random.default_rng(0)
    count = len(seen) // (len(limits) + 1)
    members = [np.flatnonzero(group == g) for g in range(len(limits) + 1)]
    chosen = [rng.choice(m if m.size else np.arange(len(seen)), count) for m in members]
    order = np.stack(chosen, axis=1)
    return limits, stencils[order], errors[order].astype(np.float32)


@functools.cache
def _compiled(real: str) -> ctypes.CDLL:
    fused = {"float": "__builtin_fmaf", "double": "__builtin_fma"}[real]
    source = f"#define REAL {real}\n#define FUSED {fused}\n{SOURCE}"
    library = load_library(source, dyadic.FLAGS)
    library.network_gather.restype = library.network_apply.restype = ctypes.c_int64
    return library


def _library(dtype: np.dtype) -> ctypes.CDLL:
    return _compiled(real(dtype))
