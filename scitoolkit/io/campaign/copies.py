"""Detection of duplicate files in a campaign."""

from __future__ import annotations

import filecmp
import hashlib
import os
from collections.abc import Mapping, Sequence

_PROBE = 4096


def copies_of(files: Sequence[tuple[str, int]]) -> dict[int, int]:
    """Return {index of a file: index of an earlier identical file}.

    Files of equal size are compared by a hash of a few kB, and completely if the hashes agree.

    Args:
        files: names and sizes (bytes); files of size 0 are ignored.
    """
    by_size: dict[int, list[int]] = {}
    for number, (path, size) in enumerate(files):
        if size and os.path.isfile(path):
            by_size.setdefault(size, []).append(number)
    originals: dict[int, int] = {}
    for numbers in by_size.values():
        seen: dict[bytes, list[int]] = {}
        for number in numbers if len(numbers) > 1 else ():
            path, size = files[number]
            earlier = seen.setdefault(_probed(path, size), [])
            same = [n for n in earlier if filecmp.cmp(files[n][0], path, shallow=False)]
            if same:
                originals[number] = same[0]
            else:
                earlier.append(number)
    return originals


def _probed(path: str, size: int) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb", buffering=0) as file:
        for part in range(4):
            file.seek(max(size - _PROBE, 0) * part // 3)
            digest.update(file.read(_PROBE))
    return digest.digest()


def without_copies(grouped: Mapping[str, Sequence[tuple[str, int]]]) -> dict[str, str]:
    """Return {simulation: reason} for simulations whose first file duplicates an earlier one's.

    Args:
        grouped: names and sizes of the files of each simulation.
    """
    names = [name for name, files in grouped.items() if files]
    originals = copies_of([grouped[name][0] for name in names])
    return {names[c]: f"a copy of simulation {names[o]}" for c, o in originals.items()}
