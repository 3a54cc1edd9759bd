import io
import json
import re
import time

import pytest
import torch
from training_worker import Regression, data

from scitoolkit.core.config import Config
from scitoolkit.core.errors import BackendError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.training import Callback, Trainer, TrainingConfig
from scitoolkit.training.callbacks import ProgressLine
from scitoolkit.training.loggers import loggers


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path, "test", Config())


def fit(run=None, callbacks=(), **settings):
    settings = {"epochs": 2, "batch_size": 12, "progress": False, "log_every": 1} | settings
    config = TrainingConfig.model_validate(settings)
    trainer = Trainer(Regression(), config, run=run, callbacks=callbacks)
    loader = TensorLoader(data(), config.batch_size)
    trainer.fit(loader, loader)
    return trainer


def test_metrics_are_one_json_object_a_line_in_the_order_of_steps(run):
    trainer = fit(run)
    rows = [json.loads(line) for line in run.metrics_path.read_text().splitlines()]
    losses = [row for row in rows if row["name"] == "train/loss"]
    assert [row["step"] for row in losses] == list(range(1, trainer.step + 1))
    assert all(isinstance(row["value"], float) for row in rows)
    validations = {row["step"]: row["value"] for row in rows if row["name"] == "validation/loss"}
    assert list(validations) == [trainer.step // 2, trainer.step]
    assert min(validations.values()) == trainer.best["loss"]
    assert {"train/learning_rate", "train/gradient_norm"} <= {row["name"] for row in rows}
    # What a task's loss logs beside the loss arrives, too: here it is twice the loss.
    twice = [row["value"] for row in rows if row["name"] == "train/twice"]
    assert twice == pytest.approx([2 * row["value"] for row in losses])


class EndAt(Callback):
    """Ends the training at the logged step of a number, or at the first validation."""

    def __init__(self, step=None):
        self.step = step

    def on_log(self, trainer, values):
        self.should_stop |= trainer.step == self.step

    def on_validation(self, trainer, values):
        self.should_stop |= self.step is None


@pytest.mark.parametrize(("step", "ended"), [(3, 3), (5, 5), (None, 4)])
def test_a_callback_ends_the_training_and_a_resume_goes_on(run, step, ended):
    stopped = fit(run, [EndAt(step)])
    assert stopped.step == ended
    rows = [row for row in run.read_metrics() if row["name"] == "validation/loss"]
    assert [row["step"] for row in rows] == [s for s in (4, ended) if s <= ended][: 1 + (ended > 4)]
    whole, rest = fit(), Trainer(Regression(), stopped.config, run=run)
    rest.fit(TensorLoader(data(), 12), TensorLoader(data(), 12), resume=True)
    for a, b in zip(whole.task.model.parameters(), rest.task.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_progress_on_a_terminal_renews_one_line():
    stream = Terminal()
    fit(callbacks=[ProgressLine(stream, interval=0.0)])
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert re.search(r"\rstep 8/8  epoch \d+  loss [\d.e-]+  validation [\d.e-]+", text)


def test_progress_elsewhere_is_plain_lines():
    stream = io.StringIO()
    fit(callbacks=[ProgressLine(stream, interval=0.0)])
    lines = stream.getvalue().splitlines()
    assert len(lines) == 8
    assert all(re.fullmatch(r"step \d/8  epoch .* left", line) for line in lines)
    assert "\x1b" not in stream.getvalue()


def test_tensorboard_holds_the_same_values_as_the_log(run):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    fit(run, loggers=["tensorboard"])
    read = events.EventAccumulator(str(run.path / "tensorboard"))
    read.Reload()
    logged = [row for row in run.read_metrics() if row["name"] == "train/loss"]
    shown = read.Scalars("train/loss")
    assert [event.step for event in shown] == [row["step"] for row in logged]
    assert [event.value for event in shown] == pytest.approx([row["value"] for row in logged])
    assert len(read.Scalars("validation/loss")) == 2


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_logger_without_its_package_is_refused_with_the_line_that_installs_it(
    run, monkeypatch, name
):
    member = loggers.get(name)
    monkeypatch.setattr(member, "requires", ("no_such_package",))
    with pytest.raises(BackendError, match=rf"pip install 'scitoolkit\[{name}\]'"):
        fit(run, loggers=[name])
    assert not list(run.read_metrics())
    with pytest.raises(BackendError, match=f"logger {name} needs"):
        member().open(run)


@pytest.mark.filterwarnings("default")  # of packages that MLflow uses
def test_mlflow_holds_the_same_values_as_the_log(run):
    tracking = pytest.importorskip("mlflow.tracking")
    fit(run, loggers=["mlflow"])
    client = tracking.MlflowClient(f"sqlite:///{run.path / 'mlflow' / 'mlflow.db'}")
    identifier = (run.path / "mlflow" / "run_id").read_text().strip()
    logged = [row for row in run.read_metrics() if row["name"] == "train/loss"]
    shown = client.get_metric_history(identifier, "train/loss")
    assert [m.step for m in shown] == [row["step"] for row in logged]
    assert [m.value for m in shown] == [row["value"] for row in logged]
    assert client.get_run(identifier).info.status == "FINISHED"


def test_wandb_writes_offline_and_a_resumed_run_keeps_its_identifier(run):
    pytest.importorskip("wandb")
    for _ in range(2):
        fit(run, loggers=["wandb"])
    files = sorted((run.path / "wandb").rglob("*.wandb"))
    assert [file.name for file in files] == [f"run-{run.path.name}.wandb"] * 2
    deadline = time.monotonic() + 30  # its service may write the files after the run has finished
    while not all(b"train/loss" in file.read_bytes() for file in files):
        assert time.monotonic() < deadline
        time.sleep(0.1)
