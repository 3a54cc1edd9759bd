"""Generated kernels: source, compiler cache, registered operators, backends and dispatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.ops.codegen.backends import GeneratedC as GeneratedC
    from scitoolkit.ops.codegen.backends import Implementation as Implementation
    from scitoolkit.ops.codegen.backends import KernelBackend as KernelBackend
    from scitoolkit.ops.codegen.backends import Reference as Reference
    from scitoolkit.ops.codegen.backends import Triton as Triton
    from scitoolkit.ops.codegen.buffers import empty as empty
    from scitoolkit.ops.codegen.cache import cache_directory as cache_directory
    from scitoolkit.ops.codegen.compile import find_compiler as find_compiler
    from scitoolkit.ops.codegen.compile import load_generated as load_generated
    from scitoolkit.ops.codegen.compile import load_library as load_library
    from scitoolkit.ops.codegen.derived_index import DerivedIndex as DerivedIndex
    from scitoolkit.ops.codegen.dispatch import Operation as Operation
    from scitoolkit.ops.codegen.dispatch import check_tensor as check_tensor
    from scitoolkit.ops.codegen.dispatch import warn_once as warn_once
    from scitoolkit.ops.codegen.dtypes import REAL as REAL
    from scitoolkit.ops.codegen.dtypes import TRITON_REAL as TRITON_REAL
    from scitoolkit.ops.codegen.gpu import check_triton as check_triton
    from scitoolkit.ops.codegen.gpu import load_triton as load_triton
    from scitoolkit.ops.codegen.gpu import on_device as on_device
    from scitoolkit.ops.codegen.gpu import triton_version as triton_version
    from scitoolkit.ops.codegen.kinds import kernel_backends as kernel_backends
    from scitoolkit.ops.codegen.kinds import operations as operations
    from scitoolkit.ops.codegen.registration import address as address
    from scitoolkit.ops.codegen.registration import call as call
    from scitoolkit.ops.codegen.registration import differentiable as differentiable
    from scitoolkit.ops.codegen.registration import eager as eager
    from scitoolkit.ops.codegen.registration import functional as functional
    from scitoolkit.ops.codegen.registration import is_eager as is_eager
    from scitoolkit.ops.codegen.registration import is_recorded as is_recorded
    from scitoolkit.ops.codegen.registration import is_traced_transform as is_traced_transform
    from scitoolkit.ops.codegen.registration import is_transformed as is_transformed
    from scitoolkit.ops.codegen.registration import operator as operator
    from scitoolkit.ops.codegen.registration import refusing as refusing

_HOMES = {
    "DerivedIndex": "derived_index",
    "GeneratedC": "backends",
    "Implementation": "backends",
    "KernelBackend": "backends",
    "Operation": "dispatch",
    "REAL": "dtypes",
    "Reference": "backends",
    "TRITON_REAL": "dtypes",
    "Triton": "backends",
    "address": "registration",
    "cache_directory": "cache",
    "call": "registration",
    "check_tensor": "dispatch",
    "check_triton": "gpu",
    "differentiable": "registration",
    "eager": "registration",
    "empty": "buffers",
    "find_compiler": "compile",
    "functional": "registration",
    "is_eager": "registration",
    "is_recorded": "registration",
    "is_traced_transform": "registration",
    "is_transformed": "registration",
    "kernel_backends": "kinds",
    "load_generated": "compile",
    "load_library": "compile",
    "load_triton": "gpu",
    "on_device": "gpu",
    "operations": "kinds",
    "operator": "registration",
    "refusing": "registration",
    "triton_version": "gpu",
    "warn_once": "dispatch",
}
__all__ = [*_HOMES]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())
