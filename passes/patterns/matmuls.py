"""Matrix products side by side."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import agreement, batchable, can_reshape_to, same_shape
from passwright.passes.ops import Linear, Matmul
from passwright.passes.pattern import TORCH_IR, Direction, Exactness, Match, Pattern, match
from passwright.passes.spec import static


class BatchMatmuls(HorizontalPattern):
    """Matrix products of equal shapes with operands of their own become one batched product.

    matmul(a_i, b_i)   ==>   bmm(stack(a), stack(b)).unbind()

    Leading dims, which both operands share, are part of the batch for as long as the product takes.
    Where one operand is a matrix and the other is not, all rows of the other meet that matrix, as in
    a Linear. The idea is known from Optimus' batch_bmm and batch_linear.
    """

    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Matmul})
    conditions = (
        "left operands of equal shape and right operands of equal shape",
        "equal leading dims, or a matrix as one operand",
        "neither operand is the same in all (see widen_matmuls and tall_matmuls)",
        "at most one symbolic size in a shape that has leading dims",
    )

    def key(self, graph: GraphView, op: Matmul) -> Hashable | None:
        shapes = [graph.spec(node).shape for node in (op.left, op.right, op.node)]
        reshapes = any(len(shape) > 2 for shape in shapes)
        if not _is_plain(graph, op) or (reshapes and not all(map(can_reshape_to, shapes))):
            return None
        return agreement(graph, op, op.left, op.right)

    def divide(self, graph: GraphView, ops: Sequence[Matmul]) -> Iterable[Sequence[Matmul]]:
        lefts, rights = {op.left for op in ops}, {op.right for op in ops}
        return (ops,) if len(lefts) > 1 and len(rights) > 1 else ()

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        lefts = edit.stack([op.left for op in m.members], 0)
        rights = edit.stack([op.right for op in m.members], 0)
        left, right = edit.view.ndim(m.anchor.left), edit.view.ndim(m.anchor.right)
        if left == 2 < right:
            y = _rows_of_right(edit, lefts, rights)
        elif right == 2 < left:
            y = _rows_of_left(edit, lefts, rights)
        else:
            y = _batched(edit, lefts, rights)
        for op, output in zip(m.members, edit.unbind(y, 0), strict=True):
            edit.replace(op.node, output)


class WidenMatmuls(HorizontalPattern):
    """Matrix products with one left operand become one wide product, whose columns are split.

    matmul(a, b_i)   ==>   matmul(a, cat(b, -1)).split(widths, -1)

    The idea is known from Optimus' batch_linear_lhs.
    """

    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Matmul})
    conditions = (
        "the same left operand",
        "right operands alike but for the last size",
        "known widths",
    )

    def key(self, graph: GraphView, op: Matmul) -> Hashable | None:
        right = graph.spec(op.right)
        if not _is_plain(graph, op) or static(right.shape[-1]) is None:
            return None
        kind = (*map(str, right.shape[:-1]), right.dtype)
        return (op.left, kind, agreement(graph, op, op.left))

    def divide(self, graph: GraphView, ops: Sequence[Matmul]) -> Iterable[Sequence[Matmul]]:
        return (ops,) if len({op.right for op in ops}) > 1 else ()

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        rights = [op.right for op in m.members]
        wide = edit.matmul(m.anchor.left, edit.cat(rights, edit.view.ndim(rights[0]) - 1))
        widths = [edit.view.shape(node)[-1] for node in rights]
        outputs = edit.split(wide, widths, edit.view.ndim(wide) - 1)
        for op, output in zip(m.members, outputs, strict=True):
            edit.replace(op.node, output)


class TallMatmuls(HorizontalPattern):
    """Matrix products with one right operand become one tall product, whose rows are split.

    matmul(a_i, b)   ==>   matmul(cat(a, -2), b).split(heights, -2)
    matmul(a_i, b)   ==>   matmul(stack(a), b).unbind()              where b is a matrix

    Gates of several tasks over the same experts are such products.
    """

    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Matmul})
    conditions = (
        "the same right operand",
        "left operands of equal shape, or alike but for a known number of rows",
    )

    def key(self, graph: GraphView, op: Matmul) -> Hashable | None:
        left = graph.spec(op.left)
        if not _is_plain(graph, op):
            return None
        if graph.ndim(op.right) == 2:
            return (op.right, agreement(graph, op, op.left))
        if static(left.shape[-2]) is None:
            return None
        kind = (*map(str, left.shape[:-2]), str(left.shape[-1]), left.dtype)
        return (op.right, kind, agreement(graph, op, op.right))

    def divide(self, graph: GraphView, ops: Sequence[Matmul]) -> Iterable[Sequence[Matmul]]:
        return (ops,) if len({op.left for op in ops}) > 1 else ()

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        lefts = [op.left for op in m.members]
        if edit.view.ndim(m.anchor.right) == 2:
            outputs = edit.unbind(edit.matmul(edit.stack(lefts, 0), m.anchor.right), 0)
        else:
            tall = edit.matmul(edit.cat(lefts, edit.view.ndim(lefts[0]) - 2), m.anchor.right)
            heights = [edit.view.shape(node)[-2] for node in lefts]
            outputs = edit.split(tall, heights, edit.view.ndim(tall) - 2)
        for op, output in zip(m.members, outputs, strict=True):
            edit.replace(op.node, output)


class MatmulAsLinear(Pattern):
    """A product with a matrix becomes a Linear, where it then stands beside other Linears.

    matmul(x, w)   ==>   linear(x, w.mT)
    matmul(w, x)   ==>   linear(x.mT, w).mT   where x has more dims than w
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Matmul})
    levels = frozenset({TORCH_IR})
    conditions = ("a matrix as one operand", "a Linear of the same input, or of equal shapes")

    def matches(self, graph: GraphView, op: Matmul) -> Iterator[Match]:
        right = graph.ndim(op.right) == 2
        if not (right or graph.ndim(op.left) == 2) or not _is_plain(graph, op):
            return
        if not batchable(graph, op.node):
            return
        siblings = graph.memo("linears", lambda: _linears(graph))
        region = graph.region(op.node)
        x, w = (op.left, op.right) if right else (op.right, op.left)
        rows, sizes = list(graph.spec(x).shape), list(graph.spec(w).shape)
        rows, sizes = (rows, sizes[::-1]) if right else ([*rows[:-2], rows[-1], rows[-2]], sizes)
        if (region, x) in siblings or (region, str(rows), str(sizes)) in siblings:
            yield match(op, right=right, parameters={"weight": "right" if right else "left"})

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        op: Matmul = m.anchor
        if m.right:
            y = edit.linear(op.left, _turned(edit, op.right), None)
        else:
            y = _turned(edit, edit.linear(_turned(edit, op.right), op.left, None))
        edit.replace(op.node, y)


def _linears(graph: GraphView) -> set[Hashable]:
    """Inputs of Linears, and shapes of the inputs and weights, by region."""
    found: set[Hashable] = set()
    for op in graph.ops(Linear):
        region = graph.region(op.node)
        shapes = (str(list(graph.spec(node).shape)) for node in (op.input, op.weight))
        found |= {(region, op.input), (region, *shapes)}
    return found


def _is_plain(graph: GraphView, op: Matmul) -> bool:
    """Operands of one type with equal leading dims, or one of them a matrix without any."""
    node, left, right = (graph.spec(value) for value in (op.node, op.left, op.right))
    if left.dtype != right.dtype or not left.dtype.is_floating_point:
        return False
    # Another type of result: the caller's autocast, which the graph does not show.
    if node.dtype != left.dtype and not graph.mode(graph.region(op.node)).autocasts:
        return False
    if left.device != right.device:
        return False
    matrix = 2 in (left.ndim, right.ndim)
    return matrix or same_shape(left.shape[:-2], right.shape[:-2])


def _batched(edit: GraphEditor, lefts: fx.Node, rights: fx.Node) -> fx.Node:
    """(k, *lead, m, n) @ (k, *lead, n, p)."""
    shape, other = edit.view.shape(lefts), edit.view.shape(rights)
    batch = math.prod(shape[:-2])
    x = edit.reshape(lefts, (batch, *shape[-2:]))
    y = edit.matmul(x, edit.reshape(rights, (batch, *other[-2:])))
    return edit.reshape(y, (*shape[:-1], other[-1]))


def _rows_of_left(edit: GraphEditor, lefts: fx.Node, rights: fx.Node) -> fx.Node:
    """(k, *lead, m, n) @ (k, n, p), each member by a matrix of its own."""
    shape, width = edit.view.shape(lefts), edit.view.shape(rights)[-1]
    x = edit.reshape(lefts, (shape[0], math.prod(shape[1:-1]), shape[-1]))
    return edit.reshape(edit.matmul(x, rights), (*shape[:-1], width))


def _rows_of_right(edit: GraphEditor, lefts: fx.Node, rights: fx.Node) -> fx.Node:
    """(k, m, n) @ (k, *lead, n, p), by way of its transpose."""
    return _turned(edit, _rows_of_left(edit, _turned(edit, rights), _turned(edit, lefts)))


def _turned(edit: GraphEditor, x: fx.Node) -> fx.Node:
    """The last two dims swapped; of vectors, which need not move, a reshape."""
    shape = list(edit.view.spec(x).shape)
    last = len(shape) - 1
    if len(shape) > 2 and 1 in (static(shape[-1]), static(shape[-2])):
        symbolic = sum(static(size) is None for size in shape)
        if symbolic < 2:
            return edit.reshape(x, (*shape[:-2], shape[-1], shape[-2]))
    return edit.permute(x, [*range(last - 1), last, last - 1])
