"""Tracing of modules to ATen operators and lowering of these; constants are folded."""

from __future__ import annotations

import contextlib
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.operator_schemas import get_signature_for_torch_op
from torch.utils._pytree import tree_unflatten

from scitoolkit.core.errors import ConfigError
from scitoolkit.deploy.builder import Builder
from scitoolkit.deploy.constant_values import ConstantValues
from scitoolkit.deploy.derivatives import DIFFERENTIABLE, Derivative
from scitoolkit.deploy.kinds import Lowering, lowerings
from scitoolkit.deploy.lowering.complex_numbers import Complex, is_complex, lower_complex
from scitoolkit.deploy.taken_apart import decompositions
from scitoolkit.deploy.values import C_TYPES, Expr, View

_KEPT = (
    *("upsample_", "avg_pool", "softplus", "elu", "silu", "gelu", "leaky_relu", "hardtanh"),
    "native_",
)
_EMPTY = ("full_like", "zeros_like", "ones_like", "new_zeros", "new_full", "new_ones")
_IGNORED = (
    "aten._assert_tensor_metadata.default",
    "aten.sym_size.int",
    "aten._assert_scalar.default",
    "aten._assert_async.default",
    "aten._assert_async.msg",
    "aten._linalg_check_errors.default",
)
# By operator, what has a shape that depends on no value.
_OF_ONE_SHAPE = {
    "index": "torch.where instead of a selection by truth values",
    "bincount": "functional.one_hot(x, n).sum(-2) for counts of the integers below n",
}


def program(
    module: nn.Module,
    examples: Sequence[Tensor],
    others: Mapping[Any, Callable[..., Any]] = MappingProxyType({}),
) -> torch.export.ExportedProgram:
    """Trace a module in its present mode for inputs of the shapes of examples.

    Args:
        module: the module.
        examples: tensors.
        others: further operators to take apart.

    Raises:
        ConfigError: torch cannot trace the module, for example because it branches on values.
    """
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if isinstance(module, Derivative):
                # Changes in place have derivatives by strides, the graph without them has others.
                own = program(module.module, examples[: module.arrays], DIFFERENTIABLE)
                module = module.graph(own.module(check_guards=False), examples)
            return _exported(module, examples, others)
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"{type(module).__name__} cannot be traced ({type(error).__name__}: {text})",
            where="export to C",
        ) from error


def _exported(
    module: nn.Module, examples: Sequence[Tensor], others: Mapping[Any, Callable[..., Any]]
) -> torch.export.ExportedProgram:
    """Trace a module; again with the values of its constants if shapes depend on values."""

    def traced(mode: Any) -> torch.export.ExportedProgram:
        with mode:
            program = torch.export.export(module, tuple(examples), strict=False)
        return program.run_decompositions(decompositions(_KEPT) | dict(others))

    program, error = None, None
    try:
        program = traced(contextlib.nullcontext())
        if not any(map(_depends_on_values, program.graph.nodes)):
            return program
    except Exception as first:
        error = first
    values = ConstantValues(module)
    hook = module.register_forward_pre_hook(values.begin)
    try:
        return traced(values)
    except Exception:
        if program is None:
            assert error is not None
            raise error from None
        return program
    finally:
        hook.remove()


def _depends_on_values(node: Any) -> bool:
    value = node.meta.get("val")
    return any(
        not isinstance(n, int)
        for tensor in (value if isinstance(value, list | tuple) else [value])
        for n in getattr(tensor, "shape", ())
    )


def lower(
    exported: torch.export.ExportedProgram,
    inputs: Sequence[View],
    outputs: Sequence[View],
    builder: Builder,
    order: Callable[[Any], Sequence[Any]],
) -> None:
    """Lower a traced program.

    Args:
        exported: from `program`.
        inputs: views of the caller's input arrays, in order.
        outputs: views of the output arrays.
        builder: the C function.
        order: returns the results of the module in the order of `outputs`.

    Raises:
        ConfigError: an operator without lowering, or a module with a state.
    """
    by_target = _lowerings()
    require_pure(exported)
    signature = exported.graph_signature
    constants = constants_of(exported)
    values: dict[Any, Any] = {}
    arrays = iter(inputs)
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            if node.name in constants:
                values[node] = constants[node.name]
            elif node.name in signature.user_inputs:
                values[node] = next(arrays)
            else:
                values[node] = None  # a token, which orders side effects
        elif node.op == "get_attr":
            values[node] = getattr(exported.graph_module, node.target)
        elif node.op == "call_function":
            values[node] = _result(node, values, builder, by_target)
        elif node.op == "output":
            by_name = {a.name: _argument(a, values) for a in node.args[0] if hasattr(a, "name")}
            own = [by_name.get(n, n) for n in signature.user_outputs]
    out_spec = exported.call_spec.out_spec
    assert out_spec is not None
    results = order(tree_unflatten(own, out_spec))
    for result, into in zip(results, outputs, strict=True):
        if isinstance(result, Complex):
            raise ConfigError(
                "an output of complex numbers", where="export to C", fix="torch.view_as_real(y)"
            )
        builder.store(builder.value(result), into)


def require_pure(exported: torch.export.ExportedProgram) -> None:
    """Raise ConfigError if a traced module changes its state or draws random numbers."""
    changed = exported.graph_signature.buffers_to_mutate.values()
    if changed:
        raise ConfigError(
            f"the module changes {', '.join(changed)} when called",
            where="export to C",
            fix="pass the state as an input and return it as an output",
        )
    for node in exported.graph.nodes:
        tags = node.target.tags if isinstance(node.target, torch._ops.OpOverload) else ()
        if torch.Tag.nondeterministic_seeded in tags:
            raise ConfigError(
                f"operator {node.target}, from {_origin(node)}, draws random numbers",
                where="export to C",
                fix="pass them as an input",
            )


def _result(node: Any, values: dict, builder: Builder, by_target: dict[str, type[Lowering]]) -> Any:
    target = str(node.target)
    if node.target is operator.getitem:
        return _member(node, values)
    if _is_ignored(node):
        return (None, None) if target == "with_effects" else None
    if not isinstance(node.target, torch._ops.OpOverload):
        raise ConfigError(
            f"operator {target}, from {_origin(node)}",
            where="export to C",
            allowed="operators of tensors, without branches or loops over values",
            fix="torch.where chooses for each sample; a branch chooses for all samples of a call",
        )
    builder.operators.add(target.removeprefix("aten.").partition(".")[0])
    like = node.meta.get("val")
    args = [_argument(a, values) for a in node.args]
    if target.split(".")[1] in _EMPTY or not _mentions_values(args):
        named = {k: _argument(v, values) for k, v in node.kwargs.items()}
        if target.split(".")[1] in _EMPTY:
            fill = args[-1] if "full" in target else (1 if "ones" in target else 0)
            return torch.full(tuple(like.shape), fill, dtype=like.dtype)
        return node.target(*args, **named)
    _require_result(target, like)
    arguments = _all_arguments(node, args, values)
    if is_complex(target, args, like):

        def run(other: str, own: Sequence[Any], fake: Any) -> Any:
            if not _mentions_values(own):  # constants are folded
                return _folded(other, own)
            return _lowered(node, other, own, fake, builder, by_target)

        made = lower_complex(run, target, arguments, like)
        if not isinstance(made, Complex):
            return made
        return Complex(*(builder.view(part) for part in (made.real, made.imag)))
    result = _lowered(node, target, arguments, like, builder, by_target)
    several = isinstance(like, tuple | list)
    if several or not isinstance(result, Expr) or len(node.users) < 2:
        return result
    return builder.store(result)


def _is_ignored(node: Any) -> bool:
    """Return whether a node only checks or describes, perhaps as one that is kept in order."""
    target = str(node.target)
    return str(node.args[1] if target == "with_effects" else target) in _IGNORED


def _member(node: Any, values: dict) -> Any:
    """Return one of several results; an operator in C may have fewer of them than in torch."""
    source, place = node.args
    member = values[source][place]
    # The check that `inv` and `solve` make of their own error number computes nothing.
    users = [user for user in node.users if not _is_ignored(user)]
    if member is None and users and str(source.target) != "with_effects":
        raise ConfigError(
            f"result {place + 1} of operator {source.target}, from {_origin(source)}",
            where="export to C",
            allowed=", ".join(
                str(k + 1) for k, other in enumerate(values[source]) if other is not None
            ),
            fix="a module that does not use this result",
        )
    return member


def _folded(target: str, args: Sequence[Any]) -> Any:
    """Return the result of an ATen operator on constants."""
    _, name, overload = target.split(".")
    function = getattr(getattr(torch.ops.aten, name), overload)
    pairs = list(zip(function._schema.arguments, args, strict=False))
    return function(
        *(value for argument, value in pairs if not argument.kwarg_only),
        **{argument.name: value for argument, value in pairs if argument.kwarg_only},
    )


def _lowered(
    node: Any,
    target: str,
    arguments: Sequence[Any],
    like: Any,
    builder: Builder,
    by_target: dict[str, type[Lowering]],
) -> Any:
    member = by_target.get(target)
    if member is None:
        raise ConfigError(
            f"operator {target}, from {_origin(node)}",
            where="export to C",
            allowed=f"{len(by_target)} operators, `scitoolkit ls lowering`",
            fix="write it with other operators, or add a lowering for it",
        )
    try:
        return member.lower(builder, target, arguments, like)
    except ConfigError:
        raise
    except Exception as error:  # of a plug-in too; none may end an export without a name
        raise ConfigError(
            f"operator {target} in a form without lowering ({type(error).__name__}: {error})",
            where=f"export to C, {_origin(node)}",
            fix="write it with other operators",
        ) from error


def _require_result(target: str, like: Any) -> None:
    """Raise ConfigError for a result of a dtype that C has no type for, or of unknown shape."""
    for tensor in like if isinstance(like, tuple | list) else [like]:
        if any(not isinstance(n, int) for n in getattr(tensor, "shape", ())):
            raise ConfigError(
                f"the shape of the result of {target} depends on values",
                where="export to C",
                fix=_OF_ONE_SHAPE.get(target.split(".")[1], _OF_ONE_SHAPE["index"]),
            )
        dtype = str(getattr(tensor, "dtype", "torch.float32")).removeprefix("torch.")
        if dtype not in C_TYPES and not dtype.startswith("complex"):
            raise ConfigError(
                f"{target} of dtype {dtype}",
                where="export to C",
                allowed=", ".join(sorted(C_TYPES)),
                fix="compute in float32",
            )


def _all_arguments(node: Any, args: list[Any], values: dict) -> list[Any]:
    """Return all arguments of the operator's schema, with defaults."""
    out = []
    _, schemas = get_signature_for_torch_op(node.target, return_schemas=True)
    assert schemas
    for place, argument in enumerate(schemas[0].arguments):
        if place < len(args):
            out.append(args[place])
        elif argument.name in node.kwargs:
            out.append(_argument(node.kwargs[argument.name], values))
        else:
            out.append(argument.default_value)
    return out


def _argument(argument: Any, values: dict) -> Any:
    if isinstance(argument, torch.fx.Node):
        return values[argument]
    if isinstance(argument, list | tuple):
        return [_argument(a, values) for a in argument]
    return argument


def _mentions_values(args: Sequence[Any]) -> bool:
    return any(
        isinstance(a, Complex | View | Expr) or (isinstance(a, list) and _mentions_values(a))
        for a in args
    )


def _origin(node: Any) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    names = [name for name, _ in stack.values() if name]
    return names[-1] if names else "the model"


def _lowerings() -> dict[str, type[Lowering]]:
    by_target: dict[str, type[Lowering]] = {}
    for name in lowerings:
        for target in lowerings.get(name).targets:
            if target in by_target:
                raise ConfigError(
                    f"lowering {name!r} and another one have the target {target}",
                    fix="remove the target from one of them",
                )
            by_target[target] = lowerings.get(name)
    return by_target


def constants_of(exported: torch.export.ExportedProgram) -> dict[str, Tensor]:
    """Return the parameters, buffers and constants of a traced program by placeholder."""
    signature = exported.graph_signature
    out: dict[str, Tensor] = {}
    stored = {**exported.state_dict, **exported.constants}
    for names in (
        signature.inputs_to_parameters,
        signature.inputs_to_buffers,
        signature.inputs_to_lifted_tensor_constants,
    ):
        for place, name in names.items():
            out[place] = stored[name].detach()
    return out
