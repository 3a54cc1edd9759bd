from __future__ import annotations

import h5py
import numpy as np
import pytest

from scitoolkit.core.errors import DataError
from scitoolkit.generators.base import Origin
from scitoolkit.generators.mesh_tracer import MeshTracer, load_mesh
from scitoolkit.graphs.mesh_data import read_meshes
from scitoolkit.testing import GeneratorContract

skfem = pytest.importorskip("skfem", exc_type=ImportError)


@pytest.fixture
def folder(tmp_path):
    """A folder with a mesh of triangles and one of squares."""
    from skfem.io.json import to_file

    to_file(skfem.MeshTri.init_circle(2), str(tmp_path / "circle.json"))
    skfem.MeshQuad.init_tensor(np.linspace(0, 1, 8), np.linspace(0, 1, 6)).save(
        str(tmp_path / "squares.msh"), file_format="gmsh22"
    )
    return tmp_path


class TestMeshTracer(GeneratorContract):
    @pytest.fixture
    def generator(self, folder):
        return MeshTracer(meshes=folder, trajectories=2, steps=3)


def test_a_sample_is_what_a_job_on_meshes_reads(folder):
    generator = MeshTracer(meshes=folder, trajectories=2, steps=3)
    path = folder / "made" / "sample.h5"
    sample = generator.sample({}, 3)
    generator.write(sample, Origin(generator.model_dump(mode="json"), 3), path)
    meshes = read_meshes(path)
    assert set(meshes.geometry.names) == {"circle", "squares"}
    with h5py.File(path) as file:
        assert file["squares/tracer"].shape == (2, 4, 48)
        assert file["squares/velocity"].attrs["units"] == "m step-1"


def test_diffusion_alone_damps_the_first_cosine_by_its_eigenvalue():
    mesh = skfem.MeshTri.init_tensor(np.linspace(0, 1, 33), np.linspace(0, 1, 33))
    length = np.linalg.norm(mesh.p[:, mesh.facets[1]] - mesh.p[:, mesh.facets[0]], axis=0).mean()
    generator = MeshTracer(meshes=".", trajectories=1, steps=20, courant=1e-9, diffusion=1.0)
    tracer = generator.simulate(mesh, 0)[0]["tracer"][0].astype(float)
    lumped = np.zeros(mesh.p.shape[1])
    np.add.at(lumped, mesh.t.ravel(), 1.0)  # triangles of equal size
    shape = np.cos(np.pi * mesh.p[0]) * lumped
    found = np.log((tracer[-1] @ shape) / (tracer[0] @ shape)) / 20
    assert found == pytest.approx(-((np.pi * length) ** 2), rel=0.01)


def test_folders_without_meshes_and_other_elements_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"no meshes.*\.json, \.msh"):
        MeshTracer(meshes=tmp_path).generate(0)
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(DataError, match="scikit-fem reads"):
        MeshTracer(meshes=tmp_path).generate(0)


def gmsh(path, points, **cells):
    """Write a mesh as Gmsh does."""
    meshio = pytest.importorskip("meshio")
    flat = np.column_stack([points, np.zeros(len(points))]) if points.shape[1] == 2 else points
    meshio.write(path, meshio.Mesh(flat, list(cells.items())), file_format="gmsh22")
    return path


def test_nodes_of_no_element_and_curved_elements_are_read_as_a_plain_mesh(tmp_path):
    plain = skfem.MeshTri().refined(2)
    path = gmsh(tmp_path / "arc.msh", np.vstack([plain.p.T, [[3.0, 3.0]]]), triangle=plain.t.T)
    assert np.array_equal(load_mesh(path).p, plain.p)
    curved = skfem.MeshTri2.init_circle(2)
    curved.save(str(tmp_path / "curved.msh"))
    assert load_mesh(tmp_path / "curved.msh").p.shape[1] == curved.nvertices
    sample = MeshTracer(meshes=tmp_path, trajectories=1, steps=1).sample({}, 0)
    assert np.isfinite(sample.frames["arc"]["velocity"]).all()


def test_what_scikit_fem_would_leave_out_is_refused(tmp_path):
    corners = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1], [2, 0]])
    mixed = gmsh(
        tmp_path / "mixed.msh",
        corners,
        triangle=np.array([[1, 4, 2]]),
        quad=np.array([[0, 1, 2, 3]]),
    )
    with pytest.raises(DataError, match="triangles and quadrilaterals in one mesh"):
        load_mesh(mixed)
    bent = np.column_stack([corners, corners[:, 0] ** 2])
    bowl = gmsh(tmp_path / "bowl.msh", bent, triangle=np.array([[0, 1, 2], [0, 2, 3], [1, 4, 2]]))
    with pytest.raises(DataError, match="outside the x-y plane"):
        load_mesh(bowl)
    (tmp_path / "broken.msh").write_text("no mesh")
    with pytest.raises(DataError, match="scikit-fem reads"):
        load_mesh(tmp_path / "broken.msh")


def test_meshes_of_one_name_and_meshes_without_a_node_inside_are_refused(tmp_path):
    from skfem.io.json import to_file

    to_file(skfem.MeshTri(), str(tmp_path / "a.json"))
    with pytest.raises(DataError, match="no interior node"):
        MeshTracer(meshes=tmp_path).generate(0)
    (tmp_path / "a.msh").write_text("")
    with pytest.raises(DataError, match=r"a\.json, a\.msh"):
        MeshTracer(meshes=tmp_path).generate(0)
