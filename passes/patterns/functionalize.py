"""In-place ops made pure, so that what stands around them can be batched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.address import target_name
from passwright.passes.binding import TABLE
from passwright.passes.editor import GraphEditor
from passwright.passes.effects import is_pure
from passwright.passes.graph import GraphView
from passwright.passes.legality import is_written, undisturbed
from passwright.passes.ops import Binary, Cat, InplaceUnary, Stack
from passwright.passes.pattern import TORCH_IR, Direction, Exactness, Match, Pattern, match
from passwright.passes.spec import Spec

#: Results in memory of their own, which autograd does not keep for their gradient. Overwriting a
#: result that is kept is an error in training, and stays one.
_FRESH = frozenset(
    {
        *("linear", "addmm", "mm", "bmm", "baddbmm", "matmul", "einsum"),
        *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d"),
        *("batch_norm", "layer_norm", "group_norm", "instance_norm", "embedding"),
        *("cat", "concat", "concatenate", "stack", "add", "sub", "mul"),
    }
)
#: exp is left out: autocast runs it in float32, but runs exp_ in the type that is there.
_FUNCTIONS = frozenset(
    {
        *("relu", "relu6", "silu", "mish", "elu", "leaky_relu", "hardtanh", "hardsigmoid"),
        *("hardswish", "celu", "selu", "tanh", "sigmoid", "neg", "abs", "clamp", "sqrt"),
    }
)


class OutOfPlace(Pattern):
    """A pointwise function that overwrites a fresh value computes a new value instead.

    y = linear(x); relu_(y); use(y)   ==>   y = linear(x); z = relu(y); use(z)

    Whoever read the overwritten value later takes the new one. A write is a barrier for every other
    pattern, and an in-place op on a slice of a batch is an error in training.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({InplaceUnary})
    levels = frozenset({TORCH_IR})
    cleanup = True
    normalizes = True
    conditions = (
        "the value was computed in this graph, and no other value lies in its memory",
        "nothing that read the value before keeps it for its gradient",
    )

    def matches(self, graph: GraphView, write: InplaceUnary) -> Iterator[Match]:
        value = write.input
        if write.function not in _FUNCTIONS or not _is_fresh(graph, value):
            return
        if _sharers(graph, value) != {value, write.node}:
            return
        if is_written(graph, value, besides=write.node):
            return
        if not undisturbed(graph, value, write.node):
            return
        if all(_forgets(graph, user) for user in value.users if user < write.node):
            yield match(write, value)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        write, value = m.anchor.node, m.anchor.input
        dtype = edit.view.spec(value).dtype
        pure = edit.pointwise(_pure(m.anchor.function), value, dtype=dtype, **dict(m.anchor.params))
        # Both are names of one tensor, and what follows the write sees what it left there.
        edit.replace(write, value)
        edit.replace(value, pure, undoing=write, where=lambda user: write < user)
        # Nobody uses the write by now: this hands its address on.
        edit.replace(write, pure, undoing=write)
        edit.remove(write)


def _pure(function: str) -> Any:
    """The spelling that our readers know."""
    spellings = (getattr(module, function, None) for module in (torch, F))
    return next(spelling for spelling in spellings if spelling in TABLE)


def _is_fresh(graph: GraphView, value: fx.Node) -> bool:
    """Computed by an op that is known to return memory of its own."""
    spec = graph.any_spec(value)
    if value.op not in ("call_function", "call_method") or not isinstance(spec, Spec):
        return False
    known = target_name(value).removeprefix(".") in _FRESH and "out" not in value.kwargs
    return known and spec.storage not in graph.storages(value.all_input_nodes)


def _sharers(graph: GraphView, value: fx.Node) -> set[fx.Node]:
    """All values in the memory of a fresh value: views and results of writes, and their like."""
    storages = graph.storages([value])
    pending, found = [value], {value}
    while pending:
        for user in pending.pop().users:
            if user not in found and graph.storages([user]) & storages:
                found.add(user)
                pending.append(user)
    return found


def _forgets(graph: GraphView, user: fx.Node) -> bool:
    """The user copied what it needs of its inputs, and autograd keeps none of them."""
    op = graph.read(user)
    return is_pure(user) and (
        isinstance(op, (Cat, Stack)) or (isinstance(op, Binary) and op.function in ("add", "sub"))
    )
