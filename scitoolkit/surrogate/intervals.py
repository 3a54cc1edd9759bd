"""Prediction intervals around the values of a surrogate, calibrated on the validation part.

Split-conformal prediction over groups of values (Lee, Barber and Willett 2023, arXiv:2306.06342,
HCP). Groups, such as trajectories, are exchangeable; the values of one depend on each other. Each
of K groups has the mass 1 / (K + 1), which its values share, and the half width is the smallest
absolute error up to which the mass reaches the coverage. A value drawn from a further group is then
inside with at least that probability. With one value a group this is split-conformal prediction
(Lei et al. 2018, doi:10.1080/01621459.2017.1307116).

Errors are a dataset of signed errors by the variables of the prediction, in the dims `group` and,
for several values of a group, `point`. Along other dims, which are those of the prediction with
their coordinates, each place has a separate width.
"""

from __future__ import annotations

import json
import math

import xarray as xr

from scitoolkit.core.errors import CheckpointError, DataError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Results, Table

FILE = "half_widths.json"


def require_enough(coverage: float, groups: int) -> None:
    """Refuse a coverage that no finite interval has.

    Raises:
        DataError: too few groups, such as trajectories, in the validation part.
    """
    # The values of all K groups have the mass K / (K + 1).
    if coverage * (groups + 1) > groups + 1e-9:
        raise DataError(
            f"a coverage of {coverage:g} from {groups} samples for validation",
            where="intervals.coverage",
            allowed=f"at least {math.ceil(coverage / (1 - coverage) - 1e-9)} samples, or a "
            f"coverage of at most {groups / (groups + 1):.3g}",
            fix="a larger validation part: split.validation",
        )


def calibrated(errors: xr.Dataset, coverage: float) -> xr.Dataset:
    """Return half widths by variable, from errors on data that were not trained on.

    Example:
        >>> errors = xr.Dataset({"t": ("group", [float(k) for k in range(1, 20)])})
        >>> float(calibrated(errors, 0.9).t)
        18.0
    """
    groups = errors.sizes["group"]
    # The level among the values themselves: a share 1 / (K + 1) of the mass is beyond all of them.
    level = min(1.0, coverage * (groups + 1) / groups)
    pooled = [dim for dim in ("group", "point") if dim in errors.dims]
    half = abs(errors).quantile(level, pooled, method="inverted_cdf").drop_vars("quantile")
    return half.assign_attrs(coverage=coverage, calibration_samples=groups)


def save(half: xr.Dataset, folder: ModelFolder) -> None:
    """Write half widths next to the weights."""
    write_atomic(folder.path / FILE, json.dumps(half.to_dict()) + "\n")


def load(folder: ModelFolder) -> xr.Dataset | None:
    """Return the half widths of a folder; None if it has none.

    Raises:
        CheckpointError: a damaged file.
    """
    path = folder.path / FILE
    if not path.exists():
        return None
    try:
        return xr.Dataset.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"intervals cannot be read ({error})", where=str(path)) from None


def around(predicted: xr.Dataset, half: xr.Dataset | None) -> xr.Dataset:
    """Return predictions with `NAME_low` and `NAME_high`, which are NaN beyond calibrated leads."""
    bounds = {}
    for name in half or ():
        assert half is not None
        values = predicted[name]
        width = half[name].reindex({dim: values[dim] for dim in half[name].dims})
        about = {**values.attrs, **half.attrs}
        for end, bound in (("low", values - width), ("high", values + width)):
            bounds[f"{name}_{end}"] = bound.transpose(*values.dims).assign_attrs(about)
    return predicted.assign(bounds)


def score(half: xr.Dataset, errors: xr.Dataset, results: Results) -> None:
    """Add the share of true values inside and the mean width to the results of an evaluation."""
    widths = half.reindex({dim: errors[dim] for dim in half.dims})
    inside, mean = (abs(errors) <= widths).mean(), 2 * half.mean()
    pairs = {str(name): (float(inside[name]), float(mean[name])) for name in half}
    for name, (share, width) in pairs.items():
        results.metrics |= {f"coverage_{name}": share, f"width_{name}": width}
    coverage, samples = half.attrs["coverage"], half.attrs["calibration_samples"]
    results.tables.append(
        Table(
            title=f"Intervals of {100 * coverage:g} % coverage",
            columns=["variable", "inside (%)", "mean width"],
            rows=[[name, 100 * share, width] for name, (share, width) in pairs.items()],
            note=f"On {errors.sizes['group']} samples; calibrated on {samples} for validation.",
        )
    )
