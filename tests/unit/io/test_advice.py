from __future__ import annotations

import h5py
import numpy as np
import pytest

from scitoolkit.cli.main import main
from scitoolkit.io.advice import planned_reads, training_reads
from scitoolkit.io.inspect import describe
from scitoolkit.io.loader import PlannedLoader, open_source


def test_contiguous_and_single_sample_chunks_need_no_advice():
    assert training_reads((100, 64, 64), 4, None, False)["one_by_one"] == 1
    whole = training_reads((100, 128, 128), 4, (1, 128, 128), True)
    assert (whole["one_by_one"], whole["rechunk"]) == (1, None)
    assert training_reads((100,), 8, (10,), True) is None


def test_chunks_that_stick_out_count():
    found = training_reads((100, 30, 30), 8, (10, 20, 30), True)
    assert found["one_by_one"] == pytest.approx(10 * 40 / 30)
    assert found["rechunk"] == (9, 30, 30)


def test_what_is_said_is_what_happens(tmp_path, capsys):
    shape = (512, 16, 32)
    with h5py.File(tmp_path / "u.h5", "w") as file:
        data = np.random.default_rng(0).normal(size=shape)
        file.create_dataset("u", data=data, chunks=(16, 16, 32), compression="gzip")
        size = file["u"].id.get_storage_size() / data.nbytes
    said = describe(tmp_path / "u.h5")["variables"][0]["training"]
    source = open_source(tmp_path / "u.h5", {"x": "u"})
    explained = PlannedLoader(source, 4, buffer=data.nbytes // 4).explain()
    assert explained["without_plan"] == pytest.approx(said["one_by_one"] * size, rel=0.01)
    assert explained["amplification"][1] == pytest.approx(said["planned"] * size, rel=0.15)
    assert said["planned"] == planned_reads(16)
    with pytest.raises(SystemExit, match="0"):
        main(["inspect", str(tmp_path / "u.h5")])
    shown = capsys.readouterr().out
    assert "an epoch reads every sample 16.0 times if read one by one, 2.0 times" in shown
