"""Parts of a long result: kept after a stop, refused when they are of something else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from scitoolkit.core.errors import DataError
from scitoolkit.io.parts import Parts, by_size, identity, ranges


def test_finished_parts_stay_after_an_error_and_are_not_missing(tmp_path):
    def stopped():
        with Parts(tmp_path / "u.nc", 3, {}).opened() as parts:
            parts.save(0, {"u": np.arange(3.0), "name": np.array(["Å", "b"])})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        stopped()
    with Parts(tmp_path / "u.nc", 3, {}).opened() as parts:
        assert parts.missing() == [1, 2]
        assert parts.load(0)["name"].tolist() == ["Å", "b"]
        parts.remove()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_of_a_start_without_parts(tmp_path):
    with Parts(tmp_path / "u.nc", 1, {}).opened():
        pass
    assert list(tmp_path.iterdir()) == []


def test_parts_of_another_result_are_refused_by_what_differs(tmp_path):
    with Parts(tmp_path / "u.nc", 2, {"model": "a", "file": "f"}).opened() as parts:
        parts.save(1, {"u": np.zeros(1)})
    with pytest.raises(DataError, match=r"other model\).*") as caught:
        with Parts(tmp_path / "u.nc", 2, {"model": "b", "file": "f"}).opened():
            pass
    assert "u.nc.parts" in str(caught.value)
    assert Parts(tmp_path / "u.nc", 2, {}).missing() == [0]  # nothing was removed


def test_two_processes_do_not_compute_the_same_parts(tmp_path):
    code = (
        "import sys; from pathlib import Path; from scitoolkit.io.parts import Parts\n"
        "with Parts(Path(sys.argv[1]), 2, {}).opened(): print('in', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "u.nc")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "in\n"
        parts = Parts(tmp_path / "u.nc", 2, {})
        with pytest.raises(DataError, match="another process"), parts.opened():
            pass
        os.kill(holder.pid, signal.SIGKILL)
    with Parts(tmp_path / "u.nc", 2, {}).opened() as parts:  # a killed one holds nothing back
        assert parts.missing() == [0, 1]


def test_a_damaged_part_is_named(tmp_path):
    with Parts(tmp_path / "u.nc", 2, {}).opened() as parts:
        parts.save(0, {"u": np.zeros(100)})
        path = next(parts.folder.glob("*.npz"))
        path.write_bytes(path.read_bytes()[:200])
        with pytest.raises(DataError, match="damaged") as caught:
            parts.load(0)
    assert "00000000.npz" in str(caught.value)


def test_a_changed_file_has_another_identity(tmp_path):
    (tmp_path / "a").write_text("1")
    one, folder = identity(tmp_path / "a"), identity(tmp_path)
    os.utime(tmp_path / "a", (1, 1))
    assert identity(tmp_path / "a") != one
    assert identity(tmp_path) != folder
    with pytest.raises(DataError, match="none"):
        identity(tmp_path / "none")


@pytest.mark.parametrize(("sizes", "most"), [([], 3), ([5], 3), ([1, 1, 1, 1], 3), ([2, 9, 1], 3)])
def test_ranges_by_size_cover_all_once(sizes, most):
    found = by_size(sizes, most)
    assert [k for piece in found for k in piece] == list(range(len(sizes)))
    assert all(len(p) == 1 or sum(sizes[k] for k in p) <= most for p in found if sizes)


def test_ranges_of_nothing_are_one_empty_range():
    assert ranges(0, 4) == [range(0)]
