"""The page: self-contained, escaped, complete, and replaced as a whole."""

import base64
import io
import json
import re
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.config import Config
from scitoolkit.core.errors import DataError, ScitoolkitError
from scitoolkit.core.results import Lines, Maps, Multiples, Panel, Results, Series, Table, Verdict
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.reporting import page as report_page
from scitoolkit.reporting import write_report

EVIL = "<script>alert('x')</script>"
TABLES = [
    Table(title=t, columns=["model", "RMSE (K)"], rows=[[EVIL, 2.0], ["b", 1.0]], best="min")
    for t in ("First table", "Second table")
]
WIDE = Table(
    title="Wide",
    columns=[*("a_name_of_a_metric",) * 8, "configuration"],
    rows=[[*(0.5,) * 8, "nodes=16-0-16-32-16 +[0,2][1,3][2,3] head=last_state lr=0.009"]],
)
LINES = Lines(
    title="Skill", x=[1, 2], x_label="lead", y_label="K", series=[Series(label="a", y=[1, None])]
)
MAPS = Maps(title="Fields", panels=[Panel(variable="u", label="truth")], note="Land in grey.")


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path, "demo", Config())


def write_fields(run):
    data = xr.Dataset({"u": (("y", "x"), np.arange(6.0).reshape(2, 3))})
    data.to_netcdf(run.path / "results.nc", engine="h5netcdf")


def test_the_page_holds_everything_and_links_nowhere(run):
    for step in (1, 2):
        run.log_metrics({"train/loss": 1 / step, "validation/loss": 2 / step}, step=step)
    write_fields(run)
    results = Results(
        title=EVIL,
        summary=["A & B"],
        metrics={"rmse": 0.5},
        tables=TABLES,
        figures=[LINES, MAPS],
        verdict=Verdict(quantity="RMSE", ours=0.5, rival=1.0, rival_name=EVIL),
    )
    results.write(run.path)
    path = write_report(run.path)
    page = path.read_text(encoding="utf-8")
    assert path == run.report / "index.html"
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "A &amp; B" in page
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    assert "http://" not in page
    assert "https://" not in page
    places = [
        page.index(text)
        for text in ("RMSE: 0.5", "<img", "First table", "Second table", "Training")
    ]
    assert places == sorted(places)
    assert page.count('class="n best"') == 2
    assert page.count("<img alt=") == 3
    assert "Land in grey." in page


def test_embedded_images_decode_and_equal_the_files_beside_the_page(run):
    from PIL import Image

    Results(title="t", figures=[LINES]).write(run.path)
    page = write_report(run.path).read_text(encoding="utf-8")
    _, data = re.findall(r"data:image/png;base64,([^\"]+)", page)  # for phones, then for wide pages
    image = base64.b64decode(data)
    assert Image.open(io.BytesIO(image)).format == "PNG"
    (file,) = run.report.glob("*.png")
    assert file.read_bytes() == image


def test_a_run_without_fields_or_metrics_or_environment_has_a_report(run):
    (run.path / "env.json").unlink()
    Results(title="bare", tables=TABLES).write(run.path)
    page = write_report(run.path).read_text(encoding="utf-8")
    assert "not recorded" in page
    assert "<img" not in page


def test_missing_and_corrupt_files_are_named_with_a_fix(run):
    with pytest.raises(DataError, match=r"results\.json.*Fix: scitoolkit evaluate"):
        write_report(run.path)
    Results(title="t", figures=[MAPS]).write(run.path)
    with pytest.raises(DataError, match=r"results\.nc.*Fix: scitoolkit evaluate"):
        write_report(run.path)
    (run.path / "results.nc").write_bytes(b"not hdf5")
    with pytest.raises(DataError, match=r"results\.nc.*Fix: scitoolkit evaluate"):
        write_report(run.path)
    (run.path / "results.json").write_text('{"title": 1')
    with pytest.raises(DataError, match=r"results\.json"):
        write_report(run.path)
    assert not list(run.report.iterdir())


def test_metrics_that_are_not_a_log_are_refused(run):
    Results(title="t").write(run.path)
    run.metrics_path.write_text('{"value": 1}\n')
    with pytest.raises(DataError, match="name, value, unit, step"):
        write_report(run.path)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(DataError, match="not a run directory"):
        write_report(tmp_path)


def test_a_full_disk_leaves_the_page_that_was_there(run, monkeypatch):
    Results(title="old", figures=[LINES]).write(run.path)
    path = write_report(run.path)

    def full(*_):
        raise OSError(28, "No space left on device")

    Results(title="new").write(run.path)
    monkeypatch.setattr(report_page, "write_atomic", full)
    with pytest.raises(ScitoolkitError, match="No space left on device"):
        write_report(run.path)
    assert "<h1>old</h1>" in path.read_text(encoding="utf-8")


def test_images_of_an_earlier_report_are_removed(run):
    Results(title="old", figures=[LINES]).write(run.path)
    write_report(run.path)
    Results(title="new", metrics={"large": 1234.5, "small": 0.3468}).write(run.path)
    page = write_report(run.path).read_text(encoding="utf-8")
    assert not list(run.report.glob("*.png"))
    assert "0.3468" in page


def test_only_curves_of_training_are_drawn(run):
    run.log_metrics({"train/loss": 1.0, "seconds": 2.0}, step=1)
    Results(title="t").write(run.path)
    assert "Training" not in write_report(run.path).read_text(encoding="utf-8")
    run.log_metrics({"train/loss": 0.5, "seconds": 1.0, "validation/mse": 1.0}, step=2)
    page = write_report(run.path).read_text(encoding="utf-8")
    assert "loss over step" in page
    assert "seconds over step" not in page
    assert "mse over step" not in page


def test_the_import_is_light():
    code = "import sys, scitoolkit.reporting; print(*sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "matplotlib", "xarray"} & set(out.stdout.split())


def chromium():
    return shutil.which("chromium") or shutil.which("chromium-browser")


PROBE = """<script>document.title = JSON.stringify({
  height: document.documentElement.scrollHeight, overflow: document.documentElement.scrollWidth
  - innerWidth, row: document.querySelector("tbody tr").getBoundingClientRect().height,
  empty: [...document.images].filter(i => !i.naturalWidth).length,
  lead: document.querySelector(".lead img").getBoundingClientRect().bottom,
  verdict: document.querySelector(".verdict").getBoundingClientRect().bottom})</script></body>"""


@pytest.mark.skipif(chromium() is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [1280, 400])
def test_a_browser_shows_the_verdict_first_and_nothing_overflows(run, tmp_path, width):
    for step in range(1, 4):
        run.log_metrics({f"train/{name}": 1 / step for name in "abcdefgh"}, step=step)
    write_fields(run)
    verdict = Verdict(quantity="RMSE", ours=0.5, rival=1.0, rival_name="persistence", unit="K")
    metrics = {f"a_long_name_of_a_figure_of_merit_{i}": i / 7 for i in range(40)}
    Results(
        title="A run",
        summary=["One sentence."],
        verdict=verdict,
        metrics=metrics,
        tables=[WIDE, *TABLES],
        figures=[MAPS, *[LINES] * 20],
    ).write(run.path)
    page = write_report(run.path).read_text(encoding="utf-8").replace("</body>", PROBE)
    probe = tmp_path / "probe.html"
    probe.write_text(page, encoding="utf-8")
    out = subprocess.run(
        [
            chromium(),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--window-size={width},900",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            probe.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = json.loads(re.search(r"<title>(.*?)</title>", out.stdout)[1])
    assert found["overflow"] <= 0
    assert found["empty"] == 0
    assert found["row"] <= 60  # a long text beside many numbers keeps a readable width
    assert found["verdict"] < 400
    if width == 1280:
        assert found["height"] <= 4000
        assert found["lead"] <= 900


def test_panels_are_below_each_other_on_a_phone(run):
    write_fields(run)
    maps = MAPS.model_copy(update={"panels": MAPS.panels * 3})
    multiples = Multiples(title="Many", panels=[LINES] * 3)
    Results(title="A run", figures=[maps, multiples, LINES]).write(run.path)
    for step in range(1, 4):
        run.log_metrics({f"train/{name}": 1 / step for name in "ab"}, step=step)
    page = write_report(run.path).read_text(encoding="utf-8")
    sources = re.findall(
        r'<source media="\(max-width:40rem\)" srcset="data:image/png;base64,(.*?)"', page
    )
    wide = re.findall(
        r'<picture>.*?<img alt=".*?" src="data:image/png;base64,(.*?)"', page, re.DOTALL
    )
    assert len(sources) == len(wide) == 4  # maps, small multiples, lines and learning curves
    for narrow, beside in zip(sources, wide, strict=True):
        sizes = [struct.unpack(">II", base64.b64decode(png)[16:24]) for png in (narrow, beside)]
        assert sizes[0][0] <= 720  # 4.8 inches
        assert sizes[0][1] / sizes[0][0] > sizes[1][1] / sizes[1][0]
