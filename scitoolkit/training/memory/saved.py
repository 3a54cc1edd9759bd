"""What the stores' hooks share: the memory of a tensor, and tensors that are kept as they are."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from scitoolkit.core.errors import NumericalError


def storage_id(tensor: Tensor) -> int:
    """Return what two tensors of the same memory share; of this rank's part of a sharded one."""
    own = getattr(tensor, "_local_tensor", tensor)
    return int(own.untyped_storage()._cdata)


def unattached(tensor: Tensor) -> Tensor:
    """Return a tensor without its graph: a graph that holds its output would never be freed."""
    return tensor if tensor.is_leaf else tensor.detach()


@dataclass(frozen=True)
class Unchanged:
    """A saved tensor that is kept as it is.

    Attributes:
        tensor: without its graph.
        version: of its values when it was saved.
    """

    tensor: Tensor
    version: int

    @property
    def num_bytes(self) -> int:
        """Bytes kept."""
        return self.tensor.nbytes

    @classmethod
    def of(cls, tensor: Tensor) -> Unchanged:
        """Return the record of a tensor that is saved now."""
        return cls(unattached(tensor), tensor._version)

    def value(self) -> Tensor:
        """Return the tensor.

        Raises:
            NumericalError: it was changed in place since it was saved.
        """
        if self.tensor._version != self.version:
            raise NumericalError(
                f"a tensor of shape {tuple(self.tensor.shape)} that the backward pass needs was "
                "changed in place",
                fix="use the operation that is not in place",
            )
        return self.tensor
