"""Checks of guards against the data of a job, and proposals of guards that the data satisfy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.job import Finding
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import Data
from scitoolkit.emulation.emulator import grid_of
from scitoolkit.emulation.guards.proposals import deviation, proposals, written
from scitoolkit.emulation.streaming import split_of
from scitoolkit.io.campaign.headers import full_name
from scitoolkit.io.campaign.parameters import parameter_values
from scitoolkit.io.campaign.split import SplitRows, split_campaign
from scitoolkit.io.meanings import without_mean

MAX_FRAMES = 8
JUMP = 4.0
"""Largest change across the ends of a periodic dim, relative to that between neighbours."""


def frames_of(data: Data, blocks: Sequence[range], lead: int) -> dict[str, np.ndarray]:
    """Return consecutive frames of the output fields from the longest block of a split."""
    block = max(blocks, key=len)
    rows = np.arange(block.start, block.stop)[:: max(lead, 1)][:MAX_FRAMES]
    read = data.source(np.arange(data.num_samples), [0]).read(rows)
    names = [v.name for v in data.layout.outputs if v.is_field]
    return {n: read[n][:, 0] for n in names}


def training_part(config: EmulationConfig, data: Data) -> SplitRows:
    """Return the splits of the samples of a job."""
    split, campaign = split_of(config), data.campaign
    name = split.parameter
    values = None
    if name is not None:
        values = parameter_values(campaign, name, config.data.parameter_table)
    window = config.data.samples_before + config.data.lead + 1
    own, index = data.own_simulations, campaign.index
    parts = split_campaign(
        index if own is None else index.first(own),
        window,
        split,
        own_test=config.data.test is None,
        parameter=None if values is None else values[:own],
    )
    for simulation in data.replayed:
        parts["train"] += index.within_simulations(index.blocks[simulation])
    return parts


def refuse_broken_guards(config: EmulationConfig, data: Data, blocks: Sequence[range]) -> None:
    """Check that the data satisfy all guards.

    Raises:
        ConfigError: a guard changes the data by more than its tolerance.
    """
    broken = [f for f in check_guards(config, data, blocks) if f.level == "error"]
    if broken:
        raise ConfigError(broken[0].message, where=broken[0].key, fix="leave it out, or correct it")


def check_guards(config: EmulationConfig, data: Data, blocks: Sequence[range]) -> list[Finding]:
    """Return a finding for each guard: how much it changes the training data."""
    if not config.guards or not len(blocks):
        return []
    frames, grid = frames_of(data, blocks, config.data.lead), grid_of(config, data.layout)
    findings = []
    for position, guard in enumerate(config.guards):
        changes = {n: c for n, c in deviation(guard, frames, grid).items() if c > 1e-6}
        worst = max(changes.values(), default=0.0)
        text = ", ".join(f"{n} {c:.2g}" for n, c in sorted(changes.items())) or "nothing"
        message = f"{guard.name} changes the training data: {text} of a typical step"
        if worst > guard.tolerance:
            message += f", more than {guard.tolerance:g}: the data break it"
        level = "error" if worst > guard.tolerance else "note"
        findings.append(Finding(message, f"guards.{position}", level))  # type: ignore[arg-type]
    return findings


def propose(config: EmulationConfig, data: Data, blocks: Sequence[range]) -> list[Finding]:
    """Return a note for each invariant that the data satisfy and no guard enforces."""
    if not config.data.lead or not len(blocks) or not data.layout.state or data.layout.mask:
        return []
    frames, grid = frames_of(data, blocks, config.data.lead), grid_of(config, data.layout)
    enforced = {guard.name for guard in config.guards}
    return [
        Finding(
            f"the training data satisfy {written(guard)}, which predictions satisfy too if listed",
            "guards",
            "note",
        )
        for guard in proposals(frames, grid)
        if guard.name not in enforced
    ]


def unread_walls(config: EmulationConfig, data: Data, blocks: Sequence[range]) -> list[Finding]:
    """Return a warning for each dim that is declared periodic but jumps across its ends."""
    findings: list[Finding] = []
    if data.layout.mask:
        return findings
    frames = frames_of(data, blocks, config.data.lead)
    for position, dim in enumerate(data.layout.grid, start=1):
        if config.boundary.get(dim) != "circular":
            continue
        jumps = {n: _jump(np.moveaxis(v, position, -1)) for n, v in frames.items()}
        name = max(jumps, key=lambda n: jumps[n], default="")
        if name and jumps[name] > JUMP:
            message = (
                f"declared circular, but between the last point and the first {name} jumps "
                f"{jumps[name]:.1f} times as far as between neighbours: a wall?"
            )
            findings.append(Finding(message, f"boundary.{dim}", "warning"))
    return findings


def no_quantities(data: Data) -> list[Finding]:
    """Return a warning for each output whose numbers are codes or angles."""
    header = data.campaign.segments.header(0)
    group = data.campaign.segments.groups[data.campaign.segments.group[0]]
    findings = []
    for variable in data.layout.outputs:
        channel = data.campaign.channels[variable.name]
        stored = header.get(full_name(group, channel.array.path))
        if stored is not None and (problem := without_mean(stored.attrs)):
            findings.append(Finding(problem, f"data.outputs, {variable.name}", "warning"))
    return findings


def refuse_repeated_ends(config: EmulationConfig, data: Data, blocks: Sequence[range]) -> None:
    """Check that a periodic dim is stored without the point that repeats its first one.

    Raises:
        DataError: the last cells of all fields equal the first ones in all samples that are read.
    """
    periodic = [d for d in data.layout.grid if config.boundary.get(d) == "circular"]
    if not periodic or data.layout.mask or not len(blocks):
        return
    frames = frames_of(data, blocks, config.data.lead)
    for position, dim in enumerate(data.layout.grid, start=1):
        if dim not in periodic or data.layout.grid[dim] < 4:
            continue
        fields = [np.moveaxis(v, position, -1) for v in frames.values()]
        varied = [v for v in fields if np.ptp(v[..., 0]) > 1e-3 * np.ptp(v)]
        # Fields that are mirror images of themselves have equal ends, too.
        mirrored = all(np.array_equal(v, v[..., ::-1]) for v in varied)
        if varied and not mirrored and all(_ends_equal(v) for v in varied):
            raise DataError(
                f"dim {dim} is circular, and its last cells equal its first ones",
                where=data.where,
                allowed="each point of a period once",
                fix=f"leave the last entry out: ds.isel({dim}=slice(-1))",
            )


def _ends_equal(values: np.ndarray) -> bool:
    """Return whether the last entries equal the first ones, up to rounding."""
    tolerance = 1e-5 * float(np.ptp(values))
    return bool((np.abs(values[..., 0] - values[..., -1]) <= tolerance).all())


def _jump(values: np.ndarray) -> float:
    """Return the rms change across the ends over the rms change between neighbours."""
    across = float(np.sqrt(np.mean((values[..., 0] - values[..., -1]) ** 2)))
    within = float(np.sqrt(np.mean(np.diff(values, axis=-1) ** 2)))
    return across / max(within, 1e-30)
