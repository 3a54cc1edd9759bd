"""Generated C can be read and printed."""

import re
from pathlib import Path

import pytest
import torch

from scitoolkit.cli.main import run_cli
from scitoolkit.core.errors import ConfigError
from scitoolkit.ops.codegen import GeneratedC, operations
from scitoolkit.ops.codegen.capabilities import capability_table
from scitoolkit.ops.codegen.emit import indented
from scitoolkit.ops.codegen.sources import c_source
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", sorted(operations))
def test_the_source_of_every_operation_has_a_banner_with_its_spec(name, dtype):
    assert operations.get(name).name in GeneratedC.implementations
    source = c_source(name, dtype)
    title = source.splitlines()[0]
    assert re.fullmatch(r"/\* .* \*/", title)
    assert ("double" if dtype == torch.float64 else "float") in title
    lines = [line for line in source.splitlines() if line.strip()]
    assert max(map(len, lines)) < 30_000
    assert sum(line.startswith("  ") for line in lines) > len(lines) / 4  # bodies are indented


def test_an_operation_is_printed(capsys):
    assert run_cli(["ops", "show", "24", "--operation", "spmm", "--real", "double"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("/* sparse product and sampled product of 24 columns, double */")
    assert "/* pass 0: columns 0..23, 3 vectors of 8, 0 single */" in out


def test_a_spec_of_another_operation_is_refused():
    with pytest.raises(ConfigError, match=r"spec 'wide' of spmm. Allowed: text such as '7'"):
        c_source("spmm", torch.float32, "wide")
    with pytest.raises(ConfigError, match="no specs in text form"):
        c_source("fitting_network", torch.float32, "240")
    with pytest.raises(ConfigError, match="spmm"):
        c_source("spmv", torch.float32)


def test_the_table_of_the_docs_is_the_registry():
    page = (Path(__file__).parents[3] / "docs" / "reference" / "kernels.md").read_text()
    assert f"-->\n{capability_table()}<!--" in page
