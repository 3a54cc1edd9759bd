"""Low-rank factorisation of linear and convolution layers: truncated SVD and Tucker-2.

A linear layer or 1 x 1 convolution of rank r becomes two layers: inputs -> r -> outputs. Any other
convolution becomes three (Kim et al. 2016, arXiv:1511.06530): a 1 x 1 convolution inputs -> r_in,
the convolution r_in -> r_out, and a 1 x 1 convolution r_out -> outputs. Padding, stride and
dilation remain with the middle one, which is exact because the first one has no bias.

`LowRankChange` leaves a weight as it is and trains a change of low rank beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
SWEEPS = 3
"""Alternations between the factors of outputs and inputs (De Lathauwer et al. 2000)."""
# Symbols of this module: W weight, C second moment of the inputs of a layer, root = C^(1/2) and
# inverse = C^(-1/2), u s v the singular value decomposition of W C^(1/2), Q orthonormal rows, M
# what `_orthonormal` divides off (the mixing of the intermediate channels).
FLOOR = 1e-6
"""Smallest eigenvalue of a second moment relative to the mean, so that it can be inverted."""


def _weight(layer: nn.Module) -> Tensor:
    weight = layer.weight
    assert isinstance(weight, Tensor)
    return weight.detach()


def factorable(layer: nn.Module) -> bool:
    """Return whether a layer can be factorised: linear, or a convolution without groups.

    Subclasses cannot.

    Example:
        >>> factorable(nn.Conv2d(4, 4, 3)), factorable(nn.Conv2d(4, 4, 3, groups=2))
        (True, False)
    """
    if type(layer) is nn.Linear:
        return True
    return isinstance(layer, CONVOLUTIONS) and type(layer) in CONVOLUTIONS and layer.groups == 1


def full_ranks(layer: nn.Module) -> tuple[int, ...]:
    """Return the full ranks: (r,) of a matrix, (r_in, r_out) of a convolution with a window.

    Example:
        >>> full_ranks(nn.Linear(5, 3)), full_ranks(nn.Conv2d(5, 7, 3))
        ((3,), (5, 7))
    """
    outputs, inputs = _weight(layer).shape[:2]
    return (inputs, outputs) if _has_window(layer) else (min(inputs, outputs),)


def empty_factors(layer: nn.Module, ranks: Sequence[int]) -> nn.Sequential:
    """Return uninitialised layers with the shapes of `factors`, to load a state dict into.

    Raises:
        ConfigError: a layer that cannot be factorised, or ranks below 1 or above the full ones.
    """
    if not factorable(layer):
        raise ConfigError(f"no low-rank form of {layer}", allowed="linear, convolution")
    full = full_ranks(layer)
    if len(ranks) != len(full) or any(not 1 <= r <= f for r, f in zip(ranks, full, strict=True)):
        raise ConfigError(
            f"ranks {list(ranks)} of {layer}",
            where="ranks",
            allowed=f"{len(full)} from 1 to {list(full)}",
        )
    return _layers(layer, ranks, square=False)


def _layers(layer: nn.Module, ranks: Sequence[int], *, square: bool) -> nn.Sequential:
    """Return the layers; 1 x 1 convolutions of full rank are omitted unless `square` is set."""
    outputs, inputs = _weight(layer).shape[:2]
    bias = layer.bias is not None
    if isinstance(layer, nn.Linear):
        return nn.Sequential(
            nn.Linear(inputs, ranks[0], bias=False), nn.Linear(ranks[0], outputs, bias=bias)
        )
    kind: Any = type(layer)
    assert isinstance(layer, CONVOLUTIONS)
    same = {k: getattr(layer, k) for k in ("stride", "padding", "dilation", "padding_mode")}
    if len(ranks) == 1:
        return nn.Sequential(
            kind(inputs, ranks[0], 1, bias=False), kind(ranks[0], outputs, 1, bias=bias, **same)
        )
    first, last = ranks
    parts: list[nn.Module] = []
    if square or first < inputs:
        parts.append(kind(inputs, first, 1, bias=False))
    ends = last == outputs and not square
    parts.append(kind(first, last, layer.kernel_size, bias=bias and ends, **same))
    if not ends:
        parts.append(kind(last, outputs, 1, bias=bias))
    return nn.Sequential(*parts)


@torch.no_grad()
def factors(layer: nn.Module, ranks: Sequence[int], moment: Tensor | None = None) -> nn.Sequential:
    """Return a low-rank factorisation of a layer that minimises the change of its outputs.

    A matrix W is replaced by the truncated singular value decomposition of W C^(1/2), times
    C^(-1/2), where C is the second moment of the inputs. This minimises the mean squared change of
    the outputs (Eckart and Young 1936). For a convolution with a window the same C weights the
    inputs at all positions, and the factors are those of alternating singular value decompositions,
    which are nearly optimal. All factors except the window, or the last of two, have orthonormal
    rows or columns.

    Args:
        layer: a layer that is `factorable`; it is not changed.
        ranks: see `full_ranks`.
        moment: (inputs, inputs), the second moment of the inputs; by default the identity.

    Returns:
        One to three layers in sequence; at full ranks equal to `layer` up to rounding.

    Raises:
        ConfigError: see `empty_factors`.

    Example:
        >>> layer = nn.Linear(6, 4)
        >>> x = torch.randn(3, 6)
        >>> torch.allclose(factors(layer, [4])(x), layer(x), atol=1e-5)
        True
    """
    made = empty_factors(layer, ranks)
    weight = _weight(layer).double()
    root, inverse = _roots(moment, weight)
    weighted = torch.tensordot(weight, root, dims=([1], [0])).movedim(-1, 1)
    if len(ranks) == 1:
        matrix = weighted.flatten(1)
        u, s, v = torch.linalg.svd(matrix, full_matrices=False)
        r = ranks[0]
        # v C^(-1/2) is no longer orthonormal. Its rows are made so, and the mixing moves to the
        # other factor: intermediate channels then have the size of the inputs.
        first, mixing = _orthonormal(v[:r] @ inverse)
        parts = [first, (u[:, :r] * s[:r]) @ mixing]
    else:
        parts = _tucker(weighted, ranks, inverse)
    return _filled(made, parts, layer)


@torch.no_grad()
def nested_factors(layer: nn.Module, moment: Tensor | None = None) -> nn.Sequential:
    """Return a full-rank factorisation whose leading channels are the factors of lower ranks.

    Setting all intermediate channels except the first r to 0 gives the layer of rank r: for a
    matrix that of `factors`; for a convolution with a window that of the higher-order singular
    value decomposition (De Lathauwer et al. 2000, doi:10.1137/S0895479896305696), without
    alternation.

    Args:
        layer: a layer that is `factorable`; it is not changed.
        moment: see `factors`.

    Returns:
        Two layers for a matrix, three for a window; equal to `layer` up to rounding.

    Example:
        >>> layer, x = nn.Conv1d(3, 5, 3, padding=1), torch.randn(2, 3, 7)
        >>> torch.allclose(nested_factors(layer)(x), layer(x), atol=1e-5)
        True
    """
    full = full_ranks(layer)
    made = _layers(layer, full, square=True)
    weight = _weight(layer).double()
    root, inverse = _roots(moment, weight)
    weighted = torch.tensordot(weight, root, dims=([1], [0])).movedim(-1, 1)
    if len(full) == 1:
        u, s, v = torch.linalg.svd(weighted.flatten(1), full_matrices=False)
        return _filled(made, [v @ inverse, u * s], layer)
    left, right = _leading(weighted, 0, full[1]), _leading(weighted, 1, full[0])
    core = _times(_times(weighted, left, 0), right, 1)
    return _filled(made, [right.T @ inverse, core, left], layer)


def _filled(made: nn.Sequential, parts: Sequence[Tensor], layer: nn.Module) -> nn.Sequential:
    """Copy weights into the layers, and the bias of the original layer into the last one."""
    for own, part in zip(made, parts, strict=True):
        _weight(own).copy_(part.reshape(_weight(own).shape))
    if isinstance(layer.bias, Tensor):
        last = made[-1].bias
        assert isinstance(last, Tensor)
        last.copy_(layer.bias)
    return made.train(layer.training)


def _tucker(weight: Tensor, ranks: Sequence[int], inverse: Tensor) -> list[Tensor]:
    """Return the matrices and the core of a weighted kernel (outputs, inputs, *window)."""
    outputs, inputs = weight.shape[:2]
    first, last = ranks
    left = _leading(weight, 0, last)
    right = _leading(weight, 1, first)
    # Each factor is the optimum for the other one as it is, so that the error never grows from one
    # sweep to the next.
    for _ in range(SWEEPS):
        left = _leading(_times(weight, right, 1), 0, last)
        right = _leading(_times(weight, left, 0), 1, first)
    core = _times(_times(weight, left, 0), right, 1)
    parts = []
    before, mixing = _orthonormal(right.T @ inverse)
    if first < inputs:
        parts.append(before)
        core = _times(core, mixing, 1)
    else:
        core = _times(core, right.T @ inverse, 1)
    if last < outputs:
        return [*parts, core, left]
    return [*parts, _times(core, left.T, 0)]


def _times(tensor: Tensor, matrix: Tensor, dim: int) -> Tensor:
    """Return the product of a tensor with a matrix (n, m) along a dim of size n."""
    return torch.tensordot(tensor, matrix, dims=([dim], [0])).movedim(-1, dim)


def _leading(tensor: Tensor, dim: int, rank: int) -> Tensor:
    """Return the leading left singular vectors (n, rank) of the unfolding along a dim."""
    flat = tensor.movedim(dim, 0).flatten(1)
    # The Gram matrix, n x n, is far smaller than the unfolding; the squares cost digits only of
    # singular values that are cut off. Eigenvalues ascend, hence the flip.
    vectors: Tensor = torch.linalg.eigh(flat @ flat.T)[1].flip(1)[:, :rank]
    return vectors


def _orthonormal(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return Q with orthonormal rows and M such that rows = M Q."""
    q, r = torch.linalg.qr(rows.T)
    return q.T, r.T


def _roots(moment: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the square root of a second moment and its inverse."""
    inputs = weight.shape[1]
    if moment is None:
        eye = torch.eye(inputs, dtype=torch.float64, device=weight.device)
        return eye, eye
    values, vectors = torch.linalg.eigh(moment.double())
    # An input that is always zero has no second moment, and none could be inverted; all of them
    # zero means nothing is known, which is the identity.
    floor = FLOOR * float(values.clamp_min(0).mean()) or 1.0
    scales = values.clamp_min(floor).sqrt()
    return (vectors * scales) @ vectors.T, (vectors / scales) @ vectors.T


def _has_window(layer: nn.Module) -> bool:
    return isinstance(layer, CONVOLUTIONS) and math.prod(layer.kernel_size) > 1


def layers_of(root: nn.Module) -> Iterator[tuple[tuple[str, ...], nn.Module]]:
    """Yield each layer that can be factorised once, with all of its names."""
    names: dict[int, list[str]] = {}
    modules: dict[int, nn.Module] = {}
    for name, module in root.named_modules(remove_duplicate=False):
        if name and factorable(module):
            names.setdefault(id(module), []).append(name)
            modules[id(module)] = module
    for key, module in modules.items():
        yield tuple(names[key]), module


def replaced(
    root: nn.Module,
    ranks: Mapping[str, Sequence[int]],
    make: Callable[[str, nn.Module, Sequence[int]], nn.Sequential],
) -> None:
    """Replace layers of a model by their factors, under all names of each layer.

    Args:
        root: the model, changed in place.
        ranks: ranks by one name of each layer.
        make: returns the factors of (name, layer, ranks).

    Raises:
        ConfigError: a name without a layer that can be factorised.
    """
    layers = {name: (names, layer) for names, layer in layers_of(root) for name in names}
    for name in ranks:
        if name not in layers:
            raise ConfigError(
                f"no linear layer or convolution {name!r}",
                where="ranks",
                allowed=", ".join(sorted(layers)),
                fix=nearest_name(name, sorted(layers)) or "a name of a layer",
            )
    for name, own in ranks.items():
        names, layer = layers[name]
        made = make(name, layer, own)
        for other in names:
            root.set_submodule(other, made)


class InputMoments:
    """Second moments of the inputs of layers, collected while a model is called.

    Args:
        layers: layers that are `factorable`, by name.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> with InputMoments({"a": layer}) as seen:
        ...     _ = layer(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
        >>> seen["a"].tolist()
        [[5.0, 1.0], [1.0, 2.0]]
    """

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        self._layers = dict(layers)
        self._sums: dict[str, Tensor] = {}
        self._rows: dict[str, int] = {}
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> InputMoments:
        for name, layer in self._layers.items():
            self._hooks.append(layer.register_forward_pre_hook(self._note(name)))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _note(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def note(layer: nn.Module, args: tuple[Tensor, ...]) -> None:
            x = args[0].detach()
            # Counted from the end: inputs of a convolution may have no batch dimension.
            last = x
            if isinstance(layer, CONVOLUTIONS):
                last = x.movedim(-1 - len(layer.kernel_size), -1)
            # Sums of squares over a data set lose all small inputs in float32.
            rows = last.reshape(-1, last.shape[-1]).double()
            self._sums[name] = self._sums.get(name, 0) + rows.T @ rows
            self._rows[name] = self._rows.get(name, 0) + len(rows)

        return note

    def __contains__(self, name: str) -> bool:
        return name in self._sums

    def __getitem__(self, name: str) -> Tensor:
        """Return the second moment (inputs, inputs), float64, of all collected inputs."""
        return self._sums[name] / self._rows[name]


class LowRankChange(nn.Module):
    """Parametrisation W + B A of a weight W that stays as it is (Hu et al. 2021, arXiv:2106.09685).

    B starts at zero, so that the weight is W at first, bit for bit.

    Args:
        weight: (..., n, m), one matrix or a stack of them.
        rank: of B A.
        generator: of the initial A.
    """

    def __init__(self, weight: Tensor, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        *stack, rows, columns = weight.shape
        values = torch.randn(*stack, rank, columns, generator=generator, dtype=torch.float64)
        self.right: nn.Parameter = nn.Parameter((values / math.sqrt(columns)).to(weight))
        self.left: nn.Parameter = nn.Parameter(weight.new_zeros(*stack, rows, rank))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the changed weight."""
        return weight + self.left @ self.right


def add_low_rank_changes(
    root: nn.Module, names: Sequence[str], rank: int, generator: torch.Generator
) -> list[str]:
    """Train parameters by changes of low rank; return the names of those that are too small.

    Args:
        root: the model, changed in place until `merge_low_rank_changes`.
        names: of parameters; vectors, and matrices that gain nothing, stay as they are.
        rank: of the changes.
        generator: of the initial values.

    Example:
        >>> model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
        >>> names = [name for name, _ in model.named_parameters()]
        >>> add_low_rank_changes(model, names, 2, torch.Generator())
        ['0.bias', '1.weight', '1.bias']
        >>> merge_low_rank_changes(model)
        >>> {name for name, _ in model.named_parameters()} == set(names)
        True
    """
    small = []
    for name in names:
        weight = root.get_parameter(name)
        if weight.ndim < 2 or rank * sum(weight.shape[-2:]) >= math.prod(weight.shape[-2:]):
            small.append(name)
            continue
        owner, _, own = name.rpartition(".")
        weight.requires_grad_(False)
        change = LowRankChange(weight.detach(), rank, generator)
        parametrize.register_parametrization(root.get_submodule(owner), own, change)
    return small


@torch.no_grad()
def merge_low_rank_changes(root: nn.Module) -> None:
    """Replace the weights of `add_low_rank_changes` by the changed ones, as ordinary parameters."""
    for module in list(root.modules()):
        if parametrize.is_parametrized(module):
            for name in list(dict(module.parametrizations.named_children())):  # type: ignore[union-attr]
                parametrize.remove_parametrizations(module, name)
                module.get_parameter(name).requires_grad_(True)
