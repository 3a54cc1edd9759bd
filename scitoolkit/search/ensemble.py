"""The best configurations of a search predicting together, with both kinds of uncertainty.

What the members do not agree on is what the search leaves open (epistemic); what each of them
calls its own interval is what no member can know (aleatoric). Variances add up by the law of total
variance over members of equal weight.

Source:
    Egele et al., AutoDEUQ: Automated Deep Ensemble with Uncertainty Quantification, ICPR 2022,
    equations 3 to 5; arXiv:2110.13511.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from logging import Logger
from pathlib import Path

import numpy as np
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.fields import open_fields, write_fields

log: Logger = get_logger(__name__)

NORMAL_90 = 1.6448536269514722
"""Half the width of the 90 % interval of a normal distribution, in standard deviations."""
LOW, HIGH, BETWEEN, WITHIN = "_low", "_high", "_between", "_within"


def join_predictions(files: Sequence[Path], output: Path) -> Path:
    """Write the mean of predictions and how far they are uncertain.

    Every real variable `u` becomes the mean of the members' (in their unit), `u_between` the
    standard deviation between them. Where members write 90 % intervals `u_low`, `u_high`,
    `u_within` is the standard deviation that these stand for, and the joint interval has on either
    side the root of the mean square of the members' widths and of 1.645 `u_between`.

    Args:
        files: the members' predictions, two or more: NetCDF with equal variables and dims.
        output: NetCDF file to write.

    Returns:
        `output`.

    Raises:
        DataError: predictions that are no real fields, or that differ in variables or dims.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for i, u in enumerate(([1.0, 2.0], [3.0, 2.0])):
        ...     _ = write_fields(xr.Dataset({"u": ("x", u)}), folder / f"{i}.nc")
        >>> _ = join_predictions([folder / "0.nc", folder / "1.nc"], folder / "all.nc")
        >>> with open_fields(folder / "all.nc") as joint:
        ...     joint["u"].values.tolist(), joint["u_between"].values.tolist()
        ([2.0, 2.0], [1.0, 0.0])
    """
    members = [open_fields(file) for file in files]
    try:
        first = members[0]
        found: dict[str, xr.DataArray] = {}
        for name in map(str, first.data_vars):
            if not _is_bound(name, first):
                found |= _joined(name, members)
        if all(not found[name].values.any() for name in found if name.endswith(BETWEEN)):
            log.warning(
                "the %d surrogates predict the same to the last bit: an ensemble of them says no "
                "more than one. Fix: final.ensemble=1", len(files),
            )  # fmt: skip
        kept = first.drop_vars(list(first.data_vars)).assign(found)
        title = f"mean of {len(files)} surrogates: {first.attrs.get('title', 'prediction')}"
        return write_fields(kept.assign_attrs(title=title), output)
    finally:
        for member in members:
            member.close()


def _is_bound(name: str, dataset: xr.Dataset) -> bool:
    return any(name.endswith(end) and name.removesuffix(end) in dataset for end in (LOW, HIGH))


def _stacked(name: str, members: Sequence[xr.Dataset]) -> np.ndarray:
    """Return (member, ...) values of a variable."""
    first = members[0][name]
    for number, member in enumerate(members[1:], 2):
        found = member.get(name)
        if found is None or found.dims != first.dims or found.shape != first.shape:
            what = "absent" if found is None else dict(found.sizes)
            raise DataError(
                f"{name} is {dict(first.sizes)} in the first and {what} in prediction {number}",
                where="ensemble", fix="final.ensemble=1, or leave out of the space what changes "
                "the fields that are predicted",
            )  # fmt: skip
    if first.dtype.kind != "f":
        raise DataError(
            f"{name} has values of type {first.dtype}, of which there is no mean",
            where="ensemble", allowed="real variables", fix="final.ensemble=1",
        )  # fmt: skip
    return np.stack([member[name].values for member in members])


def _joined(name: str, members: Sequence[xr.Dataset]) -> dict[str, xr.DataArray]:
    """Return the mean of a variable, its uncertainties and, where members have it, its interval."""
    like, values = members[0][name], _stacked(name, members)
    mean, between = values.mean(axis=0), values.std(axis=0)

    def of(data: np.ndarray, text: str) -> xr.DataArray:
        return like.copy(data=data.astype(like.dtype)).assign_attrs(long_name=f"{name}: {text}")

    out = {name: of(mean, "mean of the surrogates").assign_attrs(like.attrs),
           name + BETWEEN: of(between, "standard deviation between surrogates")}  # fmt: skip
    if not all(name + end in member for member in members for end in (LOW, HIGH)):
        return out
    below = values - _stacked(name + LOW, members)
    above = _stacked(name + HIGH, members) - values
    deviations = (below + above) / (2 * NORMAL_90)
    text = "standard deviation that the surrogates' intervals stand for"
    out[name + WITHIN] = of(_root_mean_square(deviations), text)
    for end, side, width, text in ((LOW, -1, below, "lower"), (HIGH, 1, above, "upper")):
        total = np.hypot(_root_mean_square(width), NORMAL_90 * between)
        out[name + end] = of(mean + side * total, f"{text} bound of the 90 % interval")
    return out


def _root_mean_square(values: np.ndarray) -> np.ndarray:
    return np.sqrt((values * values).sum(axis=0)) / math.sqrt(len(values))
