"""Former home of the evaluators `ray` and `mpi`, which older installations name."""

from scitoolkit.search.evaluators.cluster import MpiConfig as MpiConfig
from scitoolkit.search.evaluators.cluster import RayConfig as RayConfig
