"""A search through the command line: whole, killed and resumed, reported, used, refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from scitoolkit import api
from scitoolkit.core.config import ConfigProblems
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.results import Results
from scitoolkit.io.fields import open_fields
from scitoolkit.search import load_history
from scitoolkit.search.history import same_history
from scitoolkit.search.job import choose_members

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def search_file(small_sst, tmp_path) -> Path:
    """A small search over the forecast of every sixth cell."""
    base = yaml.safe_load((ROOT / "workflows" / "sst_forecast" / "train.yaml").read_text())
    base["data"]["path"] = str(small_sst)
    base |= {"ensemble": 1, "harmonics": [2]}
    base["training"] |= {"epochs": 3, "log_every": 5}
    (tmp_path / "forecast.yaml").write_text(yaml.safe_dump(base))
    config = {
        "domain": "search",
        "workflow": "tiny",
        "config": "forecast.yaml",
        "space": {
            "model.architecture": {"nodes": 2, "choices": [0, 4, 8], "reach": 1},
            "model.head": ["last_state", "all_steps"],
        },
        "objectives": [{"name": "validation_rmse"}, {"name": "parameters", "limit": 2000}],
        "strategy": {"name": "evolution", "population": 4, "tournament_size": 2},
        "budget": {"trials": 6},
        "final": {"finalists": 2, "seeds": 2},
        "run": {"root": str(tmp_path / "runs")},
    }
    path = tmp_path / "search.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def members(run: Path) -> list[dict]:
    """Return the configurations of the winner and of the second member of the ensemble."""
    history = load_history(run)
    winner = history.winner()
    return [m.configuration for m in choose_members(history, winner, 2)]


def test_a_search_trains_reports_and_its_winner_predicts(search_file, small_sst, tmp_path):
    run = api.search(search_file, ["final.ensemble=2"]).path
    metrics = Results.read(run).metrics
    assert metrics["trials_done"] == 6
    assert metrics["duplicates"] == 0
    assert {"test_rmse", "seed_spread", "retrained_mean"} <= metrics.keys()
    history = load_history(run)
    assert max(t.metrics["parameters"] for t in history.done) <= 2000
    assert {row["seeds"] for row in history.finalists()} == {2}
    assert all(t.epochs for t in history.done)
    assert "test split was used once" in (run / "report" / "index.html").read_text()
    scored = (run / "best" / "results.json").stat().st_mtime_ns
    api.report(run)
    assert (run / "best" / "results.json").stat().st_mtime_ns == scored
    with open_fields(api.predict(run, small_sst, tmp_path / "forecast.nc")) as forecast:
        both = forecast["sst_between"] ** 2 + forecast["sst_within"] ** 2
        half = (forecast["sst_high"] - forecast["sst_low"]) / 2
        assert float((half - 1.6 * both**0.5).min()) > 0, "intervals of 90 % hold both"
    configurations = [(run / name / "config.yaml").read_text() for name in ("best", "best_2")]
    assert configurations[0] != configurations[1]
    with pytest.raises(ConfigError, match=r"space.*model\.hidden"):
        api.search(search_file, ["final.ensemble=2", "space={model.hidden: [4, 8]}"], resume=True)
    grown = [
        "final.ensemble=2",
        "budget.trials=9",
        "space={model.head: [last_state, all_steps, encoder_decoder], "
        "model.architecture: {nodes: 2, choices: [0, 4, 8, 12], reach: 1}}",
    ]
    assert api.search(search_file, grown, resume=True, run_dir=run).path == run
    metrics = Results.read(run).metrics
    assert (metrics["trials_done"], metrics["duplicates"]) == (9, 0)
    for folder, member in zip(("best", "best_2"), members(run), strict=True):
        trained = yaml.safe_load((run / folder / "config.yaml").read_text())["model"]
        assert {f"model.{name}": trained[name] for name in ("architecture", "head")} == member


@pytest.mark.multiproc
def test_a_killed_search_resumes_to_the_same_history(search_file, tmp_path):
    settings = ["final.train=false", "final.finalists=0", "final.seeds=3", "budget.trials=8"]
    whole = api.search(search_file, ["workflow=whole", *settings]).path
    command = [sys.executable, "-m", "scitoolkit", "search", str(search_file), *settings]
    # One worker runs trials in its own process, and sums depend on its number of threads.
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    process = subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL)
    _wait_for(lambda: _finished(tmp_path / "runs" / "tiny") >= 2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (run,) = (tmp_path / "runs" / "tiny").iterdir()
    assert api.report(run).exists(), "a search can be reported before it has ended"
    api.search(search_file, settings, resume=True)
    assert same_history(load_history(run), load_history(whole))


def _finished(folder: Path) -> int:
    logs = list(folder.glob("*/trials.jsonl"))
    return logs[0].read_text().count('"finish"') if logs else 0


def _wait_for(condition, seconds: float = 900.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.multiproc
def test_several_processes_can_train_one_trial(cli, search_file):
    done = cli(
        "search",
        search_file,
        "final.train=false",
        "final.finalists=0",
        "final.seeds=3",
        "budget.trials=1",
        "budget.processes_per_trial=2",
        "--json",
    )
    assert done.code == 0, done.err
    assert done.json["metrics"]["trials_done"] == 1


@pytest.mark.slow
@pytest.mark.multiproc
def test_a_search_whose_ranks_are_interrupted_resumes(search_file, tmp_path):
    settings = [
        "final.train=false",
        "final.finalists=0",
        "final.seeds=3",
        "budget.trials=1",
        "budget.processes_per_trial=2",
    ]
    command = [sys.executable, "-m", "scitoolkit", "search", str(search_file), *settings]
    long = ["settings=[training.epochs=100000]"]
    process = subprocess.Popen([*command, *long], cwd=tmp_path, stderr=subprocess.DEVNULL)
    runs = tmp_path / "runs" / "tiny"
    _wait_for(lambda: any(p.stat().st_size for p in runs.rglob("metrics.jsonl")))
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 130
    (run,) = runs.iterdir()
    history = load_history(run)
    assert (history.num_failed, len(history.running)) == (0, 1)
    assert any(run.rglob("checkpoints/*")), "the ranks have saved together"


def test_any_surrogate_can_be_searched_through_its_config_alone(tmp_path):
    """A job that knows nothing of searches is compared by its lowest validation loss."""
    from scitoolkit.core.jobs import domains
    from scitoolkit.forecasting.config import ForecastingConfig
    from scitoolkit.search.objective import train_for_figures

    class Plain:
        config_class = ForecastingConfig

        def train(self, config, run, *, resume=False):
            for step, loss in enumerate([3.0, 1.0, 2.0]):
                run.log_metrics({"validation/loss": loss}, step=step)

    from scitoolkit.core.run_directory import RunDirectory

    assert "forecasting" in domains.names()
    run = RunDirectory(tmp_path)
    assert train_for_figures(Plain(), None, run, False) == {"validation_loss": 1.0}


def test_dry_run_checks_points_of_the_space_against_the_schema(search_file):
    found = api.check(search_file)
    assert found["size"] == 3**2 * 2**2 * 2
    assert found["costs"][0]["parameters"] > 0
    with pytest.raises(ConfigProblems, match=r"model\.hiden"):
        api.check(search_file, ['space={"model.hiden": [4, 8]}'])


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("space=pod_lstn", "pod_lstm"),
        ("space={}", "no parameters"),
        ("space={a: {low: 2, high: 1}}", "not below"),
        ("objectives=[]", "objectives"),
        ("strategy.name=evolutoin", "did you mean evolution"),
        ("budget.trial_memory=lots", "trial_memory 'lots'"),
        ("budget.workers=0", "budget.workers"),
    ],
)
def test_bad_configurations_are_refused(search_file, setting, said):
    with pytest.raises(ConfigProblems, match=said):
        api.load(search_file, [setting])


def test_a_training_is_no_search():
    with pytest.raises(ConfigError, match="domain: search"):
        api.search(ROOT / "workflows" / "sst_forecast")


def test_the_log_is_json_lines(search_file, tmp_path):
    api.search(
        search_file, ["final.train=false", "final.finalists=0", "final.seeds=3", "budget.trials=2"]
    )
    (log,) = (tmp_path / "runs" / "tiny").glob("*/trials.jsonl")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [e["event"] for e in events][:3] == ["open", "issue", "finish"]
