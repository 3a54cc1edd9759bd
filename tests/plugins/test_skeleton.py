"""`scitoolkit new`: the package installs without a network, and its test runs."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import pytest
from plugin_packages import installed

from scitoolkit.cli.main import run_cli
from scitoolkit.core import plugins

WITH_CONTRACT = [name for name, kind in plugins.kinds().items() if kind.contract]


def _pytest(folder, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(folder),
            "-c",
            str(folder / "pyproject.toml"),
            *arguments,
            str(folder),
        ],
        capture_output=True,
        text=True,
    )


def _new(kind: str, name: str, folder) -> None:
    assert run_cli(["new", kind, name, "--folder", str(folder)]) == 0


@pytest.mark.parametrize("kind", WITH_CONTRACT)
def test_the_files_of_every_kind_pass_the_linter(kind, tmp_path):
    _new(kind, "just_made", tmp_path / "package")
    ruff = [sys.executable, "-m", "ruff"]
    for arguments in (["check", "--select", "E4,E7,E9,F,I"], ["format", "--check"]):
        done = subprocess.run(
            [*ruff, *arguments, "."], cwd=tmp_path / "package", capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("kind", sorted(set(WITH_CONTRACT) - {"domain"}))
def test_the_test_of_every_kind_overrides_what_its_suite_has(kind, tmp_path):
    _new(kind, "just_made", tmp_path / "package")
    text = (tmp_path / "package" / "test_just_made.py").read_text()
    module, _, suite = plugins.kind(kind).contract.partition(":")
    body = text.partition(f"({suite}):")[2]
    overridden = re.findall(r"^    def (\w+)|^    (\w+) = ", body, re.MULTILINE)
    assert overridden
    for names in overridden:
        named = "".join(names)
        annotated = getattr(importlib.import_module(module), suite)
        assert hasattr(annotated, named) or named in annotated.__annotations__


def test_a_new_domain_passes_its_contract_at_once(tmp_path):
    _new("domain", "just_made", tmp_path / "package")
    with installed(tmp_path / "package", tmp_path):
        done = _pytest(tmp_path / "package")
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_new_codec_is_listed_and_its_contract_names_what_is_to_be_written(tmp_path):
    _new("codecs", "just_made", tmp_path / "package")
    with installed(tmp_path / "package", tmp_path):
        assert "just_made" in plugins.kind("codec").names()
        done = _pytest(tmp_path / "package")
    assert "NotImplementedError: write this method" in done.stdout
    assert "1 passed" in done.stdout or "passed" in done.stdout.splitlines()[-1]


def test_a_skeleton_is_refused_for_a_taken_name_an_existing_folder_and_no_identifier(
    tmp_path, capsys
):
    for arguments, message in (
        (["codec", "sz3"], "already"),
        (["codec", "2 b"], "lower-case"),
        (["codec", "mine", "--folder", str(tmp_path)], "already exists"),
        (["kodec", "mine"], "unknown kind"),
    ):
        assert run_cli(["new", *arguments]) == 2
        assert message in capsys.readouterr().err
