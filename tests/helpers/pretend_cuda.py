"""A pretended CUDA device: real numbers on the CPU under the device rules of a GPU.

    python -m tests.helpers.pretend_cuda -m scitoolkit run workflows/water_deepmd training.steps=2
    python -m tests.helpers.pretend_cuda script.py arguments

Tensors "on cuda" are wrapper subclasses: they report device cuda:0, compute on the CPU, refuse
operands of mixed devices as CUDA does, need generators of their device, must be contiguous in
collectives, and have no address that a C function accepts. Device mismatches, C kernels given
addresses of a GPU and forgotten copies fail here with the same cause as on a GPU, and a traceback.

Not covered: dtypes of autocast (C++ sees device meta, so nothing is cast), real meta tensors of
deferred models, speed, streams and races, memory limits, NCCL itself (gloo carries the numbers),
torch.compile (runs eagerly), and Triton's kernels (their references run; TRITON_INTERPRET=1 is for
those).
"""

from __future__ import annotations

import contextlib
import functools
import runpy
import sys
import warnings

import numpy as np
import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

CUDA = torch.device("cuda:0")
torch._C._ensureCUDADeviceGuardSet()
# May mix devices.
MIXED = {
    "aten::_to_copy",
    "aten::copy_",
    "aten::copy",
    "aten::set_",
    "aten::is_same_size",
    "aten::is_set_to",
}
# Index tensors of these may lie on the CPU.
INDEXED = {
    "aten::index",
    "aten::index_put",
    "aten::index_put_",
    "aten::_index_put_impl_",
    "aten::_unsafe_index",
}
# Not even a scalar may lie on another device: kernels that do not go through TensorIterator.
STRICT = {
    f"aten::{name}{end}"
    for end in ("", "_")
    for name in (
        "cat",
        "stack",
        "mm",
        "bmm",
        "addmm",
        "baddbmm",
        "mv",
        "dot",
        "addmv",
        "index_select",
        "gather",
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "index_add",
        "index_copy",
        "embedding",
        "convolution",
        "native_layer_norm",
        "native_batch_norm",
        "native_group_norm",
        "searchsorted",
        "bucketize",
        "repeat_interleave",
        "grid_sampler_2d",
        "nll_loss_forward",
        "bincount",
        "histc",
        "cdist",
        "_cdist_forward",
        "linalg_solve_ex",
        "take",
        "_fused_adam",
        "_fused_adamw",
        "_fused_sgd",
    )
}


class Address:
    """Address on the GPU: a key and a number for alignment, which no C function accepts."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other) -> bool:
        return (isinstance(other, Address) and self.value == other.value) or self.value == other

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __mod__(self, other):
        return self.value % other

    def __add__(self, other):
        return Address(self.value + other)

    @property
    def _as_parameter_(self):
        raise RuntimeError(
            "a C function was given the address of a CUDA tensor: SIGSEGV on a real GPU"
        )


class Storage:
    """Storage of a pretended tensor."""

    device, is_cuda = CUDA, True

    def __init__(self, real) -> None:
        self.real = real

    def data_ptr(self) -> Address:
        return Address(self.real.data_ptr())

    def __getattr__(self, name):
        return getattr(self.real, name)


_TorchGenerator = torch.Generator
GENERATORS: dict[int, torch.Generator] = {}  # on the GPU, by the address that the dispatcher keeps


class _Made(type(torch.Generator)):
    def __call__(cls, device="cpu"):
        on_cuda = torch.device(device).type == "cuda"
        if not on_cuda:
            return _TorchGenerator(device)
        made = type.__call__(Generator)
        GENERATORS[made._cdata] = made
        return made

    def __instancecheck__(cls, value):
        return type.__instancecheck__(cls, value) or (
            cls is _Any and type(value) is _TorchGenerator
        )


class Generator(torch.Generator):
    """Generator on the GPU."""

    device = CUDA


class _Any(Generator, metaclass=_Made):
    """Stands for torch.Generator."""


def _tensors_of_lists(index):
    """Return an index whose lists and arrays are tensors: on meta, C++ gives them no values."""
    if isinstance(index, tuple):
        return tuple(map(_tensors_of_lists, index))
    is_values = isinstance(index, list) or (isinstance(index, np.ndarray) and index.ndim > 0)
    return torch.tensor(index, device=CUDA) if is_values else index


class Pretended(torch.Tensor):
    """Tensor that reports cuda:0 and holds its numbers in a CPU tensor."""

    device = CUDA

    @staticmethod
    def __new__(cls, real: torch.Tensor, requires_grad: bool = False):
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            real.shape,
            strides=real.stride(),
            storage_offset=real.storage_offset(),
            dtype=real.dtype,
            layout=real.layout,
            device="meta",
            requires_grad=requires_grad,
        )
        made.real_values = real
        return made

    def __repr__(self, *, tensor_contents=None) -> str:
        return f"Pretended({self.real_values!r})"

    def __deepcopy__(self, memo):
        made = Pretended(self.real_values.clone(), self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            made = torch.nn.Parameter(made, self.requires_grad)
        return memo.setdefault(id(self), made)

    def __reduce_ex__(self, protocol):
        return _restored, (
            self.real_values.detach(),
            self.requires_grad,
            isinstance(self, torch.nn.Parameter),
        )

    def data_ptr(self) -> Address:
        return Address(self.real_values.data_ptr())

    def untyped_storage(self) -> Storage:
        return Storage(self.real_values.untyped_storage())

    def numpy(self, *args, **kwargs):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")

    __array__ = numpy

    def new_tensor(self, data, *, dtype=None, device=CUDA, requires_grad=False):
        made = torch.tensor(data, dtype=dtype or self.dtype, device=device)
        return made.requires_grad_(requires_grad)

    def __getitem__(self, index):
        return super().__getitem__(_tensors_of_lists(index))

    def __setitem__(self, index, value):
        super().__setitem__(_tensors_of_lists(index), value)

    def tolist(self):
        return self.real_values.tolist()

    is_cuda, is_cpu, is_meta = True, False, False

    def get_device(self) -> int:
        return 0

    def pin_memory(self, *args):
        raise RuntimeError(
            f"cannot pin 'torch.cuda.{self.dtype}' only dense CPU tensors can be pinned"
        )

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


def _restored(real, requires_grad, parameter):
    made = Pretended(real, requires_grad and not parameter)
    return torch.nn.Parameter(made, requires_grad) if parameter else made


def _refuse(name: str, tensors) -> None:
    raise RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"cuda:0 and cpu! ({name}, "
        f"shapes {[(each.device.type, *each.shape) for each in tensors]})"
    )


def _check(name: str, args, kwargs, tensors, ours) -> None:
    """Refuse what CUDA refuses in a call that has at least one tensor on the GPU."""
    if name in MIXED or name.startswith("prim"):
        return
    others = [
        each for each in tensors if not isinstance(each, Pretended) and each.device.type != "meta"
    ]
    if name in INDEXED:
        if not isinstance(args[0], Pretended):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
                if any(isinstance(each, Pretended) for each in args[1])
                else f"cpu tensor, cuda values ({name})"
            )
        others = [each for each in others if not any(each is index for index in args[1])]
    written = (
        name.endswith("_") and not name.endswith("__") and any(each is args[0] for each in others)
    )
    if written or (others and name in STRICT) or any(each.dim() for each in others):
        _refuse(name, tensors)


def _run(function, args, kwargs):
    flat, _ = pytree.tree_flatten((args, kwargs))
    tensors = [each for each in flat if isinstance(each, torch.Tensor)]
    ours = [each for each in tensors if isinstance(each, Pretended)]
    name = function._schema.name
    if name == "prim::device":
        return CUDA
    wanted = kwargs.get("device")
    wanted = torch.device(wanted) if isinstance(wanted, str) else wanted
    on_cuda = bool(ours) if wanted is None else wanted.type in ("cuda", "meta")  # C++ sees meta
    if ours:
        _check(name, args, kwargs, tensors, ours)
    if (generator := kwargs.get("generator")) is not None and on_cuda != (
        generator._cdata in GENERATORS
    ):
        raise RuntimeError(
            f"Expected a '{'cuda' if on_cuda else 'cpu'}' device type for generator ({name})"
        )
    if name.startswith("c10d::") and not all(each.is_contiguous() for each in ours):
        raise ValueError("Tensors must be contiguous")  # as NCCL
    namespace = name.partition("::")[0]
    if ours and namespace not in ("aten", "prims", "prim", "profiler", "c10d", "_c10d_functional"):
        definition = torch._library.custom_ops.OPDEFS.get(name)
        if definition is not None:  # the implementation itself must cope with tensors of a GPU
            return definition._init_fn(*args, **kwargs)
    if name == "aten::is_pinned":
        return False
    if name in ("aten::_pin_memory", "aten::pin_memory"):
        return args[0]

    def unwrap(each):
        if isinstance(each, Pretended):
            return each.real_values
        return (
            torch.device("cpu")
            if isinstance(each, torch.device) and each.type in ("cuda", "meta")
            else each
        )

    plain_args, plain_kwargs = pytree.tree_map(unwrap, (args, kwargs))
    plain_kwargs.pop("pin_memory", None)
    with contextlib.nullcontext() if _MODE is None else _disable_current_modes():
        out = function(*plain_args, **plain_kwargs)
    if not function._schema.returns:
        return None
    if name.endswith("_") and not name.endswith("__") and namespace == "aten":
        return args[0]
    if name == "aten::_to_copy" and wanted is not None:
        if any(out is each.real_values for each in ours) or (on_cuda and out is plain_args[0]):
            out = out.clone()
    aliases = {id(each.real_values): each for each in ours}

    def wrap(each):
        if type(each) is torch.Tensor or type(each) is torch.nn.Parameter:
            return aliases.get(id(each)) if id(each) in aliases else Pretended(each)
        return each

    return pytree.tree_map(wrap, out) if on_cuda else out


class Mode(TorchDispatchMode):
    """Sends creations on device cuda, and copies to it, to pretended tensors."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


_MODE: Mode | None = None


class _Properties:
    name, total_memory, multi_processor_count, major, minor = "Pretended", 80 << 30, 132, 9, 0
    L2_cache_size, shared_memory_per_block, max_threads_per_multi_processor = (
        50 << 20,
        48 << 10,
        2048,
    )


class _Quiet:
    """Stream or event that does nothing."""

    cuda_stream = stream_id = 0

    def __init__(self, *args, **kwargs) -> None: ...
    def __enter__(self):
        return self

    def __exit__(self, *args) -> None: ...
    def __getattr__(self, name):
        return lambda *args, **kwargs: (
            0.0 if name == "elapsed_time" else True if name == "query" else None
        )


def _placed(make):
    @functools.wraps(make)
    def made(*args, device=None, **kwargs):
        place = None if device is None else torch.device(device)
        if place is None or place.type != "cuda":
            return make(*args, device=device, **kwargs)
        wants = kwargs.pop("requires_grad", False)
        return make(*args, **kwargs).to(CUDA).requires_grad_(wants)

    return made


_to = torch.Tensor.to


def _moved(self, *args, **kwargs):
    """Stand for Tensor.to: gives cuda its index, and returns a tensor that is there already."""

    def indexed(each):
        is_cuda = isinstance(each, str | torch.device) and torch.device(each).type == "cuda"
        return CUDA if is_cuda else each

    args = tuple(map(indexed, args))
    kwargs = {name: indexed(each) for name, each in kwargs.items()}
    if (
        isinstance(self, Pretended)
        and CUDA in (*args[:1], kwargs.get("device"))
        and not kwargs.get("copy")
    ):
        args = args[1:] if args and args[0] == CUDA else args
        kwargs.pop("device", None)
        args = args[1:] if args and args[0] is None else args
        kwargs = {name: each for name, each in kwargs.items() if each is not None}
        return (
            _to(self, *args, **kwargs)
            if any(isinstance(e, torch.dtype) for e in (*args, *kwargs.values()))
            else self
        )
    return _to(self, *args, **kwargs)


def _grouped(make):
    """Return init_process_group or new_group with gloo where NCCL was asked for."""

    @functools.wraps(make)
    def made(*args, **kwargs):
        args = tuple(
            each.replace("nccl", "gloo") if isinstance(each, str) else each for each in args
        )
        if isinstance(kwargs.get("backend"), str):
            kwargs["backend"] = kwargs["backend"].replace("nccl", "gloo")
        kwargs.pop("device_id", None)
        return make(*args, **kwargs)

    return made


def _compiled(model=None, **options):
    warnings.warn("torch.compile runs eagerly on the pretended device", stacklevel=2)
    return (lambda each: each) if model is None else model


def _is_eager(*arguments):  # stands for scitoolkit's: neither the mode nor the tensors are a tracer
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    if torch._C._len_torch_dispatch_stack() > 1:
        return False
    return all(
        type(each) in _PLAIN  # noqa: F821 - runs with the globals of scitoolkit's function
        or type(each).__name__ == "Pretended"
        or not isinstance(each, torch.Tensor)
        for each in arguments
    )


def start() -> None:
    """Make torch report one CUDA device for the rest of the process."""
    global _MODE
    import torch._dynamo
    import torch.distributed.tensor

    torch.Generator = _Any
    cuda = torch.cuda
    constants = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "is_initialized": True,
        "init": None,
        "_lazy_init": None,
        "synchronize": None,
        "set_device": None,
        "empty_cache": None,
        "manual_seed": None,
        "manual_seed_all": None,
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "reset_peak_memory_stats": None,
        "memory_reserved": 0,
        "get_rng_state_all": [],
        "set_rng_state_all": None,
        "is_bf16_supported": True,
        "get_device_name": "Pretended",
        "get_device_capability": (9, 0),
        "mem_get_info": (70 << 30, 80 << 30),
        "get_device_properties": _Properties(),
        "_is_in_bad_fork": False,
        "current_stream": _Quiet(),
        "default_stream": _Quiet(),
        "is_current_stream_capturing": False,
        "memory_stats": {},
        "ipc_collect": None,
    }
    for name, value in constants.items():
        setattr(cuda, name, lambda *a, _value=value, **k: _value)
    for name in ("tensor", "as_tensor", "asarray"):  # these copy below the dispatcher of modes
        setattr(torch, name, _placed(getattr(torch, name)))
    sys.modules["triton"] = None  # its kernels need a real GPU: the references run in their place
    cuda.device = cuda.device_of = cuda.stream = lambda *a, **k: contextlib.nullcontext()
    cuda.Stream = cuda.Event = _Quiet
    cuda._exchange_device = cuda._maybe_exchange_device = lambda *a, **k: 0
    cuda.get_rng_state = lambda *a, **k: torch.zeros(16, dtype=torch.uint8)
    cuda.set_rng_state = lambda *a, **k: None
    cuda.amp.common.amp_definitely_not_available = torch.amp.autocast_mode.is_autocast_available = (
        lambda *a: False
    )
    torch.amp.autocast_mode.is_autocast_available = lambda *a: True
    torch.compile = _compiled
    torch.Tensor.to = _moved
    torch.Tensor.cuda = lambda self, *args, **kwargs: self.to(CUDA)
    torch._C._get_accelerator = lambda *a: torch.device("cuda")
    torch.accelerator.is_available = lambda *a: True
    torch.accelerator.current_accelerator = lambda *a, **k: torch.device("cuda")
    torch.accelerator.current_device_index = lambda *a: 0
    torch.accelerator.current_stream = cuda.current_stream
    torch.accelerator.set_stream = torch.accelerator.synchronize = lambda *a, **k: None
    if dist.is_available():
        dist.init_process_group, dist.new_group = (
            _grouped(dist.init_process_group),
            _grouped(dist.new_group),
        )
        dist.is_nccl_available = lambda: True
    _MODE = Mode()
    _MODE.__enter__()
    with contextlib.suppress(ImportError):
        from scitoolkit.ops.codegen import registration

        registration.is_eager.__code__ = _is_eager.__code__


if __name__ == "__main__":
    from tests.helpers import pretend_cuda  # so that pickles find its functions

    pretend_cuda.start()
    is_module = sys.argv[1] == "-m"
    sys.argv = sys.argv[2 if is_module else 1 :]
    if is_module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
