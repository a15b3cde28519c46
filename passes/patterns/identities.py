"""Ops that change nothing."""

from __future__ import annotations

from collections.abc import Iterator

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import is_written, may_become, same_gradient
from passwright.passes.ops import Identity
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match


class RemoveIdentity(Pattern):
    """What returns its input as it is gives way to the input.

    dropout(x, p=0); x.float() of a float32; x.contiguous() of a contiguous   ==>   x

    Such nodes stand between the ops that other patterns want to see side by side.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Identity})
    cleanup = True
    normalizes = True
    conditions = (
        "an input or output of the graph does not become another output",
        "a copy is not removed where it or its input is written",
    )

    def matches(self, graph: GraphView, op: Identity) -> Iterator[Match]:
        if not graph.is_pure(op.node) or not may_become(graph, op.node, op.input):
            return
        if not same_gradient(graph, op.node, op.input):
            return
        shared = graph.storages([op.node]) == graph.storages([op.input])
        if shared or not is_written(graph, op.node, op.input):
            yield match(op, op.input)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, m.anchor.input)
