"""Compile generated C with the system compiler, cache the shared libraries on disk and load them.

A library has a plain C ABI and is independent of the version of torch. Vectorisation is written
into the source with the compiler's vector types. Flags allow fused multiply-adds but no other
relaxation of floating point: NaN and Inf are preserved, and -ffast-math is never used. When several
processes request the same library, a file lock lets one compile it while the others wait.
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

from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.core.log import get_logger
from scitoolkit.core.processes import current_rank
from scitoolkit.ops.codegen import prebuilt
from scitoolkit.ops.codegen.cache import KernelCache, caches, first_usable

# Part of every cache key. Increment when the ABI changes but the source and the flags do not.
CACHE_VERSION = 2
LOADED = time.time()
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
BUILD = ("-std=gnu11", "-fPIC", "-shared", "-fopenmp", "-w")
# By default compilers do not use 512-bit vectors even where the processor has them.
WIDE = ("-mprefer-vector-width=512",) if platform.machine() in ("x86_64", "AMD64") else ()
# Messages of compilers and linkers caused by a full disk and not by the source.
NO_SPACE = ("No space left on device", "Disk quota exceeded")
CFLAGS = "SCITOOLKIT_CFLAGS"


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
    """Return the C compiler: $CC if set (with its arguments), else cc, gcc or clang on PATH.

    Raises:
        BackendError: no compiler was found.
        ConfigError: $CC has an unclosed quotation.
    """
    wanted = _words("CC")
    for name, *arguments in [wanted] if wanted else [["cc"], ["gcc"], ["clang"]]:
        path = shutil.which(name)
        if path:
            return shlex.join([path, *arguments])
    raise BackendError(
        f"no C compiler found (searched for {shlex.join(wanted) or 'cc, gcc, clang'})",
        fix="install gcc or clang, or set CC to a C compiler",
    )


def _words(variable: str) -> list[str]:
    """Split an environment variable as a shell does; an unset variable has no words."""
    text = os.environ.get(variable, "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"${variable} is {text!r}: {error}", fix=f"correct ${variable}") from None


@functools.cache
def compiler_identity(compiler: str) -> str:
    """Return the version and native target of `compiler`; this text is part of the cache key.

    Raises:
        BackendError: the compiler does not run.
    """
    command = [*shlex.split(compiler), "-march=native", "-E", "-v", "-x", "c", os.devnull]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendError(f"compiler {compiler} does not run: {error}", fix="set CC") from error
    # The cc1 line lists the flags that -march=native expands to on this machine.
    lines = [line for line in done.stderr.splitlines() if "version" in line or "cc1" in line]
    return f"{platform.machine()} {compiler} {' '.join(lines)}"


@contextlib.contextmanager
def _progress(key: str) -> Iterator[None]:
    """Report on a terminal that a kernel is being compiled, and the time it took."""
    shown = sys.stderr.isatty() and current_rank() == 0
    begin = time.perf_counter()
    if shown:
        print(f"compiling kernel {key[:8]} (once) ...", end="", file=sys.stderr, flush=True)
    yield
    if shown:
        print(f" {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)


def compile_source(compiler: str, source: str, flags: tuple[str, ...]) -> bytes:
    """Compile a C source in a temporary folder and return the bytes of the shared library.

    Raises:
        BackendError: the compiler fails, or there is no space for its files.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="scitoolkit-") as scratch:
            return _compile_in(scratch, compiler, source, flags)
    except OSError as error:
        raise BackendError(
            f"cannot write temporary files to compile a kernel: {error}",
            fix="set TMPDIR to a writable folder with free space",
        ) from error


def _compile_in(scratch: str, compiler: str, source: str, flags: tuple[str, ...]) -> bytes:
    code, library = Path(scratch) / "kernel.c", Path(scratch) / "kernel.so"
    code.write_text(source)
    run_compiler(compiler, (*flags, *BUILD, str(code), "-o", str(library), "-lm"), library)
    return library.read_bytes()


def compile_portable(compiler: str, source: str, flags: tuple[str, ...]) -> bytes:
    """Compile a C source for a processor level, without linking an OpenMP runtime.

    Args:
        compiler: gcc, because all OpenMP runtimes on Linux implement the interface of libgomp.
        source: C source.
        flags: as for `load_library`, with the level as -march.

    Raises:
        BackendError: the compiler fails.
    """
    with tempfile.TemporaryDirectory(prefix="scitoolkit-") as folder:
        code, unit, library = (Path(folder) / f"kernel.{suffix}" for suffix in ("c", "o", "so"))
        code.write_text(source)
        compiled = [flag for flag in BUILD if flag != "-shared"]
        run_compiler(compiler, (*flags, *compiled, "-c", str(code), "-o", str(unit)), unit)
        late = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-ldl",)
        run_compiler(
            compiler, ("-shared", "-s", str(unit), "-o", str(library), "-lm", *late), library
        )
        return library.read_bytes()


def run_compiler(compiler: str, arguments: tuple[str, ...], made: Path) -> None:
    """Run the compiler and check that it wrote the file `made`.

    Raises:
        BackendError: it fails, or there is no space for its files.
    """
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
        fix="set CC to gcc >= 9 or clang >= 12 with OpenMP"
        + (f", and check ${CFLAGS}" if os.environ.get(CFLAGS) else ""),
    )


def _key(compiler: str, text: str, flags: tuple[str, ...]) -> str:
    """Return the cache key of a source text, a compiler and flags on this machine."""
    parts = (text, compiler_identity(compiler), *flags, str(CACHE_VERSION))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _all_flags(flags: tuple[str, ...]) -> tuple[str, ...]:
    return (*flags, *_words(CFLAGS))


def _open(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as error:  # not an OSError: `first_usable` would try the next folder
        raise BackendError(
            f"the system cannot load a compiled kernel: {error}",
            fix="set SCITOOLKIT_CACHE to a folder on a file system mounted without noexec",
        ) from error


def _load(source: str, flags: tuple[str, ...], aliases: tuple[str, ...] = ()) -> ctypes.CDLL:
    """Load the library of `source` from the cache, compiling it if needed, under all `aliases`.

    If compilation is impossible, load the prebuilt library of the source.
    """
    prebuilt.note_source(source, flags)
    wanted = _all_flags(flags)
    try:
        compiler = find_compiler()
        key = _key(compiler, source, wanted)
        return _load_key(key, lambda: compile_source(compiler, source, wanted), aliases)
    except BackendError as error:
        shipped = prebuilt.find(source, flags)
        if shipped is None:
            raise
        ignored = shlex.join(wanted[len(flags) :])
        _report_prebuilt(shipped.parent.name, str(error), ignored)
    prebuilt.share_openmp()
    return _open(str(shipped))


def is_prebuilt(library: ctypes.CDLL) -> bool:
    """Return whether a loaded library came with the package."""
    return Path(library._name).is_relative_to(prebuilt.folder())


@functools.cache
def _report_prebuilt(level: str, reason: str, ignored: str) -> None:
    """Log the use of prebuilt kernels once; warn if that ignores the user's compiler flags."""
    logger = get_logger(__name__)
    if ignored:
        logger.warning(
            "%s=%s is ignored: prebuilt kernels for %s run: %s", CFLAGS, ignored, level, reason
        )
    else:
        logger.info("prebuilt kernels for %s run: %s", level, reason)


def _load_key(key: str, build: Callable[[], bytes], aliases: tuple[str, ...] = ()) -> ctypes.CDLL:
    """Load the library of a cache key; `build` compiles it if it is in no cache."""

    def build_into(cache: KernelCache) -> ctypes.CDLL:
        cache.make()
        with cache.locked(key):
            library = cache.load(key, _open)  # another process may have compiled it meanwhile
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
    """Load a library of several translation units, from the cache if it was built before.

    Args:
        made_of: sources and flags of all units, the text of the cache key.
        build: compiles and links the units and returns the library's bytes.

    Raises:
        BackendError: see `load_library`.
    """
    return _load_key(_key(find_compiler(), made_of, _all_flags(())), build)


def load_library(source: str, flags: tuple[str, ...] = FLAGS) -> ctypes.CDLL:
    """Load the library of a C source: cached, compiled now, or prebuilt, in this order.

    Args:
        source: C source with a plain C ABI.
        flags: compiler flags that set optimisation and target; $SCITOOLKIT_CFLAGS is appended.
            A prebuilt library has been compiled without the latter, which logs a warning.

    Raises:
        BackendError: there is no prebuilt library, and compilation fails (no compiler, a compiler
            error, no writable cache); or the system cannot load the library.
        ConfigError: $CC or $SCITOOLKIT_CFLAGS has an unclosed quotation.

    Example:
        >>> load_library("int one(void) { return 1; }").one()
        1
    """
    return _load(source, flags)


@functools.cache
def _digest(folder: Path) -> str:
    """Return a digest of a package's modules and C files, which determine the generated source.

    If a file changed after this module was imported, the code in memory may differ from the files:
    the digest is then unique, so that no other process reuses this cache entry.
    """
    files = sorted([*folder.glob("*.py"), *folder.glob("*.c")])
    if any(file.stat().st_mtime > LOADED for file in files):
        return uuid.uuid4().hex
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def load_generated(
    generator: Callable[..., str], *arguments: str, flags: tuple[str, ...] = FLAGS
) -> ctypes.CDLL:
    """Load the library of the source `generator(*arguments)`, without generating it if cached.

    The cache maps arguments to libraries. An entry is valid while the modules of the generator's
    package, of this package and of `ops` (which has the coupling constants) are unchanged.

    Args:
        generator: module-level function that returns C source.
        arguments: its arguments.
        flags: as for `load_library`.

    Raises:
        BackendError: see `load_library`.
        ConfigError: see `load_library`.
    """
    module = sys.modules[generator.__module__]
    folders = {Path(str(module.__file__)).parent, *Path(__file__).parents[:2]}
    digests = [_digest(folder) for folder in sorted(folders)]
    made_of = (generator.__qualname__, *digests, *arguments)
    try:
        key = _key(find_compiler(), "\0".join(made_of), _all_flags(flags))
    except BackendError:  # no compiler, but there may be a prebuilt library
        return _load(generator(*arguments), flags)
    if prebuilt.noting():
        return _load(generator(*arguments), flags, (key,))
    for cache in caches():
        with contextlib.suppress(OSError):  # reported by `first_usable` if none can be used
            library = cache.load(key, _open)
            if library is not None:
                return library
    return _load(generator(*arguments), flags, (key,))
