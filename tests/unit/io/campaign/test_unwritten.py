"""Times, coordinates and parameters that were never written are missing, not zeros."""

import h5py
import numpy as np
import pytest

from scitoolkit import open_campaign
from scitoolkit.core.errors import DataError

ROWS = 12


def write(path, name, how):
    with h5py.File(path, "w") as file:
        file["u"] = np.random.default_rng(0).random((ROWS, 4, 5))
        sizes = {"time": ROWS, "y": 4, "x": 5}
        for dim, size in sizes.items():
            if dim == name and how == "chunks":
                vector = file.create_dataset(dim, (size,), "f8", chunks=(2,))
                vector[: size - 2] = np.arange(1.0, size - 1)
            elif dim == name and how == "contiguous":
                file.create_dataset(dim, (size,), "i8")
            elif dim == name:
                layout = h5py.VirtualLayout((size,), "f8")
                source = h5py.VirtualSource("other.h5", "v", (size,))
                layout[: size - 1] = source[: size - 1]
                file.create_virtual_dataset(dim, layout)
            else:
                file[dim] = np.arange(1.0, size + 1)
        for axis, dim in enumerate(sizes):
            file[dim].make_scale(dim)
            file["u"].dims[axis].attach_scale(file[dim])


@pytest.mark.parametrize("how", ["chunks", "contiguous", "virtual", "gone"])
def test_times_that_were_never_written_are_refused(tmp_path, how):
    if how == "virtual":
        with h5py.File(tmp_path / "other.h5", "w") as file:
            file["v"] = np.arange(ROWS + 0.0)
    folder = tmp_path / "runs"
    path = tmp_path / "run.h5" if how in ("virtual", "gone") else folder / "run.h5"
    folder.mkdir()
    write(path, "time", how)
    with pytest.raises(DataError, match=r"the time of row \d+ is missing"):
        open_campaign(path, ["u"])


@pytest.mark.parametrize("how", ["chunks", "contiguous"])
@pytest.mark.parametrize("name", ["y", "x"])
def test_coordinates_that_were_never_written_are_refused(tmp_path, how, name):
    write(tmp_path / "run0.h5", "", how)
    write(tmp_path / "run1.h5", name, how)
    with pytest.raises(DataError, match=f"coordinate {name} has missing"):
        open_campaign(tmp_path, ["u"], files="simulations")


def test_parameters_that_were_never_written_are_refused(tmp_path):
    for run in range(3):
        path = tmp_path / f"run{run}.h5"
        write(path, "", "")
        with h5py.File(path, "a") as file:
            nu = file.create_dataset("nu", (), "f8")
            if run != 1:
                nu[()] = 0.1 * run
    with pytest.raises(DataError, match="nu"):
        open_campaign(tmp_path, ["u"], parameters=["nu"], files="simulations")


def test_written_ones_are_read(tmp_path):
    write(tmp_path / "run.h5", "", "")
    assert open_campaign(tmp_path / "run.h5", ["u"]).found.index.num_rows == ROWS
