"""The same value computed twice."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import escapes, is_written, same, same_type
from passwright.passes.ops import Op
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.spec import AnySpec, parts_of

_Key = tuple[Hashable, ...]


class MergeDuplicates(Pattern):
    """Two calls that compute the same value of the same tensors become one.

    a = x.float(); b = x.to(torch.float32)   ==>   a = x.float(), which takes b's place

    Spelling does not matter for an op that is read; a call that nobody reads must be spelled alike.
    Values keep every bit; the gradients of both are added before the op's backward, not behind it.
    Compilers find duplicates as well, but too late for the patterns here.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset(Op.__subclasses__())
    cleanup = True
    conditions = (
        "the same op or call, arguments of equal values and types, pure",
        "one grad mode and autocast region, and no write between",
        "neither result is seen from outside or written",
    )

    def matches(self, graph: GraphView, anchor: Op) -> Iterator[Match]:
        # A call that nobody reads is no anchor; it is looked for from its inputs.
        unread = [user for user in anchor.node.users if graph.read(user) is None]
        for node in (anchor.node, *sorted(unread)):
            for first in _earlier_twins(graph, node):
                op = graph.read(node)
                yield match(op if op is not None else Op(node), first, first=first)
                break

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, m.first)


def _earlier_twins(graph: GraphView, node: fx.Node) -> Iterator[fx.Node]:
    """Nodes before this one whose result it may take instead of its own."""
    inputs = node.all_input_nodes
    # Of the input with the fewest users, a twin is another one. Nearly all nodes end here.
    source = min(inputs, key=_count_users, default=None)
    if source is None or len(source.users) < 2:
        return
    if not graph.is_pure(node) or graph.any_spec(node) is None:
        return
    twins = graph.memo(("duplicates", source), lambda: _alike(graph, source))
    alike = twins.get(node, ())
    for first in alike:
        if first < node and _may_stand_in(graph, node, first):
            yield first


def _count_users(node: fx.Node) -> int:
    return len(node.users)


def _alike(graph: GraphView, source: fx.Node) -> dict[fx.Node, Sequence[fx.Node]]:
    """For each user of a value the users that compute the same, in graph order."""
    by_key: dict[_Key, list[fx.Node]] = {}
    for user in graph.users(source):
        if graph.is_pure(user):
            key = graph.lasting(user, "duplicate", partial(_key, graph, user))
            by_key.setdefault(key, []).append(user)
    groups = [group for group in by_key.values() if len(group) > 1]
    return {node: group for group in groups for node in group}


def _key(graph: GraphView, node: fx.Node) -> _Key:
    op = graph.read(node)
    if op is None:
        return (node.op, node.target, _plain(node.args), _plain(node.kwargs))
    return (type(op), *(_plain(getattr(op, f.name)) for f in fields(op) if f.name != "node"))


def _plain(value: Any) -> Hashable:
    """Equal for arguments that mean the same; unlike 1, 1.0 and True."""
    if isinstance(value, fx.Node):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return tuple((key, _plain(value[key])) for key in sorted(value))
    if isinstance(value, slice):
        return ("slice", _plain((value.start, value.stop, value.step)))
    return (type(value), value if type(value) in (int, str) else repr(value))


def _may_stand_in(graph: GraphView, node: fx.Node, first: fx.Node) -> bool:
    if graph.region(node) != graph.region(first):
        return False
    if graph.needs_grad(node) != graph.needs_grad(first) or is_written(graph, node, first):
        return False
    if escapes(graph, node) or escapes(graph, first):
        return False
    read = node.all_input_nodes
    if graph.epoch(read, first) != graph.epoch(read, node):
        return False
    return _look_alike(graph, graph.any_spec(first), graph.any_spec(node), read)


def _look_alike(graph: GraphView, first: AnySpec, second: AnySpec, read: Sequence[fx.Node]) -> bool:
    """One shape, type and layout, and both views of the same place, or both new memory."""
    if not same_type(first, second):
        return False
    given = graph.storages(read)
    for one, other in zip(parts_of(first), parts_of(second), strict=True):
        if not one.same_strides(other) or (one.storage in given) != (other.storage in given):
            return False
        one_place = one.storage == other.storage and same(one.offset, other.offset)
        if one.storage in given and not one_place:
            return False
    return True
