"""The pages on adding plug-ins: their Python blocks run, and they cover every kind."""

from __future__ import annotations

import subprocess
import sys

from pages import DOCS, python_blocks

from scitoolkit.core.plugins import kinds

PAGES = sorted((DOCS / "how-to").glob("add-a*.md"))


def test_the_blocks_of_all_pages_run_and_their_members_pass_the_contract_suites(tmp_path):
    with_blocks = []
    for page in PAGES:
        blocks = python_blocks(page.read_text(encoding="utf-8"))
        if blocks:
            with_blocks.append(tmp_path / f"test_{page.stem.replace('-', '_')}.py")
            with_blocks[-1].write_text("\n".join(blocks), encoding="utf-8")
    assert len(with_blocks) > 7
    # The processes of ExchangeContract find members by entry points only.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        "-W",
        "ignore:`torch.jit.script` is deprecated:DeprecationWarning",
        "-k",
        "not test_sums_are_near_equal_on_all_ranks",
        *map(str, with_blocks),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_kind_is_on_a_page_with_its_entry_point_group():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [kind.group for kind in kinds().values() if f'."{kind.group}"]' not in text] == []
