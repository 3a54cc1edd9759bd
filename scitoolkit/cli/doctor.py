"""`scitoolkit doctor`: installed packages, plug-ins, compilers, devices and kernels."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.environment import package_version

if TYPE_CHECKING:
    from scitoolkit.core import plugins

NAME = "doctor"
_NOT_FOR_USERS = ("all", "dev", "docs")


@dataclass(frozen=True)
class DoctorLine:
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
            DoctorLine(name, "ok", ", ".join(plugins.member_names(name)), "")
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
        checks.append(DoctorLine("kernels, GPUs", "off", "not checked, which needs torch", fix))
    if as_json:
        options.print_json({"checks": [asdict(check) for check in checks], **_figures(members)})
    else:
        for check in checks:
            fix = f"  ->  {check.fix}" if check.fix else ""
            print(f"{check.status:4s} {check.name:18s} {check.detail}{fix}")
    return 1 if any(check.status == "bad" for check in checks) else None


def _packages() -> Iterator[DoctorLine]:
    """Check every dependency of the installed distribution, optional ones with their extra."""
    for name, (requirement, extras) in _requirements().items():
        installed = package_version(name)
        if not extras:
            detail, fix = (
                installed or f"missing ({requirement} is needed)",
                f"pip install '{requirement}'",
            )
            yield DoctorLine(name, "ok" if installed else "bad", detail, "" if installed else fix)
            continue
        brought = f"extra {', '.join(extras)}"
        detail = f"{installed}, {brought}" if installed else f"not installed, {brought}"
        fix = "" if installed else f"pip install 'scitoolkit[{extras[0]}]'"
        yield DoctorLine(name, "ok" if installed else "off", detail, fix)


def _requirements() -> dict[str, tuple[str, list[str]]]:
    """Return {package: (requirement, extras that include it)}; no extras if it is required."""
    try:
        lines = requires("scitoolkit") or []
    except PackageNotFoundError:
        lines = []
    out: dict[str, tuple[str, list[str]]] = {}
    for line in lines:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        # A requirement such as `torch>=2.4` or `jax[cpu]`, of which the name ends at the first
        # other sign.
        name = re.split(r"[^A-Za-z0-9._-]", requirement)[0]
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        if name == "scitoolkit" or (extra and extra[1] in _NOT_FOR_USERS):
            continue
        extras = out.setdefault(name, (requirement, []))[1]
        if extra:
            extras.append(extra[1])
    return out


def _plugins(members: dict[str, list[plugins.Member]]) -> Iterator[DoctorLine]:
    """Check every kind, and every member of it that cannot be used."""
    for kind, rows in members.items():
        usable = [row.name for row in rows if not row.problem]
        yield DoctorLine(kind, "ok", ", ".join(usable) or "no member")
        for row in rows:
            if row.problem:
                yield DoctorLine(f"{kind} {row.name}", "off", row.problem)


def _figures(members: dict[str, list[plugins.Member]]) -> dict[str, Any]:
    """Return the plug-ins as data: {kind: {member: problem, "" if none}}."""
    from scitoolkit.core import plugins

    problems = {
        name: dict.fromkeys(plugins.member_names(name), "") for name in plugins.kind_names()
    }
    problems |= {kind: {row.name: row.problem for row in rows} for kind, rows in members.items()}
    return {"plugins": problems}


def _processors() -> Iterator[DoctorLine]:
    import torch

    from scitoolkit.core.processes import available_cores

    cores = available_cores()
    threads = torch.get_num_threads()
    detail = f"{cores} usable cores, torch uses {threads} threads"
    if threads > cores:
        yield DoctorLine("cpu", "off", detail, f"export OMP_NUM_THREADS={cores}")
    else:
        yield DoctorLine("cpu", "ok", detail)
    yield DoctorLine("cpu vectors", "ok", torch.backends.cpu.get_cpu_capability())
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            yield DoctorLine(f"gpu {index}", "ok", torch.cuda.get_device_name(index))
        bf16 = torch.cuda.is_bf16_supported()
        yield DoctorLine(
            "gpu bf16",
            "ok" if bf16 else "off",
            "precision: bf16 is native" if bf16 else "this GPU has no native bf16",
            "" if bf16 else "precision: fp16",
        )
    else:
        built = torch.version.cuda
        why = "no GPU is visible" if built else "this torch is a CPU build"
        yield DoctorLine("gpu", "off", why, "" if built else "install torch with CUDA to use a GPU")


def _distributed() -> Iterator[DoctorLine]:
    import torch.distributed as dist

    if not dist.is_available():
        yield DoctorLine("distributed", "off", "torch was built without torch.distributed")
        return
    gloo, nccl = dist.is_gloo_available(), dist.is_nccl_available()
    yield DoctorLine(
        "gloo", "ok" if gloo else "off", "ranks on CPUs" if gloo else "not in this torch"
    )
    yield DoctorLine(
        "nccl", "ok" if nccl else "off", "ranks on GPUs" if nccl else "not in this torch"
    )


def _compilers() -> Iterator[DoctorLine]:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        from scitoolkit.ops.codegen import prebuilt

        prebuilt_kernels = prebuilt.num_usable()
        instead = (
            f"{prebuilt_kernels} prebuilt kernels, and the slow reference for other sizes"
            if prebuilt_kernels
            else "the slow reference"
        )
        yield DoctorLine(
            "C compiler",
            "off",
            f"none found; used instead: {instead}; no torch.compile",
            "install gcc, or set CC",
        )
        return
    try:
        out = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=10)
        yield DoctorLine("C compiler", "ok", out.stdout.splitlines()[0])
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        yield DoctorLine("C compiler", "off", f"{compiler} does not run ({error})", "set CC")


def _kernels() -> Iterator[DoctorLine]:
    """Compile and run one generated kernel, or report why that fails."""
    import torch

    from scitoolkit.core.errors import ScitoolkitError
    from scitoolkit.ops.codegen import cache_directory
    from scitoolkit.ops.tensor_product import TensorProduct

    name = "tensor_product"
    product = TensorProduct("8x0e", "0e", "8x0e", [(0, 0, 0, "uvu", True)], backend="cpu")
    try:
        product(torch.ones(1, 8), torch.ones(1, 1))
    except ScitoolkitError as error:
        yield DoctorLine(name, "off", f"falls back to the slow reference: {error}")
        return
    yield DoctorLine(name, "ok", f"generated C, cached in {cache_directory()}")
    yield from _gpu_kernels()


def _gpu_kernels() -> Iterator[DoctorLine]:
    """Check whether Triton can run here, and name the backend of each operation on a GPU."""
    import torch

    from scitoolkit.core.errors import BackendError
    from scitoolkit.ops.codegen import check_triton, kernel_backends, operations, triton_version
    from scitoolkit.ops.codegen.backends import Reference

    version = triton_version()
    yield DoctorLine(
        "triton",
        "ok" if version else "off",
        f"{version}, for kernels on GPUs" if version else "not installed; for kernels on GPUs",
        "" if version else "pip install triton",
    )
    why = ""
    if torch.cuda.is_available() or not version:
        try:
            check_triton("cuda")
        except BackendError as error:
            why = str(error)
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
        kernels = [backend.name for backend in serving if backend.serves(operation.name)]
        if kernels and not (why and kernels == ["triton"]):
            yield DoctorLine(f"{name} on gpu", "ok", f"kernels of {', else '.join(kernels)}")
            continue
        reason = why if kernels else "no backend has a kernel for GPUs"
        yield DoctorLine(f"{name} on gpu", "off", f"the slow reference: {reason}")
