"""`scitoolkit ls | show | cp`: the shipped datasets, surrogates and workflows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core import dataset_card
from scitoolkit.core.content import KINDS, content_root, find_content, list_content
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name


def ls(
    kind: Annotated[str | None, typer.Argument(help=f"One of: {', '.join(KINDS)}.")] = None,
    as_json: options.Json = False,
) -> None:
    """List the shipped datasets, surrogates and workflows."""
    kinds = [kind] if kind else list(KINDS)
    found = {k: {name: _headline(k, name) for name in list_content(k)} for k in kinds}
    for k in kinds:
        content_root(k)
    if as_json:
        options.print_json(found)
        return
    for k, entries in found.items():
        for name, headline in entries.items():
            print(f"{k}/{name:24s} {headline}")


def show(
    name: Annotated[str, typer.Argument(help="KIND/NAME, or NAME when it is the only one.")],
    as_json: options.Json = False,
) -> None:
    """Print the card of a dataset, surrogate or workflow."""
    folder = _find(name)
    card = (folder / "README.md").read_text(encoding="utf-8")
    is_dataset = (folder / dataset_card.FILE_NAME).is_file()
    problems = list(dataset_card.problems(folder)) if is_dataset else []
    if as_json:
        files = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
        options.print_json(
            {"path": str(folder), "files": files, "problems": problems, "card": card}
        )
        return
    print(card.rstrip())
    print(f"\n{folder}")
    for problem in problems:
        print(f"changed or missing: {problem}")
    if is_dataset and not problems:
        print("all files are as the card says (sha256)")


def cp(
    name: Annotated[str, typer.Argument(help="KIND/NAME, or NAME when it is the only one.")],
    destination: Annotated[Path, typer.Argument(help="A folder that does not exist yet.")],
) -> None:
    """Copy a dataset, surrogate or workflow to a folder of your own."""
    folder = _find(name)
    if destination.exists():
        raise ConfigError("exists already", where=str(destination), fix="choose another folder")
    shutil.copytree(folder, destination, ignore=shutil.ignore_patterns("__pycache__"))
    print(destination)


def _find(name: str) -> Path:
    kind, _, rest = name.strip("/").partition("/")
    if rest and kind in KINDS:
        return find_content(kind, rest)
    hits = [content_root(k) / name for k in KINDS if name in list_content(k)]
    if len(hits) == 1:
        return hits[0]
    known = [f"{k}/{n}" for k in KINDS for n in list_content(k)]
    if hits:
        known = [f"{hit.parent.name}/{name}" for hit in hits]
        raise ConfigError(f"{name!r} is there more than once", allowed=", ".join(known))
    raise ConfigError(
        f"nothing called {name!r}",
        allowed=", ".join(known),
        fix=nearest_name(name, known) or "scitoolkit ls",
    )


def _headline(kind: str, name: str) -> str:
    """Return the first line of prose in a card."""
    for line in (content_root(kind) / name / "README.md").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith(("#", "!", "<", "|", "`", "[")):
            return line.strip()
    return ""
