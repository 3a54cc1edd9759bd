"""Anchors and merge keys work; files that would not terminate or crash the parser are refused."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from scitoolkit.cli.main import run_cli
from scitoolkit.core.config import Config, ConfigProblems, load_config, read_document
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.yaml_file import MAX_BYTES, MAX_DEPTH, parse_yaml


class Section(Config):
    lr: float = 0.1


class Top(Config):
    first: Section = Section()


MERGED = """\
x-shared: &shared
  lr: 0.1
  sizes: [1, 2]
first:
  <<: *shared
second:
  <<: [{momentum: 0.5, lr: 3}, *shared]
  sizes: [3]
third: *shared
"""


def value(text: str):
    return parse_yaml(text, Path(), "text").value


def test_merge_keys_and_anchors_share_sections(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(MERGED)
    document = read_document(path, ["third.lr=7"])
    assert document.raw == {
        "first": {"lr": 0.1, "sizes": [1, 2]},
        "second": {"momentum": 0.5, "lr": 3, "sizes": [3]},
        "third": {"lr": 7, "sizes": [1, 2]},
    }
    assert document.origins["first.lr"] == f"{path}:2"  # written in the shared section
    assert document.origins["second.sizes"] == f"{path}:8"
    assert document.origins["third.lr"] == "command line"


def test_a_wrong_key_of_a_shared_section_is_reported_at_its_own_line(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("x-a: &a\n  lr: 1\n  rl: 2\nfirst: {<<: *a, lr: 3}\n")
    with pytest.raises(ConfigProblems) as caught:
        load_config(Top, path)
    (problem,) = caught.value.problems
    assert (problem.key, problem.where) == ("first.rl", f"{path}:3")


BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{n}: &{n} [{', '.join([f'*{p}'] * 9)}]\n" for p, n in zip("abcdefg", "bcdefgh", strict=True)
)
REFUSED = {
    "aliases": (BOMB, "values, aliases expanded"),
    "merges": (
        BOMB.replace("[", "{<<: [").replace("]", "]}").replace("1, " * 8 + "1", ""),
        "values, aliases expanded",
    ),
    "itself": ("a: &a [*a]\n", "refers to an enclosing section"),
    "itself, merged": ("a: &a {<<: *a}\n", "refers to an enclosing section"),
    "lists": ("a: " + "[" * 3000, "levels deep"),
    "sections": ("a: " + "{b: " * 3000, "levels deep"),
    "indented": ("".join(" " * n + "a:\n" for n in range(300)), "levels deep"),
    "size": ("a: " + "1" * MAX_BYTES, "too large"),
    "date": ("a: 2020-13-45", "month must be"),
    "number": ("a: " + "1" * 5000, "digits"),
    "key": ("[1]: 2", "a key must be a scalar"),
    "merged value": ("a: {<<: 3}", "sections only"),
    "unknown alias": ("a: *b", "undefined alias"),
    "control character": ("a: \x00", "not valid YAML"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_file_may_not_ask_for_ends_with_exit_code_2(name, tmp_path, capsys):
    text, message = REFUSED[name]
    path = tmp_path / "a.yaml"
    path.write_text(text)
    assert run_cli(["validate", str(path)]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert str(path) in err
    assert "Traceback" not in err


@pytest.mark.parametrize("text", ["[" * 3000, "&a [*a]", "2020-13-45", "{a: 1, a: 2}"])
def test_an_override_is_bounded_like_a_file(text):
    with pytest.raises(ConfigError, match=r"command line: a: not valid YAML"):
        read_document(None, [f"a={text}"])


def test_only_the_first_levels_of_a_deep_text_are_parsed():
    """The refusal does not depend on how deep the rest is: it comes at the first level too many."""
    allowed = MAX_DEPTH - 2  # one level each for the mapping and for the number
    assert value(f"a: {'[' * allowed}1{']' * allowed}")["a"]
    unfinished = "[" * 100_000  # parsing all of it takes minutes
    with pytest.raises(ConfigError, match="line 1: nested"):
        value(f"a: {unfinished}")


def test_keys_are_the_words_that_were_written():
    assert value("{on: 1, no: 2, 1: 3}") == {"on": 1, "no": 2, "1": 3}


def test_strings_keep_their_folder_in_copies_and_in_other_processes(tmp_path):
    parsed = parse_yaml("paths: [a.nc]", tmp_path, "text").value
    for again in (copy.deepcopy(parsed), pickle.loads(pickle.dumps(parsed))):
        assert again == {"paths": ["a.nc"]}
        assert again["paths"][0].base == tmp_path
