"""Detection of masks in the files of a campaign, and validation of every row against them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.campaign import Campaign
from scitoolkit.io.campaign.campaign_layout import TIME
from scitoolkit.io.campaign.channels import Channel
from scitoolkit.io.campaign.mask import MISSING, Mask
from scitoolkit.io.campaign.rows import Rows, row_sets

_NAME_ONE = "data.mask=NAME of a variable without time that is 1 where values are valid"


def with_mask(campaign: Campaign, name: str, variables: Sequence[str]) -> Campaign:
    """Return a campaign with a mask; values of fields in invalid cells are read as 0.

    Args:
        campaign: opened with `variables` and the mask variable, if any.
        name: `missing`, or the mask variable.
        variables: names of the fields.

    Raises:
        DataError: no cell is missing, or the variable is not a valid mask.
    """
    names = {n: c for n, c in campaign.names.items() if n in variables}
    names_of_channels = {c for channels in names.values() for c in channels}
    fields = replace(
        campaign,
        names=names,
        channels={n: c for n, c in campaign.channels.items() if n in names_of_channels},
    )
    dims = max((c.dims for c in fields.channels.values()), key=len)
    dims = tuple(campaign.options.grid or dims)
    if name == MISSING:
        return replace(fields, mask=_missing(fields, dims))
    alone = replace(
        campaign,
        names={name: campaign.names[name]},
        channels={c: campaign.channels[c] for c in campaign.names[name]},
    )
    return replace(fields, mask=_stated(alone, name, dims))


def missing_cells(campaign: Campaign) -> bool:
    """Return whether a field has missing cells in the campaign's first row."""
    return any(not valid.all() for _, valid in _first_rows(campaign))


def _first_rows(campaign: Campaign) -> list[tuple[Channel, np.ndarray]]:
    """Return each channel of the files with a mask of its finite cells in the first row."""
    sets = row_sets(campaign)
    return [
        (c, np.isfinite(sets[path].channel(sets[path].members([0], 0, 1)[0], c)[0]))
        for path, channels in campaign.arrays.items()
        if path not in campaign.unstored
        for c in channels
    ]


def _missing(campaign: Campaign, dims: tuple[str, ...]) -> Mask:
    incomplete = {
        c.name: valid.transpose([c.dims.index(d) for d in dims])
        for c, valid in _first_rows(campaign)
        if set(c.dims) == set(dims) and not valid.all()
    }
    where = f"{campaign.where(0)}: data.mask"
    if not incomplete:
        raise DataError(
            "no cell is missing", where=where, fix=f"leave data.mask out, or {_NAME_ONE}"
        )
    first, valid = next(iter(incomplete.items()))
    # Invalid cells of all channels become 0 by one mask, so that it must be exact for each of them.
    for name, other in incomplete.items():
        if (other != valid).any():
            raise DataError(
                f"{int((~other).sum())} cells of {name} are missing, and {int((~valid).sum())} of "
                f"{first}, not the same ones",
                where=where,
                fix=_NAME_ONE,
            )
    if not valid.any():
        raise DataError(f"every cell of {first} is missing", where=where)
    return Mask(MISSING, dims, valid, frozenset(incomplete))


def _stated(campaign: Campaign, name: str, dims: tuple[str, ...]) -> Mask:
    where = f"{campaign.segments.path(0)}: data.mask, variable {name}"
    channels = list(campaign.channels.values())
    if len(channels) > 1 or set(channels[0].dims) != set(dims) or TIME in channels[0].array.roles:
        roles = channels[0].array.roles
        raise DataError(
            f"axes {', '.join(roles) or 'none'}",
            where=where,
            allowed=f"{', '.join(dims)}, the grid of the fields",
        )
    stated = _StatedMask(campaign, channels[0], dims)
    valid = stated(0)
    if not valid.any():
        raise DataError("no cell is valid", where=where, allowed="1 where values are valid")
    return Mask(name, dims, valid, stated=stated, compared={0})


@dataclass(frozen=True)
class _StatedMask:
    """Reader of a mask variable.

    Attributes:
        campaign: with the mask variable only.
        channel: of the variable.
        dims: of the grid.
    """

    campaign: Campaign
    channel: Channel
    dims: tuple[str, ...]

    def __call__(self, simulation: int) -> np.ndarray:
        """Return the valid cells of a simulation, (*dims) bool."""
        segment = int(np.flatnonzero(self.campaign.index.simulation == simulation)[0])
        rows = row_sets(self.campaign)[self.channel.array.path]
        values = rows.channel(rows.members([segment], 0, 1)[0], self.channel)[0]
        # Files mark land by 0, or by the fill value of an ocean mask of ones.
        values = np.where(np.isfinite(values), values, 0)
        if not np.isin(values, (0, 1)).all():
            raise DataError(
                f"values from {values.min():g} to {values.max():g}",
                where=f"{self.campaign.segments.path(segment)}: variable {self.channel.name}",
                allowed="1 where values are valid, else 0 or missing",
            )
        return values.transpose([self.channel.dims.index(d) for d in self.dims]).astype(bool)


def require_mask(
    campaign: Campaign, values: np.ndarray, channel: Channel, rows: np.ndarray
) -> np.ndarray | None:
    """Validate rows of a channel against the campaign's mask and return its valid cells.

    Args:
        campaign: with or without a mask.
        values: (rows, *dims), physical values.
        channel: of the values.
        rows: (rows,) numbers of the rows in the campaign.

    Returns:
        (*dims) bool; None if the channel is not on the grid of the mask.

    Raises:
        DataError: a valid cell is NaN or Inf, or the mask differs from that of the first row.
    """
    mask = campaign.mask
    valid = None if mask is None else mask.along(channel.dims)
    finite = np.isfinite(values)
    if mask is None or valid is None:
        bad = ~finite
    elif channel.name in mask.missing:
        # A mask of missing values has to be the same in every row: a value that appears is an error
        # as much as one that is lost.
        bad = finite != valid
    else:
        bad = ~finite & valid
    if bad.any():
        at = int(np.argmax(bad.reshape(len(values), -1).any(axis=1)))
        raise _differs(campaign, channel, int(rows[at]), finite[at], valid)
    if mask is not None and mask.stated is not None:
        for simulation in set(campaign.index.simulation_of(rows).tolist()) - mask.compared:
            _require_same(campaign, mask, simulation)
    return valid


def _differs(
    campaign: Campaign, channel: Channel, row: int, finite: np.ndarray, valid: np.ndarray | None
) -> DataError:
    where = f"{campaign.where(row)}, variable {channel.name}"
    lost = int((~finite if valid is None else ~finite & valid).sum())
    if lost:
        return DataError(
            f"{lost} values are NaN or Inf" + ("" if valid is None else " in cells of the mask"),
            where=where,
            fix="fill them, or leave the simulation out",
        )
    assert valid is not None
    return DataError(
        f"{int((finite & ~valid).sum())} cells have values that are missing in the first row",
        where=where,
        fix=_NAME_ONE,
    )


def _require_same(campaign: Campaign, mask: Mask, simulation: int) -> None:
    assert mask.stated is not None
    different = int((mask.stated(simulation) != mask.valid).sum())
    if different:
        raise DataError(
            f"the mask {mask.name} differs in {different} cells from that of simulation "
            f"{campaign.labels[0]}",
            where=campaign.where(int(campaign.index.bounds[simulation])),
            allowed="one mask for all simulations",
        )
    mask.compared.add(simulation)


def hide(
    campaign: Campaign, rows: Rows, path: str, values: np.ndarray, numbers: np.ndarray
) -> None:
    """Set invalid cells to 0 in place, after validating the rows.

    Args:
        campaign: with a mask.
        rows: rows of an array.
        path: of the array.
        values: (rows, *row_shape), values of the array.
        numbers: (rows,) numbers of the rows in the campaign.
    """
    for channel in campaign.arrays[path]:
        part = rows.channel(values, channel)
        valid = require_mask(campaign, part, channel, numbers)
        if valid is not None:
            part[:, ~valid] = 0
