"""Saving and loading of a trained potential: weights and configuration."""

from __future__ import annotations

from pathlib import Path

from scitoolkit.core.config import dump_config
from scitoolkit.core.content import find_content
from scitoolkit.core.devices import choose_device
from scitoolkit.core.errors import CheckpointError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.model_folder import CONFIG, ModelFolder
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.equivariant.nequip_file import CHECKPOINT
from scitoolkit.potentials.model import Potential
from scitoolkit.surrogate.lifecycle import rebuilt
from scitoolkit.surrogate.lifecycle import save_model as save_weights


def save_model(model: Potential, config: PotentialConfig, folder: Path) -> None:
    """Write the weights and the configuration that rebuilds the model into a folder."""
    folder.mkdir(exist_ok=True)
    write_atomic(folder / CONFIG, dump_config(config))
    save_weights(model, ModelFolder(folder), {})


def untrained(config: PotentialConfig) -> Potential:
    """Return the model of a configuration whose type map is filled in, before its training."""
    return config.model.build(config.type_map or ())


def load_model(
    directory: Path | str, precision: str | None = None
) -> tuple[Potential, PotentialConfig, Path]:
    """Return (model, configuration, folder of the weights) of a run or surrogate directory.

    Args:
        directory: of the run or the surrogate.
        precision: float32 or float64 instead of the precision of the training.

    Raises:
        CheckpointError: weights that are missing, damaged or of another configuration; a file.
    """
    if Path(directory).is_file():
        raise CheckpointError(
            "a file, not the folder of a trained potential",
            where=str(directory),
            allowed="a run or a surrogate; start.path may be .pt of convert_mace, .dp or .ckpt",
            fix=_conversion(Path(directory)),
        )
    folder = ModelFolder(directory)
    config = folder.config(PotentialConfig, settled=True)
    if precision is not None:
        settings = config.model.model_dump() | {"precision": precision}
        config = config.model_copy(update={"model": type(config.model)(**settings)})
    return rebuilt(folder, lambda measured: untrained(config)), config, folder.path


def _conversion(path: Path) -> str:
    """Return the command that converts a file of another program, by its suffixes."""
    if path.suffix == ".ckpt":
        return f"scitoolkit run fine_tune start.path={path.name}; in Python: read_nequip"
    if ".nequip" in path.suffixes or path.suffix == ".zip":
        return f"start.path={CHECKPOINT}, from which {path.name} was made"
    if path.suffix in (".pb", ".pth", ".pt2"):
        return f"dp convert-backend {path.name} {path.stem}.dp"
    return f"python -m scitoolkit.potentials.peers.convert_mace {path.name} {path.stem}.pt"


def for_evaluation(
    potential: Potential | Path | str, precision: str | None, device: str | None
) -> Potential:
    """Return a potential, of a folder or the name of a surrogate too, on the device of its calls.

    Args:
        potential: a model, a run directory, or the name of a shipped surrogate.
        precision: float32 or float64 instead of that of the training (of a run or a surrogate).
        device: auto, cpu or cuda. None: a model stays where it is; auto for others.

    Raises:
        CheckpointError: see `load_model`.
        ConfigError: an unknown device.
        BackendError: `device="cuda"` without a GPU.
    """
    if isinstance(potential, Potential):
        model = potential
    else:
        model = load_model(find_content("surrogates", str(potential)), precision)[0]
        device = device or "auto"
    if device is not None:
        model = model.to(choose_device(device))
    return model.eval()
