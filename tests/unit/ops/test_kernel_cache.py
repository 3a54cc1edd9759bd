"""Faults of the kernel cache: damaged, foreign, shared, read-only and full folders."""

import errno
import json
import os
import shutil
import stat
import subprocess
import sys

import pytest

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen import cache as caching
from scitoolkit.ops.codegen import compile as compiling
from scitoolkit.ops.codegen.cache import KernelCache, distrust


def answer(number: int) -> str:
    return f"int answer(void) {{ return {number}; }}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of compiled kernels; the temporary directory is a sibling of it."""
    monkeypatch.setenv("SCITOOLKIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(caching.tempfile, "tempdir", str(tmp_path / "temporary"))
    caching._warn.cache_clear()
    return tmp_path / "cache" / "kernels"


def only(folder, pattern):
    (path,) = folder.glob(pattern)
    return path


def replace(path, data):
    """Replace a file that this process has mapped by a damaged one."""
    path.unlink()
    path.write_bytes(data)


def halve(library, note):
    replace(library, library.read_bytes()[: library.stat().st_size // 2])


def flip(library, note):
    data = bytearray(library.read_bytes())
    for place in range(len(data) // 3, len(data) // 3 + 3000, 7):
        data[place] ^= 0xFF
    replace(library, data)


def empty(library, note):
    replace(library, b"")


def empty_note(library, note):
    note.write_bytes(b"")


def remove(library, note):
    library.unlink()


def point_elsewhere(library, note):
    """An absolute path in the note, as somebody else would plant it."""
    evil = note.parent.parent / "evil.so"
    shutil.copy(library, evil)
    note.write_text(str(evil.with_suffix("")))


FAULTS = [halve, flip, empty, empty_note, remove, point_elsewhere]
CHILD = """
import json, sys
from scitoolkit.ops.codegen import compile as compiling
compiled, original = [], compiling.compile_source
def counted(*arguments):
    compiled.append(arguments)
    return original(*arguments)
compiling.compile_source = counted
numbers = range(100, 100 + int(sys.argv[1]))
answers = [compiling.load_library(f"int answer(void) {{ return {n}; }}").answer() for n in numbers]
print(json.dumps([answers, len(compiled)]))
"""


def test_damaged_entries_are_compiled_again(folder, monkeypatch):
    numbers = list(range(100, 100 + len(FAULTS)))
    for number, fault in zip(numbers, FAULTS, strict=True):
        before = set(folder.glob("*"))
        compiling.load_library(answer(number))
        made = set(folder.glob("*")) - before
        fault(*(next(path for path in made if path.suffix == each) for each in (".so", ".of")))
    # In a process that never loaded the undamaged libraries; it would end with SIGBUS or SIGSEGV.
    command = [sys.executable, "-c", CHILD, str(len(FAULTS))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [numbers, len(FAULTS)]
    monkeypatch.setattr(compiling, "compile_source", lambda *a: pytest.fail("not healed"))
    assert [compiling.load_library(answer(n)).answer() for n in numbers] == numbers


def test_a_note_with_a_path_is_never_followed(folder, tmp_path):
    compiling.load_library(answer(7))
    outside = tmp_path / ("0" * 64 + ".so")
    shutil.copy(only(folder, "*.so"), outside)
    cache, loaded = KernelCache(folder), []
    for text in (str(outside), f"../../{outside.stem}", "a" * 63, "A" * 64, "0" * 64 + "\n"):
        only(folder, "*.of").write_text(text)
        assert cache.load(only(folder, "*.of").stem, loaded.append) is None
    assert not loaded


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777 | stat.S_ISVTX])
def test_a_folder_that_others_may_write_is_not_used(folder, mode, caplog):
    compiling.load_library(answer(8))
    before = only(folder, "*.so").stat().st_mtime_ns
    folder.chmod(mode)
    assert compiling.load_library(answer(8)).answer() == 8
    assert only(folder, "*.so").stat().st_mtime_ns == before
    assert only(caching.fallback_directory(), "*.so").exists()
    assert f"others may write it (mode {mode:o})" in caplog.text
    assert str(caching.fallback_directory()) in caplog.text


def test_folders_of_the_user_and_of_root_are_trusted_and_no_others(monkeypatch):
    monkeypatch.setattr(caching.os, "geteuid", lambda: 1000)

    def status(mode, owner):
        return os.stat_result((mode, 0, 0, 2, owner, owner, 0, 0, 0, 0))

    assert distrust(status(0o40755, 1000)) == ""
    assert distrust(status(0o40755, 0)) == ""
    assert "belongs to user 1001" in distrust(status(0o40700, 1001))
    monkeypatch.setattr(caching.os, "geteuid", lambda: 0)
    assert "belongs to user 1000" in distrust(status(0o40700, 1000))


def refuse_writes(monkeypatch, folder, code):
    """Let creating files below a folder fail, as on a read-only or full file system."""
    write = KernelCache.write

    def refused(cache, name, data):
        if str(cache.folder).startswith(str(folder)):
            raise OSError(code, os.strerror(code), str(cache.folder))
        write(cache, name, data)

    monkeypatch.setattr(KernelCache, "write", refused)


def test_a_read_only_prebuilt_cache_serves_what_it_holds(folder, monkeypatch, caplog):
    def generator(number: str) -> str:
        return answer(int(number))

    monkeypatch.setattr(sys.modules[__name__], "generator", generator, raising=False)
    compiling.load_library(answer(9))
    compiling.load_generated(generator, "10")
    refuse_writes(monkeypatch, folder, errno.EROFS)
    for path in (*folder.glob("*"), folder):
        path.chmod(path.stat().st_mode & ~0o222)
    files = sorted(folder.iterdir())
    monkeypatch.setattr(compiling, "compile_source", lambda *a: pytest.fail("compiled again"))
    assert compiling.load_library(answer(9)).answer() == 9
    assert compiling.load_generated(generator, "10").answer() == 10
    assert sorted(folder.iterdir()) == files
    assert not caplog.text


def test_what_a_read_only_cache_lacks_is_kept_in_the_temporary_folder(folder, monkeypatch, caplog):
    refuse_writes(monkeypatch, folder, errno.EROFS)
    assert compiling.load_library(answer(11)).answer() == 11
    assert only(caching.fallback_directory(), "*.so").exists()
    assert "Read-only file system" in caplog.text


def test_an_unwritable_cache_is_named_and_no_compiler_is_missed(folder, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert compiling.load_library(answer(12)).answer() == 12
    monkeypatch.setattr(caching.tempfile, "tempdir", str(tmp_path / "cache" / "also"))
    with pytest.raises(BackendError) as caught:
        compiling.load_library(answer(13))
    assert str(folder) in str(caught.value)
    assert "SCITOOLKIT_CACHE" in str(caught.value)
    assert "C compiler" not in str(caught.value)


def test_a_full_disk_is_named(folder, tmp_path, monkeypatch):
    refuse_writes(monkeypatch, tmp_path, errno.ENOSPC)
    with pytest.raises(BackendError, match="No space left on device"):
        compiling.load_library(answer(14))


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("/usr/bin/ld: final link failed: No space left on device", "no space left"),
        ("collect2: error: ld returned 1 exit status", "could not compile a kernel: collect2"),
        ("", "it wrote no library"),
    ],
)
def test_the_cause_of_a_failed_compilation_is_the_true_one(
    folder, tmp_path, monkeypatch, says, expected
):
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {int(bool(says))}\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(BackendError, match=expected):
        compiling.load_library(answer(15))


def test_a_compiler_with_arguments_has_entries_apart(folder, monkeypatch):
    compiling.load_library(answer(16))
    monkeypatch.setenv("CC", f"{compiling.find_compiler()} -DEXTRA=1")
    assert compiling.load_library("int answer(void) { return 16 + EXTRA; }").answer() == 17
    compiling.load_library(answer(16))
    assert len(list(folder.glob("*.of"))) == 3


def test_a_library_is_on_disk_before_the_note_that_names_it(folder, monkeypatch):
    synced, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(file), fsync(file)))
    written, write = [], KernelCache.write
    monkeypatch.setattr(
        KernelCache, "write", lambda s, name, data: (written.append(name), write(s, name, data))
    )
    compiling.load_library(answer(18))
    assert [name.rpartition(".")[2] for name in written] == ["so", "of"]
    assert len(synced) == 4  # file and folder of each
    assert folder.stat().st_mode & 0o777 == 0o700
