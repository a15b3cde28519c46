"""Linears with a single input or output feature, as pointwise arithmetic.

A GEMM with an inner or outer dim of 1 is all launch and no work; products and sums are fused into
what stands around them. Dense fields of a recommendation model are embedded by such Linears.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import torch
from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import agreement, batchable
from passwright.passes.ops import Linear
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.precision import autocasts, one_type
from passwright.passes.spec import static

#: Rounded after each operation, where a GEMM rounds once.
_SHORT = frozenset({torch.float16, torch.bfloat16})


class LinearOfOne(Pattern):
    """A Linear of one input feature is a product with broadcasting.

    linear(x, w, b)   ==>   x * w.reshape(d) + b   where x is (..., 1) and w is (d, 1)

    In 16 bits the arithmetic is done in float32, so that the result is rounded once as in a GEMM.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Linear})
    conditions = ("weight (d, 1), d known", "all of one floating-point type", "no autocast")

    def matches(self, graph: GraphView, op: Linear) -> Iterator[Match]:
        if is_plain_linear(graph, op) and static(graph.shape(op.weight)[1]) == 1:
            yield match(op)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        op: Linear = m.anchor
        row = edit.reshape(op.weight, edit.view.shape(op.weight)[:1])
        scaled = edit.mul(_long(edit, op.input), _long(edit, row))
        edit.replace(op.node, _with_bias(edit, scaled, op.bias, edit.view.spec(op.node).dtype))


class LinearToOne(Pattern):
    """A Linear of one output feature is a sum of products.

    linear(x, w, b)   ==>   (x * w.reshape(k)).sum(-1, keepdim=True) + b   where w is (1, k)

    In 16 bits the arithmetic is done in float32, as in a GEMM.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Linear})
    conditions = ("weight (1, k), k known", "all of one floating-point type", "no autocast")

    def matches(self, graph: GraphView, op: Linear) -> Iterator[Match]:
        if is_plain_linear(graph, op) and static(graph.shape(op.weight)[0]) == 1:
            yield match(op)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        op: Linear = m.anchor
        row = edit.reshape(op.weight, edit.view.shape(op.weight)[1:])
        scaled = edit.mul(_long(edit, op.input), _long(edit, row))
        total = edit.reduce("sum", scaled, [edit.view.ndim(scaled) - 1], True)
        edit.replace(op.node, _with_bias(edit, total, op.bias, edit.view.spec(op.node).dtype))


class LinearsOfOne(HorizontalPattern):
    """Linears of one input feature each, side by side, are one product of all their columns.

    linear(x_i, w_i, b_i)   ==>   (cat(x, -1).unsqueeze(-1) * stack(w) + stack(b)).unbind(-2)

    for x_i (..., 1), as columns of one tensor are; the results lie side by side as their cat or
    stack wants them.
    """

    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Linear})
    conditions = (
        "weights (d, 1) of one shape, d known",
        "inputs of one shape",
        "bias in all or in none",
        "all of one floating-point type",
        "no autocast",
    )

    def key(self, graph: GraphView, op: Linear) -> Hashable | None:
        if not is_plain_linear(graph, op) or static(graph.shape(op.weight)[1]) != 1:
            return None
        symbolic = sum(static(size) is None for size in graph.shape(op.input))
        return agreement(graph, op, op.input, op.weight, op.bias) if symbolic < 2 else None

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        ops, dim = m.members, edit.view.ndim(m.anchor.input) - 1
        columns = edit.cat([op.input for op in ops], dim)
        rows = edit.stack([op.weight for op in ops], 0)
        count, width = edit.view.shape(rows)[:2]
        rows = edit.reshape(rows, (count, width))
        scaled = edit.mul(_long(edit, edit.unsqueeze(columns, dim + 1)), _long(edit, rows))
        bias = edit.stack([op.bias for op in ops], 0) if m.anchor.bias is not None else None
        joined = _with_bias(edit, scaled, bias, edit.view.spec(m.anchor.node).dtype)
        for op, output in zip(ops, edit.unbind(joined, dim), strict=True):
            edit.replace(op.node, output)


def is_plain_linear(graph: GraphView, op: Linear) -> bool:
    """All tensors have one floating-point type, the weight's sizes are known, a bias is one number
    for each output feature, and no autocast holds."""
    width, features = (static(size) for size in graph.shape(op.weight))
    values = [op.input, op.weight, *([op.bias] if op.bias is not None else [])]
    if not width or not features or not graph.shape(op.input)[:-1]:
        return False
    if op.bias is not None and graph.shape(op.bias) != (width,):
        return False
    if not batchable(graph, op.node) or autocasts(graph, op.node):
        return False
    return one_type(graph, op.node, *values)


def _long(edit: GraphEditor, x: fx.Node) -> fx.Node:
    """`x` in the type in which a GEMM of its type adds up."""
    return edit.convert(x, torch.float32) if edit.view.spec(x).dtype in _SHORT else x


def _with_bias(edit: GraphEditor, x: fx.Node, bias: fx.Node | None, dtype: torch.dtype) -> fx.Node:
    whole = x if bias is None else edit.add(x, _long(edit, bias))
    return edit.convert(whole, dtype)
