"""Interatomic potentials: DeePMD's family, data, training, an ASE calculator."""

from __future__ import annotations

from scitoolkit.core.lazy import lazy_names

_HOMES = {
    "Calculator": "calculator",
    "DeepPotential": "deep_potential",
    "DeepPotentialConfig": "deep_potential",
    "Mace": "mace",
    "MaceConfig": "mace",
    "Nequip": "nequip",
    "NequipConfig": "nequip",
    "Potential": "model",
    "PotentialConfig": "config",
    "PotentialJob": "job",
    "PropertyModel": "properties",
    "SmoothEdition": "se_e2_a",
    "SmoothEditionConfig": "se_e2_a",
    "ZblConfig": "zbl",
    "load_model": "job",
    "model_deviation": "committee",
    "models": "model",
    "read_deepmd": "deepmd_weights",
    "read_deepmd_property": "deepmd_weights",
    "read_mace": "mace_weights",
    "to_ase": "prediction",
    "write_deepmd": "deepmd_weights",
}
__all__ = sorted(_HOMES)


__getattr__ = lazy_names(__name__, _HOMES)
