"""Objects show themselves as tables in notebooks, with everything from files escaped."""

from __future__ import annotations

import io
import sys
import types
from html.parser import HTMLParser

import numpy as np
import pytest

from scitoolkit.core.config import Config
from scitoolkit.core.data_facts import DataFacts, Dim, Var
from scitoolkit.core.job import Finding
from scitoolkit.core.notebook import MOST_ROWS, html_table, in_notebook
from scitoolkit.core.results import Results, Table, Verdict
from scitoolkit.core.run_directory import RunDirectory

HOSTILE = "<script>alert(1)</script>"


class Balanced(HTMLParser):
    """Counts open tags."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def checked(shown) -> str:
    text = shown._repr_html_()
    parser = Balanced()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    assert "script" not in parser.seen
    return text


def a_run(tmp_path, *, evaluated: bool) -> RunDirectory:
    run = RunDirectory.create(tmp_path, "w", Config())
    if evaluated:
        Results(title=HOSTILE, metrics={"rmse": 0.5}).write(run.path)
    return run


def test_results(tmp_path):
    verdict = Verdict(quantity="RMSE", ours=0.5, rival=1.0, rival_name=HOSTILE, unit="K")
    table = Table(title=HOSTILE, columns=["a", HOSTILE], rows=[[HOSTILE, 0.12345], ["b", None]])
    text = checked(
        Results(
            title=HOSTILE,
            verdict=verdict,
            summary=[HOSTILE],
            tables=[table],
            metrics={HOSTILE: 1.0, "n": None},
            units={HOSTILE: "degC"},
        )
    )
    assert "0.1235" in text or "0.1234" in text
    assert "°C" in text
    assert "a factor of 2" in text
    checked(Results(title="nothing else"))


@pytest.mark.parametrize("evaluated", [True, False])
def test_a_run(tmp_path, evaluated):
    text = checked(a_run(tmp_path, evaluated=evaluated))
    assert ("rmse" in text) == evaluated


def test_facts_and_findings():
    facts = DataFacts(
        (Var(HOSTILE, "K", dims=("time", HOSTILE)),),
        (Dim(HOSTILE, "space", 3),),
        {HOSTILE: (0.0, 1.0, HOSTILE)},
    )
    assert "K" in checked(facts)
    assert "warning" in checked(Finding(HOSTILE, "data.path", "warning"))


def test_a_campaign(tmp_path):
    import numpy as np
    import xarray as xr

    from scitoolkit import open_campaign

    field = xr.Dataset({"t": (("time", "x"), np.zeros((4, 3), "f4"), {"units": "K"})})
    field.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    text = checked(open_campaign(tmp_path / "a.nc", ["t"]))
    assert "K" in text
    assert "simulations" in text


def test_a_history_and_a_surrogate():
    from scitoolkit import load_surrogate
    from scitoolkit.search import History, Objective

    assert "0 trials" in checked(History([Objective(name=HOSTILE)]))
    text = checked(load_surrogate("sst_forecast"))
    assert "forecasting" in text
    assert "rmse" in text


def test_a_long_table_tells_how_many_rows_are_left_out():
    text = html_table(["n"], [[i] for i in range(MOST_ROWS + 5)])
    assert "and 5 more" in text
    assert text.count("<tr>") == MOST_ROWS + 2


def simulated_shell(monkeypatch, name: str) -> None:
    shell = type(name, (), {})()
    module = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", module)


def test_numbers_of_numpy_have_four_digits():
    cells = [np.float32(1 / 3), np.float64(1 / 3), np.float32("nan"), np.int64(3), True]
    assert html_table(["a"], [cells]).count("<td>0.3333</td>") == 2
    assert html_table(["a"], [cells]).endswith(
        "<td>–</td><td>3</td><td>True</td></tr></tbody></table>"
    )


def test_a_notebook_is_recognised_by_its_shell(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", None)
    assert not in_notebook()
    simulated_shell(monkeypatch, "TerminalInteractiveShell")
    assert not in_notebook()
    simulated_shell(monkeypatch, "ZMQInteractiveShell")
    assert in_notebook()


def test_training_updates_one_line_in_a_notebook(monkeypatch):
    from scitoolkit.training.callbacks import ProgressLine

    simulated_shell(monkeypatch, "ZMQInteractiveShell")
    stream = io.StringIO()
    line = ProgressLine(stream, interval=0.0)
    trainer = types.SimpleNamespace(step=1, total_steps=100, epoch=0)
    line.on_fit_start(trainer)
    for step, loss in ((9, 0.123456), (10, 1.0), (11, 0.5)):
        trainer.step = step
        line.on_log(trainer, {"loss": loss})
    line.on_fit_end(trainer)
    *shown, end = stream.getvalue().split("\r")[1:]
    assert end.endswith("\n")
    assert "\x1b" not in stream.getvalue()
    widths = [len(text.rstrip("\n")) for text in (*shown, end)]
    assert widths == sorted(widths)  # a shorter line erases the longer one before it
