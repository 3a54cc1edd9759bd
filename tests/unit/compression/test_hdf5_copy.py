"""A decompressed HDF5 file is the original in everything but the values of lossy variables."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5a, h5r

from scitoolkit.compression import Bound, Options
from scitoolkit.compression.check import verify_file
from scitoolkit.compression.files import FilePlan, compress_file, decompress_file
from scitoolkit.core.errors import ConfigError, DataError

NOT_COMPARED = ("/t", "/group/nested", "/six_dims", "/flat", "/group/again", "/group/loop")
LOSSY = {"/t", "/group/nested", "/six_dims", "/flat"}


def field(shape: tuple[int, ...]) -> np.ndarray:
    x = np.linspace(0, 20, int(np.prod(shape))).reshape(shape)
    return (np.sin(x) + np.cos(3 * x)).astype("f4")


def write_original(path: Path) -> None:
    """Write a file with one of everything that HDF5 has."""
    with h5py.File(path.parent / "other.h5", "w") as other:
        other["there"] = field((30, 40))
    with h5py.File(path, "w", userblock_size=512, track_order=True) as file:
        t = file.create_dataset(
            "t",
            data=field((6, 20, 30)),
            maxshape=(None, 20, 30),
            chunks=(1, 20, 30),
            compression="gzip",
            compression_opts=7,
            shuffle=True,
            fletcher32=True,
            fillvalue=-999.0,
        )
        for name, size in (("time", 6), ("y", 20), ("x", 30)):
            file[name] = np.arange(size, dtype="f8")
            file[name].make_scale(name)
        for axis, name in enumerate(("time", "y", "x")):
            t.dims[axis].attach_scale(file[name])
        t.attrs.update({"units": "K", "_FillValue": np.float32(-999), "text": ["a", "long text"]})
        t.attrs.create("fixed", b"abc", dtype="S5")
        t.attrs["empty"] = h5py.Empty("f4")
        file.attrs["title"] = "ein Büro"
        file.attrs["best"] = t.ref
        file["named"] = np.dtype([("a", "<i4"), ("b", ">f8")])
        file["named"].attrs["note"] = "a committed type"
        file["float_type"] = np.dtype(">f4")
        file.create_dataset("compound", data=np.zeros(4, file["named"].dtype), dtype=file["named"])
        file.create_dataset("nothing", data=h5py.Empty("f8"))
        group = file.create_group("group", track_order=True)
        for name in ("zebra", "ape"):
            group[name] = name
        group.create_dataset("nested", data=field((40, 50)), dtype=file["float_type"])
        group["again"] = file["t"]
        group["loop"] = file["/"]
        group["soft"] = h5py.SoftLink("/t")
        group["dangling"] = h5py.SoftLink("/nowhere")
        group["external"] = h5py.ExternalLink("other.h5", "/there")
        file["six_dims"] = field((4, 4, 4, 4, 4, 2))
        file["flat"] = np.full((40, 40), 2.5, "f4")
        file["complex"] = np.ones((40, 40), "c8")
        file["long"] = np.ones((40, 40), np.longdouble)
        file["integers"] = np.arange(2000)
        file["flags"] = np.arange(2000) % 2 == 0
        file["strings"] = np.array(["a", "bcd", ""], h5py.string_dtype())
        vectors = file.create_dataset("vectors", (2,), h5py.vlen_dtype("i4"))
        vectors[0] = np.arange(3)
        refs = file.create_dataset("refs", (3,), h5py.ref_dtype)
        refs[0], refs[1] = t.ref, file["group"].ref
        file.create_dataset("regions", (1,), h5py.regionref_dtype)[0] = t.regionref[1:3, 4, ::2]
        many = np.zeros(2, [("to", h5py.ref_dtype), ("n", "i4")])
        many["to"] = [file["group/nested"].ref, file["six_dims"].ref]
        file["compound_refs"] = many
    with path.open("r+b") as file:
        file.write(b"user block".ljust(512, b"."))


@pytest.fixture(scope="module", params=["stream", "filter"])
def files(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, Path]:
    folder = tmp_path_factory.mktemp("copy")
    source, small, back = (folder / n for n in ("a.h5", "b.h5", "c.h5"))
    write_original(source)
    codec = {"stream": "dyadic", "filter": "interpolation"}[request.param]
    plan = FilePlan(Bound("rel", 1e-2), {}, Options(codec=codec, enhancer="none"))
    records = compress_file(source, small, plan)
    assert {f"/{r['name']}" for r in records} == LOSSY
    assert sorted(decompress_file(small, back)) == sorted(n.lstrip("/") for n in LOSSY)
    return source, small, back


def target_of(file: h5py.File, reference: h5r.Reference) -> Any:
    if not reference:
        return None
    if isinstance(reference, h5py.RegionReference):
        return file[reference].name, file[reference][reference].shape
    return file[reference].name


def plain(file: h5py.File, value: Any) -> Any:
    """Return a value with references as the paths that they lead to."""
    if isinstance(value, h5py.Reference):
        return target_of(file, value)
    if isinstance(value, h5py.Empty):
        return "empty", value.dtype
    if isinstance(value, np.ndarray | np.void) and value.dtype.hasobject:
        if value.dtype.names:
            return [[plain(file, value[n]) for n in value.dtype.names]]
        return [plain(file, v) for v in np.asarray(value).reshape(-1)]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def description(item: Any) -> dict[str, Any]:
    """Return everything about an object but the values of a lossy variable."""
    file = item.file
    found: dict[str, Any] = {
        "attributes": [(k, plain(file, v)) for k, v in item.attrs.items()],
        "types": [h5a.open(item.id, k.encode()).get_type().get_class() for k in item.attrs],
    }
    if isinstance(item, h5py.Dataset):
        storage = item.id.get_create_plist()
        filters = [storage.get_filter(n) for n in range(storage.get_nfilters())]
        found |= {
            "shape": item.shape,
            "maxshape": item.maxshape,
            "chunks": item.chunks,
            "filters": filters,
            "fill": storage.fill_value_defined(),
            "fillvalue": item.fillvalue if item.dtype.kind in "fiu" else None,
            "order": storage.get_attr_creation_order(),
            "committed": item.id.get_type().committed(),
            "dtype": item.dtype,
        }
        if item.shape is not None and not any(item == file[name] for name in LOSSY):
            found["values"] = plain(file, item[()])
    return found


def test_every_link_leads_to_the_same_object(files):
    def links(file: h5py.File, group: h5py.Group) -> list[Any]:
        found = []
        for name in group:
            link = group.get(name, getlink=True)
            found.append((name, type(link).__name__, getattr(link, "path", "")))
        return found

    with h5py.File(files[0]) as a, h5py.File(files[2]) as b:
        for group in ("/", "/group"):
            assert links(a, a[group]) == links(b, b[group])
        for file in (a, b):
            assert file["group/again"] == file["t"]
            assert file["group/loop"] == file["/"]
            assert file["group/external"].file.filename.endswith("other.h5")
    assert files[2].read_bytes()[:10] == b"user block"


def test_everything_outside_the_values_is_equal(files):
    with h5py.File(files[0]) as a, h5py.File(files[2]) as b:
        names = ["/"]
        a.visit(names.append)
        found: list[str] = ["/"]
        b.visit(found.append)
        assert found == names
        for name in names:
            assert description(a[name]) == description(b[name]), name


def test_h5diff_finds_nothing_outside_the_lossy_variables(files):
    tool = shutil.which("h5diff")
    if tool is None:
        pytest.skip("h5diff is not installed")
    without = [f"--exclude-path={name}" for name in NOT_COMPARED]
    # It also compares what references point to, so that the bound of the lossy ones is needed.
    command = [tool, "-c", "-d", "0.05", *without, files[0], files[2]]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


def test_values_keep_the_bound_and_the_compressed_file_shows_its_header(files):
    assert all(record["holds"] for record in verify_file(files[1], files[0]))
    with h5py.File(files[1]) as small, h5py.File(files[0]) as a:
        stream = "t.header" in small
        header = small["t.header" if stream else "t"]
        assert (header.shape, header.dtype) == ((6, 20, 30), a["t"].dtype)
        assert header.maxshape == (None, 20, 30)
        assert header.attrs["units"] == "K"
        assert header.dims[0][0].name == "/time"
        if not stream:
            assert np.abs(header[()] - a["t"][()]).max() <= 1e-2 * np.ptp(a["t"][()])
            return
        assert header.chunks == (1, 20, 30)
        assert small["t"].dtype == np.uint8
        assert header.id.get_storage_size() == 0
        own = set(small["t"].attrs) - {"DIMENSION_LIST"}
        assert all(name.startswith("scitoolkit_") for name in own)


def test_an_unlimited_axis_can_be_appended_to(files, tmp_path):
    path = tmp_path / "more.h5"
    shutil.copy(files[2], path)
    with h5py.File(path, "r+") as file:
        file["t"].resize(7, axis=0)
        file["t"][6] = 1.0
        assert (file["t"][6] == 1.0).all()


@pytest.mark.parametrize("codec", ["dyadic", "interpolation"])
def test_storage_in_other_files_is_never_written_to(tmp_path, codec):
    raw, part = tmp_path / "raw.bin", tmp_path / "part.h5"
    raw.write_bytes(field((40, 50)).tobytes())
    with h5py.File(part, "w") as file:
        file["v"] = field((40, 50))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("external", (40, 50), "f4", external=[(str(raw), 0, 8000)])
        layout = h5py.VirtualLayout((40, 50), "f4")
        layout[...] = h5py.VirtualSource(part, "v", (40, 50))
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("lossy_filter", data=field((40, 50)), scaleoffset=2)
    with h5py.File(tmp_path / "a.h5") as file:
        kept = file["lossy_filter"][...]
    before = raw.read_bytes(), part.read_bytes()
    plan = FilePlan(Bound("abs", 1e-3), {}, Options(codec=codec, enhancer="none"))
    compress_file(tmp_path / "a.h5", tmp_path / "b.h5", plan)
    decompress_file(tmp_path / "b.h5", tmp_path / "c.h5")
    assert (raw.read_bytes(), part.read_bytes()) == before
    with h5py.File(tmp_path / "c.h5") as file:
        for name in ("external", "virtual"):
            assert np.abs(file[name][...] - field((40, 50))).max() <= 1e-3
        assert np.abs(file["lossy_filter"][...] - kept).max() <= 1e-3


def test_a_dataset_without_dataspace_is_copied_or_refused_by_name(files, tmp_path):
    plan = FilePlan(Bound("rel", 1e-2), {"nothing": None}, Options())
    with pytest.raises(ConfigError, match="no float variable 'nothing'"):
        compress_file(files[0], tmp_path / "x.h5", plan)
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_taken_does_not_hide_the_header(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["t"], file["t.header"] = field((40, 50)), "mine"
    plan = FilePlan(Bound("rel", 1e-2), {}, Options(codec="dyadic", enhancer="none"))
    compress_file(tmp_path / "a.h5", tmp_path / "b.h5", plan)
    assert decompress_file(tmp_path / "b.h5", tmp_path / "c.h5") == ["t"]
    with h5py.File(tmp_path / "c.h5") as file:
        assert sorted(file) == ["t", "t.header"]
        assert file["t.header"][()] == b"mine"


def test_fill_values_of_variable_length_are_copied(tmp_path: Path) -> None:
    """NetCDF-C gives every string variable one; its place in the heap differs in the copy."""
    a, b, c = (tmp_path / f"{n}.h5" for n in "abc")
    with h5py.File(a, "w") as file:
        file["t"] = field((30, 40))
        how: dict[str, Any] = {"dtype": h5py.string_dtype(), "fillvalue": "none"}
        file.create_dataset("names", data=["a", "ä" * 99, ""], **how)
        file.create_dataset("grows", (0,), maxshape=(None,), chunks=(8,), **how)
    compress_file(a, b, FilePlan(Bound("rel", 1e-3), {}, Options()))
    decompress_file(b, c)
    for path in (b, c):
        with h5py.File(a) as original, h5py.File(path) as copy:
            for name in ("names", "grows"):
                assert copy[name][...].tolist() == original[name][...].tolist()
                assert copy[name].fillvalue == b"none"
                assert copy[name].maxshape == original[name].maxshape


REFERENCES = {"object": h5py.ref_dtype, "region": h5py.regionref_dtype}


def types_with(reference: np.dtype) -> dict[str, np.dtype]:
    """Return datatypes that hold references, alone, in arrays, compounds and lists."""
    types = {
        "alone": reference,
        "compound": np.dtype([("r", reference), ("i", "i4")]),
        "nested": np.dtype([("a", np.dtype([("r", reference)])), ("i", "i4")]),
        "array": np.dtype([("r", reference, (2,)), ("i", "i4")]),
    }
    if reference is h5py.ref_dtype:  # h5py cannot read lists of regions
        types["list"] = h5py.vlen_dtype(reference)
        types["list of lists"] = h5py.vlen_dtype(h5py.vlen_dtype(reference))
        types["list in compound"] = np.dtype([("r", h5py.vlen_dtype(reference)), ("i", "i4")])
    return types


def value_of(dtype: np.dtype, references: list[Any], number: int) -> Any:
    """Return a value of a type with the references from `number` on."""
    if (listed := h5py.check_vlen_dtype(dtype)) is not None:
        out = np.empty(number % 3, dtype=listed)
        for i in range(len(out)):
            out[i] = value_of(listed, references, number + i)
        return out
    if dtype.names:
        parts = enumerate(dtype.names)
        return tuple(value_of(dtype[name], references, number + i) for i, name in parts)
    if dtype.subdtype:
        return [value_of(dtype.subdtype[0], references, number + i) for i in range(2)]
    return references[number % 3] if dtype.hasobject else number


PLACES = ("dataset", "one value", "attribute")


@pytest.mark.parametrize(
    ("kind", "name", "place"),
    [
        (kind, name, place)
        for kind, reference in REFERENCES.items()
        for name in types_with(reference)
        for place in PLACES
        # h5py ends the process on writing one list of references to a dataset.
        if not (place == "one value" and name.startswith("list"))
    ],
)
def test_references_in_values_of_any_type_point_into_the_copy(tmp_path, kind, name, place):
    dtype = types_with(REFERENCES[kind])[name]
    source, small = tmp_path / "a.h5", tmp_path / "b.h5"
    with h5py.File(source, "w") as file:
        # Before the field in the file: compressed, it is at another address in the copy.
        group = file.create_group("first")
        t, other = (
            file.create_dataset("t", data=field((50, 60))),
            file.create_dataset("g/o", (3, 4), "f4"),
        )
        references = (
            [t.ref, other.ref, h5py.Reference()]
            if kind == "object"
            else [t.regionref[:2, 1:3], other.regionref[1:2, :], h5py.RegionReference()]
        )
        values = np.empty(() if place == "one value" else 4, dtype)
        for index in np.ndindex(values.shape):
            values[index] = value_of(dtype, references, 1 + sum(index))
        if place == "attribute":
            group.attrs.create("held", values, dtype=dtype)
        else:
            held = group.create_dataset("held", values.shape, dtype)
            for index in np.ndindex(values.shape):
                held[index] = values[index]
    compress_file(source, small, FilePlan(Bound("rel", 1e-2), {}, Options(enhancer="none")))
    told = []
    for path in (source, small):
        with h5py.File(path) as file:
            group = file["first"]
            value = group.attrs["held"] if place == "attribute" else group["held"][()]
            told.append(plain(file, value))
    assert told[0] == told[1]
    assert any(name in str(told[0]) for name in ("/t", "/g/o"))


def test_lists_of_regions_are_refused_by_name(tmp_path):
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        file["t"] = field((50, 60))
        file.create_dataset("g/lists", (2,), h5py.vlen_dtype(h5py.regionref_dtype))
    with pytest.raises(DataError, match=r"/g/lists: references, or lists of values, of a type"):
        compress_file(source, tmp_path / "b.h5", FilePlan(Bound("rel", 1e-2), {}, Options()))
