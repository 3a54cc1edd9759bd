"""Pytest hooks: a skip because of a package that is installed, but fails to import, is a failure.

`pytest.importorskip` is for packages that are absent. Of a package that is installed, an error
while it is imported would otherwise pass as a skipped test.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from typing import Any

import pytest


def failed_import(reason: str) -> str | None:
    """Return the installed package whose import failed, by the reason of a skip.

    Example:
        >>> failed_import("could not import 'json.absent': No module named 'json.absent'")
        'json'
        >>> failed_import("could not import 'absent_package': No module named 'absent_package'")
    """
    named = re.search(r"could not import '(\w+)", reason)
    return named[1] if named and importlib.util.find_spec(named[1]) else None


def _checked(report: Any) -> Any:
    if report.skipped and isinstance(report.longrepr, tuple):
        package = failed_import(report.longrepr[2])
        if package:
            report.outcome = "failed"
            report.longrepr = f"{package} is installed, but {report.longrepr[2]}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    return _checked((yield))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    return _checked((yield))
