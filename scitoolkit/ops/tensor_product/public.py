"""Public functions of the tensor product and its convolution on graphs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.codegen import GeneratedC, Operation, Triton, check_tensor
from scitoolkit.ops.tensor_product import operators, reference, triton_operators
from scitoolkit.ops.tensor_product.autograd import convolution
from scitoolkit.ops.tensor_product.edges import Edges
from scitoolkit.ops.tensor_product.spec import IrrepSlice, TensorProductSpec

LAYOUTS = ("ir_mul", "mul_ir")


def _reference(
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    edges: Edges,
    spec: TensorProductSpec,
    precise: bool = False,
    deterministic: bool = True,
) -> Tensor:
    nodes = (edges.sender, edges.receiver, edges.num_nodes)
    # The cast stands inside, so that gradients come back in the dtype of the inputs.
    tensors = (x, y, weight)
    if precise:
        tensors = (x.double(), y.double(), weight.double())
    return reference.tensor_product_convolution(spec, *tensors, *nodes).to(x.dtype)


OPERATION = Operation(
    "tensor_product",
    "equivariant tensor product of node features and edge attributes, summed at the receivers",
    _reference,
    examples="scitoolkit.ops.tensor_product.examples:examples",
)


@GeneratedC.serve(
    OPERATION.name, prepare=operators.prepare, transforms=True, source=operators.source
)
def _on_cpu(
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    edges: Edges,
    spec: TensorProductSpec,
    precise: bool,
    deterministic: bool,
) -> Tensor:
    return convolution(
        x.contiguous(), y.contiguous(), weight.contiguous(), edges, spec.text, precise
    )


@Triton.serve(OPERATION.name, prepare=triton_operators.prepare)
def _on_gpu(
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    edges: Edges,
    spec: TensorProductSpec,
    precise: bool,
    deterministic: bool,
) -> Tensor:
    arguments = (x.contiguous(), y.contiguous(), weight.contiguous())
    return triton_operators.convolution(*arguments, edges, spec.text, precise, not deterministic)


def _check(spec: TensorProductSpec, x: Tensor, y: Tensor, weight: Tensor, edges: Edges) -> None:
    num_edges = edges.num_edges
    wanted = (spec.weight_numel,) if spec.shared_weights else (num_edges, spec.weight_numel)
    check_tensor("x", x, (edges.num_nodes, spec.dim_in1), x)
    check_tensor("y", y, (num_edges, spec.dim_in2), x)
    check_tensor("weight", weight, wanted, x)
    if edges.sender.device != x.device:
        raise DataError(f"expected edges on {x.device}, got them on {edges.sender.device}")


def change_layout(rows: Tensor, segments: tuple[IrrepSlice, ...], layout: str) -> Tensor:
    """Convert rows of features from one layout to the other.

    Args:
        rows: shape (R, dim).
        segments: the irreps of a row: `in1`, `in2` or `out` of a spec.
        layout: the layout of the result, ir_mul or mul_ir.

    Returns:
        Shape (R, dim).

    Raises:
        ConfigError: an unknown layout.
        DataError: rows of another shape.

    Example:
        >>> spec = TensorProductSpec.channelwise("2x1e", "0e", "1e")
        >>> change_layout(torch.arange(6.0)[None], spec.in1, "ir_mul").tolist()
        [[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]]
    """
    if layout not in LAYOUTS:
        raise ConfigError(f"layout={layout!r}", allowed=", ".join(LAYOUTS))
    width = sum(segment.mul * segment.components for segment in segments)
    if rows.ndim != 2 or rows.shape[1] != width:
        raise DataError(f"expected rows of shape (R, {width}), got {tuple(rows.shape)}")
    parts = []
    for irrep in segments:
        size = irrep.mul * irrep.components
        shape = (
            (irrep.mul, irrep.components) if layout == "ir_mul" else (irrep.components, irrep.mul)
        )
        part = rows[:, irrep.offset : irrep.offset + size].unflatten(1, shape)
        parts.append(part.transpose(1, 2).flatten(1))
    return torch.cat(parts, dim=1)


def tensor_product_convolution(
    spec: TensorProductSpec,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    edges: Edges,
    *,
    backend: str = "auto",
    accumulate: torch.dtype | None = None,
    deterministic: bool = True,
) -> Tensor:
    """Fused graph convolution: gather senders, tensor product with edge attributes, scatter.

    Twice differentiable in x, y and weight. Results are bit-identical for any number of threads.
    Messages are never stored.

    Args:
        spec: the tensor product.
        x: node features, shape (N, dim_in1), float32 or float64, ir_mul layout.
        y: edge attributes, shape (E, dim_in2), ir_mul layout, which equals mul_ir if every
            multiplicity is 1.
        weight: shape (E, weight_numel), or (weight_numel,) if shared, in e3nn's order.
        edges: the graph, from `Edges.build`.
        backend: auto (the kernel for the tensors' device if it can run, else the reference, with
            one warning), cpu, triton, reference, or the name of an installed kernel backend.
        accumulate: torch.float64 computes and sums in float64 for tensors in float32; by default
            the dtype of x.
        deterministic: False allows atomics in the Triton kernels, in all derivatives. Inputs are
            then read once for all gradients, the load of nodes with many edges is balanced, and the
            order of edges by sender is not needed, but the last bits differ from call to call. No
            effect on a CPU.

    Returns:
        Node features, shape (N, dim_out), ir_mul layout; zero for nodes without edges.

    Raises:
        DataError: a shape, dtype or device that does not match.
        ConfigError: an unknown backend, or another dtype to accumulate in.
        BackendError: the named backend cannot run.

    Example:
        >>> spec = TensorProductSpec.channelwise("8x0e + 8x1o", "0e + 1o", "0e + 1o")
        >>> edges = Edges.build(torch.tensor([0, 1]), torch.tensor([1, 0]), num_nodes=3)
        >>> x, y, w = torch.ones(3, 32), torch.ones(2, 4), torch.ones(2, spec.weight_numel)
        >>> tensor_product_convolution(spec, x, y, w, edges).shape
        torch.Size([3, 64])
    """
    _check(spec, x, y, weight, edges)
    if accumulate not in (None, x.dtype, torch.float64):
        raise ConfigError(f"accumulate={accumulate}", allowed=f"{x.dtype}, torch.float64")
    precise = accumulate == torch.float64
    run = OPERATION.choose(spec.text, x, backend, precise, deterministic)
    return run(x, y, weight, edges, spec, precise, deterministic)


class TensorProduct(nn.Module):
    """Tensor product of rows with the arguments and the layout of `e3nn.o3.TensorProduct`.

    Args:
        irreps_in1: irreps of the first factor, see `Irreps`.
        irreps_in2: irreps of the second factor.
        irreps_out: irreps of the product.
        instructions: see `TensorProductSpec.build`.
        shared_weights: one weight vector for all rows; the default.
        internal_weights: store the weights, which must be shared, as a parameter; by default if
            they are shared.
        irrep_normalization: component, norm or none.
        path_normalization: element, path or none.
        layout: mul_ir (that of e3nn) or ir_mul, of x, y and the output.
        backend: see `tensor_product_convolution`.

    Raises:
        ConfigError: an unknown layout, an invalid instruction, or internal weights per row.

    Example:
        >>> product = TensorProduct("4x1o", "1o", "4x0e", [(0, 0, 0, "uvu", True)])
        >>> product(torch.ones(5, 12), torch.ones(5, 3)).shape
        torch.Size([5, 4])
    """

    def __init__(
        self,
        irreps_in1: object,
        irreps_in2: object,
        irreps_out: object,
        instructions: list[tuple],
        *,
        shared_weights: bool | None = None,
        internal_weights: bool | None = None,
        irrep_normalization: str = "component",
        path_normalization: str = "element",
        layout: str = "mul_ir",
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if layout not in LAYOUTS:
            raise ConfigError(f"layout={layout!r}", allowed=", ".join(LAYOUTS))
        shared = shared_weights is not False
        internal = shared if internal_weights is None else internal_weights
        if internal and not shared:
            raise ConfigError(
                "internal_weights=True with shared_weights=False", fix="internal_weights=False"
            )
        self.spec: TensorProductSpec = TensorProductSpec.build(
            irreps_in1,
            irreps_in2,
            irreps_out,
            instructions,
            shared_weights=shared,
            irrep_normalization=irrep_normalization,
            path_normalization=path_normalization,
        )
        self.layout = layout
        self.backend: str = backend
        self.weight_numel: int = self.spec.weight_numel
        weight = torch.randn(self.weight_numel) if internal else None
        self.register_parameter("weight", nn.Parameter(weight) if internal else None)  # type: ignore[arg-type]

    def forward(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the tensor product of each row.

        Args:
            x: shape (..., dim_in1), float32 or float64.
            y: shape (..., dim_in2).
            weight: shape (..., weight_numel), or (weight_numel,) if shared; by default the
                internal weights.

        Returns:
            Shape (..., dim_out).

        Raises:
            DataError: a shape or dtype that does not match, or no weights.
        """
        weight = self.weight if weight is None else weight  # type: ignore[assignment]
        if weight is None:
            raise DataError("weight is missing: the module has no weights", fix="pass weight=")
        spec, lead = self.spec, x.shape[:-1]
        x, y = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
        weight = weight if spec.shared_weights else weight.reshape(-1, weight.shape[-1])
        # A product of rows is a convolution on the graph in which each node has itself as
        # neighbour.
        edges = Edges.rows(x.shape[0], x.device)
        if self.layout == "mul_ir":
            _check(spec, x, y, weight, edges)
            x, y = change_layout(x, spec.in1, "ir_mul"), change_layout(y, spec.in2, "ir_mul")
        out = tensor_product_convolution(spec, x, y, weight, edges, backend=self.backend)
        out = change_layout(out, spec.out, "mul_ir") if self.layout == "mul_ir" else out
        return out.reshape(*lead, spec.dim_out)
