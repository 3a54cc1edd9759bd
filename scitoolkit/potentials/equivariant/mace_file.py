"""Sources of mace-torch weights: a converted file, a module or a state dict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from scitoolkit.core.errors import DataError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.potentials.consumed import load_tensors
from scitoolkit.potentials.equivariant.layers import ACTIVATIONS
from scitoolkit.potentials.peers.convert_mace import FORMAT, describe

CONVERT = "python -m scitoolkit.potentials.peers.convert_mace MACE.model mace.pt"
MODELS = ("MACE", "ScaleShiftMACE")
INTERACTIONS = {  # name: (residual, density)
    "RealAgnosticInteractionBlock": (False, False),
    "RealAgnosticResidualInteractionBlock": (True, False),
    "RealAgnosticDensityInteractionBlock": (False, True),
    "RealAgnosticDensityResidualInteractionBlock": (True, True),
}
READOUTS = ("LinearReadoutBlock", "NonLinearReadoutBlock")


@dataclass(frozen=True)
class MaceSettings:
    """Settings of a mace-torch model that a state dict does not contain; None if unknown.

    Attributes:
        average_neighbours: [avg_num_neighbors].
        gate: activation of the last readout, a name in `ACTIVATIONS` [gate].
        apply_cutoff: whether the cutoff multiplies the radial functions [apply_cutoff].
        interactions: interaction block of each layer, a name in `INTERACTIONS`.
        heads: names of the heads.
    """

    average_neighbours: float | None
    gate: str | None
    apply_cutoff: bool | None
    interactions: tuple[str, ...] | None = None
    heads: tuple[str, ...] | None = None

    def need(self, name: str, what: str) -> Any:
        """Return a setting.

        Args:
            name: attribute.
            what: description for the message.

        Raises:
            DataError: the setting is unknown.
        """
        value = getattr(self, name)
        if value is None:
            raise DataError(
                f"a state dict does not contain {what}",
                fix=f"{name}=..., or {CONVERT}, then read_mace('mace.pt')",
            )
        return value


def settings_of(described: Mapping[str, Any], where: str) -> MaceSettings:
    """Return the settings from the result of `convert_mace.describe`.

    Raises:
        DataError: a model, block or gate is not supported.
    """
    _known("model", described["model"], MODELS, where)
    for name in described["interactions"]:
        _known("interaction", name, tuple(INTERACTIONS), where)
    for name in described["readouts"]:
        _known("readout", name, READOUTS, where)
    if described["gate"] is not None:
        _known("gate", described["gate"], tuple(ACTIVATIONS), where)
    if described["use_so3"]:
        raise DataError("use_so3 is not supported", where=where)
    neighbours = set(described["average_neighbours"])
    if len(neighbours) != 1:
        raise DataError("layers with different avg_num_neighbors", where=where)
    return MaceSettings(
        neighbours.pop(),
        described["gate"] or "silu",
        described["apply_cutoff"],
        tuple(described["interactions"]),
        tuple(described["heads"]),
    )


def _known(kind: str, name: str, allowed: Sequence[str], where: str) -> None:
    if name not in allowed:
        raise DataError(
            f"{kind} {name} is not supported",
            where=where,
            allowed=", ".join(allowed),
            fix=nearest_name(name, list(allowed)) or "",
        )


def open_mace(
    source: Mapping[str, Tensor] | nn.Module | Path | str, given: MaceSettings
) -> tuple[Mapping[str, Tensor], MaceSettings, str]:
    """Return (state dict, settings, name for errors); pickled code is never executed.

    Args:
        source: a state dict, a mace-torch model, or a file written by `convert_mace`.
        given: settings for a state dict.

    Raises:
        DataError: not a file of `convert_mace`, or an unsupported model.
    """
    if isinstance(source, nn.Module):
        return source.state_dict(), settings_of(describe(source), type(source).__name__), "model"
    if isinstance(source, Mapping):
        return source, given, "state dict"
    where = str(source)
    # a .model file of mace-torch is pickled code
    held = load_tensors(source, f"in mace-torch's environment: {CONVERT}")
    if not isinstance(held, dict) or held.get("format") != FORMAT:
        raise DataError(
            "not written by convert_mace",
            where=where,
            fix=f"{CONVERT}; a checkpoint of deepmd-kit: dp freeze, then dp convert-backend to .dp",
        )
    try:
        state, settings = held["state"], settings_of(held["settings"], where)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"damaged settings ({type(error).__name__}: {error})", where=where, fix=CONVERT
        ) from None
    return state, settings, where
