"""Make the trajectories: `python generate.py --output mesh_diffusion.h5`

A tracer is carried by a closed flow and diffuses, on finite-element meshes:

    du/dt + v . grad(u) = kappa lap(u),  no flux through the boundary,

by P1 elements of scikit-fem and Crank-Nicolson steps. The flow is the rotation of a stream
function that is zero on the boundary, from a Poisson problem with random sources. Velocity and
kappa are scaled with the mesh, so that a stored step moves the tracer by about one edge.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import h5py
import numpy as np
import scipy.sparse.linalg as spla

STEPS, SUBSTEPS = 20, 4
COURANT, DIFFUSION = 1.0, 0.15  # edges a step, and squared edges a step


def simulate(mesh, trajectories: int, seed: int) -> dict[str, np.ndarray]:
    """Return positions, triangles, velocity (K, N, 2) and tracer (K, STEPS + 1, N) of a mesh."""
    from skfem import Basis, BilinearForm, ElementTriP1, condense, solve
    from skfem.helpers import dot, grad
    from skfem.models.poisson import laplace, mass

    basis = Basis(mesh, ElementTriP1())
    stiffness, masses = laplace.assemble(basis), mass.assemble(basis)
    edges = mesh.p[:, mesh.facets[1]] - mesh.p[:, mesh.facets[0]]
    length = float(np.linalg.norm(edges, axis=0).mean())
    inner = basis.complement_dofs(basis.get_dofs())
    r = np.random.default_rng(seed)

    @BilinearForm
    def advection(u, v, w):
        slope = grad(w["stream"])
        return v * dot(np.stack([slope[1], -slope[0]]), grad(u))

    velocity, tracer = [], []
    for _ in range(trajectories):
        source = masses @ _bumps(r, mesh.p, 6, signed=True)
        stream = solve(*condense(stiffness, source, I=inner))
        slope = basis.interpolate(stream).grad
        cells = np.stack([slope[1][:, 0], -slope[0][:, 0]])
        scale = COURANT * length / np.linalg.norm(cells, axis=0).max()
        carried = advection.assemble(basis, stream=basis.interpolate(scale * stream))
        rate = carried + DIFFUSION * length**2 * stiffness
        step = 1.0 / SUBSTEPS
        left = spla.splu((masses + 0.5 * step * rate).tocsc())
        right = masses - 0.5 * step * rate
        u = _bumps(r, mesh.p, 5, signed=False)
        states = [u]
        for _ in range(STEPS):
            for _ in range(SUBSTEPS):
                u = left.solve(right @ u)
            states.append(u)
        velocity.append(scale * _at_nodes(mesh, cells))
        tracer.append(np.stack(states))
    return {
        "positions": mesh.p.T,
        "triangles": mesh.t.T,
        "velocity": np.stack(velocity).astype(np.float32),
        "tracer": np.stack(tracer).astype(np.float32),
    }


def _bumps(r, points: np.ndarray, count: int, *, signed: bool) -> np.ndarray:
    """A sum of Gaussians at random points of the mesh, a fifth to a tenth of its size wide."""
    size = np.ptp(points, axis=1).min()
    out = np.zeros(points.shape[1])
    for _ in range(count):
        middle = points[:, r.integers(points.shape[1])]
        width = size * r.uniform(0.1, 0.2)
        sign = r.choice([-1.0, 1.0]) if signed else 1.0
        distance = ((points - middle[:, None]) ** 2).sum(0)
        out += sign * r.uniform(0.5, 1.0) * np.exp(-distance / (2 * width**2))
    return out


def _at_nodes(mesh, cells: np.ndarray) -> np.ndarray:
    """Mean of a vector over the triangles of each node, shape (N, 2)."""
    total, count = np.zeros((mesh.p.shape[1], 2)), np.zeros(mesh.p.shape[1])
    for corner in mesh.t:
        np.add.at(total, corner, cells.T)
        np.add.at(count, corner, 1)
    return total / count[:, None]


def load_mesh(path: Path):
    """Read a mesh of triangles with scikit-fem; squares become two triangles each."""
    import skfem
    from skfem.io.json import from_file

    mesh = from_file(str(path)) if path.suffix == ".json" else skfem.Mesh.load(str(path))
    return mesh.to_meshtri() if isinstance(mesh, skfem.MeshQuad1) else mesh


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--meshes", type=Path, default=Path(__file__).parent)
    parser.add_argument("--output", type=Path, default=Path("mesh_diffusion.h5"))
    parser.add_argument("--trajectories", type=int, default=26)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    found = sorted(p for p in arguments.meshes.iterdir() if p.suffix in (".json", ".msh"))
    with h5py.File(arguments.output, "w") as file:
        file.attrs["title"] = "tracer carried and diffused on finite-element meshes"
        for number, path in enumerate(found):
            arrays = simulate(load_mesh(path), arguments.trajectories, arguments.seed + number)
            group = file.create_group(path.stem)
            for name, values in arrays.items():
                group.create_dataset(name, data=values)
            group["velocity"].attrs["units"] = "m step-1"
            group["tracer"].attrs["units"] = "1"
            print(f"{path.stem}: {len(arrays['positions'])} nodes")


if __name__ == "__main__":
    main()
