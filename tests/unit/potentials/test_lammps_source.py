"""Source trees of LAMMPS whose paths are odd; `test_lammps` has those with real headers."""

from __future__ import annotations

import pytest

from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.potentials.export.lammps_source import find_lammps_source
from scitoolkit.potentials.export.pair_style import PLUGIN, build_pair_style


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A tree in a folder with a blank; its compiler, too, writes its arguments to the output."""
    monkeypatch.delenv("CXX", raising=False)
    source = tmp_path / "my lammps"
    styles = source / "build" / "styles"
    for folder in (source / "src", styles, tmp_path / "my tools"):
        folder.mkdir(parents=True)
    (source / "src" / "pair.h").touch()
    (source / "src" / "version.h").write_text('#define LAMMPS_VERSION "22 Jul 2025"\n')
    (styles / "lmpgitversion.h").write_text('git_descriptor() { return "(unknown)"; }\n')
    compiler = tmp_path / "my tools" / "g++"
    compiler.write_text(
        '#!/bin/sh\nfor last; do [ "$before" = -o ] && out="$last"; before="$last"\n'
    )
    with compiler.open("a") as file:
        file.write('done\nprintf "%s\\n" "$@" > "$out"\n')
    compiler.chmod(0o755)
    text = f"PKG_PLUGIN:BOOL=ON\nBUILD_MPI:BOOL=OFF\nCMAKE_CXX_COMPILER:FILEPATH={compiler}\n"
    (source / "build" / "CMakeCache.txt").write_bytes(b"//of Andr\xe9\n" + text.encode())
    return source


def test_paths_with_blanks_and_caches_in_other_encodings_are_taken(tree, tmp_path):
    plugin = build_pair_style(find_lammps_source(tree), tmp_path / "the plugin")
    assert plugin == tmp_path / "the plugin" / PLUGIN
    arguments = plugin.read_text().splitlines()
    assert f"-I{tree / 'src'}" in arguments
    assert f"-I{tree / 'src' / 'STUBS'}" in arguments


def test_a_compiler_that_is_no_longer_there_is_refused(tree, tmp_path, monkeypatch):
    lammps = find_lammps_source(tree)
    (tmp_path / "my tools" / "g++").unlink()
    with pytest.raises(BackendError, match=r"my tools/g\+\+: the C\+\+ compiler cannot be run"):
        build_pair_style(lammps, tmp_path)
    monkeypatch.setenv("CXX", "no-such-wrapper c++")
    with pytest.raises(BackendError, match=r"no-such-wrapper: .*set CXX"):
        build_pair_style(lammps, tmp_path)


def test_the_commands_of_a_refusal_can_be_pasted(tree, tmp_path):
    with pytest.raises(ConfigError, match=r"-S '.*/my lammps/cmake' -B '.*/my build'"):
        find_lammps_source(tree, tmp_path / "my build")
