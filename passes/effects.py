"""What a node does besides computing its value: writing, drawing random numbers, setting modes.

Everything not known to be pure counts as impure, and an impure node is never moved.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import fx

from passwright.passes.hidden_writes import hidden_writes, nodes_of

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
    }
)
_PURE_BUILTINS = frozenset(
    """abs bool divmod float getattr int isinstance len list max min pow round slice sum
    tuple""".split()
)
#: Functions of the modules above that do more than compute: checks, defaults, gathered statistics.
_IMPURE_PREFIXES = ("_assert", "_check", "set_", "_set_", "manual_seed", "seed")
_IMPURE_NAMES = frozenset(
    """batch_norm_update_stats batch_norm_gather_stats batch_norm_gather_stats_with_counts
    fused_moving_avg_obs_fake_quant _fused_moving_avg_obs_fq_helper""".split()
)
#: Methods of a tensor that leave something behind besides their result.
_IMPURE_METHODS = frozenset(
    """backward register_hook register_post_accumulate_grad_hook retain_grad record_stream
    __setstate__""".split()
)
#: Namespaces of ops whose order matters although their schemas write nothing.
_ORDERED_NAMESPACES = frozenset({"_c10d_functional", "c10d_functional", "c10d", "streams"})

_RANDOM = frozenset(
    """bernoulli dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout
    feature_alpha_dropout gumbel_softmax multinomial normal poisson rand rand_like randint
    randint_like randn randn_like randperm rrelu native_dropout binomial _standard_gamma
    _sample_dirichlet uniform exponential geometric cauchy log_normal random
    fractional_max_pool2d fractional_max_pool3d fractional_max_pool2d_with_indices
    fractional_max_pool3d_with_indices lstm gru rnn_tanh rnn_relu
    scaled_dot_product_attention multi_head_attention_forward""".split()
)
_DROPOUTS = frozenset(
    """dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout
    feature_alpha_dropout""".split()
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
#: Where Dynamo keeps the calls of numpy that it captured, `wrapped_arange` and the like.
_DYNAMO = "torch._dynamo.utils"
#: What fx itself keeps alive for its effect (asserts, profiler ranges).
_SIDE_EFFECTS: Collection[Any] = getattr(fx.node, "_side_effectful_functions", frozenset())
#: Change shape, strides or autograd state of the tensor object itself, so that what is known of a
#: value holds only for a part of its life.
_METADATA = frozenset(
    """t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ resize_ resize_as_ set_
    detach_ requires_grad_ rename_""".split()
)


def changes_metadata(node: fx.Node) -> bool:
    """The node changes the shape, strides or autograd state of its argument in place."""
    if isinstance(node.target, torch._ops.OpOverload):
        return torch.Tag.inplace_view in node.target.tags
    return node.op in ("call_function", "call_method") and _function_name(node) in _METADATA


def is_region_change(node: fx.Node) -> bool:
    """The node sets grad mode, autocast or the like for what follows.

    So does every call that nobody knows and that takes no value: what else could it be for?
    Functorch's nesting levels (`torch.func.grad`, `vmap`) count as well.
    """
    if node.op != "call_function":
        return False
    if node.target in _REGION_TARGETS:
        return True
    name, module = _function_name(node), _module(node.target)
    if name == "_log_api_usage_once":  # torch counts who uses a layer; Dynamo keeps the call
        return False
    if name.startswith(("_set_grad", "_enter_", "_exit_", "_saved_tensors_hooks")):
        return True
    if module.startswith(("torch._functorch", "torch._C._functorch")):
        return True
    if node.all_input_nodes or (module == _DYNAMO and name.startswith("wrapped_")):
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return not node.target._schema.returns
    return _writes(node) is None and not is_random(node)


def is_random(node: fx.Node) -> bool:
    """The node may draw from a random stream; a dropout that is plainly switched off does not."""
    if node.op not in ("call_function", "call_method"):
        return False
    name = _function_name(node).partition(".")[0].rstrip("_")
    if isinstance(node.target, torch._ops.OpOverload):
        random = torch.Tag.nondeterministic_seeded in node.target.tags
    else:
        random = name in _RANDOM
    return random and not _draws_nothing(node, name)


def _draws_nothing(node: fx.Node, name: str) -> bool:
    if name in _DROPOUTS:
        training = _argument(node, 2, "training", node.kwargs.get("train"))
        probability = _argument(node, 1, "p")
        return training is False or (type(probability) in (int, float) and probability == 0)
    if name == "scaled_dot_product_attention":
        probability = _argument(node, 4, "dropout_p", 0.0)
        return isinstance(probability, (int, float)) and probability == 0
    if name == "multi_head_attention_forward":
        probability = _argument(node, 10, "dropout_p")
        off = type(probability) in (int, float) and probability == 0
        return off or _argument(node, 13, "training", True) is False
    return False


def _argument(node: fx.Node, position: int, name: str, default: Any = None) -> Any:
    return node.args[position] if position < len(node.args) else node.kwargs.get(name, default)


def is_pure(node: fx.Node) -> bool:
    """Known to compute a value from its arguments and nothing else."""
    if node.op in ("placeholder", "output", "call_module"):
        return False
    if node.op == "get_attr":
        return True
    if isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.returns:
        return False
    if node.op == "call_function" and node.target in _SIDE_EFFECTS:
        return False
    return not (is_random(node) or is_region_change(node) or _writes(node) is not False)


def only_writes(node: fx.Node) -> bool:
    """Pure but for writing arguments that are known, as batch norm does its running statistics."""
    return not (is_random(node) or is_region_change(node)) and _writes(node) is True


def only_draws(node: fx.Node) -> bool:
    """Pure but for drawing random numbers, as dropout does in training."""
    return is_random(node) and not is_region_change(node) and _writes(node) is False


def written_arguments(node: fx.Node) -> Iterator[fx.Node]:
    """The arguments whose memory the node may write; for an unknown node, all of them."""
    if node.op not in ("call_function", "call_method", "call_module"):
        return
    writes = _writes(node)
    if writes is False:
        return
    if writes is None:
        yield from node.all_input_nodes
    elif hidden_writes(node) is not None:
        yield from hidden_writes(node) or ()
    elif isinstance(node.target, torch._ops.OpOverload):
        for argument, value in _schema_arguments(node):
            if argument.alias_info is not None and argument.alias_info.is_write:
                yield from nodes_of(value)
    else:
        name = _function_name(node)
        yield from nodes_of(node.kwargs.get("out"))
        several = name.startswith("_") and not name.startswith("_foreach_")
        if node.op == "call_function" and several and name.endswith("_"):
            # torch._fused_adamw_ and its like write several of their arguments.
            yield from node.all_input_nodes
        elif _is_inplace_name(name) or _asks_inplace(node) or "out" not in node.kwargs:
            first = node.args[0] if node.args else node.kwargs.get("input", node.kwargs.get("self"))
            yield from nodes_of(first)


def _function_name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _writes(node: fx.Node) -> bool | None:
    """Does the node write one of its arguments? None: nobody knows."""
    target = node.target
    if node.op == "call_method":
        return _method_writes(node, str(target))
    if node.op != "call_function":
        return None
    hidden = hidden_writes(node)
    if hidden is not None:
        return bool(hidden) or _asks_inplace(node)
    if isinstance(target, torch._ops.OpOverload):
        return None if target.namespace in _ORDERED_NAMESPACES else target._schema.is_mutable
    if isinstance(target, torch._ops.OpOverloadPacket):
        return None if _may_write(target) else False
    if node.target in _REGION_TARGETS:
        return False
    name, module = _function_name(node), _module(target)
    if module == "builtins":
        return False if name in _PURE_BUILTINS else None
    if module not in _PURE_MODULES:
        return None
    if module == "_operator":
        return name in _OPERATOR_INPLACE
    if name.startswith(_IMPURE_PREFIXES) or name in _IMPURE_NAMES:
        return None
    return _is_inplace_name(name) or _asks_inplace(node) or "out" in node.kwargs


@functools.cache
def _may_write(packet: torch._ops.OpOverloadPacket) -> bool:
    """Some overload of the op writes an argument, or it is of a kind that keeps its place."""
    names = packet.overloads()  # type: ignore[no-untyped-call]
    overloads = [getattr(packet, name) for name in names]
    return any(o._schema.is_mutable or o.namespace in _ORDERED_NAMESPACES for o in overloads)


def _method_writes(node: fx.Node, name: str) -> bool | None:
    if name.startswith("__") and name.strip("_") in _OPERATOR_INPLACE:
        return True
    if name in _IMPURE_METHODS or not hasattr(torch.Tensor, name):
        return None
    return _is_inplace_name(name) or _asks_inplace(node) or "out" in node.kwargs


def _module(target: Any) -> str:
    module = getattr(target, "__module__", None)
    if module is None and getattr(target, "__self__", None) is torch._C._VariableFunctions:
        return "torch"
    return str(module)


def _is_inplace_name(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _asks_inplace(node: fx.Node) -> bool:
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


def _schema_arguments(node: fx.Node) -> Iterator[tuple[Any, Any]]:
    arguments = node.target._schema.arguments  # type: ignore[union-attr]
    for position, argument in enumerate(arguments):
        if position < len(node.args):
            yield argument, node.args[position]
        elif argument.name in node.kwargs:
            yield argument, node.kwargs[argument.name]
