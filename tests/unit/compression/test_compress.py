"""Properties that hold for every array: the bound, the mask, dtype and shape."""

from __future__ import annotations

import zlib

import h5py
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from scitoolkit.compression import compress, decompress, inspect_stream, psnr
from scitoolkit.compression.bounds import max_error
from scitoolkit.compression.container import pack, unpack
from scitoolkit.compression.pointwise import LogField
from scitoolkit.core.content import content_root
from scitoolkit.core.errors import ConfigError, DataError, NumericalError


def smooth(shape: tuple[int, ...], dtype: str = "f4", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    field = np.zeros(shape)
    for axis, n in enumerate(shape):
        wave = np.sin(np.linspace(0, 3 + axis, n) + rng.uniform(0, 6))
        field = field + wave.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return (field + 0.01 * rng.standard_normal(shape)).astype(dtype)


def largest(x: np.ndarray, y: np.ndarray) -> float:
    finite = np.isfinite(x)
    return float(np.abs(x[finite].astype(float) - y[finite].astype(float)).max(initial=0.0))


# With some seeds hypothesis discards many draws of arrays.
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    hnp.arrays(
        st.sampled_from([np.dtype("f4"), np.dtype("f8"), np.dtype("f2"), np.dtype(">f4")]),
        hnp.array_shapes(max_dims=4, max_side=7),
        elements=st.floats(width=16, allow_nan=True, allow_infinity=True),
    ),
    st.sampled_from([0.5, 1e-2, 1e-5]),
)
def test_any_array_comes_back_within_its_bound(x, value):
    y = decompress(compress(x, abs=value))
    assert y.dtype == x.dtype
    assert y.shape == x.shape
    assert largest(x, y) <= value
    special = ~np.isfinite(x)
    assert x[special].tobytes() == y[special].tobytes()


@pytest.mark.parametrize("shape", [(500,), (40, 50), (3, 9, 11, 12), (2, 2, 3, 9, 10), (2,) * 8])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", ">f8"])
def test_dims_and_dtypes(shape, dtype):
    x = smooth(shape, dtype)
    y = decompress(compress(x, rel=1e-2))
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    assert largest(x, y) <= 1e-2 * (float(x.max()) - float(x.min())) * (1 + 1e-12)


@pytest.mark.parametrize(
    "x",
    [
        np.empty((0, 3), "f4"),
        np.float32(3.5),
        np.full((5, 6), 7.25, "f4"),
        np.array([1.5], "f8"),
        np.full((40,), np.nan, "f4"),
        np.array([0.0, -0.0, 5e-324, 1e-310] * 8),
        np.array([1e30, -1e30, 3e29, 1e-30] * 9, "f4"),
        np.array([np.inf, -np.inf, np.nan, 1.0] * 9, "f4"),
        np.array([3.4e38, -3.4e38, 0, 1] * 9, "f4"),
        np.array([1.7e308, -1.7e308, 0, 1] * 9),
        np.arange(24).reshape(2, 3, 4),
        np.array([True, False]),
    ],
    ids=lambda x: f"{np.asarray(x).dtype}{np.shape(x)}",
)
@pytest.mark.parametrize("how", [{"abs": 1e-3}, {"rel": 1e-3}, {"pw_rel": 1e-3}, {"psnr": 60.0}])
def test_edges(x, how):
    x = np.asarray(x)
    if x.dtype.kind == "f" and np.abs(x).max(initial=0) > 1e38 and {"rel", "psnr"} & set(how):
        if np.isfinite(x).all():
            with pytest.raises(NumericalError, match="outliers"):
                compress(x, **how)
            return
    y = decompress(compress(x, **how))
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    if x.dtype.kind != "f":
        assert (x == y).all()
        return
    special = ~np.isfinite(x)
    assert x[special].tobytes() == y[special].tobytes()
    if "abs" in how:
        assert largest(x, y) <= how["abs"]
    if "pw_rel" in how:
        a, b = x[~special].astype(float), y[~special].astype(float)
        with np.errstate(over="ignore"):
            assert (np.abs(a - b) <= how["pw_rel"] * np.abs(a)).all()


def test_a_bound_below_one_ulp_keeps_every_bit():
    x = smooth((12, 12)) + 1e6
    assert decompress(compress(x, abs=1e-9)).tobytes() == x.tobytes()
    assert decompress(compress(x, abs=0)).tobytes() == x.tobytes()


def test_strided_and_fortran_input_is_the_same_field():
    x = smooth((20, 22, 24))
    for view in (x[::2, :, ::-1], np.asfortranarray(x), x.transpose(2, 0, 1)):
        assert largest(view, decompress(compress(view, rel=1e-2))) <= 1e-2 * float(np.ptp(view))


def test_fill_values_and_payloads_of_nan_are_restored_bit_for_bit():
    x = smooth((30, 40))
    x[3:9, 4:20] = 1e20
    x[20, :] = np.array([0x7FC12345], "u4").view("f4")
    y = decompress(compress(x, abs=1e-2, missing=1e20))
    special = (x == np.float32(1e20)) | np.isnan(x)
    assert x[special].tobytes() == y[special].tobytes()
    assert largest(x[~special], y[~special]) <= 1e-2
    about = inspect_stream(compress(x, rel=1e-3, missing=1e20))
    assert about["range"][1] < 10


def test_pointwise_relative_bound_holds_over_many_orders_of_magnitude():
    rng = np.random.default_rng(0)
    x = (np.exp(rng.normal(0, 8, (16, 17, 18))) * rng.choice([-1, 1], (16, 17, 18))).astype("f4")
    x[2:4] = 0
    y = decompress(compress(x, pw_rel=1e-2))
    assert (np.abs(x.astype(float) - y) <= 1e-2 * np.abs(x.astype(float))).all()


@pytest.mark.parametrize("target", [30.0, 55.0, 80.0])
def test_a_psnr_asked_for_is_reached_and_not_much_exceeded(target):
    x = smooth((24, 24, 24))
    found = psnr(x, decompress(compress(x, psnr=target)))
    assert target <= found < target + 6


def test_relaxed_says_so_and_keeps_two_bounds():
    x = np.load(content_root("datasets") / "turbulence_sperr" / "wmag_64.npy")[:32, :32, :32]
    stream = compress(x, rel=1e-2, codec="sz3", enhancer="linear", guarantee="relaxed")
    about = inspect_stream(stream)
    assert about["relaxed"] == "2x"
    assert about["error_bound"] < largest(x, decompress(stream)) <= 2 * about["error_bound"]
    strict = compress(x, rel=1e-2, codec="sz3", enhancer="linear")
    assert largest(x, decompress(strict)) <= about["error_bound"]


def test_quality_of_a_tiny_stream_takes_the_codec_that_fills_its_bound():
    with h5py.File(content_root("datasets") / "nyx_small" / "nyx_z255_32.h5") as file:
        x = file["native_fields/baryon_density"][...].astype("f4")
    stream = compress(x, rel=0.1, objective="quality")
    assert len(stream) < 170
    error = decompress(stream) - x
    assert 20 * np.log10(np.ptp(x) / np.sqrt(np.mean(error.astype(float) ** 2))) > 46


def test_for_quality_beats_the_plain_codecs_at_equal_bytes():
    from scitoolkit.compression.compare import codecs_at_size

    x = np.load(content_root("datasets") / "turbulence_sperr" / "wmag_64.npy")[:40, :40, :40]
    stream = compress(x, rel=1e-2, objective="quality")
    peers = codecs_at_size(x, len(stream), grid=8)
    assert psnr(x, decompress(stream)) > max(peers.values()) + 0.8


def test_arrays_of_other_packages():
    import dask.array as da

    x = smooth((10, 12))
    expected = decompress(compress(x, rel=1e-2))
    for other in (torch.from_numpy(x), xr.DataArray(x, dims=["a", "b"]), da.from_array(x)):
        assert (decompress(compress(other, rel=1e-2)) == expected).all()


@pytest.mark.parametrize(
    ("x", "how", "message"),
    [
        (np.ones(3, "c8"), {"rel": 1e-2}, "real and array.imag"),
        (np.array(["a"]), {"rel": 1e-2}, "cannot compress"),
        (np.ones(3), {}, "exactly one"),
        (np.ones(3), {"rel": 1e-2, "abs": 1.0}, "exactly one"),
        (np.ones(3), {"rel": -1.0}, ">= 0"),
        (np.ones(3), {"rel": float("nan")}, ">= 0"),
        (np.ones(3), {"pw_rel": 1.5}, "below 1"),
        (np.ones(3), {"rel": 1e-2, "codec": "sz4"}, "sz3"),
        (np.arange(300.0), {"rel": 1e-2, "codec": "sperr"}, "2 to 3 dims"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(x, how, message):
    with pytest.raises(ConfigError, match=message):
        compress(x, **how)


def test_deflated_library_stream_is_smaller_and_a_bomb_is_refused():
    with h5py.File(content_root("datasets") / "nyx_small" / "nyx_z255_32.h5") as file:
        x = file["native_fields/dark_matter_density"][...]
    stream = compress(x, rel=1e-4, codec="sz3", enhancer="none")
    header, _ = unpack(stream)
    assert "deflated" in header["base"]
    assert np.abs(decompress(stream) - x).max() <= 1e-4 * float(np.ptp(x))
    bomb = pack(header, {"base": zlib.compress(bytes(1 << 24), 9)})
    with pytest.raises(DataError, match="more than"):
        decompress(bomb)


@pytest.mark.parametrize("bound", [1e-2, 1e-4])
def test_the_objective_size_is_never_larger_than_any_codec_alone(bound):
    field = np.load(content_root("datasets") / "turbulence_sperr" / "wmag_64.npy")
    line = np.random.default_rng(0).standard_normal(4000).astype("f4")
    for x in (field[:32, :32, :32], field[0], line):
        stream = compress(x, rel=bound, objective="size")
        sizes = [
            len(compress(x, rel=bound, codec=codec, enhancer="none", objective="size"))
            for codec in ("sz3", "dyadic")
        ]
        assert len(stream) <= min(sizes)
        assert len(stream) <= len(compress(x, rel=bound)) + 16
        assert largest(x, decompress(stream)) <= bound * float(np.ptp(x)) * (1 + 1e-12)


def test_signs_and_zeros_of_a_pointwise_bound_come_back_without_corrections():
    values = np.array([[-3.0, 0.0, 2.0, -1e-30], [5.0, -0.5, 0.0, 7.0]])
    split = LogField.of(values)
    sections = {name: memoryview(data) for name, data in split.sections().items()}
    np.testing.assert_allclose(LogField.restore(split.logarithm, sections), values, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f4"])
@pytest.mark.parametrize("rel", [1e-3, 1e-6])
def test_whole_numbers_take_no_more_bytes_than_without_a_bound(dtype, rel):
    steps = np.floor(3 * np.random.default_rng(0).normal(size=(24, 25, 26))).astype(dtype)
    stream, exact = compress(steps, rel=rel), compress(steps, abs=0)
    assert len(stream) <= len(exact) + 100
    assert len(exact) < steps.nbytes / 4
    assert max_error(steps, decompress(stream)) <= rel * float(np.ptp(steps))
