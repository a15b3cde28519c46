"""Ops that change nothing."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import escapes, is_written, may_become, same_gradient
from passwright.passes.ops import Attention, Convolution, Identity, MultiHeadAttention
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
        "a copy is not removed where it or its input is written, or its memory is seen outside",
        "no `contiguous` behind a kernel that lays its result as it likes (attention, convolution)",
    )

    def matches(self, graph: GraphView, op: Identity) -> Iterator[Match]:
        if not graph.is_pure(op.node) or not may_become(graph, op.node, op.input):
            return
        if not same_gradient(graph, op.node, op.input):
            return
        if op.node.target == "contiguous" and not _lies_as_foretold(graph, op.input):
            return
        shared = graph.storages([op.node]) == graph.storages([op.input])
        # Of a value that is seen outside another copy would have to be made.
        unseen = not is_written(graph, op.node, op.input) and not escapes(graph, op.node)
        if shared or unseen:
            yield match(op, op.input)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, m.anchor.input)


def _lies_as_foretold(graph: GraphView, value: fx.Node) -> bool:
    """The value lies in memory as fake tensors say, whatever kernel computes it."""
    while True:
        above = [n for n in value.all_input_nodes if graph.storages([n]) & graph.storages([value])]
        if not above:
            break
        value = above[0]
    if value.op in ("placeholder", "get_attr"):
        return True
    op = graph.read(value)
    return op is not None and not isinstance(op, (Attention, Convolution, MultiHeadAttention))
