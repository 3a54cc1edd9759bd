"""Saving and loading of a trained potential: weights and configuration."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from scitoolkit.core.config import dump_config, load_config
from scitoolkit.core.errors import CheckpointError, DataError
from scitoolkit.core.files import replacing, write_atomic
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.model import Potential

MODEL, WEIGHTS = "model", "weights.safetensors"


def save_model(model: Potential, config: PotentialConfig, folder: Path) -> None:
    """Write the weights and the configuration that rebuilds the model into a folder."""
    folder.mkdir(exist_ok=True)
    write_atomic(folder / "config.yaml", dump_config(config))
    with replacing(folder / WEIGHTS, SafetensorError) as temporary:
        save_file({k: v.contiguous() for k, v in model.state_dict().items()}, temporary)


def load_model(
    directory: Path | str, precision: str | None = None
) -> tuple[Potential, PotentialConfig, Path]:
    """Return (model, configuration, folder of the weights) of a run or surrogate directory.

    Args:
        directory: of the run or the surrogate.
        precision: float32 or float64 instead of the precision of the training.

    Raises:
        DataError: the directory has no trained model.
        CheckpointError: the weights do not fit the configuration.
    """
    directory = Path(directory)
    folder = directory / MODEL if (directory / MODEL).is_dir() else directory
    if not (folder / WEIGHTS).is_file():
        raise DataError("no trained potential", where=str(directory), fix="scitoolkit train CONFIG")
    config = load_config(PotentialConfig, folder / "config.yaml")
    if config.type_map is None:
        raise DataError("type_map is missing", where=str(folder / "config.yaml"))
    if precision is not None:
        settings = config.model.model_dump() | {"precision": precision}
        config = config.model_copy(update={"model": type(config.model)(**settings)})
    model = config.model.build(config.type_map)  # type: ignore[arg-type]
    try:
        weights = load_file(folder / WEIGHTS)
        if "interaction.energy" in weights:
            model.add_interaction()
        model.load_state_dict(weights)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot be read ({error})", where=str(folder / WEIGHTS)) from None
    except RuntimeError as error:
        raise CheckpointError(
            f"weights do not fit the configuration ({' '.join(str(error).split())[:200]})",
            where=str(folder / WEIGHTS),
        ) from None
    return model.eval(), config, folder
