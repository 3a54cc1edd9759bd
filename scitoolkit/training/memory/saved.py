"""Helpers of the saved-tensor hooks: storage identity, and tensors stored unchanged."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from scitoolkit.core.errors import NumericalError


def storage_id(tensor: Tensor) -> int:
    """Return an identifier of a tensor's storage; of the local shard of a DTensor."""
    own = getattr(tensor, "_local_tensor", tensor)
    return int(own.untyped_storage()._cdata)


def unattached(tensor: Tensor) -> Tensor:
    """Return a tensor without its graph; a graph that references its output is never freed."""
    return tensor if tensor.is_leaf else tensor.detach()


@dataclass(frozen=True)
class Unchanged:
    """A saved tensor that is stored unchanged.

    Attributes:
        tensor: the tensor, detached.
        version: its version counter when it was saved.
    """

    tensor: Tensor
    version: int

    @property
    def num_bytes(self) -> int:
        """Bytes stored."""
        return self.tensor.nbytes

    @classmethod
    def of(cls, tensor: Tensor) -> Unchanged:
        """Return the record of a tensor that is being saved."""
        return cls(unattached(tensor), tensor._version)

    def value(self) -> Tensor:
        """Return the tensor.

        Raises:
            NumericalError: it was modified in place since it was saved.
        """
        if self.tensor._version != self.version:
            raise NumericalError(
                f"a tensor of shape {tuple(self.tensor.shape)} that the backward pass needs was "
                "changed in place",
                fix="use the operation that is not in place",
            )
        return self.tensor
