"""Configurations of `ase.Atoms`: labels by name, weights, parameters of frames and atoms."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.atoms import Array, Configuration, LabelConfig, MissingLabel

_WEIGHT = re.compile("config_(|energy_|forces_|stress_|virials_)weight")


def from_ase(
    atoms: Any,
    labels: LabelConfig | None = None,
    where: str = "atoms",
    elsewhere: Collection[str] = (),
) -> Configuration:
    """Return the configuration of an `ase.Atoms`.

    Args:
        atoms: the system.
        labels: names of its labels, in `info`, `arrays` or a calculator; None for no labels.
        where: of the frame, for messages.
        elsewhere: names of labels that other frames have, and this one may lack.

    Raises:
        DataError: energy or forces exist, but under other names than in `labels`; a label that is
            no number; a ghost atom.
    """
    ghosts = np.flatnonzero(atoms.numbers == 0)
    if len(ghosts):
        raise DataError(
            f"atom {ghosts[0]} is a ghost atom, species X",
            where=where,
            allowed="elements",
            fix="remove ghost atoms",
        )
    energy, forces, virial = (
        (None,) * 3 if labels is None else _labels_of(atoms, labels, where, elsewhere)
    )
    return Configuration(
        np.array(atoms.get_chemical_symbols()),
        np.array(atoms.positions, dtype=np.float64),
        np.array(atoms.cell.array, dtype=np.float64),
        np.array(atoms.pbc, dtype=bool),
        energy,
        forces,
        virial,
        where,
        *given_parameters(atoms),
        str(atoms.info.get("config_type", "")),
        (1.0, 1.0, 1.0) if labels is None else _weights(atoms, where),
        frozenset() if labels is None else _unread(atoms),
        None if labels is None else _free_energy(atoms, labels),
    )


def _free_energy(atoms: Any, labels: LabelConfig) -> float | None:
    """Return the free energy of the electrons beside an energy under its default name."""
    if "energy_key" in labels.model_fields_set or atoms.calc is None:
        return None
    value = atoms.calc.results.get("free_energy")
    return float(value) if _is_numeric(value) and np.ndim(value) == 0 else None


_ELECTRONIC = re.compile(
    "(?i:(.+_)?(charges?|mag(netic_)?mom(ent)?s?|spins?|(spin_)?multiplicity|dipoles?|"
    "(electric|magnetic|external)_field|efield))"
)


def _unread(atoms: Any) -> frozenset[str]:
    """Return the names of charges, moments and fields of an `ase.Atoms` that are not zero."""
    results = {} if atoms.calc is None else atoms.calc.results
    values = {**results, **atoms.arrays, **atoms.info}
    named = {name for name in values if _ELECTRONIC.fullmatch(name)}
    return frozenset(n for n in named if _is_numeric(values[n]) and np.any(values[n]))


def _weights(atoms: Any, where: str) -> tuple[float, float, float]:
    """Return the weights of energy, forces and virial, by the names of mace-torch.

    Raises:
        DataError: a weight is negative or no number.
    """
    weights = dict.fromkeys(("", "energy_", "forces_", "stress_", "virials_"), 1.0)
    for name, value in atoms.info.items():
        named = _WEIGHT.fullmatch(name)
        if named is None:
            continue
        if not (_is_numeric(value) and np.ndim(value) == 0 and 0 <= value < np.inf):
            raise DataError(f"{name} is {value!r}", where=where, allowed="a number from 0")
        weights[named[1]] = float(value)
    # mace-torch weighs stress and virial in separate losses; here they are one label.
    whole = weights[""]
    return (
        whole * weights["energy_"],
        whole * weights["forces_"],
        whole * weights["stress_"] * weights["virials_"],
    )


def _labels_of(
    atoms: Any, labels: LabelConfig, where: str, elsewhere: Collection[str]
) -> tuple[float | None, Array | None, Array | None]:
    """Return energy, forces and virial; `elsewhere` are names that only other frames have."""
    _refuse_other_quantities(labels, where)
    held = dict(atoms.calc.results) if atoms.calc is not None else {}
    # A value under the name that was asked for is no other label, of whatever kind it is.
    scalars = {
        k: v
        for k, v in atoms.info.items()
        if k == labels.energy_key
        or (np.isscalar(v) and not isinstance(v, str) and not _WEIGHT.fullmatch(k))
    }
    energy = _found(held, scalars, labels.energy_key, "energy", where, elsewhere)
    _refuse_rivals(energy, scalars, labels, "energy_key", where)
    columns = {
        k: v
        for k, v in atoms.arrays.items()
        if k == labels.forces_key or (np.shape(v)[1:] == (3,) and k not in ("positions", "momenta"))
    }
    # Files of isolated atoms often leave out their forces, which are zero.
    absent = {*elsewhere, labels.forces_key} if len(atoms) == 1 else elsewhere
    forces = _found(held, columns, labels.forces_key, "forces", where, absent)
    _refuse_rivals(forces, columns, labels, "forces_key", where)
    if forces is not None:
        _refuse_constrained(atoms, _real(forces, "forces", where), where)
    virial = _virial_of(atoms, held, labels, where, elsewhere)
    return (
        None if energy is None else float(_numbers(energy, 1, "energy", where)[0]),
        None if forces is None else _real(forces, "forces", where),
        virial,
    )


_OTHER_QUANTITIES = (
    ("energy_key", "per_?atom", "an energy per atom", "write the total energies"),
    ("forces_key", "grad", "a gradient, of the opposite sign", "write forces, -gradient"),
    ("virial_key", "stress", "a stress", "data.labels.stress_key={name}, and virial_key left out"),
    ("stress_key", "virial", "a virial", "data.labels.virial_key={name}, and stress_key left out"),
    ("stress_key", "bar|[gmk]pa", "another unit than energy per volume", "convert it"),
)
"""Parts of names of labels that tell another quantity: key, pattern, quantity, what to do."""


def _refuse_other_quantities(labels: LabelConfig, where: str) -> None:
    for key, pattern, quantity, fix in _OTHER_QUANTITIES:
        name = getattr(labels, key)
        if re.search(pattern, name.lower()):
            raise DataError(
                f"{key} names {quantity}: {name!r}", where=where, fix=fix.format(name=name)
            )


def _refuse_rivals(value: Any, others: dict, labels: LabelConfig, key: str, where: str) -> None:
    """Refuse a label under its default name beside another one that is called the reference.

    Programs keep their own predictions under the default names, beside `REF_energy` and others. A
    name that the configuration states is taken.
    """
    kind = key.partition("_")[0]
    if value is None or key in labels.model_fields_set:
        return
    for name, other in others.items():
        lower = name.lower()
        is_reference = re.search("(?<![a-z])ref", lower) and kind.rstrip("s") in lower
        if name == getattr(labels, key) or not is_reference:
            continue
        if not np.allclose(other, value, rtol=1e-6, atol=1e-6, equal_nan=True):
            raise DataError(
                f"{getattr(labels, key)} and {name} differ",
                where=where,
                fix=f"data.labels.{key}={name}, or ={getattr(labels, key)}",
            )


_PROJECTIONS = ("FixAtoms", "FixCartesian", "FixScaled", "FixedLine", "FixedPlane")
"""Constraints of ASE that remove components of forces, each atom by itself."""


def _refuse_constrained(atoms: Any, forces: Array, where: str) -> None:
    """Refuse forces whose components that constraints of ASE fix are all zero.

    `atoms.get_forces()` applies the constraints, so that these components are lost.
    """
    constraints = [c for c in atoms.constraints if type(c).__name__ in _PROJECTIONS]
    if not constraints or forces.shape != (len(atoms), 3) or not np.any(forces):
        return
    free = np.array(np.random.default_rng(0).standard_normal(forces.shape))
    random, projected = free.copy(), forces.copy()
    for constraint in constraints:
        constraint.adjust_forces(atoms, random)
        constraint.adjust_forces(atoms, projected)
    # Text has eight decimals.
    if np.any(random != free) and np.allclose(projected, forces, rtol=1e-12, atol=2e-8):
        number = int(np.any(random != free, axis=1).sum())
        raise DataError(
            f"the forces of all {number} fixed atoms are zero, as ASE's constraints make them",
            where=where,
            fix="write atoms.get_forces(apply_constraint=False); or atoms.set_constraint() before "
            "writing, if they are zero by symmetry",
        )


def _virial_of(
    atoms: Any, held: dict, labels: LabelConfig, where: str, elsewhere: Collection[str]
) -> Array | None:
    """Return the virial (3, 3) of a virial or a stress, None if the frame has neither.

    Raises:
        DataError: a configured name that the frame lacks, another name, or two that contradict.
    """
    # A stress is per volume: it is defined with a cell of nonzero volume that repeats.
    solid = bool(np.any(atoms.pbc)) and abs(np.linalg.det(atoms.cell.array)) > 0
    wanted = (labels.virial_key, labels.stress_key)
    tensors = {
        k: v
        for k, v in atoms.info.items()
        if k in wanted or (np.size(v) in (6, 9) and _is_numeric(v))
    }
    named = {k: v for k, v in held.items() if k in ("stress", "virial")}
    virial = _tensor(
        named | tensors,
        labels.virial_key,
        "virial",
        solid and labels.virial_key not in elsewhere,
        where,
    )
    stress = _tensor(
        named | tensors,
        labels.stress_key,
        "stress",
        solid and labels.stress_key not in elsewhere,
        where,
    )
    alike = {k: _tensor(tensors, k, k, False, where) for k in tensors}
    _refuse_rivals(stress, alike, labels, "stress_key", where)
    _refuse_rivals(virial, alike, labels, "virial_key", where)
    if stress is None or not solid:
        # Without a periodic cell there is no stress: programs write zeros for molecules.
        if stress is not None and atoms.cell.rank == 3 and stress.any():
            raise DataError(
                f"{labels.stress_key} of a frame without a periodic direction",
                where=where,
                fix='pbc="T T T" in the file, or the frame without its stress',
            )
        return virial
    from_stress = -atoms.get_volume() * stress
    if virial is None:
        return from_stress
    largest = np.abs(from_stress).max()
    # Files round both to a few digits; another sign, unit or volume is far outside of 1 %.
    if not bool((np.abs(virial - from_stress) <= 1e-2 * largest).all()):
        raise DataError(
            f"{labels.virial_key} and -volume * {labels.stress_key} differ "
            f"({virial[0, 0]:.6g} and {from_stress[0, 0]:.6g} for xx)",
            where=where,
            fix="remove the wrong one, or name the other: data.labels.virial_key=NAME",
        )
    return virial


def _is_numeric(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "iuf"


def _tensor(values: dict, key: str, kind: str, solid: bool, where: str) -> Array | None:
    """Return a symmetric tensor (3, 3) of six (Voigt) or nine numbers; None if there is none."""
    if key not in values:
        similar = [name for name in values if kind in name.lower()]
        if solid and (similar or key != kind):
            other = "stress" if kind == "virial" else "virial"
            raise MissingLabel(kind, key, [n for n in values if other not in n.lower()], where)
        return None
    numbers = _real(values[key], key, where)
    if numbers.size == 6:
        xx, yy, zz, yz, xz, xy = numbers.reshape(6)
        return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return _numbers(numbers, 9, key, where).reshape(3, 3)


def given_parameters(atoms: Any) -> tuple[Array | None, Array | None]:
    """Return `info["fparam"]` as (F,) and `arrays["aparam"]` as (N, A) of an `ase.Atoms`."""
    fparam, aparam = atoms.info.get("fparam"), atoms.arrays.get("aparam")
    return (
        None if fparam is None else np.array(fparam, dtype=np.float64).reshape(-1),
        None if aparam is None else np.array(aparam, dtype=np.float64).reshape(len(atoms), -1),
    )


def _numbers(value: Any, count: int, name: str, where: str) -> Array:
    """Return a flat float64 array of `count` numbers.

    Raises:
        DataError: the value is text, or has another size.
    """
    numbers = _real(value, name, where)
    if numbers.size != count:
        allowed = "a number" if count == 1 else f"{count} numbers"
        raise DataError(f"{name} is {value!r:.60}", where=where, allowed=allowed)
    return numbers.reshape(count)


def _real(value: Any, name: str, where: str) -> Array:
    """Return a float64 copy of real numbers.

    Raises:
        DataError: text, truth values, complex numbers or rows of different lengths.
    """
    try:
        numbers = np.asarray(value)
    except ValueError:
        numbers = np.array(None)
    if numbers.dtype.kind not in "fiu":
        raise DataError(f"{name} is {value!r:.60}", where=where, allowed="real numbers")
    return numbers.astype(np.float64)


def _found(
    held: dict, others: dict, key: str, kind: str, where: str, elsewhere: Collection[str]
) -> Any:
    """Return the label, or None if the frame has no label of this kind.

    Raises:
        MissingLabel: the frame has one under another name, or no frame has one.
        DataError: two labels of this name contradict each other.
    """
    if key in others and key in held and np.shape(others[key]) == np.shape(held[key]):
        if not np.allclose(others[key], held[key], rtol=1e-6, atol=1e-6, equal_nan=True):
            raise DataError(
                f"two values of {key}, in the frame and in its calculator, differ",
                where=where,
                fix="remove the wrong one",
            )
    if key in others:
        return others[key]
    if key in held:
        return held[key]
    named = [name for name in others if kind.rstrip("s") in name.lower()]
    if named or (key != kind and key not in elsewhere):
        raise MissingLabel(kind, key, [*others, *(k for k in held if k == kind)], where)
    return None
