"""Dropouts side by side."""

from __future__ import annotations

from collections.abc import Hashable

import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.effects import only_draws
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import agreement, is_written
from passwright.passes.ops import Dropout
from passwright.passes.pattern import TORCH_IR, Exactness, Match
from passwright.passes.spec import Spec


class BatchDropouts(HorizontalPattern):
    """Dropouts of equal shape become one of the stacked inputs.

    dropout(x_i, p)   ==>   dropout(stack(x), p).unbind()

    Other elements are dropped than before, with the same probability: a seed no longer gives the same
    run. Known from Optimus' batch_dropout.
    """

    exactness = Exactness.RELAXED
    anchors = frozenset({Dropout})
    levels = frozenset({TORCH_IR})
    conditions = (
        "inputs of equal shape and type, the same probability",
        "the user accepts another random stream",
    )

    def key(self, graph: GraphView, op: Dropout) -> Hashable | None:
        return (repr(op.p), agreement(graph, op, op.input))

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        x = edit.stack([op.input for op in m.members], 0)
        y = edit.draw(F.dropout, x, m.anchor.p, True)
        for op, output in zip(m.members, edit.unbind(y, 0), strict=True):
            edit.replace(op.node, output)
            edit.remove(op.node)

    def is_plain(self, graph: GraphView, node: fx.Node) -> bool:
        specs = [graph.any_spec(value) for value in (node, *node.all_input_nodes)]
        strided = all(isinstance(s, Spec) and s.layout is torch.strided for s in specs)
        return strided and only_draws(node) and not is_written(graph, node)
