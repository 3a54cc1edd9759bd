"""Files that are complete or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.files import require_place, write_atomic, write_together


def test_files_that_belong_together_replace_earlier_ones(tmp_path):
    first, second = tmp_path / "a.h", tmp_path / "a.bin"
    first.write_text("earlier")
    write_together({first: "ü\n", second: b"\x00\xff"})
    assert (first.read_bytes(), second.read_bytes()) == ("ü\n".encode(), b"\x00\xff")
    assert sorted(tmp_path.iterdir()) == [second, first]


def test_if_one_file_cannot_be_written_all_are_as_they_were(tmp_path):
    first = tmp_path / "a.h"
    first.write_text("earlier")
    with pytest.raises(OSError, match="missing"):
        write_together({first: "later", tmp_path / "missing" / "a.c": "later"})
    assert first.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [first]


def test_a_folder_in_the_place_of_a_file_leaves_all_as_they_were(tmp_path):
    first, folder = tmp_path / "a.h", tmp_path / "a.c"
    first.write_text("earlier")
    folder.mkdir()
    with pytest.raises(IsADirectoryError, match=r"a\.c"):
        write_together({first: "later", folder: "later"})
    assert first.read_text() == "earlier"
    assert sorted(tmp_path.iterdir()) == [folder, first]


@pytest.mark.parametrize("failing", range(3))
def test_if_one_file_cannot_be_replaced_all_are_as_they_were(tmp_path, monkeypatch, failing):
    paths = [tmp_path / name for name in ("a.h", "a.c", "a.bin")]
    paths[0].write_text("earlier")
    paths[2].write_bytes(b"\x00")
    replace, names = Path.replace, [path.name for path in paths]

    def failing_replace(self, target):
        if target == paths[failing] and self.suffix == ".tmp":
            raise PermissionError(13, "not permitted", str(target))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing_replace)
    with pytest.raises(PermissionError, match=names[failing].replace(".", r"\.")):
        write_together(dict.fromkeys(paths, "later"))
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {
        "a.h": b"earlier",
        "a.bin": b"\x00",
    }


def test_the_place_of_a_file_is_checked_before_work(tmp_path, monkeypatch):
    require_place(tmp_path / "new" / "folder" / "m.so")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    require_place(tmp_path / "file")
    for path, text in (
        (tmp_path, r": a folder\. Allowed: the name of a file"),
        (tmp_path / "file" / "sub" / "m.so", "file: not a folder"),
        (Path("/dev/null"), "device, pipe or socket"),
    ):
        with pytest.raises(ConfigError, match=text):
            require_place(path)
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)  # root may write anywhere
    with pytest.raises(ConfigError, match=rf"{tmp_path.name}: cannot be written"):
        require_place(tmp_path / "new" / "m.so")


@pytest.mark.parametrize("write", [write_atomic, lambda path, text: write_together({path: text})])
def test_a_full_disk_names_the_file(tmp_path, monkeypatch, write):
    def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space") as caught:
        write(tmp_path / "m.so", "text")
    assert caught.value.filename == str(tmp_path / "m.so")
