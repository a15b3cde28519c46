"""Counters side by side."""

from __future__ import annotations

from collections.abc import Hashable

import torch

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import agreement
from passwright.passes.ops import InplaceBinary
from passwright.passes.pattern import TORCH_IR, Exactness, Match


class BatchCounters(HorizontalPattern):
    """Additions of one number to tensors that are state become one call.

    n_0.add_(1); n_1.add_(1)   ==>   _foreach_add_([n_0, n_1], 1)

    That is what a batch norm does to its `num_batches_tracked`: one kernel a layer, of one element.
    """

    exactness = Exactness.BITWISE
    anchors = frozenset({InplaceBinary})
    levels = frozenset({TORCH_IR})
    with_state = True
    sizes = ()  # one call for all is never worse
    conditions = (
        "the same number added, without alpha",
        "tensors of one type that need no gradient and that nobody else touches",
        "nobody uses the result",
    )

    def key(self, graph: GraphView, op: InplaceBinary) -> Hashable | None:
        plain = op.function == "add" and type(op.right) in (int, float)
        if not plain or dict(op.params).get("alpha", 1) != 1:
            return None
        if op.node.users or graph.needs_grad(op.left) or graph.is_pure(op.node):
            return None
        device = graph.spec(op.left).device
        return (repr(op.right), device, agreement(graph, op))

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        counted = [op.left for op in m.members]
        edit.write(torch._foreach_add_, counted, m.anchor.right, spec=())
        for op in m.members:
            edit.remove(op.node)
