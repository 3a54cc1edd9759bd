"""Streams do not depend on the unit: any magnitude, spread and bound is coded or refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from scitoolkit.compression import choose, compress, decompress, inspect_stream, psnr
from scitoolkit.compression.bounds import max_error
from scitoolkit.compression.choose import Options, encode_best, sample_blocks
from scitoolkit.compression.codecs import codecs
from scitoolkit.compression.codecs.base import ErrorBoundedCodec
from scitoolkit.compression.field import exponent_of
from scitoolkit.compression.regions import decompress_region
from scitoolkit.core.errors import BackendError
from tests.helpers.extreme_fields import outcome


def smooth(shape: tuple[int, ...] = (24, 24, 24), seed: int = 0) -> np.ndarray:
    x = gaussian_filter(np.random.default_rng(seed).normal(size=shape), 2)
    return x / x.std()


@pytest.mark.parametrize("first", range(0, 48, 12))
def test_extreme_fields_are_coded_or_refused(first: int) -> None:
    found = {number: outcome(number) for number in range(first, first + 12)}
    assert set(found.values()) <= {"holds", "refused"}, found


@pytest.mark.parametrize("objective", ["size", "quality", "speed"])
@pytest.mark.parametrize(
    ("dtype", "exponent"),
    [("f4", 83), ("f4", 112), ("f4", -60), ("f4", -110), ("f8", 100), ("f8", 1000), ("f8", -900)],
)
def test_size_does_not_depend_on_the_unit(dtype: str, exponent: int, objective: str) -> None:
    x = smooth().astype(dtype)
    moved = np.ldexp(x, exponent)
    usual, stream = (compress(v, rel=1e-3, objective=objective) for v in (x, moved))
    assert len(stream) <= 1.02 * len(usual) + 16
    bound = 1e-3 * (float(moved.max()) - float(moved.min()))
    assert max_error(moved, decompress(stream)) <= bound
    part = decompress_region(stream, slice(3, 9), slice(5))
    np.testing.assert_array_equal(part, decompress(stream)[3:9, :5])


@pytest.mark.parametrize("magnitude", [1e-44, 1e-38, 1e38])
def test_limits_of_the_dtype(magnitude: float) -> None:
    """Decoded values of denormal and of the largest numbers are rounded once more."""
    x = (smooth() / 6 * magnitude).astype("f4")
    for value in (1e-1, 1e-3):
        bound = value * (float(x.max()) - float(x.min()))
        assert max_error(x, decompress(compress(x, rel=value))) <= bound


@pytest.mark.parametrize("wanted", [20, 60, 120])
@pytest.mark.parametrize("magnitude", [1e-30, 1e-33, 1e30])
def test_psnr_at_any_magnitude(magnitude: float, wanted: float) -> None:
    x = (smooth((14, 15, 16)) * magnitude).astype("f4")
    assert psnr(x, decompress(compress(x, psnr=wanted))) >= wanted


@pytest.mark.parametrize("codec", sorted(codecs))
@pytest.mark.parametrize("shape", [(224,), (9, 13), (5, 9, 13)])
def test_quality_with_any_codec_is_decoded(codec: str, shape: tuple[int, ...]) -> None:
    """An enhancer with a margin needs the tighter bound of its codec to decode."""
    x = np.random.default_rng(2).normal(size=shape).astype("f4")
    if codecs.get(codec)().refusal(x, 1e-2):
        return
    for bound in ({"psnr": 50.0}, {"rel": 1e-2, "objective": "quality"}):
        decoded = decompress(compress(x, codec=codec, **bound))
        assert psnr(x, decoded) >= 35


@pytest.mark.parametrize("bound", [{"psnr": 30}, {"rel": 0.1}])
def test_values_over_600_decades(bound: dict[str, float]) -> None:
    rng = np.random.default_rng(0)
    x = rng.choice([-1.0, 1.0], (16, 16, 16)) * 10.0 ** rng.uniform(-300, 300, (16, 16, 16))
    decoded = decompress(compress(x, abs=1e299) if "rel" in bound else compress(x, **bound))
    if "rel" in bound:
        assert max_error(x, decoded) <= 1e299
    else:
        assert psnr(x, decoded) >= 30


def test_psnr_does_not_depend_on_the_unit() -> None:
    x, y = np.array([0.0, 1.0]), np.array([0.1, 0.9])
    for exponent in (-1000, -600, 600, 1000):
        assert psnr(np.ldexp(x, exponent), np.ldexp(y, exponent)) == psnr(x, y) == 20.0
    assert psnr(x, np.array([0.0, np.nan])) == -math.inf
    assert psnr(x, x) == math.inf


def test_usual_bounds_are_not_scaled() -> None:
    assert "exponent" not in inspect_stream(compress(smooth(), rel=1e-3))
    assert exponent_of(2.0**58) == exponent_of(2.0**-60) == 0


@pytest.mark.parametrize("name", ["sz3", "sperr", "zfp"])
def test_a_library_is_never_called_with_an_extreme_bound(name: str) -> None:
    codec = codecs.get(name)()
    assert "scale" in codec.refusal(smooth() * 1e30, 1e27)
    assert not codec.refusal(smooth(), 1e-3)


class Failing(ErrorBoundedCodec):
    """A codec whose library raises, or decodes to something else."""

    name: str = "failing"
    how: str = "raise"

    def encode(self, values: np.ndarray, error_bound: float) -> bytes:
        if self.how == "raise":
            raise RuntimeError("filter returned failure")
        return b"1"

    def decode(self, data: bytes, shape, dtype, error_bound: float) -> np.ndarray:
        return {
            "nan": np.full(shape, np.nan, dtype),
            "shape": np.zeros(3, dtype),
            "dtype": np.zeros(shape, "i4"),
            "far": np.full(shape, 1e30, dtype),
        }[self.how]


@pytest.mark.parametrize("how", ["raise", "nan", "shape", "dtype"])
def test_a_failing_library_is_refused_by_name(how: str) -> None:
    with pytest.raises(BackendError, match="failing") as caught:
        encode_best(smooth(), 1e-3, Options.model_construct(codec=Failing(how=how)))
    assert "auto" in str(caught.value)


@pytest.mark.parametrize("how", ["raise", "nan", "shape", "dtype", "far"])
def test_auto_does_without_a_failing_library(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = [Failing(how=how)]
    monkeypatch.setattr(Options, "tried_codecs", lambda self: tried)
    monkeypatch.setitem(codecs._registered, "failing", Failing)
    x = smooth((12, 12, 12)).astype("f4")
    stream = compress(x, rel=1e-3, enhancer="none")
    assert inspect_stream(stream)["base"]["name"] == "lossless"
    tried.append(codecs.get("interpolation")())
    stream = compress(x, rel=1e-3, enhancer="none")
    assert inspect_stream(stream)["base"]["name"] == "interpolation"


@pytest.mark.parametrize("inside", [slice(0), slice(14, 50), slice(0, 36)])
def test_empty_parts_do_not_choose_the_codec(
    inside: slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty middle says nothing about the rest of a large field."""
    monkeypatch.setattr(choose, "SAMPLED_FROM", 1 << 16)
    noise = 0.05 * np.random.default_rng(1).normal(size=(64,) * 3)
    x = (smooth(noise.shape) + noise).astype("f4")
    x[inside, inside, inside] = 0
    names = ("interpolation", "dyadic")
    sizes = [len(compress(x, rel=1e-2, codec=n, enhancer="none")) for n in names]
    assert len(compress(x, rel=1e-2, enhancer="none")) <= 1.01 * min(sizes)


@pytest.mark.parametrize("shape", [(1 << 21,), (7, 300, 999), (2, 3, 600, 600), (128, 128, 128)])
def test_sample_blocks_hold_the_points_asked_for(shape: tuple[int, ...]) -> None:
    blocks = sample_blocks(np.zeros(shape, "f4"))
    assert 3 << 14 <= sum(b.size for b in blocks) <= 1.3 * (3 << 15)
