"""The public names are typed, for users' type checkers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import scitoolkit


@pytest.mark.slow
def test_public_types_are_complete(tmp_path):
    # An editable install is no package on disk for the checker: give it all paths.
    source = Path(scitoolkit.__file__).parents[1]
    packages = [each for each in sys.path if each.endswith("site-packages")]
    path = os.pathsep.join([str(source), *(packages or [sysconfig.get_paths()["purelib"]])])
    checked = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--verifytypes", "scitoolkit", "--ignoreexternal"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
    )
    score = re.search(r"Type completeness score: ([0-9.]+)%", checked.stdout)
    assert score, checked.stdout[-2000:]
    assert float(score[1]) >= 95
