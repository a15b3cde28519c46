"""Linears side by side."""

from __future__ import annotations

from collections.abc import Hashable

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import agreement
from passwright.passes.ops import Linear
from passwright.passes.pattern import Exactness, Match


class BatchLinears(HorizontalPattern):
    """Linears of equal shape with inputs of their own become one batched GEMM.

    linear(x_i, w_i, b_i)   ==>   baddbmm(stack(b), stack(x), stack(w).mT).unbind()
    """

    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Linear})

    def key(self, graph: GraphView, op: Linear) -> Hashable | None:
        if graph.ndim(op.input) != 2:
            return None
        return agreement(graph, op, op.input, op.weight, op.bias)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        x = edit.stack([op.input for op in m.members], 0)
        w = edit.stack([op.weight for op in m.members], 0)
        b = edit.stack([op.bias for op in m.members], 0) if m.anchor.bias is not None else None
        outputs = edit.unbind(edit.batched_linear(x, w, b), 0)
        for op, output in zip(m.members, outputs, strict=True):
            edit.replace(op.node, output)
