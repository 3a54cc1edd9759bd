"""How the processes of a job share the work: alone, replicated (ddp), or sharded (ZeRO).

All strategies compute the same numbers: a gradient is the sum over all micro-batches and ranks of
(samples of the part / samples of the step) times the part's mean gradient, so a rank that holds
fewer samples, or a filler, weighs accordingly.

`ddp` sums all gradients in one flat all-reduce after the backward pass instead of wrapping the
model in torch's DistributedDataParallel: that one re-orders its buckets after the first step, so a
resumed run would add in another order on more than two ranks and not be bit-identical.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist

# Its functions have the group as default argument: imported by torch while there is one, it would
# keep that group, and the threads of gloo, until the interpreter is gone.
import torch.distributed.nn
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from scitoolkit.core.errors import BackendError, ConfigError, ScitoolkitError
from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.launch import process_environment

T = TypeVar("T")


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a sharded tensor, or the tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def choose_device(config: TrainingConfig) -> torch.device:
    """Return the device that this process trains on.

    Raises:
        BackendError: `device: cuda` without a GPU.
    """
    if config.device == "cuda" and not torch.cuda.is_available():
        raise BackendError("training.device=cuda, but torch sees no GPU", fix="training.device=cpu")
    if config.device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", process_environment().local_rank % torch.cuda.device_count())


def strategy_name(config: TrainingConfig, world: int) -> str:
    """Return the strategy to use; every rank decides alike, before any of them waits.

    Raises:
        ConfigError: the batch cannot be shared equally, or several processes without a strategy.

    Example:
        >>> strategy_name(TrainingConfig(), 1), strategy_name(TrainingConfig(), 2)
        ('single', 'ddp')
    """
    name = config.strategy
    if name == "auto":
        name = "single" if world == 1 else "ddp"
    if name == "single" and world > 1:
        raise ConfigError(
            f"strategy 'single' with {world} processes",
            where="training.strategy",
            allowed="auto, ddp, sharded",
            fix="training.strategy=auto",
        )
    if name == "graph":
        return name
    if config.batch_size % world:
        near = max(world, round(config.batch_size / world) * world)
        raise ConfigError(
            f"batch_size {config.batch_size} is not divisible by {world} processes",
            where="training.batch_size",
            fix=f"training.batch_size={near}",
        )
    if config.optimizer.uses_closure and name == "sharded":
        raise ConfigError("optimizer lbfgs cannot be sharded", fix="training.strategy=ddp")
    return name


@contextlib.contextmanager
def process_group(config: TrainingConfig) -> Iterator[None]:
    """Join the processes of the job, if there are several, and leave at the end.

    Inside another `process_group` it does nothing. When an exception passes, the group is left
    at once, so that the other ranks' collectives fail instead of waiting.

    Raises:
        ConfigError: the batch cannot be shared equally; raised on every rank before joining.
        BackendError: the processes did not find each other in time.
    """
    place = process_environment()
    strategy_name(config, place.world_size)
    if (place.world_size == 1 and config.strategy != "sharded") or dist.is_initialized():
        yield
        return
    device = choose_device(config)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        dist.init_process_group(
            backend,
            store=_store(place, config.timeout_seconds),
            rank=place.rank,
            world_size=place.world_size,
            timeout=datetime.timedelta(seconds=config.timeout_seconds),
        )
    except (RuntimeError, ValueError) as error:
        raise BackendError(
            f"rank {place.rank} could not join the {place.world_size} processes ({error})",
            where=f"{place.master_address}:{place.master_port}",
            fix="start all ranks together, with a free MASTER_PORT",
        ) from None
    try:
        yield
    finally:
        dist.destroy_process_group()
        # torch's DDP is a cycle of references that holds the group. A thread of gloo that frees a
        # tensor while the interpreter shuts down aborts the process.
        gc.collect()


def _store(place: Any, timeout: float) -> Any:
    if place.world_size == 1:
        return dist.HashStore()
    # torchrun's agent may own the store already; `env://` knows, and we give it what it reads.
    import os

    os.environ.setdefault("RANK", str(place.rank))
    os.environ.setdefault("WORLD_SIZE", str(place.world_size))
    os.environ.setdefault("MASTER_ADDR", place.master_address)
    os.environ.setdefault("MASTER_PORT", str(place.master_port))
    rendezvous = dist.rendezvous("env://", timeout=datetime.timedelta(seconds=timeout))
    return next(iter(rendezvous))[0]


def on_rank_zero(function: Callable[[], T]) -> T:
    """Call `function` on rank 0 and return its result, or raise its error, on every rank."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return function()
    answer: list[Any] = [None, None]
    caught: BaseException | None = None
    if dist.get_rank() == 0:
        try:
            answer[0] = function()
        except Exception as error:
            caught, answer[1] = error, _described(error)
    dist.broadcast_object_list(answer, src=0)
    if caught is not None:
        raise caught
    if answer[1] is not None:
        raise _rebuilt(answer[1])
    return answer[0]


def gather_objects(value: T) -> list[T]:
    """Return the values of all ranks, by rank; only for small things of our own."""
    if not dist.is_initialized():
        return [value]
    out: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(out, value)
    return out


def raise_together(error: Exception | None) -> None:
    """Raise on all ranks when any has an error: its own, or the first rank's that has one."""
    found = gather_objects(_described(error) if error is not None else None)
    if error is not None:
        raise error
    for rank, description in enumerate(found):
        if description is not None:
            raise _rebuilt(description, rank)


def _described(error: BaseException) -> tuple[str, str, int]:
    code = error.exit_code if isinstance(error, ScitoolkitError) else 1
    return type(error).__name__, str(error), code


def _rebuilt(description: tuple[str, str, int], rank: int = 0) -> ScitoolkitError:
    from scitoolkit.core import errors

    name, text, code = description
    kind = getattr(errors, name, ScitoolkitError)
    if not (isinstance(kind, type) and issubclass(kind, ScitoolkitError)):
        kind = ScitoolkitError
    out = kind(text if kind is not ScitoolkitError else f"{name}: {text}", where=f"rank {rank}")
    out.exit_code = code
    return out


class Strategy:
    """One process alone; the base of the others.

    Args:
        device: where to train.
    """

    name = "single"
    rank, world = 0, 1
    agrees_on_errors = False
    """Whether ranks agree on an error in a loss: not alone, nor in FSDP2's own collectives."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return the model to train, on the device and equal on all ranks."""
        return model.to(self.device)

    def restore(self, model: nn.Module) -> nn.Module:
        """Return the whole model for use after training, given the one that was trained."""
        return model

    def reshard(self, model: nn.Module) -> None:
        """Drop gathered copies of the weights, which changing the weights would make stale."""

    def agree(self, samples: int, stop: bool, error: bool) -> tuple[float, bool, bool]:
        """Return the global samples, and whether any rank stops or has an error."""
        return samples, stop, error

    def reduce_gradients(self, parameters: Sequence[nn.Parameter], failed: bool) -> bool:
        """Sum the gradients over the ranks; return whether any rank failed to compute them."""
        return failed

    def loss_scale(self) -> float:
        """Return what a local loss is multiplied with to make up for averaging gradients."""
        return 1.0

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the global 2-norm of local gradients."""
        norms = torch._foreach_norm(gradients)
        return torch.linalg.vector_norm(torch.stack(norms)) if len(norms) > 1 else norms[0]

    def sum(self, values: list[float]) -> list[float]:
        """Sum a list over the ranks."""
        return values

    def sync_buffers(self, buffers: Sequence[Tensor]) -> None:
        """Make rank 0's buffers those of all."""


class DataParallel(Strategy):
    """Every rank holds the model and a share of the batch."""

    name = "ddp"
    agrees_on_errors = True

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._message = torch.zeros(3, dtype=torch.float64)

    def prepare(self, model: nn.Module) -> nn.Module:
        """Copy rank 0's weights and buffers to all."""
        model = model.to(self.device)
        with torch.no_grad():
            for tensor in [*model.parameters(), *model.buffers()]:
                dist.broadcast(tensor, src=0)
        return model

    def agree(self, samples: int, stop: bool, error: bool) -> tuple[float, bool, bool]:
        """Agree in one small all-reduce (gloo, on the CPU)."""
        message = self._message
        message[0], message[1], message[2] = samples, stop, error
        dist.all_reduce(message)
        total, stops, errors = message.tolist()
        return total, stops > 0, errors > 0

    def reduce_gradients(self, parameters: Sequence[nn.Parameter], failed: bool) -> bool:
        """Sum in one flat all-reduce; a parameter without gradient on this rank counts as 0.

        The flag travels with the gradients, so that a rank whose loss raised an error neither
        leaves the others waiting nor costs another message.
        """
        if self.world == 1:
            return failed
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for parameter in parameters:
            assert parameter.grad is not None
            by_dtype.setdefault(parameter.grad.dtype, []).append(parameter.grad)
        for gradients in by_dtype.values():
            flag = gradients[0].new_full((1,), float(failed))
            flat = torch.cat([*(g.reshape(-1) for g in gradients), flag])
            dist.all_reduce(flat)
            *parts, flag = flat.split([*(g.numel() for g in gradients), 1])
            failed = failed or bool(flag.item())
            torch._foreach_copy_(
                gradients, [p.view_as(g) for p, g in zip(parts, gradients, strict=True)]
            )
        return failed

    def sum(self, values: list[float]) -> list[float]:
        """Sum over the ranks, in float64."""
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def sync_buffers(self, buffers: Sequence[Tensor]) -> None:
        """Broadcast from rank 0, as running statistics differ between ranks."""
        for buffer in buffers if self.world > 1 else ():
            dist.broadcast(buffer, src=0)


class Sharded(DataParallel):
    """Parameters, gradients and optimizer state are split over the ranks by torch's FSDP2.

    The elements of every `nn.ModuleList` are gathered one at a time, the rest at once. The user's
    module gives its memory away during training and has the whole weights again afterwards.
    """

    name = "sharded"
    agrees_on_errors = False

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return a sharded copy of the model; the model itself is emptied until `restore`."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        super().prepare(model)
        self._whole = model
        sharded = copy.deepcopy(model)
        model.to("meta")
        mesh = init_device_mesh(self.device.type, (self.world,))
        for module in list(sharded.modules()):
            for child in module if isinstance(module, nn.ModuleList) else ():
                if any(True for _ in child.parameters()):
                    fully_shard(child, mesh=mesh)
        fully_shard(sharded, mesh=mesh)
        return sharded

    def restore(self, model: nn.Module) -> nn.Module:
        """Gather the whole weights into the user's module, on every rank."""
        whole = self._whole.to_empty(device=self.device)
        with torch.no_grad():
            for target, source in zip(whole.parameters(), model.parameters(), strict=True):
                full = source.full_tensor() if isinstance(source, DTensor) else source
                target.copy_(full)
            for target_buffer, buffer in zip(whole.buffers(), model.buffers(), strict=True):
                target_buffer.copy_(buffer)
        return whole

    def reshard(self, model: nn.Module) -> None:
        """Go back to shards: after a forward pass alone FSDP2 keeps the root gathered."""
        from torch.distributed.fsdp import FSDPModule

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def reduce_gradients(self, parameters: Sequence[nn.Parameter], failed: bool) -> bool:
        """Do nothing: FSDP2 has reduced them in the backward pass, or lost a rank there."""
        return failed

    def loss_scale(self) -> float:
        """Return the world size: FSDP2 averages gradients over the ranks."""
        return float(self.world)

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the norm over all shards; empty shards count as 0."""
        own = [g for g in gradients if g.numel()]
        square = super().norm(own).double() ** 2 if own else torch.zeros((), dtype=torch.float64)
        square = square.to(self.device)
        dist.all_reduce(square)
        return square.sqrt()


class GraphParallel(DataParallel):
    """The batch is one graph, of which each rank holds a part; ranks talk inside the model.

    A loss is the mean over this rank's labelled nodes, weighted as everywhere by how many of all
    these are; one without labelled nodes weighs 0 and still joins every exchange. An error in one
    rank's model ends the others' exchanges, so there is nothing to agree on.
    """

    name = "graph"
    agrees_on_errors = False


def make_strategy(config: TrainingConfig) -> Strategy:
    """Return the strategy of a configuration; the process group must have been joined."""
    device = choose_device(config)
    name = strategy_name(config, process_environment().world_size)
    kinds: dict[str, type[Strategy]] = {
        "single": Strategy,
        "ddp": DataParallel,
        "sharded": Sharded,
        "graph": GraphParallel,
    }
    if name in ("ddp", "graph") and not dist.is_initialized():
        return Strategy(device)
    return kinds[name](device)
