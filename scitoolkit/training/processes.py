"""The process group of a job: joining, leaving, and collective handling of results and errors."""

from __future__ import annotations

import contextlib
import datetime
import gc
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

# Its functions take the default group as default argument. If torch imports the module while a
# group exists, that group and its gloo threads live until the interpreter exits.
import torch.distributed.nn

from scitoolkit.core import errors
from scitoolkit.core.devices import choose_device
from scitoolkit.core.errors import BackendError, ScitoolkitError
from scitoolkit.core.processes import ProcessEnvironment, process_environment
from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.rank_reports import RankReports

T = TypeVar("T")
_GROUPS: Iterator[int] = itertools.count()
"""Numbers of the groups of this job, in the same order on every rank."""
_CONNECTIONS: dict[ProcessEnvironment, Any] = {}
"""Stores of this job; rank 0 serves them until it ends."""
_MESHES: set[str] = {"DeviceMesh", "FSDPMeshInfo", "HSDPMeshInfo"}
"""Types of torch that hold process groups."""


@contextlib.contextmanager
def process_group(config: TrainingConfig) -> Iterator[None]:
    """Join the process group of the job, if it has several processes, and leave it at the end.

    Nested calls do nothing. On an exception the group is destroyed at once, so that collectives of
    the other ranks fail instead of waiting.

    Raises:
        ConfigError: the strategy does not support the number of processes; raised on every rank
            before joining.
        BackendError: there is no GPU, or the processes did not find each other in time.
        LostRank: another rank was lost; the message names it.
    """
    place = process_environment()
    strategy = config.strategy_on(place.world_size)
    # Also of a lone process: it would miss the GPU only after the data are read and fitted.
    device = choose_device(config.device, "training.device")
    lone = place.world_size == 1 and not strategy.needs_process_group
    if lone or dist.is_initialized():
        yield
        return
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        store = _store(place, config.timeout_seconds)
        dist.init_process_group(
            backend,
            store=store,
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
    except Exception as error:
        dist.destroy_process_group()  # first, so that no rank waits for this one
        if place.world_size == 1:
            raise
        named = RankReports(store, place.rank, place.world_size).explain(error)
        if named is error:
            raise
        raise named from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        _release_groups()


def _release_groups() -> None:
    """Drop the remaining references to destroyed groups, which ends the threads of gloo.

    A gloo thread that frees a tensor during interpreter shutdown aborts the process. References
    are in cycles and in the meshes of sharded tensors, which the caches of DTensor keep.
    """
    for item in gc.get_objects():
        if type(item).__name__ in _MESHES and type(item).__module__.startswith("torch."):
            for name, value in list(vars(item).items()):
                if isinstance(value, dist.ProcessGroup):
                    setattr(item, name, None)
                elif name == "_pg_registry":
                    value.clear()
    gc.collect()


def _store(place: ProcessEnvironment, timeout: float) -> Any:
    """Return the store of the next group of this job.

    The groups of a job share one connection, so that a rank cannot reach the server of a previous
    group, and each has a prefix, so that it does not find the addresses of that group's ranks.
    """
    if place.world_size == 1:
        return dist.HashStore()
    if place not in _CONNECTIONS:
        _CONNECTIONS[place] = _connection(place, timeout)
    connection = _CONNECTIONS[place]
    connection.set_timeout(datetime.timedelta(seconds=timeout))
    return dist.PrefixStore(f"group_{next(_GROUPS)}", connection)


def _connection(place: ProcessEnvironment, timeout: float) -> Any:
    # torchrun's agent may already serve the store; `env://` handles that and reads these variables.
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
    """Return the values of all ranks, by rank; for small picklable objects."""
    if not dist.is_initialized():
        return [value]
    out: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(out, value)
    return out


def share_work(work: Callable[[int, int], T]) -> list[T]:
    """Call `work(rank, number of ranks)` on each rank; return the results of all, by rank.

    Raises:
        ScitoolkitError: the error of the first rank that raised one, on all ranks.
    """
    several = dist.is_initialized()
    outcome, caught = None, None
    try:
        outcome = work(*((dist.get_rank(), dist.get_world_size()) if several else (0, 1)))
    except ScitoolkitError as error:
        caught = error
    raise_together(caught)
    return gather_objects(cast(T, outcome))


def raise_together(error: Exception | None) -> None:
    """Raise on all ranks if any rank has an error: its own, or that of the first rank with one."""
    descriptions = gather_objects(_described(error) if error is not None else None)
    if error is not None:
        raise error
    for rank, description in enumerate(descriptions):
        if description is not None:
            raise _rebuilt(description, rank)


def _described(error: BaseException) -> tuple[str, str, int]:
    code = error.exit_code if isinstance(error, ScitoolkitError) else 1
    return type(error).__name__, str(error), code


def _rebuilt(description: tuple[str, str, int], rank: int = 0) -> ScitoolkitError:
    name, text, code = description
    kind = getattr(errors, name, ScitoolkitError)
    if not (isinstance(kind, type) and issubclass(kind, ScitoolkitError)):
        kind = ScitoolkitError
    out = kind(text if kind is not ScitoolkitError else f"{name}: {text}", where=f"rank {rank}")
    out.exit_code = code
    return out
