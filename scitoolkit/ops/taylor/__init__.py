"""Taylor-mode forward propagation of a network's derivatives with respect to its coordinates.

Example:
    The value and the Laplacian of sin(x) sin(2 y), in three layers of a network:

    >>> import torch
    >>> plan = make_plan(2, [operator({(2, 0): 1.0, (0, 2): 1.0})])
    >>> x = torch.tensor([[0.3, 0.4]], dtype=torch.float64)
    >>> w = torch.tensor([[1.0, 2.0], [1.0, -2.0]], dtype=torch.float64)
    >>> shift = torch.full((2,), torch.pi / 2, dtype=torch.float64)
    >>> s = activation(linear(seed(x, plan), w, shift), "sin", plan)
    >>> out = linear(s, torch.tensor([[-0.5, 0.5]], dtype=torch.float64))
    >>> bool(torch.isclose(out[-1], -5 * out[0]))
    True
"""

from scitoolkit.ops.taylor.activations import derivatives, names, smoothness
from scitoolkit.ops.taylor.plan import MultiIndex, Operator, Plan, make_plan, operator
from scitoolkit.ops.taylor.streams import (
    activation,
    add_to_value,
    layer_norm,
    linear,
    multiply,
    seed,
)

__all__ = [
    "MultiIndex",
    "Operator",
    "Plan",
    "activation",
    "add_to_value",
    "derivatives",
    "layer_norm",
    "linear",
    "make_plan",
    "multiply",
    "names",
    "operator",
    "seed",
    "smoothness",
]
