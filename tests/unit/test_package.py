"""Facts about the package as a whole."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import grimp
import networkx
import pytest

import scitoolkit

ROOT = Path(scitoolkit.__file__).parent
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages([str(ROOT)], "scitoolkit.")
    if not module.name.endswith("__main__")
)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # PyG calls it while it is imported
@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    if ">>>" in Path(module.__file__).read_text(encoding="utf-8"):
        assert doctest.testmod(module).failed == 0


def test_no_circle_of_files():
    graph = grimp.build_graph("scitoolkit", exclude_type_checking_imports=False, cache_dir=None)
    imports = networkx.DiGraph(
        (module, other)
        for module in graph.modules
        for other in graph.find_modules_directly_imported_by(module)
    )
    circles = [sorted(c) for c in networkx.strongly_connected_components(imports) if len(c) > 1]
    assert not circles


def _private_accesses(path: Path) -> list[str]:
    """Return accesses to private attributes and names that the file does not define itself."""
    tree = ast.parse(path.read_text())
    defined = {
        name
        for node in ast.walk(tree)
        for name in (
            [node.name]
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
            else [node.attr]
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            else [node.id]
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            else []
        )
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scitoolkit."):
            found += [f"{path.name}:{node.lineno} {a.name}" for a in node.names if _private(a.name)]
        if not isinstance(node, ast.Attribute) or not _private(node.attr):
            continue
        of = ast.unparse(node.value)
        ours = of not in ("self", "cls", "os") and not of.startswith(
            ("torch", "aten", "forward_ad")
        )
        if ours and node.attr not in defined and node.attr not in FOREIGN:
            found.append(f"{path.name}:{node.lineno} {of}.{node.attr}")
    return found


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_options"


# Private names of other packages for which there is no public one.
FOREIGN = {
    "_version",
    "_cdata",
    "_decompress",
    "_name",
    "_call_impl",  # of a module, past what `compile` put in its place
    "_getframe",  # of sys
    "_schema",  # of an operator
}


def test_private_attributes_stay_in_their_file():
    assert not [access for path in ROOT.rglob("*.py") for access in _private_accesses(path)]


def test_importing_the_package_imports_no_torch():
    code = "import sys, scitoolkit; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


PACKAGES = ["scitoolkit"] + [
    f"scitoolkit.{path.parent.name}"
    for path in sorted(ROOT.glob("*/__init__.py"))
    if "__all__" in path.read_text()
]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_exists_and_is_shown_to_tab(name):
    package = importlib.import_module(name)
    assert set(package.__all__) <= set(dir(package))
    for public in package.__all__:
        assert getattr(package, public) is not None


def test_lazy_packages_show_their_names_to_type_checkers():
    for path in ROOT.glob("*/__init__.py"):
        text = path.read_text()
        if "lazy_names" not in text:
            continue
        package = importlib.import_module(f"scitoolkit.{path.parent.name}")
        for name in package.__all__:
            assert f" {name} as {name}" in text, (path, name)
