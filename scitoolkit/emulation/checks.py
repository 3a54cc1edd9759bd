"""What can only be checked once the file is open: dims that the configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name

if TYPE_CHECKING:
    from scitoolkit.emulation.config import EmulationConfig
    from scitoolkit.emulation.variables import Layout


def check_dims(config: EmulationConfig, layout: Layout) -> None:
    """Refuse dims that the grid does not have, and a network that cannot work on it.

    Raises:
        ConfigError: with the key, the dims there are, and the nearest name.
    """
    named = {
        "boundary": list(config.boundary),
        "coordinates": config.coordinates,
        "transport": list(config.transport or {}),
        "symmetries.shift": config.symmetries.shift,
        "symmetries.mirror": list(config.symmetries.mirror),
    }
    dims = list(layout.grid)
    for key, names in named.items():
        for name in names:
            if name not in dims:
                raise ConfigError(
                    f"{name!r} is no dim of the grid", where=key,
                    allowed=", ".join(dims) or "none: there is no field",
                    fix=nearest_name(name, dims) or "",
                )  # fmt: skip
    if not dims and config.model.name != "mlp":
        raise ConfigError(
            f"model {config.model.name} needs a field, and all variables are vectors",
            where="model.name", allowed="mlp", fix="model={name: mlp}",
        )  # fmt: skip
    if dims and config.model.name == "mlp":
        raise ConfigError(
            "model mlp is for vectors, and there are fields", where="model.name",
            allowed="unet, resnet, fno",
        )  # fmt: skip
    modes = getattr(config.model, "modes", [0])
    if len(modes) not in (1, len(dims)):
        raise ConfigError(
            f"{len(modes)} numbers of modes", where="model.modes",
            allowed=f"1, or {len(dims)} for the dims {', '.join(dims)}",
        )  # fmt: skip
