"""Errors of a potential on labelled configurations: metrics, tables and figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scitoolkit.core.contracts import Batch
from scitoolkit.core.devices import apply
from scitoolkit.core.errors import DataError
from scitoolkit.core.results import Bars, Figure, Lines, Multiples, Results, Series, Table, Verdict
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.pair_potential import PairPotential
from scitoolkit.potentials.prediction import finite_arrays
from scitoolkit.reporting.parity import parity
from scitoolkit.surrogate.sections import weakest

MILLI = 1e3
BASELINES = {"pair potential": "pair_potential", "zero force": "zero_force"}


@dataclass
class Collected:
    """Labels and predictions of all configurations, in eV and Å.

    Attributes:
        atoms: number of atoms of each configuration.
        energy: (label, prediction, number of atoms), of configurations with an energy.
        forces: (2, N, 3) labels and predictions.
        virial: (2, 3, 3) labels and predictions per atom.
        types: (N,) types of the atoms that have forces.
        baseline_energy: energies of the pair potential and of the elements' means, as `energy`.
        baseline_forces: (N, 3) forces of the pair potential, as `forces`.
        energy_of: number of the configuration of each energy.
        forces_of: the same of each array of forces.
    """

    atoms: list[int] = field(default_factory=list)
    energy: list[tuple[float, float, int]] = field(default_factory=list)
    forces: list[np.ndarray] = field(default_factory=list)
    virial: list[np.ndarray] = field(default_factory=list)
    types: list[np.ndarray] = field(default_factory=list)
    baseline_energy: list[tuple[float, float]] = field(default_factory=list)
    baseline_forces: list[np.ndarray] = field(default_factory=list)
    energy_of: list[int] = field(default_factory=list)
    forces_of: list[int] = field(default_factory=list)


def collect(
    model: Potential, graphs: Iterable[Batch], baseline: PairPotential | None = None
) -> Collected:
    """Apply the model, and the baseline if given, to labelled configurations one by one."""
    out = Collected()
    model.eval()
    for graph in graphs:
        predicted = finite_arrays(apply(model, graph), f"configuration {len(out.atoms)}")
        out.atoms.append(int(graph["num_atoms"][0]))
        if "energy" in graph:
            energies = float(graph["energy"][0]), float(predicted["energy"][0])
            out.energy.append((*energies, out.atoms[-1]))
            out.energy_of.append(len(out.atoms) - 1)
        if "forces" in graph:
            out.forces.append(np.stack([graph["forces"].numpy(), predicted["forces"]]))
            out.types.append(graph["types"].numpy())
            out.forces_of.append(len(out.atoms) - 1)
        if "virial" in graph:
            pair = np.stack([graph["virial"][0].numpy(), predicted["virial"][0]])
            out.virial.append(pair / out.atoms[-1])
        if baseline is not None:
            energy, forces = baseline.predict(graph)
            if "energy" in graph:
                out.baseline_energy.append((energy, baseline.mean_energy(graph)))
            if "forces" in graph:
                out.baseline_forces.append(forces)
    return out


def results(
    model: Potential,
    graphs: Iterable[Batch],
    title: str,
    note: str = "",
    baseline: PairPotential | None = None,
    config_types: Sequence[str] = (),
) -> Results:
    """Return metrics, tables and figures of the errors on labelled graphs.

    Args:
        model: the potential.
        graphs: batches of one configuration each.
        title: of the results.
        note: sentence to add to the summary.
        baseline: pair potential to compare with; None for a model without one.
        config_types: of the configurations, known once `graphs` was iterated.

    Raises:
        DataError: no configuration has a label.
    """
    samples = collect(model, graphs, baseline)
    if not samples.energy and not samples.forces:
        raise DataError("no configuration has an energy or forces", fix="data.labels")
    metrics: dict[str, Any] = {"configurations": len(samples.atoms), "atoms": sum(samples.atoms)}
    units: dict[str, str] = {}

    def add(name: str, error: np.ndarray, unit: str) -> None:
        metrics[f"{name}_rmse"] = float(np.sqrt((error**2).mean())) * MILLI
        metrics[f"{name}_mae"] = float(np.abs(error).mean()) * MILLI
        units[f"{name}_rmse"] = units[f"{name}_mae"] = unit

    tables: list[Table] = []
    figures: list[Figure] = []
    panels: list[Lines] = []
    by_element: dict[str, float] = {}
    if samples.energy:
        energy, atoms = np.array(samples.energy)[:, :2], np.array([e[2] for e in samples.energy])
        error = energy[:, 1] - energy[:, 0]
        add("energy", error, "meV")
        add("energy_per_atom", error / atoms, "meV/atom")
        if len(error) > 1:
            add("energy_shifted", error - error.mean(), "meV")
        panels.append(_energy_parity(energy / atoms[:, None]))
    if samples.forces:
        forces = np.concatenate(samples.forces, axis=1)
        add("force", forces[1] - forces[0], "meV/Å")
        by_element, table = _by_element(model, samples, forces)
        metrics.update(by_element)
        units.update(dict.fromkeys(by_element, "meV/Å"))
        tables.append(table)
        panels.insert(0, _force_parity(model, samples, forces))
        figures += [_element_bars(by_element), _by_size(forces)]
    if samples.virial:
        virial = np.stack(samples.virial)
        add("virial_per_atom", virial[:, 1] - virial[:, 0], "meV/atom")
    tables.insert(0, _table(metrics, units))
    if any(config_types):
        tables.append(_by_config_type(samples, config_types))
    if baseline is not None:
        by_method, table = _baselines(model, samples)
        metrics.update(by_method)
        units.update({name: units[name.partition("_of_")[0]] for name in by_method})
        tables.append(table)
    figures.insert(0, Multiples(title="Predicted against reference", panels=panels))
    return Results(
        title=title,
        verdict=_verdict(metrics),
        metrics=metrics,
        summary=[
            *_summary(metrics),
            *weakest("Force RMSE by element", _elements(by_element), "meV/Å"),
            *([note] if note else []),
        ],
        units=units,
        tables=tables,
        figures=figures,
    )


def _verdict(metrics: dict[str, Any]) -> Verdict | None:
    """Return the verdict on energies if the elements' means are better, else on forces."""
    energy, mean = (metrics.get(f"energy_per_atom_rmse{end}") for end in ("", "_of_zero_force"))
    if energy is not None and mean is not None and not energy <= mean:
        values = {"model": energy, "mean energy of each element": mean}
        return Verdict.among(values, "model", "energy RMSE", unit="meV/atom")
    if "force_rmse" not in metrics:
        return None
    values = {"model": metrics["force_rmse"]}
    values |= {name: metrics.get(f"force_rmse_of_{key}") for name, key in BASELINES.items()}
    return Verdict.among(values, "model", "force RMSE", unit="meV/Å")


def _summary(metrics: dict[str, Any]) -> list[str]:
    parts = []
    if "energy_per_atom_rmse" in metrics:
        parts.append(f"energy RMSE {metrics['energy_per_atom_rmse']:.3g} meV/atom")
    if "force_rmse" in metrics:
        parts.append(f"force RMSE {metrics['force_rmse']:.3g} meV/Å")
    return [
        f"{metrics['configurations']} configurations, {metrics['atoms']} atoms in all: "
        f"{', '.join(parts)}."
    ]


def _table(metrics: dict[str, Any], units: dict[str, str]) -> Table:
    names = [n.removesuffix("_rmse") for n in units if n.endswith("_rmse") and "_of_" not in n]
    rows: list[list[float | int | str | None]] = [
        [
            name.replace("_", " "),
            units[f"{name}_rmse"],
            metrics[f"{name}_rmse"],
            metrics[f"{name}_mae"],
        ]
        for name in names
    ]
    note = "Energy shifted: errors after their mean is subtracted." if len(names) > 3 else ""
    return Table(title="Errors", columns=["quantity", "unit", "RMSE", "MAE"], rows=rows, note=note)


def _by_config_type(found: Collected, config_types: Sequence[str]) -> Table:
    """Return the errors on the configurations of each type."""
    rows: list[list[float | int | str | None]] = []
    for name in sorted(set(config_types)):
        energy = [
            (predicted - label) / atoms
            for (label, predicted, atoms), number in zip(found.energy, found.energy_of, strict=True)
            if config_types[number] == name
        ]
        forces = [
            (pair[1] - pair[0]).ravel()
            for pair, number in zip(found.forces, found.forces_of, strict=True)
            if config_types[number] == name
        ]
        errors = [energy, np.concatenate(forces) if forces else []]
        rmse = [float(np.sqrt(np.mean(np.square(e)))) * MILLI if len(e) else None for e in errors]
        rows.append([name or "(none)", list(config_types).count(name), *rmse])
    columns = ["config_type", "configurations", "energy [meV/atom]", "force [meV/Å]"]
    return Table(title="RMSE by config_type", columns=columns, rows=rows)


def _by_element(
    model: Potential, found: Collected, forces: np.ndarray
) -> tuple[dict[str, float], Table]:
    types = np.concatenate(found.types)
    metrics, rows = {}, []
    for number, name in enumerate(model.type_map):
        chosen = types == number
        if not chosen.any():
            continue
        error = (forces[1] - forces[0])[chosen]
        rmse = float(np.sqrt((error**2).mean())) * MILLI
        spread = float(np.sqrt((forces[0][chosen] ** 2).mean())) * MILLI
        metrics[f"force_rmse_of_{name}"] = rmse
        rows.append([name, int(chosen.sum()), rmse, float(np.abs(error).mean()) * MILLI, spread])
    columns = ["element", "atoms", "RMSE [meV/Å]", "MAE [meV/Å]", "RMS force [meV/Å]"]
    return metrics, Table(title="Forces by element", columns=columns, rows=rows)  # type: ignore[arg-type]


def _baselines(model: Potential, found: Collected) -> tuple[dict[str, float], Table]:
    """Return the RMSE of the baselines, and a table of them and of the model."""
    metrics: dict[str, float] = {}
    rows: list[list[float | int | str | None]] = []

    def compare(quantity: str, unit: str, errors: Sequence[np.ndarray]) -> list[float]:
        values = [float(np.sqrt((error**2).mean())) * MILLI for error in errors]
        rows.append([quantity, unit, *values])
        return values[1:]

    def add(name: str, values: Sequence[float]) -> None:
        metrics.update(zip((f"{name}_of_{k}" for k in BASELINES.values()), values, strict=True))

    if found.energy:
        label, predicted, atoms = np.array(found.energy).T
        energies = np.column_stack([predicted, found.baseline_energy]).T
        errors = [(energy - label) / atoms for energy in energies]
        add("energy_per_atom_rmse", compare("energy per atom", "meV/atom", errors))
    if found.forces:
        label, predicted = np.concatenate(found.forces, axis=1)
        pair = np.concatenate(found.baseline_forces)
        types = np.concatenate(found.types)
        errors = [predicted - label, pair - label, label]
        add("force_rmse", compare("force", "meV/Å", errors))
        for number, name in enumerate(model.type_map):
            if (types == number).any():
                compare(f"force on {name}", "meV/Å", [e[types == number] for e in errors])
    columns = ["quantity", "unit", "model", *BASELINES]
    note = (
        "Pair potential: fitted to the training frames by linear least squares. "
        "Zero force: the mean energy of each element."
    )
    return metrics, Table(title="RMSE against baselines", columns=columns, rows=rows, note=note)


def _elements(by_element: Mapping[str, float]) -> dict[str, float]:
    """Return the force RMSE of each element, named by its symbol."""
    return {name.removeprefix("force_rmse_of_"): error for name, error in by_element.items()}


def _element_bars(by_element: dict[str, float]) -> Bars:
    errors = _elements(by_element)
    return Bars(
        title="Force error by element",
        labels=list(errors),
        values=list(errors.values()),
        x_label="force RMSE [meV/Å]",
    )


def _energy_parity(pairs: np.ndarray) -> Lines:
    """Return a parity plot of (n, 2) energies per atom, relative to the mean reference."""
    return parity(
        "Energy relative to the mean",
        MILLI * (pairs - pairs[:, 0].mean()),
        "meV/atom",
        {"configurations": np.arange(len(pairs))},
        role="baseline",
    )


def _force_parity(model: Potential, found: Collected, forces: np.ndarray) -> Lines:
    """Return a parity plot of force components, one colour for each element."""
    types = np.repeat(np.concatenate(found.types), 3)
    chosen = {name: np.flatnonzero(types == i) for i, name in enumerate(model.type_map)}
    groups = {name: places for name, places in chosen.items() if len(places)}
    return parity("Force components", forces.reshape(2, -1).T, "eV/Å", groups)


def _by_size(forces: np.ndarray) -> Lines:
    """Return the force error against the reference force, in ten groups of equally many atoms."""
    size = np.linalg.norm(forces[0], axis=1)
    error = ((forces[1] - forces[0]) ** 2).mean(axis=1)
    groups = np.array_split(np.argsort(size), min(10, len(size)))
    rmse: list[float | None] = [float(np.sqrt(error[g].mean())) * MILLI for g in groups]
    return Lines(
        title="Force error against the magnitude of the force",
        x=[float(size[g].mean()) for g in groups],
        x_label="|reference force| [eV/Å]",
        y_label="RMSE of a component [meV/Å]",
        series=[Series(label="forces", y=rmse)],
    )
