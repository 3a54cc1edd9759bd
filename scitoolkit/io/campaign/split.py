"""Train, validation and test parts of a campaign, by simulation, time or parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from scitoolkit.core.config import refuse_unused
from scitoolkit.core.errors import ConfigError
from scitoolkit.io.campaign.index import SampleIndex
from scitoolkit.io.split import SPLITS, SplitConfig, blocked_split

SplitRows = dict[str, list[range]]
_DATES = ("validation_start", "test_start")


class CampaignSplit(SplitConfig):
    """Split of a campaign, in the order train, validation, test.

    Attributes:
        by: `simulation`: sizes are fractions or numbers of simulations, in the order of the files;
            `time`: each simulation is divided along its rows; `parameter`: by the ranges below;
            `auto`: by simulation if there are several, else by time.
        parameter: a number that each simulation has, as in `data.parameters`.
        test_range: [low, high] of the parameter, ends included, of the simulations in the test
            part. A range between those of the others tests interpolation, one at the end
            extrapolation.
        validation_range: likewise for validation; without it, `validation` is the share of the
            remaining simulations.
    """

    by: Literal["auto", "simulation", "time", "parameter"] = "auto"
    parameter: str | None = None
    test_range: tuple[float, float] | None = None
    validation_range: tuple[float, float] | None = None

    @model_validator(mode="after")
    def _ranges_of_a_parameter(self) -> Self:
        by_parameter = self.by == "parameter"
        if by_parameter != (self.parameter is not None):
            raise ValueError("split.by: parameter and split.parameter require each other")
        for name in ("test_range", "validation_range"):
            limits = getattr(self, name)
            if limits is not None and not by_parameter:
                raise ValueError(f"split.{name} requires split.by: parameter")
            if limits is not None and limits[0] > limits[1]:
                raise ValueError(f"split.{name} {list(limits)} is empty")
        if not by_parameter:
            return self
        if self.test_range is None and self.validation_range is None:
            raise ValueError(
                "split.by: parameter requires split.test_range or split.validation_range"
            )
        sizes = ("train", "validation", "test") if self.validation_range else ("test",)
        refuse_unused(self, "a range of the parameter", *sizes, "gap", *_DATES)
        return self


def split_campaign(
    index: SampleIndex,
    window: int,
    config: CampaignSplit,
    *,
    own_test: bool,
    parameter: np.ndarray | None = None,
) -> SplitRows:
    """Return the rows of each part as disjoint ranges of one simulation without missing times.

    Args:
        index: of the campaign.
        window: number of rows spanned by a training window.
        config: the split.
        own_test: whether the test part is taken from these files.
        parameter: (simulations,) values of `config.parameter`.

    Raises:
        ConfigError: a part has no complete window, or there are fewer simulations than parts.

    Example:
        >>> index = SampleIndex([0, 1, 2, 3], [5, 5, 5, 5])
        >>> split_campaign(index, 2, CampaignSplit(), own_test=True)["test"]
        [range(15, 20)]
    """
    parts = _split(index, window, config, own_test, parameter)
    return {
        name: [piece for block in blocks for piece in index.within_simulations(block)]
        for name, blocks in parts.items()
    }


def _split(
    index: SampleIndex,
    window: int,
    config: CampaignSplit,
    own_test: bool,
    parameter: np.ndarray | None,
) -> SplitRows:
    if not own_test and config.test:
        config = config.model_copy(update={"test": 0})
    by_simulation = index.num_simulations > 1 if config.by == "auto" else config.by == "simulation"
    if config.name == "random":
        raise ConfigError("a random split", where="split.name", allowed="blocked")
    if config.by == "parameter":
        assert parameter is not None
        return _by_parameter(index, config, parameter, own_test=own_test)
    return _by_simulation(index, config) if by_simulation else _by_time(index, window, config)


def _by_time(index: SampleIndex, window: int, config: CampaignSplit) -> SplitRows:
    parts: SplitRows = {name: [] for name in SPLITS}
    for block in index.blocks:
        # Between parts window - 1 rows are left out: no window of one part has a row of another.
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
            "gap and dates apply to a split in time, not by simulation",
            where="split",
            fix="split.by=time, to divide every simulation in time",
        )
    counts = _counts(index.num_simulations, [config.train, config.validation, config.test])
    edges = np.concatenate([[0], np.cumsum(counts)])
    blocks = index.blocks
    return {name: blocks[a:b] for name, a, b in zip(SPLITS, edges[:-1], edges[1:], strict=True)}


def _by_parameter(
    index: SampleIndex, config: CampaignSplit, values: np.ndarray, *, own_test: bool
) -> SplitRows:
    def within(limits: tuple[float, float] | None) -> np.ndarray:
        low, high = limits or (np.inf, -np.inf)
        return (values >= low) & (values <= high)

    test, validation = within(config.test_range), within(config.validation_range)
    if (both := test & validation).any():
        raise ConfigError(
            f"{config.parameter} = {values[np.argmax(both)]:g} is in both ranges",
            where="split.test_range, split.validation_range",
        )
    if not own_test:
        test[:] = False
    rest = np.flatnonzero(~test & ~validation)
    chosen = {"test": np.flatnonzero(test), "validation": np.flatnonzero(validation)}
    if config.validation_range is None:
        train, some, _ = _counts(len(rest), _shares_of_rest(config.train, config.validation))
        chosen["validation"], rest = rest[train : train + some], rest[:train]
    for name, limits in (
        ("test", config.test_range if own_test else None),
        ("validation", config.validation_range),
    ):
        if limits is not None and not len(chosen[name]):
            raise ConfigError(
                f"no simulation has {config.parameter} in {list(limits)}",
                where=f"split.{name}_range",
                allowed=f"{values.min():g} to {values.max():g}",
            )
    if not len(rest):
        raise ConfigError("no simulation is left to train on", where="split")
    chosen["train"] = rest
    return {name: [index.blocks[int(i)] for i in chosen[name]] for name in SPLITS}


def _shares_of_rest(train: float | int, validation: float | int) -> list[float | int]:
    """Return the sizes of train and validation; fractions are scaled to a sum of 1."""
    if isinstance(train, int) or isinstance(validation, int):
        return [train, validation, 0]
    share = validation / (train + validation)
    return [1.0 - share, share, 0]


def _counts(total: int, wanted: Sequence[float | int]) -> list[int]:
    """Return the number of simulations of each part; at least one for parts of nonzero size."""
    # 0.29 * 100 is 28.999999999999996: a small number more keeps whole shares whole.
    counts = [w if isinstance(w, int) else int(w * total + 1e-9) for w in wanted]
    shares = [isinstance(w, float) and w > 0 for w in wanted]
    counts = [max(c, 1) if share else c for c, share in zip(counts, shares, strict=True)]
    whole = all(shares[i] or not wanted[i] for i in range(3)) and sum(wanted) > 1 - 1e-9
    if (whole and sum(counts) != total) or sum(counts) > total:
        # The training part absorbs the rounding.
        counts[0] += total - sum(counts) if shares[0] else 0
    if sum(counts) > total or counts[0] < 1:
        parts = sum(1 for w in wanted if w)
        raise ConfigError(
            f"{parts} parts of {total} simulations ({', '.join(map(str, wanted))})",
            where="split",
            allowed=f"at most {total} simulations in all",
            fix="split.by=time, to divide every simulation in time",
        )
    return counts
