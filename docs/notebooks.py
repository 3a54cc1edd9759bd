"""Write every tutorial also as a Jupyter notebook: `python docs/notebooks.py`.

`docs/tutorials/NAME.ipynb` has the text of NAME.md; its Python blocks are cells, and so are blocks
of commands marked as bash (`%%bash -e`; commands with places to fill in are not marked) and files,
which have a title (`%%writefile TITLE`). The pages are the source, and their blocks run in the
tests; a test fails when a notebook differs from its page. `--execute NAME` runs the cells of one in
a kernel, for which nbclient and ipykernel must be installed, and stores the outputs in the current
folder. `--cells NAME` runs them in this process, without Jupyter, and stores nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent / "tutorials"
_FENCE = re.compile(
    r'^```(?P<language>[\w+-]*)(?: title="(?P<file>[^"\n]+)")?[^\n]*\n(?P<code>.*?)^```[ ]*$\n?',
    re.DOTALL | re.M,
)


def cells(page: str) -> Iterator[tuple[str, str]]:
    """Yield (`code` or `markdown`, text) for the parts of a page."""
    text, end = "", 0
    for block in _FENCE.finditer(page):
        text += page[end : block.start()]
        end = block.end()
        code = block["code"].rstrip("\n")
        is_shell = block["language"] == "bash"
        if block["file"]:
            code = f"%%writefile {block['file']}\n{code}"
        elif block["language"] != "python" and not is_shell:
            text += block[0]
            continue
        if text.strip():
            yield "markdown", text.strip()
        text = ""
        yield "code", f"%%bash -e\n{code}" if is_shell else code
    text += page[end:]
    if text.strip():
        yield "markdown", text.strip()


def notebook(page: str) -> str:
    """Return a page as the text of a notebook, nbformat 4.5, the same for the same page."""
    shown = []
    for number, (kind, text) in enumerate(cells(page)):
        identity = hashlib.sha256(f"{number} {kind} {text}".encode()).hexdigest()[:12]
        cell = {"cell_type": kind, "id": identity, "metadata": {}}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        shown.append({**cell, "source": text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": shown, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def pages() -> list[Path]:
    """Return the pages that are also notebooks."""
    return sorted(FOLDER.glob("*.md"))


def execute(name: str) -> Path:
    """Run the cells of a notebook in the current folder; return the file with the outputs."""
    import nbclient
    import nbformat

    text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    ran = nbclient.NotebookClient(nbformat.reads(text, 4), timeout=1800).execute()
    target = Path(f"{name}.ipynb")
    target.write_text(nbformat.writes(ran), encoding="utf-8")
    return target


def run_cells(name: str) -> int:
    """Run the cells of a notebook in the current folder, as a kernel would; return their number.

    Raises:
        subprocess.CalledProcessError: a command that fails.
        ValueError: a cell with another magic than those that `cells` writes.
    """
    book = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    codes = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
    main_module: dict[str, object] = sys.modules["__main__"].__dict__
    for number, code in enumerate(codes):
        head, _, body = code.partition("\n")
        if head == "%%bash -e":
            subprocess.run(["bash", "-e", "-c", body], check=True)
        elif head.startswith("%%writefile "):
            Path(head.removeprefix("%%writefile ")).write_text(body + "\n", encoding="utf-8")
        elif head.startswith("%"):
            raise ValueError(f"cell {number} of {name}: {head}")
        else:
            exec(compile(code, f"{name}.ipynb cell {number}", "exec"), main_module)
    return len(codes)


def main() -> None:
    """Write all notebooks, or execute one."""
    if "--cells" in sys.argv:
        print(run_cells(sys.argv[-1]))
        return
    if "--execute" in sys.argv:
        print(execute(sys.argv[-1]))
        return
    for page in pages():
        text = notebook(page.read_text(encoding="utf-8"))
        page.with_suffix(".ipynb").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
