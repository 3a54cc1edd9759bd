"""Pytest hooks: a skip because of a package that the tests have is a failure.

`pytest.importorskip` is for packages of another environment, in which `make test-peers` runs the
same tests. Of a package that is installed, an error while it is imported would otherwise pass as a
skipped test; and so would all tests of a package that the installation has lost.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from typing import Any

import pytest

ELSEWHERE = {"mace", "mlflow", "mpi4py", "nequip", "pyscf", "ray", "tblite", "wandb"} | {
    "eccodes",
    "moto",
    "s3fs",
    "torch_sim",
    "yt",
}
"""Packages that the extra `dev` does not install; see `make test-peers`."""


def failed_import(reason: str) -> str | None:
    """Return why the import that a skip names as its reason is a failure; None for other skips.

    Example:
        >>> failed_import("could not import 'json.absent': No module named 'json.absent'")
        'json is installed'
        >>> failed_import("could not import 'e4nn': No module named 'e4nn'")
        "e4nn is missing: pip install -e '.[dev]'"
    """
    named = re.search(r"could not import '(\w+)", reason)
    if named is None:
        return None
    if importlib.util.find_spec(named[1]):
        return f"{named[1]} is installed"
    return None if named[1] in ELSEWHERE else f"{named[1]} is missing: pip install -e '.[dev]'"


def _checked(report: Any) -> Any:
    if report.skipped and isinstance(report.longrepr, tuple):
        failure = failed_import(report.longrepr[2])
        if failure:
            report.outcome = "failed"
            report.longrepr = f"{failure}, but {report.longrepr[2]}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    return _checked((yield))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    return _checked((yield))
