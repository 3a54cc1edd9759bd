"""The contract of potentials, for every potential and every descriptor that is installed."""

from __future__ import annotations

import pytest

from scitoolkit.potentials import Calculator, descriptors, models
from scitoolkit.testing import PotentialContract

PAIR, RADIAL, ATTENTION = (
    {"name": name, **descriptors.get(name).example} for name in ("se_e2_a", "se_e2_r", "se_atten")
)
OPTIONS = {
    "hybrid_of_all": [PAIR, RADIAL, ATTENTION],
    "excluded": [{**PAIR, "exclude_types": [[0, 1]]}, {**RADIAL, "exclude_types": [[1, 1]]}],
    "strip": [{**ATTENTION, "type_input": "strip", "attention_layers": 0, "type_one_side": True}],
    "two_cutoffs": [PAIR, {**PAIR, "cutoff": 3.0, "type_one_side": False}],
}

NO_TABLES = r"no networks to tabulate.*Allowed: .*se_e2_a.*Fix: compress=False"


class TestPotentials(PotentialContract):
    @classmethod
    def cases(cls):
        deep = {"name": "deep_potential", "fitting": [8, 8]}
        return {
            **{name: {"name": name, **models.get(name).example} for name in models},
            **{
                f"descriptor_{name}": {
                    **deep,
                    "descriptors": [{"name": name, **descriptors.get(name).example}],
                }
                for name in descriptors
            },
            **{name: {**deep, "descriptors": parts} for name, parts in OPTIONS.items()},
            "zbl": {"name": "se_e2_a", **models.get("se_e2_a").example, "zbl": {}},
            **{
                f"nequip_lmax_{lmax}": {
                    "name": "nequip",
                    **models.get("nequip").example,
                    "lmax": lmax,
                }
                for lmax in (0, 3)
            },
            "nequip_parity": {
                "name": "nequip",
                **models.get("nequip").example,
                "lmax": 1,
                "layers": 4,
                "parity": True,
                "species_scale": True,
            },
        }

    def cutoffs(self, model):
        return {model.cutoff, *(each.cutoff for each in getattr(model, "descriptors", []))}


@pytest.mark.parametrize("kind", [models, descriptors], ids=lambda kind: kind.name)
def test_every_member_has_an_example_and_a_summary(kind):
    for member in kind.members():
        assert kind.get(member.name).example, member.name
        assert member.summary
        assert not member.problem


@pytest.mark.parametrize("name", ["mace", "nequip", "se_e2_r"])
def test_compression_of_a_model_without_tables_is_refused(name):
    """The message names the model, those that have tables, and what to write instead."""
    from scitoolkit.core.errors import ConfigError

    model = models.get(name)(**models.get(name).example).build(["O", "H"])
    with pytest.raises(ConfigError, match=NO_TABLES):
        Calculator(model, compress=True)
