"""HTTP server of a pool of surrogates, which joins concurrent requests.

A FastAPI application served by uvicorn; this module defines requests and answers. Nothing is
unpickled.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import tokenize
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from scitoolkit.core.environment import package_version
from scitoolkit.core.errors import BackendError, CheckpointError, DataError, ScitoolkitError
from scitoolkit.deploy.pool import Pool

NPY = "application/x-npy"
JSON = "application/json"
_DAMAGED = (
    *(ValueError, EOFError, KeyError, TypeError, SyntaxError, OverflowError, RecursionError),
    tokenize.TokenError,
)


class Refused(Exception):
    """An error answer to a request.

    Args:
        status: HTTP status.
        error: the error, with its fix.
    """

    def __init__(self, status: int, error: ScitoolkitError | str) -> None:
        super().__init__(str(error))
        self.status = status


def application(pool: Pool, *, max_bytes: int, seconds: float) -> FastAPI:
    """Return the application that serves a pool and closes it at shutdown.

    Args:
        pool: of surrogates.
        max_bytes: largest body of a request.
        seconds: time limit of a request.

    Example:
        >>> app = application(Pool("1MiB"), max_bytes=1 << 20, seconds=60)
        >>> "/models/{name}/predict" in app.openapi()["paths"]
        True
    """
    counts: dict[int, int] = {}

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(pool.close)

    app = FastAPI(
        title="scitoolkit surrogates",
        version=package_version("scitoolkit") or "unknown",
        lifespan=lifespan,
    )

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        counts[error.status] = counts.get(error.status, 0) + 1
        later = {"Retry-After": "1"} if error.status == 503 else None
        return JSONResponse({"error": str(error)}, error.status, headers=later)

    @app.get("/health", summary="Whether the server answers, and for how many surrogates.")
    def health() -> dict[str, Any]:
        return {"status": "ok", "models": len(pool.names())}

    @app.get("/models", summary="Names of all surrogates.")
    def models() -> list[str]:
        return pool.names()

    @app.get("/models/{name}", summary="Functions, arrays, units and boxes of a surrogate.")
    def about(name: str) -> dict[str, Any]:
        try:
            return pool.about(name)
        except DataError as error:
            raise Refused(404, error) from None

    @app.get("/metrics", summary="Counts, in the text format of Prometheus.")
    def metrics() -> Response:
        return PlainTextResponse(prometheus(pool.statistics(), counts))

    @app.post(
        "/models/{name}/predict",
        summary="Outputs of a surrogate, and the status of each sample.",
        openapi_extra={"requestBody": {"required": True, "content": _CONTENT}},
    )
    async def predict(name: str, request: Request, function: str = "") -> Response:
        kind = request.headers.get("content-type", JSON).split(";")[0].strip().lower()
        if kind not in (JSON, NPY):
            raise Refused(415, f"content-type {kind!r}. Allowed: {JSON}, {NPY}")
        body = await _body(request, max_bytes)
        try:
            described = _described(pool, name, function)
            inputs = await asyncio.to_thread(_inputs, body, kind, described["inputs"])
            future = asyncio.wrap_future(pool.submit(name, *inputs, function=function))
            outputs, status = await asyncio.wait_for(future, seconds)
        except TimeoutError:
            raise Refused(504, f"no answer within {seconds:g} seconds") from None
        except CheckpointError as error:
            raise Refused(500, error) from None
        except DataError as error:
            raise Refused(422, error) from None
        except BackendError as error:
            raise Refused(503, error) from None
        counts[200] = counts.get(200, 0) + 1
        if kind == NPY:
            return await asyncio.to_thread(_npy, outputs, status)
        return await asyncio.to_thread(_json, described["outputs"], outputs, status)

    return app


_CONTENT = {
    JSON: {
        "schema": {
            "type": "object",
            "required": ["inputs"],
            "additionalProperties": False,
            "properties": {
                "inputs": {
                    "type": "object",
                    "description": "Nested lists by input, the sample first; without "
                    "samples for inputs that all samples share.",
                    "additionalProperties": {"type": "array", "items": {}},
                }
            },
        }
    },
    NPY: {
        "schema": {
            "type": "string",
            "format": "binary",
            "description": "float32, C order, of a surrogate with one input",
        }
    },
}


async def _body(request: Request, max_bytes: int) -> bytes:
    """Return the body, reading at most `max_bytes`."""
    told = request.headers.get("content-length", "0")
    parts, size = [], 0
    if told.isdigit() and int(told) > max_bytes:
        raise Refused(413, f"a body of {told} bytes. Allowed: {max_bytes}")
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise Refused(413, f"a body of more than {max_bytes} bytes")
        parts.append(part)
    return b"".join(parts)


def _described(pool: Pool, name: str, function: str) -> Mapping[str, Any]:
    try:
        about = pool.about(name)
    except DataError as error:
        raise Refused(404, error) from None
    for entry in about["functions"]:
        if entry["name"] == function:
            return entry
    names = ", ".join(repr(f["name"]) for f in about["functions"])
    raise Refused(404, f"no function {function!r}. Allowed: {names}")


def _inputs(body: bytes, kind: str, specs: Sequence[Mapping[str, Any]]) -> list[np.ndarray]:
    """Return the arrays in the body of a request.

    Raises:
        DataError: invalid JSON or npy, missing or unknown inputs, or values that are not numbers.
    """
    if kind == NPY:
        return [_array(body)]
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise DataError("the body is not JSON") from None
    names = [spec["name"] for spec in specs]
    if not isinstance(fields, dict) or set(fields) != {"inputs"}:
        raise DataError("the body is not an object with the key 'inputs'")
    entries = fields["inputs"]
    if not isinstance(entries, dict) or set(entries) != set(names):
        raise DataError("inputs are missing or unknown", allowed=", ".join(names))
    out = []
    for spec in specs:
        try:
            array = np.array(entries[spec["name"]])
            if array.dtype.kind in "USb":  # which NumPy would convert
                raise ValueError
            array = np.array(array, dtype=np.float32, order="C")
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise DataError(f"{spec['name']} is not an array of numbers") from None
        out.append(array)
    return out


def _array(body: bytes) -> np.ndarray:
    """Return the array of an npy file in memory, whose header must match its length."""
    file = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(file)
        if dtype.hasobject or fortran:
            raise ValueError("objects, or Fortran order")
        return np.frombuffer(body, dtype, offset=file.tell()).reshape(shape)
    except _DAMAGED as error:
        text = " ".join(str(error).split())[:200]
        raise DataError(f"not an npy file of numbers in C order ({text})") from None


def _npy(outputs: Sequence[np.ndarray], status: np.ndarray) -> Response:
    if len(outputs) != 1:
        raise Refused(415, f"{len(outputs)} outputs do not fit one array. Allowed: {JSON}")
    file = io.BytesIO()
    np.save(file, outputs[0])
    told = {"X-Status": str(int(status.max(initial=0)))}
    return Response(file.getvalue(), media_type=NPY, headers=told)


def _json(
    specs: Sequence[Mapping[str, Any]], outputs: Sequence[np.ndarray], status: np.ndarray
) -> Response:
    """Return an answer in JSON; numbers that are not finite are null."""
    named = {
        spec["name"]: (o if (finite := np.isfinite(o)).all() else _nulls(o, finite)).tolist()
        for spec, o in zip(specs, outputs, strict=True)
    }
    return Response(json.dumps({"outputs": named, "status": status.tolist()}), media_type=JSON)


def _nulls(values: np.ndarray, finite: np.ndarray) -> np.ndarray:
    out = values.astype(object)
    out[~finite] = None
    return out


def prometheus(statistics: Mapping[str, int], answers: Mapping[int, int]) -> str:
    """Return counts in the text format of Prometheus.

    Example:
        >>> print(prometheus({"hits": 3}, {200: 2}), end="")
        scitoolkit_pool_hits 3
        scitoolkit_answers_total{status="200"} 2
    """
    lines = [f"scitoolkit_pool_{key} {value}" for key, value in statistics.items()]
    lines += [f'scitoolkit_answers_total{{status="{k}"}} {v}' for k, v in sorted(answers.items())]
    return "\n".join(lines) + "\n"
