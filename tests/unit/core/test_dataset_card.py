from __future__ import annotations

import pytest
import yaml

from scitoolkit.core.dataset_card import problems, sha256, verify
from scitoolkit.core.errors import ConfigError, DataError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"abc")
    entry = {"path": "a.bin", "sha256": sha256(tmp_path / "a.bin"), "size": 3}
    card = {
        "name": "a",
        "title": "A",
        "licence": "MIT",
        "provenance": {"source": "here", "citation": "none", "processing": "none"},
        "make": "make it",
        "files": [entry],
    }
    (tmp_path / "dataset.yaml").write_text(yaml.safe_dump(card))
    return tmp_path


def test_intact_files_pass(folder):
    assert verify(folder).files[0].size == 3


@pytest.mark.parametrize(("data", "word"), [(b"abd", "sha256"), (b"ab", "2 bytes"), (None, "miss")])
def test_a_changed_file_is_named(folder, data, word):
    (folder / "a.bin").unlink()
    if data:
        (folder / "a.bin").write_bytes(data)
    assert word in next(problems(folder))
    with pytest.raises(DataError, match=r"a\.bin: .*Fix: make it"):
        verify(folder)


def test_a_path_outside_the_folder_is_refused(folder):
    path = folder / "dataset.yaml"
    path.write_text(path.read_text().replace("a.bin", "../a.bin"))
    with pytest.raises(ConfigError, match="not a path inside"):
        verify(folder)
