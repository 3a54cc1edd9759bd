"""`scitoolkit doctor`: installed packages, plug-ins, compilers, devices and kernels."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires
from typing import TYPE_CHECKING, Annotated

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.environment import package_version

if TYPE_CHECKING:
    from scitoolkit.core import plugins

NAME = "doctor"
_NOT_FOR_USERS = ("all", "dev", "docs")


@dataclass(frozen=True)
class Check:
    """One line of the report; `status` is ok, off (an optional part is missing) or bad."""

    name: str
    status: str
    detail: str
    fix: str = ""


def command(
    quick: Annotated[
        bool, typer.Option("--quick", help="Check only packages and names of plug-ins.")
    ] = False,
    kernels: Annotated[
        bool,
        typer.Option(
            "--kernels", help="Also import torch, look for GPUs, compile and run a kernel."
        ),
    ] = False,
    as_json: options.Json = False,
) -> int | None:
    """Check the installation: packages, plug-ins, compiler, GPUs, and why any is unavailable."""
    from scitoolkit.core import plugins

    checks = [*_packages(), *_compilers()]
    members: dict[str, list[plugins.Member]] = {}
    if quick:
        checks += [
            Check(name, "ok", ", ".join(plugins.member_names(name)), "")
            for name in plugins.kind_names()
        ]
    else:
        kinds = plugins.kinds().items()
        members = {n: kind.members() for n, kind in kinds if kernels or not kind.imports_torch}
        checks += _plugins(members)
    if kernels:
        checks += [*_processors(), *_distributed(), *_kernels()]
    else:
        fix = "scitoolkit doctor --kernels"
        checks.append(Check("kernels, GPUs", "off", "not checked, which needs torch", fix))
    if as_json:
        options.print_json({"checks": [asdict(check) for check in checks], **_figures(members)})
    else:
        for check in checks:
            fix = f"  ->  {check.fix}" if check.fix else ""
            print(f"{check.status:4s} {check.name:18s} {check.detail}{fix}")
    return 1 if any(check.status == "bad" for check in checks) else None


def _packages() -> Iterator[Check]:
    """Check every dependency of the installed distribution, optional ones with their extra."""
    for name, (requirement, extras) in _requirements().items():
        installed = package_version(name)
        if not extras:
            detail, fix = (
                installed or f"missing ({requirement} is needed)",
                f"pip install '{requirement}'",
            )
            yield Check(name, "ok" if installed else "bad", detail, "" if installed else fix)
            continue
        brought = f"extra {', '.join(extras)}"
        detail = f"{installed}, {brought}" if installed else f"not installed, {brought}"
        fix = "" if installed else f"pip install 'scitoolkit[{extras[0]}]'"
        yield Check(name, "ok" if installed else "off", detail, fix)


def _requirements() -> dict[str, tuple[str, list[str]]]:
    """Return {package: (requirement, extras that include it)}; no extras if it is required."""
    try:
        lines = requires("scitoolkit") or []
    except PackageNotFoundError:
        lines = []
    out: dict[str, tuple[str, list[str]]] = {}
    for line in lines:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        name = re.split(r"[^A-Za-z0-9._-]", requirement)[0]
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        if name == "scitoolkit" or (extra and extra[1] in _NOT_FOR_USERS):
            continue
        extras = out.setdefault(name, (requirement, []))[1]
        if extra:
            extras.append(extra[1])
    return out


def _plugins(members: dict[str, list[plugins.Member]]) -> Iterator[Check]:
    """Check every kind, and every member of it that cannot be used."""
    for kind, rows in members.items():
        serving = []
    for name in kernel_backends:
        with contextlib.suppress(BackendError):  # the plug-ins above say why it is off
            backend = kernel_backends.get(name)
            if backend is not Reference and "cuda" in (backend.devices or ("cuda",)):
                serving.append(backend)
    serving.sort(key=lambda backend: -backend.priority)
    for name in operations:
        # Loads the module of the operation, which registers its implementations.
        operation = operations.get(name)
        kernels = [b.name for b in serving if b.serves(operation.name)]
        if kernels and not (why and kernels == ["triton"]):
            yield Check(f"{name} on gpu", "ok", f"kernels of {', else '.join(kernels)}")
            continue
        reason = why if kernels else "no backend has a kernel for GPUs"
        yield Check(f"{name} on gpu", "off", f"the slow reference: {reason}")
