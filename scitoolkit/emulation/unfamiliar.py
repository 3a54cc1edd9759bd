"""Fields of a file against the normalisation of an emulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from scitoolkit.emulation.data import Data
from scitoolkit.emulation.ensemble import members_of
from scitoolkit.io.familiar import UsualValues, refuse_marks, require_familiar
from scitoolkit.surrogate import Trained

_MARK = 999.0
"""Least size of marks that are looked for in outputs that are no inputs: their range is unknown."""


class FamiliarFields:
    """The fields of a training, with which frames of a file are compared.

    Args:
        trained: the emulator, whose inputs have known means and deviations.
        data: opened, with the inputs in the units of the training.
    """

    def __init__(self, trained: Trained, data: Data) -> None:
        part = members_of(trained.model)[0].advance
        layout = part.layout
        sizes = [v.size for v in layout.inputs]
        facts = trained.facts
        units = {} if facts is None else {v.name: v.units for v in facts.variables}
        self._data = data
        self._suspect: bool = trained.config.data.allow_suspect
        # Another file does not say where the mask of a step excludes its values.
        self._mask: str | None = layout.mask_of_step
        self._usual: dict[str, UsualValues | None] = {
            v.name: None for v in layout.outputs if v.is_field and v.stored
        }
        for variable, mean, scale in zip(
            layout.inputs, part.mean.split(sizes), part.scale.split(sizes), strict=True
        ):
            if variable.is_field and variable.stored and not variable.age:
                usual = UsualValues(float(mean), float(scale), units.get(variable.name, ""))
                self._usual[variable.name] = usual

    def _present(self, frame: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the values of fields that count, NaN elsewhere."""
        if self._mask and self._mask not in frame:
            return {}
        blank = self._data.layout.blank(frame)
        counted = blank[self._mask] > 0.5 if self._mask else np.asarray(True)
        return {n: np.where(counted, blank[n], np.nan) for n in self._usual if n in blank}

    def refuse_marks(self, frame: Mapping[str, np.ndarray], sample: int) -> None:
        """Refuse undeclared marks of missing values, as the training did.

        Raises:
            DataError: there are such values.
        """
        if self._suspect:
            return
        for name, values in self._present(frame).items():
            factor, offset = self._data.lines.get(name, (1.0, 0.0))
            stored = (values[np.isfinite(values)].astype(np.float64) - offset) / factor
            usual = self._usual[name]
            if usual is not None:
                mean, deviation = (usual.mean - offset) / factor, usual.deviation / abs(factor)
                usual = UsualValues(mean, deviation)
            where = f"{self._data.campaign.where(sample)}, variable {name}"
            refuse_marks(stored, where, _MARK if usual is None else 0.0, usual)

    def require(self, sample: int) -> None:
        """Refuse fields of a sample without a unit that are far from the training; tell others.

        Raises:
            DataError: such fields, or marks of missing values.
        """
        frame = self._data.frame(sample)
        self.refuse_marks(frame, sample)
        present = self._present(frame)
        usual = {n: u for n, u in self._usual.items() if u is not None and n in present}
        stated = {v.name: v.units for v in self._data.facts.variables}
        require_familiar(present, usual, stated, self._data.where)


def checked(trained: Trained, data: Data, sample: int | None = None) -> Data:
    """Return data whose frames are refused where they hold undeclared marks of missing values.

    Args:
        trained: the emulator, as trained, on any grid.
        data: with the inputs in the units of the training.
        sample: number of a sample that is compared with the training at once; see
            `FamiliarFields.require`.

    Raises:
        DataError: that sample is unlike the training.
    """
    fields = FamiliarFields(trained, data)
    if sample is not None:
        fields.require(sample)
    return replace(data, check=fields.refuse_marks)
