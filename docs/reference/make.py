"""Write docs/reference/plugins.md from the registries: `python docs/reference/make.py`."""

from __future__ import annotations

from pathlib import Path

from scitoolkit.core.plugins import kinds

PAGE = Path(__file__).with_name("plugins.md")
HEAD = """# Plug-in kinds

Written by `python docs/reference/make.py` from the registries; `scitoolkit ls KIND` prints the same
with what each member lacks on this machine.
"""


def page() -> str:
    """Return the page: a section a kind, a row a member of ours."""
    parts = [HEAD]
    for name, kind in kinds().items():
        parts.append(f"\n## {name}\n")
        contract = f"; contract suite `{kind.contract}`" if kind.contract else ""
        parts.append(f"{kind.summary}. Entry-point group `{kind.group}`{contract}.\n")
        rows = [row for row in kind.members() if row.origin.startswith("scitoolkit")]
        parts.append("| name | summary |\n|---|---|")
        parts += [f"| `{row.name}` | {row.summary or '-'} |" for row in rows]
        parts[-1] += "\n"
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
