"""A wheel without the clone contains the cards, reports missing files, and fetches them once."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_MB = 3
# The unpacked wheel stands before the editable install of these tests.
START = "import sys; sys.path.insert(0, {!r}); from scitoolkit.cli.main import main; main()"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def site(wheel):
    site = wheel.parent / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.fixture
def scitoolkit(site, tmp_path):
    environment = {**os.environ, "SCITOOLKIT_CONTENT": str(tmp_path / "content")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", START.format(str(site)), *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    return run


def test_it_is_small_and_complete(wheel, site):
    assert wheel.stat().st_size <= MAX_MB * 10**6
    package = {p.relative_to(ROOT) for p in (ROOT / "scitoolkit").rglob("*.[ch]")}
    assert package
    assert not [p for p in package if not (site / p).is_file()]
    assert (site / "scitoolkit/potentials/export/lammps/COPYING").is_file()


def test_cards_are_shown_and_missing_files_named(scitoolkit):
    shown = scitoolkit("show", "datasets/cora")
    assert shown.returncode == 0, shown.stderr
    assert "changed or missing: cora.npz" in shown.stdout
    assert scitoolkit("validate", "vlasov_landau").returncode == 0  # reads no data
    assert scitoolkit("validate", "node_classification").returncode == 3
    refused = scitoolkit("run", "node_classification")
    assert refused.returncode == 3
    assert "scitoolkit fetch" in refused.stderr


def test_files_are_fetched_once_from_a_clone(scitoolkit, tmp_path):
    first, second = scitoolkit("fetch", str(ROOT)), scitoolkit("fetch", str(tmp_path / "gone"))
    assert first.returncode == second.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert "all files match the card" in scitoolkit("show", "datasets/cora").stdout
    assert scitoolkit("validate", "node_classification").returncode == 0


def test_an_archive_that_lacks_a_file_leaves_nothing(scitoolkit, tmp_path):
    with tarfile.open(tmp_path / "part.tar.gz", "w:gz") as archive:
        archive.add(ROOT / "datasets" / "cora", "scitoolkit-0/datasets/cora")
    refused = scitoolkit("fetch", "part.tar.gz")
    assert refused.returncode == 3
    assert "missing or differ" in refused.stderr
    assert not list((tmp_path / "content").iterdir())
    (tmp_path / "text.tar.gz").write_text("no archive")
    assert "not a readable archive" in scitoolkit("fetch", "text.tar.gz").stderr
