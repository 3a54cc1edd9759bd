"""Models by name and version: folders and servers, checksums, caches, hostile indices."""

from __future__ import annotations

import errno
import functools
import http.server
import io
import json
import re
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest

from scitoolkit import api, load_surrogate
from scitoolkit.cli.main import run_cli
from scitoolkit.core.content import content_root
from scitoolkit.core.errors import BackendError, ConfigError, DataError, ScitoolkitError
from scitoolkit.core.model_card import card_of
from scitoolkit.core.model_index import add_model, cache_folder, is_reference, open_model


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SCITOOLKIT_INDEX", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.yaml").write_text("domain: forecasting\n")
    (folder / "weights.safetensors").write_bytes(bytes(range(256)) * 9000)  # several pieces
    return folder


@pytest.fixture
def index(tmp_path, model):
    for version in ("1.9", "1.10", "1.2"):
        add_model(tmp_path / "index", model, "flow", version, licence="CC0-1.0", facts={"a": 1})
    return tmp_path / "index"


@pytest.fixture
def server(index):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_arguments):
            pass

    served = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(index))
    )
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{served.server_port}"
    served.shutdown()
    served.server_close()


@pytest.mark.parametrize("behind_a_server", [False, True])
def test_a_model_is_fetched_once_and_opens_without_the_index(
    index, server, model, behind_a_server, request
):
    source = server if behind_a_server else index
    path = open_model("flow@1.9", source)
    for file in model.iterdir():
        assert (path / file.name).read_bytes() == file.read_bytes()
    entry = json.loads((path / "entry.json").read_text())
    assert (entry["licence"], entry["version"], entry["a"]) == ("CC0-1.0", "1.9", 1)
    assert open_model("flow@", source).name == "1.10"  # by number, not by letters
    index.rename(index.with_name("gone"))
    assert open_model("flow@1.9", source) == path
    with pytest.raises(DataError, match="cannot be read"):
        open_model("flow@1.2", source)


def test_unknown_names_and_versions_list_what_there_is(index, monkeypatch):
    with pytest.raises(ConfigError, match=r"no model 'flw'.*Allowed: flow.*Fix: flow@"):
        open_model("flw@1.9", index)
    with pytest.raises(ConfigError, match=r"no version '2'.*1\.2, 1\.9, 1\.10.*Fix: flow@1\.10"):
        open_model("flow@2", index)
    with pytest.raises(ConfigError, match="export SCITOOLKIT_INDEX="):
        open_model("flow@1.9")
    monkeypatch.setenv("SCITOOLKIT_INDEX", str(index))
    assert open_model("flow@1.9").name == "1.9"


def test_equal_relative_paths_in_two_folders_are_two_indices(tmp_path, monkeypatch):
    for text in ("one", "two"):
        model = tmp_path / text / "model"
        model.mkdir(parents=True)
        (model / "config.yaml").write_text(text)
        add_model(model.parent / "models", model, "flow", "1.0", licence="CC0-1.0", facts={})
    for text in ("one", "two"):
        monkeypatch.chdir(tmp_path / text)
        assert (open_model("flow@1.0", "models") / "config.yaml").read_text() == text


class FullDisk(io.BytesIO):
    def write(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_of_the_cache_is_told_as_such(index, monkeypatch):
    opened = Path.open

    def limited(path, mode="r", *arguments, **named):
        return FullDisk() if mode == "wb" else opened(path, mode, *arguments, **named)

    monkeypatch.setattr(Path, "open", limited)
    message = r"cache/scitoolkit/models/.*cannot be written \(No space left.*XDG_CACHE_HOME"
    with pytest.raises(ScitoolkitError, match=message):
        open_model("flow@1.9", index)


@pytest.mark.parametrize("change", ["a byte", "shorter", "longer", "missing"])
def test_a_file_that_differs_is_refused_and_not_kept(index, change):
    file = index / "models/flow/1.9/weights.safetensors"
    data = file.read_bytes()
    if change == "missing":
        file.unlink()
    else:
        new = {"a byte": b"\x01" + data[1:], "shorter": data[:-1], "longer": data + b"0"}[change]
        file.write_bytes(new)
    with pytest.raises(DataError, match=r"weights\.safetensors: (differs|cannot be read)"):
        open_model("flow@1.9", index)
    assert not list(cache_folder(str(index)).glob("flow/*"))
    file.write_bytes(data)
    assert open_model("flow@1.9", index).is_dir()


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("index.json", "[]"),
        ("index.json", "{"),
        ("index.json", '{"models": 3}'),
        ("index.json", "[" * 100_000),
        ("models/flow/1.9/entry.json", "{}"),
        ("models/flow/1.9/entry.json", '{"name": "flow", "version": "1.9", "files": []}'),
        ("models/flow/1.9/entry.json", '{"name": "flow", "version": "1.2", "files": {}}'),
        ("models/flow/1.9/entry.json", '{"name": "flow", "version": "1.9", "files": {"a": {}}}'),
        *(
            (
                "models/flow/1.9/entry.json",
                json.dumps(
                    {
                        "name": "flow",
                        "version": "1.9",
                        "files": {name: {"bytes": 1, "sha256": "0"}},
                    }
                ),
            )
            for name in ("../../evil", "/etc/passwd", "a/b", "..", ".hidden", "", "a\\b", "a\n")
        ),
    ],
)
def test_hostile_indices_are_refused(index, cache, file, text):
    (index / file).write_text(text)
    with pytest.raises(DataError, match=r"(index|entry)\.json|/a: no size"):
        open_model("flow@1.9", index)
    assert not list(cache.glob("**/evil"))


@pytest.mark.parametrize(
    "source", ["http://example.org/models", "ftp://example.org", "file:///etc", "https+x://a"]
)
def test_only_https_and_this_machine_are_asked(source):
    with pytest.raises(ConfigError, match="not an https address"):
        open_model("flow@1.9", source)


def test_a_published_version_is_never_replaced(index, model):
    with pytest.raises(ConfigError, match=r"version 1\.9 of flow exists already"):
        add_model(index, model, "flow", "1.9", licence="CC0-1.0", facts={})
    for name, version in (("../x", "1"), ("a", "1/2"), ("", "1"), ("a", ".."), ("a b", "1")):
        with pytest.raises(ConfigError, match="Allowed: letters"):
            add_model(index, model, name, version, licence="CC0-1.0", facts={})
    with pytest.raises(ConfigError, match="no licence"):
        add_model(index, model, "a", "1", licence=" ", facts={})
    with pytest.raises(ConfigError, match="behind a server"):
        add_model("https://a.org", model, "a", "1", licence="CC0-1.0", facts={})


def test_writers_and_readers_at_the_same_time(tmp_path, model):
    def write(number: int) -> None:
        add_model(tmp_path / "i", model, f"m{number % 2}", str(number), licence="X", facts={})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(12)))
        add_model(tmp_path / "i", model, "last", "1", licence="X", facts={})
        paths = list(pool.map(lambda _: open_model("m1@3", tmp_path / "i"), range(8)))
    assert len(set(paths)) == 1
    listed = json.loads((tmp_path / "i/index.json").read_text())["models"]
    written = [version for versions in listed.values() for version in versions]
    assert sorted(written) == sorted([*map(str, range(12)), "1"])


def test_a_surrogate_is_published_loaded_and_applied(tmp_path, monkeypatch, capsys):
    index = tmp_path / "index"
    arguments = ["sst_forecast", "ocean@1.0", "--to", str(index), "--licence", "CC0-1.0"]
    assert run_cli(["publish", *arguments]) == 0
    monkeypatch.setenv("SCITOOLKIT_INDEX", str(index))
    surrogate = load_surrogate("ocean@1.0")
    assert surrogate.path.is_relative_to(tmp_path / "cache")
    series = content_root("datasets") / "ersst_v5" / "ersstv5_monthly_2deg_201001-202008.nc"
    assert surrogate.predict(series, tmp_path / "out.nc").is_file()
    capsys.readouterr()
    assert run_cli(["publish", "sst_forecast", "ocean", "--to", str(index)]) == 2
    assert "names no version. Allowed: NAME@VERSION. Fix: ocean@1.0" in capsys.readouterr().err
    assert run_cli(["evaluate", "ocean@2"]) == 2
    assert "no version '2' of ocean" in capsys.readouterr().err
    path = surrogate.path / "config.yaml"
    lines = path.read_text().splitlines()
    own = [f"{s.partition(':')[0]}: my.nc" if s.strip().startswith("path:") else s for s in lines]
    path.write_text("\n".join(own))
    assert run_cli(["evaluate", "ocean@1.0"]) == 3
    assert "my.nc: no such file. Fix: --data FILE" in capsys.readouterr().err


def test_a_run_gets_a_card_with_data_metrics_date_and_device(tmp_path):
    import numpy as np
    import xarray as xr

    time = np.arange(96)
    values = np.sin(time[:, None] / 6 + np.arange(4)) + 0.01 * time[:, None]
    field = xr.Dataset({"t": (("time", "x"), values.astype("f4"), {"units": "K"})}, {"time": time})
    field.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    job = tmp_path / "job.yaml"
    job.write_text(
        f"domain: forecasting\ndata: {{path: a.nc, variable: t}}\nleads: 2\ninputs: 4\n"
        f"model: {{name: none}}\nforecaster: {{name: persistence}}\nrun: {{root: {tmp_path}}}\n"
    )
    run = api.run(job)
    folder = api.publish_to(run.path, tmp_path / "index", "waves@1", licence="MIT")
    card = (folder / "README.md").read_text(encoding="utf-8")
    for text in ("# waves@1", "licence MIT", "| t | K |", "rmse", "Where not to use it"):
        assert text in card
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    assert "path: a.nc\n" in config
    assert str(tmp_path) not in config
    assert ".." not in config
    assert "not recorded" not in card
    assert (folder / "facts.json").is_file()


class Hub(http.server.BaseHTTPRequestHandler):
    """A server with the addresses of the Hugging Face Hub from which models are read."""

    repositories: ClassVar[dict[str, dict[str, dict[str, bytes]]]] = {}  # OWNER/NAME: tags: files
    tokens: ClassVar[dict[bool, set[str | None]]] = {}  # of requests to the storage, and others

    def log_message(self, *_arguments):
        pass

    def do_GET(self):
        in_storage = self.path.startswith("/storage/")
        self.tokens.setdefault(in_storage, set()).add(self.headers.get("Authorization"))
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)/refs", self.path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/([^/]+)", self.path)
        if in_storage:
            repository, tag, name = self.path.removeprefix("/storage/").split(":")
            body = self.repositories[repository][tag][name]
        elif api and api[1] in self.repositories:
            tags = [{"name": tag, "ref": f"refs/tags/{tag}"} for tag in self.repositories[api[1]]]
            body = json.dumps({"branches": [], "tags": tags}).encode()
        elif file and file[3] in self.repositories.get(file[1], {}).get(file[2], {}):
            self.send_response(302)  # as for large files, which are stored elsewhere
            self.send_header("Location", f"/storage/{file[1]}:{file[2]}:{file[3]}")
            self.end_headers()
            return
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class HfApi:
    """The methods of huggingface_hub.HfApi with which models are published."""

    def create_repo(self, repo_id, *, private=None, exist_ok=False):
        assert private
        assert exist_ok
        Hub.repositories.setdefault(repo_id, {})

    def list_repo_refs(self, repo_id):
        return types.SimpleNamespace(
            tags=[types.SimpleNamespace(name=tag) for tag in Hub.repositories[repo_id]]
        )

    def upload_folder(self, *, repo_id, folder_path, commit_message, delete_patterns):
        assert delete_patterns == "*"
        self.files = {path.name: path.read_bytes() for path in folder_path.iterdir()}
        return types.SimpleNamespace(oid="0" * 40)

    def create_tag(self, repo_id, *, tag, revision):
        assert revision == "0" * 40
        Hub.repositories[repo_id][tag] = self.files


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr(Hub, "repositories", {})
    monkeypatch.setattr(Hub, "tokens", {})
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{served.server_port}")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    module = types.ModuleType("huggingface_hub")
    module.HfApi = HfApi
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    yield Hub
    served.shutdown()
    served.server_close()


def test_models_are_published_on_a_hub_and_read_without_its_package(hub, model, monkeypatch):
    (model / "README.md").write_text("# Flow\n")
    for version in ("1.9", "1.10"):
        address = add_model("hf://lab", model, "flow", version, licence="CC0-1.0", facts={"a": 1})
        assert address == f"hf://lab/flow@{version}"
    with pytest.raises(ConfigError, match=r"version 1\.9 of flow exists already"):
        add_model("hf://lab", model, "flow", "1.9", licence="CC0-1.0", facts={})
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    path = open_model("flow@", "hf://lab")
    assert path.name == "1.10"
    for file in model.iterdir():
        assert (path / file.name).read_bytes().endswith(file.read_bytes())
    card = (path / "README.md").read_text()
    assert card.startswith('---\nlicense: "cc0-1.0"\nlibrary_name: scitoolkit\n---\n')
    with pytest.raises(ConfigError, match=r"no version '2'.*Allowed: 1\.9, 1\.10"):
        open_model("flow@2", "hf://lab")
    with pytest.raises(DataError, match=r"404.*HF_TOKEN"):
        open_model("flew@1", "hf://lab")
    with pytest.raises(BackendError, match=r"scitoolkit\[hub\]"):
        add_model("hf://lab", model, "flow", "2", licence="CC0-1.0", facts={})


def test_a_token_goes_to_the_hub_and_not_to_its_storage(hub, model, monkeypatch):
    add_model("hf://lab", model, "flow", "1", licence="CC0-1.0", facts={})
    monkeypatch.setenv("HF_TOKEN", "secret")
    open_model("flow@1", "hf://lab")
    assert hub.tokens == {False: {"Bearer secret"}, True: {None}}


def test_a_hub_that_lies_is_refused(hub, model, cache, monkeypatch):
    add_model("hf://lab", model, "flow", "1", licence="CC0-1.0", facts={})
    hub.repositories["lab/flow"]["1"]["weights.safetensors"] += b"0"
    with pytest.raises(DataError, match="differs from its SHA-256"):
        open_model("flow@1", "hf://lab")
    hub.repositories["lab/empty"] = {}
    with pytest.raises(ConfigError, match="without tags"):
        open_model("empty@", "hf://lab")
    assert not list(cache.glob("*/*/1"))
    for owner in ("", "a/b", "..", "a@b"):
        with pytest.raises(ConfigError, match="names no account"):
            open_model("flow@1", f"hf://{owner}")
    monkeypatch.setenv("HF_ENDPOINT", "http://example.org")
    with pytest.raises(ConfigError, match="not an https address"):
        open_model("flow@1", "hf://lab")


def test_shipped_data_are_found_from_a_published_model_and_expected_metrics_stay(
    tmp_path, monkeypatch
):
    copy = tmp_path / "content"
    for kind in ("workflows", "surrogates", "datasets"):
        (copy / kind).mkdir(parents=True)
    monkeypatch.setattr("scitoolkit.core.publish.content_root", lambda kind: copy / kind)
    (copy / "workflows" / "waves").mkdir()
    (copy / "datasets" / "a.csv").write_text(
        "t,u\n" + "".join(f"{i},{i % 5 + i / 90}\n" for i in range(90))
    )
    job = tmp_path / "waves.yaml"
    job.write_text(
        "domain: forecasting\nworkflow: waves\ndata: {path: content/datasets/a.csv, variable: u}\n"
        "leads: 2\ninputs: 4\nmodel: {name: none}\nforecaster: {name: persistence}\n"
        f"run: {{root: {tmp_path}/runs}}\n"
    )
    run = api.run(job)
    folder = api.publish_to(run.path, tmp_path / "index", "waves@1", licence="MIT")
    assert not (copy / "workflows" / "waves" / "expected.json").exists()
    assert "path: datasets/a.csv\n" in (folder / "config.yaml").read_text(encoding="utf-8")
    api.publish(run.path, tmp_path / "shipped")
    assert (copy / "workflows" / "waves" / "expected.json").is_file()
    published = (tmp_path / "shipped" / "config.yaml").read_text(encoding="utf-8")
    assert "path: ../content/datasets/a.csv\n" in published


def test_the_card_of_a_potential_names_species_and_labels(tmp_path):
    source = content_root("surrogates") / "acac_mace"
    card = card_of(source, source, "acac@1", "MIT", "potentials")
    assert "- species: C, H, O" in card
    assert "- energy in eV" in card
    assert "| variable |" not in card


def test_what_is_a_reference():
    assert is_reference("a@1")
    assert is_reference("a@")
    assert not any(map(is_reference, ("a", "@1", "a/b@1", "a@1/2", "../a@1", "a@..x/y", "")))
