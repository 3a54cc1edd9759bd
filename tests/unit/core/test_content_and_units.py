from __future__ import annotations

import pytest

from scitoolkit.core.content import content_root, find_content
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.core.units import same_unit


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("degC", "degrees_Celsius", True),
        ("°C", "celsius", True),
        ("K", "kelvin", True),
        ("K", "degC", False),
        ("m s-1", "m/s", True),
        ("furlong", "Furlong ", True),
        ("", "1", True),
    ],
)
def test_spellings_of_one_unit(first, second, same):
    assert same_unit(first, second) is same


def test_content_lies_in_the_clone_and_unknown_kinds_are_refused():
    assert content_root("workflows").is_dir()
    with pytest.raises(ConfigError, match="workflows"):
        content_root("workflow")
    with pytest.raises(ConfigError, match="no surrogate"):
        find_content("surrogates", "no_such_surrogate")


def test_nearest_name_ignores_case_and_gives_up_on_strangers():
    assert nearest_name("SST", ["sst", "ice"]) == "sst"
    assert nearest_name("temperature", ["sst", "ice"]) is None
