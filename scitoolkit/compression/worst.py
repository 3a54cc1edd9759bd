"""Where the errors of a compressed variable are largest: its slices, and blocks of them.

Within a bound on values, all places have nearly the same error. What differs is what the error
hides: in a block where it exceeds the variation of the field, the decoded field holds no structure.
"""

from __future__ import annotations

import numpy as np

from scitoolkit.core.results import Maps, Panel, Table

BLOCK = 16
Array = np.ndarray
Row = list[float | int | str | None]


def rms_over_slices(error: Array) -> Array:
    """Return the rms error at each point of the last two dims, over all others; NaN without values.

    Args:
        error: shape (..., Y, X), NaN where values are missing.

    Example:
        >>> rms_over_slices(np.array([[[3.0, np.nan]], [[4.0, np.nan]]])).round(3)
        array([[3.536,   nan]])
    """
    squares = (error**2).reshape(-1, *error.shape[-2:])
    return np.sqrt(_mean(squares, (0,)))


def hidden_blocks(original: Array, error: Array) -> Array:
    """Return where the rms error of a block exceeds the standard deviation of the field in it.

    Args:
        original: the field, shape (..., Y, X), NaN where values are missing.
        error: of the decoded field, of the same shape.

    Returns:
        Shape (S, Y', X') for the S slices and their blocks of `BLOCK` x `BLOCK` points, incomplete
        ones at the ends included: 1.0 if hidden, else 0.0, NaN for blocks without values.

    Example:
        >>> field = np.indices((16, 32))[1] * 1.0
        >>> field[:, 16:] = 0.0  # constant: any error hides what there is
        >>> hidden_blocks(field, np.full_like(field, 0.5))
        array([[[0., 1.]]])
    """
    field, wrong = (_blocks(a.reshape(-1, *a.shape[-2:])) for a in (original, error))
    mean = _mean(field, (2, 4))
    variance = _mean((field - mean[:, :, None, :, None]) ** 2, (2, 4))
    squares = _mean(wrong**2, (2, 4))
    return np.where(np.isfinite(squares), (squares > variance).astype(float), np.nan)


def worst_row(
    name: str, original: Array, error: Array, allowed: float, dims: tuple[str, ...]
) -> Row:
    """Return a row of `worst_table` for one variable.

    Args:
        name: of the variable.
        original: its values, shape (..., Y, X), NaN where missing.
        error: of the same shape.
        allowed: the bound, the unit of the errors in the row; 0 or inf if there is none.
        dims: names of its dims, empty if unknown.

    Example:
        >>> error = np.zeros((3, 16, 32)); error[1] = 0.5
        >>> row = worst_row("u", np.ones((3, 16, 32)), error, 1.0, ("time", "y", "x"))
        >>> row[1], row[2], row[5]
        ('time 1', 0.5, 'time 1, y 0 to 15, x 0 to 15')
    """
    scale = allowed if 0 < allowed < np.inf else 1.0
    planes = (error**2).reshape(-1, *error.shape[-2:])
    by_slice = np.sqrt(_mean(planes, (1, 2))) / scale
    whole = float(np.sqrt(_mean(error**2, tuple(range(error.ndim))))) / scale
    if not np.isfinite(whole):
        return [name, None, None, None, None, None]
    worst = int(np.nanargmax(by_slice))
    hidden = hidden_blocks(original, error)
    by_block = _mean(_blocks(planes), (2, 4))
    place = np.unravel_index(int(np.nanargmax(by_block)), by_block.shape)
    names = dims or tuple(f"dim {axis + 1}" for axis in range(error.ndim))
    spans = [
        f"{dim} {start * BLOCK} to {min((start + 1) * BLOCK, size) - 1}"
        for dim, start, size in zip(names[-2:], place[1:], error.shape[-2:], strict=True)
    ]
    at = _slice_words(int(place[0]), error.shape[:-2], names)
    return [
        name,
        _slice_words(worst, error.shape[:-2], names) or None,
        float(by_slice[worst]),
        whole,
        float(np.nanmean(hidden)),
        ", ".join([at, *spans] if at else spans),
    ]


def worst_table(rows: list[Row], has_bounds: bool) -> Table:
    """Return the table of where the errors are largest, from rows of `worst_row`."""
    over = " / bound" if has_bounds else ""
    return Table(
        title="Where the errors are largest",
        columns=[
            "variable",
            "slice",
            f"rms error in it{over}",
            f"rms error of all{over}",
            "share of hidden blocks",
            "block with the largest rms error",
        ],
        rows=rows,
        note=f"Of the drawn variables. Numbers count from 0. A block of {BLOCK} x {BLOCK} points "
        "is hidden where its rms error exceeds the standard deviation of the field in it: its "
        "structure is lost.",
    )


def worst_maps(
    name: str, unit: str, original: Array, error: Array, allowed: float
) -> tuple[Maps, dict[str, Array]]:
    """Return maps of the rms error over all slices and of hidden blocks, if any, and their arrays.

    Args:
        name: of the variable.
        unit: of its values.
        original: its values, shape (..., Y, X), NaN where missing.
        error: of the same shape.
        allowed: the bound; 0 or inf if there is none.
    """
    bounded = 0 < allowed < np.inf
    hidden = _mean(hidden_blocks(original, error), (0,))
    enlarged = hidden.repeat(BLOCK, 0).repeat(BLOCK, 1)[: error.shape[-2], : error.shape[-1]]
    arrays = {"rms error": rms_over_slices(error) / (allowed if bounded else 1.0)}
    any_hidden = bool(np.nansum(hidden))
    if any_hidden:
        arrays["hidden"] = enlarged
    labels = {
        "rms error": f"rms error{' / bound' if bounded else ''}",
        "hidden": "share of slices with hidden structure",
    }
    units = {"rms error": "bound = 1" if bounded else unit, "hidden": "1"}
    panels = [
        Panel(
            variable=f"{name}: {kind}",
            label=label,
            scale=f"{name} {kind}",
            unit=units[kind],
            limit=1.0 if kind == "hidden" else None,
        )
        for kind, label in labels.items()
        if kind in arrays
    ]
    note = (
        "" if any_hidden else f"The structure of the field is lost in no {BLOCK} x {BLOCK} block."
    )
    title = f"{name}: where the errors are"
    return Maps(title=title, panels=panels, columns=len(panels), note=note), arrays


def _mean(values: Array, axes: tuple[int, ...]) -> Array:
    """Return the mean of the finite values; NaN where there are none."""
    finite = np.isfinite(values)
    count = finite.sum(axes)
    total = np.where(finite, values, 0.0).sum(axes)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _blocks(planes: Array) -> Array:
    """Return planes (S, Y, X) as blocks (S, Y', BLOCK, X', BLOCK), with NaN beyond the ends."""
    short = [(-size) % BLOCK for size in planes.shape[1:]]
    padded = np.pad(planes, ((0, 0), (0, short[0]), (0, short[1])), constant_values=np.nan)
    _, rows, columns = padded.shape
    return padded.reshape(-1, rows // BLOCK, BLOCK, columns // BLOCK, BLOCK)


def _slice_words(number: int, leading: tuple[int, ...], names: tuple[str, ...]) -> str:
    """Return the place of a slice along the leading dims, such as `time 3, level 0`."""
    index = np.unravel_index(number, leading) if leading else ()
    return ", ".join(f"{name} {at}" for name, at in zip(names, index, strict=False))
