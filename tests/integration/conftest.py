from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from scitoolkit.io.fields import open_fields, write_fields

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / "workflows" / "sst_forecast"


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict:
        return json.loads(self.out)


@pytest.fixture(scope="session")
def small_sst(tmp_path_factory) -> Path:
    """Real monthly sea-surface temperature, every sixth cell."""
    (source,) = (ROOT / "datasets" / "ersst_v5").glob("*.nc")
    path = tmp_path_factory.mktemp("data") / "small.nc"
    with open_fields(source, "sst") as dataset:
        small = dataset.isel(lat=slice(None, None, 6), lon=slice(None, None, 6)).load()
    return write_fields(small, path)


@pytest.fixture
def cli(tmp_path):
    """Run the command line as users do: in a process of its own, in a folder of its own."""

    def run(*arguments: str, timeout: float = 240, env: dict[str, str] | None = None) -> Outcome:
        done = subprocess.run(
            [sys.executable, "-m", "scitoolkit", *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run
