"""Values behind URLs, references and Icechunk equal those that were written, or are refused."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import threading

import fsspec
import h5py
import numpy as np
import pytest
import xarray as xr
import yaml

import scitoolkit
from scitoolkit.core.errors import DataError, ScitoolkitError
from scitoolkit.core.jobs import job_for_task
from scitoolkit.core.remote import local_path, url_of
from scitoolkit.core.starter import DataToStart
from scitoolkit.io.campaign import open_campaign
from scitoolkit.io.campaign.rows import row_sets
from scitoolkit.io.fields import open_fields
from scitoolkit.io.formats.base import format_of


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class Server(http.server.SimpleHTTPRequestHandler):
    """Server of a folder that lists it and knows ranges of bytes."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        path = self.translate_path(self.path)
        if not self.ranges or wanted is None or not os.path.isfile(path):
            return super().do_GET()
        with open(path, "rb") as file:
            data = file.read()
        first = int(wanted[1]) if wanted[1] else len(data) - int(wanted[2])
        last = int(wanted[2]) if wanted[1] and wanted[2] else len(data) - 1
        part = data[first : last + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)
        return None

    ranges = True


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A folder, and the URL of a server of it."""
    folder = tmp_path / "served"
    folder.mkdir()
    monkeypatch.setattr(Server, "ranges", True)
    handler = functools.partial(Server, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def waves(seed=0, rows=12):
    u = np.random.default_rng(seed).standard_normal((rows, 8, 9)).astype("f4")
    data = xr.Dataset({"u": (("time", "y", "x"), u)}, {"time": np.arange(rows + 0.0)})
    data.u.encoding["chunks"] = (5, 8, 9)
    return data


def to_zarr(data, path, version=3, **options):
    fill = {"fill_value": 0.0} if version == 3 else {"_FillValue": None}
    encoding = {"u": {"chunks": (5, 8, 9), **fill, **options}}
    data.to_zarr(path, encoding=encoding, zarr_format=version, consolidated=False)


def values(path, simulation=0):
    campaign = open_campaign(path, ["u"])
    rows = row_sets(campaign)["u"]
    return rows.members([simulation], 0, int(campaign.index.bounds[1]))[0]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("shards", [None, (10, 8, 9)])
def test_a_store_behind_a_url_is_read_where_it_is(served, version, shards):
    folder, url = served
    data = waves()
    more = {"shards": shards} if shards and version == 3 else {}
    to_zarr(data, folder / "a.zarr", version, **more)
    assert np.array_equal(values(f"{url}/a.zarr"), data.u.values)
    with open_fields(f"{url}/a.zarr") as opened:
        assert np.array_equal(opened.u.values, data.u.values)
    assert local_path(f"{url}/a.zarr").stat().st_size < 20000  # references, no values


def test_folders_of_a_store_are_asked_for_at_once(served, monkeypatch):
    folder, url = served
    to_zarr(waves(rows=40), folder / "a.zarr")
    waiting, most, lock, answer = [0], [0], threading.Lock(), Server.do_GET

    def slow(self):
        with lock:
            waiting[0] += 1
            most[0] = max(most[0], waiting[0])
        threading.Event().wait(0.05)
        with lock:
            waiting[0] -= 1
        return answer(self)

    monkeypatch.setattr(Server, "do_GET", slow)
    found = json.loads(local_path(f"{url}/a.zarr").read_text())["refs"]
    assert {f"u/c/{k}/0/0" for k in range(8)} <= set(found)
    assert most[0] >= 4


@pytest.mark.parametrize("shards", [None, (10, 8, 9)])
def test_a_chunk_that_a_remote_store_lacks_is_refused(served, shards):
    folder, url = served
    more = {"shards": shards} if shards else {}
    to_zarr(waves(), folder / "a.zarr", **more)
    assert values(f"{url}/a.zarr").shape == (12, 8, 9)
    (folder / "a.zarr" / "u" / "c" / "1" / "0" / "0").unlink()
    with pytest.raises(DataError, match="rows 10 to 11" if shards else "rows 5 to 9"):
        values(f"{url}/a.zarr")


def test_an_object_that_vanishes_while_it_is_read_is_refused(served):
    folder, url = served
    to_zarr(waves(), folder / "a.zarr")
    campaign = open_campaign(f"{url}/a.zarr", ["u"])
    rows = row_sets(campaign)["u"]
    (folder / "a.zarr" / "u" / "c" / "1" / "0" / "0").unlink()
    with pytest.raises(DataError, match="cannot be read"):
        rows.members([0], 0, 12)


def test_a_file_behind_a_url_is_copied_once_and_again_if_it_changes(served):
    folder, url = served
    for seed, rows in ((0, 12), (1, 14)):
        data = waves(seed, rows)
        data.to_netcdf(folder / "a.nc", engine="h5netcdf")
        for _ in range(2):
            assert np.array_equal(values(f"{url}/a.nc"), data.u.values)


@pytest.mark.parametrize("named", ["", "run*", "run*.zarr"])
def test_folders_and_patterns_of_urls(served, named):
    folder, url = served
    for number in range(2):
        to_zarr(waves(number), folder / f"run{number}.zarr")
    if not named.endswith(".zarr"):
        waves(2).to_netcdf(folder / "run2.nc", engine="h5netcdf")
    found = open_campaign(f"{url}/{named}", ["u"])
    assert found.index.num_simulations == (2 if named.endswith(".zarr") else 3)
    assert np.array_equal(values(f"{url}/{named}", 1), waves(1).u.values)
    (folder / "run1.zarr").rename(folder / "other")
    assert open_campaign(f"{url}/run*", ["u"]).index.num_simulations < 3


def test_files_of_one_name_in_two_folders_are_two(served):
    folder, url = served
    for number, text in enumerate(("one", "two")):
        (folder / f"run{number}").mkdir()
        (folder / f"run{number}" / "data.nc").write_text(text)
    for _ in range(2):
        pattern = local_path(f"{url}/run*/data.nc")
        texts = [p.read_text() for p in sorted(pattern.parent.glob("[!.]*"))]
        assert texts == ["one", "two"]


def test_a_store_beside_a_file_of_its_references_name():
    files = fsspec.filesystem("memory")
    files.pipe({"/both/x/zarr.json": b"{}", "/both/x/c/0": b"1", "/both/x.json": b"[]"})
    names = [p.name for p in local_path("memory://both/*").parent.glob("[!.]*")]
    assert len(names) == 2


@pytest.mark.parametrize("stated", [True, False])
def test_a_file_rewritten_with_equal_size_is_read_anew(served, monkeypatch, stated):
    folder, url = served
    if not stated:
        send = Server.send_header
        hidden = ("Last-Modified",)
        monkeypatch.setattr(
            Server, "send_header", lambda self, k, v: None if k in hidden else send(self, k, v)
        )
    for number, text in enumerate(("one", "two")):
        (folder / "a.txt").write_text(text)
        os.utime(folder / "a.txt", (10**9 + 60 * number,) * 2)
        assert local_path(f"{url}/a.txt").read_text() == text


def test_a_signed_address_is_read(served):
    folder, url = served
    (folder / "a.txt").write_text("one")
    path = local_path(f"{url}/a.txt?sig=1*/")
    assert (path.name, path.read_text()) == ("a.txt", "one")


def test_links_of_a_page_with_queries(served):
    folder, url = served
    (folder / "a.txt").write_text("one")
    (folder / "index.html").write_text('<a href="?C=N;O=D">Name</a> <a href="a.txt?sig=1">a</a>')
    names = [p.name for p in local_path(f"{url}/").parent.glob("[!.]*")]
    assert names == ["a.txt"]


def test_what_is_not_there_is_named(served):
    _, url = served
    for name in ("none.nc", "none.zarr", "none*.nc"):
        with pytest.raises(DataError, match=r"no (such )?file"):
            open_campaign(f"{url}/{name}")
    with pytest.raises(DataError, match="cannot be reached"):
        open_campaign("http://127.0.0.1:9/a.nc")


def test_a_job_on_a_url_runs(served, tmp_path):
    folder, url = served
    for number in range(3):
        to_zarr(waves(number), folder / f"run{number}.zarr")
    path = f"{url}/run*.zarr"
    text = job_for_task("emulate").starter(DataToStart([path], [path]))
    assert yaml.safe_load(text)["data"]["path"] == path
    job = tmp_path / "job.yaml"
    job.write_text(text)
    changes = [f"run.root={tmp_path}", "training.steps=1", "~training.schedule"]
    assert scitoolkit.train(job, changes)


@pytest.mark.parametrize("text", ["s3://b/a.zarr", "https://h/x/a.nc", "gs://b/*.nc"])
def test_urls_survive_being_paths(text):
    from pathlib import Path

    assert url_of(text) == url_of(Path(text)) == text


@pytest.mark.parametrize("text", ["a.nc", "/s3/a", "s3/a", "c:/a", "./http:/a", "s3://"])
def test_other_paths_are_no_urls(text):
    assert url_of(text) == ""


def references(folder, data, *, version=1, source=""):
    """Write an HDF5 file, and references to its chunks."""
    u = data.u.values
    with h5py.File(folder / "a.h5", "w") as file:
        stored = file.create_dataset("u", data=u, chunks=(5, 8, 9), compression="gzip")
        chunks = [stored.id.get_chunk_info(k) for k in range(stored.id.get_num_chunks())]
    array = {
        "zarr_format": 2,
        "shape": u.shape,
        "chunks": (5, 8, 9),
        "dtype": "<f4",
        "compressor": {"id": "zlib", "level": 4},
        "filters": None,
        "fill_value": 0.0,
        "order": "C",
    }
    found = {".zgroup": '{"zarr_format": 2}', "u/.zarray": json.dumps(array)}
    found["u/.zattrs"] = json.dumps({"_ARRAY_DIMENSIONS": ["time", "y", "x"]})
    for chunk in chunks:
        key = f"u/{chunk.chunk_offset[0] // 5}.0.0"
        found[key] = [source or str(folder / "a.h5"), chunk.byte_offset, chunk.size]
    path = folder / "a.json"
    path.write_text(json.dumps(found if version == 0 else {"version": 1, "refs": found}))
    return path


@pytest.mark.parametrize("version", [0, 1])
def test_references_are_read(tmp_path, version):
    data = waves()
    path = references(tmp_path, data, version=version)
    assert format_of(path).name == "zarr"
    assert np.array_equal(values(path), data.u.values)


def changed(path, **parts):
    found = json.loads(path.read_text())
    path.write_text(json.dumps(found | parts))
    return path


def test_templates_of_references_are_written_out(tmp_path):
    data = waves()
    path = references(tmp_path, data, source="{{f(name='a')}}")
    templates = {"root": str(tmp_path), "f": str(tmp_path) + "/{{name}}.h5"}
    assert np.array_equal(values(changed(path, templates=templates)), data.u.values)
    path = references(tmp_path, data, source="{{root}}/a.h5")
    assert np.array_equal(values(changed(path, templates=templates)), data.u.values)
    with pytest.raises(DataError, match="cannot be written out"):
        values(changed(path, templates={"f": "none"}))


def test_rules_that_generate_references(tmp_path):
    """Chunks without a filter lie at equal distances, which a rule describes."""
    data = waves(rows=10)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        stored = file.create_dataset("u", data=data.u.values, chunks=(5, 8, 9))
        first = min(stored.id.get_chunk_info(k).byte_offset for k in range(2))
        length = stored.id.get_chunk_info(0).size
    array = {"zarr_format": 2, "shape": (10, 8, 9), "chunks": (5, 8, 9), "dtype": "<f4"}
    array |= {"compressor": None, "filters": None, "fill_value": 0.0, "order": "C"}
    refs = {".zgroup": {"zarr_format": 2}, "u/.zarray": array}
    refs["u/.zattrs"] = {"_ARRAY_DIMENSIONS": ["time", "y", "x"]}
    rule = {
        "key": "u/{{i}}.0.0",
        "url": "{{root}}/a.h5",
        "offset": f"{{{{{first} + {length} * i}}}}",
        "length": str(length),
        "dimensions": {"i": {"stop": 2}},
    }
    path = tmp_path / "a.json"
    rules = {"version": 1, "templates": {"root": str(tmp_path)}, "gen": [rule]}
    path.write_text(json.dumps(rules | {"x": 1, "refs": refs}))
    with pytest.raises(DataError, match="not a part of references"):
        values(path)
    path.write_text(json.dumps(rules | {"refs": refs}))
    assert np.array_equal(values(path), data.u.values)
    rule["dimensions"] = {"i": [0, 1]}
    path.write_text(json.dumps(rules | {"gen": [rule], "refs": refs}))
    assert np.array_equal(values(path), data.u.values)
    del rule["length"]
    path.write_text(json.dumps(rules | {"gen": [rule], "refs": refs}))
    with pytest.raises(DataError, match=r"gen\[0\].*only one of offset and length"):
        values(path)


@pytest.mark.parametrize(
    "parts",
    [
        {"version": 2},
        {"templates": ["a"]},
        {"gen": {"key": "u"}},
        {"gen": [{"key": "u", "url": "a"}]},
        {"gen": [{"key": "u", "url": "a", "dimensions": {"i": 3}}]},
        {"gen": [{"key": "u", "url": "a", "dimensions": {"i": {"stop": 10**9}}}]},
        {"refs": {".zgroup": "{}", "u/0": ["a", 0]}},
        {"refs": {".zgroup": "{}", "u/0": ["a", -1, 3]}},
    ],
)
def test_references_that_are_none_are_refused(tmp_path, parts):
    path = changed(references(tmp_path, waves()), **parts)
    with pytest.raises(DataError, match=r"a\.json"):
        values(path)


def test_references_of_two_protocols_are_read(served):
    folder, url = served
    data = waves()
    path = references(folder, data)
    found = json.loads(path.read_text())
    found["refs"]["u/1.0.0"][0] = f"{url}/a.h5"
    found["refs"]["u/2.0.0"][0] = f"file://{folder}/a.h5"
    path.write_text(json.dumps(found))
    assert np.array_equal(values(path), data.u.values)
    found["refs"]["u/1.0.0"][0] = "nonsense://a.h5"
    path.write_text(json.dumps(found))
    with pytest.raises(DataError, match="nonsense"):
        values(path)


def test_a_store_that_is_written_further_is_opened_anew(tmp_path):
    """The time of a folder does not change with the files in the folders below it."""
    from scitoolkit.io.loader.stores import _state

    for names in (("a.parq/u/refs.0.parq", "a.parq/.zmetadata"), ("b/refs/x/ref.json", "b/repo")):
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("1")
        (tmp_path / "b" / "snapshots").mkdir(parents=True, exist_ok=True)
        root = tmp_path / names[0].split("/")[0]
        for name in names:
            before, folder = _state(root), root.stat().st_mtime_ns
            (tmp_path / name).write_text("22")
            assert _state(root) != before
            assert root.stat().st_mtime_ns == folder


def test_references_to_a_server_are_read(served, tmp_path):
    folder, url = served
    data = waves()
    path = references(folder, data, source=f"{url}/a.h5")
    assert np.array_equal(values(path), data.u.values)
    assert np.array_equal(values(f"{url}/a.json"), data.u.values)


@pytest.mark.parametrize("kind", ["references", "shards"])
def test_servers_that_know_no_ranges_are_refused(served, monkeypatch, kind):
    folder, url = served
    to_zarr(waves(), folder / "a.zarr", shards=(10, 8, 9))
    path = references(folder, waves(), source=f"{url}/a.h5")
    monkeypatch.setattr(Server, "ranges", False)
    with pytest.raises(DataError, match=r"bytes were received for|cannot be read"):
        values(path if kind == "references" else f"{url}/a.zarr")


@pytest.mark.parametrize("key", ["u/1.0.0", "u/2.0.0"])
def test_a_reference_that_is_missing_is_refused(tmp_path, key):
    path = references(tmp_path, waves())
    found = json.loads(path.read_text())
    del found["refs"][key]
    path.write_text(json.dumps(found))
    with pytest.raises(DataError, match="have no chunk"):
        values(path)


def test_references_to_a_file_that_is_gone_are_refused(tmp_path):
    path = references(tmp_path, waves())
    (tmp_path / "a.h5").rename(tmp_path / "b.h5")
    with pytest.raises(DataError, match="cannot be read"):
        values(path)


def test_statistics_of_references_are_not_kept(tmp_path):
    # The file that they refer to may change without them.
    campaign = open_campaign(references(tmp_path, waves()), ["u"])
    assert campaign.segments.stored(0, "u").virtual


def test_other_json_is_no_store(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}')
    with pytest.raises(DataError, match="not recognised"):
        format_of(path)


def test_a_repository_of_icechunk_without_its_package_is_refused(tmp_path, monkeypatch):
    import sys

    for name in ("snapshots", "refs"):
        (tmp_path / "repository" / name).mkdir(parents=True)
    monkeypatch.setitem(sys.modules, "icechunk", None)
    with pytest.raises(ScitoolkitError, match=r"scitoolkit\[icechunk\]"):
        open_campaign(tmp_path / "repository")


def test_a_store_in_s3(tmp_path, monkeypatch):
    pytest.importorskip("s3fs")  # make test-peers
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    import s3fs

    data = waves()
    to_zarr(data, tmp_path / "a.zarr")
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    files = s3fs.S3FileSystem(endpoint_url=f"http://{host}:{port}")
    files.mkdir("bucket")
    for name in ("a.zarr", "a.nc"):
        files.put(str(tmp_path / name), f"bucket/{name}", recursive=True)
    try:
        for name in ("a.zarr", "a.nc"):
            assert np.array_equal(values(f"s3://bucket/{name}"), data.u.values)
        files.rm("bucket/a.zarr/u/c/1/0/0")
        with pytest.raises(DataError, match="rows 5 to 9"):
            values("s3://bucket/a.zarr")
    finally:
        server.stop()


def test_files_of_one_name_in_two_folders_are_two_files():
    memory = fsspec.filesystem("memory")
    for run, text in (("r1", b"one"), ("r2", b"two"), ("r10", b"ten")):
        memory.pipe(f"/runs/{run}/data.nc", text)
    pattern = local_path("memory://runs/*/data.nc")
    assert sorted(p.read_bytes() for p in pattern.parent.glob("[!.]*")) == [b"one", b"ten", b"two"]


def test_a_file_that_was_written_again_with_its_size_is_copied_again(served):
    folder, url = served
    for text in (b"first", b"other"):
        (folder / "a.nc").write_bytes(text)
        os.utime(folder / "a.nc", (0, 10**9 if text == b"first" else 10**9 + 60))
        assert local_path(f"{url}/a.nc").read_bytes() == text


def test_the_query_of_an_address_is_no_pattern(served):
    folder, url = served
    (folder / "a.nc").write_bytes(b"text")
    path = local_path(f"{url}/a.nc?X-Amz-Signature=abc")
    assert path.read_bytes() == b"text"
    assert path.name == "a.nc"
