"""Who can tell with which strides a value lies in memory, and what another order would cost."""

from __future__ import annotations

import torch
from torch import fx

from passwright.passes.effects import is_random
from passwright.passes.graph import GraphView
from passwright.passes.ops import (
    Attention,
    Cat,
    Convolution,
    Einsum,
    Embedding,
    LayerNorm,
    Linear,
    Matmul,
    Permute,
    Piece,
    Reshape,
    Select,
    Slice,
    Split,
    Stack,
    Unbind,
)
from passwright.passes.spec import Spec, static

#: Ops whose result has the same layout whatever the strides of their inputs are; see
#: `has_own_layout` for cats.
_LAYOUT_BARRIERS = (Linear, LayerNorm, Embedding)
#: Calls that are read as no op, and write new memory row by row whatever the strides of their inputs are.
_ROW_MAJOR = frozenset(
    {
        *(torch.addmm, torch.ops.aten.addmm.default),
        *(torch.baddbmm, torch.ops.aten.baddbmm.default),
    }
)
#: So do the ops of our own kernels.
_OWN_NAMESPACE = "passwright"
_VIEWS = (Split, Unbind, Piece, Permute, Slice, Select)
#: Make a copy of an input that does not lie in memory as they want it.
_WANT_ROWS = (Linear, Matmul, Einsum, Convolution, Attention, Reshape, LayerNorm)
#: Calls that see the strides of their inputs, or need some.
OBSERVERS = frozenset(
    {
        *("view", "view_as", "stride", "is_contiguous", "as_strided", "data_ptr"),
        torch.as_strided,
        torch.ops.aten.view.default,
        torch.ops.aten.as_strided.default,
    }
)


def observes_strides(graph: GraphView, node: fx.Node) -> bool:
    """Somebody can tell with which strides the value lies in memory.

    Graph outputs, `.view()`, `.stride()`, custom ops: directly, or through views and pointwise ops,
    which hand strides on.
    """
    pending, seen = [node], {node}
    while pending:
        for user in pending.pop().users:
            if user in seen:
                continue
            seen.add(user)
            if is_observer(graph, user):
                return True
            if not hides_strides(graph, user):
                pending.append(user)
    return False


def is_observer(graph: GraphView, user: fx.Node) -> bool:
    """The node itself sees the strides of its inputs, or nobody knows whether it does.

    A random op draws for the elements in the order in which they lie in memory.
    """
    if user.op == "output" or user.target in OBSERVERS or is_random(user):
        return True
    if hides_strides(graph, user) or graph.read(user) is not None:
        return False
    return not (graph.is_pure(user) and isinstance(graph.any_spec(user), Spec))


def hides_strides(graph: GraphView, user: fx.Node) -> bool:
    """The strides of the result say nothing about those of the inputs."""
    return has_own_layout(graph, user) or _has_one_layout(graph, user)


def _has_one_layout(graph: GraphView, node: fx.Node) -> bool:
    """New memory for at most one dim that is not of size 1: there is one way to lay that out."""
    spec = graph.any_spec(node)
    if not isinstance(spec, Spec) or not graph.is_pure(node):
        return False
    is_new = not graph.storages([node]) & graph.storages(node.all_input_nodes)
    return is_new and sum(static(size) != 1 for size in spec.shape) < 2


def costs_one_copy(graph: GraphView, node: fx.Node) -> bool:
    """If the value lay in memory in another order, at most one copy would be made to put it right.

    The editor makes one for all users where somebody observes strides. Else every GEMM, reshape and
    op that nobody knows may make its own; pointwise ops read any strides.
    """
    if observes_strides(graph, node):
        return True
    pending, copies = [node], 0
    while pending:
        for user in pending.pop().users:
            op = graph.read(user)
            if isinstance(op, _VIEWS):
                pending.append(user)
            elif op is None or isinstance(op, _WANT_ROWS):
                copies += 1
    return copies < 2


def has_own_layout(graph: GraphView, node: fx.Node) -> bool:
    """The strides of the result do not depend on those of the inputs.

    A cat of tensors of rank 4 or 5 hands channels-last on, so only smaller ones count.
    """
    op = graph.read(node)
    if isinstance(op, (Cat, Stack)):
        adds_dim = node.target in (torch.stack, torch.ops.aten.stack.default)
        return graph.ndim(node) - adds_dim < 4
    if isinstance(op, Matmul):
        # A matrix with a batch to its right is multiplied by way of transposes.
        return graph.ndim(op.left) > 2 or graph.ndim(op.right) == 2
    if op is None:
        # A result that was handed in lies as it did.
        return "out" not in node.kwargs and (node.target in _ROW_MAJOR or _is_own_kernel(node))
    return isinstance(op, _LAYOUT_BARRIERS)


def _is_own_kernel(node: fx.Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target.namespace == _OWN_NAMESPACE
