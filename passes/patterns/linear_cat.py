"""Linears of inputs put together, and Linears whose results are added."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, groupby

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import (
    batchable,
    can_reshape_to,
    is_written,
    only_user,
    same,
    same_shape,
    undisturbed,
)
from passwright.passes.ops import Binary, Cat, Expand, Linear, Reshape
from passwright.passes.pattern import TORCH_IR, Direction, Exactness, Match, Pattern, match
from passwright.passes.precision import products_agree
from passwright.passes.spec import static


class LinearOfCat(Pattern):
    """A Linear of a cat in which one part is a broadcast value computes that part once.

    linear(cat([q.expand(b, t, n), k], -1), w, c)   ==>   linear(k, w[:, n:], c) + linear(q, w[:, :n])

    Target attention lays the target beside each step of a history: t times the same product.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Linear})
    levels = frozenset({TORCH_IR})
    conditions = (
        "a cat along the last dim, used by Linears alone; a reshape between may merge leading dims",
        "some parts expanded along leading dims, and some not",
        "one floating-point type, or autocast that the graph shows",
    )

    def matches(self, graph: GraphView, op: Linear) -> Iterator[Match]:
        view = graph.producer(op.input, Reshape)
        cat = graph.producer(view.input if view else op.input, Cat)
        if cat is None or cat.dim != graph.ndim(cat.node) - 1 or not batchable(graph, op.node):
            return
        widths = [static(graph.shape(node)[-1]) for node in cat.inputs]
        shape = graph.spec(op.node).shape
        if None in widths or not same(graph.shape(op.input)[-1], graph.shape(cat.node)[-1]):
            return
        between = {cat.node} | ({view.node} if view else set())
        readers = {user for node in between for user in node.users} - between
        if not all(isinstance(graph.read(user), Linear) for user in readers):
            return
        sources = [_unexpanded(graph, node) for node in cat.inputs]
        known = [source for source in sources if source is not None]
        if not known or len(known) == len(sources) or not can_reshape_to(shape):
            return
        if not products_agree(graph, [op.node], op.input, op.weight, *known):
            return
        if is_written(graph, cat.node, *cat.inputs, *known):
            return
        if undisturbed(graph, op.node, *between, *cat.inputs):
            bounds = list(accumulate((w for w in widths if w is not None), initial=0))
            roles = {"cat": cat, "sources": sources, "bounds": bounds}
            yield match(op, cat, **roles, parameters={"expanded": len(known)})

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        op, bounds = m.anchor, m.bounds
        kept: list[fx.Node] = []
        columns: list[fx.Node] = []
        broadcast: list[fx.Node] = []
        # Neighbours that stay share one slice of the weight; -1 stands for them.
        keys = [-1 if source is None else i for i, source in enumerate(m.sources)]
        for key, group in groupby(range(len(keys)), key=keys.__getitem__):
            at = list(group)
            weight = edit.slice(op.weight, 1, bounds[at[0]], bounds[at[-1] + 1])
            if key < 0:
                kept += [m.cat.inputs[i] for i in at]
                columns.append(weight)
            else:
                broadcast.append(edit.linear(m.sources[key], weight, None))
        total = edit.linear(edit.cat(kept, m.cat.dim), edit.cat(columns, 1), op.bias)
        for term in broadcast:
            total = edit.add(total, term)
        edit.replace(op.node, edit.reshape(total, edit.view.spec(op.node).shape))


class LinearsAdded(Pattern):
    """The sum of two Linears is one Linear of both inputs side by side.

    linear(x, v, b) + linear(h, w, c)   ==>   linear(cat([x, h], -1), cat([v, w], 1), b + c)

    The gates of a recurrent cell are such sums.
    """

    direction = Direction.HORIZONTAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Binary})
    conditions = (
        "a plain sum of two Linears of one shape, which have no other user",
        "biases of one number a feature, or none",
    )

    def matches(self, graph: GraphView, op: Binary) -> Iterator[Match]:
        left, right = graph.producer(op.left, Linear), graph.producer(op.right, Linear)
        if op.function != "add" or dict(op.params).get("alpha", 1) != 1 or not left or not right:
            return
        if left.node is right.node or not _may_join(graph, op, left, right):
            return
        if undisturbed(graph, op.node, left.node, right.node):
            yield match(op, left, right, left=left, right=right)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        left, right = m.left, m.right
        biases = [op.bias for op in (left, right) if op.bias is not None]
        bias = edit.add(*biases) if len(biases) == 2 else (biases or [None])[0]
        x = edit.cat([left.input, right.input], edit.view.ndim(left.input) - 1)
        weight = edit.cat([left.weight, right.weight], 1)
        edit.replace(m.anchor.node, edit.linear(x, weight, bias))


def _unexpanded(graph: GraphView, node: fx.Node) -> fx.Node | None:
    """What the value repeats along leading dims alone, if it does."""
    op = graph.producer(node, Expand)
    if op is None:
        return None
    before, after = graph.spec(op.input).shape, graph.spec(node).shape
    if not before or not same(before[-1], after[-1]) or same_shape(before, after):
        return None
    return op.input


def _may_join(graph: GraphView, op: Binary, left: Linear, right: Linear) -> bool:
    nodes = (left.node, right.node)
    shapes = [graph.spec(node).shape for node in (op.node, *nodes)]
    if not all(same_shape(shape, shapes[0]) for shape in shapes[1:]):
        return False
    inputs = [graph.spec(linear.input).shape[:-1] for linear in (left, right)]
    if not same_shape(*inputs) or len({graph.region(node) for node in (op.node, *nodes)}) > 1:
        return False
    # A recorded and an unrecorded Linear become one that is recorded, as their sum is.
    alone = all(batchable(graph, node) and only_user(graph, node, op.node) for node in nodes)
    if not alone or not batchable(graph, op.node):
        return False
    given = [linear.bias for linear in (left, right) if linear.bias is not None]
    features = graph.shape(left.weight)[0]
    if not all(len(graph.shape(b)) == 1 and same(graph.shape(b)[0], features) for b in given):
        return False
    operands = (left.input, right.input, left.weight, right.weight, *given)
    return products_agree(graph, (op.node, *nodes), *operands)
