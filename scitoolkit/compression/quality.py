"""Quality metrics of decoded fields: structure, distribution, spectrum, gradients, extremes.

DSSIM and spectra are computed on planes of the last two dims, which limits the memory required.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scitoolkit.fields.spectra import LEAST

WINDOW_SIGMA, WINDOW_RADIUS, LEVELS, STABILISER = 1.5, 5, 256, 1e-8
SAMPLED_POINTS = 1 << 20
Figure = float | None
NAMES = ("dssim", "ks", "spectrum", "gradient", "extremes")
"""Keys of `quality`."""


def quality(original: np.ndarray, decoded: np.ndarray, masked: np.ndarray) -> dict[str, Figure]:
    """Return quality metrics by name; None for metrics that are undefined.

    Args:
        original: float array of any dims.
        decoded: array of the same shape.
        masked: True where values are missing, which are excluded.

    Returns:
        `dssim`: data SSIM of the worst plane, 1 for equal planes. `ks`: Kolmogorov-Smirnov
        distance of the two distributions. `spectrum`: largest relative change of power among
        wavenumbers up to half of the highest, of those with power above rounding. `gradient`: rms
        error of differences between neighbours over their rms. `extremes`: larger of the changes of
        minimum and maximum over the range.

    Source:
        Baker et al. 2022, arXiv:2202.02616 (data SSIM on floating-point data).

    Example:
        >>> x = np.sin(np.linspace(0, 9, 900)).reshape(30, 30)
        >>> quality(x, x, np.zeros(x.shape, bool))["dssim"]
        1.0
    """
    valid = ~masked
    if not valid.any():
        return dict.fromkeys(NAMES)
    x, y = original[valid], decoded[valid]
    extent = float(x.max()) - float(x.min())
    ends = max(abs(float(y.max()) - float(x.max())), abs(float(y.min()) - float(x.min())))
    return {
        "dssim": _dssim(original, decoded, masked),
        "ks": _distance_of_distributions(x, y),
        "spectrum": _change_of_spectrum(original, decoded) if valid.all() else None,
        "gradient": _error_of_gradients(original, decoded, masked),
        "extremes": ends / extent if extent else None,
    }


def _planes(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    shape = (-1, *arrays[0].shape[-2:])
    yield from zip(*(a.reshape(shape) for a in arrays), strict=True)


def _dssim(original: np.ndarray, decoded: np.ndarray, masked: np.ndarray) -> Figure:
    """Return the lowest data SSIM of a plane, scaled by the joint range and in 256 levels."""
    if original.ndim < 2 or min(original.shape[-2:]) <= 2 * WINDOW_RADIUS:
        return None
    planes = [_plane_dssim(x, y, m) for x, y, m in _planes(original, decoded, masked)]
    defined = [value for value in planes if value is not None]
    return min(defined) if defined else None


def _plane_dssim(x: np.ndarray, y: np.ndarray, masked: np.ndarray) -> Figure:
    from scipy.ndimage import gaussian_filter

    inside = ~masked
    if not inside.any():
        return None
    weight = inside.astype(np.float64)
    x, y = (np.where(inside, a, 0).astype(np.float64) for a in (x, y))
    low = min(x[inside].min(), y[inside].min())
    extent = max(x[inside].max(), y[inside].max()) - low or 1.0
    x, y = (np.rint((a - low) / extent * (LEVELS - 1)) / (LEVELS - 1) for a in (x, y))

    def mean(values: np.ndarray) -> np.ndarray:
        return gaussian_filter(values * weight, WINDOW_SIGMA, radius=WINDOW_RADIUS) / total

    total = gaussian_filter(weight, WINDOW_SIGMA, radius=WINDOW_RADIUS)
    # Windows average valid points only; one without any gets the mean 0, and is not counted.
    total[total < 1e-12] = np.inf
    mx, my = mean(x), mean(y)
    vx, vy, both = mean(x * x) - mx * mx, mean(y * y) - my * my, mean(x * y) - mx * my
    ssim = ((2 * mx * my + STABILISER) * (2 * both + STABILISER)) / (
        (mx * mx + my * my + STABILISER) * (vx + vy + STABILISER)
    )
    cut = slice(WINDOW_RADIUS, -WINDOW_RADIUS)
    inner = ssim[cut, cut][inside[cut, cut]]
    return float(inner.mean()) if inner.size else None


def _distance_of_distributions(x: np.ndarray, y: np.ndarray) -> float:
    step = max(x.size // SAMPLED_POINTS, 1)
    x, y = np.sort(x[::step]), np.sort(y[::step])
    both = np.concatenate([x, y])
    ranks = (np.searchsorted(a, both, side="right") / a.size for a in (x, y))
    return float(np.abs(np.subtract(*ranks)).max())


def _change_of_spectrum(original: np.ndarray, decoded: np.ndarray) -> Figure:
    if original.ndim < 2 or min(original.shape[-2:]) < 8:
        return None
    power = shell_power(original, decoded)
    shells = min(original.shape[-2:]) // 2
    before, after = power[:, 1 : shells // 2 + 1]
    # Waves below the rounding of the values, whose mean is in the first shell, hold nothing.
    least = max(LEAST, float(np.finfo(original.dtype).eps) ** 2)
    seen = before > least * power[0].max()
    return float(np.abs(after[seen] / before[seen] - 1).max()) if seen.any() else None


def shell_power(*arrays: np.ndarray) -> np.ndarray:
    """Return the power spectra of arrays, summed over planes of their last two dims.

    Args:
        arrays: of equal shape, with at least two dims and no missing values.

    Returns:
        (arrays, shells): power by wavenumber shells of equal width; n // 2 shells span the
        wavenumbers of the shorter dim, of extent n.

    Example:
        >>> wave = np.cos(2 * np.pi * 3 * np.arange(16) / 16) * np.ones((16, 1))
        >>> int(shell_power(wave)[0].argmax())
        3
    """
    rows, columns = arrays[0].shape[-2:]
    y, x = np.fft.fftfreq(rows)[:, None], np.fft.rfftfreq(columns)[None]
    shells = min(rows, columns) // 2
    shell = np.minimum((np.hypot(y, x) * 2 * shells).astype(int), 2 * shells)
    power = np.zeros((len(arrays), 2 * shells + 1))
    for planes in _planes(*arrays):
        for i, plane in enumerate(planes):
            powers = np.abs(np.fft.rfft2(plane.astype(np.float64))) ** 2
            power[i] += np.bincount(shell.ravel(), powers.ravel(), 2 * shells + 1)
    return power


def _error_of_gradients(original: np.ndarray, decoded: np.ndarray, masked: np.ndarray) -> Figure:
    error = size = 0.0
    for axis, extent in enumerate(original.shape):
        if extent < 2:
            continue
        before, after = np.arange(extent - 1), np.arange(1, extent)
        for start in range(0, extent - 1, max(SAMPLED_POINTS * extent // original.size, 1)):
            part = slice(start, start + max(SAMPLED_POINTS * extent // original.size, 1))
            low, high = before[part], after[part]
            inside = ~(masked.take(low, axis) | masked.take(high, axis))
            dx, dy = (
                (a.take(high, axis).astype(np.float64) - a.take(low, axis))[inside]
                for a in (original, decoded)
            )
            error += float(((dy - dx) ** 2).sum())
            size += float((dx**2).sum())
    return float(np.sqrt(error / size)) if size else None
