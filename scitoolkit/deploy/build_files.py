"""Files for build systems beside an exported surrogate: a CMake package and a pkg-config file."""

from __future__ import annotations

from pathlib import Path

_LIBRARY = """add_library({name}::{name} SHARED IMPORTED)
  set_target_properties({name}::{name} PROPERTIES
    IMPORTED_LOCATION "${{CMAKE_CURRENT_LIST_DIR}}/{name}.so"
    INTERFACE_INCLUDE_DIRECTORIES "${{CMAKE_CURRENT_LIST_DIR}}"
    INTERFACE_LINK_LIBRARIES m)"""
_SOURCE = """enable_language(C)
  add_library({name} STATIC "${{CMAKE_CURRENT_LIST_DIR}}/{name}.c")
  set_target_properties({name} PROPERTIES POSITION_INDEPENDENT_CODE ON LINKER_LANGUAGE C)
  target_include_directories({name} PUBLIC "${{CMAKE_CURRENT_LIST_DIR}}")
  target_compile_options({name} PRIVATE
    -std=gnu11 -O3 -march=native -fno-math-errno -fno-trapping-math -w)
  find_package(OpenMP COMPONENTS C)
  if(OpenMP_C_FOUND)
    target_link_libraries({name} PUBLIC OpenMP::OpenMP_C)
  endif()
  target_link_libraries({name} PUBLIC m)
  add_library({name}::{name} ALIAS {name})"""
_CMAKE = """# Written by scitoolkit export. In CMakeLists.txt, with this folder in
# CMAKE_PREFIX_PATH:
#   find_package({name} CONFIG REQUIRED)
#   target_link_libraries(my_solver {name}::{name})
if(NOT TARGET {name}::{name})
  {target}
endif()
"""
_PKG_CONFIG = """prefix=${{pcfiledir}}

Name: {name}
Description: a surrogate written by scitoolkit export
Version: {version}
Cflags: -I${{prefix}}
Libs: ${{prefix}}/{name}.so -lm
"""


def build_files(path: Path, abi: int) -> dict[str, str]:
    """Return {file name: text} of the files for build systems.

    Args:
        path: the exported `.c` or `.so`.
        abi: version of the interface.

    Example:
        >>> list(build_files(Path("model.so"), 1))
        ['model-config.cmake', 'model.pc']
    """
    name = path.stem
    target = (_SOURCE if path.suffix == ".c" else _LIBRARY).format(name=name)
    files = {f"{name}-config.cmake": _CMAKE.format(name=name, target=target)}
    if path.suffix == ".so":
        files[f"{name}.pc"] = _PKG_CONFIG.format(name=name, version=abi)
    return files
