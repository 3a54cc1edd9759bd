"""Contract suite of file formats, to inherit in tests.

Example:
    class TestMyFormat(FormatContract):
        @pytest.fixture
        def format(self):
            return MyFormat

        def write(self, format, dataset, path):
            ...  # only if the format has no writer
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.errors import ConfigError, DataError, ScitoolkitError
from scitoolkit.io.coordinates import READ_ERRORS
from scitoolkit.io.fields import open_fields
from scitoolkit.io.formats import Format, StreamedVariable, format_of, formats, writing_format
from scitoolkit.io.inspect import describe
from scitoolkit.io.loader import open_source
from scitoolkit.testing.member import check_registered


def sample_fields(single_array: bool = False, unnamed_dims: bool = False) -> xr.Dataset:
    """Return two variables of different dtypes with coordinates and units.

    Args:
        single_array: return only one array, called `values`.
        unnamed_dims: use dims dim_0, dim_1, ..., without coordinates and attributes.
    """
    values = np.random.default_rng(0).standard_normal((6, 4, 5))
    dims = ("dim_0", "dim_1", "dim_2")
    if single_array:
        return xr.Dataset({"values": (dims, values.astype("float32"))})
    if unnamed_dims:
        return xr.Dataset({"u": (dims, values.astype("float32")), "p": (dims, values * 1e5)})
    dims = ("t", "y", "x")
    return xr.Dataset(
        {
            "u": (dims, values.astype("float32"), {"units": "m s-1"}),
            "p": (dims, values * 1e5, {"units": "Pa", "long_name": "pressure"}),
        },
        {"x": ("x", np.linspace(0, 1, 5)), "y": ("y", np.arange(4.0))},
        {"title": "sample"},
    )


class FormatContract:
    """Contract suite of file formats; override the fixture `format`.

    Override `write` too if the format has no writer.
    """

    @pytest.fixture
    def format(self) -> type[Format]:
        """Return the format under test."""
        raise NotImplementedError("override the fixture `format`")

    @pytest.fixture
    def fields(self, format: type[Format]) -> xr.Dataset:
        """Return the dataset to write."""
        return sample_fields(format.single_array, format.unnamed_dims)

    @pytest.fixture
    def path(self, format: type[Format], fields: xr.Dataset, tmp_path: Path) -> Path:
        """Return a file of the format, with spaces and non-ASCII letters in its name."""
        path = tmp_path / f"Wärme feld ∂u{(format.suffixes or ('.dat',))[0]}"
        self.write(format, fields, path)
        return path

    def write(self, format: type[Format], dataset: xr.Dataset, path: Path) -> None:
        """Write a dataset with the format's writer, one row of the first dim at a time."""
        made = {
            str(name): StreamedVariable(
                tuple(map(str, v.dims)), v.shape, dict(v.attrs), v.dtype.str
            )
            for name, v in dataset.data_vars.items()
        }
        writer = format.create(path, dataset.drop_vars(list(made)), made)
        for name in made:
            for row in range(dataset[name].shape[0]):
                writer.write(name, (row,), dataset[name].values[row])
        writer.finish()

    def test_registered_under_its_name(self, format: type[Format]) -> None:
        """The registry returns this class, which has a summary and is available."""
        check_registered(formats, format)

    def test_found_by_content(self, format: type[Format], path: Path) -> None:
        """The format recognises its file regardless of the name, before all other formats."""
        assert 0 < format.guess(path) <= 1
        assert format_of(path) is format
        other = path.rename(path.with_name("no suffix"))
        assert format_of(other) is format

    def test_foreign_files_are_refused(self, format: type[Format], tmp_path: Path) -> None:
        """Empty files, text, noise and folders are not recognised."""
        noise = np.random.default_rng(3).bytes(5000)
        for name, content in {"empty": b"", "text": b"time,u\n0,1\n", "noise": noise}.items():
            (tmp_path / name).write_bytes(content)
            assert format.guess(tmp_path / name) == 0
        (tmp_path / "folder").mkdir()
        assert format.guess(tmp_path / "folder") == 0

    def test_round_trip(self, path: Path, fields: xr.Dataset) -> None:
        """Values, dtypes, dims, coordinates and units are restored; selections can be read."""
        with open_fields(path) as stored:
            assert set(stored.data_vars) == set(fields.data_vars)
            for name, expected in fields.data_vars.items():
                array = stored[name]
                assert array.dims == expected.dims
                np.testing.assert_array_equal(array.values, expected.values)
                np.testing.assert_array_equal(array[2:4, 1].values, expected[2:4, 1].values)
                assert array.dtype.newbyteorder("=") == expected.dtype
                assert dict(expected.attrs).items() <= dict(array.attrs).items()
            for name in fields.coords:
                np.testing.assert_array_equal(stored[name].values, fields[name].values)

    def test_described_without_reading(
        self, format: type[Format], path: Path, fields: xr.Dataset
    ) -> None:
        """`inspect` names the format, every variable and its shape."""
        about = describe(path)
        assert about["format"] == format.name
        shapes = {v["name"]: tuple(v["shape"]) for v in about["variables"]}
        for name, array in fields.data_vars.items():
            assert shapes[name] == array.shape

    def test_rows_equal_the_whole(
        self, format: type[Format], path: Path, fields: xr.Dataset
    ) -> None:
        """Row readers return the rows of the array, also cropped; DataError if there are none."""
        name = str(next(iter(fields.data_vars)))
        values, dim = fields[name].values, str(fields[name].dims[2])
        if format.row_readers.__func__ is Format.row_readers.__func__:  # type: ignore[attr-defined]
            assert not format.planned
            with pytest.raises(DataError, match=format.name):
                open_source(path, {"a": name})
            return
        rows = open_source(path, {"a": name}).read(np.array([4, 0, 5]))["a"]
        np.testing.assert_array_equal(rows, values[[4, 0, 5]])
        cropped = open_source(path, {"a": name}, crop={dim: (1, 3)}).read(np.array([2]))["a"]
        np.testing.assert_array_equal(cropped, values[[2], :, 1:3])
        if format.planned:
            last = open_source(path, {"a": name}, 2).read(np.array([3]))["a"]
            np.testing.assert_array_equal(last[0], values[:, :, 3])
        with pytest.raises(DataError, match="no_such"):
            open_source(path, {"a": "no_such"})

    @pytest.mark.parametrize("share", [0.05, 0.6, 0.97])
    def test_truncated_files_are_refused(self, path: Path, share: float) -> None:
        """A truncated file raises when it is opened or read; missing values are never filled."""
        files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
        largest = max(files, key=lambda p: p.stat().st_size)
        largest.write_bytes(largest.read_bytes()[: int(share * largest.stat().st_size)])
        with pytest.raises((ScitoolkitError, *READ_ERRORS)):
            open_fields(path).load()

    def test_writer_gives_the_name_at_the_end(self, format: type[Format], tmp_path: Path) -> None:
        """The final name appears only after `finish`; a discarded file leaves nothing behind."""
        variables = {"u": StreamedVariable(("t", "x"), (3, 4), {"units": "K"})}
        coordinates = xr.Dataset(coords={"x": np.arange(4.0)})
        if not format.suffixes:
            with pytest.raises(ConfigError, match=format.name):
                format.create(tmp_path / "u", coordinates, variables)
            return
        path = tmp_path / f"u{format.suffixes[0]}"
        assert writing_format(path) is format
        for finished in (False, True):
            writer = format.create(path, coordinates, variables)
            writer.write("u", (slice(0, 2),), np.ones((2, 4), "float32"))
            assert not path.exists()
            if finished:
                writer.write("u", (2,), np.zeros(4, "float32"))
                writer.finish()
            writer.discard()
            assert [p.name for p in tmp_path.iterdir()] == [path.name] * finished
        with open_fields(path) as stored:
            assert stored["u"].values.tolist() == [[1.0] * 4, [1.0] * 4, [0.0] * 4]
            assert stored["u"].attrs["units"] == "K"
