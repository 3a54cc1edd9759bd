"""Keys of a `.dp` file that may stay unread: those without effect, and options that are off."""

from __future__ import annotations

from typing import Any

import numpy as np

from scitoolkit.potentials.consumed import ConsumedTree, refuse_unread
from scitoolkit.potentials.deepmd.file import Tree, read_tree

# Labels, settings of the training, sizes that the weights determine, and copies of settings of a
# section above.
NEUTRAL = frozenset(
    "@class @version backend software time version model_def_script type var_name network_type "
    "tf_version pt_version jax_version pd_version min_nbor_dist "
    "trainable trainable_ln rcond preset_out_bias layer_name default_fparam set_davg_zero "
    "ntypes neuron in_dim out_dim dim_descrpt dim_out embedding_width bias bias_out resnet_dt "
    "use_timestep precision type_map out_std constant_matrix c_differentiable r_differentiable "
    "rcut rcut_smth protection nnei embed_dim hidden_dim normalize dotr scaling_factor "
    "temperature smooth layer_num eps ln_eps padding use_tebd_bias".split()
)
ALLOWED: dict[str, tuple[Any, ...]] = {
    "activation_function": ("tanh", "none", "linear", "Linear"),
    "resnet": (True, False),
}


def open_tree(path: Any) -> Tree:
    """Return the tree of a file; `finish` checks that all of it was read.

    Raises:
        DataError: no such file, or another kind of file.
    """
    return ConsumedTree(read_tree(path))


def finish(tree: Tree, where: str) -> None:
    """Refuse a tree with an unread setting that may change the result.

    Raises:
        DataError: there is one.
    """
    assert isinstance(tree, ConsumedTree)
    tree.get("@variables")  # min_nbor_dist, in all backends but NumPy
    left = [key for key in tree.unread() if not _harmless(tree, key)]
    refuse_unread(left, where, "the models of the page 'Come from deepmd-kit'")


def _harmless(tree: Any, key: str) -> bool:
    name = key.rsplit(".", 1)[-1]
    if name in NEUTRAL:
        return True
    value = tree
    for part in key.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    if name in ALLOWED:
        return value in ALLOWED[name]
    return _off(value)


def _off(value: Any) -> bool:
    """Return whether an option is off: None, zero, empty or false."""
    if isinstance(value, list):
        return all(_off(item) for item in value)
    return value is None or (np.isscalar(value) and not value)
