"""Skeleton packages of plug-ins, written by `scitoolkit new KIND NAME`.

A skeleton has a pyproject.toml with the entry point, a module with the member, and a test that
inherits the kind's contract suite. The member derives from the common base class of the existing
members; its abstract methods raise NotImplementedError until they are written. A suite may replace
the text of the member (`member_template`, a format string with name and cls), of the test
(`skeleton_test(kind, name, cls)`), or of both (`skeleton(name, cls)`).
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.files import making_folder
from scitoolkit.core.plugins import Kind

_PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.26"]
build-backend = "hatchling.build"

[project]
name = "scitoolkit-{dashed}"
version = "0.1.0"
description = "A {kind} for scitoolkit."
dependencies = ["scitoolkit"]

[project.entry-points."{group}"]
{name} = "scitoolkit_{name}:{cls}"

[tool.hatch.build.targets.wheel]
only-include = ["scitoolkit_{name}.py"]

[tool.ruff]
line-length = 100
"""

_MEMBER = '''\
"""The {kind} `{name}`."""

from __future__ import annotations

{imports}


class {cls}({base}):
    """One line for `scitoolkit ls {kind}`: what {name} does."""
{fields}{methods}'''

_TEST = """\
from __future__ import annotations

import pytest
from {contract_module} import {contract}

from scitoolkit_{name} import {cls}


class Test{cls}({contract}):
    @pytest.fixture
    def {fixture}(self):
        return {cls}()
"""


def write_skeleton(kind: Kind[Any], name: str, folder: Path) -> list[Path]:
    """Write the skeleton package of a plug-in into a new folder and return its files.

    Args:
        kind: the plug-in kind; it must have a contract suite.
        name: name of the new member, a Python identifier.
        folder: the folder to create.

    Raises:
        ConfigError: the kind has no contract suite, the name is taken or invalid, or the folder
            exists.
    """
    _check(kind, name, folder)
    cls = "".join(part.capitalize() for part in name.split("_"))
    files = {
        "pyproject.toml": _PYPROJECT.format(
            kind=kind.name, name=name, cls=cls, group=kind.group, dashed=name.replace("_", "-")
        ),
        **_sources(kind, name, cls),
    }
    with making_folder(folder) as made:
        for file, text in files.items():
            (made / file).write_text(text, encoding="utf-8")
    return [folder / file for file in files]


def _check(kind: Kind[Any], name: str, folder: Path) -> None:
    if not kind.contract:
        raise ConfigError(
            f"no skeleton for kind {kind.name!r}, which has no contract suite", fix="scitoolkit ls"
        )
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError(
            f"invalid name {name!r}", allowed="lower-case letters, digits and _, a letter first"
        )
    if name in kind:
        raise ConfigError(f"{kind.name} {name!r} already exists", fix="choose another name")
    if folder.exists():
        raise ConfigError("already exists", where=str(folder), fix="choose another folder")


def _sources(kind: Kind[Any], name: str, cls: str) -> dict[str, str]:
    """Return module and test, from the contract suite's example or the members' base class."""
    module, _, contract = kind.contract.partition(":")
    suite = getattr(__import__(module, fromlist=[contract]), contract)
    example = getattr(suite, "skeleton", None)
    if example is not None:
        member, test = example(name, cls)
    else:
        base = common_base([kind.get(member_name) for member_name in kind])
        template = getattr(suite, "member_template", "")
        member = template.format(name=name, cls=cls) or _member(kind, name, cls, base)
        if hasattr(suite, "skeleton_test"):
            test = suite.skeleton_test(kind.name, name, cls)
        else:
            fixture = "config" if hasattr(suite, "config") else kind.name.split()[-1]
            test = _TEST.format(
                name=name, cls=cls, contract=contract, contract_module=module, fixture=fixture
            )
    return {f"scitoolkit_{name}.py": member, f"test_{name}.py": test}


def common_base(members: list[type]) -> type:
    """Return the nearest class that all members derive from.

    Example:
        >>> common_base([KeyError, IndexError]).__name__
        'LookupError'
    """
    shared = [c for c in members[0].__mro__ if all(issubclass(m, c) for m in members)]
    return next(c for c in shared if c not in members or len(members) == 1)


def _member(kind: Kind[Any], name: str, cls: str, base: type) -> str:
    fields = ""
    if "name" in getattr(next(iter([kind.get(k) for k in kind])), "model_fields", {}):
        fields = f'\n    name: Literal["{name}"] = "{name}"\n'
    methods = "".join(_method(base, method) for method in sorted(_abstract(base)))
    imports = _imports(base, methods)
    typing_only = _typing_imports(base, methods)
    wanted = ["TYPE_CHECKING"] * bool(typing_only) + ["Literal"] * bool(fields)
    if wanted:
        imports.insert(0, f"from typing import {', '.join(wanted)}\n")
    if typing_only:
        imports.append("\nif TYPE_CHECKING:\n" + textwrap.indent("\n".join(typing_only), "    "))
    return _MEMBER.format(
        kind=kind.name,
        name=name,
        cls=cls,
        base=base.__name__,
        fields=fields,
        methods=methods,
        imports="\n".join(imports),
    )


def _imports(base: type, methods: str) -> list[str]:
    """Return the imports of the base class and of the names in its methods' signatures."""
    attributes = vars(sys.modules[base.__module__])
    words = dict.fromkeys(re.findall(r"\b[A-Za-z_]\w*\b", re.sub(r'""".*?"""', "", methods)))
    used = {word: attributes[word] for word in words if word in attributes}
    modules = [
        f"import {value.__name__} as {word}" if word != value.__name__ else f"import {word}"
        for word, value in used.items()
        if inspect.ismodule(value)
    ]
    names = {base.__name__, *(word for word in used if not inspect.ismodule(used[word]))}
    return [*modules, f"from {base.__module__} import {', '.join(sorted(names))}"]


def _typing_imports(base: type, methods: str) -> list[str]:
    """Return the TYPE_CHECKING imports of the base's module that the signatures use."""
    tree = ast.parse(inspect.getsource(sys.modules[base.__module__]))
    guarded = [
        n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
    ]
    nodes = [node for block in guarded for node in block.body]
    words = set(re.findall(r"\b[A-Za-z_]\w*\b", re.sub(r'""".*?"""', "", methods)))
    lines = []
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [a for a in node.names if (a.asname or a.name) in words]
            lines += [ast.unparse(node)] if node.names else []
    return sorted(lines, key=lambda line: (line.startswith("from"), line.split()[1]))


def _abstract(base: type) -> frozenset[str]:
    return getattr(base, "__abstractmethods__", frozenset())


def _method(base: type, name: str) -> str:
    attribute = inspect.getattr_static(base, name)
    function = getattr(attribute, "__func__", attribute)
    head = inspect.getsource(function).partition('"""')[0].rstrip()
    lines = [line for line in textwrap.dedent(head).splitlines() if "abstract" not in line]
    summary = (inspect.getdoc(function) or "").partition("\n")[0]
    body = [f'    """{summary}"""', '    raise NotImplementedError("write this method")']
    return "\n" + textwrap.indent("\n".join([*lines, *body]), "    ") + "\n"
