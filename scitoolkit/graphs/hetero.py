"""Graphs with several types of nodes and edges as one graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from scitoolkit.core.errors import DataError

Array = np.ndarray
WHERE = "torch_geometric.data.HeteroData"
_NODES = ("x", "y", "train_mask", "val_mask", "test_mask", "num_nodes")
_EDGES = ("edge_index",)


def array_of(value: Any) -> Array:
    """Return the values of an entry of a `Data`: also of a sparse tensor, or one on a GPU.

    Example:
        >>> import torch
        >>> array_of(torch.eye(2).to_sparse()).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    import torch  # here because `validate` reads graph files without torch

    tensor = torch.as_tensor(value).detach().to_dense().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def merged(data: Any, unknown: float) -> dict[str, Array]:
    """Return the arrays of one graph, as for `graph_from_arrays`, from a `HeteroData`.

    Nodes are numbered type by type. Features are sparse: each node type has its own columns, so
    that a linear layer has its own weights for each type, and one more column that is 1 for its
    nodes. `node_type` and `edge_type` number the types in their order; the latter are the relations
    of `RGCNConv`.

    Args:
        data: the `HeteroData`; one of its node types has `y`.
        unknown: label of nodes without one.

    Raises:
        DataError: entries that are not read, labels of several node types, or missing edges.

    Example:
        >>> from torch_geometric.data import HeteroData
        >>> import torch
        >>> data = HeteroData()
        >>> data["paper"].x, data["author"].num_nodes = torch.ones(2, 3), 1
        >>> data["author", "writes", "paper"].edge_index = torch.tensor([[0, 0], [0, 1]])
        >>> arrays = merged(data, -1)
        >>> arrays["edge_index"].tolist(), int(arrays["n_feat"])
        ([[2, 2], [0, 1]], 5)
    """
    for stores, names in ((data.node_types, _NODES), (data.edge_types, _EDGES)):
        for kind in stores:
            _refuse_unread(kind, data[kind], names)
    counts = [int(data[kind].num_nodes) for kind in data.node_types]
    first = dict(zip(data.node_types, np.cumsum([0, *counts[:-1]]).tolist(), strict=True))
    pairs = [
        array_of(data[kind].edge_index) + np.array([[first[kind[0]]], [first[kind[2]]]])
        for kind in data.edge_types
    ]
    if not pairs:
        raise DataError("no types of edges", where=WHERE)
    x = sp.csr_matrix(_features(data, counts))
    types = [np.full(pair.shape[1], number) for number, pair in enumerate(pairs)]
    out = {
        "node_type": np.repeat(np.arange(len(counts)), counts),
        "types_in_features": np.array(True),
        "node_type_names": np.array(data.node_types),
        "edge_type_names": np.array(data.edge_types),
        "edge_index": np.concatenate(pairs, axis=1),
        "edge_type": np.concatenate(types),
        "x_indptr": x.indptr,
        "x_indices": x.indices,
        "x_data": x.data,
        "n_feat": np.int64(x.shape[1]),
    }
    labelled = [kind for kind in data.node_types if data[kind].get("y") is not None]
    if len(labelled) > 1:
        raise DataError(
            f"node types {', '.join(labelled)} have y",
            where=WHERE,
            allowed="labels of one node type",
            fix=f"del data[{labelled[1]!r}].y",
        )
    for kind in labelled:
        out |= _labels(data[kind], first[kind], sum(counts), unknown)
    return out


def _refuse_unread(kind: Any, store: Any, names: tuple[str, ...]) -> None:
    unread = [key for key in store.keys() if key not in names and store[key] is not None]
    if unread:
        raise DataError(
            f"{kind} has {', '.join(unread)}, which are not read",
            where=WHERE,
            allowed=", ".join(names),
            fix=f"del data[{kind!r}][{unread[0]!r}]",
        )


def _features(data: Any, counts: list[int]) -> Any:
    blocks = []
    for kind, count in zip(data.node_types, counts, strict=True):
        x = data[kind].get("x")
        own = np.zeros((count, 0), np.float32) if x is None else array_of(x).astype(np.float32)
        # The column of ones is the bias of the type, and the only input of a type without features.
        blocks.append(sp.csr_matrix(np.concatenate([own, np.ones((count, 1), np.float32)], 1)))
    return sp.block_diag(blocks, format="csr")


def _labels(store: Any, begin: int, num_nodes: int, unknown: float) -> dict[str, Array]:
    y = array_of(store["y"])
    dtype = np.result_type(y, np.float32) if np.isnan(unknown) else y.dtype
    every = np.full((num_nodes, *y.shape[1:]), unknown, dtype)
    every[begin : begin + len(y)] = y
    out = {"y": every}
    for key, name in (("train_mask", "train"), ("val_mask", "validation"), ("test_mask", "test")):
        if store.get(key) is not None:
            mask = array_of(store[key]).astype(bool)
            whole = np.zeros((num_nodes, *mask.shape[1:]), bool)
            whole[begin : begin + len(mask)] = mask
            out[name] = whole
    return out
