"""Error-bounded lossy compression with learned enhancers; the bound holds at every point."""

from typing import TYPE_CHECKING

from scitoolkit.compression.bounds import Bound as Bound
from scitoolkit.compression.bounds import max_error as max_error
from scitoolkit.compression.bounds import psnr as psnr
from scitoolkit.compression.choose import Options as Options
from scitoolkit.compression.codecs import ErrorBoundedCodec as ErrorBoundedCodec
from scitoolkit.compression.compress import compress as compress
from scitoolkit.compression.decoding import decompress as decompress
from scitoolkit.compression.decoding import inspect_stream as inspect_stream
from scitoolkit.compression.enhancers import Enhancer as Enhancer
from scitoolkit.compression.missing import MissingValues as MissingValues
from scitoolkit.compression.progressive import Preview as Preview
from scitoolkit.compression.progressive import preview as preview
from scitoolkit.compression.regions import decompress_region as decompress_region
from scitoolkit.compression.slabs import compress_slabs as compress_slabs
from scitoolkit.compression.slabs import iterate_slabs as iterate_slabs
from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.compression.quantities import compress_quantities as compress_quantities

__all__ = [
    "Bound",
    "Enhancer",
    "ErrorBoundedCodec",
    "MissingValues",
    "Options",
    "Preview",
    "compress",
    "compress_quantities",
    "compress_slabs",
    "decompress",
    "decompress_region",
    "inspect_stream",
    "iterate_slabs",
    "max_error",
    "preview",
    "psnr",
]
__getattr__ = lazy_names(__name__, {"compress_quantities": "quantities"})  # its sympy takes .3 s
__dir__ = public_dir(globals())
