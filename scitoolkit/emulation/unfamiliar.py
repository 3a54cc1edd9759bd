"""Fields of a file against the normalisation of an emulator."""

from __future__ import annotations

import numpy as np

from scitoolkit.emulation.data import Data
from scitoolkit.emulation.ensemble import AnyEmulator, members_of
from scitoolkit.io.familiar import warn_if_far


def warn_if_unfamiliar(emulator: AnyEmulator, data: Data, sample: int) -> None:
    """Warn of fields of a sample that are far from those of the training.

    Args:
        emulator: as trained, on any grid.
        data: with the inputs in the units of the training.
        sample: number of the sample.
    """
    part, layout = members_of(emulator)[0].advance, data.layout
    sizes = [v.size for v in part.layout.inputs]
    frame = layout.blank(data.frame(sample))
    present = frame[layout.mask_of_step] > 0.5 if layout.mask_of_step else np.asarray(True)
    values, trained = {}, {}
    for variable, mean, scale in zip(
        part.layout.inputs, part.mean.split(sizes), part.scale.split(sizes), strict=True
    ):
        if variable.is_field and variable.stored and not variable.age:
            values[variable.name] = np.where(present, frame[variable.name], np.nan)
            trained[variable.name] = float(mean), float(scale)
    warn_if_far(values, trained, data.where)
