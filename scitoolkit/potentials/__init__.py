"""Interatomic potentials: DeePMD's family, data, training, an ASE calculator."""

from __future__ import annotations

from scitoolkit.core.lazy import lazy_names

_HOMES = {
    "Calculator": "calculator",
    "DeepPotential": "deepmd.model",
    "DeepPotentialConfig": "deepmd.model",
    "Descriptor": "deepmd.descriptors.base",
    "DescriptorConfig": "deepmd.descriptors.base",
    "Mace": "equivariant.mace",
    "MaceConfig": "equivariant.mace",
    "ModelConfig": "model",
    "Nequip": "equivariant.nequip",
    "NequipConfig": "equivariant.nequip",
    "Potential": "model",
    "PotentialConfig": "config",
    "PotentialJob": "job",
    "PropertyModel": "deepmd.properties",
    "SeE2AConfig": "deepmd.model",
    "SeE2RConfig": "deepmd.model",
    "ZblConfig": "zbl",
    "descriptors": "deepmd.descriptors.base",
    "load_model": "job",
    "model_deviation": "committee",
    "models": "model",
    "read_deepmd": "deepmd.weights",
    "read_deepmd_property": "deepmd.weights",
    "read_mace": "equivariant.mace_weights",
    "to_ase": "prediction",
    "write_deepmd": "deepmd.weights",
}
__all__ = sorted(_HOMES)


__getattr__ = lazy_names(__name__, _HOMES)
