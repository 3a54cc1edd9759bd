"""Loggers for experiment trackers: MLflow, and Weights & Biases in offline mode.

Both store their data in the run directory by default, and a resumed run keeps its identifier.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from scitoolkit.core.errors import BackendError
from scitoolkit.core.files import disk_error, write_atomic
from scitoolkit.core.run_directory import RUN_ROOT, RunDirectory
from scitoolkit.training.loggers import Logger, LoggerConfig

RUN_ID = "run_id"


class MLflow(LoggerConfig):
    """MLflow run, shown by `mlflow ui --backend-store-uri sqlite:///RUN/mlflow/mlflow.db`.

    Attributes:
        tracking_uri: MLflow store; None for a database in `mlflow/` of the run directory. With
            `http://...` values are sent to that server.
        experiment: name of the MLflow experiment; None for the workflow's name.
    """

    requires: ClassVar[tuple[str, ...]] = ("mlflow",)
    name: Literal["mlflow"] = "mlflow"
    tracking_uri: str | None = None
    experiment: str | None = None

    def open(self, run: RunDirectory) -> Logger:
        """Return a writer of metrics.

        Raises:
            BackendError: MLflow is not installed, or cannot use its store.
        """
        self.check()
        import mlflow
        from mlflow.tracking import MlflowClient

        folder = _folder(run.path / "mlflow")
        uri = self.tracking_uri or f"sqlite:///{folder.resolve() / 'mlflow.db'}"
        try:
            client = MlflowClient(tracking_uri=uri)
            run_id = _known_id(folder)
            if run_id is None:
                name = self.experiment or run.path.resolve().parent.name
                experiment = client.get_experiment_by_name(name)
                where = experiment.experiment_id if experiment else client.create_experiment(name)
                run_id = client.create_run(where, run_name=run.path.name).info.run_id
                _keep_id(folder, run_id)
            else:
                client.update_run(run_id, status="RUNNING")
        except mlflow.exceptions.MlflowException as error:
            raise BackendError(
                f"MLflow's store cannot be used ({str(error).splitlines()[0]})",
                where=uri,
                fix="training.loggers: [{name: mlflow, tracking_uri: ...}], or remove it",
            ) from None
        return _Metrics(client, run_id)


class _Metrics:
    def __init__(self, client: Any, run_id: str) -> None:
        self._client, self._run_id = client, run_id

    def write(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(1e3 * time.time())
        metrics = [Metric(name, float(value), now, step) for name, value in values.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def close(self) -> None:
        self._client.set_terminated(self._run_id)


class WeightsAndBiases(LoggerConfig):
    """Offline run of Weights & Biases in `wandb/` of the run directory, uploaded by `wandb sync`.

    Attributes:
        project: name of the W&B project; None for the workflow's name.
    """

    requires: ClassVar[tuple[str, ...]] = ("wandb",)
    name: Literal["wandb"] = "wandb"
    project: str | None = None

    def open(self, run: RunDirectory) -> Logger:
        """Return a writer of metrics; a resumed run adds files under the same identifier.

        Raises:
            BackendError: wandb is not installed.
        """
        self.check()
        import wandb

        _folder(run.path / "wandb")  # otherwise wandb writes to the temporary directory
        return _History(
            wandb.init(
                mode="offline",
                dir=str(run.path),
                id=run.path.name,
                name=run.path.name,
                project=self.project or run.path.resolve().parent.name,
                reinit="create_new",
                settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
            )
        )


class _History:
    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, values: Mapping[str, float], step: int) -> None:
        self._run.log({name: float(value) for name, value in values.items()}, step=step)

    def close(self) -> None:
        self._run.finish()


def _folder(path: Path) -> Path:
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise disk_error(error, path, RUN_ROOT) from None
    return path


def _known_id(folder: Path) -> str | None:
    path = folder / RUN_ID
    return path.read_text(encoding="utf-8").strip() if path.exists() else None


def _keep_id(folder: Path, run_id: str) -> None:
    try:
        write_atomic(folder / RUN_ID, run_id + "\n")
    except OSError as error:
        raise disk_error(error, folder, RUN_ROOT) from None
