"""Layouts of programs whose files need a package of their own to be read, or written.

Sources: kerchunk's specification 1; AMReX `Src/Base/AMReX_PlotFileUtil.cpp`; Enzo 2.6
`Grid_WriteGrid.C`; legacy VTK file formats 4.2; cut-out service of the Johns Hopkins databases.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from program_layouts.files import ROWS, LayoutFiles, Write

Rng = np.random.Generator


def _values(rng: Rng, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype("f4")


def jhtdb(folder: Path, rng: Rng) -> LayoutFiles:
    """A cut-out of JHTDB: every tenth step, in one file."""
    u, path = _values(rng, ROWS, 5, 6, 7, 3), folder / "channel.h5"
    with h5py.File(path, "w") as file:
        for k in range(ROWS):
            file[f"Velocity_{10 * k + 1:04d}"] = u[k]
        for name, size in (("zcoor", 5), ("ycoor", 6), ("xcoor", 7)):
            file[name] = np.arange(size) * 0.1
    return LayoutFiles(path, {f"Velocity_{c}": [u[..., c]] for c in range(3)})


def kerchunk(folder: Path, rng: Rng) -> LayoutFiles:
    """References of kerchunk to the chunks of an HDF5 file."""
    u = _values(rng, ROWS, 8, 9)
    with h5py.File(folder / "a.h5", "w") as file:
        stored = file.create_dataset("u", data=u, chunks=(3, 8, 9))
        chunks = [stored.id.get_chunk_info(k) for k in range(stored.id.get_num_chunks())]
    time = np.arange(float(ROWS))
    refs: dict[str, Any] = {".zgroup": json.dumps({"zarr_format": 2})}
    about = {
        "u": (u, (3, 8, 9), ["time", "y", "x"], {"units": "K"}),
        "time": (time, (ROWS,), ["time"], {}),
    }
    for name, (array, sizes, dims, attrs) in about.items():
        refs[f"{name}/.zarray"] = json.dumps(
            {
                "zarr_format": 2,
                "shape": array.shape,
                "chunks": sizes,
                "dtype": array.dtype.str,
                "compressor": None,
                "filters": None,
                "fill_value": None,
                "order": "C",
            }
        )
        refs[f"{name}/.zattrs"] = json.dumps({"_ARRAY_DIMENSIONS": dims, **attrs})
    for chunk in chunks:
        key = ".".join(str(a // n) for a, n in zip(chunk.chunk_offset, (3, 8, 9), strict=True))
        refs[f"u/{key}"] = [str(folder / "a.h5"), chunk.byte_offset, chunk.size]
    refs["time/0"] = "base64:" + _base64(time.tobytes())
    path = folder / "a.json"
    path.write_text(json.dumps({"version": 1, "refs": refs}), encoding="utf-8")
    return LayoutFiles(path, {"u": [u]})


def _base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode()


def icechunk(folder: Path, rng: Rng) -> LayoutFiles:
    """A repository of Icechunk, written in two commits."""
    import icechunk as package
    import xarray as xr

    u = _values(rng, ROWS, 8, 9)
    path = folder / "repository"
    repository = package.Repository.create(package.local_filesystem_storage(str(path)))
    parts: Any = ((slice(0, 8), {"mode": "w"}), (slice(8, ROWS), {"append_dim": "time"}))
    for rows, more in parts:
        data = xr.Dataset(
            {"u": (("time", "y", "x"), u[rows])}, {"time": np.arange(ROWS + 0.0)[rows]}
        )
        session = repository.writable_session("main")
        data.to_zarr(session.store, consolidated=False, zarr_format=3, **more)
        session.commit(f"rows to {rows.stop}")
    return LayoutFiles(path, {"u": [u]})


def vtk_series(folder: Path, rng: Rng) -> LayoutFiles:
    """Legacy VTK on a uniform grid, a time a file, in text."""
    p = _values(rng, ROWS, 6, 7)
    for k in range(ROWS):
        lines = [
            "# vtk DataFile Version 3.0",
            "pressure",
            "ASCII",
            "DATASET STRUCTURED_POINTS",
            "DIMENSIONS 7 6 1",
            "ORIGIN 0 0 0",
            "SPACING 0.5 0.25 1",
            "POINT_DATA 42",
            "SCALARS p float 1",
            "LOOKUP_TABLE default",
            *(repr(float(v)) for v in p[k].ravel()),
        ]
        text = "\n".join(lines) + "\n"
        (folder / f"run0_t{k + 8}.vtk").write_text(text, encoding="utf-8")
    return LayoutFiles(folder, {"p": [p]})


def openfoam_vtk(folder: Path, rng: Rng) -> LayoutFiles:
    """What foamToVTK writes of a block of hexahedra: values on cells in the order of the mesh."""
    import meshio

    sizes = (4, 3, 5)
    corners = np.stack(np.meshgrid(*(np.arange(n + 1.0) for n in sizes), indexing="ij"), -1)
    number = np.arange(corners[..., 0].size).reshape(corners.shape[:3])
    at = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)]
    cells = np.stack(
        [number[a : a + sizes[0], b : b + sizes[1], c : c + sizes[2]] for a, b, c in at], -1
    ).reshape(-1, 8)
    mixed = rng.permutation(len(cells))
    temperature = _values(rng, ROWS, *sizes)
    for k in range(ROWS):
        fields = {"T": [temperature[k].reshape(-1)[mixed]]}
        mesh = meshio.Mesh(corners.reshape(-1, 3), [("hexahedron", cells[mixed])], cell_data=fields)
        meshio.write(folder / f"cavity_{100 + 50 * k}.vtu", mesh)
    return LayoutFiles(folder, {"T": [temperature.transpose(0, 3, 2, 1)]})


def openfoam_mesh(folder: Path, rng: Rng) -> LayoutFiles:
    """Tetrahedra: no grid."""
    import meshio

    for k in range(3):
        cells = rng.integers(0, 30, (20, 4))
        mesh = meshio.Mesh(rng.random((30, 3)), [("tetra", cells)], {"p": rng.random(30)})
        meshio.write(folder / f"case_{k}.vtu", mesh)
    return LayoutFiles(folder, refused="unstructured mesh")


def grib(folder: Path, rng: Rng) -> LayoutFiles:
    """GRIB 2 with six-hourly analyses of temperature on two pressure levels, 24 bits a value."""
    import eccodes

    temperature = 280 + _values(rng, ROWS, 2, 5, 8)
    path = folder / "analysis.grib2"
    with path.open("wb") as file:
        for k in range(ROWS):
            for n, level in enumerate((850, 500)):
                message = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib2")
                keys = {
                    "Ni": 8,
                    "Nj": 5,
                    "latitudeOfFirstGridPointInDegrees": 80,
                    "latitudeOfLastGridPointInDegrees": -80,
                    "longitudeOfFirstGridPointInDegrees": 0,
                    "longitudeOfLastGridPointInDegrees": 315,
                    "iDirectionIncrementInDegrees": 45,
                    "jDirectionIncrementInDegrees": 40,
                    "dataDate": 20200101 + k // 4,
                    "dataTime": 600 * (k % 4),
                    "level": level,
                    "bitsPerValue": 24,
                    "shortName": "t",
                }
                for key, value in keys.items():
                    eccodes.codes_set(message, key, value)
                eccodes.codes_set_values(message, temperature[k, n].ravel().astype(float))
                temperature[k, n] = eccodes.codes_get_values(message).reshape(5, 8)
                eccodes.codes_write(message, file)
                eccodes.codes_release(message)
    return LayoutFiles(path, {"t": [temperature]})


def _plotfile(folder: Path, time: float, names: list[str], values: np.ndarray) -> None:
    """Write a plotfile of one level and two boxes, values (fields, z, y, x) in float64."""
    _, nz, ny, nx = values.shape
    half = nx // 2
    boxes = [((0, 0, 0), (half - 1, ny - 1, nz - 1)), ((half, 0, 0), (nx - 1, ny - 1, nz - 1))]
    (folder / "Level_0").mkdir(parents=True)
    text = [f"(({','.join(map(str, a))}) ({','.join(map(str, b))}) (0,0,0))" for a, b in boxes]
    real = "((8, (64 11 52 0 1 12 0 1023)),(8, (8 7 6 5 4 3 2 1)))"
    offsets, data = [], b""
    for (a, b), one in zip(boxes, text, strict=True):
        offsets.append(len(data))
        part = values[:, a[2] : b[2] + 1, a[1] : b[1] + 1, a[0] : b[0] + 1]
        data += f"FAB {real}{one} {len(names)}\n".encode() + part.astype("<f8").tobytes()
    (folder / "Level_0" / "Cell_D_00000").write_bytes(data)
    extremes = [
        ",".join(
            repr(float(getattr(values[n, :, :, a[0] : b[0] + 1], kind)()))
            for n in range(len(names))
        )
        + ","
        for kind in ("min", "max")
        for a, b in boxes
    ]
    header = [
        "1",
        "1",
        str(len(names)),
        "0",
        f"({len(boxes)} 0",
        *text,
        ")",
        str(len(boxes)),
        *(f"FabOnDisk: Cell_D_00000 {offset}" for offset in offsets),
        "",
        f"{len(boxes)},{len(names)}",
        *extremes[: len(boxes)],
        "",
        f"{len(boxes)},{len(names)}",
        *extremes[len(boxes) :],
    ]
    (folder / "Level_0" / "Cell_H").write_text("\n".join(header) + "\n", encoding="utf-8")
    width = [1.0 / nx, 1.0 / ny, 1.0 / nz]
    edges = [f"{a[d] * width[d]!r} {(b[d] + 1) * width[d]!r}" for a, b in boxes for d in range(3)]
    plot = [
        "HyperCLaw-V1.1",
        str(len(names)),
        *names,
        "3",
        repr(time),
        "0",
        "0.0 0.0 0.0",
        "1.0 1.0 1.0",
        "",
        f"((0,0,0) ({nx - 1},{ny - 1},{nz - 1}) (0,0,0))",
        "0",
        " ".join(map(repr, width)),
        "0",
        "0",
        f"0 {len(boxes)} {time!r}",
        "0",
        *edges,
        "Level_0/Cell",
    ]
    (folder / "Header").write_text("\n".join(plot) + "\n", encoding="utf-8")


def amrex(folder: Path, rng: Rng) -> LayoutFiles:
    """AMReX plotfiles of one level in two boxes."""
    rho = rng.standard_normal((ROWS, 4, 6, 8))
    for k in range(ROWS):
        fields = np.stack([rho[k], rho[k] + 1])
        _plotfile(folder / f"plt{10 * k:05d}", 0.1 * k, ["density", "Temp"], fields)
    return LayoutFiles(folder, {"density": [rho], "Temp": [rho + 1]})


_ENZO = """InitialCycleNumber  = {cycle}
InitialTime         = {time!r}
CurrentTimeIdentifier = 1700000000
TopGridRank         = 3
TopGridDimensions   = {nx} {ny} {nz}
DomainLeftEdge      = 0 0 0
DomainRightEdge     = 1 1 1
LeftFaceBoundaryCondition  = 3 3 3
RightFaceBoundaryCondition = 3 3 3
RefineBy            = 2
HydroMethod         = 0
DualEnergyFormalism = 0
Gamma               = 1.4
ComovingCoordinates = 0
NumberOfParticles   = 0
StaticHierarchy     = 1
NumberOfBaryonFields = 1
VersionNumber       = 2.6
MultiSpecies        = 0
Unigrid             = 1
DataLabel[0]        = Density
LengthUnits         = 1
TimeUnits           = 1
DensityUnits        = 1
"""
_ENZO_GRID = """
Grid = 1
Task = 0
GridRank          = 3
GridDimension     = {mx} {my} {mz}
GridStartIndex    = 3 3 3
GridEndIndex      = {ex} {ey} {ez}
GridLeftEdge      = 0 0 0
GridRightEdge     = 1 1 1
Time              = {time!r}
SubgridsAreStatic = 0
NumberOfBaryonFields = 1
FieldType = 0
BaryonFileName    = {name}.cpu0000
CourantSafetyNumber    = 0.5
PPMFlatteningParameter = 0
PPMDiffusionParameter  = 0
PPMSteepeningParameter = 0
NumberOfParticles   = 0
GravityBoundaryType = 0
Pointer: Grid[1]->NextGridThisLevel = 0
Pointer: Grid[1]->NextGridNextLevel = 0
"""


def enzo(folder: Path, rng: Rng) -> LayoutFiles:
    """Enzo on a single grid: parameters, hierarchy and fields in a folder for each output."""
    nz, ny, nx = 4, 6, 8
    rho = 2 + rng.random((ROWS, nz, ny, nx))
    for k in range(ROWS):
        name = f"DD{k:04d}"
        (folder / name).mkdir()
        path = folder / name / name
        grid = dict(zip(("mx", "my", "mz"), (nx + 6, ny + 6, nz + 6), strict=True))
        ends = dict(zip(("ex", "ey", "ez"), (nx + 2, ny + 2, nz + 2), strict=True))
        text = _ENZO.format(cycle=k, time=0.1 * k, nx=nx, ny=ny, nz=nz)
        path.write_text(text, encoding="utf-8")
        about = _ENZO_GRID.format(**grid, **ends, time=0.1 * k, name=name)
        path.with_name(f"{name}.hierarchy").write_text(about, encoding="utf-8")
        path.with_name(f"{name}.boundary").write_text("", encoding="utf-8")
        with h5py.File(path.with_name(f"{name}.cpu0000"), "w") as file:
            file["Grid00000001/Density"] = rho[k]
    return LayoutFiles(folder, {"Density": [rho]})


def nek5000(folder: Path, rng: Rng) -> LayoutFiles:
    """Nek5000: elements that fill a box, in another order in each file; positions in the first."""
    from pymech.core import HexaData
    from pymech.neksuite import writenek

    order, elements = 4, (2, 3, 2)
    rho = rng.standard_normal((ROWS, *(n * (order - 1) + 1 for n in elements)))
    nodes = 0.5 - 0.5 * np.cos(np.pi * np.arange(order) / (order - 1))
    places = list(np.ndindex(elements))
    for k in range(ROWS):
        data = HexaData(3, len(places), (order,) * 3, (0 if k else 3, 0, 0, 1, 0))
        data.time, data.istep, data.wdsz, data.endian = 0.1 * k, k, 8, "little"
        data.elmap = 1 + rng.permutation(len(places)).astype("i4")
        for element, place in zip(data.elem, places, strict=True):
            # Neighbours share the points between them.
            part = tuple(slice(n * (order - 1), (n + 1) * (order - 1) + 1) for n in place)
            element.temp[0] = rho[k][part]
            if not k:
                corners = np.meshgrid(*(n + nodes for n in place), indexing="ij")
                element.pos[:] = corners[::-1]
        writenek(str(folder / f"box0.f{k:05d}"), data)
    return LayoutFiles(folder, {"temperature": [rho]})


LAYOUTS_OF_PACKAGES: dict[str, tuple[Write, tuple[str, ...]]] = {
    "jhtdb": (jhtdb, ()),
    "kerchunk": (kerchunk, ("zarr", "fsspec")),
    "icechunk": (icechunk, ("zarr", "icechunk")),
    "vtk_series": (vtk_series, ("meshio",)),
    "openfoam_vtk": (openfoam_vtk, ("meshio",)),
    "openfoam_mesh": (openfoam_mesh, ("meshio",)),
    "grib": (grib, ("cfgrib", "eccodes")),
    "amrex": (amrex, ("yt",)),
    "enzo": (enzo, ("yt",)),
    "nek5000": (nek5000, ("pymech",)),
}
"""Each layout with the packages that reading or writing it takes."""


def installed() -> dict[str, Write]:
    """Return the layouts whose packages are installed."""
    return {
        name: write
        for name, (write, packages) in LAYOUTS_OF_PACKAGES.items()
        if all(importlib.util.find_spec(package) for package in packages)
    }
