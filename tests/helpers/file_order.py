"""Pytest plugin: files that take long are started first.

pytest-xdist hands whole files to its workers in the order of collection. A file of minutes that is
started last runs alone while the other workers wait. `--store-seconds` writes what each file took
to `tests/file_seconds.json`; later runs read the order from there.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

STORED = Path(__file__).resolve().parents[1] / "file_seconds.json"
SHORTEST = 3.0  # seconds; shorter files are not stored: their order changes nothing
SECONDS_A_TEST = 0.1  # of a file that is not stored


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--store-seconds`."""
    parser.addoption(
        "--store-seconds", action="store_true", help=f"write {STORED.name} from this run"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Count seconds where they are asked for: in the process that hears of all tests."""
    if config.getoption("--store-seconds") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Clock(), "file seconds")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files by decreasing seconds; the tests of a file keep their order."""
    by_file = sorted_files([item.nodeid for item in items], json.loads(STORED.read_text()))
    rank = {name: number for number, name in enumerate(by_file)}
    items.sort(key=lambda item: rank[_file(item.nodeid)])


def sorted_files(node_ids: list[str], seconds: dict[str, float]) -> list[str]:
    """Return the files of tests, longest first.

    Args:
        node_ids: names of tests, as `tests/unit/test_words.py::test_words`.
        seconds: what files took; others take as long as their number of tests says.
    """
    tests = Counter(_file(node_id) for node_id in node_ids)
    return sorted(tests, key=lambda name: -seconds.get(name, SECONDS_A_TEST * tests[name]))


def _file(node_id: str) -> str:
    return node_id.partition("::")[0]


class _Clock:
    """Sums the seconds of a file's tests with their fixtures."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[_file(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        long = {name: round(s, 1) for name, s in self._seconds.items() if s >= SHORTEST}
        STORED.write_text(json.dumps(dict(sorted(long.items())), indent=1) + "\n")
