"""Simulations of a job as datasets, and their splits."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xarray as xr

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io.campaign.campaign import open_campaign
from scitoolkit.io.campaign.campaign_layout import TIME, CampaignOptions
from scitoolkit.io.campaign.files import campaign_files
from scitoolkit.io.campaign.headers import read_header
from scitoolkit.io.campaign.leaks import require_no_leak
from scitoolkit.io.campaign.mask import MISSING
from scitoolkit.io.campaign.masking import missing_cells, with_mask
from scitoolkit.io.campaign.more_layouts import layout_of
from scitoolkit.io.campaign.open import OpenCampaign
from scitoolkit.io.campaign.parameters import parameter_values
from scitoolkit.io.campaign.split import SplitRows, split_campaign
from scitoolkit.io.roles import TIME_NAMES
from scitoolkit.io.split import SPLITS
from scitoolkit.superresolution.checking import CheckReport
from scitoolkit.superresolution.config import FieldsConfig, SuperresolutionConfig

_OPENED = 64


@dataclass
class Simulations:
    """Simulations of a campaign as datasets, opened on first use.

    Attributes:
        opened: the campaign.
        in_memory: whether values are loaded and cached.
        where: the files, for messages.
        parts: numbers of the simulations of each part; empty unless opened to train.
        report: the equations on the first training simulation, once they are checked.
    """

    opened: OpenCampaign
    in_memory: bool
    where: str
    parts: dict[str, list[int]] = field(default_factory=dict)
    report: CheckReport | None = None
    _kept: OrderedDict[int, xr.Dataset] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def fields(self) -> list[str]:
        """Names of the fields, one per component of a vector."""
        return list(self.opened.found.channels)

    @property
    def time(self) -> str:
        """The dim along which simulations may differ in length."""
        return self.opened.found.options.sample_dim

    @property
    def blocks(self) -> list[range]:
        """The rows of each simulation."""
        return self.opened.found.index.blocks

    def __len__(self) -> int:
        """Return the number of simulations."""
        return len(self.opened.found.labels)

    def label(self, number: int) -> str:
        """Return the name of a simulation."""
        return self.opened.found.labels[number]

    def dataset(self, number: int) -> xr.Dataset:
        """Return a simulation, with lazy values unless `in_memory`."""
        cached = self._kept.get(number)
        if cached is not None:
            return cached
        made = self.opened.channels(number)
        made = made.load() if self.in_memory else made
        with self._lock:  # the loaders of two parts read in threads
            self._kept[number] = made
            while len(self._kept) > _OPENED and not self.in_memory:
                self._kept.popitem(last=False)
        return made


def open_simulations(
    path: Path | Sequence[Path],
    data: FieldsConfig,
    *,
    fields: Sequence[str] | None = None,
    cache: Path | None = None,
    keep: bool = True,
    learned: bool = True,
) -> Simulations:
    """Open the fields of a job; they are loaded if all of them fit into `max_memory_mib`.

    Args:
        path: a file, a directory, a pattern or a list of files.
        data: the data section.
        fields: names of fields, instead of those of `data`.
        cache: folder of the cached index.
        keep: whether to write a new index there.
        learned: whether this is training data, for which a mask without invalid nodes is an error.

    Raises:
        DataError: a file or field that cannot be read or is inconsistent.
    """
    names = list(fields or data.fields)
    sources = path if isinstance(path, Path) else list(path)
    time = _time_of(sources, data, names[0])
    grid = [d for d in data.dims if d != time] if data.dims else None
    options = CampaignOptions(time, None, grid, data.files, data.pattern, 0, data.on_error)
    stated = [] if data.mask in (None, MISSING) else [data.mask]
    campaign = open_campaign(sources, [*names, *stated], options, cache=cache, keep=keep)
    if data.mask is not None and (learned or stated or missing_cells(campaign)):
        campaign = with_mask(campaign, data.mask, names)
    opened = OpenCampaign(campaign)
    nbytes = campaign.index.num_rows * sum(rows.row_nbytes for rows in opened.rows.values())
    files = campaign.files
    where = str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    return Simulations(opened, nbytes <= data.max_memory_mib * 2**20, where)


def _time_of(path: Path | Sequence[Path], data: FieldsConfig, name: str) -> str:
    """Return the sample dim: time, or the first dim of variables without time."""
    header = read_header(campaign_files(path)[0])
    arrays = layout_of(header).arrays(header, CampaignOptions())
    array = arrays.get(name)
    if data.dims:
        dims = list(data.dims)
    elif array is None:
        return "time"  # opening the campaign says what there is
    else:
        group = layout_of(header).groups(header)[0]
        stored = header.variables[f"{group}/{array.path}" if group else array.path]
        if TIME in array.roles:
            return stored.dims[array.roles.index(TIME)]
        dims = list(stored.dims)
    times = [d for d in dims if d in TIME_NAMES]
    return times[0] if len(times) == 1 else dims[0]


def parts_of(config: SuperresolutionConfig, simulations: Simulations) -> dict[str, list[int]]:
    """Return the numbers of the simulations of each split; without `split` all are for training.

    Raises:
        ConfigError: a split in time, or of a single simulation.
        DataError: copies of a simulation in two splits.
    """
    split, campaign = config.split, simulations.opened.found
    if split is None:
        return {"train": list(range(len(simulations))), "validation": [], "test": []}
    if split.by == "time" or len(simulations) == 1:
        raise ConfigError(
            f"{len(simulations)} simulations, split.by: {split.by}",
            where="split",
            allowed="by: simulation or parameter, with two simulations or more",
            fix="leave split out, and give a test file in data.test",
        )
    values = None
    if split.parameter is not None:
        values = parameter_values(campaign, split.parameter)
    rows: SplitRows = split_campaign(
        campaign.index, 1, split, own_test=config.data.test is None, parameter=values
    )
    require_no_leak(campaign, rows)
    first = {name: np.array([block.start for block in rows[name]], np.int64) for name in SPLITS}
    return {name: campaign.index.simulation_of(first[name]).tolist() for name in SPLITS}


def require_alone(simulations: Simulations) -> xr.Dataset:
    """Return the only simulation.

    Raises:
        DataError: there are several.
    """
    if len(simulations) > 1:
        raise DataError(
            f"{len(simulations)} simulations",
            where=simulations.where,
            allowed="one",
            fix="give the file of one simulation",
        )
    return simulations.dataset(0)
