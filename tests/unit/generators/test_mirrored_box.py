"""Boxes with walls: images, and the symmetries of spectra."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from scitoolkit.generators.mirrored_box import MirroredBox

WALLED = [w for dims in (1, 2, 3) for w in product((False, True), repeat=dims) if any(w)]


def signs_of(walled):
    """Return two fields, of which the first is zero at all walls and the second has no slope."""
    return np.array([[-1 if wall else 1 for wall in walled], [1] * len(walled)])


@pytest.mark.parametrize("walled", WALLED)
def test_fields_with_images_have_the_symmetries_and_their_points_are_those_of_the_box(walled):
    box, axes = MirroredBox(4, 2.0, walled), range(-len(walled), 0)
    inside = tuple(4 + wall for wall in walled)
    values = np.random.default_rng(0).standard_normal((2, *inside))
    extended = box.extended(values, signs_of(walled))
    assert extended.shape == (2, *box.sizes)
    np.testing.assert_array_equal(box.inside(extended)[1], values[1])
    for axis in np.flatnonzero(walled):
        assert not np.take(box.inside(extended)[0], (0, -1), axis).any()
    spectra = np.fft.rfftn(extended, axes=axes)
    np.testing.assert_allclose(box.symmetric(spectra, signs_of(walled)), spectra, atol=1e-12)


@pytest.mark.parametrize("walled", WALLED)
def test_the_symmetric_part_is_the_mean_of_a_field_and_its_images(walled):
    box, axes, signs = MirroredBox(4, 2.0, walled), range(-len(walled), 0), signs_of(walled)
    values = np.random.default_rng(1).standard_normal((2, *box.sizes))
    wanted = values
    for axis in np.flatnonzero(walled):
        images = np.roll(np.flip(wanted, axis + 1), 1, axis + 1)
        wanted = (wanted + signs[:, axis].reshape(-1, *[1] * len(walled)) * images) / 2
    spectra = box.symmetric(np.fft.rfftn(values, axes=axes), signs)
    np.testing.assert_allclose(np.fft.irfftn(spectra, box.sizes, axes), wanted, atol=1e-12)


def test_the_first_wave_between_walls_is_half_a_wave_per_length():
    x, y = MirroredBox(4, 2.0, (True, False)).waves()
    assert x.ravel()[1] == pytest.approx(np.pi / 2)
    assert y.ravel()[1] == pytest.approx(np.pi)
