"""Predictions in parts: killed and continued, in little memory, by several processes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
from killed_prediction import leftovers, predict

from scitoolkit import api
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.emulation import prediction
from scitoolkit.io.parts import Parts

SIZE = "scitoolkit.emulation.prediction:PART_BYTES"
SAMPLE = 4 * 32


def _values(path):
    with xr.open_dataset(path) as found:
        return found.load()


def test_a_killed_rollout_goes_on_bit_for_bit(trained, wave, tmp_path, monkeypatch):
    source, out = wave(12, seed=1, name="start.nc"), tmp_path / "out"
    whole = _values(api.predict(trained, source, out / "whole.nc"))
    small = f"{SIZE}={5 * SAMPLE}"  # 16 steps in parts of 5
    assert predict(2, small, trained, source, "-o", out / "cut.nc") == -9
    assert not (out / "cut.nc").exists()
    assert leftovers(out) == ["cut.nc.parts"]
    kept = {p: p.stat().st_mtime_ns for p in (out / "cut.nc.parts").glob("*.npz")}
    assert len(kept) == 2
    monkeypatch.setattr(prediction, "PART_BYTES", 5 * SAMPLE)
    steps = []
    advance = prediction.Rollout.advance
    monkeypatch.setattr(prediction.Rollout, "advance", lambda r: (steps.append(1), advance(r))[1])
    xr.testing.assert_identical(_values(api.predict(trained, source, out / "cut.nc")), whole)
    assert len(steps) == 6  # the 10 of the finished parts were not computed again
    assert leftovers(out) == []


def test_a_stopped_map_of_samples_goes_on_bit_for_bit(trained, wave, tmp_path, monkeypatch):
    source = wave(23, seed=1, name="start.nc")
    whole = _values(api.predict(trained, source, tmp_path / "whole.nc", steps=0))
    assert whole.sizes["time"] == 23
    monkeypatch.setattr(prediction, "PART_BYTES", 4 * SAMPLE)
    _stop_after(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        api.predict(trained, source, tmp_path / "cut.nc", steps=0)
    monkeypatch.setattr(Parts, "save", SAVE)
    with pytest.raises(DataError, match="other file"):
        api.predict(trained, wave(23, seed=2, name="other.nc"), tmp_path / "cut.nc", steps=0)
    found = _values(api.predict(trained, source, tmp_path / "cut.nc", steps=0))
    xr.testing.assert_identical(found, whole)


SAVE = Parts.save


def _stop_after(monkeypatch, count):
    def save(self, number, arrays):
        SAVE(self, number, arrays)
        if number + 1 == count:
            raise KeyboardInterrupt

    monkeypatch.setattr(Parts, "save", save)


def test_rolled_ensembles_with_jitter_go_on_bit_for_bit(wave_job, wave, tmp_path, monkeypatch):
    config = wave_job(
        symmetries={"shift": ["x"]},
        rollout={"jitter": True},
        training={"steps": 2},
        uncertainty={"members": 2, "steps": 3},
    )
    run = api.train(config).path
    source = wave(12, seed=1, name="start.nc")
    whole = _values(api.predict(run, source, tmp_path / "whole.nc", steps=9))
    monkeypatch.setattr(prediction, "PART_BYTES", 2 * SAMPLE)
    _stop_after(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        api.predict(run, source, tmp_path / "cut.nc", steps=9)
    monkeypatch.setattr(Parts, "save", SAVE)
    again = _values(api.predict(run, source, tmp_path / "cut.nc", steps=9))
    xr.testing.assert_identical(again, whole)


def test_a_rollout_by_several_processes_is_refused_and_a_map_is_not(trained):
    with pytest.raises(ConfigError, match="a rollout by several processes"):
        api.check_processes(trained, 2, "predict")
    api.check_processes(trained, 2, "predict", steps=0)


@pytest.mark.slow
@pytest.mark.multiproc
def test_two_processes_map_the_samples_of_a_file_as_one_does(trained, wave, tmp_path):
    source = wave(23, seed=1, name="start.nc")
    whole = _values(api.predict(trained, source, tmp_path / "whole.nc", steps=0))
    command = [
        sys.executable,
        "-m",
        "scitoolkit",
        "predict",
        str(trained),
        str(source),
        "-o",
        str(tmp_path / "two.nc"),
        "--nproc",
        "2",
    ]
    subprocess.run([*command, "--steps", "0"], check=True, capture_output=True)
    xr.testing.assert_identical(_values(tmp_path / "two.nc"), whole)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_samples_of_a_file(trained, wave, tmp_path):
    code = (
        "import resource, sys; from scitoolkit import api\n"
        "api.predict(*sys.argv[1:4], steps=0)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    peaks = []
    for count in (500, 20_000):  # the outputs of the longer one would be 51 MB
        source = wave(count, name=f"{count}.nc")
        arguments = [str(trained), str(source), str(tmp_path / f"out{count}.nc")]
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
        )
        peaks.append(int(done.stdout) * 1024)
    assert np.diff(peaks)[0] < 48 << 20
