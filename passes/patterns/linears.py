"""Linears side by side."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import agreement
from passwright.passes.ops import Linear
from passwright.passes.pattern import Exactness, Match
from passwright.passes.spec import static


class BatchLinears(HorizontalPattern):
    """Linears of equal shape with inputs of their own become one batched GEMM.

    linear(x_i, w_i, b_i)   ==>   baddbmm(stack(b), stack(x), stack(w).mT).unbind()

    Inputs of rank 3 and more are rows of a matrix for as long as the GEMM takes. The idea is known
    from Optimus' batch_linear.
    """

    lasting_key = True
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Linear})
    conditions = (
        "inputs of equal shape and weights of equal shape, each input another value",
        "bias in all or in none",
        "at most one symbolic size among the leading dims",
        "not all of one weight (see tall_linears)",
    )

    def key(self, graph: GraphView, op: Linear) -> Hashable | None:
        rows = graph.shape(op.input)[:-1]
        symbolic = sum(static(size) is None for size in rows)
        if not rows or symbolic > 1 or not _is_regular(graph, op):
            return None
        return agreement(graph, op, op.input, op.weight, op.bias)

    def divide(self, graph: GraphView, ops: Sequence[Linear]) -> Iterable[Sequence[Linear]]:
        for group in distinct_inputs(ops):
            if len({op.weight for op in group}) > 1:
                yield group

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        shape = edit.view.shape(m.anchor.input)
        x = edit.stack([op.input for op in m.members], 0)
        w = edit.stack([op.weight for op in m.members], 0)
        b = edit.stack([op.bias for op in m.members], 0) if m.anchor.bias is not None else None
        count, width = edit.view.shape(w)[:2]
        if len(shape) > 2:
            x = edit.reshape(x, (count, math.prod(shape[:-1]), shape[-1]))
        y = edit.batched_linear(x, w, b)
        if len(shape) > 2:
            y = edit.reshape(y, (count, *shape[:-1], width))
        for op, output in zip(m.members, edit.unbind(y, 0), strict=True):
            edit.replace(op.node, output)


class TallLinears(HorizontalPattern):
    """Linears with one weight and inputs of their own become one Linear of the stacked inputs.

    linear(x_i, w, b)   ==>   linear(stack(x), w, b).unbind()
    """

    lasting_key = True
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Linear})
    conditions = ("the same weight and bias", "inputs of equal shape, each another value")

    def key(self, graph: GraphView, op: Linear) -> Hashable | None:
        if not _is_regular(graph, op):
            return None
        return (op.weight, op.bias, agreement(graph, op, op.input, op.weight, op.bias))

    def divide(self, graph: GraphView, ops: Sequence[Linear]) -> Iterable[Sequence[Linear]]:
        return distinct_inputs(ops)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        x = edit.stack([op.input for op in m.members], 0)
        outputs = edit.unbind(edit.linear(x, m.anchor.weight, m.anchor.bias), 0)
        for op, output in zip(m.members, outputs, strict=True):
            edit.replace(op.node, output)


class WidenLinears(HorizontalPattern):
    """Linears that share one input become one wide GEMM, whose result is split.

    linear(x, w_i, b_i)   ==>   linear(x, cat(w), cat(b)).split(widths, -1)

    A member without bias gets zeros for one when others have a bias. Known from Optimus'
    batch_linear_lhs and cat_linear, which want equal widths or find the first pair alone.
    """

    lasting_key = True
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Linear})
    conditions = ("the same input", "weights of one type, of any widths", "known widths")

    def key(self, graph: GraphView, op: Linear) -> Hashable | None:
        if static(graph.shape(op.weight)[0]) is None or not _is_regular(graph, op):
            return None
        weight = graph.spec(op.weight)
        return (op.input, weight.dtype, weight.device, agreement(graph, op, op.input))

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        # Members without bias go last, so that one tensor of zeros serves them all.
        members = sorted(m.members, key=lambda op: op.bias is None)
        widths = [edit.view.shape(op.weight)[0] for op in members]
        biases = [op.bias for op in members if op.bias is not None]
        bias: fx.Node | None = None
        if biases:
            missing = sum(widths[len(biases) :])
            zeros = [edit.zeros((missing,), like=members[-1].weight)] if missing else []
            bias = edit.cat([*biases, *zeros], 0)
        wide = edit.linear(m.anchor.input, edit.cat([op.weight for op in members], 0), bias)
        outputs = edit.split(wide, widths, edit.view.ndim(wide) - 1)
        for op, output in zip(members, outputs, strict=True):
            edit.replace(op.node, output)


def distinct_inputs(ops: Sequence[Linear]) -> list[list[Linear]]:
    """Groups without a common input: the first op of each input, then the second, and so on."""
    seen: dict[fx.Node, int] = defaultdict(int)
    groups: dict[int, list[Linear]] = defaultdict(list)
    for op in ops:
        groups[seen[op.input]].append(op)
        seen[op.input] += 1
    return list(groups.values())


def _is_regular(graph: GraphView, op: Linear) -> bool:
    """The bias, if any, is one number for each output feature, of the weight's type."""
    if op.bias is None:
        return True
    weight, bias = graph.spec(op.weight), graph.spec(op.bias)
    return bias.dtype == weight.dtype and list(map(str, bias.shape)) == [str(weight.shape[0])]
