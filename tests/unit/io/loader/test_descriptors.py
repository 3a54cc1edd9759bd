"""Any number of files with a bounded number of descriptors; the limit is told from damage."""

from __future__ import annotations

import errno
import os
import resource

import h5py
import numpy as np
import pytest

from scitoolkit.core.errors import DataError
from scitoolkit.io.loader import hdf5, open_source
from scitoolkit.io.loader.descriptors import DescriptorCache, descriptors


@pytest.fixture
def many(tmp_path):
    for i in range(120):
        with h5py.File(tmp_path / f"s{i:03d}.h5", "w") as file:
            file["u"] = np.full((2, 3), i, "f4")
    return tmp_path / "*.h5"


def test_more_files_than_the_system_lets_be_open_are_read(many):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    limit = descriptors.limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 40, hard))
    try:
        source = open_source(many, {"u": "u"})
        found = source.read(np.arange(len(source)))["u"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        descriptors.limit = limit
    assert np.array_equal(found[:, 0], np.repeat(np.arange(120.0), 2))
    assert len(os.listdir("/proc/self/fd")) <= used + 40


def test_the_limit_of_open_files_is_not_called_damage(many, monkeypatch):
    path = next(iter(sorted(many.parent.glob("*.h5"))))

    def refused(*_, **__):
        raise OSError(f"Unable to open file (errno = {errno.EMFILE}, 'Too many open files')")

    monkeypatch.setattr(hdf5.h5py, "File", refused)
    with pytest.raises(DataError, match="too many open files") as caught:
        hdf5.open_hdf5(path)
    assert "damaged" not in str(caught.value)
    assert "ulimit -n" in str(caught.value)


def test_a_descriptor_in_use_is_not_closed(tmp_path):
    cache = DescriptorCache(limit=1)
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode())
    with (
        cache.descriptor("a", str(tmp_path / "a")) as first,
        cache.descriptor("b", str(tmp_path / "b")),
    ):
        assert os.pread(first, 1, 0) == b"a"


def _close(source):
    for reader in source.rows["u"].readers:
        reader.file.close()


def test_a_file_replaced_between_two_reads_is_refused(many):
    source = open_source(many, {"u": "u"})
    _close(source)
    path = sorted(many.parent.glob("*.h5"))[3]
    with h5py.File(path.with_suffix(".new"), "w") as file:
        file["u"] = np.zeros((9, 3), "f4")
    path.with_suffix(".new").replace(path)
    with pytest.raises(DataError, match=r"replaced|truncated"):
        source.read(np.arange(8))
    path.unlink()
    _close(source)  # another thread may have opened the file again before the first one failed
    with pytest.raises(DataError, match="No such file"):
        source.read(np.arange(8))
