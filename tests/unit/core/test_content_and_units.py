from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
import xarray as xr

from scitoolkit.api import load, predict
from scitoolkit.cli.main import run_cli
from scitoolkit.core import content
from scitoolkit.core.content import content_root, find_content, shipped_path
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.suggest import nearest_name
from scitoolkit.core.units import same_unit
from scitoolkit.io.campaign.open import open_campaign
from scitoolkit.io.fields import open_fields, write_fields
from scitoolkit.io.inspect import describe

SERIES = "datasets/ersst_v5/ersstv5_monthly_2deg_201001-202008.nc"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("degC", "degrees_Celsius", True),
        ("°C", "celsius", True),
        ("K", "kelvin", True),
        ("K", "degC", False),
        ("m s-1", "m/s", True),
        ("furlong", "Furlong ", True),
        ("", "1", True),
    ],
)
def test_spellings_of_one_unit(first, second, same):
    assert same_unit(first, second) is same


def test_content_lies_in_the_clone_and_unknown_kinds_are_refused():
    assert content_root("workflows").is_dir()
    with pytest.raises(ConfigError, match="workflows"):
        content_root("workflow")
    with pytest.raises(ConfigError, match="no surrogate"):
        find_content("surrogates", "no_such_surrogate")


def test_nearest_name_ignores_case_and_gives_up_on_strangers():
    assert nearest_name("SST", ["sst", "ice"]) == "sst"
    assert nearest_name("temperature", ["sst", "ice"]) is None


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def wheel(monkeypatch, tmp_path):
    """A package like that of a wheel, with one card; return the folder of fetched files."""
    package = tmp_path / "package"
    package.mkdir()
    with tarfile.open(package / content._CARDS, "w:xz") as cards:
        card = tarfile.TarInfo("datasets/ersst_v5/README.md")
        card.size = len(b"card")
        cards.addfile(card, io.BytesIO(b"card"))
    manifest = package / "manifest.json"
    manifest.write_text(json.dumps(dict.fromkeys([SERIES, "datasets/ersst_v5/README.md"], "")))
    monkeypatch.setattr(content, "_MANIFEST", manifest)
    monkeypatch.setenv(content.FOLDER_VARIABLE, str(tmp_path / "data"))
    for cached in (content._manifest, content._cards):
        cached.cache_clear()
    yield content.fetched_folder()
    for cached in (content._manifest, content._cards):
        cached.cache_clear()


def test_shipped_data_are_found_from_any_folder(elsewhere, capsys):
    with open_fields(SERIES) as series:
        assert series.sizes["time"] == 128
    with open_fields("datasets/ersst_v5/*.nc") as series:
        assert series.sizes["time"] == 128
    assert open_campaign("datasets/rayleigh_benard").found.index.num_simulations == 3
    assert open_campaign([SERIES]).found.index.num_simulations == 1
    assert describe(SERIES)["format"] == "hdf5"
    for path in (SERIES, "datasets/ersst_v5/*.nc", "datasets/rayleigh_benard"):
        assert run_cli(["inspect", path]) == 0
    assert "128" in capsys.readouterr().out
    assert predict(content_root("surrogates") / "sst_forecast", SERIES, "forecast.nc").is_file()


def test_commands_and_configurations_read_shipped_data_from_any_folder(elsewhere, capsys):
    cora = "datasets/cora/cora.npz"
    for arguments in (
        ["compress", SERIES, "sst.nc", "--rel", "1e-2", "--codec", "blocks", "--enhancer", "none"],
        ["verify", "sst.nc", SERIES],
        ["graphs", "plan", cora],
        ["graphs", "partition", cora, "parts", "--parts", "2"],
        ["validate", "sst_forecast", f"data.path={SERIES}", f"run.root={Path(SERIES).parent}"],
    ):
        assert run_cli(arguments) == 0, capsys.readouterr().err
    _, config = load("sst_forecast", [f"data.path={SERIES}", "run.root=datasets/ersst_v5"])
    assert config.data.path == content_root("datasets") / SERIES.removeprefix("datasets/")
    assert config.run.root == elsewhere / "datasets" / "ersst_v5"  # nothing is written to the data


def test_a_file_beside_the_configuration_wins(elsewhere):
    here = elsewhere / "mine" / SERIES
    here.parent.mkdir(parents=True)
    write_fields(xr.Dataset({"mine": ("x", [1.0])}), here)
    file = elsewhere / "mine" / "my.yaml"
    file.write_text(f"domain: forecasting\ndata: {{path: {SERIES}, variable: mine}}\n")
    _, config = load(file)
    assert config.data.path == here


def test_a_file_in_the_working_directory_wins(elsewhere):
    (elsewhere / SERIES).parent.mkdir(parents=True)
    write_fields(xr.Dataset({"mine": ("x", [1.0])}), elsewhere / SERIES)
    assert shipped_path(SERIES) == Path(SERIES)
    for path in (SERIES, f"{Path(SERIES).parent}/*.nc"):
        with open_fields(path) as series:
            assert list(series.data_vars) == ["mine"]


@pytest.mark.parametrize("name", ["no.nc", "datasets/no/no.nc", "datasets/ersst_v5/no.nc"])
def test_a_path_that_is_not_shipped_is_a_missing_file(name, elsewhere, capsys):
    assert shipped_path(name) == Path(name)
    with pytest.raises(DataError, match=f"^{name}: no such file$"):
        open_fields(name)
    assert run_cli(["inspect", name]) == 3
    assert capsys.readouterr().err == f"error: {name}: no such file\n"


@pytest.mark.parametrize("name", [SERIES, "datasets/ersst_v5", "datasets/ersst_v5/*.nc"])
def test_data_that_are_not_fetched_are_told_how_to_fetch(name, elsewhere, wheel, capsys):
    for reads in (shipped_path, open_fields, open_campaign, describe):
        with pytest.raises(DataError, match=r"only the card .* scitoolkit fetch SOURCE") as caught:
            reads(name)
        assert caught.value.where == name
    assert run_cli(["inspect", name]) == 3
    assert "scitoolkit fetch SOURCE" in capsys.readouterr().err
    assert shipped_path("datasets/ersst_v5/no.nc") == Path("datasets/ersst_v5/no.nc")
    (wheel / SERIES).parent.mkdir(parents=True)
    (wheel / SERIES).touch()
    assert shipped_path(SERIES) == wheel / SERIES


def test_cards_of_a_wheel_are_read_where_nothing_can_be_written(elsewhere, wheel, monkeypatch):
    (elsewhere / "file").touch()
    monkeypatch.setenv(content.FOLDER_VARIABLE, str(elsewhere / "file" / "below"))
    card = find_content("datasets", "ersst_v5", card=True) / "README.md"
    assert card.read_text() == "card"
    assert not card.is_relative_to(elsewhere)


@pytest.mark.parametrize("kept", [40, 0])
def test_a_damaged_archive_of_cards_is_named(kept, elsewhere, wheel):
    archive = content._MANIFEST.with_name(content._CARDS)
    archive.write_bytes(archive.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"damaged archive of cards .* pip install") as caught:
        find_content("datasets", "ersst_v5", card=True)
    assert caught.value.where == str(archive)
    assert [p.name for p in elsewhere.joinpath("data").iterdir()] == []


def test_a_member_outside_the_kinds_is_not_written(elsewhere, wheel):
    with tarfile.open(content._MANIFEST.with_name(content._CARDS), "w:xz") as cards:
        cards.addfile(tarfile.TarInfo("datasets/../../escaped.md"))
    with pytest.raises(DataError, match="escaped"):
        find_content("datasets", "ersst_v5", card=True)
    assert not list(elsewhere.rglob("escaped*"))


def test_a_workflow_of_a_wheel_runs_on_the_users_file_without_fetched_content(
    elsewhere, wheel, capsys
):
    folder = content._cards() / "workflows" / "plain"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("card")
    (folder / "train.yaml").write_text(
        f"domain: forecasting\ndata: {{path: ../../{SERIES}, variable: t}}\n"
        "inputs: 2\nleads: 1\nmodel: {name: none}\nforecaster: persistence\n"
    )
    series = xr.Dataset({"t": (("time", "x"), [[float(i)] for i in range(60)], {"units": "K"})})
    write_fields(series.assign_coords(time=range(60)), elsewhere / "my.nc")
    for name in ("plain", "workflows/plain"):
        assert run_cli(["validate", name]) == 3
        assert "no such file" in capsys.readouterr().err
        assert run_cli(["validate", name, "data.path=my.nc"]) == 0, capsys.readouterr().err


def test_a_folder_of_runs_names_the_newest(tmp_path):
    for name in ("20260101T000000Z-b", "20260301T000000Z-a", "20260201T000000Z-c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").touch()
    (tmp_path / "20260401T000000Z-d").mkdir()  # failed before it had a configuration
    with pytest.raises(DataError, match=r"not a run directory.*Fix: .*20260301T000000Z-a$"):
        RunDirectory.open(tmp_path)
    with pytest.raises(DataError, match=r"or surrogates/NAME$"):
        RunDirectory.open(tmp_path / "20260401T000000Z-d")
