"""Generator of advection and diffusion of a tracer on finite-element meshes.

Flow and diffusivity are scaled with the mesh, so that a stored step moves the tracer by about one
edge. The flow is the curl of a stream function that is zero on the boundary, from a Poisson problem
with random sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from scitoolkit.core.config import DataPath
from scitoolkit.core.errors import DataError, ScitoolkitError, missing_extra
from scitoolkit.core.files import move_into_place, temporary_name
from scitoolkit.generators.base import ORIGIN, Accuracy, Generator, Origin, Sample

if TYPE_CHECKING:
    import numpy as np

    Flow = tuple[np.ndarray, np.ndarray, np.ndarray]

UNITS = {"positions": "m", "triangles": "1", "velocity": "m step-1", "tracer": "1"}
DIMS = {
    "positions": ("node", "component"),
    "triangles": ("triangle", "corner"),
    "velocity": ("trajectory", "node", "component"),
    "tracer": ("trajectory", "time", "node"),
}
MESHES = (".json", ".msh")
FLAT = 1e-6
"""Largest ratio of the extents along z and x or y that counts as rounding."""
FOURTHS = 4 / 3
"""Error of a scheme of second order over its difference from half the step."""


class MeshTracer(Generator):
    """Tracer trajectories on finite-element meshes, as HDF5 with a group for each mesh.

    A sample has all meshes of a folder; each trajectory has another flow and initial state.

    Attributes:
        meshes: folder of meshes of triangles or quadrilaterals, which are split into triangles, in
            formats of scikit-fem: `.json` and `.msh`.
        trajectories: number of trajectories on each mesh.
        steps: number of stored steps after the initial state.
        substeps: number of time steps in a stored step.
        courant: mean edge lengths that the fastest flow covers in a stored step.
        diffusion: diffusivity in squared mean edge lengths per stored step.
    """

    name: Literal["mesh_tracer"] = "mesh_tracer"
    parameters: ClassVar[Mapping[str, str]] = {"courant": "1", "diffusion": "1"}
    equations: ClassVar[str] = (
        "du/dt + v . grad(u) = kappa lap(u), div v = 0, no flux through the boundary"
    )
    scheme: ClassVar[str] = "P1 finite elements, Crank-Nicolson"
    reference: ClassVar[str] = (
        "Gustafsson and McBain 2020, Journal of Open Source Software 5(52), 2369 (scikit-fem)"
    )
    suffix: ClassVar[str] = ".h5"
    requires: ClassVar[tuple[str, ...]] = ("skfem",)

    meshes: DataPath
    trajectories: PositiveInt = 26
    steps: PositiveInt = 20
    substeps: PositiveInt = 4
    courant: Annotated[PositiveFloat, Field(le=10)] = 1.0
    diffusion: Annotated[PositiveFloat, Field(le=10)] = 0.15

    def generate(self, seed: int) -> Sample:
        """Return a tree with a dataset for each mesh, and the drift of the tracer's integral.

        Raises:
            BackendError: scikit-fem is missing.
            DataError: the folder has no mesh, or a mesh cannot be read.
        """
        import xarray as xr

        nodes, drift = {}, 0.0
        for number, path in enumerate(self._files()):
            arrays, lost = self.simulate(load_mesh(path), seed + number)
            drift = max(drift, lost)
            nodes[path.stem] = _dataset(arrays)
        return Sample(xr.DataTree.from_dict(nodes), {"integral": drift})  # type: ignore[arg-type]

    def invariant_bounds(self) -> Mapping[str, float]:
        """Return the bound of the drift of the tracer's integral."""
        return {"integral": 1e-10}

    def simulate(self, mesh: Any, seed: int) -> tuple[dict[str, np.ndarray], float]:
        """Return the arrays of a mesh, and the largest relative drift of the tracer's integral.

        Args:
            mesh: triangle mesh of scikit-fem.
            seed: of the flows and initial states.

        Returns:
            positions (N, 2), triangles (T, 3), velocity (K, N, 2) and tracer (K, steps + 1, N).

        Raises:
            DataError: the mesh has no interior node, or triangles without area.
        """
        import numpy as np

        basis, masses, length, flows = self._flows(mesh, seed)
        velocity, tracer, drift = [], [], 0.0
        for scaled, speeds, start in flows:
            states = self._carried(basis, length, scaled, start, self.substeps)
            velocity.append(_at_nodes(mesh, speeds))
            tracer.append(states)
            begin, end = ((masses @ state).sum() for state in (states[0], states[-1]))
            drift = max(drift, abs(end / begin - 1))
        return {
            "positions": mesh.p.T,
            "triangles": mesh.t.T,
            "velocity": np.stack(velocity).astype(np.float32),
            "tracer": np.stack(tracer).astype(np.float32),
        }, float(drift)

    def accuracy(self, sample: Sample, seed: int) -> Accuracy:
        """Return the error of the first trajectory on each mesh from a run on a finer one.

        The flow and the initial state are those of the mesh, which a finer one has exactly.
        """
        from scitoolkit.generators.resolution import convergence_error

        frames: Any = sample.frames
        worst = 0.0
        for number, path in enumerate(self._files()):
            fine = self.refined(load_mesh(path), seed + number, 1, 0)
            own = frames.children[path.stem]["tracer"].values[0].astype(float)
            error = convergence_error([{"tracer": fine}, {"tracer": own}], [2.0]) * FOURTHS
            worst = error if not error <= worst else worst
        method = f"tracer ({self.substeps} steps in a stored one) against half of edges and steps"
        return Accuracy(worst, self.tolerance, method)

    def refined(self, mesh: Any, seed: int, times: int, trajectory: int) -> np.ndarray:
        """Return a trajectory on a finer mesh, (steps + 1, N) at the nodes of the mesh.

        Args:
            mesh: triangle mesh of scikit-fem.
            seed: of the mesh, as in `simulate`.
            times: how often edges and time steps are halved.
            trajectory: its number.
        """
        import itertools

        skfem = _skfem()
        _, _, length, flows = self._flows(mesh, seed)
        scaled, _, u = next(itertools.islice(flows, trajectory, None))
        nodes = u.size
        for _ in range(times):
            # New nodes are the midpoints of edges, in the order of the edges.
            scaled, u = (_with_midpoints(values, mesh.facets) for values in (scaled, u))
            mesh = mesh.refined()
        basis = skfem.Basis(mesh, skfem.ElementTriP1())
        return self._carried(basis, length, scaled, u, self.substeps * 2**times)[:, :nodes]

    def _flows(self, mesh: Any, seed: int) -> tuple[Any, Any, float, Iterator[Flow]]:
        """Return basis, masses, the mean edge, and each trajectory's flow and initial state.

        A flow is the stream function at the nodes, and the velocities in the triangles.
        """
        import numpy as np

        skfem = _skfem()
        basis = skfem.Basis(mesh, skfem.ElementTriP1())
        stiffness, masses, _ = _operators(basis)
        edges = mesh.p[:, mesh.facets[1]] - mesh.p[:, mesh.facets[0]]
        length = float(np.linalg.norm(edges, axis=0).mean())
        inner = basis.complement_dofs(basis.get_dofs())

        def flows() -> Iterator[Flow]:
            rng = np.random.default_rng(seed)
            for _ in range(self.trajectories):
                source = masses @ _bumps(rng, mesh.p, 6, signed=True)
                stream = skfem.solve(*skfem.condense(stiffness, source, I=inner))
                slope = basis.interpolate(stream).grad
                # v = (psi_y, -psi_x) has no divergence, and no component across the boundary, where
                # psi is 0.
                cells = np.stack([slope[1][:, 0], -slope[0][:, 0]])
                fastest = np.linalg.norm(cells, axis=0).max()
                if not 0 < fastest < np.inf:
                    raise DataError(
                        "a mesh without flow: no interior node, or triangles without area",
                        where=f"mesh of {mesh.p.shape[1]} nodes",
                    )
                scale = self.courant * length / fastest
                yield scale * stream, scale * cells, _bumps(rng, mesh.p, 5, signed=False)

        return basis, masses, length, flows()

    def _carried(
        self, basis: Any, length: float, stream: np.ndarray, u: np.ndarray, substeps: int
    ) -> np.ndarray:
        """Return the tracer after each stored step, (steps + 1, N), by Crank-Nicolson."""
        import numpy as np
        import scipy.sparse.linalg as spla

        stiffness, masses, advection = _operators(basis)
        carried = advection.assemble(basis, stream=basis.interpolate(stream))
        # (M + dt/2 R) u' = (M - dt/2 R) u with masses M, R = advection + kappa stiffness, and the
        # time of a stored step as unit. Columns of R sum to zero, so that the integral of u is
        # conserved.
        rate, step = carried + self.diffusion * length**2 * stiffness, 1.0 / substeps
        left = spla.splu((masses + 0.5 * step * rate).tocsc())
        right = masses - 0.5 * step * rate
        states = [u]
        for _ in range(self.steps):
            for _ in range(substeps):
                u = left.solve(right @ u)
            states.append(u)
        return np.stack(states)

    def write(self, sample: Sample, origin: Origin, path: Path) -> None:
        """Write HDF5 with a group for each mesh, the input format of jobs on meshes."""
        import h5py

        frames: Any = sample.frames
        path = Path(path)
        temporary = temporary_name(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with h5py.File(temporary, "w") as file:
                file.attrs["title"] = "tracer carried and diffused on finite-element meshes"
                file.attrs[ORIGIN] = origin.text()
                for mesh, node in frames.children.items():
                    for name, unit in UNITS.items():
                        data = file.create_dataset(f"{mesh}/{name}", data=node[name].values)
                        data.attrs["units"] = unit
            move_into_place(temporary, path)
        except OSError as error:
            raise DataError(f"{error}", where=str(path)) from error
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def read(cls, path: Path) -> tuple[Any, Origin]:
        """Return the tree and the provenance of a file written by `write`."""
        import h5py
        import xarray as xr

        with h5py.File(path, "r") as file:
            if ORIGIN not in file.attrs:
                raise DataError("not a sample of `scitoolkit generate`", where=str(path))
            nodes = {
                mesh: _dataset({n: group[n][()] for n in DIMS}) for mesh, group in file.items()
            }
            return xr.DataTree.from_dict(nodes), Origin.parse(file.attrs[ORIGIN])

    def _files(self) -> list[Path]:
        folder = Path(self.meshes)
        meshes = sorted(p for p in folder.glob("*") if p.suffix in MESHES)
        if not meshes:
            raise DataError("no meshes", where=str(folder), allowed=f"files {', '.join(MESHES)}")
        names = [path.stem for path in meshes]
        twice = [path.name for path in meshes if names.count(path.stem) > 1]
        if twice:
            raise DataError(
                f"meshes of equal name: {', '.join(twice)}",
                where=str(folder),
                fix="rename one: groups of a sample have these names",
            )
        return meshes


def load_mesh(path: Path) -> Any:
    """Return a triangle mesh from a file; quadrilaterals are split into two triangles.

    Curved elements are replaced by straight ones. Nodes without element, such as centres of arcs,
    are removed.

    Raises:
        BackendError: scikit-fem is missing.
        DataError: not a mesh, other or mixed kinds of elements, or a mesh outside the x-y plane.
    """
    skfem = _skfem()
    try:
        if path.suffix == ".json":
            from skfem.io.json import from_file

            mesh = from_file(str(path))
        else:
            _require_plane(path)
            mesh = skfem.Mesh.load(str(path))
        if isinstance(mesh, skfem.MeshQuad1):
            mesh = skfem.MeshQuad1.from_mesh(mesh).to_meshtri()
        if isinstance(mesh, skfem.MeshTri1):
            return skfem.MeshTri1.from_mesh(mesh).remove_unused_nodes()
    except ScitoolkitError:
        raise
    except (Exception, SystemExit) as error:  # meshio raises many kinds for a damaged file
        text = " ".join(str(error).split())[:200]
        raise DataError(f"not a mesh that scikit-fem reads ({text})", where=str(path)) from None
    raise DataError(
        f"elements {type(mesh).__name__}", where=str(path), allowed="triangles or quadrilaterals"
    )


def _require_plane(path: Path) -> None:
    """Refuse properties that scikit-fem would ignore: heights and a second kind of elements.

    Raises:
        DataError: the mesh has one of them.
    """
    import meshio
    import numpy as np

    try:
        mesh = meshio.read(path)
    except meshio.ReadError as error:
        raise ValueError(str(error)) from None
    kinds = {
        kind for kind in ("triangle", "quad") if any(c.type.startswith(kind) for c in mesh.cells)
    }
    if len(kinds) > 1:
        raise DataError(
            "triangles and quadrilaterals in one mesh",
            where=str(path),
            allowed="one kind of elements",
        )
    extent = np.ptp(mesh.points, axis=0)
    if len(extent) > 2 and extent[2] > FLAT * extent[:2].max():
        raise DataError(
            "a surface outside the x-y plane", where=str(path), allowed="equal z of all nodes"
        )


def _skfem() -> Any:
    try:
        import skfem
    except ImportError:
        raise missing_extra("scikit-fem", "graphs", "the generator mesh_tracer") from None
    return skfem


def _operators(basis: Any) -> tuple[Any, Any, Any]:
    """Return stiffness matrix, mass matrix and the form of advection by a stream function."""
    import numpy as np
    from skfem import BilinearForm
    from skfem.helpers import dot, grad
    from skfem.models.poisson import laplace, mass

    @BilinearForm
    def advection(u: Any, v: Any, w: Any) -> Any:
        slope = grad(w["stream"])
        return v * dot(np.stack([slope[1], -slope[0]]), grad(u))

    return laplace.assemble(basis), mass.assemble(basis), advection


def _with_midpoints(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return values at nodes, and after them their means at the edges (2, E)."""
    import numpy as np

    return np.concatenate([values, values[edges].mean(0)])


def _bumps(rng: Any, points: np.ndarray, count: int, *, signed: bool) -> np.ndarray:
    """Return a sum of Gaussians at random nodes, of widths 0.1 to 0.2 of the mesh's extent."""
    import numpy as np

    size = np.ptp(points, axis=1).min()
    out = np.zeros(points.shape[1])
    for _ in range(count):
        middle = points[:, rng.integers(points.shape[1])]
        width = size * rng.uniform(0.1, 0.2)
        sign = rng.choice([-1.0, 1.0]) if signed else 1.0
        distance = ((points - middle[:, None]) ** 2).sum(0)
        out += sign * rng.uniform(0.5, 1.0) * np.exp(-distance / (2 * width**2))
    return out


def _at_nodes(mesh: Any, cells: np.ndarray) -> np.ndarray:
    """Return the mean of a vector over the triangles at each node, (N, 2)."""
    import numpy as np

    total, count = np.zeros((mesh.p.shape[1], 2)), np.zeros(mesh.p.shape[1])
    for corner in mesh.t:
        np.add.at(total, corner, cells.T)
        np.add.at(count, corner, 1)
    return total / count[:, None]


def _dataset(arrays: Mapping[str, np.ndarray]) -> Any:
    import xarray as xr

    return xr.Dataset(
        {name: (DIMS[name], values, {"units": UNITS[name]}) for name, values in arrays.items()}
    )
