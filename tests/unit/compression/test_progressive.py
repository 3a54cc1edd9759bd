"""Coarse pictures from the first bytes of a stream, with the errors that the stream states."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from scitoolkit.cli.main import app
from scitoolkit.compression import Bound, Options, compress, compress_slabs, decompress, preview
from scitoolkit.compression.codecs.interpolation import Interpolation
from scitoolkit.core.errors import ConfigError, DataError

CODEC = Interpolation(progressive=True)


def field(shape: tuple[int, ...], dtype: str = "f4", seed: int = 0) -> np.ndarray:
    """Return smooth waves with noise of some per cent."""
    axes = np.meshgrid(*[np.linspace(0, 7, n) for n in shape], indexing="ij")
    waves = sum(np.sin((i + 1) * axis) for i, axis in enumerate(axes))
    return (waves + np.random.default_rng(seed).normal(0, 0.02, shape)).astype(dtype)


def errors(values: np.ndarray, other: np.ndarray, where: np.ndarray | None = None) -> np.ndarray:
    """Return |x - x'| in float64 of the points that are not missing."""
    distance = np.abs(np.asarray(values, np.float64) - np.asarray(other, np.float64))
    return distance if where is None else distance[where]


@pytest.mark.parametrize(
    ("shape", "dtype", "bound"),
    [
        ((30, 40, 50), "f4", {"rel": 1e-3}),
        ((30, 31, 32), ">f8", {"abs": 1e-4}),
        ((20, 1, 40, 41), "f8", {"psnr": 70}),
        ((200, 180), "f4", {"rel": 1e-4}),
        ((30000,), "f4", {"rel": 1e-3}),
        ((6, 20, 20, 14), "f2", {"abs": 1e-2}),
        ((20, 40, 30), "f4", {"pw_rel": 1e-2}),
    ],
)
def test_a_tenth_of_the_bytes_is_a_picture_with_a_true_error(shape, dtype, bound) -> None:
    values = field(shape, dtype)
    stream = compress(values, codec=CODEC, **bound)
    coarse = preview(stream[: len(stream) // 10])
    assert coarse.values.shape == shape
    assert coarse.values.dtype == values.dtype
    assert coarse.num_bytes <= len(stream) // 10
    error = errors(coarse.values, values)
    assert error.max() <= coarse.max_error <= 1.01 * error.max()
    assert np.sqrt((error**2).mean()) <= coarse.rmse < values.astype("f8").std()


def test_more_bytes_give_a_better_picture_and_all_of_them_the_array() -> None:
    values = field((48, 40, 44))
    stream = compress(values, rel=1e-4, codec=CODEC)
    pictures = [preview(stream, share) for share in (0.1, 0.25, 0.5, 0.75, 1.0)]
    rmse = [np.sqrt((errors(p.values, values) ** 2).mean()) for p in pictures]
    assert rmse == sorted(rmse, reverse=True)
    assert rmse[-1] < 1e-2 * rmse[0]
    np.testing.assert_array_equal(pictures[-1].values, decompress(stream))
    assert pictures[-1].max_error >= errors(pictures[-1].values, values).max()


def test_magnitudes_that_codecs_receive_scaled() -> None:
    values = field((32, 30, 34)).astype("f8") * 1e30
    stream = compress(values, rel=1e-3, codec=CODEC)
    coarse = preview(stream, 0.1)
    assert errors(coarse.values, values).max() <= coarse.max_error < 1e31


def test_missing_values_are_exact_in_the_picture() -> None:
    values = field((24, 31, 32))
    values[:5] = np.nan
    values[20, 3] = -999.0
    stream = compress(values, rel=1e-3, codec=CODEC, missing=-999.0)
    coarse = preview(stream, 0.1)
    valid = np.isfinite(values) & (values != -999.0)
    np.testing.assert_array_equal(coarse.values[~valid], values[~valid])
    assert errors(coarse.values, values, valid).max() <= coarse.max_error
    masked = np.ma.MaskedArray(field((24, 31, 32)), values != values)
    coarse = preview(compress(masked, rel=1e-3, codec=CODEC), 0.1)
    np.testing.assert_array_equal(np.ma.getmaskarray(coarse.values), masked.mask)


def test_slabs_need_all_bytes_but_decode_a_share() -> None:
    values = field((64, 40, 44))
    stream = compress_slabs(
        values, Bound("rel", 1e-3), Options(codec=CODEC), slab_bytes=values.nbytes // 2
    )
    coarse = preview(stream, 0.1)
    assert coarse.num_bytes <= len(stream) // 10
    error = errors(coarse.values, values)
    assert error.max() <= coarse.max_error
    assert np.sqrt((error**2).mean()) <= coarse.rmse
    with pytest.raises(DataError, match="slabs"):
        preview(stream[: len(stream) // 10])


@pytest.mark.parametrize("fill", [np.nan, 4.25])
def test_slabs_without_a_picture_are_exact_in_it(fill) -> None:
    values = field((64, 40, 44))
    values[32:] = fill
    stream = compress_slabs(
        values, Bound("abs", 1e-3), Options(codec=CODEC), slab_bytes=values.nbytes // 2
    )
    coarse = preview(stream, 0.1)
    np.testing.assert_array_equal(coarse.values[32:], values[32:])
    error = errors(coarse.values[:32], values[:32])
    assert error.max() <= coarse.max_error
    assert np.sqrt((error**2).mean()) <= coarse.rmse
    assert coarse.num_bytes < len(stream) // 8
    plain = compress_slabs(
        values, Bound("abs", 1e-3), Options(codec="interpolation"), slab_bytes=values.nbytes // 2
    )
    with pytest.raises(DataError, match="states no errors"):
        preview(plain, 0.1)


@pytest.mark.parametrize("fill", [np.nan, 4.25])
def test_arrays_without_a_picture_are_decoded_whole(fill) -> None:
    values = np.full((30, 40), fill, "f4")
    stream = compress(values, abs=1e-3, codec=CODEC)
    picture = preview(stream, 0.1)
    np.testing.assert_array_equal(picture.values, values)
    assert (picture.num_bytes, picture.max_error) == (len(stream), 0)
    with pytest.raises(DataError):
        preview(stream[:-1] if np.isnan(fill) else stream[: len(stream) // 2], 0.1)


def test_damage_too_few_bytes_and_other_streams_are_refused() -> None:
    values = field((24, 31, 32))
    stream = compress(values, rel=1e-3, codec=CODEC)
    begin = len(stream) // 20
    for position in (5, 9, 30, begin):
        damaged = bytearray(stream[: len(stream) // 10])
        damaged[position] ^= 4
        with pytest.raises(DataError):
            preview(bytes(damaged))
    for length in (0, 3, 12, 40, 300):
        with pytest.raises(DataError):
            preview(stream[:length])
    with pytest.raises(DataError, match="states no errors"):
        preview(compress(values, rel=1e-3, codec="interpolation"), 0.1)
    with pytest.raises(DataError, match="states no errors"):
        preview(compress(np.arange(5000), abs=0), 0.5)
    for share in (0, -1, 1.5, float("nan")):
        with pytest.raises(ConfigError):
            preview(stream, share)


def test_constants_and_noise() -> None:
    constant = compress(np.full((20, 30), 2.5, "f4"), rel=1e-3, codec=CODEC)
    assert (preview(constant).values == 2.5).all()
    noise = np.random.default_rng(1).normal(size=(40, 40, 40)).astype("f4")
    coarse = preview(compress(noise, abs=0.05, codec=CODEC), 0.1)
    assert errors(coarse.values, noise).max() <= coarse.max_error


def test_command_line_states_the_error(tmp_path) -> None:
    run, values = CliRunner(), field((24, 30, 40))
    np.save(tmp_path / "a.npy", values)
    small, coarse = tmp_path / "a.sci", tmp_path / "b.npy"
    names = [str(tmp_path / "a.npy"), str(small)]
    done = run.invoke(app, ["compress", *names, "--rel", "1e-3", "--progressive"])
    assert done.exit_code == 0, done.output
    done = run.invoke(app, ["decompress", str(small), str(coarse), "--share", "0.1"])
    assert done.exit_code == 0, done.output
    stated = float(done.output.partition("max error ")[2].partition(",")[0])
    assert errors(np.load(coarse), values).max() <= stated < np.ptp(values)
    done = run.invoke(app, ["compress", *names, "--rel", "1e-3", "--progressive", "--codec", "sz3"])
    assert done.exit_code != 0


def test_files_of_several_variables(tmp_path) -> None:
    import h5py

    from scitoolkit.compression.files import FilePlan, compress_file, preview_file

    values = {"a": field((30, 40, 50)), "g/b": field((200, 150), "f8", 1)}
    with h5py.File(tmp_path / "in.h5", "w") as file:
        for name, value in values.items():
            file[name] = value
    plan = FilePlan(Bound("rel", 1e-3), {}, Options(codec=CODEC))
    compress_file(tmp_path / "in.h5", tmp_path / "small.h5", plan)
    records = preview_file(tmp_path / "small.h5", tmp_path / "out.h5", 0.2)
    with h5py.File(tmp_path / "out.h5") as file:
        for record in records:
            error = errors(file[record["name"]][...], values[record["name"]])
            assert error.max() <= record["max_error"]
    assert {record["name"] for record in records} == set(values)
    chunks = FilePlan(Bound("rel", 1e-3), {}, Options())
    compress_file(tmp_path / "in.h5", tmp_path / "chunks.h5", chunks)
    with pytest.raises(DataError, match="chunks"):
        preview_file(tmp_path / "chunks.h5", tmp_path / "out.h5", 0.2)
