"""Interatomic potentials: Deep Potential, MACE and NequIP models, training, an ASE calculator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.potentials.calculator import Calculator as Calculator
    from scitoolkit.potentials.captured import CapturedCall as CapturedCall
    from scitoolkit.potentials.committee import model_deviation as model_deviation
    from scitoolkit.potentials.config import PotentialConfig as PotentialConfig
    from scitoolkit.potentials.deepmd.config import DeepPotentialConfig as DeepPotentialConfig
    from scitoolkit.potentials.deepmd.config import SeE2AConfig as SeE2AConfig
    from scitoolkit.potentials.deepmd.config import SeE2RConfig as SeE2RConfig
    from scitoolkit.potentials.deepmd.descriptors.base import Descriptor as Descriptor
    from scitoolkit.potentials.deepmd.descriptors.config import DescriptorConfig as DescriptorConfig
    from scitoolkit.potentials.deepmd.descriptors.config import descriptors as descriptors
    from scitoolkit.potentials.deepmd.model import DeepPotential as DeepPotential
    from scitoolkit.potentials.deepmd.properties import PropertyModel as PropertyModel
    from scitoolkit.potentials.deepmd.weights import read_deepmd as read_deepmd
    from scitoolkit.potentials.deepmd.weights import read_deepmd_property as read_deepmd_property
    from scitoolkit.potentials.deepmd.weights import write_deepmd as write_deepmd
    from scitoolkit.potentials.equivariant.mace import Mace as Mace
    from scitoolkit.potentials.equivariant.mace_config import MaceConfig as MaceConfig
    from scitoolkit.potentials.equivariant.mace_weights import read_mace as read_mace
    from scitoolkit.potentials.equivariant.mace_writing import write_mace as write_mace
    from scitoolkit.potentials.equivariant.nequip import Nequip as Nequip
    from scitoolkit.potentials.equivariant.nequip_config import NequipConfig as NequipConfig
    from scitoolkit.potentials.equivariant.nequip_weights import read_nequip as read_nequip
    from scitoolkit.potentials.job import PotentialJob as PotentialJob
    from scitoolkit.potentials.long_range_config import LongRangeConfig as LongRangeConfig
    from scitoolkit.potentials.model import Potential as Potential
    from scitoolkit.potentials.model_config import ModelConfig as ModelConfig
    from scitoolkit.potentials.model_config import models as models
    from scitoolkit.potentials.prediction import to_ase as to_ase
    from scitoolkit.potentials.saved import load_model as load_model
    from scitoolkit.potentials.zbl_config import ZblConfig as ZblConfig

_HOMES = {
    "Calculator": "calculator",
    "CapturedCall": "captured",
    "DeepPotential": "deepmd.model",
    "DeepPotentialConfig": "deepmd.config",
    "Descriptor": "deepmd.descriptors.base",
    "DescriptorConfig": "deepmd.descriptors.config",
    "LongRangeConfig": "long_range_config",
    "Mace": "equivariant.mace",
    "MaceConfig": "equivariant.mace_config",
    "ModelConfig": "model_config",
    "Nequip": "equivariant.nequip",
    "NequipConfig": "equivariant.nequip_config",
    "Potential": "model",
    "PotentialConfig": "config",
    "PotentialJob": "job",
    "PropertyModel": "deepmd.properties",
    "SeE2AConfig": "deepmd.config",
    "SeE2RConfig": "deepmd.config",
    "ZblConfig": "zbl_config",
    "descriptors": "deepmd.descriptors.config",
    "load_model": "saved",
    "model_deviation": "committee",
    "models": "model_config",
    "read_deepmd": "deepmd.weights",
    "read_deepmd_property": "deepmd.weights",
    "read_mace": "equivariant.mace_weights",
    "read_nequip": "equivariant.nequip_weights",
    "to_ase": "prediction",
    "write_deepmd": "deepmd.weights",
    "write_mace": "equivariant.mace_writing",
}
__all__ = [*_HOMES]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())
