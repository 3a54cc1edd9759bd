"""A pool over HTTP, as another process sees it: answers, limits, hostile bodies, its end."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy.export import export

NPY, JSON = "application/x-npy", "application/json"


@pytest.fixture(scope="module")
def networks(tmp_path_factory) -> tuple[Path, dict[str, nn.Module]]:
    folder, made = tmp_path_factory.mktemp("served"), {}
    for k in range(2):
        torch.manual_seed(k)
        made[f"m{k}"] = nn.Linear(4, 3).eval()
        x, y = ArraySpec("x", ("a",), (4,), low=-9.0, high=9.0), ArraySpec("y", ("b",), (3,))
        export([TracedFunction(made[f"m{k}"], [x], [y])], folder / f"m{k}.weights")
    return folder, made


def start(folder: Path, *options: str) -> tuple[subprocess.Popen, int]:
    server = subprocess.Popen(
        [sys.executable, "-m", "scitoolkit", "serve", str(folder), "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    line = server.stdout.readline()
    assert "surrogates at http://127.0.0.1:" in line, line + server.stdout.read()
    return server, int(line.split(":")[2].split("/")[0])


@pytest.fixture(scope="module")
def port(networks):
    server, number = start(networks[0], "--max-body", "1MiB")
    yield number
    server.kill()
    server.communicate()


def ask(port: int, path: str, body: bytes | None = None, kind: str = JSON):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as wire:
        headers = {} if body is None else {"Content-Type": kind}
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused while sending
            wire.request("GET" if body is None else "POST", path, body, headers)
        answer = wire.getresponse()
        return answer.status, answer.headers, answer.read()


def predict(port: int, name: str, inputs: object):
    status, _, data = ask(port, f"/models/{name}/predict", json.dumps({"inputs": inputs}).encode())
    return status, json.loads(data)


def truth(network: nn.Module, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return network(torch.from_numpy(x)).numpy()


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_answers_are_those_of_the_model_in_json_and_npy(networks, port):
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    for name, network in networks[1].items():
        status, found = predict(port, name, {"x": x.tolist()})
        assert status == 200
        assert found["status"] == [0] * 5
        np.testing.assert_allclose(found["outputs"]["y"], truth(network, x), rtol=1e-5, atol=1e-5)
        status, headers, data = ask(port, f"/models/{name}/predict", npy(x), NPY)
        assert (status, headers["X-Status"]) == (200, "0")
        np.testing.assert_allclose(
            np.load(io.BytesIO(data)), truth(network, x), rtol=1e-5, atol=1e-5
        )


def test_what_is_outside_the_box_or_not_finite_is_told(port):
    status, found = predict(port, "m0", {"x": [[0, 0, 0, 20.0], [0, 0, 0, 1e60], [0, 0, 0, 1]]})
    assert (status, found["status"]) == (200, [1, 2, 0])
    assert found["outputs"]["y"][1][0] is None


def test_the_server_says_what_it_has(port):
    assert json.loads(ask(port, "/models")[2]) == ["m0", "m1"]
    assert json.loads(ask(port, "/health")[2]) == {"status": "ok", "models": 2}
    about = json.loads(ask(port, "/models/m0")[2])
    assert about["functions"][0]["inputs"][0]["shape"] == [-1, 4]
    assert "/models/{name}/predict" in json.loads(ask(port, "/openapi.json")[2])["paths"]
    predict(port, "m0", {"x": [[0, 0, 0, 0]]})
    text = ask(port, "/metrics")[2].decode()
    assert "scitoolkit_pool_calls " in text
    assert 'scitoolkit_answers_total{status="200"}' in text


HOSTILE = {
    "no json": (b"{", JSON, 422, "not JSON"),
    "deep": (b"[" * 100_000, JSON, 422, "not JSON"),
    "deep array": (b'{"inputs": {"x": ' + b"[" * 500 + b"]" * 500 + b"}}", JSON, 422, "x"),
    "no inputs": (b"[1]", JSON, 422, "'inputs'"),
    "text of numbers": (
        b'{"inputs": {"x": [["1", "2", "3", "4"]]}}',
        JSON,
        422,
        "not an array of numbers",
    ),
    "truth values": (b'{"inputs": {"x": [[true, true, false, true]]}}', JSON, 422, "numbers"),
    "unknown input": (b'{"inputs": {"z": [1]}}', JSON, 422, "Allowed: x"),
    "ragged": (b'{"inputs": {"x": [[1, 2], [3]]}}', JSON, 422, "not an array of numbers"),
    "text": (b'{"inputs": {"x": [["a", "b", "c", "d"]]}}', JSON, 422, "not an array of numbers"),
    "shape": (b'{"inputs": {"x": [[1, 2]]}}', JSON, 422, "Allowed: float32"),
    "number": (b'{"inputs": {"x": 3}}', JSON, 422, "Allowed: float32"),
    "huge integer": (b'{"inputs": {"x": [[1, 2, 3, ' + b"9" * 5000 + b"]]}}", JSON, 422, ""),
    "large": (b" " * (2 << 20), JSON, 413, "Allowed: 1048576"),
    "kind": (b"x", "application/x-pickle", 415, "x-npy"),
    "npy of doubles": (npy(np.zeros((1, 4))), NPY, 422, "float64"),
    "npy of objects": (
        npy(np.zeros((1, 4), np.float32)).replace(b"'<f4'", b"'|O8'"),
        NPY,
        422,
        "npy",
    ),
    "npy that promises more": (
        npy(np.zeros((1, 4), np.float32)).replace(b"(1, 4), }     ", b"(999999999, 4), }"),
        NPY,
        422,
        "npy",
    ),
    "npy with code": (b"\x93NUMPY\x01\x00\x14\x00__import__('os').x()\n", NPY, 422, "npy"),
    "a pickle": (b"\x80\x04cos\nsystem\n", NPY, 422, "npy"),
}


@pytest.mark.parametrize("case", list(HOSTILE))
def test_hostile_bodies_are_refused_and_the_server_goes_on(port, case):
    body, kind, wanted, text = HOSTILE[case]
    status, _, data = ask(port, "/models/m0/predict", body, kind)
    assert status == wanted, data
    assert text in json.loads(data)["error"]
    assert predict(port, "m0", {"x": [[0, 0, 0, 0]]})[0] == 200


def test_a_body_without_a_length_is_cut_at_the_limit(port):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as wire:
        wire.sendall(
            b"POST /models/m0/predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        part = b"10000\r\n" + b" " * 65536 + b"\r\n"
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(40):
                wire.sendall(part)
        assert wire.recv(100).startswith(b"HTTP/1.1 413")


def test_unknown_names_and_functions_are_not_found(port):
    status, found = predict(port, "m7", {"x": [[0, 0, 0, 0]]})
    assert status == 404
    assert "m7" in found["error"]
    assert ask(port, "/models/m7")[0] == 404
    body = b'{"inputs": {"x": [[0, 0, 0, 0]]}}'
    assert ask(port, "/models/m0/predict?function=rhs", body)[0] == 404


def test_many_clients_at_a_time_get_each_their_own_answer(networks, port):
    def client(seed: int) -> bool:
        x = np.random.default_rng(seed).normal(size=(1 + seed % 3, 4)).astype(np.float32)
        status, found = predict(port, f"m{seed % 2}", {"x": x.tolist()})
        own = truth(networks[1][f"m{seed % 2}"], x)
        return status == 200 and np.allclose(found["outputs"]["y"], own, atol=1e-5)

    with ThreadPoolExecutor(8) as clients:
        assert all(clients.map(client, range(120)))


def test_a_server_that_is_ended_answers_what_it_began(networks):
    server, number = start(networks[0])
    body = json.dumps({"inputs": {"x": np.zeros((20_000, 4)).tolist()}}).encode()
    answers = []
    clients = [
        threading.Thread(target=lambda: answers.append(ask(number, "/models/m0/predict", body)))
        for _ in range(3)
    ]
    for client in clients:
        client.start()
    while b"calls 0" in ask(number, "/metrics")[2]:
        pass
    os.kill(server.pid, signal.SIGTERM)
    for client in clients:
        client.join(60)
    server.communicate(timeout=60)
    assert [a[0] for a in answers].count(200) >= 1
    with pytest.raises(ConnectionRefusedError):
        ask(number, "/health")


def test_a_folder_without_surrogates_is_refused(tmp_path):
    found = subprocess.run(
        [sys.executable, "-m", "scitoolkit", "serve", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 3, found
    assert "no .weights files" in found.stderr
