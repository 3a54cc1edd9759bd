"""Training on a mesh of pipeline stages, shares of the batch and parts of the products.

Ranks that differ only in their place on the axes pipeline, x and y read the same samples and
compute the same loss. The axes data, expert and z divide the samples. A parameter is a `DTensor`
on the mesh of its stage, which states its shape and the part of a rank for checkpoints and the
optimizer; the modules compute with the parts themselves, as plain tensors of the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from scitoolkit.core.errors import ConfigError
from scitoolkit.training.exchange.buckets import Watch, on_gradient
from scitoolkit.training.exchange.config import ExchangeConfig
from scitoolkit.training.sharding import own_part
from scitoolkit.training.strategies.base import TrainingStrategy
from scitoolkit.training.strategies.data_parallel import agreed
from scitoolkit.training.strategies.in_place import copy_from_first
from scitoolkit.training.strategies.mesh.axes import MeshAxes
from scitoolkit.training.strategies.mesh.checks import WHERE, ComparedCall, check_supported
from scitoolkit.training.strategies.mesh.division import (
    DivisibleNetwork,
    Division,
    Stage,
    StagedNetwork,
    divided_network,
)
from scitoolkit.training.strategies.mesh.experts import (
    ExpertLayer,
    divided_experts,
    expert_layers,
)
from scitoolkit.training.strategies.mesh.pipeline import PipelinedNetwork, balanced_stages
from scitoolkit.training.strategies.mesh.placed import (
    STAGE_AXES,
    PlacedParameter,
    placed_like,
    sharding_of,
    sum_gradients,
)
from scitoolkit.training.strategies.mesh.plan import divided_products, indivisible
from scitoolkit.training.strategies.mesh.products import (
    Convolution,
    ProductGroups,
    divided_forward,
)
from scitoolkit.training.strategies.sharded import without_memory


class MeshStrategy(TrainingStrategy):
    """Strategy of a mesh of processes, of which several hold parts of one network.

    Args:
        device: training device.
        config: sizes of the axes, all set.
    """

    names_differ = True

    def __init__(self, device: torch.device, config: MeshAxes) -> None:
        super().__init__(device, dist.get_rank(), dist.get_world_size())
        self._config = config
        shares = config.shares(self.world)
        sizes = (config.pipeline, shares // config.expert, config.expert, *config.grid)
        self._mesh = init_device_mesh(device.type, sizes, mesh_dim_names=("pipeline", *STAGE_AXES))
        # Ranks that have other samples and the same part of a parameter that they do not divide.
        others = self._mesh.mesh.permute(0, 3, 4, 1, 2, 5).reshape(-1, shares * config.grid[2])
        self._samples, _ = dist.new_subgroups_by_enumeration(others.tolist())
        # Every process knows the meshes of all stages, so that it can name parameters of others.
        self._stages = [
            DeviceMesh(device.type, ranks, mesh_dim_names=STAGE_AXES) for ranks in self._mesh.mesh
        ]
        self._stage: int = self._mesh.get_local_rank("pipeline")
        self.seed_rank: int = dist.get_rank(self._samples)
        self._parameters: list[PlacedParameter] = []
        self._replaced: list[nn.Module] = []
        self._buffers: dict[str, Tensor] = {}
        self._partial: dict[str, str] = {}
        self._checked = False

    def prepare(self, model: nn.Module, seed: int) -> nn.Module:
        """Divide the model, in place, after it was whole on every rank for a moment.

        Raises:
            ConfigError: the model cannot be divided as configured.
        """
        model = super().prepare(model, seed)
        check_supported(model)
        path, network = self._declared(model)
        divisions = self._divisions(path, network)
        for tensor in [*model.parameters(), *model.buffers()]:
            copy_from_first(tensor)
        empty = without_memory(network)
        self._buffers = dict(model.named_buffers())
        computed, stages = self._staged(model, path, network)
        for name, division in divisions.items():
            module = model.get_submodule(name)
            self._replace(module, divided_forward(module, self._groups(division)))
        for name in self._expert_layers(path, network):
            layer: Any = model.get_submodule(name)
            self._replace(layer, divided_experts(layer, self._mesh.get_group("expert")))
        groups = {
            axis: self._mesh.get_group(axis)
            for axis in ("pipeline", "x", "y")
            if self._size(axis) > 1
        }
        self._replace(
            network, ComparedCall(computed, lambda: self._whole_network(path, empty), groups)
        )
        for owner, module in [*model.named_modules()]:
            for key, parameter in [*module._parameters.items()]:
                if parameter is not None:
                    name = f"{owner}.{key}" if owner else key
                    places = self._placements(name, module, key, divisions)
                    self._place(name, module, key, parameter, places, stages.get(name, 0))
        return model

    def restore(self, model: nn.Module) -> nn.Module:
        """Give the user's parameters their whole values, on every rank."""
        for item in self._parameters:
            item.original.data = self.whole(item.placed)
            item.original.grad = None
            item.module.__dict__.pop(item.key, None)
            item.module._parameters[item.key] = item.original
        for module in self._replaced:
            del module.__dict__["forward"]
        self._parameters, self._replaced = [], []
        return model

    def whole(self, tensor: Tensor) -> Tensor:
        """Return the whole tensor on every rank of all stages."""
        if not isinstance(tensor, DTensor):
            return tensor
        stage = self._stages.index(tensor.device_mesh)
        if stage == self._stage:
            gathered: Any = tensor.detach()
            for dim in reversed(range(len(STAGE_AXES))):  # one exchange each: torch warns of two
                places = [*gathered.placements[:dim], *[Replicate()] * (len(STAGE_AXES) - dim)]
                gathered = gathered.redistribute(placements=places)
            value = gathered.to_local().contiguous()
        else:
            value = torch.empty(tensor.shape, dtype=tensor.dtype, device=self.device)
        if len(self._stages) > 1:
            group = self._mesh.get_group("pipeline")
            dist.broadcast(value, group=group, group_src=stage)
        return value

    def _whole_network(self, path: str, empty: nn.Module) -> nn.Module:
        """Return the network with the current weights of all ranks, in its present mode."""
        whole = empty.to_empty(device=self.device)
        prefix = f"{path}." if path else ""
        placed = {item.name: item.placed for item in self._parameters}
        with torch.no_grad():
            for name, parameter in whole.named_parameters():
                parameter.copy_(self.whole(placed[prefix + name]))
            for name, buffer in whole.named_buffers():
                buffer.copy_(self._buffers[prefix + name])
        return whole

    def agree(self, samples: int, digest: int, *flags: bool) -> tuple[float, bool, list[bool]]:
        """Agree by one small all-reduce on the CPU; samples that several ranks read count once."""
        total, same, raised = agreed(samples, digest, flags)
        return total * self._samples.size() / self.world, same, raised

    def attach(
        self,
        named: Sequence[tuple[str, nn.Parameter]],
        exchange: ExchangeConfig,
        watch: Watch = on_gradient,
    ) -> list[tuple[str, nn.Parameter]]:
        """Return the parameters on the mesh."""
        return list(named)

    def reduce_gradients(self, failed: bool) -> bool:
        """Sum the gradients over the ranks that have other samples, in one message per group."""
        own = [
            item for item in self._parameters if item.part is not None and item.part.requires_grad
        ]
        for axis in sorted({item.partial for item in own} - {""}):
            sum_gradients([i for i in own if i.partial == axis], self._mesh.get_group(axis))
        if not self._checked:
            self._check_copies(own)
            self._checked = True
        for divided in (False, True):
            items = [item for item in own if item.divided_over_samples == divided]
            group = self._mesh.get_group("data") if divided else self._samples
            for dtype in sorted({item.original.dtype for item in items}, key=str):
                sum_gradients([i for i in items if i.original.dtype == dtype], group)
        for item in own:
            gradient = item.part.grad if item.part is not None else None
            item.placed.grad = None if gradient is None else placed_like(item.placed, gradient)
            if item.part is not None:
                item.part.grad = None
        return failed

    def _check_copies(self, items: Sequence[PlacedParameter]) -> None:
        """Check that ranks of x and y with the same part of a parameter have the same gradient.

        Raises:
            ConfigError: they differ, because the network's `division()` does not say so.
        """
        norms = torch.tensor(
            [
                0.0 if i.part is None or i.part.grad is None else float(i.part.grad.norm())
                for i in items
            ],
            dtype=torch.float64,
        )
        for axis in ("x", "y"):
            if self._size(axis) == 1:
                continue
            dim = STAGE_AXES.index(axis)
            bounds = torch.stack([norms, -norms])
            dist.all_reduce(bounds, dist.ReduceOp.MAX, group=self._mesh.get_group(axis))
            largest, least = bounds[0], -bounds[1]
            for item, low, high in zip(items, least.tolist(), largest.tolist(), strict=True):
                if (
                    sharding_of(item.placed)[1][dim].is_replicate()
                    and not high - low <= 1e-3 * high
                ):
                    raise ConfigError(
                        f"the gradient of {item.name} differs between the processes of axis {axis}",
                        where=f"{WHERE}.tensor",
                        fix="name its module in `division()` of the network, with partial",
                    )

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the norm over the parts of all ranks; copies of a part count once."""
        square = torch.zeros((), dtype=torch.float64, device=self.device)
        for item in self._parameters:
            if item.placed.grad is not None and item.part is not None:
                gradient = item.placed.grad.to_local()  # type: ignore[attr-defined]
                square += gradient.double().square().sum() / item.copies
        dist.all_reduce(square)
        return square.sqrt()

    def sum(self, values: list[float]) -> list[float]:
        """Sum over all ranks, in float64; ratios of two sums do not depend on copies."""
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def merged(self, by_parameter: dict[str, Any]) -> dict[str, Any]:
        """Return the entries of all stages."""
        if len(self._stages) == 1:
            return by_parameter
        parts: list[Any] = [None] * len(self._stages)
        dist.all_gather_object(parts, by_parameter, group=self._mesh.get_group("pipeline"))
        return {name: entry for part in parts for name, entry in part.items()}

    def streams(self) -> list[int]:
        """Return the number of the random stream of each rank."""
        pipeline, data, experts, x, y, z = self._mesh.mesh.shape
        places = torch.arange(data * experts * z).view(1, data, experts, 1, 1, z)
        return places.expand(pipeline, data, experts, x, y, z).flatten().tolist()

    def _groups(self, division: Division) -> ProductGroups:
        def group(axis: str | None) -> Any:
            return None if axis is None or self._size(axis) == 1 else self._mesh.get_group(axis)

        return ProductGroups(group(division.inputs), group(division.outputs), group("z"))

    def _size(self, axis: str) -> int:
        return self._mesh.size(self._mesh.mesh_dim_names.index(axis))  # type: ignore[union-attr]

    def _declared(self, model: nn.Module) -> tuple[str, nn.Module]:
        """Return the network that declares what the mesh needs, and its name in the model.

        Raises:
            ConfigError: no network does, or several.
        """
        networks = []
        if math.prod(self._config.grid) > 1:
            networks.append(divided_network(model, DivisibleNetwork))
        if self._config.pipeline > 1:
            networks.append(divided_network(model, StagedNetwork))
        if self._config.expert > 1:
            networks.append(divided_network(model, DivisibleNetwork))
            self._require_experts(networks[0])
        first = networks[0]
        if first is None or networks[-1] is None or networks[-1][1] is not first[1]:
            what = ("division()", "tensor") if first is None else ("stages()", "pipeline")
            raise ConfigError(
                f"{type(model).__name__} has no network, or several, with `{what[0]}`",
                where=f"{WHERE}.{what[1]}",
                allowed="networks that declare it, such as field_transformer, mlp and resnet",
                fix=f"{WHERE}.{what[1]}=1",
            )
        return first

    def _require_experts(self, network: tuple[str, nn.Module] | None) -> None:
        """Check that the network has experts, and as many for each process.

        Raises:
            ConfigError: it has none, or they do not divide.
        """
        layers = [] if network is None else [*expert_layers(network[1]).values()]
        counts = {layer.experts for layer in layers}
        if not counts or any(count % self._config.expert for count in counts):
            raise ConfigError(
                f"{max(counts, default='no')} experts on {self._config.expert} processes",
                where=f"{WHERE}.expert",
                allowed="a network whose experts divide, such as field_transformer",
                fix=f"model.experts={4 * self._config.expert}",
            )

    def _expert_layers(self, path: str, network: nn.Module) -> list[str]:
        """Return the names of the layers whose experts the axis divides."""
        if self._config.expert == 1:
            return []
        return [f"{path}.{name}" if path else name for name in expert_layers(network)]

    def _divisions(self, path: str, module: nn.Module) -> dict[str, Division]:
        """Return the divisions by the names of modules, if there is a grid of products.

        Raises:
            ConfigError: the network does not fit the grid.
        """
        if not isinstance(module, DivisibleNetwork) or math.prod(self._config.grid) == 1:
            return {}
        prefix = f"{path}." if path else ""
        out: dict[str, Division] = {}
        for name, (child, division) in divided_products(module).items():
            if what := indivisible(child, division, self._config.grid):
                raise ConfigError(
                    f"{prefix}{name} does not divide: {what}",
                    where=f"{WHERE}.tensor",
                    fix="another width of the model, or another grid",
                )
            out[prefix + name] = division
        for pattern, division in module.division().items():
            if division.partial is not None:
                self._partial.update(
                    (prefix + name, division.partial)
                    for name, _ in module.named_modules()
                    if fnmatchcase(name, pattern)
                )
        used = {axis for d in out.values() for axis in (d.inputs, d.outputs)}
        for axis in ("x", "y"):
            if self._size(axis) > 1 and axis not in used:
                raise ConfigError(
                    f"{type(module).__name__} has no product to divide over {axis}",
                    where=f"{WHERE}.tensor",
                    fix=f"one process on the axis {axis}",
                )
        return out

    def _placements(
        self, name: str, module: nn.Module, key: str, divisions: dict[str, Division]
    ) -> list[Any]:
        """Return how a parameter is divided over the axes of a stage."""
        places: list[Any] = [Replicate() for _ in STAGE_AXES]
        if isinstance(module, ExpertLayer) and self._config.expert > 1:
            places[STAGE_AXES.index("expert")] = Shard(0)
            return places
        owner = next((m for m in divisions if name.startswith(f"{m}.")), None)
        if owner is None:
            return places
        division, weight = divisions[owner], key == "weight"
        if division.outputs is not None:
            places[STAGE_AXES.index(division.outputs)] = Shard(0)
        if division.inputs is not None and weight:
            places[STAGE_AXES.index(division.inputs)] = Shard(1)
        if weight and not isinstance(module, Convolution):
            places[STAGE_AXES.index("z")] = Shard(0)
        # An axis of one process divides nothing, and its gradients are summed with the others'.
        return [
            place if self._size(axis) > 1 else Replicate()
            for axis, place in zip(STAGE_AXES, places, strict=True)
        ]

    def _place(
        self,
        name: str,
        module: nn.Module,
        key: str,
        parameter: nn.Parameter,
        places: list[Any],
        stage: int,
    ) -> None:
        """Replace a parameter by its place on the mesh, and its memory by this rank's part."""
        mesh, shape = self._stages[stage], parameter.shape
        strides = torch.empty(shape, device="meta").stride()
        part: Tensor | None = None
        stored = torch.empty(0, dtype=parameter.dtype, device=self.device)
        if stage == self._stage:
            offset, size = own_part(shape, mesh, places)
            cut = parameter.detach()
            for dim, (start, length) in enumerate(zip(offset, size, strict=True)):
                cut = cut.narrow(dim, start, length)
            stored = cut.contiguous().clone()
        placed = DTensor.from_local(
            stored, mesh, places, run_check=False, shape=shape, stride=strides
        )
        wrapped = nn.Parameter(placed, requires_grad=parameter.requires_grad)
        if stage == self._stage:
            part = wrapped.to_local().detach().requires_grad_(parameter.requires_grad)  # type: ignore[attr-defined]
            module.__dict__[key] = part  # found before the entry of `_parameters`
        parameter.data = torch.empty(0, dtype=parameter.dtype)
        module._parameters[key] = wrapped
        partial = next((a for m, a in self._partial.items() if name.startswith(f"{m}.")), "")
        self._parameters.append(
            PlacedParameter(name, module, key, parameter, wrapped, part, stage, partial)
        )

    def _staged(
        self, model: nn.Module, path: str, module: nn.Module
    ) -> tuple[Callable[..., Tensor], dict[str, int]]:
        """Return the network as a function, and the place of its parameters in the pipeline.

        Raises:
            ConfigError: there are too few stages, or parameters belong to none.
        """
        count = self._config.pipeline
        if count == 1 or not isinstance(module, StagedNetwork):
            return module.forward, {}
        stages: list[Stage] = list(module.stages())
        if len(stages) < count:
            raise ConfigError(
                f"{count} processes for the {len(stages)} stages of {type(module).__name__}",
                where=f"{WHERE}.pipeline",
                allowed=f"at most {len(stages)}",
            )
        ranges = balanced_stages([stage.cost for stage in stages], count)
        out: dict[str, int] = {}
        for place, numbers in enumerate(ranges):
            for name in (n for k in numbers for n in stages[k].modules):
                full = f"{path}.{name}" if path else name
                for key, _ in model.get_submodule(full).named_parameters():
                    out[f"{full}.{key}"] = place
        outside = sorted({name for name, _ in model.named_parameters()} - set(out))
        if outside:
            raise ConfigError(
                f"parameter {outside[0]} belongs to no stage of the pipeline",
                where=f"{WHERE}.pipeline",
                fix=f"{WHERE}.pipeline=1",
            )
        own = [stages[k] for k in ranges[self._stage]]
        group = self._mesh.get_group("pipeline")
        return PipelinedNetwork(own, group, self._config.microbatches or 2 * count), out

    def _replace(self, module: nn.Module, forward: Any) -> None:
        module.__dict__["forward"] = forward
        self._replaced.append(module)
