"""Weighted sums, as a mixture of experts forms them: `sum_e gate[e] * expert[e]`."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import torch
from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import (
    agreement,
    batchable,
    can_reshape_to,
    is_written,
    only_user,
    same,
    same_shape,
    undisturbed,
)
from passwright.passes.ops import Binary, Matmul, Reduce
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.precision import autocasts, one_type, sum_may_be_product
from passwright.passes.spec import Size, static

#: More terms than this are a matrix product's business.
_FEW = 16


@dataclass(frozen=True)
class WeightedSum:
    """`(weights * values).sum(-2)`: weights (..., count, 1) and values (..., count, width)."""

    reduce: Reduce
    product: Binary
    weights: fx.Node
    values: fx.Node


class BatchWeightedSums(HorizontalPattern):
    """Weighted sums of the same values become one batched product.

    (g_t * x).sum(1)   ==>   bmm(cat(g, 1), x).unbind(1)     g_t (b, e, 1), x (b, e, d)

    In a multi-gate mixture of experts the experts are read once instead of once for each task.
    """

    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Reduce})
    conditions = (
        "the same values, weights of equal shape",
        "the products have no other user, and nobody writes the operands",
        "no autocast, and no TF32 in place of float32",
    )

    def key(self, graph: GraphView, op: Reduce) -> Hashable | None:
        found = weighted_sum(graph, op)
        if found is None or not _is_exact_product(graph, found):
            return None
        return (found.values, op.keepdim, agreement(graph, op, found.weights))

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        found = [weighted_sum(edit.view, op) for op in m.members]
        sums = [each for each in found if each is not None]
        dim = edit.view.ndim(sums[0].values) - 2
        rows = edit.cat([_row(edit, each.weights) for each in sums], dim)
        y = edit.matmul(rows, sums[0].values)
        if m.anchor.keepdim:
            outputs = edit.split(y, [1] * len(sums), dim)
        else:
            outputs = edit.unbind(y, dim)
        for op, output in zip(m.members, outputs, strict=True):
            edit.replace(op.node, output)


class WeightedSumAsMatmul(Pattern):
    """A weighted sum written as product and sum becomes a matrix product with one row.

    (g * x).sum(1)   ==>   matmul(g.mT, x).squeeze(1)     g (b, e, 1), x (b, e, d)
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Reduce})
    conditions = BatchWeightedSums.conditions[1:]

    def matches(self, graph: GraphView, op: Reduce) -> Iterator[Match]:
        found = weighted_sum(graph, op)
        if found is not None and batchable(graph, op.node) and _is_exact_product(graph, found):
            yield match(op, found.product, found=found)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        found: WeightedSum = m.found
        y = edit.matmul(_row(edit, found.weights), found.values)
        edit.replace(m.anchor.node, edit.reshape(y, edit.view.spec(m.anchor.node).shape))


class MatmulAsWeightedSum(Pattern):
    """A product with one row or one column and few terms becomes a pointwise product and a sum.

    matmul(g, x)   ==>   (g.mT * x).sum(-2, keepdim=True)     g (b, 1, e), x (b, e, d)
    matmul(x, g)   ==>   (x * g.mT).sum(-1, keepdim=True)     x (b, d, e), g (b, e, 1)

    A compiler fuses these with what stands before and after. The idea is known from Optimus'
    decompose_bmm.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Matmul})
    conditions = (
        "equal leading dims, at least one",
        f"at most {_FEW} terms",
        "one floating-point type, no autocast; 16 bits are added up in float32, as a GEMM does",
    )

    def matches(self, graph: GraphView, op: Matmul) -> Iterator[Match]:
        left, right = graph.spec(op.left).shape, graph.spec(op.right).shape
        terms = static(left[-1])
        if len(left) < 3 or not same_shape(left[:-2], right[:-2]) or terms is None:
            return
        row, column = static(left[-2]) == 1, static(right[-1]) == 1
        if terms > _FEW or row == column or not batchable(graph, op.node):
            return
        vector = left if row else right
        if not one_type(graph, op.node, op.left, op.right) or autocasts(graph, op.node):
            return
        if can_reshape_to(vector):
            yield match(op, row=row, parameters={"terms": terms})

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        op: Matmul = m.anchor
        last, dtype = edit.view.ndim(op.node) - 1, edit.view.spec(op.node).dtype
        wide = torch.float32 if dtype.itemsize < torch.float32.itemsize else dtype
        left, right = edit.convert(op.left, wide), edit.convert(op.right, wide)
        if m.row:
            product = edit.mul(_row(edit, left), right)
        else:
            product = edit.mul(left, _row(edit, right))
        total = edit.reduce("sum", product, [last - m.row], keepdim=True)
        edit.replace(op.node, edit.convert(total, dtype))


def weighted_sum(graph: GraphView, op: Reduce) -> WeightedSum | None:
    """The weighted sum that a reduction is, if it is one and nothing else sees the products."""
    product = graph.producer(op.input, Binary)
    rank = graph.ndim(op.input)
    if op.function != "sum" or op.dims != (rank - 2,) or product is None or rank < 3:
        return None
    if product.function != "mul" or not only_user(graph, product.node, op.node):
        return None
    left, right = product.left, product.right
    if not isinstance(left, fx.Node) or not isinstance(right, fx.Node):
        return None
    for weights, values in (left, right), (right, left):
        if _fits(graph.spec(weights).shape, graph.spec(values).shape):
            steady = undisturbed(graph, product.node, op.node)
            if not steady or is_written(graph, product.node, weights, values):
                return None
            alike = graph.region(product.node) == graph.region(op.node)
            alike = alike and one_type(graph, op.node, weights, values)
            return WeightedSum(op, product, weights, values) if alike else None
    return None


def _fits(weights: tuple[Size, ...], values: tuple[Size, ...]) -> bool:
    """One weight for each row of the values, and rows of more than one number."""
    if len(weights) != len(values) or static(values[-1]) in (None, 1):
        return False
    alike = all(map(same, weights[:-1], values[:-1]))
    return alike and static(weights[-1]) == 1 and can_reshape_to(weights)


def _is_exact_product(graph: GraphView, found: WeightedSum) -> bool:
    return sum_may_be_product(graph, found.reduce.node, found.weights, found.values)


def _row(edit: GraphEditor, vector: fx.Node) -> fx.Node:
    """(..., n, 1) as (..., 1, n), or the other way round."""
    shape = edit.view.spec(vector).shape
    return edit.reshape(vector, (*shape[:-2], shape[-1], shape[-2]))
