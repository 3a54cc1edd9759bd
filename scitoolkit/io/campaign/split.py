"""Train, validation and test parts of a campaign: whole simulations, or blocks of time in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.io.campaign.index import SampleIndex
from scitoolkit.io.split import SPLITS, SplitConfig, blocked_split

SplitRows = dict[str, list[range]]


class CampaignSplit(SplitConfig):
    """How a campaign is divided, in the order train, validation, test.

    Attributes:
        by: `simulation`: sizes are fractions or numbers of simulations, in the order of the files;
            `time`: each simulation is divided along its rows; `auto`: by simulation where there
            are several.
    """

    by: Literal["auto", "simulation", "time"] = "auto"


def split_campaign(
    index: SampleIndex, window: int, config: CampaignSplit, *, own_test: bool
) -> SplitRows:
    """Return the rows of each part as ranges, each within one simulation; no two parts share one.

    Args:
        index: the campaign.
        window: rows that one training window spans.
        config: the division.
        own_test: whether the test part is in these files.

    Raises:
        ConfigError: a part has no whole window, or there are fewer simulations than parts.

    Example:
        >>> index = SampleIndex([0, 1, 2, 3], [5, 5, 5, 5])
        >>> split_campaign(index, 2, CampaignSplit(), own_test=True)["test"]
        [range(15, 20)]
    """
    if not own_test and config.test:
        config = config.model_copy(update={"test": 0})
    by_simulation = index.num_simulations > 1 if config.by == "auto" else config.by == "simulation"
    if config.name == "random":
        raise ConfigError("a random split", where="split.name", allowed="blocked")
    return _by_simulation(index, config) if by_simulation else _by_time(index, window, config)


def _by_time(index: SampleIndex, window: int, config: CampaignSplit) -> SplitRows:
    parts: SplitRows = {name: [] for name in SPLITS}
    for block in index.blocks:
        split = blocked_split(len(block), 1, max(window - 1, 0), config)
        assert split.steps is not None
        for name in SPLITS:
            steps = split.steps[name]
            if len(steps):
                parts[name].append(range(block.start + steps.start, block.start + steps.stop))
    return parts


def _by_simulation(index: SampleIndex, config: CampaignSplit) -> SplitRows:
    if config.gap or config.test_start is not None:
        raise ConfigError(
            "gap and dates divide a simulation in time, not simulations", where="split",
            fix="split.by=time, to divide every simulation in time",
        )  # fmt: skip
    counts = _counts(index.num_simulations, [config.train, config.validation, config.test])
    edges = np.concatenate([[0], np.cumsum(counts)])
    blocks = index.blocks
    return {name: blocks[a:b] for name, a, b in zip(SPLITS, edges[:-1], edges[1:], strict=True)}


def _counts(total: int, wanted: Sequence[float | int]) -> list[int]:
    """Return numbers of simulations: at least one for each part that is wanted."""
    counts = [w if isinstance(w, int) else int(w * total + 1e-9) for w in wanted]
    shares = [isinstance(w, float) and w > 0 for w in wanted]
    counts = [max(c, 1) if share else c for c, share in zip(counts, shares, strict=True)]
    whole = all(shares[i] or not wanted[i] for i in range(3)) and sum(wanted) > 1 - 1e-9
    if (whole and sum(counts) != total) or sum(counts) > total:
        # The first part, training, gives or takes what rounding left.
        counts[0] += total - sum(counts) if shares[0] else 0
    if sum(counts) > total or counts[0] < 1:
        parts = sum(1 for w in wanted if w)
        raise ConfigError(
            f"{parts} parts of {total} simulations ({', '.join(map(str, wanted))})", where="split",
            allowed=f"at most {total} simulations in all",
            fix="split.by=time, to divide every simulation in time",
        )  # fmt: skip
    return counts
