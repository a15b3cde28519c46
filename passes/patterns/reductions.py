"""Reductions side by side."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import agreement
from passwright.passes.ops import Reduce
from passwright.passes.pattern import Exactness, Match


class BatchReductions(HorizontalPattern):
    """Reductions of equal shape over the same dims become one reduction of the stack.

    sum(x_i, dims)   ==>   sum(stack(x), dims + 1).unbind()

    So for mean, amax and amin. Pays where the inputs are pieces of one batch; a compiler fuses a
    lone reduction with what computes its input.
    """

    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Reduce})
    conditions = (
        "the same function, dims and keepdim",
        "inputs of equal shape and type, each another value",
        "autocast, which sums in another type, is not entered in the graph",
    )

    def key(self, graph: GraphView, op: Reduce) -> Hashable | None:
        # Without dims torch would reduce over all those of the stack.
        if not op.dims or graph.mode(graph.region(op.node)).autocasts:
            return None
        return (op.function, op.dims, op.keepdim, agreement(graph, op, op.input))

    def divide(self, graph: GraphView, ops: Sequence[Reduce]) -> Iterable[Sequence[Reduce]]:
        return (ops,) if len({op.input for op in ops}) > 1 else ()

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        x = edit.stack([op.input for op in m.members], 0)
        dims = [dim + 1 for dim in m.anchor.dims]
        y = edit.reduce(m.anchor.function, x, dims, m.anchor.keepdim)
        for op, output in zip(m.members, edit.unbind(y, 0), strict=True):
            edit.replace(op.node, output)
