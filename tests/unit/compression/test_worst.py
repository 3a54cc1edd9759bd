"""Where the errors of a compressed variable are largest."""

import numpy as np
import pytest

from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.pictures import Shown, pictures
from scitoolkit.compression.worst import BLOCK, hidden_blocks, worst_maps, worst_row

DIMS = ("time", "level", "y", "x")


def _field():
    return np.random.default_rng(5).normal(size=(3, 2, 40, 37))


def test_an_error_is_found_in_its_slice_and_block():
    field, error = _field(), np.full((3, 2, 40, 37), 1e-3)
    error[2, 1, 33:, 20:30] = 0.5
    row = worst_row("u", field, error, 0.5, DIMS)
    assert row[1] == "time 2, level 1"
    assert row[2] == pytest.approx(np.sqrt((error[2, 1] ** 2).mean()) / 0.5)
    assert row[3] == pytest.approx(np.sqrt((error**2).mean()) / 0.5)
    assert row[5] == "time 2, level 1, y 32 to 39, x 16 to 31"


def test_missing_values_and_incomplete_blocks_do_not_count():
    field, error = _field(), np.full((3, 2, 40, 37), 0.01)
    field[..., :BLOCK, :BLOCK] = error[..., :BLOCK, :BLOCK] = np.nan
    hidden = hidden_blocks(field, error)
    assert hidden.shape == (6, 3, 3)
    assert np.isnan(hidden[:, 0, 0]).all()
    assert np.nansum(hidden) == 0
    assert worst_row("u", field, error, 0.0, ())[2:5] == pytest.approx([0.01, 0.01, 0.0])


def test_a_block_is_hidden_where_the_error_exceeds_the_variation():
    field = np.zeros((1, BLOCK, 2 * BLOCK))
    field[..., BLOCK:] = 10 * np.random.default_rng(2).normal(size=(BLOCK, BLOCK))
    error = np.ones_like(field)
    assert hidden_blocks(field, error).tolist() == [[[1.0, 0.0]]]
    assert hidden_blocks(field, 0 * error).tolist() == [[[0.0, 0.0]]]
    _, arrays = worst_maps("u", "K", field, error, 2.0)
    assert arrays["rms error"].tolist() == np.full((BLOCK, 2 * BLOCK), 0.5).tolist()
    assert arrays["hidden"].sum() == BLOCK * BLOCK
    maps, arrays = worst_maps("u", "K", field, 0 * error, 2.0)
    assert list(arrays) == ["rms error"]  # no panel of zeros
    assert len(maps.panels) == 1
    assert "lost in no" in maps.note


def test_a_field_of_slices_is_mapped_and_one_without_values_is_not():
    field = _field().astype(np.float32)
    shown = Shown(field, field + np.float32(0.01), MissingValues(), 0.02, dims=DIMS)
    figures, fields, places = pictures({"u": shown})
    assert "u: where the errors are" in [figure.title for figure in figures]
    assert fields["u: rms error"].shape == (40, 37)
    assert places is not None
    assert places.columns[2] == "rms error in it / bound"
    gone = Shown(np.full_like(field, np.nan), field, MissingValues(), 0.02)
    figures, _, places = pictures({"u": gone})
    assert "u: where the errors are" not in [figure.title for figure in figures]
    assert places is not None
    assert places.rows[0][1:] == [None] * 5
