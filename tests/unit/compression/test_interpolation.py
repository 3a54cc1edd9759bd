"""The interpolation codec: its bound, its size against SZ3, and a second decoder from the page."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

sys.path.insert(0, str(Path(__file__).parent))
import slow_decoder

from scitoolkit.compression import Options, compress, decompress, inspect_stream
from scitoolkit.compression.codecs import codecs
from scitoolkit.compression.native import library
from scitoolkit.core.errors import DataError
from scitoolkit.testing.codec import smooth_field, unusual_fields

TURBULENCE = Path(__file__).parents[3] / "datasets" / "turbulence_sperr" / "wmag_64.npy"
CASES = [
    ((9, 10, 11), "float32", 1e-2),
    ((9, 10, 11), "float64", 1e-6),
    ((90, 92), "float32", 3e-3),
    ((4100,), "float64", 1e-3),
    ((3, 2, 7, 8), "float32", 1e-1),
    ((1, 1), "float32", 1e-3),
]


@pytest.mark.parametrize(("shape", "dtype", "bound"), CASES)
def test_a_second_decoder_made_from_the_page_gives_the_same_bits(shape, dtype, bound):
    x = smooth_field(shape, dtype)
    data, decoded, _ = library.encode(x, bound, thorough=True)
    assert np.abs(x - decoded.astype(np.float64)).max() <= bound
    assert library.decode(data, shape, x.dtype, bound).tobytes() == decoded.tobytes()
    assert slow_decoder.decode(data, shape, x.dtype, bound).tobytes() == decoded.tobytes()


def test_the_second_decoder_reads_fitted_weights_lines_and_verbatim_values():
    # Of the first case with classes of 2000 points: the byte after method and margin.
    assert library.encode(smooth_field((90, 92)), 3e-3, thorough=True)[0][2] == 1
    x = np.random.default_rng(0).normal(size=3000).astype(np.float32)
    x[7], x[1500] = 1e30, -1e30
    data, decoded, _ = library.encode(x, 1e-2, thorough=True)
    assert (decoded[7], decoded[1500]) == (x[7], x[1500])
    assert slow_decoder.decode(data, x.shape, x.dtype, 1e-2).tobytes() == decoded.tobytes()
    assert data[0] >= 4


def wall_layers(shape, dtype):
    """Return a smooth field that falls to its edges within a few points."""
    grids = np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij")
    waves = sum(np.sin((2 + d) * g + d) for d, g in enumerate(grids))
    return (waves * np.prod([1 - g**6 for g in grids], axis=0)).astype(dtype)


def waves(shape, dtype):
    noise = np.random.default_rng(0).normal(size=shape)
    return gaussian_filter(noise, 1.5).astype(dtype)


@pytest.mark.parametrize(
    ("field", "shape", "dtype", "methods"),
    [
        (wall_layers, (11, 12, 13), "float32", range(12, 16)),
        (wall_layers, (41, 30), "float64", range(12, 16)),
        (waves, (31, 33), "float32", range(8, 12)),
        (waves, (700,), "float64", range(8, 12)),
    ],
)
def test_the_second_decoder_reads_small_classes_and_edges(field, shape, dtype, methods):
    x = field(shape, dtype)
    bound = 1e-3 * float(np.ptp(x))
    data, decoded, _ = library.encode(x, bound, thorough=True)
    assert data[0] in methods
    assert library.decode(data, shape, x.dtype, bound).tobytes() == decoded.tobytes()
    assert slow_decoder.decode(data, shape, x.dtype, bound).tobytes() == decoded.tobytes()


@pytest.mark.parametrize("bound", [1e-1, 1e-3, 1e-6, 1e-9])
def test_the_bound_holds_without_corrections_down_to_rounding(bound):
    for name, x in unusual_fields():
        eb = bound * float(np.ptp(x.astype(np.float64)))
        data, decoded, _ = library.encode(x, eb, thorough=False)
        assert np.abs(x.astype(np.float64) - decoded).max() <= eb, name
        assert library.decode(data, x.shape, x.dtype, eb).tobytes() == decoded.tobytes()


def test_hostile_payloads_are_errors_or_values_but_never_a_crash():
    x = smooth_field((12, 14, 13))
    data, *_ = library.encode(x, 1e-2, thorough=True)
    chance = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(chance.integers(1, 6)):
            damaged[chance.integers(0, len(damaged))] ^= 1 << int(chance.integers(0, 8))
        damaged = damaged[: chance.integers(0, len(damaged) + 1)]
        try:
            library.decode(bytes(damaged), x.shape, x.dtype, 1e-2)
        except DataError:
            continue


def test_a_bound_alone_asks_for_the_smallest_stream():
    """Given a bound and no other option, no installed codec makes a smaller stream."""
    x = np.load(TURBULENCE)[:30, :31, :32].copy()
    stream = compress(x, rel=1e-3)
    assert np.abs(x - decompress(stream)).max() <= 1e-3 * np.ptp(x)
    alone = {name: len(compress(x, rel=1e-3, codec=name, enhancer="none")) for name in codecs}
    assert len(stream) <= min(alone.values())
    assert alone["interpolation"] <= 0.85 * alone["sz3"]


def test_a_large_field_has_its_codec_chosen_on_a_block(monkeypatch):
    from scitoolkit.compression import choose

    monkeypatch.setattr(choose, "SAMPLED_POINTS", 1 << 12)
    monkeypatch.setattr(choose, "SAMPLED_FROM", 1 << 12)
    x = smooth_field((40, 41, 42))
    stream = compress(x, rel=1e-3)
    assert inspect_stream(stream)["base"]["name"] in codecs
    assert np.abs(x - decompress(stream)).max() <= 1e-3 * np.ptp(x)


def test_quality_leaves_out_codecs_whose_errors_fill_the_bound():
    tried = {o: {c.name for c in Options(objective=o).tried_codecs()} for o in ("size", "quality")}
    assert tried["size"] - tried["quality"] == {"interpolation"}
