"""`scitoolkit doctor`: what is installed, which fast paths are on, and why any is off."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from scitoolkit.cli import _options as options

NAME = "doctor"

# package -> (extra that brings it, what it is for)
_OPTIONAL = {
    "zarr": ("zarr", "reading Zarr stores"),
    "dask": ("dask", "fields as dask arrays"),
    "tensorboard": ("tensorboard", "TensorBoard logs"),
}


@dataclass(frozen=True)
class Check:
    """One line of the report: `status` is ok, off (optional) or bad."""

    name: str
    status: str
    detail: str
    fix: str = ""


def command(as_json: options.Json = False) -> int | None:
    """Say what is installed, which fast paths are on, and why any is off."""
    checks = list(_checks())
    if as_json:
        options.print_json({"checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            fix = f"  ->  {check.fix}" if check.fix else ""
            print(f"{check.status:4s} {check.name:18s} {check.detail}{fix}")
    return 1 if any(check.status == "bad" for check in checks) else None


def _checks() -> Iterator[Check]:
    yield from _packages()
    yield from _processors()
    yield from _distributed()
    yield from _compilers()
    yield from _kernels()


def _packages() -> Iterator[Check]:
    from importlib.metadata import requires

    from scitoolkit.core.environment import package_version

    for requirement in requires("scitoolkit") or []:
        if "extra ==" in requirement:
            continue
        name = "".join(c if c.isalnum() or c in "-_" else " " for c in requirement).split()[0]
        found = package_version(name)
        yield Check(
            name,
            "ok" if found else "bad",
            found or f"missing ({requirement} is needed)",
            "" if found else f"pip install '{requirement}'",
        )
    for name, (extra, purpose) in _OPTIONAL.items():
        found = package_version(name)
        yield Check(
            name,
            "ok" if found else "off",
            f"{found}, for {purpose}" if found else f"not installed; needed for {purpose}",
            "" if found else f"pip install 'scitoolkit[{extra}]'",
        )


def _processors() -> Iterator[Check]:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = torch.get_num_threads()
    detail = f"{cores} usable cores, torch uses {threads} threads"
    if threads > (cores or 1):
        yield Check("cpu", "off", detail, f"export OMP_NUM_THREADS={cores}")
    else:
        yield Check("cpu", "ok", detail)
    yield Check("cpu vectors", "ok", torch.backends.cpu.get_cpu_capability())
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            yield Check(f"gpu {index}", "ok", torch.cuda.get_device_name(index))
        bf16 = torch.cuda.is_bf16_supported()
        yield Check("gpu bf16", "ok" if bf16 else "off", "precision: bf16 is native" if bf16 else
                    "this GPU has no native bf16", "" if bf16 else "precision: fp16")  # fmt: skip
    else:
        built = torch.version.cuda
        why = "no GPU is visible" if built else "this torch is a CPU build"
        yield Check("gpu", "off", why, "" if built else "install torch with CUDA to use a GPU")


def _distributed() -> Iterator[Check]:
    import torch.distributed as dist

    if not dist.is_available():
        yield Check("distributed", "off", "torch was built without torch.distributed")
        return
    gloo, nccl = dist.is_gloo_available(), dist.is_nccl_available()
    yield Check("gloo", "ok" if gloo else "off", "ranks on CPUs" if gloo else "not in this torch")
    yield Check("nccl", "ok" if nccl else "off", "ranks on GPUs" if nccl else "not in this torch")


def _compilers() -> Iterator[Check]:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        yield Check(
            "C compiler",
            "off",
            "none found: generated kernels and torch.compile are off: the reference runs",
            "install gcc, or set CC",
        )
        return
    try:
        out = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=10)
        yield Check("C compiler", "ok", out.stdout.splitlines()[0])
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        yield Check("C compiler", "off", f"{compiler} does not run ({error})", "set CC")


def _kernels() -> Iterator[Check]:
    """Compile and run one kernel: the way from generated C to a result, or why it is closed."""
    import torch

    from scitoolkit.core.errors import ScitoolkitError
    from scitoolkit.ops.codegen import cache_directory
    from scitoolkit.ops.tensor_product import TensorProduct

    name = "tensor_product"
    product = TensorProduct("8x0e", "0e", "8x0e", [(0, 0, 0, "uvu", True)], backend="cpu")
    try:
        product(torch.ones(1, 8), torch.ones(1, 1))
    except ScitoolkitError as error:
        yield Check(name, "off", f"the slow reference runs: {error}")
        return
    yield Check(name, "ok", f"generated C, kept in {cache_directory()}")
    yield from _gpu_kernels(name)


def _gpu_kernels(name: str) -> Iterator[Check]:
    """Whether tensors on a GPU get generated kernels: Triton is there and knows the GPU."""
    import torch

    from scitoolkit.core.errors import BackendError
    from scitoolkit.ops.codegen import check_triton, triton_version

    version = triton_version()
    yield Check(
        "triton",
        "ok" if version else "off",
        f"{version}, for kernels on GPUs" if version else "not installed; for kernels on GPUs",
        "" if version else "pip install triton",
    )
    if torch.cuda.is_available():
        try:
            check_triton("cuda")
        except BackendError as error:
            yield Check(f"{name} gpu", "off", f"the slow reference runs: {error}")
            return
        yield Check(f"{name} gpu", "ok", "generated Triton; other kernels run their reference")
