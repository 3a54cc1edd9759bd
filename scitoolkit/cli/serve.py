"""`scitoolkit serve`: surrogates over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.log import setup_logging

NAME = "serve"


def command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Folder of NAME.weights files written by `scitoolkit export`."
        ),
    ],
    budget: Annotated[str, typer.Option("--budget", help="Memory for all weights.")] = "1GiB",
    host: Annotated[
        str, typer.Option("--host", help="Address to bind; 0.0.0.0 for all interfaces.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0 for any free port.")] = 8000,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Number of threads.")] = 2,
    queue: Annotated[
        int, typer.Option("--queue", min=1, help="Largest number of waiting requests.")
    ] = 1000,
    max_body: Annotated[
        str, typer.Option("--max-body", help="Largest size of a request.")
    ] = "16MiB",
    timeout: Annotated[
        float, typer.Option("--timeout", help="Time limit of a request in seconds.")
    ] = 60.0,
    verbose: options.Verbose = False,
) -> None:
    """Serve surrogates over HTTP, with a shared memory budget for their weights."""
    from scitoolkit.core.errors import DataError, missing_extra
    from scitoolkit.core.units import parse_bytes

    try:
        import uvicorn

        from scitoolkit.deploy.server import application
    except ModuleNotFoundError as error:
        raise missing_extra(str(error.name), "serve", "serving surrogates") from None
    from scitoolkit.deploy.packed import SUFFIX
    from scitoolkit.deploy.pool import Pool

    setup_logging(verbose=verbose)
    files = sorted(folder.glob(f"*{SUFFIX}"))
    if not files:
        raise DataError(
            f"no {SUFFIX} files",
            where=str(folder),
            fix=f"scitoolkit export RUN -o {folder}/NAME{SUFFIX}",
        )
    limit = parse_bytes(max_body, key="--max-body")
    pool = Pool(budget, workers=workers, queue=queue)
    for file in files:
        pool.add(file.stem, file)
    app = application(pool, max_bytes=limit, seconds=timeout)
    level = "info" if verbose else "warning"
    config = uvicorn.Config(app, host=host, port=port, log_level=level, server_header=False)
    server = uvicorn.Server(config)
    address = config.bind_socket()
    address.listen(config.backlog)  # connections from now on are answered once the server is up
    name, number = address.getsockname()[:2]
    print(f"serving {len(files)} surrogates at http://{name}:{number}/docs", flush=True)
    server.run([address])
