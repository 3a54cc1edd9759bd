"""The notebooks of the tutorials are their pages: the same text, code and commands."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
sys.path.insert(0, str(DOCS))

import notebooks  # noqa: E402

PAGES = notebooks.pages()


def test_every_tutorial_is_a_notebook():
    assert len(PAGES) >= 13
    assert {p.stem for p in PAGES} == {p.stem for p in (DOCS / "tutorials").glob("*.ipynb")}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_notebook_is_its_page(page):
    text = page.read_text(encoding="utf-8")
    stored = page.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert stored == notebooks.notebook(text), "run: python docs/notebooks.py"
    book = json.loads(stored)
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    identities = [cell["id"] for cell in book["cells"]]
    assert len(set(identities)) == len(identities)
    code = ["".join(c["source"]) for c in book["cells"] if c["cell_type"] == "code"]
    blocks = re.findall(r"^```python[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert [c for c in code if not c.startswith("%%")] == [b.rstrip("\n") for b in blocks]
    for cell in code:
        if not cell.startswith("%%"):
            ast.parse(cell)


def test_text_commands_code_and_other_blocks():
    page = (
        "# A\n\n```bash\nscitoolkit ls\n```\ntext\n```yaml\na: 1\n```\n\n"
        '```c title="a.c"\nint a;\n```\n```python\nx = 1\n```\nend\n'
    )
    assert list(notebooks.cells(page)) == [
        ("markdown", "# A"),
        ("code", "%%bash -e\nscitoolkit ls"),
        ("markdown", "text\n```yaml\na: 1\n```"),
        ("code", "%%writefile a.c\nint a;"),
        ("code", "x = 1"),
        ("markdown", "end"),
    ]


def run(folder: Path, page: str) -> subprocess.CompletedProcess[str]:
    """Run the cells of a page in a folder, in a process of their own."""
    (folder / "a.ipynb").write_text(notebooks.notebook(page), encoding="utf-8")
    code = (
        f"import sys; sys.path.insert(0, {str(DOCS)!r}); import notebooks\n"
        f"from pathlib import Path; notebooks.FOLDER = Path({str(folder)!r})\n"
        "print(notebooks.run_cells('a'), 'cells')"
    )
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)


def test_cells_run_in_order_and_the_first_failure_ends_them(tmp_path):
    page = (
        "# A\n```python\nx = 3\n```\n"
        '```text title="n.txt"\nfour\n```\n'
        "```bash\ncat n.txt > copy.txt\n```\n"
        "```python\nprint(x, open('copy.txt').read().strip())\n```\n"
    )
    done = run(tmp_path, page)
    assert (done.returncode, done.stdout.split("\n")[:2]) == (0, ["3 four", "4 cells"])
    for bad in ("```bash\nfalse\n```\n", "```python\n1 / 0\n```\n", "```python\n%ls\n```\n"):
        done = run(tmp_path, page + bad + "```python\nprint('after')\n```\n")
        assert done.returncode
        assert "after" not in done.stdout
