"""The conda recipe has the version, dependencies and licences of pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RECIPE = yaml.safe_load((ROOT / "containers/conda/recipe.yaml").read_text(encoding="utf-8"))
NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}  # of the packages on conda-forge


def bounds(requirements: list[str], names: dict[str, str]) -> dict[str, str]:
    parts = [re.fullmatch(r"([\w-]+)\s*(>=[\w.]+)?", text) for text in requirements]
    assert None not in parts
    return {names.get(part[1], part[1]): part[2] or "" for part in parts}


def test_the_recipe_states_what_the_project_states():
    assert RECIPE["context"]["version"] == PROJECT["version"]
    wanted = [*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"]
    assert bounds(RECIPE["requirements"]["run"], {}) == bounds(wanted, NAMES)
    assert RECIPE["about"]["license"] == PROJECT["license"]
    assert RECIPE["about"]["license_file"] == PROJECT["license-files"]
    (script,) = RECIPE["build"]["python"]["entry_points"]
    assert script == f"scitoolkit = {PROJECT['scripts']['scitoolkit']}"
