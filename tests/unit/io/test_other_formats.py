"""Meshes, refined grids and GRIB: what is read equals what was written, or is refused by name."""

from __future__ import annotations

import sys
import types

import meshio
import numpy as np
import pytest

from scitoolkit.core.errors import BackendError, DataError
from scitoolkit.io.campaign import open_campaign
from scitoolkit.io.campaign.rows import row_sets
from scitoolkit.io.fields import open_fields
from scitoolkit.io.formats.adaptive import Adaptive
from scitoolkit.io.formats.base import format_of
from scitoolkit.io.formats.meshes import Meshes
from scitoolkit.io.formats.nek5000 import Nek5000


def box(sizes, rng, spacing=1.0):
    """Return points of a grid and its hexahedra, both in a mixed order."""
    lines = [np.cumsum(rng.uniform(0.1, 1, n + 1)) * spacing for n in sizes]
    corners = np.stack(np.meshgrid(*lines, indexing="ij"), -1)
    number = np.arange(corners[..., 0].size).reshape(corners.shape[:3])
    at = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)]
    parts = [
        number[a : a + sizes[0], b : b + sizes[1], c : c + sizes[2]].reshape(-1) for a, b, c in at
    ]
    mixed = rng.permutation(len(parts[0]))
    return corners.reshape(-1, 3), np.stack(parts, -1)[mixed], mixed, lines


@pytest.mark.parametrize("suffix", ["vtu", "vtk"])
@pytest.mark.parametrize("sizes", [(4, 3, 5), (2, 6, 1)])
@pytest.mark.parametrize("spacing", [1.0, 1e-6, 1e5])
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_values_of_cells_and_points_of_a_grid(tmp_path, suffix, sizes, spacing, kind):
    rng = np.random.default_rng(0)
    points, cells, mixed, lines = box(sizes, rng, spacing=spacing)
    t = rng.random(sizes).astype(kind)
    p = rng.random([n + 1 for n in sizes]).astype(kind)
    u = rng.random([*sizes, 3]).astype(kind)
    mesh = meshio.Mesh(
        points,
        [("hexahedron", cells)],
        point_data={"p": p.reshape(-1)},
        cell_data={"T": [t.reshape(-1)[mixed]], "U": [u.reshape(-1, 3)[mixed]]},
    )
    path = tmp_path / f"a_1.{suffix}"
    meshio.write(path, mesh)
    assert format_of(path) is Meshes
    with open_fields(path) as found:
        dims = [d for d, n in zip("xyz", sizes, strict=True) if n > 1]
        own = [f"{d}_cell" for d in reversed(dims)]
        assert np.array_equal(found["T"].transpose(*own).values, t.squeeze().T)
        assert np.array_equal(found["U"].transpose("component", *own).values, u.squeeze().T)
        assert np.array_equal(found["p"].transpose("z", "y", "x").values, p.T)
        assert found.x.values == pytest.approx(lines[0], rel=1e-5)
        centres = 0.5 * (lines[0][1:] + lines[0][:-1])
        assert found.x_cell.values == pytest.approx(centres, rel=1e-5)


@pytest.mark.parametrize("share", [0.3, 0.7, 0.97])
@pytest.mark.parametrize("suffix", ["vtu", "vtk"])
def test_truncated_files_are_refused(tmp_path, suffix, share):
    points, cells, _, _ = box((3, 4, 2), np.random.default_rng(0))
    path = tmp_path / f"a.{suffix}"
    fields = {"p": np.random.default_rng(0).random(len(points))}
    meshio.write(path, meshio.Mesh(points, [("hexahedron", cells)], fields))
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(DataError), open_fields(path):
        pass


@pytest.mark.parametrize("format", [Meshes, Adaptive])
def test_foreign_files_are_not_taken(tmp_path, format):
    noise = np.random.default_rng(3).bytes(5000)
    for name, content in {"empty": b"", "text": b"time,u\n0,1\n", "noise": noise}.items():
        (tmp_path / name).write_bytes(content)
        assert format.guess(tmp_path / name) == 0
    assert format.guess(tmp_path) == 0


def test_points_that_fill_no_grid_are_a_mesh(tmp_path):
    rng = np.random.default_rng(0)
    points, cells, _, _ = box((3, 4, 2), rng)
    points[7] += 0.01
    mesh = meshio.Mesh(points, [("hexahedron", cells)], {"p": rng.random(len(points))})
    for step in range(3):
        meshio.write(tmp_path / f"a_{step}.vtu", mesh)
    with pytest.raises(DataError, match="unstructured mesh"):
        open_campaign(tmp_path, ["p"])


@pytest.mark.parametrize(
    "text",
    [
        '<VTKFile type="Collection"><Collection/></VTKFile>',
        '<?xml version="1.0"?>\n<VTKFile type="PUnstructuredGrid"></VTKFile>',
        '<VTKFile type="UnstructuredGrid"><broken',
        "# vtk DataFile Version 3.0\ncut",
        "<Xdmf></Xdmf>",
        "<Xdmf><Domain><broken",
        '<VTKFile type="PolyData" version="1.0"><PolyData/></VTKFile>',
        '<VTKFile type="ImageData"><ImageData WholeExtent="0 1 0 1 0 1"/></VTKFile>',
    ],
)
def test_files_that_meshio_does_not_read_are_refused(tmp_path, text):
    (tmp_path / "a.vtu").write_text(text)
    with pytest.raises(DataError), open_fields(tmp_path / "a.vtu"):
        pass


@pytest.mark.parametrize("suffix", ["vtu", "vtk", "xdmf"])
def test_damaged_files_of_meshes_are_read_or_refused(tmp_path, suffix):
    rng = np.random.default_rng(3)
    points, cells, _, _ = box((2, 3, 2), rng)
    whole = tmp_path / f"a.{suffix}"
    meshio.write(whole, meshio.Mesh(points, [("hexahedron", cells)], {"p": rng.random(36)}))
    stored, refused = whole.read_bytes(), 0
    for number in range(60):
        data = bytearray(stored)
        at = rng.integers(60, len(data), 3)
        if number % 2:
            del data[at[0] :]
        else:
            data[at[0]], data[at[1]], data[at[2]] = rng.integers(0, 256, 3).tolist()
        path = tmp_path / f"b_{number}.{suffix}"
        path.write_bytes(data)
        try:
            with open_fields(path) as found:
                found.load()
        except DataError:
            refused += 1
    assert refused >= 25


def test_polygons_of_vtk_are_refused_with_the_way_to_write_them(tmp_path):
    (tmp_path / "a.vtp").write_text('<VTKFile type="PolyData" version="1.0"></VTKFile>')
    with pytest.raises(DataError, match=r"PolyData.*cast_to_unstructured_grid"):
        format_of(tmp_path / "a.vtp").open_dataset(tmp_path / "a.vtp")


def test_a_step_is_read_once_for_all_its_fields(tmp_path, monkeypatch):
    """Each file holds one step of three fields; reading it brings all of them into memory."""
    rng = np.random.default_rng(0)
    points, cells, _, _ = box((2, 3, 2), rng)
    fields = {name: rng.random((4, 36)) for name in "pqr"}
    for step in range(4):
        now = {name: of[step] for name, of in fields.items()}
        meshio.write(tmp_path / f"a_{step}.vtu", meshio.Mesh(points, [("hexahedron", cells)], now))
    campaign = open_campaign(tmp_path, list(fields))
    opened, read = [], Meshes.open_dataset
    monkeypatch.setattr(
        Meshes, "open_dataset", lambda path, **how: opened.append(path) or read(path, **how)
    )
    sets = row_sets(campaign)
    for _ in range(2):
        for step in range(4):
            for name, truth in fields.items():
                row = sets[name].reader(step).read(0, 1)
                assert sorted(row.reshape(-1)) == pytest.approx(sorted(truth[step]), rel=1e-6)
    assert len(opened) == 8


@pytest.mark.parametrize("text", ["<?xml version='1.0'?><svg/>", "hello", ""])
def test_other_text_is_no_mesh(tmp_path, text):
    (tmp_path / "a.xml").write_text(text)
    assert Meshes.guess(tmp_path / "a.xml") == 0


@pytest.mark.parametrize("error", [ImportError, RuntimeError])
def test_grib_without_its_package_or_library_is_refused(tmp_path, monkeypatch, error):
    class Missing(types.ModuleType):
        def __getattr__(self, name):
            raise error("Cannot find the ecCodes library")

    monkeypatch.setitem(sys.modules, "cfgrib", Missing("cfgrib"))
    (tmp_path / "a.dat").write_bytes(b"GRIB" + bytes(60))
    with pytest.raises(BackendError, match=r"scitoolkit\[grib\]"), open_fields(tmp_path / "a.dat"):
        pass


def test_a_plotfile_without_yt_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yt", None)
    monkeypatch.setattr(Adaptive, "unavailable", classmethod(lambda cls: "no yt"))
    (tmp_path / "plt0").mkdir()
    (tmp_path / "plt0" / "Header").write_text("HyperCLaw-V1.1\n")
    with pytest.raises(BackendError, match=r"scitoolkit\[adaptive\]"):
        format_of(tmp_path / "plt0")


def test_a_damaged_plotfile_is_refused(tmp_path):
    pytest.importorskip("yt")  # make test-peers
    (tmp_path / "plt0").mkdir()
    (tmp_path / "plt0" / "Header").write_text("HyperCLaw-V1.1\n1\n")
    with pytest.raises(DataError), open_fields(tmp_path / "plt0"):
        pass


def test_finer_levels_are_said_to_be_left_out(tmp_path, monkeypatch):
    yt = pytest.importorskip("yt")  # make test-peers
    from program_layouts import write_layout

    from scitoolkit.io.formats import adaptive

    files, said, load = write_layout("amrex", tmp_path), [], yt.load

    def refined(path):
        output = load(path)
        output.index.max_level = 2
        return output

    monkeypatch.setattr(yt, "load", refined)
    monkeypatch.setattr(adaptive._logger, "warning", lambda text, *of: said.append(text % of))
    with open_fields(tmp_path / "plt00010") as found:
        assert np.array_equal(found["density"].values, files.truth["density"][0][1])
    assert [text for text in said if "2 finer levels are left out" in text] == said
    assert said


def test_time_of_enzo_is_in_seconds_and_that_of_a_plotfile_in_its_own_unit(tmp_path):
    pytest.importorskip("yt")  # make test-peers
    from program_layouts import write_layout

    for name in ("enzo", "amrex"):
        (tmp_path / name).mkdir()
        write_layout(name, tmp_path / name)
    path = tmp_path / "enzo" / "DD0001" / "DD0001"
    path.write_text(path.read_text().replace("TimeUnits           = 1", "TimeUnits = 50"))
    with open_fields(path) as found:
        assert float(found.time) == pytest.approx(5.0)
        assert found.time.attrs["units"] == "s"
    with open_fields(tmp_path / "amrex" / "plt00010") as found:
        assert "units" not in found.time.attrs


def test_fields_of_one_name_in_two_groups_are_two():
    from scitoolkit.io.formats.adaptive import _named

    arrays = {("gas", "T"): 1, ("dust", "T"): 2, ("gas", "u"): 3}
    assert _named(arrays) == {"gas_T": 1, "dust_T": 2, "u": 3}


def test_a_dump_of_basilisk_is_refused_with_the_way_to_a_grid(tmp_path):
    header = np.array([(1.5, 3, 100, 6, 1, 170901)], "<f8,<i8,<i4,<i4,<i4,<i4")
    (tmp_path / "dump").write_bytes(header.tobytes() + bytes(200))
    with pytest.raises(DataError, match=r"a dump of Basilisk.*restore \(\"dump\"\).*output_vtk"):
        format_of(tmp_path / "dump")


NEK = "#std 8  3  3  1 {here:>10} {all:>10}  5.0E-01         1      0      1 {fields}"


def read_nek(monkeypatch, **read):
    """Let pymech, which `make test-files` has, return elements by the name of a file."""
    core = types.ModuleType("pymech.neksuite")
    core.readnek = lambda path: read[path.rpartition("/")[2].partition("0.")[0]]
    monkeypatch.setitem(sys.modules, "pymech", types.ModuleType("pymech"))
    monkeypatch.setitem(sys.modules, "pymech.neksuite", core)


def nek_elements(*, curved=False, jump=0.0):
    """Return two elements of 3 x 3 points side by side, the second one first."""
    elements = []
    for number in (1, 0):
        y, x = np.meshgrid([0, 0.5, 1], np.linspace(number, number + 1, 3), indexing="ij")
        positions = np.stack([x + 0.2 * curved * y**2, y, 0 * x])[:, None]
        values = x + 10 * y + jump * number
        elements.append(
            types.SimpleNamespace(
                pos=positions, vel=np.stack([values, -values])[:, None], pres=values[None, None]
            )
        )
    return types.SimpleNamespace(elem=elements, var=(2, 2, 1, 0, 0), wdsz=8, time=0.5)


def test_elements_of_nek5000_that_fill_a_box_are_a_grid(tmp_path, monkeypatch):
    """Positions are in the first file of a run only; points of two elements have their mean."""
    read_nek(monkeypatch, flow=nek_elements(jump=2.0))
    for number, fields in enumerate(("XUP", "UP")):
        path = tmp_path / f"flow0.f{number:05d}"
        path.write_text(NEK.format(here=2, all=2, fields=fields))
        assert Nek5000.guess(path) == 1
        with Nek5000.open_dataset(path) as data:
            assert list(data.data_vars) == ["ux", "uy", "pressure"]
            assert data.ux.dims == ("y", "x")
            assert data.x.values.tolist() == [0, 0.5, 1, 1.5, 2]
            assert float(data.time) == 0.5
            truth = data.x.values + 10 * data.y.values[:, None] + [0, 0, 1, 2, 2]
            np.testing.assert_array_equal(data.ux, truth)
            np.testing.assert_array_equal(data.uy, -truth)
            np.testing.assert_array_equal(data.pressure, truth)
    (tmp_path / "flow0.f00000").unlink()
    with pytest.raises(DataError, match="no positions"):
        Nek5000.open_dataset(path)


def test_curved_elements_parts_and_damaged_files_of_nek5000_are_refused(tmp_path, monkeypatch):
    read_nek(monkeypatch, bent=nek_elements(curved=True))
    for name, here, said in (
        ("bent0.f00000", 2, "fill no box"),
        ("bent0.f00001", 1, "1 of 2 elements"),
        ("lost0.f00001", 2, "pymech does not read it"),
    ):
        (tmp_path / name).write_text(NEK.format(here=here, all=2, fields="XUP"))
        with pytest.raises(DataError, match=said):
            Nek5000.open_dataset(tmp_path / name)


def test_messages_on_two_grids_are_refused(tmp_path):
    eccodes = pytest.importorskip("eccodes")  # make test-peers
    path = tmp_path / "a.grib"
    with path.open("wb") as file:
        for points in (8, 16):
            message = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib2")
            eccodes.codes_set(message, "Ni", points)
            eccodes.codes_set(message, "Nj", 4)
            eccodes.codes_set_values(message, [1.0] * (4 * points))
            eccodes.codes_write(message, file)
            eccodes.codes_release(message)
    with pytest.raises(DataError, match="make no single array"), open_fields(path):
        pass
