"""The code of the tutorial runs as it stands there."""

import re
from pathlib import Path

import pytest

from scitoolkit.core.content import content_root

ROOT = Path(__file__).resolve().parents[2]


def test_the_tutorial_runs_and_learns():
    pytest.importorskip("torch_geometric", exc_type=ImportError)
    text = (ROOT / "docs" / "tutorials" / "pyg-on-four-processes.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    names = {"PATH": content_root("datasets") / "cora" / "cora.npz", "__name__": "tutorial"}
    exec(compile(code, "tutorial", "exec"), names)
    assert names["accuracy"] > 0.75
