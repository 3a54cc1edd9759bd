"""Assignment of files and rows to simulations by times, or by the names of files."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.campaign.campaign_layout import CampaignOptions
from scitoolkit.io.campaign.clocks import common_clock, stored_times
from scitoolkit.io.campaign.constants import differing
from scitoolkit.io.campaign.file_names import name_parts, stem_of
from scitoolkit.io.campaign.file_rows import FileRows
from scitoolkit.io.campaign.files import natural_key
from scitoolkit.io.campaign.row_times import GAP, gaps_of

if TYPE_CHECKING:
    pass


_logger = get_logger(__name__)


_TOLERANCE = 1e-3


_MEMBER = re.compile(r"(?<![a-z0-9])r\d+i\d+p\d+(f\d+)?(?![a-z0-9])")


def simulations(series: Sequence[FileRows], options: CampaignOptions) -> dict[str, list[FileRows]]:
    """Return the series of every simulation by name, in the order of rows.

    Files are parts of one simulation if their times continue with the same step; otherwise each
    file is a simulation. Single-sample files are steps of a simulation according to their names.

    Raises:
        DataError: the parts are not in order, or the names are ambiguous.
    """
    # What files state comes before their names, and names before times: files of one sample have no
    # step between rows by which times could be recognised as continuing.
    if all(s.step is not None for s in series):
        return _by_steps(series, options)
    if all(s.single for s in series) and len(series) > 1 and (options.lead or options.pattern):
        return _by_names(series, options)
    if options.files == "parts":
        return {series[0].name: _in_time(series, options, required=True) or list(series)}
    return _by_times(series, options)


def _by_steps(series: Sequence[FileRows], options: CampaignOptions) -> dict[str, list[FileRows]]:
    """Return samples sorted by the simulation and step stated in their files."""
    parts: dict[str, list[FileRows]] = {}
    for one in sorted(series, key=lambda s: s.step or ("", 0)):
        assert one.step is not None
        parts.setdefault(one.step[0], []).append(one)
    return {
        name: _with_breaks(parts[name], [one.step[1] for one in parts[name] if one.step], options)
        for name in sorted(parts, key=natural_key)
    }


def _with_breaks(
    samples: Sequence[FileRows], steps: Sequence[int], options: CampaignOptions
) -> list[FileRows]:
    """Return the samples of a simulation with the breaks where files between them are missing.

    Args:
        samples: of one row each, in order.
        steps: their numbers, which count where not every sample has a time.
        options: `gaps` and `lead`.

    Raises:
        DataError: with the first gap, unless simulations are to be split there.
    """
    if not options.lead or options.gaps == "allow" or any(one.count != 1 for one in samples):
        return list(samples)
    timed = all(one.stored is not None for one in samples)
    numbers = np.concatenate(common_clock(samples)) if timed else np.array(steps)
    where = f"{samples[0].path} and {len(samples) - 1} more"
    rows = set(gaps_of(numbers, where, options.gaps == "split"))
    return [replace(one, breaks=(0,)) if k in rows else one for k, one in enumerate(samples)]


def _by_times(series: Sequence[FileRows], options: CampaignOptions) -> dict[str, list[FileRows]]:
    one_each = len({s.path for s in series}) == len(series)
    if options.files == "auto" and not one_each:
        return _members(series, options) or _named(series)
    if options.files == "auto" and one_each and len(series) > 1:
        # Names of CMIP state the member: another one is another simulation, whenever it begins.
        labels = {m and m.group() for s in series for m in [_MEMBER.search(stem_of(s.path))]}
        whole = _in_time(series, options) if len(labels) == 1 else None
        names = [] if whole is None else _parameters(whole)
        if whole is not None and not names:
            _logger.info("%d files are parts of one simulation: their times continue", len(series))
            return {whole[0].name: whole}
        if names:
            _logger.warning(
                "the times of %d files continue, but %s differ: files with other values are other "
                "simulations (data.files=parts joins them)",
                len(series),
                ", ".join(names),
            )
        # Names only propose groups, and times confirm them: the last number may be that of a part
        # or that of a run.
        sets = _sets(series)
        joined = {key: _in_time(members, options) for key, members in sets.items()}
        if any(parts and len(parts) > 1 for parts in joined.values()) or _alike(sets.values()):
            # Files are parts of simulations: where one is missing, its simulation has a gap.
            joined |= {
                key: _in_time(sets[key], options, required=True)
                for key, parts in joined.items()
                if not parts
            }
        if len(sets) < len(series) and all(joined.values()):
            return {key: members or [] for key, members in joined.items()}
        for members in sets.values():
            _require_no_repeated_row(members)
    return _named(series)


def _alike(sets: Iterable[Sequence[FileRows]]) -> bool:
    """Return whether the files of all simulations begin alike, with short holes between them.

    Then rows are lost at the ends of parts; runs of their own do not begin so. Of one simulation
    alone nobody can tell.
    """
    begins = []
    for parts in sets:
        if len(parts) < 2 or any(one.stored is None or one.count < 2 for one in parts):
            return False
        clocks = sorted(common_clock(parts), key=lambda times: float(times[0]))
        for before, after in itertools.pairwise(clocks):
            hole = after[0] - before[-1] - np.median(np.diff(before))
            if not 0 <= hole < min(np.ptp(before), np.ptp(after)) / 4:
                return False
        begins.append(np.array([times[0] - clocks[0][0] for times in clocks]))
    first = begins[0]
    return len(begins) > 1 and all(
        len(one) == len(first) and np.allclose(one, first, rtol=_TOLERANCE) for one in begins
    )


def _members(series: Sequence[FileRows], options: CampaignOptions) -> dict[str, list[FileRows]]:
    """Return the members of files that each hold all of them, if their times continue; else {}."""
    by_member: dict[tuple[str, int], list[FileRows]] = {}
    for one in series:
        by_member.setdefault((one.group, one.member), []).append(one)
    paths = {s.path for s in series}
    shared = [parts for parts in by_member.values() if len(parts) > 1]
    whole = [_in_time(parts, options) for parts in shared]
    if len(paths) < 2 or not whole or any(p is None or _parameters(p) for p in whole):
        return {}
    lacking = next((p for p in by_member.values() if len(p) != len(paths)), None)
    if lacking is not None:
        raise DataError(
            f"member {lacking[0].member} is in {len(lacking)} of {len(paths)} files whose times "
            "continue",
            where=lacking[0].path,
            allowed="the same members in all parts",
            fix="data.select of one member, or data.files=simulations",
        )
    _logger.info("%d files are parts of %d members: their times continue", len(paths), len(whole))
    return {parts[0].name: parts for parts in whole if parts}


def _parameters(series: Sequence[FileRows]) -> list[str]:
    """Return the names of the constants in which files differ, none where times are unknown."""
    times = [None if s.stored is None else s.stored for s in series]
    return differing([s.constants for s in series], times)


def _require_no_repeated_row(series: Sequence[FileRows]) -> None:
    """Refuse files that each begin within the one before, as restarts write them.

    As separate simulations they would put one solution into training and test.

    Raises:
        DataError: with both files and the time.
    """
    if len(series) < 2 or any(s.stored is None or s.count < 2 for s in series):
        return
    numbers = common_clock(series)
    order = sorted(range(len(series)), key=lambda i: numbers[i][0])
    pairs = list(itertools.pairwise(order))
    # Members of an ensemble begin at the same time: only a chain of later beginnings is a restart.
    if not all(numbers[a][0] < numbers[b][0] <= numbers[a][-1] for a, b in pairs):
        return
    before, after = series[pairs[0][0]], series[pairs[0][1]]
    last = numbers[pairs[0][1]][0] == numbers[pairs[0][0]][-1]
    raise DataError(
        f"begins at {stored_times(after)[0]}, {'the last time of' if last else 'a time within'} "
        f"{before.path}, as a restart does",
        where=after.path,
        allowed="parts of a simulation that continue without a repeated row",
        fix="drop the repeated rows of each continuation, or data.files=simulations",
    )


def _named(series: Sequence[FileRows]) -> dict[str, list[FileRows]]:
    """Return every series as a simulation with a unique name."""
    names = [s.name for s in series]
    if len(set(names)) < len(names):
        names = [os.path.join(os.path.dirname(s.path), s.name) for s in series]
    if len(set(names)) < len(names):
        names = [s.path + s.name.removeprefix(stem_of(s.path)) for s in series]
    return {name: [s] for name, s in zip(names, series, strict=True)}


def _sets(series: Sequence[FileRows]) -> dict[str, list[FileRows]]:
    """Group files whose names differ only in the last number, and with the same parameters."""
    by_name: dict[str, list[FileRows]] = {}
    for one in series:
        # CMIP and ERA5 end names with the first and last date of a file.
        stem = re.sub(r"\d{4,14}-\d{4,14}(?=\D*$)", "", stem_of(one.path))
        stem = stem if stem != stem_of(one.path) else re.sub(r"\d+(?=\D*$)", "", stem)
        key = os.path.join(os.path.dirname(one.path), stem)
        by_name.setdefault(key, []).append(one)
    sets: dict[str, list[FileRows]] = {}
    for key, members in by_name.items():
        # A parameter sweep is numbered like parts are; its files differ in a constant.
        names = _parameters(members)
        for one in members:
            values = [f"{n}={one.constants.get(n)}" for n in names]
            sets.setdefault(" ".join([key, *values]), []).append(one)
    return sets


def _in_time(
    series: Sequence[FileRows], options: CampaignOptions, required: bool = False
) -> list[FileRows] | None:
    """Return parts in the order of their times; None if the times do not continue evenly.

    Raises:
        DataError: the times of two parts overlap, with `required`; or some parts continue and
            others are missing, unless simulations are to be split there.
    """
    if any(s.stored is None or not s.count for s in series):
        return None
    if len(series) == 1:
        return list(series)
    numbers = common_clock(series)
    order = sorted(range(len(series)), key=lambda i: numbers[i][0])
    ordered, numbers = [series[i] for i in order], [numbers[i] for i in order]
    # Members that start again are other forecasts: each file has all of them.
    if required or (series[0].member < 0 and len(_sets(series)) == 1):
        ordered, numbers = _without_repeats(ordered, numbers)
    gaps = np.array([b[0] - a[-1] for a, b in itertools.pairwise(numbers)])
    if required and not (gaps > 0).all():
        at = int(np.argmin(gaps > 0))
        before, after = ordered[at], ordered[at + 1]
        raise DataError(
            f"its times begin at {stored_times(after)[0]}, before the end of {before.path} "
            f"({stored_times(before)[-1]})",
            where=after.path,
            fix="data.files=simulations, if each file is a simulation",
        )
    if _is_even(numbers, gaps):
        return ordered
    lost = _missing_parts(numbers, gaps)
    # If every gap between files is long, they are separate runs: that a part is missing shows only
    # next to parts that continue.
    if options.gaps != "allow" and len(lost) and (required or len(lost) < len(gaps)):
        at = int(lost[0])
        if options.gaps == "split":
            return [
                # Gap k - 1 is the one between the parts k - 1 and k.
                replace(one, breaks=(0, *one.breaks)) if k - 1 in lost else one
                for k, one in enumerate(ordered)
            ]
        raise DataError(
            f"times are missing between {stored_times(ordered[at])[-1]}, the last of "
            f"{ordered[at].path}, and {stored_times(ordered[at + 1])[0]}",
            where=ordered[at + 1].path,
            allowed="parts of a simulation without a gap",
            fix="restore the file between them, data.gaps=split, or data.files=simulations",
        )
    return ordered if required else None


def _without_repeats(
    ordered: Sequence[FileRows], numbers: Sequence[np.ndarray]
) -> tuple[list[FileRows], list[np.ndarray]]:
    """Return parts in order, and their times, without last rows that the next one holds again."""
    parts, clocks = list(ordered), list(numbers)
    for k, (earlier, later) in enumerate(itertools.pairwise(numbers)):
        near = _TOLERANCE * np.min(np.diff(earlier), initial=np.inf)
        count = int((earlier >= later[0] - near).sum())
        if not 0 < count < len(earlier) or count > len(later):
            continue
        if (np.abs(earlier[-count:] - later[:count]) <= near).all():
            left = len(earlier) - count
            breaks = tuple(row for row in parts[k].breaks if row < left)
            times = stored_times(parts[k])[:left]
            parts[k] = replace(parts[k], count=left, stored=times, breaks=breaks, repeated=count)
            clocks[k] = earlier[:left]
    return parts, clocks


def _missing_parts(numbers: Sequence[np.ndarray], gaps: np.ndarray) -> np.ndarray:
    """Return the parts after which times are missing, if all others continue evenly."""
    inner = np.concatenate([np.diff(n) for n in numbers])
    if not len(inner) or not (gaps > 0).all():
        return np.empty(0, np.int64)
    longer = gaps > GAP * inner.max()
    # A long gap is a missing part only if all other gaps are ordinary steps; else steps vary.
    rest = gaps[~longer]
    even = (rest >= inner.min() * (1 - _TOLERANCE)) & (rest <= inner.max() * (1 + _TOLERANCE))
    return np.flatnonzero(longer) if even.all() else np.empty(0, np.int64)


def _is_even(numbers: Sequence[np.ndarray], gaps: np.ndarray) -> bool:
    """Return whether the gaps between parts are within the range of time steps inside parts."""
    inner = np.concatenate([np.diff(n) for n in numbers])
    if not len(inner) and len(gaps) > 1:
        # Parts of one row have no step inside them: the first gap is the reference for the others.
        inner = gaps[:1]
    if not len(inner) or not (gaps > 0).all():
        return False
    low, high = inner.min() * (1 - _TOLERANCE), inner.max() * (1 + _TOLERANCE)
    return bool((gaps >= low).all() and (gaps <= high).all())


def _by_names(series: Sequence[FileRows], options: CampaignOptions) -> dict[str, list[FileRows]]:
    """Return single-sample files by simulation, in the order of their steps."""
    keys = [name_parts(s.path, s.stored is not None, options) for s in series]
    samples: dict[str, list[tuple[int, FileRows]]] = {}
    for (simulation, step), one in zip(keys, series, strict=True):
        samples.setdefault(simulation, []).append((step, one))
    out = {}
    for name in sorted(samples, key=natural_key):
        members = [s for _, s in sorted(samples[name], key=lambda pair: pair[0])]
        timed = [s for s in members if s.stored is not None]
        times = np.array([c[0] for c in common_clock(timed)])
        if not (np.diff(times) > 0).all():
            raise DataError(
                f"the numbers in the names of simulation {name} are not in the order of its times",
                where=members[0].path,
                fix='data.pattern="run{simulation}_t{step}.h5"',
            )
        steps = [step for step, _ in sorted(samples[name], key=lambda pair: pair[0])]
        out[name] = _with_breaks(members, steps, options)
    if len(out) == len(series):
        raise DataError(
            f"each of the {len(series)} files is one sample, and no two of them are steps of one "
            "simulation",
            where=series[0].path,
            fix="data.lead=0 for a map within a sample, or "
            'data.pattern="run{simulation}_t{step}.h5"',
        )
    return out
