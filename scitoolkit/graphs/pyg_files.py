"""Reader of torch-geometric data in .pt files, which executes nothing that a file holds."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from scitoolkit.core.errors import DataError, missing_extra


def load_data(path: Path) -> Any:
    """Return what `torch.save` wrote: a Data or HeteroData, a list of them, or an InMemoryDataset.

    Only tensors, containers of Python and the data classes of torch-geometric are read
    (`weights_only=True`); any other class in the file is refused, since reading it would run code.

    Args:
        path: the file. An InMemoryDataset is the file `processed/*.pt` of its folder.

    Raises:
        DataError: no such file, a damaged file, or other objects in it.
    """
    try:
        # Importing the module registers Data and HeteroData as safe, but not their stores.
        from torch_geometric.data import data, storage
    except ImportError:
        raise missing_extra("torch_geometric", "graphs", f"data.path={path}") from None
    stores = [
        data.DataEdgeAttr,
        data.DataTensorAttr,
        storage.BaseStorage,
        storage.NodeStorage,
        storage.EdgeStorage,
        storage.GlobalStorage,
    ]
    try:
        with torch.serialization.safe_globals(stores):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        what = "the file is damaged, or holds other objects, whose reading could run code"
    except FileNotFoundError:
        raise DataError("no such file", where=str(path)) from None
    except (
        zipfile.BadZipFile,
        RuntimeError,
        EOFError,
        OSError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:
        what = f"not a readable file of data ({' '.join(str(error).split())[:160]})"
    raise DataError(
        what,
        where=str(path),
        allowed="tensors, lists, dicts, and Data or HeteroData of torch_geometric",
        fix="torch.save([data.to_dict() for data in dataset], PATH)",
    )
