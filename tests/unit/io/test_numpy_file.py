from __future__ import annotations

import errno

import numpy as np
import pytest

from scitoolkit.io.numpy_file import load_array, save_array, save_values

ARRAYS = {
    "C order": np.arange(24.0).reshape(4, 6),
    "Fortran order": np.arange(24.0).reshape(4, 6).T,
    "strided": np.arange(24)[::3],
    "big-endian": np.arange(6, dtype=">f4"),
    "scalar": np.float32(2),
    "empty": np.zeros((0, 3)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_files_are_those_of_numpy(name, tmp_path):
    values = np.asarray(ARRAYS[name])
    save_array(tmp_path / "a.npy", values)
    np.save(tmp_path / "b.npy", values)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
    np.testing.assert_array_equal(load_array(tmp_path / "a.npy"), values)
    save_values(tmp_path / "a.raw", values)
    assert (tmp_path / "a.raw").read_bytes() == values.tobytes()


@pytest.mark.parametrize("write", [save_array, save_values])
def test_a_full_disk_is_named_as_the_cause(write):
    with pytest.raises(OSError, match="No space left") as caught:
        write("/dev/full", np.zeros(100_000))
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == "/dev/full"
