"""Side conditions of rewrites, each a named question about the graph.

The editor refuses whatever would change meaning; these predicates keep a pattern from proposing it
in the first place. The nine points are those a pass must respect: writes to memory, agreement of
members, independence, spelling (see `binding`), observers of strides, random numbers, symbolic
sizes, metadata and roll-back (the last two are the editor's).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import torch
from torch import fx

from passwright.passes.effects import is_pure
from passwright.passes.graph import GraphView
from passwright.passes.ops import (
    Cat,
    Embedding,
    LayerNorm,
    Linear,
    Op,
    Permute,
    Piece,
    Select,
    Slice,
    Split,
    Stack,
    Unbind,
)
from passwright.passes.spec import Size, Spec, static

#: Ops whose result has the same layout whatever the strides of their inputs are.
_LAYOUT_BARRIERS = (Cat, Stack, Linear, LayerNorm, Embedding)
_VIEWS = (Split, Unbind, Piece, Permute, Slice, Select)
_OBSERVERS = frozenset(
    {
        *("view", "view_as", "stride", "is_contiguous", "as_strided", "data_ptr"),
        torch.as_strided,
        torch.ops.aten.view.default,
        torch.ops.aten.as_strided.default,
    }
)


def only_user(graph: GraphView, node: fx.Node, user: fx.Node) -> bool:
    """`user` is the one and only user of `node`."""
    return len(node.users) == 1 and user in node.users


def same(first: Size, second: Size) -> bool:
    """Equal for every input; a symbolic size equals only itself, and no guard is installed."""
    if type(first) is int and type(second) is int:
        return first == second
    return type(first) is type(second) and str(first) == str(second)


def same_shape(first: Sequence[Size], second: Sequence[Size]) -> bool:
    return len(first) == len(second) and all(map(same, first, second))


def static_shape(graph: GraphView, node: fx.Node) -> tuple[int, ...] | None:
    """The shape, if every size is known without a guard."""
    spec = graph.any_spec(node)
    if not isinstance(spec, Spec):
        return None
    sizes = tuple(static(size) for size in spec.shape)
    return None if None in sizes else sizes  # type: ignore[return-value]


def is_written(graph: GraphView, *nodes: fx.Node) -> bool:
    """Some node of the graph writes the memory of one of these values."""
    if not graph.writes:
        return False
    storages = graph.storages(nodes)
    return any(write.storages & storages for write in graph.writes)


def agreement(graph: GraphView, op: Op, *tensors: fx.Node | None) -> Hashable:
    """What the members of one batch have in common apart from their op's own arguments.

    Shape, type, device and layout of the given tensors, grad mode and autocast region, whether
    autograd records the result, and how often the memory they read was written before. Members with
    different keys never share a batch.
    """
    present = [tensor for tensor in tensors if tensor is not None]
    return (
        type(op),
        tuple(None if tensor is None else graph.spec(tensor).key() for tensor in tensors),
        graph.spec(op.node).dtype,
        graph.region(op.node),
        graph.needs_grad(op.node),
        graph.epoch(present, op.node),
    )


def batchable(graph: GraphView, node: fx.Node) -> bool:
    """A pure op whose result nobody overwrites: it may become part of a batch."""
    return is_pure(node) and not is_written(graph, node)


def independent_groups(graph: GraphView, members: Sequence[fx.Node]) -> list[list[fx.Node]]:
    """The members in groups within which none is reachable from another, largest groups possible.

    A member's level is the greatest number of members on a path to it; members of one level cannot
    reach each other. Linear in the stretch of graph between the first and the last member.
    """
    if len(members) < 2:
        return [list(members)]
    chosen = set(members)
    first, last = min(members), max(members)
    level: dict[fx.Node, int] = {}
    groups: dict[int, list[fx.Node]] = {}
    node = first
    while True:
        above = max((level.get(source, 0) for source in node.all_input_nodes), default=0)
        level[node] = above + (node in chosen)
        if node in chosen:
            groups.setdefault(level[node], []).append(node)
        if node is last:
            return [groups[key] for key in sorted(groups)]
        node = node.next


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
            op = graph.read(user)
            if user.op == "output" or user.target in _OBSERVERS:
                return True
            if isinstance(op, _LAYOUT_BARRIERS):
                continue
            if op is None and not (is_pure(user) and isinstance(graph.any_spec(user), Spec)):
                return True
            pending.append(user)
    return False


def escapes(graph: GraphView, node: fx.Node) -> bool:
    """The memory of the value can be reached from outside the graph, or by an unknown op."""
    storages = graph.storages([node])
    pending, seen = [node], {node}
    while pending:
        for user in pending.pop().users:
            if user in seen:
                continue
            seen.add(user)
            if user.op == "output":
                return True
            if graph.read(user) is None and not is_pure(user):
                return True
            if graph.storages([user]) & storages:
                pending.append(user)
    return False


def consecutive(numbers: Iterable[int]) -> bool:
    """Each number is one more than the last."""
    items = list(numbers)
    return all(b == a + 1 for a, b in zip(items, items[1:], strict=False))
