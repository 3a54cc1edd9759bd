"""Streaming from files and dask, on one process and on two, gives what memory gives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.forecasting.field_matrix import FieldReader, calendar_design, parse_bytes
from scitoolkit.forecasting.pod import POD
from scitoolkit.forecasting.streaming_svd import (
    Anomalies,
    RowProcesses,
    cell_statistics,
    randomized_svd,
)

CELLS, TIMES = 1500, 300


def wide_field() -> xr.DataArray:
    random = np.random.default_rng(0)
    scale = 0.8 ** np.arange(60)
    values = random.standard_normal((TIMES, 60)) * scale @ random.standard_normal((60, CELLS))
    values += 1e5  # a pressure: its mean square is 1e10 times its variance
    values[:, :40] = np.nan
    values[11, 77] = np.nan
    coords = {"time": xr.date_range("2001-01-01", periods=TIMES, freq="7D")}
    return xr.DataArray(values, coords, ("time", "cell"), name="p", attrs={"units": "Pa"})


def streamed(rank=5, memory=10_000_000, **params) -> POD:
    return POD(rank=rank, max_memory=memory, **params)


def test_streaming_is_the_decomposition_in_memory():
    field = wide_field()
    exact, stream = POD(rank=5).fit(field), streamed(tolerance=1e-10).fit(field)
    assert (exact.method_, stream.method_) == ("snapshots", "randomized")
    np.testing.assert_allclose(stream.singular_values_, exact.singular_values_, rtol=1e-9)
    np.testing.assert_allclose(stream.modes_, exact.modes_, atol=1e-5)
    assert stream.truncation_error_ == pytest.approx(exact.truncation_error_, rel=1e-9)


def test_error_estimate_and_bound_hold():
    field = wide_field()
    exact, stream = POD(rank=5).fit(field), streamed(tolerance=1e-2).fit(field)
    error = np.abs(stream.singular_values_ / exact.singular_values_ - 1)
    assert (error <= stream.error_bound_ + 1e-12).all()
    assert (error <= 2 * stream.error_estimate_ + 1e-12).all()
    assert (stream.error_estimate_ <= 1e-2).all()


def test_seasonal_cycle_and_share_of_variance_stream_as_well():
    field = wide_field()
    exact = POD(rank=0.97, seasonal_cycle=2).fit(field)
    stream = streamed(0.97, 13_500_000, seasonal_cycle=2).fit(field)
    assert stream.method_ == "randomized"
    assert stream.rank_ == exact.rank_
    np.testing.assert_allclose(stream.singular_values_, exact.singular_values_, rtol=1e-4)


def test_small_modes_survive_in_float64():
    random = np.random.default_rng(0)
    sides = [np.linalg.qr(random.standard_normal((n, 3)))[0] for n in (TIMES, CELLS)]
    values = sides[0] * [1.0, 1e-3, 1e-6] @ sides[1].T
    field = xr.DataArray(values, dims=("time", "x"))
    for memory in ("1GiB", 10_000_000):
        pod = POD(rank=3, mean=False, max_memory=memory).fit(field)
        np.testing.assert_allclose(pod.singular_values_, [1, 1e-3, 1e-6], rtol=1e-6)


def test_the_same_for_every_block_size_and_every_call():
    field = wide_field()
    first, second = streamed().fit(field), streamed().fit(field)
    xr.testing.assert_identical(first.modes_, second.modes_)
    other = streamed(memory=13_000_000).fit(field)
    np.testing.assert_allclose(other.singular_values_, first.singular_values_, rtol=1e-12)


def test_files_are_read_in_blocks(tmp_path, monkeypatch):
    field = wide_field().astype("float32")
    path = tmp_path / "p.nc"
    encoding = {"p": {"chunksizes": (16, CELLS), "zlib": True}}
    field.to_netcdf(path, engine="h5netcdf", encoding=encoding)
    heights = []
    read = FieldReader.read
    monkeypatch.setattr(
        FieldReader, "read", lambda self, a, b: heights.append(b - a) or read(self, a, b)
    )
    with xr.open_dataset(path, engine="h5netcdf") as data:
        pod = streamed().fit(data["p"])
        coefficients = pod.transform(data["p"])
        assert not data["p"]._in_memory
    assert max(heights) < TIMES
    assert max(heights) % 16 == 0
    memory = streamed().fit(field)
    np.testing.assert_allclose(pod.singular_values_, memory.singular_values_, rtol=1e-12)
    xr.testing.assert_allclose(coefficients, memory.transform(field))


def test_dask_is_numpy():
    field = wide_field()
    lazy = field.chunk({"time": 50, "cell": 700})
    pod, plain = streamed().fit(lazy), streamed().fit(field)
    xr.testing.assert_allclose(pod.modes_, plain.modes_)
    xr.testing.assert_allclose(pod.transform(lazy), plain.transform(field))


def test_too_few_passes_say_so():
    with pytest.raises(NumericalError, match="after 2 passes"):
        streamed(tolerance=1e-12, max_passes=2).fit(wide_field())


def test_randomized_svd_of_a_matrix_with_few_modes():
    random = np.random.default_rng(0)
    values = random.standard_normal((30, 2)) @ random.standard_normal((2, 50))
    reader = FieldReader(xr.DataArray(values, dims=("time", "x")), "time", ("x",))
    design = calendar_design(xr.DataArray(np.arange(30), dims="time"), None, mean=False)
    statistics = cell_statistics(reader, design, 7, RowProcesses())
    matrix = Anomalies(reader, np.arange(50), design, statistics.coefficients, np.ones(50), 7)
    found = randomized_svd(matrix, 4)
    expected = np.linalg.svd(values, compute_uv=False)
    np.testing.assert_allclose(found.singular_values, expected[:4], atol=1e-6)
    np.testing.assert_allclose(found.patterns.T @ found.patterns, np.eye(4), atol=1e-12)
    assert matrix.energy() == pytest.approx((values**2).sum())


@pytest.mark.parametrize("text", ["", "1 parsec", "-3MB", "0", "inf"])
def test_sizes_that_are_none(text):
    with pytest.raises(ConfigError, match="not a size"):
        parse_bytes(text)


def _fit_on_rank(rank: int, folder: str) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
    pod = streamed().fit(wide_field(), process_group=dist.group.WORLD)
    np.savez(f"{folder}/{rank}.npz", modes=pod.modes_.values, sigma=pod.singular_values_)
    Path(folder, f"{rank}.json").write_text(json.dumps(pod.truncation_error_))
    dist.destroy_process_group()


@pytest.mark.multiproc
def test_two_processes_are_one(tmp_path):
    import torch.multiprocessing as mp

    mp.start_processes(_fit_on_rank, (str(tmp_path),), nprocs=2, start_method="fork")
    alone = streamed().fit(wide_field())
    for rank in range(2):
        found = np.load(tmp_path / f"{rank}.npz")
        np.testing.assert_allclose(found["sigma"], alone.singular_values_, rtol=1e-10)
        np.testing.assert_allclose(found["modes"], alone.modes_.values, atol=1e-9)
        assert json.loads((tmp_path / f"{rank}.json").read_text()) == pytest.approx(
            alone.truncation_error_
        )
