"""The index page shows a date, a table of all verdicts, and whole pictures."""

from __future__ import annotations

import re

from scitoolkit.core.config import Config
from scitoolkit.core.results import Results, Table, Verdict
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.reporting import write_index


def run(folder, name, **results):
    directory = RunDirectory.create(folder, name, Config())
    Results(title=f"Title of {name}", **results).write(directory.path)
    return directory.path


def test_the_index_has_a_table_of_verdicts_and_a_date(tmp_path):
    win = Verdict(quantity="RMSE", ours=0.5, rival=1.0, rival_name="persistence", unit="K")
    loss = Verdict(quantity="accuracy", ours=0.7, rival=0.8, rival_name="<b>", better="max")
    alone = Verdict(quantity="ratio", ours=3.0)
    runs = [run(tmp_path, f"w{i}", verdict=v) for i, v in enumerate((win, loss, alone, None))]
    page = write_index(tmp_path / "index.html", runs, {"other": "was left out"}).read_text()
    rows = re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", page, re.DOTALL)
    assert len(rows) == 3
    assert "2 x better" in rows[0]
    assert "worse" in rows[1]
    assert "&lt;b&gt;" in rows[1]
    assert "no baseline" in rows[2]
    assert re.search(r"Evaluated \d{4}-\d\d-\d\d<", page)
    assert page.count("<a href=") == 4
    assert "object-fit:contain" in page


def test_an_index_without_runs_and_one_with_a_table(tmp_path):
    table = Table(title="Sweep", columns=["seed", "RMSE [K]"], rows=[[1, 0.5], [2, 0.25]])
    page = write_index(tmp_path / "a.html", [], {}, title="A sweep", tables=[table]).read_text()
    assert "<h1>A sweep</h1>" in page
    assert "Sweep" in page
    assert "Evaluated" not in page
    assert "(K)" in page


def test_runs_of_one_workflow_are_told_apart_by_their_names(tmp_path):
    verdict = Verdict(quantity="RMSE", ours=0.5, rival=1.0, rival_name="persistence")
    runs = [run(tmp_path, f"w{i}", verdict=verdict) for i in range(2)]
    names = ["training.seed=1", "training.seed=2"]
    page = write_index(tmp_path / "a.html", runs, {}, names=names).read_text()
    assert re.findall(r'<th scope="row">(.*?)<', page) == names
    assert re.findall(r"<h2>(.*?)<", page) == names
