"""Each folder here is an example package: installed by pip for the tests in it, then removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from plugin_packages import installed


@pytest.fixture(scope="module", autouse=True)
def _package(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[None]:
    folder = Path(request.path).parent
    if not (folder / "pyproject.toml").is_file():
        yield
        return
    with installed(folder, tmp_path_factory.mktemp("site")):
        yield
