"""Entry point of `scitoolkit`: commands, exit codes and top-level error handling.

Results go to stdout, the log to stderr; `--json` prints exactly one object, also for errors.
Command modules import nothing heavy at module level, so that `scitoolkit --help` is fast.
"""

from __future__ import annotations

import _thread
import importlib.util
import io
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from scitoolkit import __version__
from scitoolkit.cli import _options as options
from scitoolkit.cli import (
    bench,
    codec,
    compress,
    content,
    doctor,
    evaluate,
    export,
    generate,
    graphs,
    init,
    inspect,
    lammps,
    new,
    ops,
    predict,
    publish,
    report,
    run,
    runs,
    schema,
    search,
    serve,
    tour,
    train,
    validate,
)
from scitoolkit.core.errors import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    ScitoolkitError,
    damaged_file,
    system_error,
)
from scitoolkit.core.processes import current_rank
from scitoolkit.core.suggest import nearest_name
from scitoolkit.core.uncaught import install_hooks, print_unraisable

# Newer typer carries click inside, older depends on it: take the class from what typer exports.
_ClickException = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


app: typer.Typer = typer.Typer(
    name="scitoolkit",
    cls=options.CommandGroup,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Train surrogates on simulation data, search architectures, compress output."""
    if version:
        print(f"scitoolkit {__version__}")
        raise typer.Exit()
    if context.invoked_subcommand is None:
        print(context.get_help())
        print("\nStart with: scitoolkit tour, scitoolkit run sst_forecast, scitoolkit doctor")


for module in (
    tour,
    run,
    train,
    search,
    generate,
    evaluate,
    predict,
    export,
    serve,
    publish,
    inspect,
    report,
):
    app.command(module.NAME, cls=getattr(module, "KIND", None))(module.command)
app.command("compress")(compress.compress)
app.command("decompress")(compress.decompress)
app.command("verify")(compress.verify)
app.command("ls")(content.ls)
app.command("show")(content.show)
app.command("cp")(content.cp)
app.command("fetch")(content.fetch)
app.command(init.NAME)(init.command)
app.command(new.NAME)(new.command)
app.command(validate.NAME)(validate.command)
app.command(schema.NAME)(schema.command)
app.command(doctor.NAME)(doctor.command)
app.add_typer(bench.app, name="bench")
app.add_typer(codec.app, name="codec")
app.add_typer(graphs.app, name="graphs")
app.add_typer(lammps.app, name="lammps")
app.add_typer(ops.app, name="ops")
app.add_typer(runs.app, name="runs")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with the code of the outcome."""
    _reopen_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot display a character must not make a finished job fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # Batch systems send SIGTERM at the time limit: treat it as an interruption, so that partial
    # files are removed. Training and search install handlers that save their state first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    install_hooks()
    sys.unraisablehook = _repeat_interruption
    _drop_foreign_backend()
    _bound_waiting_threads()
    code = run_cli(sys.argv[1:] if arguments is None else arguments)
    from scitoolkit.core.processes import leave

    leave(code)


def _reopen_closed_streams() -> None:
    """Send output to the null device where the caller closed it (`>&-`), as daemons do.

    The next file that is opened would otherwise have the descriptor of the standard output, and
    what a library prints would be in it.
    """
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_WRONLY)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
            setattr(sys, name, open(descriptor, "w", encoding="utf-8", closefd=False))


def _drop_foreign_backend() -> None:
    """Unset $MPLBACKEND where it names a module of another environment.

    A notebook's kernel sets it for all commands that its cells start, also for a scitoolkit whose
    environment has no such package: matplotlib could then not be imported. Reports need no backend.
    """
    name, sign, module = os.environ.get("MPLBACKEND", "").partition("module://")
    if not sign or name:
        return
    try:
        exists = importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # its parent is missing, or it is no name of a module
        exists = False
    if not exists:
        del os.environ["MPLBACKEND"]


def _bound_waiting_threads() -> None:
    """Let threads of OpenMP spin at barriers for a short time, unless the environment states it.

    By default they spin for as long as another thread of the team takes. If a program beside this
    one has that thread's core, a step of a small network takes a hundred times as long. Threads
    that never spin are slow on an idle machine. The library of torch's wheels for Linux (GOMP)
    reads the variable when torch is imported; ranks and worker processes inherit it.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "20000"


def _repeat_interruption(unraisable: Any) -> None:
    """Raise a KeyboardInterrupt again that arrived inside a callback, where it is swallowed."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        # An immediate interrupt would still be inside the callback.
        timer = threading.Timer(0.05, _thread.interrupt_main)
        timer.daemon = True
        timer.start()
    elif not _is_half_made(unraisable):
        print_unraisable(unraisable)


def _is_half_made(unraisable: Any) -> bool:
    """Whether a finaliser ran on an object whose construction was interrupted."""
    finaliser = getattr(unraisable.object, "__name__", "") in ("__del__", "close")
    return finaliser and issubclass(unraisable.exc_type, AttributeError)


def run_cli(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; every error becomes one message."""
    as_json = "--json" in arguments
    try:
        # A call of `app` itself would replace `sys.excepthook`.
        outcome = typer.main.get_command(app)(list(arguments), standalone_mode=False)
        if outcome == EXIT_INTERRUPTED:  # typer's answer to KeyboardInterrupt
            raise KeyboardInterrupt
        return outcome if isinstance(outcome, int) else EXIT_OK
    except ScitoolkitError as error:
        return _fail(error.exit_code, str(error), type(error).__name__, as_json)
    except typer.Exit as end:
        return end.exit_code
    except _ClickException as error:  # type: ignore[misc]
        return _fail(EXIT_USAGE, _usage_message(error), "UsageError", as_json)
    except (KeyboardInterrupt, typer.Abort):
        return _fail(EXIT_INTERRUPTED, "interrupted", "Interrupted", as_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
    except Exception as error:
        cause = system_error(error) or damaged_file(error)
        if cause is not None:
            return _fail(cause.exit_code, str(cause), type(error).__name__, as_json)
        traceback.print_exc()
        return _fail(EXIT_FAILURE, f"internal error: {error!r}", type(error).__name__, as_json)


def _fail(code: int, message: str, kind: str, as_json: bool) -> int:
    try:
        rank = current_rank()
    except ScitoolkitError:  # a malformed variable of the launcher, which is the error itself
        rank = 0
    if as_json and rank == 0:
        print(json.dumps({"error": {"type": kind, "message": message, "exit_code": code}}))
    prefix = f"[rank {rank}] " if rank else ""
    print(f"{prefix}error: {message}", file=sys.stderr)
    return code


def _commands_of(context: Any, name: str) -> list[str]:
    """Return the names of the commands of a group, of none if it is a command."""
    command = context.command.get_command(context, name)
    return [*getattr(command, "commands", ())]


def _usage_message(error: typer.BadParameter) -> str:
    message, context, words = error.format_message(), error.ctx, ["scitoolkit"]
    while context is not None and context.parent is not None:
        words.insert(1, str(context.info_name))
        context = context.parent
    command = " ".join(words)
    if "No such command" in message and error.ctx is not None:
        asked = message.split("'")[1]
        commands = error.ctx.command.list_commands(error.ctx)  # type: ignore[attr-defined]
        groups = [n for n in commands if asked in _commands_of(error.ctx, n)]
        near = f"{groups[0]} {asked}" if groups else nearest_name(asked, commands) or "--help"
        return f"no command {asked!r}. Allowed: {', '.join(commands)}. Fix: {command} {near}"
    return f"{message.rstrip('.')}. Fix: {command} --help"
