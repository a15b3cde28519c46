"""Softmaxes side by side."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import agreement
from passwright.passes.ops import Softmax
from passwright.passes.pattern import Exactness, Match


class BatchSoftmaxes(HorizontalPattern):
    """Softmaxes of equal shape along one dim become one softmax of the stack.

    softmax(x_i, d)   ==>   softmax(stack(x), d + 1).unbind()

    Pays where the inputs are pieces of one batch, as gates and attention heads are.
    """

    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Softmax})
    conditions = (
        "the same dim; all softmax or all log-softmax",
        "inputs of equal shape and type, each another value",
    )

    def key(self, graph: GraphView, op: Softmax) -> Hashable | None:
        source, result = graph.spec(op.input), graph.spec(op.node)
        # Autocast alone may give another type, and gives it to the batch as well.
        cast = bool(graph.mode(graph.region(op.node)).autocasts)
        if source.ndim == 0 or (source.dtype != result.dtype and not cast):
            return None
        return (op.dim, op.log, agreement(graph, op, op.input))

    def divide(self, graph: GraphView, ops: Sequence[Softmax]) -> Iterable[Sequence[Softmax]]:
        return (ops,) if len({op.input for op in ops}) > 1 else ()

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        x = edit.stack([op.input for op in m.members], 0)
        outputs = edit.unbind(edit.softmax(x, m.anchor.dim + 1, log=m.anchor.log), 0)
        for op, output in zip(m.members, outputs, strict=True):
            edit.replace(op.node, output)
