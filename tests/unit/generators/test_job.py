from __future__ import annotations

from pathlib import Path

import pytest
import xarray as xr
from plugin_packages import module_installed

from scitoolkit import api
from scitoolkit.core.dataset_card import verify
from scitoolkit.core.errors import ConfigError, DataError, NumericalError
from scitoolkit.generators.workers import finished
from scitoolkit.io.campaign import open_campaign
from scitoolkit.testing import JobContract

CASE = {
    "generator": {
        "name": "kuramoto_sivashinsky", "cells": 16, "spinup": 1, "frames": 6, "interval": 2,
    },
    "draw": {"samples": 3, "parameters": {"length": {"low": 10, "high": 20}}},
}  # fmt: skip


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
from scitoolkit.generators.base import Generator, Sample

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
        "domain": "generate", "generator": {"name": "drifting"},
        "draw": {"method": "grid", "samples": len(values), "parameters": {"value": values}},
        "run": {"root": str(folder / "runs")}, **settings,
    }  # fmt: skip
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
    assert "uniform in [10, 20]" in text
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
    with pytest.raises(ConfigError, match=r"holds a campaign already.*generator.cells: 16 -> 32"):
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
