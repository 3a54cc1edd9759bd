"""Checkpoints: folders of safetensors and JSON files, which cannot execute code when loaded.

`step-00000042/` holds one `rank-00000.safetensors` per writing rank, `state.json` and
`MANIFEST.json` with the size and SHA-256 of every file and of itself. A sharded tensor is stored
as its shards, each with its offset along the dimensions, so that any number of ranks and any
strategy can read it. The folder is written under a temporary name, flushed and then renamed. No
pickle is read or written (torch.distributed.checkpoint pickles its index).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from scitoolkit.core.errors import CheckpointError
from scitoolkit.core.files import disk_error, flush_file, write_atomic
from scitoolkit.core.run_directory import RUN_ROOT
from scitoolkit.training.processes import gather_objects, raise_together
from scitoolkit.training.sharding import is_first_copy, local, part_of
from scitoolkit.training.strategies.base import SingleStrategy, TrainingStrategy

FORMAT = 2
MANIFEST, STATE, BEST = "MANIFEST.json", "state.json", "best.json"


@dataclass
class Snapshot:
    """Contents of a checkpoint: tensors (sharded or replicated), JSON state, state of this rank."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]
    rank_state: dict[str, Any] = field(default_factory=dict)
    rank_tensors: dict[str, Tensor] = field(default_factory=dict)


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: the folder that contains them.
        strategy: determines which rank writes which tensors.
        keep_last: number of checkpoints to keep in addition to the best one.

    Example:
        >>> import tempfile
        >>> kept = Checkpoints(Path(tempfile.mkdtemp()), SingleStrategy(torch.device("cpu")))
        >>> path = kept.save(7, Snapshot({"w": torch.arange(3.0)}, {"step": 7}))
        >>> kept.newest().name, kept.open(path).tensor("w").tolist()
        ('step-00000007', [0.0, 1.0, 2.0])
    """

    def __init__(self, folder: Path, strategy: TrainingStrategy, keep_last: int = 2) -> None:
        self.folder: Path = folder
        self._strategy = strategy
        self._keep_last = keep_last

    def recovered(self) -> Path | None:
        """Undo a replacement that a kill interrupted (see `_publish`); return the newest.

        Only the process that is about to write to the folder may call this.
        """
        for aside in self.folder.glob(".step-*.old"):
            final = self.folder / aside.name.removeprefix(".").removesuffix(".old")
            if final.exists():
                shutil.rmtree(aside, ignore_errors=True)
            else:
                aside.rename(final)
        return self.newest()

    def list(self) -> list[Path]:
        """Return all complete checkpoints, oldest first."""
        return sorted(p for p in self.folder.glob("step-*") if p.is_dir())

    def newest(self) -> Path | None:
        """Return the newest checkpoint, or None."""
        return next(iter(reversed(self.list())), None)

    def best(self) -> Path | None:
        """Return the checkpoint with the lowest validation loss, or None."""
        try:
            text = (self.folder / BEST).read_text(encoding="utf-8")
            name = str(json.loads(text)["checkpoint"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise CheckpointError("not readable", where=str(self.folder / BEST)) from None
        path = self.folder / Path(name).name
        if not path.is_dir():
            raise CheckpointError(f"names {name!r}, which does not exist", where=str(self.folder))
        return path

    def open(self, path: Path) -> Reader:
        """Verify a checkpoint and return its reader.

        Raises:
            CheckpointError: a file is missing, truncated, altered or of another format; the
                message names it and the newest older checkpoint that is intact.
        """
        try:
            return Reader(path)
        except CheckpointError as error:
            whole = next((p for p in reversed(self.list()) if p < path and _is_whole(p)), None)
            fix = (
                f"remove {path} to continue from {whole.name}"
                if whole
                else "no older checkpoint is intact: start a new run"
            )
            raise CheckpointError(error.what, where=error.where, fix=fix) from None

    def save(self, step: int, snapshot: Snapshot, *, best: float | None = None) -> Path:
        """Write a checkpoint on all ranks, then delete those beyond `keep_last`.

        Args:
            step: number of completed steps.
            snapshot: this rank's state.
            best: the validation loss, if it is the lowest so far.

        Raises:
            ScitoolkitError: the disk is full or not writable; older checkpoints are intact.
        """
        final = self.folder / f"step-{step:08d}"
        temporary = self.folder / f".step-{step:08d}.tmp"
        error: Exception | None = None
        written: dict[str, Any] = {}
        try:
            self._on_rank_0(lambda: _fresh(temporary), temporary)
            try:
                written = self._write_rank(temporary, snapshot)
            except (OSError, SafetensorError) as caught:
                error = _write_error(caught, temporary)
            raise_together(error)
            files = {k: v for part in gather_objects(written) for k, v in part.items()}
            self._on_rank_0(lambda: self._publish(temporary, final, snapshot, files, best), final)
        except BaseException:
            if self._strategy.rank == 0:
                shutil.rmtree(temporary, ignore_errors=True)
            raise
        return final

    def _on_rank_0(self, action: Any, path: Path) -> None:
        """Run `action` on rank 0 while the others wait; all ranks raise its error."""
        error: Exception | None = None
        if self._strategy.rank == 0:
            try:
                action()
            except OSError as caught:
                error = _write_error(caught, path)
        if self._strategy.world > 1:
            raise_together(error)
        elif error is not None:
            raise error

    def _write_rank(self, folder: Path, snapshot: Snapshot) -> dict[str, Any]:
        rank = self._strategy.rank
        tensors: dict[str, Tensor] = {}
        index: dict[str, Any] = {}
        whole = self._own_whole([n for n, t in snapshot.tensors.items() if not _is_part(t)])
        for name, tensor in snapshot.tensors.items():
            part = local(tensor)
            if isinstance(tensor, DTensor):
                if not part.numel() or not is_first_copy(tensor):
                    continue
                offset, _ = part_of(tensor)
                # A number states rows of the whole width, as all checkpoints before did.
                rows = part.shape[1:] == tensor.shape[1:]
                index[name] = {
                    "shape": list(tensor.shape),
                    "offset": offset[0] if rows and offset else list(offset),
                }
            elif name in whole:
                index[name] = {"shape": list(part.shape), "offset": 0}
            else:
                continue
            tensors[name] = part.detach().to("cpu").contiguous()
        for name, tensor in snapshot.rank_tensors.items():
            tensors[f"rank:{name}"] = tensor.to("cpu").contiguous()
        return write_tensors(folder, f"rank-{rank:05d}", tensors, index, snapshot.rank_state)

    def _own_whole(self, names: Sequence[str]) -> set[str]:
        """Return the names of whole tensors that this rank writes: the first that has them."""
        rank = self._strategy.rank
        if not self._strategy.names_differ:
            return set() if rank else set(names)
        before = {name for others in gather_objects(tuple(names))[:rank] for name in others}
        return set(names) - before

    def _publish(
        self,
        temporary: Path,
        final: Path,
        snapshot: Snapshot,
        files: dict[str, Any],
        best: float | None,
    ) -> None:
        data = json.dumps(snapshot.state).encode()
        write_atomic(temporary / STATE, data)
        files[STATE] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        manifest = {"format": FORMAT, "world_size": self._strategy.world, "files": files}
        sealed = {**manifest, "sha256": _seal(manifest)}
        write_atomic(temporary / MANIFEST, json.dumps(sealed, indent=1))
        _sync_folder(temporary)
        # The same step may be saved again after its validation. A kill at any time leaves one
        # intact checkpoint, the old or the new one.
        aside = self.folder / f".{final.name}.old"
        if final.exists():
            final.rename(aside)
        temporary.rename(final)
        _sync_folder(self.folder)
        shutil.rmtree(aside, ignore_errors=True)
        if best is not None:
            write_atomic(self.folder / BEST, json.dumps({"checkpoint": final.name, "loss": best}))
        self._prune()

    def _prune(self) -> None:
        needed = set(self.list()[-self._keep_last :])
        with contextlib.suppress(CheckpointError):
            best = self.best()
            needed |= {best} if best else set()
        for path in self.list():
            if path not in needed:
                shutil.rmtree(path, ignore_errors=True)


def _is_part(tensor: Tensor) -> bool:
    return isinstance(tensor, DTensor)


class Reader:
    """Reader of a verified checkpoint; reads tensors on demand, whole or by rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest: dict[str, Any] = _verified(path)
        self.state: dict[str, Any] = _read_json(path / STATE)
        self.world_size: int = int(self.manifest["world_size"])
        self._parts: dict[str, list[tuple[Path, list[int]]]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for file in sorted(path.glob("rank-*.json")):
            for name, entry in _read_json(file)["index"].items():
                self.shapes[name] = tuple(entry["shape"])
                tensors = file.with_suffix(".safetensors")
                dims, start = len(entry["shape"]), entry["offset"]
                offset = start if isinstance(start, list) else [start, *[0] * dims]
                corner = [int(number) for number in offset[:dims]]
                self._parts.setdefault(name, []).append((tensors, corner))

    def tensor(self, name: str) -> Tensor:
        """Return a whole tensor.

        Raises:
            CheckpointError: the tensor or some of its parts are not in the checkpoint.
        """
        shape = self.shapes.get(name, ())
        return self.part(name, [0] * len(shape), shape)

    def part(self, name: str, offset: Sequence[int], size: Sequence[int]) -> Tensor:
        """Return a part of a tensor.

        Args:
            name: of the tensor.
            offset: first index along every dim.
            size: indices along every dim.

        Raises:
            CheckpointError: the tensor or some of its parts are not in the checkpoint.
        """
        if name not in self._parts:
            raise CheckpointError(f"tensor {name!r} is missing", where=str(self.path))
        if not size:
            with _opened(self._parts[name][0][0]) as file:
                return file.get_tensor(name)
        out: Tensor | None = None
        filled, wanted = 0, math.prod(int(n) for n in size)
        for path, first in self._parts[name]:
            with _opened(path) as file:
                stored = file.get_slice(name)
                starts = [max(a, b) for a, b in zip(offset, first, strict=True)]
                stops = [
                    min(a + n, b + m)
                    for a, n, b, m in zip(offset, size, first, stored.get_shape(), strict=True)
                ]
                if any(a >= b for a, b in zip(starts, stops, strict=True)) and wanted:
                    continue
                within = zip(starts, stops, first, strict=True)
                piece = stored[tuple(slice(a - c, max(a, b) - c) for a, b, c in within)]
            if tuple(piece.shape) == tuple(size):
                return piece
            out = piece.new_empty(tuple(size)) if out is None else out
            within = zip(starts, stops, offset, strict=True)
            out[tuple(slice(a - c, b - c) for a, b, c in within)] = piece
            filled += piece.numel()
        if out is None or filled != wanted:
            raise CheckpointError(f"tensor {name!r} is not complete", where=str(self.path))
        return out

    def rank(self, rank: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the JSON state and the tensors that are specific to a rank."""
        file = self.path / f"rank-{rank:05d}.json"
        with _opened(file.with_suffix(".safetensors")) as tensors:
            names = [n for n in tensors.keys() if n.startswith("rank:")]
            own = {n.removeprefix("rank:"): tensors.get_tensor(n) for n in names}
        return _read_json(file)["state"], own


def best_weights(folder: Path) -> dict[str, Tensor]:
    """Return the weights of the best checkpoint in `folder` (a run's `checkpoints`).

    Averaged weights if the run averaged them; the newest checkpoint if there was no validation.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged.
    """
    checkpoints = Checkpoints(folder, SingleStrategy(torch.device("cpu")))
    path = checkpoints.best() or checkpoints.newest()
    if path is None:
        raise CheckpointError("no checkpoint to read weights from", where=str(folder))
    return model_weights(checkpoints.open(path))


def load_best(model: nn.Module, folder: Path) -> None:
    """Load the weights of the best checkpoint in `folder` into a model; see `best_weights`.

    Checkpoints also hold non-persistent buffers, which a state dict must not contain.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged.
    """
    derived = {name for name, _ in model.named_buffers()} - model.state_dict().keys()
    best = best_weights(folder)
    model.load_state_dict({name: t for name, t in best.items() if name not in derived})


def model_weights(reader: Reader) -> dict[str, Tensor]:
    """Return parameters and buffers of a checkpoint, averaged ones if there are any."""
    out: dict[str, Tensor] = {}
    for name in reader.shapes:
        kind, _, key = name.partition(".")
        if kind in ("model", "buffer"):
            averaged = f"ema.{key}"
            out[key] = reader.tensor(averaged if averaged in reader.shapes else name)
    return out


def write_tensors(
    folder: Path, stem: str, tensors: Mapping[str, Tensor], index: Any, state: Any
) -> dict[str, Any]:
    """Write one rank's two files and return their sizes and hashes."""
    path = folder / f"{stem}.safetensors"
    # safetensors rejects tensors that share memory (tied weights): store a copy.
    seen: set[int] = set()
    unique: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        pointer = tensor.untyped_storage().data_ptr()
        unique[name] = tensor.clone() if pointer in seen else tensor
        seen.add(pointer)
    save_file(unique, path)
    flush_file(path)
    data = json.dumps({"index": index, "state": state}).encode()
    write_atomic(folder / f"{stem}.json", data)
    return {
        path.name: {"size": path.stat().st_size, "sha256": _digest(path)},
        f"{stem}.json": {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()},
    }


def _write_error(error: Exception, path: Path) -> Exception:
    cause = error if isinstance(error, OSError) else OSError(str(error))
    return disk_error(cause, path, RUN_ROOT)


def _fresh(folder: Path) -> None:
    for stale in folder.parent.glob(".step-*.tmp"):  # left by a process that was killed
        shutil.rmtree(stale)
    folder.mkdir(parents=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _seal(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest's content."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _is_whole(path: Path) -> bool:
    try:
        _verified(path)
    except CheckpointError:
        return False
    return True


def _verified(path: Path) -> dict[str, Any]:
    manifest = _read_json(path / MANIFEST)
    if manifest.get("format") != FORMAT:
        raise CheckpointError(
            "not a checkpoint of this version",
            where=str(path / MANIFEST),
            allowed=f"format {FORMAT}",
        )
    if manifest.pop("sha256", None) != _seal(manifest):
        raise CheckpointError(
            "altered: its SHA-256 is not the saved one", where=str(path / MANIFEST)
        )
    files = manifest["files"]
    for name, entry in files.items():
        file = path / Path(name).name
        if not file.is_file():
            raise CheckpointError("file is missing", where=str(file))
        size = file.stat().st_size
        if size != entry.get("size"):
            raise CheckpointError(f"{size} bytes instead of {entry.get('size')}", where=str(file))
        if _digest(file) != entry.get("sha256"):
            raise CheckpointError("altered: its SHA-256 is not the saved one", where=str(file))
    return manifest


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError("file is missing", where=str(path)) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"not readable ({error})", where=str(path)) from None
    if not isinstance(value, dict):
        raise CheckpointError("not a JSON object", where=str(path))
    return value


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise CheckpointError(f"not readable ({error})", where=str(path)) from None
