"""Docker and Apptainer definitions, the install page and the citation state the same things."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DOCKER = (ROOT / "containers/Dockerfile").read_text(encoding="utf-8")
APPTAINER = (ROOT / "containers/scitoolkit.def").read_text(encoding="utf-8")
# What one of the two needs alone: users and modes of files, and folders of the build.
OWN = ("useradd", "install -d", "chmod", "cp constraints.txt", "cd ")


def commands(text: str) -> list[str]:
    """Return the shell commands of a definition in order, with single spaces."""
    joined = re.sub(r"\\\n\s*", " ", text)
    lines = [line.strip() for line in joined.splitlines()]
    sections = re.findall(r"%post\n(.*?)(?=\n\S|\Z)", joined, re.DOTALL)
    lines = (
        [line.removeprefix("RUN ") for line in lines if line.startswith("RUN ")]
        if not sections
        else [line.strip() for section in sections for line in section.splitlines()]
    )
    split = [part.strip() for line in lines for part in line.split("&&")]
    return [
        re.sub(r"\s+", " ", part).removeprefix("SCITOOLKIT_CONTENT=/opt/scitoolkit ")
        for part in split
        if part and not part.startswith(("#", *OWN))
    ]


def test_both_images_are_made_by_the_same_commands():
    docker, apptainer = commands(DOCKER), commands(APPTAINER)
    assert len(docker) >= 6
    assert docker == apptainer
    bases = re.findall(r"^From: (\S+)", APPTAINER, re.MULTILINE)
    assert bases == re.findall(r"^FROM (\S+)", DOCKER, re.MULTILINE)
    assert len(set(bases)) == 1


def test_what_the_images_install_exists_and_suits_the_package():
    extras = set(re.findall(r"\[([a-z,]+)\]", DOCKER))
    assert extras
    for extra in {name for group in extras for name in group.split(",")}:
        assert extra in PROJECT["optional-dependencies"]
    (python,) = set(re.findall(r"python:(\d+\.\d+)", DOCKER))
    assert f">={python}" == PROJECT["requires-python"]
    ours = {name for name in re.findall(r"[\w/.]+\.(?:py|txt)", DOCKER) if "/" not in name}
    assert ours
    assert all((ROOT / name).is_file() for name in ours)


def test_the_install_page_builds_and_runs_them_as_they_say_themselves():
    page = (ROOT / "docs/how-to/install.md").read_text(encoding="utf-8")
    told = re.findall(r"^# +((?:docker|apptainer) .*)", DOCKER + APPTAINER, re.MULTILINE)
    assert len(told) == 4
    for line in told:
        for command in line.split("&&"):
            words = re.split(r" {2,}| \\", command.strip())[0]
            assert words in page, words
    for name in re.findall(r"containers/[\w./]+", page):
        assert (ROOT / name).exists(), name


def test_the_citation_is_complete_and_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "abstract", "keywords"} <= set(citation)
    assert (citation["title"], citation["type"]) == (PROJECT["name"], "software")
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] in PROJECT["license"]
    assert [author["name"] for author in citation["authors"]] == [
        author["name"] for author in PROJECT["authors"]
    ]
