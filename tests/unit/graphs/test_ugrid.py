"""Fields on a UGRID mesh become the graph that an independent reading gives."""

import numpy as np
import pytest
import xarray as xr

from scitoolkit import api
from scitoolkit.core.data_differences import compare
from scitoolkit.core.errors import DataError
from scitoolkit.core.starter import DataToStart
from scitoolkit.graphs.facts import ACCEPTS
from scitoolkit.graphs.graph import read_graph
from scitoolkit.graphs.starter import starter
from scitoolkit.graphs.ugrid import field_facts, graph_arrays, is_ugrid, survey

# Two triangles and a square in a row: 0-1-2, 1-3-2, 3-4-5-2.
FACES = [[0, 1, 2], [1, 3, 2], [3, 4, 5, 2]]
X, Y = [0.0, 1.0, 0.0, 1.0, 2.0, 2.0], [0.0, 0.0, 1.0, 1.0, 1.0, 2.0]
NEIGHBOUR_FACES = {(0, 1), (1, 2)}
NEIGHBOUR_NODES = {(0, 1), (1, 2), (0, 2), (1, 3), (2, 3), (3, 4), (4, 5), (2, 5)}


def mesh(*, start=0, transposed=False, degrees=False, times=8, change=1.0):
    """Return a dataset with `eta` on nodes, `h` and `c` on faces and `flux` on edges."""
    rng = np.random.default_rng(0)
    table = np.array([face + [-999 - start] * (4 - len(face)) for face in FACES]) + start
    dims = ("corner", "cell") if transposed else ("cell", "corner")
    attrs = {"start_index": start, "_FillValue": -999}
    units = ("degrees_east", "degrees_north") if degrees else ("m", "m")
    on = {"mesh": "grid"}
    return xr.Dataset(
        {
            "grid": (
                (),
                0,
                {
                    "cf_role": "mesh_topology",
                    "topology_dimension": 2,
                    "node_coordinates": "nx ny",
                    "face_node_connectivity": "corners",
                    "face_dimension": "cell",
                },
            ),
            "corners": (dims, (table.T if transposed else table).astype("i4"), attrs),
            "nx": (("point",), np.array(X), {"units": units[0]}),
            "ny": (("point",), np.array(Y), {"units": units[1]}),
            "h": (
                ("time", "cell"),
                1e5 + change * rng.random((times, 3)),
                on | {"location": "face"},
            ),
            "c": (("time", "cell"), rng.random((times, 3)), on | {"location": "face"}),
            "eta": (("time", "point"), rng.random((times, 6)), on | {"location": "node"}),
            "flux": (("time", "side"), rng.random((times, 8)), on | {"location": "edge"}),
            "deep": (("time", "z", "cell"), rng.random((times, 2, 3)), on | {"location": "face"}),
        },
        {"time": ("time", np.arange(times, dtype="f8"), {"units": "hours since 2000-01-01"})},
    )


def written(data, folder):
    path = folder / "ocean.nc"
    data.to_netcdf(path, engine="h5netcdf")
    return path


def directed(pairs, copies, cells):
    both = pairs | {(b, a) for a, b in pairs}
    return {(a + k * cells, b + k * cells) for a, b in both for k in range(copies)}


@pytest.mark.parametrize("form", [{}, {"start": 1}, {"transposed": True}])
def test_fields_on_faces(tmp_path, form):
    data = mesh(**form)
    path = written(data, tmp_path)
    arrays = graph_arrays(path)
    assert set(zip(*arrays["edge_index"].tolist(), strict=True)) == directed(NEIGHBOUR_FACES, 7, 3)
    h, c = data["h"].values, data["c"].values
    assert np.array_equal(arrays["y"][:, 1], np.diff(h, axis=0).reshape(-1))
    assert np.array_equal(arrays["x"][:, 0], c[:-1].reshape(-1))
    places = [np.mean([(X[n], Y[n]) for n in face], 0) for face in FACES]
    assert np.allclose(arrays["x"][:, 2:].reshape(7, 3, 2), places)
    nodes = [arrays[part] for part in ("train", "val", "test")]
    assert [len(part) // 3 for part in nodes] == [4, 1, 2]
    assert np.array_equal(np.concatenate(nodes), np.arange(21))


def test_fields_on_nodes_of_a_sphere(tmp_path):
    path = written(mesh(degrees=True).drop_vars(["h", "c"]), tmp_path)
    arrays = graph_arrays(path)
    assert set(zip(*arrays["edge_index"].tolist(), strict=True)) == directed(NEIGHBOUR_NODES, 7, 6)
    assert np.allclose(np.linalg.norm(arrays["x"][:, 1:], axis=1), 1)
    assert np.allclose(arrays["x"][:6, 3], np.sin(np.deg2rad(Y)))


def test_small_changes_of_large_values_reach_the_target(tmp_path):
    data = mesh(change=1e-4)
    graph = read_graph(written(data, tmp_path), "values")
    expected = np.diff(data["h"].values, axis=0).reshape(-1)
    assert np.allclose(graph.labels[:, 1], expected, rtol=1e-5, atol=0)


def test_what_is_left_out_has_a_reason(tmp_path):
    found = survey(written(mesh(), tmp_path))
    assert (found.location, found.fields) == ("face", ("c", "h"))
    assert set(found.left_out) == {"eta", "flux", "deep"}
    assert "location edge" in found.left_out["flux"]


def never_written(data):
    data["h"][2, 1] = 9.96921e36
    return data


def missing(data):
    data["c"][3] = np.nan
    return data


def marked(data):
    data["c"][3, 0] = 1e20
    return data


BROKEN = {
    "marked": (marked, "1 values are 1e[+]20, .*possibly a fill value"),
    "never written": (never_written, "h has no value on 1 faces at row 2"),
    "missing": (missing, "c has no value on 3 faces at row 3"),
    "gap": (lambda d: d.isel(time=[0, 1, 2, 4, 5]), "steps of time from 3600 to 7200"),
    "backwards": (lambda d: d.isel(time=slice(None, None, -1)), "steps of time"),
    "few times": (lambda d: d.isel(time=slice(3)), "3 times"),
    "no faces": (lambda d: d.drop_vars("corners"), "no face_node_connectivity corners"),
    "no fields": (lambda d: d.drop_vars(["h", "c", "eta"]), "no field with a time"),
    "few nodes": (lambda d: d.isel(point=slice(5)), "a face has node 5"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_learned_is_refused_by_name(tmp_path, name):
    change, why = BROKEN[name]
    path = written(change(mesh()), tmp_path)
    with pytest.raises(DataError, match=why):
        graph_arrays(path)


def other_unit(data):
    data["h"].attrs["units"] = "m"
    return data


OTHERS = {
    "unit": (other_unit, "h"),
    "step": (lambda d: d.isel(time=[0, 2, 4, 6]), "time"),
    "name": (lambda d: d.rename(h="depth"), "h"),
    "location": (lambda d: d.drop_vars(["h", "c"]), "h"),
    "positions": (lambda d: d.assign(nx=d["nx"].assign_attrs(units="km")), "positions of faces"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_model_refuses_a_mesh_with_other_fields(tmp_path, name):
    data = mesh()
    data["h"].attrs["units"] = "cm"
    trained = field_facts(written(data, tmp_path))
    change, key = OTHERS[name]
    found = field_facts(written(change(data.copy(deep=True)), tmp_path))
    errors = [d.key for d in compare(trained, found, ACCEPTS) if d.level == "error"]
    assert any(key in error for error in errors)
    assert not compare(trained, trained, ACCEPTS)


def test_fields_in_another_order_are_the_same_columns(tmp_path):
    first = graph_arrays(written(mesh(), tmp_path))
    other = mesh()
    again = graph_arrays(written(other[[*other.data_vars][::-1]], tmp_path))
    assert np.array_equal(first["x"], again["x"])
    assert np.array_equal(first["y"], again["y"])


@pytest.mark.filterwarnings("ignore")
def test_init_writes_a_job_that_runs(tmp_path):
    pytest.importorskip("torch_geometric", exc_type=ImportError)
    path = written(mesh(), tmp_path)
    text = starter(DataToStart([str(path)], [str(path)]))
    assert "flux is left out" in text
    (tmp_path / "job.yaml").write_text(text)
    run = api.run(tmp_path / "job.yaml", ["training.epochs=2", f"run.root={tmp_path}"])
    assert (run.path / "results.json").exists()


def test_other_files_are_no_meshes(tmp_path):
    path = tmp_path / "grid.nc"
    xr.Dataset({"t": (("time", "x"), np.zeros((3, 4)))}).to_netcdf(path, engine="h5netcdf")
    assert not is_ugrid(path)
    with pytest.raises(DataError, match="0 meshes"):
        read_graph(path, "values")
