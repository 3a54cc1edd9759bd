"""Generated C can be read and printed."""

import re
from pathlib import Path

import pytest

from scitoolkit.cli.main import run_cli
from scitoolkit.ops.codegen.capabilities import capability_table
from scitoolkit.ops.codegen.emit import indented
from scitoolkit.ops.tensor_product import TensorProductSpec, cpu

SPEC = TensorProductSpec.channelwise("8x0e + 8x1o", "0e + 1o", "0e + 1o")


@pytest.mark.parametrize("kernel", cpu.KERNELS)
def test_lines_are_indented_and_paths_have_banners(kernel):
    source = cpu.generate(SPEC, kernel, "float")
    assert max(len(line) - len(line.lstrip()) for line in source.splitlines()) >= 4
    for number in range(len(SPEC.paths)):
        assert SPEC.describe(number) in source
    assert re.search(r"^/\* " + kernel, source)
    assert indented(source) == source  # closed at depth 0, and stable


def test_indentation_changes_no_token():
    source = "#define A \\\n  { x\nvoid f(void) {\nif (a) {\nb;\n} else {\nc;\n}\n}\n"
    assert "".join(indented(source).split()) == "".join(source.split())


def test_a_kernel_is_printed(capsys):
    assert run_cli(["ops", "show", "4x0e + 4x1o * 0e + 1o -> 0e", "--kernel", "double"]) == 0
    out = capsys.readouterr().out
    assert "void double_backward(" in out
    assert "path 1: 4x1o x 1x1o -> 4x0e, uvu, weights 4..7" in out


def test_a_spec_that_is_none_is_refused_with_an_example(capsys):
    assert run_cli(["ops", "show", "4x0e"]) == 2
    assert "IN1 * IN2 -> OUT" in capsys.readouterr().err


def test_the_table_of_the_docs_is_the_registry():
    page = (Path(__file__).parents[3] / "docs" / "reference" / "kernels.md").read_text()
    assert f"-->\n{capability_table()}<!--" in page
