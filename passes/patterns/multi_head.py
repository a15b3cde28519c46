"""Multi-head attention by torch's own function."""

from __future__ import annotations

import operator
from collections.abc import Iterator

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import batchable
from passwright.passes.ops import MultiHeadAttention
from passwright.passes.pattern import TORCH_IR, Direction, Exactness, Match, Pattern, match

#: Where the function takes `need_weights`.
_POSITION = 15


class DropAttentionWeights(Pattern):
    """Multi-head attention whose weights nobody reads does not return them.

    multi_head_attention_forward(...)[0]   ==>   multi_head_attention_forward(..., need_weights=False)[0]

    Without weights to return torch takes the attention kernel, as in fuse_attention. Modules ask for
    weights unless told otherwise.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({MultiHeadAttention})
    levels = frozenset({TORCH_IR})
    conditions = (
        "the weights have no user; no dropout that is switched on",
        "no mask: a row without any key gives NaN in one form and 0 in the other",
    )

    def matches(self, graph: GraphView, op: MultiHeadAttention) -> Iterator[Match]:
        taken = graph.users(op.node)
        if not op.need_weights or op.masked or op.dropout > 0 or not batchable(graph, op.node):
            return
        if len({graph.region(node) for node in (op.node, *taken)}) > 1:
            return
        if taken and all(_is_first(node, op.node) for node in taken):
            yield match(op, *taken, taken=taken)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        node = m.anchor.node
        kwargs = {name: value for name, value in node.kwargs.items() if name != "need_weights"}
        if len(node.args) > _POSITION:
            args = (*node.args[:_POSITION], False, *node.args[_POSITION + 1 :])
        else:
            args, kwargs = node.args, {**kwargs, "need_weights": False}
        result = edit.call(operator.getitem, edit.call(node.target, *args, **kwargs), 0)
        for old in m.taken:
            edit.replace(old, result)


def _is_first(node: fx.Node, source: fx.Node) -> bool:
    """The node takes the first output."""
    return node.target is operator.getitem and node.args == (source, 0)
