"""Resolution of periodic fields: how far the spectrum falls before the grid ends.

A spectrum that does not fall towards the largest resolved wavenumber is cut off by the grid, and
the fields are those of the grid and not of the equation (Boyd 2001, Chebyshev and Fourier Spectral
Methods, chapter 2: rules of thumb for the truncation error).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def tail(fields: np.ndarray, dims: int, largest: int) -> float:
    """Return the spectrum near the largest wavenumbers over its maximum, of squares.

    Args:
        fields: (..., points along each of the last `dims` dims), periodic.
        dims: number of dims of space.
        largest: largest wavenumber along a dim, in waves per period, that is not truncated.

    Returns:
        The mean square per wavenumber of the last eighth of the shells, at least two, over that of
        the shell with the largest one; 0 for a constant field, infinite if one is not finite.

    Example:
        >>> import numpy as np
        >>> x = 2 * np.pi * np.arange(32) / 32
        >>> tail(np.sin(x), 1, 10) < 1e-20, tail(np.sin(x) + 0.1 * np.sin(10 * x), 1, 10) > 1e-3
        (True, True)
    """
    import numpy as np

    shape = fields.shape[-dims:]
    if not np.isfinite(fields).all():
        return float("inf")
    spectrum = np.abs(np.fft.rfftn(fields, axes=range(-dims, 0))) ** 2
    spectrum = spectrum.reshape(-1, *spectrum.shape[-dims:]).mean(0)
    waves = np.meshgrid(
        *(np.fft.fftfreq(n, 1 / n) for n in shape[:-1]),
        np.arange(shape[-1] // 2 + 1),
        indexing="ij",
    )
    shell = np.rint(np.sqrt(sum(k**2 for k in waves))).astype(int)
    sums = np.bincount(shell.ravel(), spectrum.ravel())[1 : largest + 1]
    most = sums.max(initial=0.0)
    return float(sums[-max(2, largest // 8) :].mean() / most) if most > 0 else 0.0


def unresolved(share: float, bound: float, fix: str) -> list[str]:
    """Return what to tell of a spectrum whose `tail` is above a bound."""
    if share <= bound:
        return []
    return [
        f"not resolved: the spectrum at the smallest scales is {share:.2g} of its maximum, more "
        f"than {bound:.2g}; use {fix}"
    ]
