"""Resolution of samples: the spectrum's tail, and the error measured with another resolution.

A spectrum that does not fall towards the largest resolved wavenumber is cut off by the grid, and
the fields are those of the grid and not of the equation (Boyd 2001, Chebyshev and Fourier Spectral
Methods, chapter 2: rules of thumb for the truncation error).

Errors are measured, not derived from the order of a scheme: steps on the sample's grid are compared
with steps on a finer one (`added_error`), or whole runs with coarser ones (`convergence_error`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Advanced = Callable[[np.ndarray, Sequence[int]], Sequence[tuple[np.ndarray, np.ndarray]]]

PARTS = 3
"""Number of parts of a run in which its steps are compared with finer ones."""
BUDGET = 0.5
"""Cost of these parts, in runs of the sample."""
LONGEST = 1.5
"""Turnover times of a part of a chaotic run."""
UNIFORM = 1e-3
"""Deviation from the mean, relative to the rms, below which a field counts as uniform."""
TURNOVERS = 3
"""Times in which a chaotic field changes by its own size over which its error is stated."""

SAFETY = 1.25
"""Factor of errors that are taken from differences of runs, as Roache recommends."""
DISPLACEMENT = 1e-2
"""Of all atoms together, Å, in differences of energies."""
SMALLEST_FORCE = 1e-3
"""Lower bound, eV/Å, of the force that errors of forces are divided by."""


def tail(fields: np.ndarray, dims: int, largest: int, multiples: Sequence[int] = ()) -> float:
    """Return the spectrum near the largest wavenumbers over its maximum, of squares.

    Args:
        fields: (..., points along each of the last `dims` dims), periodic.
        dims: number of dims of space.
        largest: largest wavenumber along a dim, in waves per period, that is not truncated.
        multiples: of a unit of wavenumbers, that of `largest`, in which the first wave along each
            dim is measured, for periods that differ; all 1 by default.

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
    counts = [*(np.fft.fftfreq(n, 1 / n) for n in shape[:-1]), np.arange(shape[-1] // 2 + 1)]
    units = multiples or [1] * dims
    waves = np.meshgrid(*(m * k for m, k in zip(units, counts, strict=True)), indexing="ij")
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


def sizes(fields: np.ndarray) -> np.ndarray:
    """Return the deviation of each variable from its mean, that of its rms if it is uniform.

    Args:
        fields: (variables, ...).
    """
    import numpy as np

    axes = tuple(range(1, fields.ndim))
    rms = np.sqrt(np.mean(fields**2, axes))
    return np.asarray(np.maximum(fields.std(axes), UNIFORM * rms))


def added_error(
    states: np.ndarray,
    advanced: Advanced,
    steps: int,
    cost: float,
    *,
    chaotic: bool,
) -> float:
    """Return the error that the steps of a run add, relative to the size of its fields.

    In `PARTS` parts of the run, steps of the sample's scheme are compared with finer ones from the
    same state. A part's difference consists of one for adapting to the finer grid, which a run has
    once, and of one that its later half adds at a rate; the rate stands for all other steps. Errors
    are added as if they neither grew nor decayed. Chaos lets any error grow to the size of the
    fields: for a chaotic system only the steps of a limited time count.

    Args:
        states: of the run, (states, variables, ...), the first at its start.
        advanced: returns a state (variables, ...) after numbers of steps of the sample's scheme,
            and after the same times by the finer scheme, in pairs.
        steps: of the run.
        cost: of a finer run, in runs of the sample; the parts cost about `BUDGET` of the sample.
        chaotic: whether to limit the time to `TURNOVERS` times in which the fields change by
            their own size.

    Returns:
        The largest error of a variable; infinite if it is not finite.

    Example:
        >>> import numpy as np
        >>> states = np.ones((3, 1, 4)) * [1.0, -1.0, 1.0, -1.0]
        >>> def advanced(state, counts):  # a decay by explicit Euler, and the exact one
        ...     return [(state * (1 - 0.01) ** n, state * np.exp(-0.01 * n)) for n in counts]
        >>> round(added_error(states, advanced, 100, 4, chaotic=False), 3)
        0.005
    """
    import numpy as np

    last = len(states) - 1
    picked = states[[round(i * last / (PARTS - 1)) for i in range(PARTS)]]
    overall = sizes(np.moveaxis(states, 1, 0))
    size = [np.maximum(np.maximum(overall, sizes(s)), np.finfo(float).tiny) for s in picked]
    number = steps * BUDGET / (PARTS * (1 + cost))
    errors = []
    with np.errstate(over="ignore", invalid="ignore"):
        if chaotic:
            moved = [
                _rms(advanced(s, [1])[0][0] - s) / z for s, z in zip(picked, size, strict=True)
            ]
            turnover = 1 / max(float(np.mean(moved, 0).max()), TURNOVERS / steps)
            steps, number = round(TURNOVERS * turnover), min(number, LONGEST * turnover)
        half = max(1, round(number / 2))
        for state, scale in zip(picked, size, strict=True):
            pairs = advanced(state, [half, 2 * half])
            middle, end = (_rms(fine - own) / scale for own, fine in pairs)
            left = max(steps - 2 * half, 0)
            # The second half has adapted to the finer grid: what it adds is the rate of all steps
            # that are left.
            errors.append(end + np.maximum(end - middle, 0) * left / half)
        error = np.mean(errors, 0)
    return float(error.max()) if np.isfinite(error).all() else float("inf")


def _rms(fields: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.asarray(np.sqrt(np.mean(fields**2, tuple(range(1, fields.ndim)))))


def convergence_error(
    runs: Sequence[Mapping[str, np.ndarray]],
    ratios: Sequence[float],
    order: int = 3,
    smallest: float = 1e-10,
) -> float:
    """Return the error of the finest of several runs, from their differences.

    With three runs the order is taken from the differences, where it is from 1 to that of the
    scheme; with two runs it is 1, so that the error is the whole difference for a ratio of 2.

    Args:
        runs: {variable: values at equal points} of each run, the finest first.
        ratios: sizes of cells of each run over those of the one before.
        order: largest order of the scheme.
        smallest: size below which a variable is rounding, in units in which others are about 1.

    Returns:
        The largest error of a variable relative to its size; infinite if it is not finite.

    Source: Roache 1998, Annu. Rev. Fluid Mech. 29, 123: the grid convergence index.

    Example:
        >>> import numpy as np
        >>> x = np.linspace(0, 6, 50)
        >>> runs = [{"u": np.sin(x) * (1 + h**2)} for h in (0.1, 0.2, 0.4)]
        >>> round(convergence_error(runs, [2, 2]), 3)
        0.012
    """
    import numpy as np

    worst = 0.0
    for name in runs[0]:
        fields = [run[name][None] for run in runs]
        with np.errstate(over="ignore", invalid="ignore"):
            size = max(float(sizes(fields[0])[0]), smallest)
            first, *rest = (float(_rms(b - a)[0]) / size for a, b in pairwise(fields))
            slope = 1.0
            if rest:
                slope = float(np.log(max(rest[0], 1e-300) / max(first, 1e-300)) / np.log(ratios[1]))
                slope = min(max(slope, 1.0), float(order))
            # Richardson: with an error c h^p the difference of two runs is c h^p (r^p - 1).
            error = SAFETY * first / (ratios[0] ** slope - 1)
        worst = error if not error <= worst else worst  # NaN too
    return worst if np.isfinite(worst) else float("inf")


def remapped(values: np.ndarray, cells: int, axis: int) -> np.ndarray:
    """Return averages over another number of equal cells of the same interval.

    Example:
        >>> import numpy as np
        >>> remapped(np.array([1.0, 3.0, 5.0]), 2, 0).round(3).tolist()
        [1.667, 4.333]
    """
    import numpy as np

    own, new = np.linspace(0, 1, values.shape[axis] + 1), np.linspace(0, 1, cells + 1)
    low = np.maximum(own[:-1], new[:-1, None])
    overlap = np.maximum(np.minimum(own[1:], new[1:, None]) - low, 0) * cells
    return np.moveaxis(np.tensordot(overlap, values, (1, axis)), 0, axis)


def difference_error(atoms: Any, seed: int) -> float:
    """Return the error of forces as derivatives of the energy along a random direction.

    Args:
        atoms: ASE atoms with a calculator.
        seed: of the direction.

    Returns:
        |F . d + dE / dh| over |F| / sqrt(3 atoms), the rms of F . d over unit vectors d.
    """
    import numpy as np

    calculator, forces = atoms.calc, atoms.get_forces()
    direction = np.random.default_rng(seed).standard_normal(forces.shape)
    direction /= np.linalg.norm(direction)
    name = "free_energy" if "free_energy" in calculator.implemented_properties else "energy"
    energies = []
    for place in (1, -1):
        moved = atoms.copy()
        moved.positions += place * DISPLACEMENT * direction
        energies.append(calculator.get_property(name, moved))
    slope = (energies[0] - energies[1]) / (2 * DISPLACEMENT)
    size = np.linalg.norm(forces) / np.sqrt(forces.size)
    return float(abs(slope + np.sum(forces * direction)) / max(size, SMALLEST_FORCE))
