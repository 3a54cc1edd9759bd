"""Search over combinations of export options: bits, groups, rounding, ranks, kept layers, vectors.

Each combination is exported, called on held-out inputs and timed together with the float32 form, so
that ranks and quantisation are measured jointly. Dead channels are removed in all of them, which
does not change results. Ranks are those that change outputs least for a share of the layers' time
(`deploy.rank`), so that one number determines the ranks of all layers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy.bits.compress import SMALLEST
from scitoolkit.deploy.channels import without_dead_channels
from scitoolkit.deploy.config import ExportConfig
from scitoolkit.deploy.export import calibration, export, target
from scitoolkit.deploy.forms import Form, timed
from scitoolkit.deploy.library import CompiledSurrogate
from scitoolkit.deploy.rank.lowered import call_seconds
from scitoolkit.deploy.rank.study import Study, ranks_of, study

FLOAT32 = 32
BITS = (8, 4, 2)
GROUPS = (16, 32, 64, 128)
SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
"""Shares of the layers' time that low ranks are chosen for."""
KEPT = 6
"""Number of layers, those with most weights, that may individually stay in float32."""


class Combinations:
    """Objective of a search over forms of a surrogate; forms are measured on call.

    Args:
        functions: of a surrogate; not modified.
        config: with `search` or `fastest`; `tolerance`, `keep` and `vectors` apply to every form.

    Raises:
        ConfigError: no layer that quantisation or ranks apply to.

    Example:
        >>> import numpy as np, torch
        >>> from scitoolkit.core.traced import ArraySpec
        >>> spec = ArraySpec("x", ("k",), (32,), low=-1.0, high=1.0)
        >>> layer = torch.nn.Sequential(torch.nn.Linear(32, 32))
        >>> surrogate = TracedFunction(layer, [spec], [spec])
        >>> config = ExportConfig(search=3, max_error=0.1)
        >>> with Combinations([surrogate], config) as tried:
        ...     tried.space["bits"], tried(tried.plain())["error"]
        ([32, 8, 4, 2], 0.0)
    """

    def __init__(self, functions: Sequence[TracedFunction], config: ExportConfig) -> None:
        self.functions, self.config = functions, config
        self._folder = tempfile.TemporaryDirectory(prefix="scitoolkit-")
        try:
            self._channels = {"channels": "remove"}
            self._base: Sequence[TracedFunction] = without_dead_channels(functions)[0]
        except ConfigError:  # no channel that does nothing
            self._channels, self._base = {}, functions
        self._found: dict[str, Form] = {}
        self._paths: dict[str, Path] = {}
        self._measure("float32", {})
        self._study = self._studied()
        self.space: dict[str, Any] = self._space()

    def __enter__(self) -> Combinations:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def _studied(self) -> Study | None:
        """Return the rank options of layers; None if no layer has any."""
        about = CompiledSurrogate(self._paths["float32"]).about["functions"]
        sweep = self._found["float32"].bytes + max(f["workspace_bytes"] for f in about)
        samples = [calibration(f) for f in self._base]
        try:
            return study(self._base, samples, self.config.keep, target(self.config), sweep)
        except ConfigError:
            return None

    def _space(self) -> dict[str, Any]:
        """Return the parameters of a search space, as plain data."""
        out: dict[str, Any] = {}
        layers = self._coded_layers()
        if layers:
            out["bits"] = [FLOAT32, *BITS]
            few = {"when": {"bits": list(BITS)}}
            out["group"] = {"values": list(GROUPS), **few}
            out["rounding"] = {"values": ["nearest", "compensated"], **few}
            if len(layers) > 1:
                out |= {f"float32.{name}": {"values": [False, True], **few} for name in layers}
        if self._study is not None:
            shares = [s for s in SHARES if s >= self._study.least_share()]
            if shares:
                out["time_share"] = [1.0, *shares]
        if not out and self.config.search is not None:
            raise ConfigError(
                "no layer that bits or ranks apply to", where="search", fix="leave search out"
            )
        widths = [w for w in (512, 256, 128) if w <= 32 * target(self.config).lanes]
        if len(widths) > 1:
            out["vectors"] = widths
        return out

    def _coded_layers(self) -> list[str]:
        """Return the names of the quantisable layers with most weights."""
        sizes: dict[str, int] = {}
        for root in (f.module for f in self._base):
            for name, module in root.named_modules():
                weights = [p for p in module.parameters(recurse=False) if p.ndim == 2]
                if (
                    name
                    and isinstance(module, nn.Linear | nn.RNNBase)
                    and any(min(p.shape) >= SMALLEST for p in weights)
                ):
                    sizes[name] = sum(p.numel() for p in weights)
        names = [
            n for n in sizes if not any(n == k or n.startswith(f"{k}.") for k in self.config.keep)
        ]
        return sorted(names, key=lambda n: -sizes[n])[:KEPT]

    def plain(self) -> dict[str, Any]:
        """Return the configuration of the float32 form."""
        first = {"bits": FLOAT32, "time_share": 1.0}
        own = {name: first[name] for name in first if name in self.space}
        return own | ({"vectors": self.space["vectors"][0]} if "vectors" in self.space else {})

    def known(self) -> list[dict[str, Any]]:
        """Return initial configurations of a search: float32, all bits, three time shares."""
        out = [self.plain()]
        for bits in BITS if "bits" in self.space else ():
            flags = {n: False for n in self.space if n.startswith("float32.")}
            group, rounding = _usual(bits)
            out.append({**out[0], "bits": bits, "group": group, "rounding": rounding, **flags})
        shares = [s for s in (0.8, 0.6, 0.4) if s in self.space.get("time_share", ())]
        return [*out, *({**out[0], "time_share": s} for s in shares)]

    def __call__(self, configuration: Mapping[str, Any]) -> dict[str, float]:
        """Export and measure a form.

        Returns:
            error: largest change on held-out and extreme inputs relative to the range of an output;
            time: of a call relative to float32; bytes: of the weights.
        """
        chosen = dict(configuration)
        if "vectors" in chosen and chosen["vectors"] == self.space["vectors"][0]:
            del chosen["vectors"]  # the default
        options, name = self._options(chosen), _name(chosen)
        if name not in self._found:
            self._measure(name, options)
        form = self._found[name]
        before, after = self._seconds([self._paths["float32"], self._paths[name]])
        return {"error": form.error, "time": after / before, "bytes": float(form.bytes)}

    def forms(self) -> list[Form]:
        """Return all forms, float32 first, timed alternately."""
        return timed([*self._found.values()], self._seconds([*self._paths.values()]))

    def _seconds(self, paths: Sequence[Path]) -> list[float]:
        return call_seconds(paths, self.functions, [calibration(f) for f in self.functions])

    def _measure(self, name: str, options: dict[str, Any]) -> None:
        path = Path(self._folder.name) / f"form{len(self._found)}.so"
        vectors = {"vectors": self.config.vectors} if self.config.vectors else {}
        options = {**self._channels, **vectors, **options}
        keep = [*self.config.keep, *options.pop("keep", ())]
        own = {"keep": keep} if options.get("bits") is not None and keep else {}
        written = export(
            self.functions,
            path,
            ExportConfig(**options, **own, tolerance=self.config.tolerance),
        )
        error = max((d["worst"] for d in written.get("differences", ())), default=0.0)
        self._found[name] = Form(name, {**options, **own}, error, 0.0, written["weight_bytes"])
        self._paths[name] = path

    def _options(self, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of `ExportConfig` for a configuration of the search."""
        out = {k: configuration[k] for k in ("group", "rounding", "vectors") if k in configuration}
        if configuration.get("bits", FLOAT32) != FLOAT32:
            out["bits"] = configuration["bits"]
            out["keep"] = [
                name.removeprefix("float32.")
                for name, plain in configuration.items()
                if name.startswith("float32.") and plain
            ]
        share = configuration.get("time_share", 1.0)
        if share < 1 and self._study is not None:
            ranks = ranks_of(self._study.chosen(share))
            if ranks:
                out["ranks"] = {name: list(own) for name, own in ranks.items()}
        return out


def _name(configuration: Mapping[str, Any]) -> str:
    """Return the name of a configuration.

    Example:
        >>> _name({"bits": 8, "group": 32, "rounding": "nearest", "float32.head": True,
        ...        "time_share": 0.6})
        '8 bits, groups of 32, nearest, head in float32, time share 0.6'
    """
    bits, share = configuration.get("bits", FLOAT32), configuration.get("time_share", 1.0)
    parts = [] if bits == FLOAT32 else [f"{bits} bits"]
    if parts and _usual(bits) != (configuration["group"], configuration["rounding"]):
        parts += [f"groups of {configuration['group']}", configuration["rounding"]]
    plain = [name for name, own in configuration.items() if name.startswith("float32.") and own]
    parts += [f"{name.removeprefix('float32.')} in float32" for name in plain]
    parts += [f"time share {share:g}"] if share < 1 else []
    parts += [f"vectors of {configuration['vectors']}"] if "vectors" in configuration else []
    return ", ".join(parts) or "float32"


def _usual(bits: int) -> tuple[int, str]:
    """Return the default group and rounding."""
    return (128, "nearest") if bits == 8 else (32, "compensated")
