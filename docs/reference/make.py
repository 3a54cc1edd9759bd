"""Write the pages that follow from the code: `python docs/reference/make.py`.

plugins.md and operators.md come from the registries, features.md from configurations, jobs and
imports of the domains, reading.md from the tables that decide what is read, engines.md from the
export of potentials, api/*.md from the public names of packages.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterable
from pathlib import Path

import scitoolkit
from scitoolkit.core.plugins import kinds

sys.path.insert(0, str(Path(__file__).parent))
from engines import engines_page
from features import features_page
from reading import reading_page

FOLDER = Path(__file__).parent
KINDS_HEAD = """# Plug-in kinds

Written by `python docs/reference/make.py` from the registries; `scitoolkit ls KIND` prints the same
with what each member lacks on this machine.
"""
OPERATORS_HEAD = """# Operators that are exported to C

Written by `python docs/reference/make.py`. Modules are traced by `torch.export`, which takes most
operators of torch apart into these of its core (ATen). Any other is refused by name.

| lowering | operators |
|---|---|
"""
API_HEAD = """# {title}

Written by `python docs/reference/make.py`.
"""


def plugin_page() -> str:
    """Return plugins.md: a section a kind, a row a member of ours."""
    parts = [KINDS_HEAD]
    for name, kind in kinds().items():
        parts.append(f"\n## {name}\n")
        contract = f"; contract suite `{kind.contract}`" if kind.contract else ""
        page = f"[How to add a member](../how-to/{how_to_add(kind.group)})."
        parts.append(f"{kind.summary}. Entry-point group `{kind.group}`{contract}. {page}\n")
        rows = [row for row in kind.members() if row.origin.startswith("scitoolkit")]
        parts.append("| name | summary |\n|---|---|")
        parts += [f"| `{row.name}` | {row.summary or '-'} |" for row in rows]
        parts[-1] += "\n"
    return "\n".join(parts)


def operators_page() -> str:
    """Return operators.md: the ATen operators that are exported, by lowering."""
    from scitoolkit.deploy.kinds import lowerings
    from scitoolkit.deploy.lowering.complex_numbers import LINEAR, OTHER
    from scitoolkit.deploy.taken_apart import FROM_TORCH, TABLE

    def names(targets: Iterable[str]) -> str:
        return ", ".join(f"`{n}`" for n in sorted({t.removeprefix("aten.") for t in targets}))

    rows = [
        (f"`{name}`", (t.rsplit(".", 1)[0] for t in lowerings.get(name).targets))
        for name in lowerings
    ]
    rows.append(("written with others", [*FROM_TORCH, *(op._schema.name[6:] for op in TABLE)]))
    rows.append(("of complex numbers", [*LINEAR, *OTHER]))
    return OPERATORS_HEAD + "".join(f"| {kind} | {names(own)} |\n" for kind, own in rows)


def how_to_add(group: str) -> str:
    """Return the first how-to page that registers a member in an entry-point group."""
    for path in sorted((FOLDER.parent / "how-to").glob("add-a*.md")):
        if f'[project.entry-points."{group}"]' in path.read_text(encoding="utf-8"):
            return path.name
    raise LookupError(f"no page docs/how-to/add-a*.md has the table for {group}")


def api_pages() -> dict[str, str]:
    """Return the page of each top-level package: its public names, which mkdocstrings fills in."""
    pages: dict[str, list[str]] = {}
    found = pkgutil.walk_packages(scitoolkit.__path__, "scitoolkit.")
    for package in ["scitoolkit", *sorted(module.name for module in found if module.ispkg)]:
        names = getattr(importlib.import_module(package), "__all__", ())
        if shown := sorted(name for name in names if not name.startswith("_")):
            title = ".".join(package.split(".")[:2])
            parts = pages.setdefault(title, [API_HEAD.format(title=title)])
            parts.append(
                f"::: {package}\n    options:\n      members:\n"
                + "".join(f"        - {name}\n" for name in shown)
            )
    return {title: "\n".join(parts) for title, parts in pages.items()}


def pages() -> dict[Path, str]:
    """Return the text of every page that follows from the code."""
    api = {FOLDER / "api" / f"{title}.md": text for title, text in api_pages().items()}
    return {
        FOLDER / "plugins.md": plugin_page(),
        FOLDER / "operators.md": operators_page(),
        FOLDER / "features.md": features_page(),
        FOLDER / "reading.md": reading_page(),
        FOLDER / "engines.md": engines_page(),
        **api,
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
