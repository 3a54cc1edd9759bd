"""Sizes and names of the package against `budgets.yaml`; `make lint` runs it.

A room is a folder of `scitoolkit/`. Code is a line with a token that is neither a comment nor a
docstring, so that comments, docstrings and blank lines are free.

    python tests/helpers/budgets.py          # what is above its bound; exit code 1
    python tests/helpers/budgets.py --lower  # bounds of names become the present counts where lower
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
BUDGETS = ROOT / "budgets.yaml"
FACE = "face"
# Names that do not tell what the object holds.
EMPTY_NAMES = frozenset({"found", "given", "each", "kept", "known"})
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_STARTS_STATEMENT = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def code_lines(source: str) -> int:
    """Return the number of lines with code.

    Example:
        >>> code_lines('\"\"\"Doc.\"\"\"\\n\\n# Why.\\nx = 1  # one\\n')
        1
    """
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    lines: set[int] = set()
    at_start = True
    for token, following in zip(tokens, [*tokens[1:], tokens[-1]], strict=True):
        if token.type in _STARTS_STATEMENT:
            at_start = True
        if token.type in _NO_CODE:
            continue
        # A string that is a statement on its own is a docstring, or as good as a comment.
        alone = token.type == tokenize.STRING and at_start
        at_start = False
        if not (alone and following.type in (tokenize.NEWLINE, tokenize.COMMENT)):
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def modules(package: Path) -> Iterator[tuple[str, str]]:
    """Yield the room and the source of every module of a package."""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        yield (parts[0] if len(parts) > 1 else FACE), path.read_text(encoding="utf-8")


def measure(package: Path) -> dict[str, dict[str, int]]:
    """Return code lines and empty names by room, and how many classes share a name."""
    code: Counter[str] = Counter()
    empty: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    for room, source in modules(package):
        code[room] += code_lines(source)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                empty[room] += node.id in EMPTY_NAMES
            # A configuration class has the name of the member that it configures.
            elif isinstance(node, ast.ClassDef) and not node.name.endswith("Config"):
                classes[node.name] += 1
    shared = {name: count for name, count in sorted(classes.items()) if count > 1}
    return {"code_lines": dict(code), "empty_names": dict(empty), "shared_class_names": shared}


_FIXES = {
    "code_lines": "make the room smaller, or raise its bound and state the reason in the commit",
    "empty_names": f"{', '.join(sorted(EMPTY_NAMES))}: name what the object holds",
    "shared_class_names": "classes of one name in the package: give the new one another name",
}


def excesses(measured: Mapping[str, Any], bounds: Mapping[str, Any]) -> list[str]:
    """Return a line for every figure above its bound; without a bound, 0 (one class a name)."""
    lines = []
    for table, fix in _FIXES.items():
        unlisted = 1 if table == "shared_class_names" else 0
        for name, count in sorted(measured[table].items()):
            bound = (bounds.get(table) or {}).get(name, unlisted)
            if not count <= bound:
                lines.append(f"budgets.yaml: {table}: {name}: {count} > {bound}; {fix}")
    return lines


def lowered(measured: Mapping[str, Any], bounds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bounds with those of names lowered to the present counts."""
    lower: dict[str, Any] = defaultdict(dict, {"code_lines": dict(bounds["code_lines"])})
    for table in ("empty_names", "shared_class_names"):
        for name, bound in (bounds.get(table) or {}).items():
            count = min(bound, measured[table].get(name, 0))
            if count > (1 if table == "shared_class_names" else 0):
                lower[table][name] = count
    return dict(lower)


def main(arguments: list[str]) -> int:
    """Print what is above its bound."""
    measured = measure(ROOT / "scitoolkit")
    text = BUDGETS.read_text(encoding="utf-8")
    bounds = yaml.safe_load(text)
    if "--lower" in arguments:
        head = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
        lower = yaml.safe_dump(lowered(measured, bounds), sort_keys=False)
        BUDGETS.write_text(head + lower, encoding="utf-8")
    lines = excesses(measured, bounds)
    print("\n".join(lines) if lines else "budgets kept")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
