"""The best configurations together: means and both uncertainties, who is a member, refusals."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.io.fields import open_fields, write_fields
from scitoolkit.search import RandomSearch, Search
from scitoolkit.search.ensemble import NORMAL_90, join_predictions
from scitoolkit.search.job import choose_members

RANDOM = np.random.default_rng(0)


def written(folder, number, **fields):
    fields = {name: (("t", "x"), value, {"units": "K"}) for name, value in fields.items()}
    return write_fields(xr.Dataset(fields, {"t": [0.5, 1.5]}), folder / f"{number}.nc")


def test_variances_between_and_within_add_up(tmp_path):
    """Drawn from the mixture of the members: its deviation is that of the joint interval."""
    centres, deviations = RANDOM.normal(size=(4, 2, 3)), RANDOM.uniform(0.5, 2, size=(4, 2, 3))
    half = NORMAL_90 * deviations
    files = [
        written(tmp_path, i, u=c, u_low=c - h, u_high=c + h)
        for i, (c, h) in enumerate(zip(centres, half, strict=True))
    ]
    with open_fields(join_predictions(files, tmp_path / "all.nc")) as joint:
        u = {name: joint[name].values for name in joint.data_vars}
        assert joint["u_within"].attrs["units"] == "K"
        assert joint["t"].values.tolist() == [0.5, 1.5]
    drawn = centres + deviations * RANDOM.normal(size=(200_000, 4, 2, 3))
    assert np.allclose(u["u"], centres.mean(0))
    total = np.hypot(u["u_between"], u["u_within"])
    assert np.allclose(total, drawn.std(axis=(0, 1)), rtol=1e-2)
    assert np.allclose((u["u_high"] - u["u_low"]) / (2 * NORMAL_90), total, rtol=1e-12)


def test_skew_is_kept_and_without_intervals_there_is_no_within(tmp_path):
    u = np.ones((2, 3))
    files = [written(tmp_path, i, u=u, u_low=u - 1, u_high=u + 3) for i in range(2)]
    with open_fields(join_predictions(files, tmp_path / "all.nc")) as joint:
        assert np.allclose(joint["u_low"], 0)
        assert np.allclose(joint["u_high"], 4)
    files = [written(tmp_path, i, u=i * u) for i in range(2)]
    with open_fields(join_predictions(files, tmp_path / "all.nc")) as joint:
        assert set(joint.data_vars) == {"u", "u_between"}
        assert np.allclose(joint["u_between"], 0.5)


def test_surrogates_that_predict_the_same_are_told(tmp_path, caplog):
    files = [written(tmp_path, i, u=np.ones((2, 3))) for i in range(2)]
    with caplog.at_level(logging.WARNING):
        join_predictions(files, tmp_path / "all.nc")
    assert "predictions of the 2 surrogates are bit-identical" in caplog.text


def test_predictions_that_have_no_mean_are_refused(tmp_path):
    u = np.ones((2, 3))
    files = [written(tmp_path, 0, u=u), written(tmp_path, 1, v=u)]
    with pytest.raises(DataError, match=r"u is \{'t': 2, 'x': 3\} in the first and absent"):
        join_predictions(files, tmp_path / "all.nc")
    files = [written(tmp_path, i, kind=u.astype(np.int32)) for i in range(2)]
    with pytest.raises(DataError, match="kind has values of type int32"):
        join_predictions(files, tmp_path / "all.nc")
    assert not (tmp_path / "all.nc").exists()


def test_members_are_the_winner_and_the_next_best(caplog):
    search = Search({"x": [3.0, 1.0, 2.0]}, lambda c: c["x"], strategy=RandomSearch())
    history = search.run(trials=3, retrain=(2, 2))
    found = choose_members(history, history.best, 3)
    assert [m.configuration["x"] for m in found] == [1.0, 2.0, 3.0]
    assert len(choose_members(history, history.best, 2)) == 2
    with caplog.at_level(logging.WARNING):
        assert len(choose_members(history, history.best, 5)) == 3
    assert "the ensemble has 3 members" in caplog.text
