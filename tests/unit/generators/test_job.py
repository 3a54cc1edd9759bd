from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import Executor, Future
from pathlib import Path

import pytest
import xarray as xr
from mpi_launcher import require_mpiexec
from plugin_packages import module_installed

from scitoolkit import api
from scitoolkit.core.dataset_card import verify
from scitoolkit.core.errors import BackendError, ConfigError, DataError, NumericalError
from scitoolkit.generators.executors import WorkerPool
from scitoolkit.generators.job import orders
from scitoolkit.generators.workers import finished, make_samples
from scitoolkit.io.campaign import open_campaign
from scitoolkit.testing import JobContract

CASE = {
    "generator": {
        "name": "kuramoto_sivashinsky",
        "cells": 16,
        "spinup": 1,
        "frames": 6,
        "interval": 2,
    },
    "draw": {"samples": 3, "parameters": {"length": {"low": 8, "high": 15}}},
}


class TestGenerateJob(JobContract):
    domain = "generate"

    def case(self, folder: Path):
        return CASE

    def source(self, folder: Path) -> Path:
        return next((folder / "runs").rglob("sample_00001.nc"))


DRIFTING = '''
import errno, os
import numpy as np
import xarray as xr
from typing import ClassVar, Literal
from scitoolkit.generators.base import Check, Generator, Sample

class Drifting(Generator):
    """Makes NaN, dies or fills the disk at chosen values."""

    name: Literal["drifting"] = "drifting"
    parameters: ClassVar[dict[str, str]] = {"value": "1"}
    value: float = 0.0

    def generate(self, seed):
        if self.value == 3.0:
            os._exit(9)
        if self.value == 4.0:
            raise OSError(errno.ENOSPC, "No space left on device")
        frames = xr.Dataset({"u": (("time", "x"), np.full((2, 4), self.value), {"units": "1"})})
        return Sample(frames, {"mass": float("nan") if self.value == 2.0 else 0.0})

    def invariant_bounds(self):
        return {"mass": 1e-12}

    def checks(self, frames):
        rate = float("nan") if self.value == 7.0 else self.value
        return [Check("rate", rate, 1.0, 0.1, "s-1")] if self.value >= 6.0 else ()
'''


@pytest.fixture
def drifting(tmp_path):
    """A generator of an installed package, which worker processes find too."""
    with module_installed(
        tmp_path / "site", "drifting", DRIFTING, "scitoolkit.generator", "Drifting"
    ):
        yield


def config_file(folder: Path, values: list[float], **settings: object) -> Path:
    import yaml

    document = {
        "domain": "generate",
        "generator": {"name": "drifting"},
        "draw": {"method": "grid", "samples": len(values), "parameters": {"value": values}},
        "run": {"root": str(folder / "runs")},
        **settings,
    }
    path = folder / "case.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def case_file(folder: Path, **settings: object) -> Path:
    import yaml

    path = folder / "case.yaml"
    document = {"domain": "generate", **CASE, "run": {"root": str(folder / "runs")}, **settings}
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_campaign_opens_as_one_and_its_card_is_right(tmp_path):
    run = api.train(case_file(tmp_path, output=str(tmp_path / "made")))
    campaign = open_campaign(tmp_path / "made")
    assert campaign.index.bounds.tolist() == [0, 6, 12, 18]
    card = verify(tmp_path / "made")
    assert len(card.files) == 3
    text = (tmp_path / "made" / "README.md").read_text()
    assert "u_xxxx" in text
    assert "uniform in [8, 15]" in text
    assert api.evaluate(run.path).metrics["drift_mean"] < 1e-10
    lines = (tmp_path / "made" / "samples.csv").read_text().splitlines()
    assert lines[0].startswith("index,file,seed,length,drift_mean")
    assert len(lines) == 4


def test_a_resumed_campaign_makes_only_what_is_missing(tmp_path):
    whole = api.train(case_file(tmp_path)).path / "campaign"
    before = {p.name: p.read_bytes() for p in whole.glob("*.nc")}
    (whole / "sample_00001.nc").write_bytes(b"cut short")
    times = {i: (whole / f"sample_0000{i}.nc").stat().st_mtime_ns for i in (0, 2)}
    run = api.train(case_file(tmp_path), ["draw.samples=4"], resume=True)
    assert run.path == whole.parent
    for i, when in times.items():
        assert (whole / f"sample_0000{i}.nc").stat().st_mtime_ns == when
    assert len(finished(whole)) == 4
    again = xr.open_dataset(whole / "sample_00001.nc", engine="h5netcdf").load()
    (tmp_path / "old.nc").write_bytes(before["sample_00001.nc"])
    assert again.equals(xr.open_dataset(tmp_path / "old.nc", engine="h5netcdf").load())


def test_a_refused_resume_leaves_the_settings_as_they_were(tmp_path):
    run = api.train(case_file(tmp_path))
    stored = [run.path / "config.yaml", *run.path.rglob("campaign/*/config.yaml")]
    before = [path.read_text() for path in stored]
    assert len(before) == 2
    with pytest.raises(ConfigError, match="is drawn now"):
        api.train(case_file(tmp_path), ["seeds=[5, 6, 7]"], resume=True)
    assert [path.read_text() for path in stored] == before


def test_predict_makes_the_same_sample_again(tmp_path):
    run = api.train(case_file(tmp_path))
    source = run.path / "campaign" / "sample_00002.nc"
    api.predict(run.path, source, tmp_path / "again.nc")
    first, second = (
        xr.open_dataset(p, engine="h5netcdf").load() for p in (source, tmp_path / "again.nc")
    )
    assert first.equals(second)


def test_an_output_of_another_campaign_is_refused(tmp_path):
    output = f"output={tmp_path / 'made'}"
    api.train(case_file(tmp_path), [output])
    with pytest.raises(
        ConfigError, match=r"already contains a campaign.*generator.cells: 16 -> 32"
    ):
        api.train(case_file(tmp_path), [output, "generator.cells=32"])
    with pytest.raises(ConfigError, match="--resume"):
        api.train(case_file(tmp_path), [output])


def test_a_failed_sample_is_named_and_the_others_are_kept(tmp_path, drifting):
    with pytest.raises(NumericalError, match=r"1 of 3 samples failed: sample 1 .*mass drifts by"):
        api.train(config_file(tmp_path, [1.0, 2.0, 5.0]))
    (folder,) = (tmp_path / "runs").rglob("campaign")
    assert sorted(finished(folder)) == [0, 2]
    assert len(verify(folder).files) == 2


def test_a_full_disk_stops_and_keeps_what_is_finished(tmp_path, drifting):
    with pytest.raises(DataError, match=r"sample 1: .*No space left"):
        api.train(config_file(tmp_path, [1.0, 4.0, 5.0]))
    (folder,) = (tmp_path / "runs").rglob("campaign")
    assert sorted(finished(folder)) == [0]


def test_a_configuration_of_another_domain_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="not the configuration of a generator"):
        api.generate("compress_snapshot")


@pytest.mark.multiproc
def test_processes_make_what_one_makes(tmp_path):
    one = api.train(case_file(tmp_path)).path / "campaign"
    two = api.train(case_file(tmp_path), ["processes=2"]).path / "campaign"
    for path in sorted(one.glob("*.nc")):
        a, b = (xr.open_dataset(f / path.name, engine="h5netcdf").load() for f in (one, two))
        assert a.equals(b)


@pytest.mark.multiproc
def test_a_process_that_dies_costs_one_sample(tmp_path, drifting):
    case = config_file(tmp_path, [1.0, 3.0, 5.0, 6.0, 7.0])
    with pytest.raises(NumericalError, match=r"1 of 5 samples failed: sample 1 .*process died"):
        api.train(case, ["processes=2"])
    (folder,) = (tmp_path / "runs").rglob("campaign")
    assert sorted(finished(folder)) == [0, 2, 3, 4]


class Lossy(Executor):
    """Runs functions here, and loses one of its workers."""

    def __init__(self, lost: int):
        self.lost = lost

    def submit(self, fn, /, settings, order, folder):
        future = Future()
        if order.index == self.lost:
            future.set_exception(RuntimeError("the node went down"))
        else:
            future.set_result(fn(settings, order, folder))
        return future


def test_an_executor_makes_what_this_process_makes_and_a_lost_worker_costs_one_sample(tmp_path):
    config = api.load(case_file(tmp_path))[1]
    here, there = tmp_path / "here", tmp_path / "there"
    wanted = orders(config)
    list(make_samples(config.generator, wanted, here, WorkerPool(None, 1)))
    records = list(make_samples(config.generator, wanted, there, WorkerPool(Lossy(1), 2)))
    (failed,) = [r for r in records if r.error]
    assert failed.index == 1
    assert failed.error == "its worker died (RuntimeError: the node went down)"
    assert not failed.fatal
    for i in (0, 2):
        name = f"sample_{i:05d}.nc"
        a, b = (xr.open_dataset(f / name, engine="h5netcdf").load() for f in (here, there))
        assert a.equals(b)
    assert sorted(finished(there)) == [0, 2]


def test_ranks_that_would_each_make_all_samples_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "3")
    with pytest.raises(ConfigError, match=r"3 MPI ranks.*executor=mpi"):
        api.train(case_file(tmp_path))


@pytest.mark.parametrize(("place", "package"), [("ray", "ray"), ("mpi", "mpi4py")])
def test_a_missing_package_of_an_executor_is_named(place, package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BackendError, match=f"executor={place} .* needs the package '{package}'"):
        api.train(case_file(tmp_path), [f"executor={place}"])


@pytest.mark.slow
@pytest.mark.multiproc
@pytest.mark.parametrize("place", ["ray", "mpi"])
def test_workers_of_a_cluster_make_what_one_process_makes(place, tmp_path):
    if place == "ray":
        pytest.importorskip("ray")
    launcher = require_mpiexec() if place == "mpi" else ""
    case = case_file(tmp_path)
    one = api.train(case).path / "campaign"
    command = [*([launcher, "-n", "3"] if launcher else []), sys.executable, "-m", "scitoolkit"]
    output = tmp_path / "cluster"
    settings = [f"executor={place}", "processes=2", f"output={output}"]
    open_mpi = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",  # three ranks on two cores
    }
    done = subprocess.run(
        [*command, "generate", str(case), *settings],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **open_mpi},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(list((tmp_path / "runs" / "case").iterdir())) == 2  # one run, not one a rank
    for path in sorted(one.glob("*.nc")):
        a, b = (xr.open_dataset(f / path.name, engine="h5netcdf").load() for f in (one, output))
        assert a.equals(b)


def test_a_killed_generation_is_resumed_bit_for_bit(tmp_path):
    case = case_file(tmp_path)
    whole = api.train(case).path / "campaign"
    slow = case_file(tmp_path, run={"root": str(tmp_path / "killed")})
    command = [sys.executable, "-m", "scitoolkit", "generate", str(slow)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list((tmp_path / "killed").rglob("sample_*.nc")):
        time.sleep(0.01)
    process.kill()
    process.wait()
    again = api.train(slow, resume=True).path / "campaign"
    assert sorted(finished(again)) == [0, 1, 2]
    for path in sorted(whole.glob("*.nc")):
        a, b = (xr.open_dataset(f / path.name, engine="h5netcdf").load() for f in (whole, again))
        assert a.equals(b)


@pytest.mark.parametrize("values", [[1.0, 6.0], [7.0, 1.0]])
def test_a_missed_exact_value_is_marked_and_ends_the_campaign_with_an_error(
    drifting, tmp_path, values
):
    config = config_file(tmp_path, values)
    for resume in (False, True):
        with pytest.raises(NumericalError, match=r"1 of 2 samples.*rate (6|nan) s-1; exact 1"):
            api.train(config, [f"output={tmp_path / 'campaign'}"], resume=resume)
    records = finished(tmp_path / "campaign")
    assert [bool(records[i].missed) for i in range(2)] == [v > 5 for v in values]
    assert "; exact 1" in (tmp_path / "campaign" / "README.md").read_text()
