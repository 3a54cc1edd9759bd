"""`scitoolkit runs` prints tables for people and one JSON object for scripts."""

from __future__ import annotations

import json

import pytest

from scitoolkit.cli.main import run_cli
from scitoolkit.core.job_config import JobConfig
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory


@pytest.fixture
def runs(tmp_path):
    """Return a root with two evaluated runs of two workflows."""
    for name, rmse in (("first", 0.25), ("second", 0.5)):
        run = RunDirectory.create(tmp_path, name, JobConfig(domain="demo", workflow=name))
        Results(title="", metrics={"rmse": rmse}, units={"rmse": "K"}).write(run.path)
    return tmp_path


def cli(capsys, *arguments) -> tuple[int, str, str]:
    code = run_cli([str(a) for a in arguments])
    return code, *capsys.readouterr()


def test_list_is_the_default(runs, capsys):
    for more in ([], ["list"]):
        code, out, _ = cli(capsys, "runs", *more, "--root", runs)
        assert code == 0
        assert "started" in out.splitlines()[0]
        assert out.count("evaluated") == 2
    code, out, _ = cli(capsys, "runs", "--root", runs, "--workflow", "first", "--json")
    (only,) = json.loads(out)["runs"]
    assert (only["workflow"], only["status"]) == ("first", "evaluated")


def test_an_empty_root_is_no_error(tmp_path, capsys):
    code, out, _ = cli(capsys, "runs", "--root", tmp_path / "none")
    assert (code, out.startswith("no runs in")) == (0, True)
    code, out, _ = cli(capsys, "runs", "--root", tmp_path, "--json")
    assert json.loads(out)["runs"] == []


def test_compare(runs, capsys):
    code, out, _ = cli(capsys, "runs", "compare", "first", "second", "--root", runs)
    assert code == 0
    assert "workflow  first  second" in out
    assert "rmse (K)  0.2500  0.5000" in out
    _, out, _ = cli(capsys, "runs", "compare", "first", "second", "--root", runs, "--json")
    assert json.loads(out)["metrics"] == {"rmse": [0.25, 0.5]}
    code, _, err = cli(capsys, "runs", "compare", "first", "--root", runs)
    assert (code, "two or more" in err) == (2, True)


def test_clean_lists_first_and_removes_with_yes(runs, capsys):
    arguments = ("runs", "clean", "--root", runs, "--keep", "0")
    code, out, _ = cli(capsys, *arguments)
    assert code == 0
    assert "2 folders" in out
    assert "--yes" in out
    assert len(list(runs.glob("*/*/results.json"))) == 2
    code, out, _ = cli(capsys, *arguments, "--yes", "--json")
    assert json.loads(out)["removed"] is True
    assert not list(runs.glob("*/*/results.json"))
    assert cli(capsys, *arguments)[1].startswith("nothing to remove")


def test_options_before_a_subcommand_are_refused_not_ignored(runs, capsys):
    code, _, err = cli(capsys, "runs", "--root", runs, "clean", "--yes")
    assert code == 2
    assert "options before `clean`" in err
