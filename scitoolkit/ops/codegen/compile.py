"""Generated C source to a loaded shared library, through the system compiler and a cache on disk.

The library has a plain C ABI, so it depends neither on the version of torch nor on libtorch's.
Vectorisation is written into the source with the compiler's vector types, so no flag relaxes
floating point beyond contraction into fused multiply-adds: NaN and Inf are kept, and -ffast-math
is never used. Many processes may ask for one library at once: a file lock lets one compile while
the others wait.
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
from scitoolkit.core.log import get_logger
from scitoolkit.ops.codegen import prebuilt
from scitoolkit.ops.codegen.cache import KernelCache, caches, first_usable

# Raise when the ABI or the flags change in a way that the source does not show.
CACHE_VERSION = 2
LOADED = time.time()
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
BUILD = ("-std=gnu11", "-fPIC", "-shared", "-fopenmp", "-w")
# Where the processor has vectors of 512 bits, compilers do not use them unless asked.
WIDE = ("-mprefer-vector-width=512",) if platform.machine() in ("x86_64", "AMD64") else ()
# What compilers and linkers say when the cause is the disk, not the source.
NO_SPACE = ("No space left on device", "Disk quota exceeded")


@functools.cache
def read(module_file: str, name: str) -> str:
    """Return the text of a C file that is installed next to a module.

    Args:
        module_file: `__file__` of the module.
        name: name of the C file.

    Example:
        >>> "splitmix64" in read(__file__.replace("codegen", "node_dropout"), "node_dropout.c")
        True
    """
    return Path(module_file).with_name(name).read_text(encoding="utf-8")


def find_compiler() -> str:
    """Return the C compiler: $CC when set (with its arguments), else cc, gcc or clang on PATH.

    Raises:
        BackendError: no compiler was found.
    """
    wanted = os.environ.get("CC")
    for command in [wanted] if wanted else ["cc", "gcc", "clang"]:
        name, *arguments = shlex.split(command)
        path = shutil.which(name)
        if path:
            return shlex.join([path, *arguments])
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
    command = [*shlex.split(compiler), "-march=native", "-E", "-v", "-x", "c", os.devnull]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendError(f"compiler {compiler} does not run: {error}", fix="set CC") from error
    # The line with -march or -target-feature names what `native` stands for on this machine.
    told = [line for line in done.stderr.splitlines() if "version" in line or "cc1" in line]
    return f"{platform.machine()} {compiler} {' '.join(told)}"


@contextlib.contextmanager
def _progress(key: str) -> Iterator[None]:
    """Print on a terminal that a kernel is being compiled, and how long that took."""
    shown = sys.stderr.isatty() and os.environ.get("RANK", "0") == "0"
    begin = time.perf_counter()
    if shown:
        print(f"compiling kernel {key[:8]} (once) ...", end="", file=sys.stderr, flush=True)
    yield
    if shown:
        print(f" {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)


def compile_source(compiler: str, source: str, flags: tuple[str, ...]) -> bytes:
    """Return the shared library of a C source, made in a temporary folder.

    Raises:
        BackendError: the compiler refuses it, or there is no space for its files.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="scitoolkit-") as scratch:
            return _compile_in(scratch, compiler, source, flags)
    except OSError as error:
        raise BackendError(
            f"cannot write temporary files to compile a kernel: {error}",
            fix="set TMPDIR to a folder with free space that you may write",
        ) from error


def _compile_in(scratch: str, compiler: str, source: str, flags: tuple[str, ...]) -> bytes:
    code, library = Path(scratch) / "kernel.c", Path(scratch) / "kernel.so"
    code.write_text(source)
    _run(compiler, (*flags, *BUILD, str(code), "-o", str(library), "-lm"), library)
    return library.read_bytes()


def compile_portable(compiler: str, source: str, flags: tuple[str, ...]) -> bytes:
    """Return a library for every machine of a processor level; it names no OpenMP runtime.

    Args:
        compiler: gcc, whose runtime's interface every OpenMP runtime of Linux has.
        source: C source.
        flags: as `load_library` takes them, with -march of the level.

    Raises:
        BackendError: the compiler refuses it.
    """
    with tempfile.TemporaryDirectory(prefix="scitoolkit-") as folder:
        code, unit, library = (Path(folder) / f"kernel.{suffix}" for suffix in ("c", "o", "so"))
        code.write_text(source)
        compiled = [flag for flag in BUILD if flag != "-shared"]
        _run(compiler, (*flags, *compiled, "-c", str(code), "-o", str(unit)), unit)
        late = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-ldl",)
        _run(compiler, ("-shared", "-s", str(unit), "-o", str(library), "-lm", *late), library)
        return library.read_bytes()


def _run(compiler: str, arguments: tuple[str, ...], made: Path) -> None:
    """Run the compiler, which has to make a file."""
    command = [*shlex.split(compiler), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not made.exists():
        raise _failure(compiler, done.stderr, str(made.parent))


def _failure(compiler: str, stderr: str, scratch: str) -> BackendError:
    lines = stderr.splitlines()
    full = next((line for line in lines if any(text in line for text in NO_SPACE)), "")
    if full:
        return BackendError(
            f"no space left to compile a kernel: {full}",
            where=str(Path(scratch).parent),
            fix="free space there, or set TMPDIR to a folder with free space",
        )
    first = next((line for line in lines if "error" in line), "") or stderr[-300:].strip()
    return BackendError(
        f"{compiler} could not compile a kernel: {first or 'it wrote no library'}",
        fix="set CC to gcc >= 9 or clang >= 12 with OpenMP",
    )


def _key(compiler: str, text: str, flags: tuple[str, ...]) -> str:
    """Return the key of what `text` gives with a compiler and all flags on this machine."""
    parts = (text, compiler_identity(compiler), *flags, str(CACHE_VERSION))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _all_flags(flags: tuple[str, ...]) -> tuple[str, ...]:
    return (*flags, *shlex.split(os.environ.get("SCITOOLKIT_CFLAGS", "")))


def _open(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as error:  # not a fault of the cache, which another folder would mend
        raise BackendError(
            f"the system cannot load a compiled kernel: {error}",
            fix="set SCITOOLKIT_CACHE to a folder on a file system mounted without noexec",
        ) from error


def _load(source: str, flags: tuple[str, ...], aliases: tuple[str, ...] = ()) -> ctypes.CDLL:
    """Load the library of `source`, compiled if no cache has it, and note it under `aliases`.

    Where nothing can be compiled, the prebuilt library of the source is taken.
    """
    prebuilt.note_source(source, flags)
    try:
        compiler, wanted = find_compiler(), _all_flags(flags)
        key = _key(compiler, source, wanted)
        return _load_key(key, lambda: compile_source(compiler, source, wanted), aliases)
    except BackendError as error:
        found = prebuilt.find(source, flags)
        if found is None:
            raise
        _say_prebuilt(found.parent.name, str(error))
    prebuilt.share_openmp()
    return _open(str(found))


def is_prebuilt(library: ctypes.CDLL) -> bool:
    """Return whether a loaded library came with the package."""
    return Path(library._name).is_relative_to(prebuilt.PREBUILT)


@functools.cache
def _say_prebuilt(level: str, reason: str) -> None:
    get_logger(__name__).info("prebuilt kernels for %s run: %s", level, reason)


def _load_key(key: str, build: Callable[[], bytes], aliases: tuple[str, ...] = ()) -> ctypes.CDLL:
    """Load the library that a key stands for; `build` makes it if no cache has it."""

    def build_into(cache: KernelCache) -> ctypes.CDLL:
        cache.make()
        with cache.locked(key):
            library = cache.load(key, _open)  # compiled while this process waited
            if library is None:
                with _progress(key):
                    cache.store(key, build())
                library = cache.load(key, _open)
        if library is None:
            raise OSError("a kernel that was just stored there is missing or damaged")
        return library

    def load_from(cache: KernelCache) -> ctypes.CDLL:
        library = cache.load(key, _open) or build_into(cache)
        with contextlib.suppress(OSError):  # a prebuilt cache may be read-only
            for alias in aliases:
                cache.alias(alias, key)
        return library

    return first_usable(load_from)


def load_built(made_of: str, build: Callable[[], bytes]) -> ctypes.CDLL:
    """Load a library of several units, from the cache if it was built before.

    Args:
        made_of: sources and flags of all units; with the compiler they key the cache.
        build: compiles and links them; returns the library's bytes.

    Raises:
        BackendError: see `load_library`.
    """
    return _load_key(_key(find_compiler(), made_of, _all_flags(())), build)


def load_library(source: str, flags: tuple[str, ...] = FLAGS) -> ctypes.CDLL:
    """Compile `source` (or take it from the cache, or a prebuilt one) and load it.

    Args:
        source: C source with a plain C ABI.
        flags: compiler flags that set optimisation and target; $SCITOOLKIT_CFLAGS is appended.

    Raises:
        BackendError: neither a prebuilt library nor a way to compile: no compiler, one that
            fails, no folder for the cache; or a library that the system cannot load.

    Example:
        >>> load_library("int one(void) { return 1; }").one()
        1
    """
    return _load(source, flags)


@functools.cache
def _digest(folder: Path) -> str:
    """Return a digest of a package's modules and C files, which the generated source depends on.

    If a file changed after this module was imported, the source that runs is not the one on disk:
    the digest is then unique, so that no other process reuses this cache entry.
    """
    files = sorted([*folder.glob("*.py"), *folder.glob("*.c")])
    if any(each.stat().st_mtime > LOADED for each in files):
        return uuid.uuid4().hex
    return hashlib.sha256(b"\0".join(each.read_bytes() for each in files)).hexdigest()


def load_generated(
    generator: Callable[..., str], *arguments: str, flags: tuple[str, ...] = FLAGS
) -> ctypes.CDLL:
    """Load the library of `generator(*arguments)`; once it is compiled, generate nothing.

    The cache notes which library belongs to which arguments; the note is valid as long as the
    modules of the generator's package, of this one and of `ops` itself (the constants) are the
    same.

    Args:
        generator: returns C source for its arguments; a function of a module.
        arguments: the arguments of the call.
        flags: as for `load_library`.

    Raises:
        BackendError: see `load_library`.
    """
    module = sys.modules[generator.__module__]
    folders = {Path(str(module.__file__)).parent, *Path(__file__).parents[:2]}
    digests = [_digest(each) for each in sorted(folders)]
    made_of = (generator.__qualname__, *digests, *arguments)
    try:
        key = _key(find_compiler(), "\0".join(made_of), _all_flags(flags))
    except BackendError:  # there may be a prebuilt library
        return _load(generator(*arguments), flags)
    if prebuilt.noting():
        return _load(generator(*arguments), flags, (key,))
    for cache in caches():
        with contextlib.suppress(OSError):  # reported by `first_usable` if none can be used
            library = cache.load(key, _open)
            if library is not None:
                return library
    return _load(generator(*arguments), flags, (key,))
