"""The tour: one line per workflow, a table of the verdicts, a page with links to the reports."""

import importlib.util
import json
import shutil

import pytest

from scitoolkit import api
from scitoolkit.cli import tour
from scitoolkit.cli.main import run_cli
from scitoolkit.core.config import Config
from scitoolkit.core.content import list_content
from scitoolkit.core.results import Results, Verdict
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.reporting import write_report


@pytest.fixture
def visits(tmp_path, monkeypatch):
    """Three simulated workflows: one with a baseline, one left out, one that fails."""
    verdict = Verdict(quantity="RMSE", ours=0.5, rival=1.0, rival_name="persistence", unit="K")
    run = RunDirectory.create(tmp_path / "runs", "first", Config())
    Results(title="First <run>", verdict=verdict).write(run.path)
    write_report(run.path)
    found = {
        "first": tour.Stop("first", 12.0, run=str(run.path)),
        "second": tour.Stop("second", reason="no such file: a.h5"),
        "third": tour.Stop("third", 1.0, reason="exit code 3", failed=True),
    }
    monkeypatch.setattr(tour, "_visit", lambda name, output: found[name])
    return tmp_path / "runs"


def test_each_workflow_is_a_line_and_its_verdict_a_row(visits, capsys):
    assert run_cli(["tour", "first", "second", "-o", str(visits)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("[1/2] first")
    assert "RMSE: 0.5 K, a factor of 2 below persistence (1.0 K)." in lines[0]
    assert lines[1].endswith("left out: no such file: a.h5")
    assert any(
        line.split()[0] == "first" and line.endswith("2 x better") for line in lines[3:] if line
    )
    page = (visits / "index.html").read_text(encoding="utf-8")
    assert "First &lt;run&gt;" in page
    assert "second was left out: no such file: a.h5" in page
    (link,) = [part.split('"')[0] for part in page.split('<a href="')[1:]]
    assert (visits / link).is_file()


def test_a_failed_workflow_is_an_exit_code(visits, capsys):
    assert run_cli(["tour", "first", "third", "-o", str(visits), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [stop["failed"] for stop in found["stops"]] == [False, True]
    assert found["stops"][0]["verdict"]["margin"] == "2 x better"


def test_every_kind_is_visited(tmp_path, monkeypatch, capsys):
    domains = {name: api.load(name)[1].domain for name in list_content("workflows")}
    assert {domains[name] for name in tour.STOPS} == set(domains.values())
    seen = []
    monkeypatch.setattr(tour, "_visit", lambda n, _: (seen.append(n), tour.Stop(n, reason="-"))[1])
    monkeypatch.setattr(tour, "_exported", lambda output: {})
    assert run_cli(["tour", "-o", str(tmp_path)]) == 0
    assert seen == list(tour.STOPS)
    seen.clear()
    assert run_cli(["tour", "--all", "-o", str(tmp_path)]) == 0
    assert seen == list(domains)
    assert run_cli(["tour", "chaos", "--all", "-o", str(tmp_path)]) == 2
    assert "leave the names or --all out" in capsys.readouterr().err


def test_a_workflow_without_its_data_is_left_out_with_the_reason(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tour, "PREPARATIONS", {})
    assert run_cli(["tour", "mesh_diffusion", "-o", str(tmp_path)]) == 0
    assert "left out: no such file" in capsys.readouterr().out


def test_data_are_generated_below_the_output_folder(tmp_path, monkeypatch):
    data = tmp_path / "data" / "mesh_tracer" / "1" / "campaign" / "sample_00000.h5"
    commands = []

    def run(name, settings, root, log):
        commands.append((name, settings))
        if name == "mesh_tracer":
            assert root == tmp_path / "data"
            data.parent.mkdir(parents=True)
            data.touch()
        return {"run": str(data.parents[1])}, ""

    monkeypatch.setattr(tour, "_run", run)
    for _ in range(2):  # the second tour uses the data of the first
        assert not tour._visit("mesh_diffusion", tmp_path).failed
    learn = ("mesh_diffusion", [f"data.path={data}"])
    assert commands == [("mesh_tracer", ["output=null"]), learn, learn]


def test_a_failed_generation_is_the_failure_of_its_workflow(tmp_path, monkeypatch):
    monkeypatch.setattr(tour, "_run", lambda *_: ({}, "exit code 1 (log: x)"))
    stop = tour._visit("mesh_diffusion", tmp_path)
    assert (stop.failed, stop.reason) == (True, "exit code 1 (log: x)")


def test_a_workflow_whose_data_need_a_missing_package_is_left_out(tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "skfem" else found(name)
    )
    stop = tour._visit("mesh_diffusion", tmp_path)
    assert (stop.failed, stop.reason) == (
        False,
        "needs the package 'skfem', which is not installed",
    )


def test_without_a_compiler_the_tour_says_why_it_exports_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CC", "no_such_compiler")
    found = tour._exported(tmp_path)
    assert "no C compiler found" in found["left_out"]
    monkeypatch.setattr(tour, "_visit", lambda name, _: tour.Stop(name, reason="-"))
    monkeypatch.setattr(tour, "_exported", lambda output: found)
    assert run_cli(["tour", "-o", str(tmp_path)]) == 0
    assert "no export as C: no C compiler found" in capsys.readouterr().out


def test_the_table_fits_a_terminal_and_aligns_the_values(tmp_path, monkeypatch):
    name = "a baseline with a very long name that does not fit"
    verdicts = [
        Verdict(
            quantity="RMSE of a long list of variables after many steps (mean)",
            ours=ours,
            rival=1000.0,
            rival_name=name,
            unit="K",
        )
        for ours in (0.5, 900.0)
    ]
    monkeypatch.setattr(tour, "_results", lambda s: Results(title="", verdict=verdicts.pop(0)))
    lines = tour._table([tour.Stop(f"workflow_{i}", run="r") for i in (1, 2)]).splitlines()
    assert max(map(len, lines)) <= tour.MOST_COLUMNS
    first, second = lines[2:]
    assert first.index("0.5 K") + 5 == second.index("900 K") + 5
    assert second.endswith("10 % better")


def test_an_unknown_workflow_is_a_usage_error(tmp_path, capsys):
    assert run_cli(["tour", "sst_forcast", "-o", str(tmp_path)]) == 2
    assert "sst_forecast" in capsys.readouterr().err


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_the_tour_exports_a_surrogate_and_calls_it(tmp_path):
    found = tour._exported(tmp_path)
    assert 0 < found["milliseconds"] < 1000
    assert found["largest_difference"] < 1e-4
    assert (tmp_path / "sst_forecast.so").exists()
