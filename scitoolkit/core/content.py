"""Where the shipped datasets, surrogates and workflows lie: in the clone, or inside the wheel."""

from __future__ import annotations

from pathlib import Path

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name

KINDS = ("datasets", "surrogates", "workflows")


def content_root(kind: str) -> Path:
    """Return the folder of one kind of content.

    Raises:
        ConfigError: `kind` is none of datasets, surrogates, workflows.
    """
    if kind not in KINDS:
        raise ConfigError(
            f"unknown kind {kind!r}", allowed=", ".join(KINDS), fix=nearest_name(kind, KINDS) or ""
        )
    package = Path(__file__).resolve().parents[1]
    installed = package / "_content" / kind
    return installed if installed.is_dir() else package.parent / kind


def list_content(kind: str) -> list[str]:
    """Return the names of one kind of content."""
    root = content_root(kind)
    if not root.is_dir():
        return []
    return sorted(p.name for p in root.iterdir() if p.is_dir() and (p / "README.md").is_file())


def find_content(kind: str, name: str) -> Path:
    """Return the folder `kind/name`; `name` may also be a path, or start with `kind/`.

    Raises:
        ConfigError: it does not exist; the message lists what does.
    """
    direct = Path(name)
    if direct.exists():
        return direct
    short = name.removeprefix(f"{kind}/").strip("/")
    path = content_root(kind) / short
    if path.exists():
        return path
    known = list_content(kind)
    raise ConfigError(
        f"no {kind.removesuffix('s')} {name!r}",
        allowed=", ".join(known),
        fix=nearest_name(short, known) or "",
    )
