"""Simulation and step of a file of one sample, by its name."""

from __future__ import annotations

import os
import re
from functools import lru_cache

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io.campaign.campaign_layout import CampaignOptions


def stem_of(path: str) -> str:
    """Return the name of a file without its folder and suffix."""
    return os.path.splitext(os.path.basename(path))[0]


def name_parts(path: str, timed: bool, options: CampaignOptions) -> tuple[str, int]:
    """Return the simulation and step given by the name of a file.

    Args:
        path: the file.
        timed: whether the file has a time.
        options: may have a pattern of names.

    Raises:
        ConfigError: the name does not match the pattern.
        DataError: the name is ambiguous, or has no number.
    """
    above, stem = os.path.split(os.path.dirname(path)), stem_of(path)
    # Some programs make a folder of the same name for each output.
    folder = os.path.basename(above[0]) if above[1] == stem else above[1]
    if options.pattern is not None:
        match = _expression(options.pattern).fullmatch(os.path.basename(path))
        if match is None:
            raise ConfigError(
                f"{options.pattern!r} does not match {os.path.basename(path)!r}",
                where="data.pattern",
            )
        parts = match.groupdict()
        return parts.get("simulation", folder), int(parts.get("step", 0))
    numbers = re.findall(r"\d+", stem)
    if not numbers:
        raise DataError(
            "its name has no number to order it by",
            where=path,
            fix='data.pattern="run{simulation}_t{step}.h5"',
        )
    if len(numbers) > 1 and not timed:
        raise DataError(
            f"its name has the numbers {' and '.join(numbers)}: which counts simulations and which "
            "steps?",
            where=path,
            fix='data.pattern="run{simulation}_t{step}.h5" with {simulation} and {step} in place',
        )
    rest = re.sub(r"\d+(?=\D*$)", "", stem)
    return f"{folder}/{rest}" if folder else rest, int(numbers[-1])


@lru_cache
def _expression(pattern: str) -> re.Pattern[str]:
    """Return a pattern of names as a regular expression with groups simulation and step."""
    expression = re.escape(pattern)
    for key in ("simulation", "step"):
        group = r"\d+" if key == "step" else ".+?"
        expression = expression.replace(re.escape(f"{{{key}}}"), f"(?P<{key}>{group})")
    return re.compile(expression)
