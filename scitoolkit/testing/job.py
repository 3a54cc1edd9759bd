"""Contract suite of domains: the command line on a tiny case."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from scitoolkit.core.jobs import domains
from scitoolkit.core.results import Results
from scitoolkit.testing.job_skeleton import job_skeleton


class CommandOutcome(NamedTuple):
    """Exit code and output of one command."""

    code: int
    out: str
    err: str


def scitoolkit(*arguments: object, nproc: int = 1) -> CommandOutcome:
    """Run a command of scitoolkit in this process, or as rank 0 of `nproc` simulated processes."""
    if nproc == 1:
        return _run_here([str(a) for a in arguments])
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": str(nproc)}
    done = subprocess.run(
        [sys.executable, "-m", "scitoolkit", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    return CommandOutcome(done.returncode, done.stdout, done.stderr)


def _run_here(arguments: list[str]) -> CommandOutcome:
    import contextlib
    import io

    scripts = distribution("scitoolkit").entry_points
    module = importlib.import_module(scripts.select(name="scitoolkit")["scitoolkit"].module)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = module.run_cli(arguments)
    return CommandOutcome(code, out.getvalue(), err.getvalue())


class JobContract:
    """Contract suite of domains; set `domain`, and override `case` and `source`.

    The tests of one class share one trained run.

    Example:
        class TestMine(JobContract):
            domain = "mine"

            def case(self, folder: Path) -> Mapping[str, Any]:
                write_series(folder / "series.nc")
                return {"data": str(folder / "series.nc"), "iterations": 3}

            def source(self, folder: Path) -> Path:
                return folder / "series.nc"
    """

    domain: str
    """Name under which the domain is registered."""
    several_processes: bool | None = False
    """Whether training supports several processes; otherwise they must be refused. None for a
    domain without an entry point, which the processes cannot find."""

    @staticmethod
    def skeleton(name: str, cls: str) -> tuple[str, str]:
        """Return module and test of a new domain, for `scitoolkit new`."""
        return job_skeleton(name, cls)

    def case(self, folder: Path) -> Mapping[str, Any]:
        """Write data into `folder`; return a configuration that trains on it in seconds."""
        raise NotImplementedError

    def source(self, folder: Path) -> Path:
        """Return an input file for `predict` and `evaluate --data`."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Return the folder of the data and of the configuration, `case.yaml`."""
        folder = tmp_path_factory.mktemp(cls.domain)
        case = cls().case(folder)
        document = {"domain": cls.domain, "run": {"root": str(folder / "runs")}, **case}
        (folder / "case.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
        return folder

    @pytest.fixture(scope="class")
    @classmethod
    def run(cls, folder: Path) -> Path:
        """Return the directory of one training."""
        done = scitoolkit("train", folder / "case.yaml", "--json")
        assert done.code == 0, done.err
        return Path(json.loads(done.out)["run"])

    def test_the_domain_is_listed(self) -> None:
        """The domain can be imported, is available and has a summary."""
        member = domains.member(self.domain)
        assert not member.problem
        assert member.summary

    def test_the_configuration_is_valid_and_a_misspelt_key_is_not(self, folder: Path) -> None:
        """`validate` accepts the case and refuses an unknown key with exit code 2."""
        valid = scitoolkit("validate", folder / "case.yaml")
        assert valid.code == 0, valid.err
        misspelt = scitoolkit("validate", folder / "case.yaml", "no_such_key=1")
        assert misspelt.code == 2
        assert "no_such_key" in misspelt.err

    def test_a_dry_run_writes_nothing(self, folder: Path) -> None:
        """`--dry-run --json` prints one JSON object and leaves every file as it is."""
        before = _files(folder)
        done = scitoolkit("train", folder / "case.yaml", "--dry-run", "--json")
        assert done.code == 0, done.err
        assert isinstance(json.loads(done.out), dict)
        assert _files(folder) == before

    def test_what_was_trained_can_be_resumed(self, folder: Path, run: Path) -> None:
        """The resolved configuration of a run is a valid input; a finished run can be resumed."""
        done = scitoolkit("train", run / "config.yaml", "--resume", "--run-dir", run, "--json")
        assert done.code == 0, done.err
        assert Path(json.loads(done.out)["run"]) == run
        newest = scitoolkit("train", folder / "case.yaml", "--resume", "--json")
        assert newest.code == 0, newest.err
        assert Path(json.loads(newest.out)["run"]) == run

    def test_evaluation_and_report(self, folder: Path, run: Path) -> None:
        """`evaluate` is repeatable; evaluating another file leaves the run unchanged."""
        first = scitoolkit("evaluate", run)
        assert first.code == 0, first.err
        results = Results.read(run)
        assert results.metrics
        done = scitoolkit("evaluate", run, "--data", self.source(folder))
        assert done.code == 0, done.err
        assert Results.read(run) == results
        assert scitoolkit("evaluate", run).code == 0
        assert Results.read(run) == results
        assert scitoolkit("report", run).code == 0
        assert (run / "report" / "index.html").is_file()

    def test_prediction_opens_in_xarray(self, folder: Path, run: Path, tmp_path: Path) -> None:
        """`predict` writes a file with variables; a missing input file gives exit code 3."""
        import xarray

        output = tmp_path / "out.nc"
        done = scitoolkit("predict", run, self.source(folder), "-o", output)
        assert done.code == 0, done.err
        with xarray.open_dataset(output) as dataset:
            assert dataset.data_vars
        assert scitoolkit("predict", run, folder / "no_such_file.nc", "-o", output).code == 3

    def test_a_published_run_is_used_like_the_run(
        self, folder: Path, run: Path, tmp_path: Path
    ) -> None:
        """`publish` makes a folder with the same predictions as the run."""
        if not (run / "model").is_dir():  # no model to publish
            assert scitoolkit("publish", run, tmp_path / "published").code == 3
            return
        assert scitoolkit("evaluate", run).code == 0
        done = scitoolkit("publish", run, tmp_path / "published")
        assert done.code == 0, done.err
        outputs = []
        for directory in (run, tmp_path / "published"):
            outputs.append(tmp_path / f"{directory.name}.nc")
            predicted = scitoolkit("predict", directory, self.source(folder), "-o", outputs[-1])
            assert predicted.code == 0, predicted.err
        assert _same_dataset(*outputs)

    def test_several_processes_work_or_are_refused(self, folder: Path) -> None:
        """Several processes work together, or are refused; they never repeat the same work."""
        if self.several_processes is None:
            pytest.skip("the domain has no entry point")
        if self.several_processes:
            # The launcher repeats the command line of this process.
            command = [sys.executable, "-m", "scitoolkit", "train", str(folder / "case.yaml")]
            ranks = subprocess.run([*command, "--nproc", "2"], capture_output=True, text=True)
            assert ranks.returncode == 0, ranks.stderr
            return
        runs = _files(folder / "runs")
        done = scitoolkit("train", folder / "case.yaml", nproc=2)
        assert done.code == 2, done.err
        assert "Traceback" not in done.err
        assert _files(folder / "runs") == runs


def _same_dataset(a: Path, b: Path) -> bool:
    import xarray

    with xarray.open_dataset(a) as first, xarray.open_dataset(b) as second:
        return bool(first.equals(second))


def _files(folder: Path) -> list[tuple[Path, int]]:
    return sorted((p, p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file())
