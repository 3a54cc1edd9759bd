"""Parts of fine-tuning that domains share: frozen parameters, and weights of further channels.

A network learned on some channels is given more of them. Which dims of which weights count channels
is not known from their names, so a network with one more channel is built without memory and its
shapes are compared: a dim that grows by k has k entries per channel, behind the entries that belong
to other features (as in a layer that reads features and channels together). The k entries of a
channel are neighbours, or one of each channel follow each other (patches of cells); callers try
both, and compare outputs.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.resume import changed_settings
from scitoolkit.core.suggest import nearest_name

Build = Callable[[int, int], nn.Module]
"""Returns a network of numbers of input and output channels."""


def require_same(former: Mapping[str, Any], now: Mapping[str, Any], keys: Sequence[str]) -> None:
    """Compare what the weights of `start.path` depend on.

    Args:
        former: settings or measured numbers of their training, which may be nested.
        now: those of the new training.
        keys: dotted keys of settings or sections; others may differ.

    Raises:
        ConfigError: naming the first that differs.
    """
    compared = tuple(key + end for key in keys for end in ".:")
    for change in changed_settings(former, now):
        if change.startswith(compared):
            key, _, values = change.partition(": ")
            raise ConfigError(
                f"{values}: the weights of start.path would mean something else", where=key
            )


def adopted(
    measured: Mapping[str, Any], former: Mapping[str, Any], remeasured: Sequence[str]
) -> dict[str, Any]:
    """Return the measured numbers of a trained model, but for some those of the new data.

    Args:
        measured: on the new data.
        former: on those of the trained model.
        remeasured: keys whose numbers are those of the new data.

    Raises:
        ConfigError: another count, name or flag; only statistics, which are floats, may differ.
    """
    counts = [k for k, v in former.items() if "." not in json.dumps(v) and k not in remeasured]
    require_same(former, measured, counts)
    return {**former, **{key: measured[key] for key in remeasured}}


def freeze(model: nn.Module, patterns: Sequence[str]) -> int:
    """Freeze the parameters that match a pattern; return the number of trainable values left.

    Raises:
        ConfigError: a pattern matches no parameter, or no trainable parameter is left.
    """
    names = dict(model.named_parameters())
    for name in matched_names(names, patterns, "start.frozen"):
        names[name].requires_grad_(False)
    left = sum(p.numel() for p in names.values() if p.requires_grad)
    if not left:
        raise ConfigError("all parameters are frozen, none is left to train", where="start.frozen")
    return left


def matched_names(names: Collection[str], patterns: Sequence[str], where: str) -> set[str]:
    """Return the names of parameters that match a pattern.

    Raises:
        ConfigError: a pattern matches none; `where` is its key.
    """
    out: set[str] = set()
    for pattern in patterns:
        matched = fnmatch.filter(names, pattern)
        if not matched:
            raise ConfigError(
                f"no parameter is called {pattern!r}",
                where=where,
                allowed=", ".join(sorted({_group(name) for name in names})),
                fix=nearest_name(pattern, list(names)) or "",
            )
        out.update(matched)
    return out


def _group(name: str) -> str:
    """Return the pattern of a parameter's module: `layers.0.*` of `layers.0.convolution.up.0`."""
    parts = name.split(".")
    return name if len(parts) == 1 else f"{'.'.join(parts[:2])}*"


@torch.no_grad()
def adopt_channels(
    network: nn.Module,
    source: nn.Module,
    build: Build,
    inputs: tuple[Sequence[object], Sequence[object]],
    outputs: tuple[Sequence[object], Sequence[object]],
    *,
    interleaved: bool = False,
    random_inputs: bool = False,
) -> None:
    """Copy the weights of a network of the same kind with fewer channels, or in another order.

    Weights of further input channels become 0, so that they change no output at first; those of
    further output channels stay as they are in `network`.

    Args:
        network: untrained.
        source: trained.
        build: makes networks of their kind.
        inputs: names of the input channels, (of `source`, of `network`), distinct.
        outputs: names of the output channels, likewise.
        interleaved: whether one entry of each channel follow each other, if a channel has several.
        random_inputs: leave the weights of further input channels as they are in `network`.

    Raises:
        ConfigError: weights that depend on the channels in another way.
    """
    growing = [_growth(build, inputs, 0), _growth(build, outputs, 1)]
    old, new = dict(source.state_dict()), dict(network.state_dict())
    for name, tensor in new.items():
        if name not in old:
            continue
        # Index of each entry in the trained weight, by dim; None for a further channel's.
        entries = {}
        for grown, (before, after) in zip(growing, (inputs, outputs), strict=True):
            for dim, per_channel in grown.get(name, {}).items():
                others = old[name].shape[dim] - per_channel * len(before)
                entries[dim] = _sources(others, per_channel, before, after, interleaved)
        shape = [len(entries.get(dim, range(size))) for dim, size in enumerate(old[name].shape)]
        if shape != list(tensor.shape):
            raise ConfigError(
                f"weight {name} has shape {list(tensor.shape)}, not {shape}", where="start.path"
            )
        values = tensor.clone()
        for dim in () if random_inputs else growing[0].get(name, {}):
            further = [i for i, where in enumerate(entries[dim]) if where is None]
            values.index_fill_(dim, torch.tensor(further, dtype=torch.long), 0.0)
        tensor.copy_(_placed(values, old[name], entries))


def _growth(
    build: Build, channels: tuple[Sequence[object], Sequence[object]], which: int
) -> dict[str, dict[int, int]]:
    """Return {weight: {dim: entries per channel}} of inputs (0) or outputs (1)."""
    before, after = channels
    if list(before) == list(after):
        return {}
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        counts = [2, 2]
        base = build(*counts).state_dict()
        counts[which] += 1
        larger = build(*counts).state_dict()
    out: dict[str, dict[int, int]] = {}
    for name, tensor in base.items():
        pairs = zip(tensor.shape, larger[name].shape, strict=True)
        dims = {dim: b - a for dim, (a, b) in enumerate(pairs) if b != a}
        if dims:
            out[name] = dims
    return out


def _sources(
    others: int,
    per_channel: int,
    before: Sequence[object],
    after: Sequence[object],
    interleaved: bool,
) -> list[int | None]:
    """Return the index in the trained weight of each entry of a dim; None for further channels."""
    places = {name: position for position, name in enumerate(before)}
    block = np.arange(per_channel * len(before)).reshape(
        (per_channel, len(before)) if interleaved else (len(before), per_channel)
    )
    columns = block if interleaved else block.T
    # (entries of a channel, channels), -1 for further channels.
    wanted = np.full((per_channel, len(after)), -1)
    for position, name in enumerate(after):
        if name in places:
            wanted[:, position] = others + columns[:, places[name]]
    ordered = (wanted if interleaved else wanted.T).ravel().tolist()
    return [*range(others), *(None if i < 0 else i for i in ordered)]


def _placed(values: Tensor, old: Tensor, entries: dict[int, list[int | None]]) -> Tensor:
    """Return `values` with the entries of a trained weight in their new places."""
    target, origin = [], []
    for dim, size in enumerate(old.shape):
        pairs = [(i, j) for i, j in enumerate(entries.get(dim, range(size))) if j is not None]
        target.append(torch.tensor([i for i, _ in pairs], dtype=torch.long))
        origin.append(torch.tensor([j for _, j in pairs], dtype=torch.long))
    if not old.ndim:
        return old.clone()
    for dim, index in enumerate(origin):
        old = old.index_select(dim, index)
    values[tuple(torch.meshgrid(*target, indexing="ij"))] = old.to(values.dtype)
    return values
