"""Transfer of an emulator to another box or resolution, if its layers allow it.

Convolutions depend on the cell width: they apply to a longer or shorter box of equal cells.
Spectral layers depend on the length of the box: they apply to finer or coarser cells in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.emulation.climatology import cells_later
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.ensemble import AnyEmulator, build_any, members_of
from scitoolkit.emulation.models.spectral import modes_per_dim
from scitoolkit.emulation.normalized_network import MEASURED
from scitoolkit.emulation.variables import CellAreas, Layout, Variable, cell_widths
from scitoolkit.io.campaign import Campaign
from scitoolkit.io.campaign.places import widths_of_cells
from scitoolkit.io.campaign.sphere_cells import require_equal_areas
from scitoolkit.io.roles import role_by_name

log = get_logger(__name__)
_SAME = 1e-3
_OTHER_SIZE, _OTHER_UNIT = 0.1, 100.0
"""Relative difference of sizes of cells that is told; ratio above which areas have other units."""


@dataclass(frozen=True)
class _Change:
    """A dim whose cells differ from those in training.

    Attributes:
        dim: its name.
        cells: numbers of cells (in training, in the file).
        widths: mean widths of the cells, in training the nearest one; None without coordinates.
        even: whether both grids are evenly spaced.
        starts: first coordinates (in training, in the file).
    """

    dim: str
    cells: tuple[int, int]
    widths: tuple[float, float] | None
    even: bool
    starts: tuple[float, float] = (0.0, 0.0)

    @property
    def same_width(self) -> bool:
        return self.widths is None or _equal(self.widths[1], self.widths[0])

    def as_known(self) -> _Change:
        """Return the change for a network that knows the width of the cells."""
        return replace(self, widths=self.widths and (self.widths[1], self.widths[1]))

    @property
    def lengths(self) -> tuple[float, float]:
        widths = self.widths or (1.0, 1.0)
        return self.cells[0] * widths[0], self.cells[1] * widths[1]

    @property
    def same_length(self) -> bool:
        before, here = self.lengths
        return abs(here / before - 1) < _SAME

    def __str__(self) -> str:
        text = f"{self.dim}: {self.cells[1]} cells for {self.cells[0]}"
        if self.widths is None:
            return text
        text = f"{text}, {self.widths[1]:.4g} wide for {self.widths[0]:.4g}"
        before, here = self.starts
        return text if before == here else f"{text}, from {here:.6g} on for {before:.6g}"


def on_grid(
    emulator: AnyEmulator, config: EmulationConfig, layout: Layout, where: str = ""
) -> AnyEmulator:
    """Return the emulator with the same weights on the grid of a file.

    Args:
        emulator: trained on `emulator.layout`.
        config: its job.
        layout: the layout of the file.
        where: file to name in messages.

    Raises:
        DataError: a layer, guard or setting that is tied to the grid of the training.
        ConfigError: a guard that does not support the grid.
    """
    trained = emulator.layout
    _warn_of_areas(trained, layout, where)
    changes = [
        c for c in _changes(trained, layout) if not _same_circle(c.dim, layout, config, trained)
    ]
    if not changes:
        return emulator
    problems = [p for change in changes for p in _problems(change, config, list(trained.grid))]
    cut = [c.dim for c in changes if _later(c.dim, layout, trained)]
    problems += [
        f"{dim}: the same circle from another meridian, whose ends the network treats as edges: "
        f"ds.assign_coords({dim}=(ds.{dim} - {start:g}) % 360 + {start:g}).sortby({dim!r})"
        for dim in cut
        for start in trained.coordinates[dim][:1]
        if config.boundary.get(dim) != "circular"
    ]
    if trained.mask:
        problems.append("data.mask: the mask belongs to the cells of the training")
    if problems:
        raise DataError(
            f"another grid than the emulator learned on ({'; '.join(map(str, changes))}): "
            + "; ".join(dict.fromkeys(problems)),
            where=where,
            allowed=str(trained.grid),
            fix="interpolate to the grid of the training data, or train on both grids' data",
        )
    for change in changes:
        if change.cells[0] == change.cells[1] and change.same_width and trained.cell_widths:
            continue
        log.warning(
            "%s: the grid differs from that of the training (%s); the layers allow it, but the "
            "error is unknown until it is evaluated on such data",
            where,
            change,
        )
    return same_weights_on(emulator, config, layout)


def _warn_of_areas(trained: Layout, layout: Layout, where: str) -> None:
    """Warn of curvilinear cells of another size, which no coordinate of a dim shows."""
    sizes = [
        float(np.sqrt(np.mean(areas.values)))
        for areas in (trained.areas, layout.areas)
        if areas is not None and len(areas.dims) == 2
    ]
    ratio = sizes[1] / sizes[0] if len(sizes) == 2 else 1.0
    if abs(ratio - 1) > _OTHER_SIZE and 1 / _OTHER_UNIT < ratio < _OTHER_UNIT:
        log.warning(
            "%s: the cells are %.3g times as wide as those of the training; the layers allow it, "
            "but the error is unknown until it is evaluated on such data",
            where,
            ratio,
        )


def same_weights_on(emulator: AnyEmulator, config: EmulationConfig, cells: Layout) -> AnyEmulator:
    """Return an emulator with the same weights on other cells, whether or not they suit them."""
    layout = on_cells(emulator.layout, cells.grid, cells.coordinates, cells.areas)
    moved = build_any(config, layout)
    for old, new in zip(members_of(emulator), members_of(moved), strict=True):
        # Weights and measured normalisation alone: other buffers follow from the cells, and those
        # of the new grid have to stay.
        copied = {n for n, _ in old.named_parameters()}
        copied |= {n for n, _ in old.named_buffers() if n.rpartition(".")[2] in MEASURED}
        state = {n: t for n, t in old.state_dict().items() if n in copied}
        new.load_state_dict(state, strict=False)
    return moved.eval()


def checked_widths(
    config: EmulationConfig, campaign: Campaign, layout: Layout
) -> dict[str, np.ndarray]:
    """Return {dim: mean width of the cells of each simulation} of dims along which they differ.

    A network knows the width of the cells only from a parameter of the simulations, such as the
    length of the box.

    Raises:
        DataError: simulations that differ in their latitudes, in the width of their cells, with
            which no parameter increases or decreases, or in positions that are inputs of the
            network.
    """
    if layout.areas is not None:
        require_equal_areas(campaign)
    count = campaign.index.num_simulations
    widths = {
        d: np.full(count, cell_widths(np.asarray(x)).mean()) for d, x in layout.coordinates.items()
    }
    for simulation, grid in campaign.other_grids():
        coordinates = {d: grid[d][1].tolist() for d in layout.coordinates if d in grid}
        for change in _changes(layout, on_cells(layout, layout.grid, coordinates)):
            if problems := list(_problems(change.as_known(), config, list(layout.grid))):
                raise _other_cells(campaign, simulation, f"{change}; {'; '.join(problems)}")
            if change.widths is not None:
                widths[change.dim][simulation] = change.widths[1]
    curvilinear = widths_of_cells(campaign.segments, campaign.channels.values())
    widths |= {d: w for d, w in curvilinear.items() if d in layout.grid and d not in widths}
    varied = {d: w for d, w in widths.items() if not _equal(w.min(), w.max())}
    for dim, width in varied.items():
        if not any(_determines(values, width) for values in campaign.parameters.values()):
            worst = int(np.abs(width - width[0]).argmax())
            what = f"{dim}: {width[worst]:.4g} wide for {width[0]:.4g}"
            raise _other_cells(campaign, worst, what)
    return varied


def _determines(parameter: np.ndarray, width: np.ndarray) -> bool:
    """Return whether the width increases, or decreases, with the parameter."""
    order = np.argsort(parameter, kind="stable")
    steps, rises = np.diff(width[order]), np.diff(parameter[order])
    # Rounding of coordinates must not make a constant width rise and fall.
    steps[np.abs(steps) <= _SAME * width.max()] = 0
    return not steps[rises == 0].any() and bool((steps >= 0).all() or (steps <= 0).all())


def _other_cells(campaign: Campaign, simulation: int, what: str) -> DataError:
    return DataError(
        f"cells differ from those of simulation {campaign.labels[0]} ({what})",
        where=f"simulation {campaign.labels[simulation]}",
        allowed="the same cells in all simulations, or one of data.parameters that increases or "
        "decreases with their width",
        fix="interpolate to one grid, train an emulator for each, or add the size of the box to "
        "data.parameters",
    )


def _equal(a: float, b: float) -> bool:
    return abs(a - b) <= _SAME * abs(b)


def on_cells(
    layout: Layout,
    grid: Mapping[str, int],
    coordinates: Mapping[str, list[float]],
    areas: CellAreas | None = None,
) -> Layout:
    """Return a layout with its fields on other cells."""
    return replace(
        layout,
        grid=dict(grid),
        coordinates=dict(coordinates),
        areas=areas,
        inputs=tuple(_on(v, grid) for v in layout.inputs),
        outputs=tuple(_on(v, grid) for v in layout.outputs),
    )


def _on(variable: Variable, grid: Mapping[str, int]) -> Variable:
    if not variable.is_field:
        return variable
    return replace(variable, shape=tuple(grid[d] for d in variable.dims))


def _modes_of(cells: int, circular: bool) -> int:
    """Return the number of modes that a grid holds, the constant included."""
    return (cells + 1) // 2 if circular else cells


def _changes(trained: Layout, actual: Layout) -> Iterator[_Change]:
    for dim, cells in trained.grid.items():
        here = actual.grid[dim]
        old, new = trained.coordinates.get(dim), actual.coordinates.get(dim)
        if old is None or new is None:
            if here != cells:
                yield _Change(dim, (cells, here), None, old is None and new is None)
            continue
        first, second = np.asarray(old), np.asarray(new)
        # The origin counts: dependence on the position was learned at these positions.
        slack = 1e-4 * float(np.ptp(first))
        if here == cells and np.allclose(first, second, rtol=1e-4, atol=slack):
            continue
        a, b = cell_widths(first), cell_widths(second)
        even = all(np.ptp(w) <= _SAME * w.mean() for w in (a, b))
        width = float(b.mean())
        # Trained on several widths: the nearest of them is compared, any width between has no
        # change.
        low, high = trained.cell_widths.get(dim, (float(a.mean()),) * 2)
        starts = (float(first[0]), float(second[0]))
        yield _Change(dim, (cells, here), (min(max(width, low), high), width), even, starts)


def _same_circle(dim: str, actual: Layout, config: EmulationConfig, trained: Layout) -> bool:
    """Return whether a longitude has the points of the training, counted from another meridian.

    A circle that begins elsewhere gives the same values, at the end of the rows for the front,
    unless the network knows the position.
    """
    old, new = (np.asarray(x.coordinates.get(dim, ()), np.float64) for x in (trained, actual))
    if role_by_name(dim) != "longitude" or not len(old) or old.shape != new.shape:
        return False
    turns = np.round((new[0] - old[0]) / 360)
    if np.allclose(new - 360 * turns, old, rtol=0, atol=1e-4 * float(np.ptp(old))):
        return True
    circular = config.boundary.get(dim) == "circular" and dim not in config.coordinates
    return circular and not trained.mask and _later(dim, actual, trained) is not None


def _later(dim: str, actual: Layout, trained: Layout) -> int | None:
    """Return by how many cells a longitude begins later on the training's circle, if it is one."""
    old, new = (np.asarray(x.coordinates.get(dim, ()), np.float64) for x in (trained, actual))
    if role_by_name(dim) != "longitude" or not len(old) or old.shape != new.shape:
        return None
    return cells_later(old, new)


def _problems(change: _Change, config: EmulationConfig, dims: Sequence[str]) -> Iterator[str]:
    """Yield the reasons against a change of one dim, one of all `dims` of the grid."""
    dim = change.dim
    before, here = change.lengths
    if not change.even:
        yield f"{dim}: points that are not even, or without coordinates, cannot be compared"
    if dim in config.coordinates:
        yield f"coordinates: the position along {dim} is an input of the network"
    if (config.transport or {}).get(dim) and not change.same_width:
        yield "transport: displacements are counted in cells"
    models = {"model": config.model}
    determined = {n for guard in config.guards for n in guard.determined()}
    if config.diagnostic is not None and not set(config.diagnostic.outputs) <= determined:
        models["diagnostic.model"] = config.diagnostic.model
    for key, model in models.items():
        name = f"{key} {model.name}"
        if model.tied_to_cells and change.widths is not None and not change.same_width:
            width = f"{change.widths[0]:.4g}, not {change.widths[1]:.4g}"
            yield f"{name}: its convolutions were trained on points {width} apart"
        if model.tied_to_box and not change.same_length:
            yield f"{name}: its modes are those of a box of length {before:.4g}, not {here:.4g}"
        if modes := getattr(model, "modes", None):
            wanted = modes_per_dim(modes, len(dims))[dims.index(dim)]
            circular = config.boundary.get(dim) == "circular"
            learned, used = (min(wanted, _modes_of(n, circular)) for n in change.cells)
            if used > learned:
                yield (
                    f"{name}: of its {wanted} modes along {dim}, the {change.cells[0]} cells of "
                    f"the training hold {learned}, so that {used - learned} were never trained; "
                    f"train with {key}.modes: [{learned}]"
                )
        whole = model.whole_cells()
        if change.cells[0] % whole == 0 and change.cells[1] % whole:
            yield f"{name}: multiples of {whole} cells, as in training, halve evenly"
