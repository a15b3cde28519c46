"""What a node does besides computing its value: writing, drawing random numbers, setting modes.

Everything not known to be pure counts as impure, and an impure node is never moved.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

#: Modules whose functions compute a value from their arguments and do nothing else, when they are
#: neither spelled as in-place nor listed below.
_PURE_MODULES = frozenset(
    {
        "torch",
        "torch.functional",
        "torch.nn.functional",
        "torch._C._nn",
        "torch._C._special",
        "torch._C._linalg",
        "torch._C._fft",
        "torch.special",
        "_operator",
        "math",
        "builtins",
    }
)
_RANDOM = frozenset(
    """bernoulli dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout
    feature_alpha_dropout gumbel_softmax multinomial normal poisson rand rand_like randint
    randint_like randn randn_like randperm rrelu native_dropout binomial
    scaled_dot_product_attention multi_head_attention_forward""".split()
)
#: Set a mode for all nodes after them; the graph falls into regions at these.
_REGION_TARGETS = frozenset(
    {
        torch._C._set_grad_enabled,
        torch.amp.autocast_mode._enter_autocast,
        torch.amp.autocast_mode._exit_autocast,
    }
)
_OPERATOR_INPLACE = frozenset(
    """iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift imatmul
    setitem delitem""".split()
)


def is_region_change(node: fx.Node) -> bool:
    """The node sets grad mode, autocast or the like for what follows."""
    if node.op != "call_function":
        return False
    if node.target in _REGION_TARGETS:
        return True
    name = getattr(node.target, "__name__", "")
    return name.startswith(("_set_grad", "_enter_", "_exit_", "_saved_tensors_hooks"))


def is_random(node: fx.Node) -> bool:
    """The node may draw from a random stream."""
    if isinstance(node.target, torch._ops.OpOverload):
        return torch.Tag.nondeterministic_seeded in node.target.tags
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return node.op in ("call_function", "call_method") and name.rstrip("_") in _RANDOM


def is_pure(node: fx.Node) -> bool:
    """Known to compute a value from its arguments and nothing else."""
    if node.op in ("placeholder", "output", "call_module"):
        return False
    if node.op == "get_attr":
        return True
    return not (is_random(node) or is_region_change(node) or _writes(node) is not False)


def written_arguments(node: fx.Node) -> Iterator[fx.Node]:
    """The arguments whose memory the node may write; for an unknown node, all of them."""
    if node.op not in ("call_function", "call_method", "call_module"):
        return
    writes = _writes(node)
    if writes is False:
        return
    if writes is None:
        yield from node.all_input_nodes
    elif isinstance(node.target, torch._ops.OpOverload):
        for argument, value in _schema_arguments(node):
            if argument.alias_info is not None and argument.alias_info.is_write:
                yield from _nodes_of(value)
    else:
        first = node.args[0] if node.args else node.kwargs.get("input", node.kwargs.get("self"))
        yield from _nodes_of(first)
        yield from _nodes_of(node.kwargs.get("out"))
        if _function_name(node) == "batch_norm":
            yield from node.all_input_nodes[1:3]


def _function_name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _writes(node: fx.Node) -> bool | None:
    """Does the node write one of its arguments? None: nobody knows."""
    target = node.target
    if node.op == "call_method":
        return _is_inplace_name(str(target)) or _asks_inplace(node)
    if node.op != "call_function":
        return None
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.is_mutable
    if isinstance(target, torch._ops.OpOverloadPacket):
        return None
    if node.target in _REGION_TARGETS:
        return False
    name = _function_name(node)
    if _module(target) not in _PURE_MODULES:
        return None
    if _module(target) == "_operator":
        return name in _OPERATOR_INPLACE
    if name == "batch_norm" or name == "instance_norm":
        return _trains_norm(node)
    return _is_inplace_name(name) or _asks_inplace(node)


def _module(target: Any) -> str:
    module = getattr(target, "__module__", None)
    if module is None and getattr(target, "__self__", None) is torch._C._VariableFunctions:
        return "torch"
    return str(module)


def _is_inplace_name(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _asks_inplace(node: fx.Node) -> bool:
    if "out" in node.kwargs:
        return True
    position = _inplace_position(node.target)
    given = node.kwargs.get("inplace", False)
    if position is not None and len(node.args) > position:
        given = node.args[position]
    return given is not False


@functools.cache
def _inplace_position(target: Any) -> int | None:
    """Where a Python function takes its `inplace` argument."""
    if not inspect.isfunction(inspect.unwrap(target) if callable(target) else target):
        return None
    names = list(inspect.signature(target).parameters)
    return names.index("inplace") if "inplace" in names else None


def _trains_norm(node: fx.Node) -> bool:
    """Batch norm writes its running statistics when it is in training mode."""
    names = ("input", "running_mean", "running_var", "weight", "bias", "training")
    bound = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    training = bound.get("training", bound.get("use_input_stats", False))
    return training is not False and bound.get("running_mean") is not None


def _schema_arguments(node: fx.Node) -> Iterator[tuple[Any, Any]]:
    arguments = node.target._schema.arguments  # type: ignore[union-attr]
    for position, argument in enumerate(arguments):
        if position < len(node.args):
            yield argument, node.args[position]
        elif argument.name in node.kwargs:
            yield argument, node.kwargs[argument.name]


def _nodes_of(value: Any) -> Iterator[fx.Node]:
    if isinstance(value, fx.Node):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _nodes_of(item)
