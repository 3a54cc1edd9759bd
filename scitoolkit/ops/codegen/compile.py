"""Generated C source to a loaded shared library, through the system compiler and a cache on disk.

The library has a plain C ABI, so it depends neither on the version of torch nor on libtorch's.
Vectorisation is written into the source with the compiler's vector types, so no flag relaxes
floating point beyond contraction into fused multiply-adds: NaN and Inf stay what they are, and
-ffast-math is never used. Many processes may ask for one library at once: a file lock lets one
compile while the others wait, and the result appears by an atomic rename.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from scitoolkit.core.errors import BackendError

try:
    import fcntl
except ImportError:  # no POSIX locks on Windows; the atomic rename alone keeps the cache sound
    fcntl = None

# Raise when the ABI or the flags change in a way that the source does not show.
CACHE_VERSION = 1
LOADED = time.time()
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
BUILD = ("-std=gnu11", "-fPIC", "-shared", "-fopenmp", "-w")


def cache_directory() -> Path:
    """Return the folder of compiled kernels: $SCITOOLKIT_CACHE, else $XDG_CACHE_HOME/scitoolkit.

    Example:
        >>> cache_directory().name
        'kernels'
    """
    base = os.environ.get("SCITOOLKIT_CACHE")
    if not base:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        base = Path(home) / "scitoolkit"
    return Path(base) / "kernels"


def find_compiler() -> str:
    """Return the C compiler: $CC when set, else the first of cc, gcc and clang on PATH.

    Raises:
        BackendError: no compiler was found.
    """
    wanted = os.environ.get("CC")
    for name in [wanted] if wanted else ["cc", "gcc", "clang"]:
        path = shutil.which(shlex.split(name)[0])
        if path:
            return path
    raise BackendError(
        f"no C compiler found (looked for {wanted or 'cc, gcc, clang'})",
        fix="install gcc or clang, or set CC to a C compiler",
    )


@functools.cache
def compiler_identity(compiler: str) -> str:
    """Return version and native target of `compiler`, as text that keys the cache.

    Raises:
        BackendError: the compiler does not run.
    """
    command = [compiler, "-march=native", "-E", "-v", "-x", "c", os.devnull]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        raise BackendError(f"compiler {compiler} does not run: {error}", fix="set CC") from error
    # The line with -march or -target-feature names what `native` stands for on this machine.
    told = [line for line in done.stderr.splitlines() if "version" in line or "cc1" in line]
    return f"{platform.machine()} {compiler} {' '.join(told)}"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "a") as handle:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield  # closing the file releases the lock


@contextlib.contextmanager
def _shown(target: Path) -> Iterator[None]:
    """Say on a terminal that a kernel is being compiled, so that nobody wonders about the wait."""
    shown = sys.stderr.isatty() and os.environ.get("RANK", "0") == "0"
    begin = time.perf_counter()
    if shown:
        print(f"compiling kernel {target.stem[:8]} (once) ...", end="", file=sys.stderr, flush=True)
    yield
    if shown:
        print(f" {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)


def _compile(compiler: str, source: str, target: Path, flags: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        code, library = Path(scratch) / "kernel.c", Path(scratch) / "kernel.so"
        code.write_text(source)
        command = [compiler, *flags, *BUILD, str(code), "-o", str(library), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            first = next((line for line in done.stderr.splitlines() if "error" in line), "")
            raise BackendError(
                f"{compiler} could not compile a kernel: {first or done.stderr[-300:]}",
                fix="set CC to gcc >= 9 or clang >= 12 with OpenMP",
            )
        os.replace(library, target)


def _compilation(text: str, flags: tuple[str, ...]) -> tuple[str, tuple[str, ...], str]:
    """Return compiler, all flags, and the key of what `text` gives with them on this machine."""
    compiler = find_compiler()
    flags = (*flags, *shlex.split(os.environ.get("SCITOOLKIT_CFLAGS", "")))
    parts = (text, compiler_identity(compiler), *flags, str(CACHE_VERSION))
    return compiler, flags, hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def compiled_path(source: str, flags: tuple[str, ...] = FLAGS) -> Path:
    """Return the path of the shared library of `source`, compiling it when the cache has none.

    Args:
        source: C source with a plain C ABI.
        flags: compiler flags that set optimisation and target; $SCITOOLKIT_CFLAGS is appended.

    Raises:
        BackendError: no compiler, a compiler that fails, or a cache that cannot be written.

    Example:
        >>> compiled_path("int one(void) { return 1; }").suffix
        '.so'
    """
    compiler, flags, key = _compilation(source, flags)
    folder = cache_directory()
    target = folder / f"{key}.so"
    if target.exists():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f"{key}.lock"):
            if not target.exists():  # another process may have compiled while this one waited
                with _shown(target):
                    _compile(compiler, source, target, flags)
    except OSError as error:
        raise BackendError(
            f"cannot write the kernel cache: {error}",
            where=str(folder),
            fix="set SCITOOLKIT_CACHE to a folder that can be written",
        ) from error
    return target


def load_library(source: str, flags: tuple[str, ...] = FLAGS) -> ctypes.CDLL:
    """Compile `source` (or take it from the cache) and load it.

    Raises:
        BackendError: see `compiled_path`; also a library that the system cannot load.

    Example:
        >>> load_library("int one(void) { return 1; }").one()
        1
    """
    path = compiled_path(source, flags)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BackendError(
            f"cannot load a compiled kernel: {error}", where=str(path), fix="delete the file"
        ) from error


@functools.cache
def _digest(folder: Path) -> str:
    """Return a digest of a package's modules: what a generator makes depends on these.

    Files that changed since this module was loaded are not what runs here: no other process may
    take what it makes for theirs, so the digest is then one of a kind.
    """
    files = sorted(folder.glob("*.py"))
    if any(each.stat().st_mtime > LOADED for each in files):
        return uuid.uuid4().hex
    return hashlib.sha256(b"\0".join(each.read_bytes() for each in files)).hexdigest()


def load_generated(
    generator: Callable[..., str], *arguments: str, flags: tuple[str, ...] = FLAGS
) -> ctypes.CDLL:
    """Load the library of `generator(*arguments)`; once it is compiled, generate nothing.

    The cache remembers which library came of which arguments, for as long as the modules of the
    generator's package, of this one and of `ops` itself (the constants) stay what they are.

    Args:
        generator: gives C source for its arguments; a function of a module.
        arguments: what it is called with.
        flags: as for `compiled_path`.

    Raises:
        BackendError: see `load_library`.
    """
    module = sys.modules[generator.__module__]
    folders = {Path(str(module.__file__)).parent, *Path(__file__).parents[:2]}
    digests = [_digest(each) for each in sorted(folders)]
    made_of = (generator.__qualname__, *digests, *arguments)
    _, _, key = _compilation("\0".join(made_of), flags)
    note = cache_directory() / f"{key}.of"
    with contextlib.suppress(OSError):  # no note yet, or its library is gone
        return ctypes.CDLL(str(note.parent / note.read_text(encoding="ascii")))
    source = generator(*arguments)
    library = load_library(source, flags)
    with tempfile.NamedTemporaryFile("w", dir=note.parent, delete=False) as scratch:
        scratch.write(Path(library._name).name)
    os.replace(scratch.name, note)
    return library
