"""Parser of memory sizes such as "4GiB"."""

from __future__ import annotations

import re

from scitoolkit.core.errors import ConfigError

_FACTORS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_BINARY = {"ki": 1024, "mi": 1024**2, "gi": 1024**3, "ti": 1024**4}


def nbytes_of(size: int | str, name: str = "size") -> int:
    """Return a size in bytes.

    Args:
        size: bytes, or a number with one of kB, MB, GB, TB, KiB, MiB, GiB, TiB.
        name: of the setting, for messages.

    Raises:
        ConfigError: not a size.

    Example:
        >>> nbytes_of("4GiB"), nbytes_of("1.5 MB"), nbytes_of(7)
        (4294967296, 1500000, 7)
    """
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]i?)?b?\s*", str(size), re.IGNORECASE)
    if not match:
        raise ConfigError(f"{name} {size!r} is not a size", allowed="bytes, or 512MiB, 4GiB, ...")
    prefix = (match[2] or "").lower()
    return int(float(match[1]) * {**_FACTORS, **_BINARY}[prefix])
