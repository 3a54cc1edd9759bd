"""The folder of a trained model: `model/` of a run, or all of a shipped surrogate.

It holds the weights (safetensors), the record of the fit (fit.json), the configuration, and after
an evaluation the metrics (metrics.json). A surrogate is published from this folder alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from scitoolkit.core.config import Config, dump_config, load_config
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.errors import CheckpointError, DataError
from scitoolkit.core.files import replacing, write_atomic
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory

if TYPE_CHECKING:
    from torch import Tensor

C = TypeVar("C", bound=Config)
FOLDER, WEIGHTS, RECORD = "model", "weights.safetensors", "fit.json"
CONFIG, METRICS, FACTS = "config.yaml", "metrics.json", "facts.json"
HEADER = "scitoolkit"
"""Key of the measured numbers in the header of the weights."""
FORMER = "model.json"
COPY_AGAIN = "copy the folder again from where it was trained, or train again"
"""File that held them instead, in folders of super-resolution before version 0.3."""


class ModelFolder:
    """The model of a run or surrogate directory.

    Args:
        directory: a run directory, whose model is in `model/`, or a surrogate directory.

    Attributes:
        directory: the argument as a path.
        path: the folder of the weights.

    Example:
        >>> ModelFolder("surrogates/mine").weights.as_posix()
        'surrogates/mine/weights.safetensors'
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory: Path = Path(directory)
        inner = self.directory / FOLDER
        self.path: Path = inner if inner.is_dir() else self.directory

    @classmethod
    def create(cls, run: RunDirectory) -> ModelFolder:
        """Return the model folder of a run and create it if necessary."""
        (run.path / FOLDER).mkdir(exist_ok=True)
        return cls(run.path)

    @property
    def weights(self) -> Path:
        """The file of the weights."""
        return self.path / WEIGHTS

    @property
    def in_run(self) -> bool:
        """Whether this is the model of a run, to which evaluation results are written."""
        return self.path != self.directory

    def config(self, schema: type[C], *, settled: bool = False) -> C:
        """Return the configuration of the run or surrogate.

        Args:
            schema: of the domain.
            settled: whether to return that of the weights, with what the training settled.
        """
        return load_config(schema, (self.path if settled else self.directory) / CONFIG)

    @property
    def has_record(self) -> bool:
        """Whether the record of the fit is there; former folders of potentials have none."""
        return (self.path / RECORD).exists()

    def record(self) -> dict[str, Any]:
        """Return the record of the fit.

        Raises:
            DataError: the record is missing or damaged.
        """
        path = self.path / RECORD
        try:
            record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError(
                "no trained model in this folder",
                where=str(self.directory),
                fix="scitoolkit train CONFIG",
            ) from None
        except ValueError as error:
            raise DataError(f"damaged ({error})", where=str(path), fix=COPY_AGAIN) from None
        if (self.path / FORMER).exists() and "parts" in record:
            record["samples"] = record.pop("parts")  # numbers of simulations, not ends of ranges
        return record

    def save_facts(self, facts: DataFacts) -> None:
        """Write the facts of the training data."""
        write_atomic(self.path / FACTS, json.dumps(facts.to_json(), indent=1) + "\n")

    def facts(self) -> DataFacts | None:
        """Return the facts of the training data; None if the folder is older than facts.

        Raises:
            DataError: they are damaged, or of a newer version.
        """
        path = self.path / FACTS
        try:
            return DataFacts.from_json(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DataError(f"damaged ({error})", where=str(path), fix=COPY_AGAIN) from None

    def digest(self) -> str:
        """Return a digest of the files that predictions depend on: all but metrics and texts."""
        files = sorted(f for f in self.path.rglob("*") if f.is_file())
        lines = [
            f"{f.relative_to(self.path)} {hashlib.sha256(f.read_bytes()).hexdigest()}"
            for f in files
            if f.name != METRICS and f.suffix != ".md"
        ]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def finish(
        self,
        run: RunDirectory,
        record: Mapping[str, Any] | None = None,
        settled: Config | None = None,
    ) -> None:
        """Write the record of the fit and a configuration next to the weights.

        Args:
            run: of the training.
            record: of the fit.
            settled: the configuration with what the training settled; by default the run's.
        """
        if record is not None:
            write_atomic(self.path / RECORD, json.dumps(record, indent=1) + "\n")
        stated = run.config_path.read_text("utf-8") if settled is None else dump_config(settled)
        write_atomic(self.path / CONFIG, stated)

    def save_weights(
        self, tensors: Mapping[str, Tensor], measured: Mapping[str, Any] | None = None
    ) -> None:
        """Write the weights atomically: under a temporary name, then renamed.

        Args:
            tensors: by name.
            measured: JSON types stored in the header, from which the model is built again.

        Raises:
            ScitoolkitError: the disk is full, or the folder cannot be written.
        """
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        with replacing(self.weights, SafetensorError) as path:
            header = None if measured is None else {HEADER: json.dumps(dict(measured))}
            save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, path, header)

    def measured(self) -> dict[str, Any]:
        """Return the measured numbers in the header of the weights, or of the former files.

        Raises:
            CheckpointError: the file is missing, damaged or has no such header.
        """
        from safetensors import SafetensorError, safe_open

        former = self.path / FORMER
        try:
            with safe_open(str(self.weights), framework="pt") as file:
                stated: dict[str, str] = file.metadata() or {}
            if HEADER not in stated:
                if former.exists():
                    return json.loads(former.read_text())
                return self.record() if self.has_record else {}
            header: dict[str, Any] = json.loads(stated[HEADER])
        except FileNotFoundError:
            raise CheckpointError(
                "no weights in this folder", where=str(self.weights), fix="scitoolkit train CONFIG"
            ) from None
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise CheckpointError(
                f"cannot be read ({error})", where=str(self.weights), fix=COPY_AGAIN
            ) from None
        return header

    def load_weights(self) -> dict[str, Tensor]:
        """Return the weights.

        Raises:
            CheckpointError: the file is missing or damaged.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return dict(load_file(self.weights))
        except FileNotFoundError:
            raise CheckpointError(
                "no weights in this folder", where=str(self.weights), fix="scitoolkit train CONFIG"
            ) from None
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"cannot be read ({error})", where=str(self.weights), fix=COPY_AGAIN
            ) from None

    def write_results(self, results: Results, data: Path | None) -> bool:
        """Write the results of an evaluation into the run; return whether they were written.

        Args:
            results: results of the evaluation.
            data: data file other than the run's test part, or None; results for such a file are
                not written.
        """
        from scitoolkit.core.devices import device_notes  # imports torch

        results.summary.extend(device_notes())
        if data is not None or not self.in_run:
            return False
        results.write_run(self.directory, self.path)
        return True
