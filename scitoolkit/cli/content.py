"""`scitoolkit ls | show | cp | fetch`: shipped datasets, surrogates and workflows, and plug-ins."""

from __future__ import annotations

import http.client
import os
import re
import shlex
import shutil
import tempfile
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.content import (
    KINDS,
    content_root,
    fetch_content,
    find_content,
    list_content,
)
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.suggest import nearest_name

if TYPE_CHECKING:
    from scitoolkit.core import plugins


def ls(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND]", help="datasets, surrogates, workflows, or a plug-in kind."
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List datasets, surrogates and workflows, or the plug-ins of a kind (`ls codecs`)."""
    from scitoolkit.core import plugins

    kind_name = _kind_of(kind) if kind else ""
    if kind_name in plugins.kind_names():
        _list_members(kind_name, as_json)
        return
    shown = [kind_name] if kind_name else list(KINDS)
    entries = {k: {name: _headline(k, name) for name in list_content(k)} for k in shown}
    if as_json:
        options.print_json(entries if kind else {**entries, "kinds": plugins.kind_names()})
        return
    width = max((len(f"{k}/{name}") for k, cards in entries.items() for name in cards), default=0)
    for k, cards in entries.items():
        for name, headline in cards.items():
            print(f"{f'{k}/{name}':<{width}}  {headline}")
    if not kind:
        print(f"plug-in kinds (scitoolkit ls KIND): {', '.join(plugins.kind_names())}")


def _kind_of(text: str, content: Sequence[str] = KINDS) -> str:
    """Return the kind of content or plug-ins, given in the singular or plural."""
    from scitoolkit.core import plugins

    asked = text.strip("/").lower().replace("-", " ").replace("_", " ")
    spelt = {form: k for k in plugins.kind_names() for form in (k, _plural(k))}
    for shipped in content:
        spelt[shipped] = shipped
        spelt.setdefault(shipped.removesuffix("s"), shipped)
    if asked not in spelt:
        names = [*content, *(_plural(k) for k in plugins.kind_names())]
        raise ConfigError(
            f"unknown kind {text!r}",
            allowed=", ".join(names),
            fix=nearest_name(asked, list(spelt)) or "",
        )
    return spelt[asked]


def plugin_kind(text: str) -> plugins.Kind[Any]:
    """Return the plug-in kind of a name in the singular or plural.

    Raises:
        ConfigError: there is no plug-in kind of that name.
    """
    from scitoolkit.core import plugins

    return plugins.kind(_kind_of(text, content=()))


def _plural(name: str) -> str:
    """Return the plural of a kind's name.

    Example:
        >>> _plural("codec"), _plural("search strategy")
        ('codecs', 'search strategies')
    """
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


def _list_members(name: str, as_json: bool) -> None:
    from scitoolkit.core import plugins

    kind = plugins.kind(name)
    members = kind.members()
    if as_json:
        rows = [asdict(member) for member in members]
        options.print_json({"kind": kind.name, "summary": kind.summary, "members": rows})
        return
    print(f"{kind.name}: {kind.summary}")
    for member in members:
        origin = "" if member.origin == "scitoolkit" else f"  [{member.origin}]"
        state = f"not available: {member.problem}" if member.problem else member.summary
        print(f"  {member.name:20s} {state}{origin}")


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name printed by `scitoolkit ls`.")],
    as_json: options.Json = False,
) -> None:
    """Print the card of a dataset, surrogate or workflow and verify a dataset's files."""
    from scitoolkit.core import dataset_card

    folder = _find(name, "show", card=True)
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
    for other in _namesakes(folder):
        print(f"see also: scitoolkit show {other}")
    for problem in problems:
        print(f"changed or missing: {problem}")
    if is_dataset and not problems:
        print("all files match the card (SHA-256)")


def cp(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name printed by `scitoolkit ls`, or a file.")
    ],
    destination: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder to create; NAME.zarr for a file.")
    ],
) -> None:
    """Copy a dataset, surrogate or workflow to a new folder, or a file to sharded Zarr.

    A file with chunks of many samples is slow to read in the random order of training: the store
    has a chunk for each sample, in shards, and is compared with the file before it has its name.
    """
    if destination.suffix == ".zarr":
        from scitoolkit.io.rechunk import copy_to_shards

        print(copy_to_shards(name, destination))
        return
    if os.path.isfile(name):
        raise ConfigError(
            "a file is copied to a Zarr store only",
            where=str(destination),
            allowed="NAME.zarr",
            fix=f"scitoolkit cp {shlex.quote(name)} {shlex.quote(f'{destination.stem}.zarr')}",
        )
    folder = _find(name, "cp", shlex.quote(str(destination)))
    from scitoolkit.core.files import disk_error, making_folder

    def copy(source: str, target: str) -> str:
        try:
            return shutil.copy2(source, target)
        except OSError as error:  # of which copytree keeps only the text
            raise disk_error(error, destination) from None

    with making_folder(destination) as made:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(folder, made, ignore=ignore, dirs_exist_ok=True, copy_function=copy)
    print(destination)


def fetch(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="Source archive of this release (path or https URL), or a clone."
        ),
    ],
) -> None:
    """Install the data and weights of the shipped content, which wheels do not contain."""
    if source.partition("://")[0] != "https":
        print(fetch_content(Path(source)))
        return
    with tempfile.NamedTemporaryFile(suffix=".tar.gz") as copy:
        try:
            with urllib.request.urlopen(source, timeout=60) as remote:
                shutil.copyfileobj(remote, copy)
        except (OSError, http.client.HTTPException) as error:
            raise DataError(
                f"cannot be fetched: {error}",
                where=source,
                fix="without a network, copy the archive to this machine and pass its path",
            ) from error
        copy.flush()
        print(fetch_content(Path(copy.name)))


def _namesakes(folder: Path) -> list[str]:
    """Return KIND/NAME of other content with the name of `folder`."""
    kinds = [k for k in KINDS if folder.name in list_content(k) and k != folder.parent.name]
    return [f"{k}/{folder.name}" for k in kinds]


def _find(name: str, command: str, more: str = "", *, card: bool = False) -> Path:
    kind, _, rest = name.strip("/").partition("/")
    if rest and kind in KINDS:
        return find_content(kind, rest, card=card)
    # A surrogate's card links to its data and workflow, so it comes first.
    for kind in ("surrogates", "workflows", "datasets"):
        if name in list_content(kind):
            return find_content(kind, f"{kind}/{name}", card=card)
    entries = [f"{k}/{n}" for k in KINDS for n in list_content(k)]
    short = {n: f"{k}/{n}" for k in KINDS for n in list_content(k)}
    similar = sorted((n for n in short if name.lower() in n), key=lambda n: n.find(name.lower()))
    near = nearest_name(name, [*entries, *short]) or next(iter(similar), None)
    instead = f"scitoolkit {command} {short.get(near, near)} {more}".rstrip() if near else ""
    raise ConfigError(
        f"nothing called {name!r}",
        allowed="datasets, surrogates and workflows listed by `scitoolkit ls`",
        fix=instead or "scitoolkit ls",
    )


def _headline(kind: str, name: str) -> str:
    """Return the part of a card's title after the name, else the first sentence of its text."""
    text = (content_root(kind) / name / "README.md").read_text(encoding="utf-8")
    return headline(text)


def headline(card: str) -> str:
    """Return a one-line description from the text of a card.

    Example:
        >>> headline("# sst: monthly sea-surface temperature\\n\\nMore text.")
        'monthly sea-surface temperature'
        >>> headline("# acac\\n\\nEnergies and forces of\\n15 atoms. A small benchmark.")
        'Energies and forces of 15 atoms.'
    """
    title, _, rest = card.partition("\n")
    _, colon, subtitle = title.partition(": ")
    if colon:
        return subtitle.strip()
    paragraphs = (" ".join(p.split()) for p in rest.split("\n\n"))
    prose = next((p for p in paragraphs if p and not p.startswith(("#", "!", "<", "|", "```"))), "")
    sentence = re.match(r".+?\.(?= |$)", prose)
    return sentence[0] if sentence else prose
