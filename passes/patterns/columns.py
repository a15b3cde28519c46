"""Conversions of columns of one tensor."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import batchable, only_user, undisturbed
from passwright.passes.ops import Cat, Convert, Reshape, Stack
from passwright.passes.parts import Run, runs_in
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match


class ConvertBelowJoin(Pattern):
    """Columns of one tensor that are converted and put side by side again are converted at once.

    cat([x[:, 0:1].long(), x[:, 1:2].long()], 1)   ==>   cat([x[:, 0:1], x[:, 1:2]], 1).long()

    The cat of the columns is then a part of x, by other clean-ups.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Cat, Stack})
    cleanup = True
    conditions = (
        "consecutive parts of one tensor, along the dim of the cat or along any for a stack",
        "every conversion is to one type, and has no other user",
        "no writes between",
    )

    def matches(self, graph: GraphView, join: Cat | Stack) -> Iterator[Match]:
        converts = [_convert(graph, node, join.node) for node in join.inputs]
        found = [op for op in converts if op is not None]
        if len(found) != len(converts) or len({op.node for op in found}) < max(2, len(found)):
            return
        if len({op.dtype for op in found}) > 1 or not batchable(graph, join.node):
            return
        runs = runs_in(graph, [op.input for op in found])
        if len(runs) > 1 or not isinstance(runs[0], Run):
            return
        if isinstance(join, Cat) and runs[0].dim != join.dim:
            return
        nodes = [op.node for op in found]
        if {graph.region(node) for node in nodes} != {graph.region(join.node)}:
            return
        if undisturbed(graph, join.node, *nodes):
            yield match(join, *nodes, *_between(join, nodes), converts=found)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        columns = [op.input for op in m.converts]
        build = edit.stack if isinstance(m.anchor, Stack) else edit.cat
        joined = build(columns, m.anchor.dim)
        edit.replace(m.anchor.node, edit.convert(joined, m.converts[0].dtype))


def _convert(graph: GraphView, node: fx.Node, join: fx.Node) -> Convert | None:
    """The conversion behind an input of the join, if nobody else uses it."""
    op = graph.producer(node, Convert)
    if op is None or not batchable(graph, node):
        return None
    if only_user(graph, node, join):
        return op
    (user, *others) = node.users
    reshaped = not others and isinstance(graph.read(user), Reshape)
    return op if reshaped and only_user(graph, user, join) else None


def _between(join: Cat | Stack, nodes: list[fx.Node]) -> list[fx.Node]:
    """The unsqueezes of which a stack in ATen-IR is made."""
    return [user for node in nodes for user in node.users if user is not join.node]
