"""Writing and compilation of the folder of an exported potential."""

from __future__ import annotations

import concurrent.futures
import ctypes
import hashlib
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scitoolkit.core.errors import BackendError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.processes import available_cores
from scitoolkit.ops.codegen.compile import WIDE, find_compiler, load_built, read
from scitoolkit.ops.neighbours import lists
from scitoolkit.potentials.export import weights_file
from scitoolkit.potentials.export.source import FOLDER, Kernel, LibrarySource

LIBRARY, WEIGHTS = "libmodel.so", "weights.stk"
COMMON = (
    "-O3",
    "-std=gnu11",
    "-fPIC",
    "-fopenmp",
    "-w",
    "-fvisibility=hidden",
    "-ffunction-sections",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
)
SHARED = (
    "stk_model.h",
    "stk_internal.h",
    "pair_repulsion.h",
    "message_passing.h",
    "library.c",
)
LINK = ("-shared", "-fopenmp", "-Wl,--gc-sections")
Variants = Mapping[str, Sequence[str]]
X86 = platform.machine() in ("x86_64", "AMD64")
# Compiler flags of each variant; the widest supported one is selected when the library is loaded.
VARIANTS: Variants = (
    {"v3": ("-march=x86-64-v3",), "v4": ("-march=x86-64-v4", *WIDE)} if X86 else {"base": ()}
)
NATIVE: Variants = {"base": ("-march=native", *WIDE)}
_DEFINITION = re.compile(r"^(?:static\s+)?(?:void|int|int64_t|i64)\s+(\w+)\s*\(", re.MULTILINE)


def write_folder(source: LibrarySource, folder: Path) -> None:
    """Write sources, CMakeLists.txt and the weights file of a potential."""
    folder.mkdir(parents=True, exist_ok=True)
    texts, model = sources(source, VARIANTS)
    for name, text in {**texts, "CMakeLists.txt": cmake(source)}.items():
        write_atomic(folder / name, text)
    write_atomic(folder / WEIGHTS, packed_weights(source, model))


def sources(source: LibrarySource, variants: Variants) -> tuple[dict[str, str], bytes]:
    """Return the C files of a potential by name, and their SHA-256 for the weights file."""
    texts = dict(_texts(source, variants))
    model = hashlib.sha256("\0".join(f"{k}\0{v}" for k, v in sorted(texts.items())).encode())
    texts["settings.h"] += f"#define STK_MODEL {_bytes(model.digest())}\n"
    return texts, model.digest()


def packed_weights(source: LibrarySource, model: bytes) -> bytes:
    """Return the contents of the weights file; `model` is the SHA-256 of `sources`."""
    return weights_file.pack(source.arrays, model, 8 if source.real == "double" else 4)


def compile_folder(source: LibrarySource, folder: Path) -> Path:
    """Compile the sources in a folder like CMakeLists.txt; return the path of the library.

    Raises:
        BackendError: there is no compiler, or it fails.
    """
    with tempfile.TemporaryDirectory(prefix="scitoolkit-") as scratch:
        made = _compile(source, VARIANTS, folder, Path(scratch))
        temporary = folder / f".{LIBRARY}"
        shutil.copyfile(made, temporary)
        temporary.replace(folder / LIBRARY)
    return folder / LIBRARY


def load_native(source: LibrarySource) -> tuple[ctypes.CDLL, bytes]:
    """Return the library of a potential for this processor, and its weights file.

    The library is compiled into the kernel cache once for each model architecture.

    Raises:
        BackendError: there is no compiler or no usable cache, or the compiler fails.
    """
    texts, model = sources(source, NATIVE)

    def build() -> bytes:
        with tempfile.TemporaryDirectory(prefix="scitoolkit-") as scratch:
            for name, text in texts.items():
                (Path(scratch) / name).write_text(text, encoding="utf-8")
            return _compile(source, NATIVE, Path(scratch), Path(scratch)).read_bytes()

    flags = [f"{unit} {' '.join(flags)}" for unit, _, flags in _units(source, NATIVE)]
    made_of = "\0".join([*(texts[name] for name in sorted(texts)), *flags, *COMMON, *LINK])
    return load_built(made_of, build), packed_weights(source, model)


def _compile(source: LibrarySource, variants: Variants, folder: Path, scratch: Path) -> Path:
    """Compile the sources in a folder; return the library, in `scratch`."""
    compiler, jobs = shlex.split(find_compiler()), []
    for unit, variant, flags in _units(source, variants):
        target = str(scratch / f"{unit}_{variant}.o")
        define = [f"-DSTK_VARIANT={variant}"] if variant else []
        jobs.append(
            [*compiler, *COMMON, *flags, *define, "-c", str(folder / f"{unit}.c"), "-o", target]
        )
    with concurrent.futures.ThreadPoolExecutor(available_cores()) as pool:
        list(pool.map(_call, jobs))
    _call([*compiler, *LINK, *(job[-1] for job in jobs), "-o", str(scratch / LIBRARY), "-lm"])
    return scratch / LIBRARY


def _call(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        raise BackendError(
            f"{command[0]} could not compile an exported potential: "
            f"{(errors or [done.stderr[-300:]])[0]}",
            fix="set CC to gcc >= 11 or clang >= 14 with OpenMP",
        )


def _units(source: LibrarySource, variants: Variants) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield unit, variant ("" if the unit has none) and flags of each compilation."""
    yield "library", "", ()
    yield "neighbour_list", "", ()
    for variant, instructions in variants.items():
        yield "driver", variant, instructions
        for name, kernel in source.kernels.items():
            yield name, variant, (*instructions, *kernel.flags)


def _texts(source: LibrarySource, variants: Variants) -> Iterator[tuple[str, str]]:
    """Yield names and contents of the C files."""
    for name in SHARED:
        yield name, (FOLDER / name).read_text(encoding="utf-8")
    yield "driver.c", (FOLDER / source.driver).read_text(encoding="utf-8")
    yield "neighbour_list.c", read(lists.__file__, "neighbour_list.c")
    for name, kernel in source.kernels.items():
        yield f"{name}.c", renamed(name, kernel)
    yield from source.files.items()
    yield "settings.h", settings(source, variants)


def renamed(unit: str, kernel: Kernel) -> str:
    """Return a unit whose functions are renamed to UNIT_name_VARIANT for linking.

    Example:
        >>> print(renamed("table", Kernel("void values(int n) {}")))
        #define STK_PASTE_(a, b) a##_##b
        #define STK_PASTE(a, b) STK_PASTE_(a, b)
        #define values STK_PASTE(table_values, STK_VARIANT)
        void values(int n) {}
    """
    functions = sorted(
        {m[1] for m in _DEFINITION.finditer(kernel.text) if not m[0].startswith("static")}
        | set(kernel.functions)
    )
    lines = [
        "#define STK_PASTE_(a, b) a##_##b",
        "#define STK_PASTE(a, b) STK_PASTE_(a, b)",
        *(f"#define {name} STK_PASTE({unit}_{name}, STK_VARIANT)" for name in functions),
    ]
    return "\n".join([*lines, kernel.text])


def settings(source: LibrarySource, variants: Variants = VARIANTS) -> str:
    """Return settings.h: the constants of the model and the arrays of its weights file."""
    arrays = " \\\n".join(
        f"  X({name}, {values.size}, {'double' if values.itemsize == 8 else 'float'})"
        for name, values in source.arrays.items()
    )
    constants = {
        "STK_NUM_SPECIES": len(source.species),
        "STK_CUTOFF": source.cutoff,
        "STK_WIDEST_ROW": source.widest_row,
        **source.settings,
    }
    return "\n".join(
        [
            "/* Constants of the model. */",
            "#include <stdint.h>",
            f"#define STK_REAL {source.real}",
            *(f"#define {name} {value!r}" for name, value in constants.items()),
            f"#define STK_SPECIES {', '.join(chr(34) + s + chr(34) for s in source.species)}",
            "/* The processor's instruction sets that there are kernels for, narrowest first. */",
            f"#define STK_VARIANTS(X) {' '.join(f'X({name})' for name in variants)}",
            "/* Arrays of the weights file: name, number of values, type. */",
            f"#define STK_ARRAYS(X) \\\n{arrays}",
            "/* SHA-256 of the sources, which the weights file repeats. */",
            "",
        ]
    )


def _bytes(digest: bytes) -> str:
    return ", ".join(f"0x{byte:02x}" for byte in digest)


def cmake(source: LibrarySource) -> str:
    """Return CMakeLists.txt, which compiles as `compile_folder` does."""
    objects, lines = [], []
    for unit, variant, flags in _units(source, VARIANTS):
        target = f"{unit}_{variant}" if variant else unit
        objects.append(f"$<TARGET_OBJECTS:{target}>")
        define = f" -DSTK_VARIANT={variant}" if variant else ""
        lines += [
            f"add_library({target} OBJECT {unit}.c)",
            f"target_compile_options({target} PRIVATE {' '.join([*COMMON, *flags])}{define})",
        ]
    return "\n".join(
        [
            "cmake_minimum_required(VERSION 3.16)",
            "project(stk_model C)",
            *lines,
            f"add_library(model SHARED {' '.join(objects)})",
            "target_include_directories(model INTERFACE ${CMAKE_CURRENT_SOURCE_DIR})",
            f"target_link_options(model PRIVATE {' '.join(LINK[1:])})",
            "target_link_libraries(model PRIVATE m)",
            "set_target_properties(model PROPERTIES LINKER_LANGUAGE C",
            "  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})",
            "",
        ]
    )
