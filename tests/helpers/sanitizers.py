"""Skips tests where the compiler cannot build programs with a sanitizer."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest


def require_sanitizer(compiler: str, name: str) -> None:
    """Skip the test if an empty program cannot be built with `-fsanitize=NAME`.

    The program under test is built afterwards and must compile: its errors are not a reason to
    skip.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "empty.c")
        source.write_text("int main(void) { return 0; }\n", encoding="utf-8")
        command = [*compiler.split(), f"-fsanitize={name}", str(source), "-o", f"{folder}/empty"]
        built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        pytest.skip(f"{compiler} has no {name} sanitizer: {built.stderr.strip()[-200:]}")
