from __future__ import annotations

import os

from scitoolkit.core.config import Config
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.training.loggers import MetricsTable


def test_the_table_goes_on_after_a_cut_row(tmp_path):
    run = RunDirectory.create(tmp_path, "demo", Config())
    path = run.path / "metrics.csv"
    MetricsTable().open(run).write({"train/loss": 2.0, "a,b": 1.0}, 1)
    assert path.read_text() == 'step,name,value\n1,train/loss,2.0\n1,"a,b",1.0\n'
    os.truncate(path, path.stat().st_size - 3)
    MetricsTable().open(run).write({"train/loss": 0.5}, 2)
    assert path.read_text().splitlines()[-2:] == ['1,"a,b",1', "2,train/loss,0.5"]
