"""No damaged text or file crashes a parser or ends in another error than ours."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from command_line import warm_start
from parser_cases import PARSERS

CASES = Path(__file__).with_name("parser_cases.py")
FEW, MANY = 50, 6000
"""Cases a parser in `make test`, and those that `make test-slow` adds."""


# The HDF5 library loops for ever on some damaged object headers: nothing here can end it. Of these
# parsers such a case is passed over, if the innermost Python frame is one of h5py.
LIBRARY_HANGS = {"hdf5_filter", "hdf5_values"}


def _unexpected(parser: str, count: int, first: int = 0) -> list[str]:
    done = warm_start().run(
        CASES.parent, [parser, str(count), str(first)], timeout=7200, script=CASES
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    frames = [line for line in done.stderr.splitlines() if line.startswith("  File ")]
    in_library = bool(frames) and "/h5py/" in frames[0]
    if done.returncode == -signal.SIGALRM and parser in LIBRARY_HANGS and in_library:
        number = rows[-1]["started"] + 1
        faults = [str(row) for row in rows if "case" in row]
        return faults + _unexpected(parser, first + count - number, number)
    if done.returncode:
        last = next((r["started"] for r in reversed(rows) if "started" in r), "the valid file")
        return [f"exit code {done.returncode} at {last}: {done.stderr[-500:]}"]
    assert rows[-1] == {"cases": count}
    return [str(row) for row in rows if "case" in row]


@pytest.mark.parametrize("parser", PARSERS)
def test_damaged_input_is_refused(parser):
    assert _unexpected(parser, FEW) == []


@pytest.mark.slow
@pytest.mark.parametrize("parser", PARSERS)
def test_much_damaged_input_is_refused(parser):
    assert _unexpected(parser, MANY, FEW) == []
