"""Ensemble prediction of a search's best configurations with epistemic and aleatoric uncertainty.

The spread between members is the epistemic uncertainty, the members' prediction intervals are the
aleatoric uncertainty. Their variances add by the law of total variance, with equal weights.

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
    """Write the mean of several predictions and its uncertainty.

    For every variable `u` the output has the mean `u` and the standard deviation between members
    `u_between`, in the unit of `u`. If all members have 90 % intervals `u_low`, `u_high`, then
    `u_within` is the standard deviation of a normal distribution with these intervals, and each
    half-width of the joint interval is the root of the sum of the members' mean squared
    half-width and (1.645 `u_between`)².

    Args:
        files: two or more NetCDF files with equal variables and dims.
        output: NetCDF file to write.

    Returns:
        `output`.

    Raises:
        DataError: a variable is not real, or the files differ in variables or dims.

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
        joint: dict[str, xr.DataArray] = {}
        for name in map(str, first.data_vars):
            if not _is_bound(name, first):
                joint |= _joined(name, members)
        if all(not joint[name].values.any() for name in joint if name.endswith(BETWEEN)):
            log.warning(
                "the predictions of the %d surrogates are bit-identical, so the ensemble adds "
                "no information. Fix: final.ensemble=1",
                len(files),
            )
        output_fields = first.drop_vars(list(first.data_vars)).assign(joint)
        title = f"mean of {len(files)} surrogates: {first.attrs.get('title', 'prediction')}"
        return write_fields(output_fields.assign_attrs(title=title), output)
    finally:
        for member in members:
            member.close()


def _is_bound(name: str, dataset: xr.Dataset) -> bool:
    return any(name.endswith(end) and name.removesuffix(end) in dataset for end in (LOW, HIGH))


def _stacked(name: str, members: Sequence[xr.Dataset]) -> np.ndarray:
    """Return (member, ...) values of a variable."""
    first = members[0][name]
    for number, member in enumerate(members[1:], 2):
        variable = member.get(name)
        if variable is None or variable.dims != first.dims or variable.shape != first.shape:
            what = "absent" if variable is None else dict(variable.sizes)
            raise DataError(
                f"{name} is {dict(first.sizes)} in the first and {what} in prediction {number}",
                where="ensemble",
                fix="final.ensemble=1, or remove parameters from the space that "
                "change the predicted fields",
            )
    if first.dtype.kind != "f":
        raise DataError(
            f"{name} has values of type {first.dtype}, which cannot be averaged",
            where="ensemble",
            allowed="floating-point variables",
            fix="final.ensemble=1",
        )
    return np.stack([member[name].values for member in members])


def _joined(name: str, members: Sequence[xr.Dataset]) -> dict[str, xr.DataArray]:
    """Return mean and uncertainties of a variable and, if all members have one, its interval."""
    like, values = members[0][name], _stacked(name, members)
    mean, between = values.mean(axis=0), values.std(axis=0)

    def of(data: np.ndarray, text: str) -> xr.DataArray:
        return like.copy(data=data.astype(like.dtype)).assign_attrs(long_name=f"{name}: {text}")

    out = {
        name: of(mean, "mean of the surrogates").assign_attrs(like.attrs),
        name + BETWEEN: of(between, "standard deviation between surrogates"),
    }
    if not all(name + end in member for member in members for end in (LOW, HIGH)):
        return out
    below = values - _stacked(name + LOW, members)
    above = _stacked(name + HIGH, members) - values
    deviations = (below + above) / (2 * NORMAL_90)
    text = "standard deviation corresponding to the surrogates' intervals"
    out[name + WITHIN] = of(_root_mean_square(deviations), text)
    for end, side, width, text in ((LOW, -1, below, "lower"), (HIGH, 1, above, "upper")):
        total = np.hypot(_root_mean_square(width), NORMAL_90 * between)
        out[name + end] = of(mean + side * total, f"{text} bound of the 90 % interval")
    return out


def _root_mean_square(values: np.ndarray) -> np.ndarray:
    return np.sqrt((values * values).sum(axis=0)) / math.sqrt(len(values))
