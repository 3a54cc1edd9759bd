"""Files for HDF5 that stay consistent after writes that fail."""

from __future__ import annotations

import errno
import io
import os
import random

import numpy as np
import pytest
import xarray as xr

from scitoolkit.io.netcdf_writer import write_netcdf
from scitoolkit.io.unfailing_file import UnfailingFile


def failing_after(monkeypatch, count, error):
    """Let writes fail from call `count` on, half of them after a part."""
    original, calls = os.pwrite, iter(range(10**9))

    def pwrite(file, data, place):
        number = next(calls)
        if number == count:
            return original(file, data[: len(data) // 2], place)
        if number > count:
            raise error
        return original(file, data, place)

    monkeypatch.setattr(os, "pwrite", pwrite)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("error", [OSError(errno.EIO, "failed"), KeyboardInterrupt()])
def test_after_a_failed_write_it_is_like_a_file_in_memory(tmp_path, monkeypatch, seed, error):
    draw = random.Random(seed)
    file, memory = UnfailingFile(tmp_path / "a"), io.BytesIO()
    failing_after(monkeypatch, draw.randint(0, 40), error)
    for _ in range(100):
        place, data = draw.randint(0, 300), draw.randbytes(draw.randint(1, 90))
        for each in (file, memory):
            each.seek(place)
            assert each.write(data) == len(data)
        low, count = draw.randint(0, 400), draw.randint(0, 90)
        for each in (file, memory):
            each.seek(low)
        assert file.read(count) == memory.read(count)
        assert file.tell() == memory.tell()
        assert file.seek(0, os.SEEK_END) == memory.seek(0, os.SEEK_END)
    with pytest.raises(type(error)):
        file.check()
    file.close()


def test_without_errors_the_disk_has_the_same_bytes(tmp_path):
    file, memory = UnfailingFile(tmp_path / "a"), io.BytesIO()
    for each in (file, memory):
        for place, size in ((0, 10), (50, 5), (5, 20)):
            each.seek(place)
            each.write(bytes([place + 1]) * size)
        each.truncate(60)
    file.check()
    file.close()
    assert (tmp_path / "a").read_bytes() == memory.getvalue().ljust(60, b"\0")


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8, 13])
def test_a_netcdf_file_ends_with_the_first_error_wherever_it_occurs(tmp_path, monkeypatch, count):
    failing_after(monkeypatch, count, OSError(errno.EROFS, os.strerror(errno.EROFS)))
    values = {n: (("t", "x"), np.random.rand(50, 400)) for n in "abcd"}
    dataset = xr.Dataset(values, {"x": np.arange(400.0), "t": np.arange(50)})
    with pytest.raises(OSError, match="Read-only"):
        write_netcdf(dataset, tmp_path / "a.nc")
