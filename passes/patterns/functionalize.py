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
from passwright.passes.legality import is_written, one_grad_mode, same, undisturbed
from passwright.passes.ops import (
    Binary,
    Cat,
    InplaceBinary,
    InplaceUnary,
    MultiHeadAttention,
    Permute,
    Piece,
    Reshape,
    Select,
    Slice,
    Stack,
)
from passwright.passes.pattern import TORCH_IR, Direction, Exactness, Match, Pattern, match
from passwright.passes.spec import Spec, static
from passwright.passes.strides import observes_strides

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
_VIEWS = (Reshape, Permute, Slice, Select)


class OutOfPlace(Pattern):
    """A pointwise function that overwrites a fresh value computes a new value instead.

    y = linear(x); relu_(y); use(y)   ==>   y = linear(x); z = relu(y); use(z)
    y = a + b; y += c; use(y)         ==>   y = a + b; z = y + c; use(z)

    So does one that overwrites a view of a fresh value, where from then on nobody reads the rest:

    v = squeeze(cat(x)); v += c; use(v)   ==>   v = squeeze(cat(x)); z = v + c; use(z)

    Whoever read the overwritten value later takes the new one. A write is a barrier for every other
    pattern, and an in-place op on a slice of a batch is an error in training.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({InplaceUnary, InplaceBinary})
    levels = frozenset({TORCH_IR})
    cleanup = True
    normalizes = True
    conditions = (
        "the value was computed in this graph or is a view of one that was",
        "no other value lies in that memory, and nobody reads what it is a view of later on",
        "nobody sees the strides of a part of a larger value",
        "nothing that read the value before keeps it for its gradient",
        "a second operand of the same type that is no larger, and lies elsewhere",
    )

    def matches(self, graph: GraphView, write: InplaceUnary | InplaceBinary) -> Iterator[Match]:
        value = _overwritten(write)
        known = _fits(graph, write) if isinstance(write, InplaceBinary) else _is_known(write)
        chain = _from_fresh(graph, value) if known else None
        if chain is None or _sharers(graph, chain[0]) != {*chain, write.node}:
            return
        if is_written(graph, value, besides=write.node):
            return
        if not undisturbed(graph, value, write.node) or not one_grad_mode(graph, *chain):
            return
        cut = any(isinstance(graph.read(link), (Slice, Select)) for link in chain)
        if cut and _shows(graph, value):
            return
        above = {user for link in chain[:-1] for user in link.users} - {*chain}
        early = {user for user in (*above, *value.users) if user < write.node}
        if above <= early and all(_forgets(graph, user) for user in early):
            yield match(write, *chain)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        write, value = m.anchor.node, _overwritten(m.anchor)
        dtype = edit.view.spec(value).dtype
        operands = (value, m.anchor.right) if isinstance(m.anchor, InplaceBinary) else (value,)
        given = dict(m.anchor.params)
        pure = edit.pointwise(_pure(m.anchor.function), *operands, dtype=dtype, **given)
        # Both are names of one tensor, and what follows the write sees what it left there.
        edit.replace(write, value)
        edit.replace(value, pure, undoing=write, where=lambda user: write < user)
        # Nobody uses the write by now: this hands its address on.
        edit.replace(write, pure, undoing=write)
        edit.remove(write)


def _overwritten(write: InplaceUnary | InplaceBinary) -> fx.Node:
    return write.left if isinstance(write, InplaceBinary) else write.input


def _is_known(write: InplaceUnary) -> bool:
    return write.function in _FUNCTIONS


def _fits(graph: GraphView, write: InplaceBinary) -> bool:
    """Out of place the result would have the type and shape of the value that is overwritten."""
    value, right = graph.spec(write.left), write.right
    if not isinstance(right, fx.Node):
        return value.dtype.is_floating_point and type(right) in (int, float)
    other = graph.spec(right)
    aligned = zip(reversed(other.shape), reversed(value.shape), strict=False)
    return (
        other.dtype == value.dtype
        and other.device == value.device
        and value.dtype.is_floating_point
        and other.ndim <= value.ndim
        and all(static(mine) == 1 or same(mine, theirs) for mine, theirs in aligned)
        and not graph.storages([right]) & graph.storages([write.left])
    )


def _pure(function: str) -> Any:
    """The spelling that our readers know."""
    spellings = (getattr(module, function, None) for module in (torch, F))
    return next(spelling for spelling in spellings if spelling in TABLE)


def _from_fresh(graph: GraphView, value: fx.Node) -> list[fx.Node] | None:
    """The views from a fresh value to this one, both included.

    Pieces of a split are none: autograd forbids to overwrite one of several views.
    """
    chain = [value]
    while isinstance(op := graph.read(chain[0]), _VIEWS):
        if graph.storages([op.input]) != graph.storages([value]):
            return None
        chain.insert(0, op.input)
    return chain if _is_fresh(graph, chain[0]) else None


def _shows(graph: GraphView, value: fx.Node) -> bool:
    """Somebody can tell that the value is a part of something larger."""
    return not graph.spec(value).is_contiguous and observes_strides(graph, value)


def _is_fresh(graph: GraphView, value: fx.Node) -> bool:
    """Computed by an op that is known to return memory of its own."""
    spec = graph.any_spec(value)
    if value.op not in ("call_function", "call_method") or not isinstance(spec, Spec):
        return False
    piece = graph.producer(value, Piece)
    if piece is not None and piece.index == 0:
        several = graph.producer(piece.input, MultiHeadAttention)
        return several is not None and _is_apart(graph, value, several.node)
    known = target_name(value).removeprefix(".") in _FRESH and "out" not in value.kwargs
    return known and spec.storage not in graph.storages(value.all_input_nodes)


def _is_apart(graph: GraphView, value: fx.Node, several: fx.Node) -> bool:
    """No input and no other output of the node with several outputs lies in this memory."""
    others = [user for user in several.users if user is not value]
    if not all(graph.producer(user, Piece) for user in others):
        return False
    return not graph.storages([value]) & graph.storages([*others, *several.all_input_nodes])


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
