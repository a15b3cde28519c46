"""Cats and stacks that take the same few values again and again, as pairs of fields are written."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.gathers import Rows, gather, pairs_of, rows_of, take, whole_table
from passwright.passes.graph import GraphView
from passwright.passes.legality import (
    batchable,
    can_reshape_to,
    consecutive,
    is_written,
    only_user,
    same_gradient,
    same_shape,
    undisturbed,
)
from passwright.passes.ops import Binary, Cat, Reduce, Stack
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.patterns.pairs import pairs_in, products_in
from passwright.passes.precision import one_type, sum_may_be_product

#: Fewer inputs than this are cheap to copy one by one.
_AT_LEAST = 8
#: How many times more products a square of all pairs may hold than are wanted.
_SPARE_PAIRS = 4


class CatOfRepeats(Pattern):
    """A cat or stack of many inputs that are few values is a gather from a cat of those.

    cat([a, a, a, b, b, c], 1)   ==>   cat([a, b, c], 1)[:, [0, 0, 0, 1, 1, 2]]

    So for inputs that are cut, out of order, from a few tensors. Values are the same bit for bit; the
    gradients of what occurs many times are added up in another order.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Cat, Stack})
    conditions = (
        f"{_AT_LEAST} inputs or more, at most half as many values (or tensors they are cut from)",
        "in a cat, of size 1 along its dim",
        "floating point, no writes",
    )

    def matches(self, graph: GraphView, join: Cat | Stack) -> Iterator[Match]:
        if len(join.inputs) < _AT_LEAST or not one_type(graph, join.node, *join.inputs):
            return
        rows = rows_of(graph, join.inputs, join.dim, stacks=isinstance(join, Stack))
        if rows is None or 2 * len(rows.tables) > len(join.inputs) or consecutive(rows.indices):
            return
        if is_written(graph, join.node, *rows.tables) or not batchable(graph, join.node):
            return
        same = same_gradient(graph, join.node, *rows.tables)
        if same and undisturbed(graph, join.node, *join.inputs, *rows.via):
            yield match(join, rows=rows, parameters={"inputs": len(join.inputs)})

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, gather(edit, m.rows, whole_table(edit, m.rows)))


class InnerProductsAsMatmul(Pattern):
    """Inner products of many pairs of few vectors are picked from the product of all with all.

    (cat([a, a, b], 1) * cat([b, c, c], 1)).sum(-1)
        ==>   x = cat([a, b, c], 1); matmul(x, x.mT).flatten(1)[:, [1, 2, 5]]

    So for a cat or stack of products that is summed along its last dim.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Reduce})
    conditions = (
        f"{_AT_LEAST} pairs or more of few vectors, and not fewer than one in {_SPARE_PAIRS} of all",
        "the products have no other user, and nobody writes the operands",
        "no autocast, and no TF32 in place of float32",
    )

    def matches(self, graph: GraphView, op: Reduce) -> Iterator[Match]:
        rank = graph.ndim(op.input)
        if op.function != "sum" or op.dims != (rank - 1,) or rank < 3:
            return
        if not only_user(graph, op.input, op.node) or not batchable(graph, op.node):
            return
        sides = _pairs(graph, op.input)
        if sides is None or graph.region(op.input) != graph.region(op.node):
            return
        pairs, (left, right) = len(sides[0].indices), sides
        if pairs < _AT_LEAST or left.total * right.total > _SPARE_PAIRS * pairs:
            return
        tables = (*left.tables, *right.tables)
        if is_written(graph, *tables) or not can_reshape_to(graph.spec(op.node).shape):
            return
        steady = undisturbed(graph, op.node, op.input, *left.via, *right.via)
        if steady and sum_may_be_product(graph, op.node, *tables):
            yield match(op, op.input, sides=sides, parameters={"pairs": pairs})

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        left, right = m.sides
        x = whole_table(edit, left)
        y = x if left.tables == right.tables else whole_table(edit, right)
        last = edit.view.ndim(y) - 1
        turned = edit.permute(y, [*range(last - 1), last, last - 1])
        square = edit.matmul(x, turned)
        lead = edit.view.spec(x).shape[:-2]
        flat = edit.reshape(square, (*lead, left.total * right.total))
        places = [i * right.total + j for i, j in zip(left.indices, right.indices, strict=True)]
        picked = take(edit, flat, len(lead), places)
        edit.replace(m.anchor.node, edit.reshape(picked, edit.view.spec(m.anchor.node).shape))


def _pairs(graph: GraphView, products: fx.Node) -> tuple[Rows, Rows] | None:
    """The operands of products (..., pairs, width), written as mul(cat, cat) or as cat of muls."""
    op, dim = graph.read(products), graph.ndim(products) - 2
    if isinstance(op, Cat | Stack):
        each = products_in(graph, op) if op.dim == dim else None
        multiplies = each is not None and each[0].function == "mul"
        return pairs_in(graph, op, each) if each is not None and multiplies else None
    if not isinstance(op, Binary) or op.function != "mul" or not batchable(graph, products):
        return None
    joins = [graph.read(value) for value in (op.left, op.right)]
    left, right = joins
    if not isinstance(left, Cat | Stack) or type(left) is not type(right):
        return None
    assert isinstance(right, Cat | Stack)
    shapes = [graph.spec(join.node).shape for join in (left, right)]
    if left.dim != dim or right.dim != dim or not same_shape(*shapes):
        return None
    if len(left.inputs) != len(right.inputs) or is_written(graph, left.node, right.node):
        return None
    if len({graph.region(node) for node in (left.node, right.node, products)}) > 1:
        return None
    if not undisturbed(graph, products, left.node, right.node, *left.inputs, *right.inputs):
        return None
    return pairs_of(graph, left.inputs, right.inputs, dim, stacks=isinstance(left, Stack))
