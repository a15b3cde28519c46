"""Products of pairs: every field with every other, as factorisation machines write them in a loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.gathers import Rows, gather_pairs, pairs_of
from passwright.passes.graph import GraphView
from passwright.passes.legality import (
    batchable,
    can_reshape_to,
    is_written,
    same_shape,
    undisturbed,
)
from passwright.passes.ops import Binary, Cat, Operand, Reshape, Stack
from passwright.passes.parts import part_of
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.precision import one_type
from passwright.passes.spec import static

#: Fewer pairs than this are cheap to write down one by one.
_AT_LEAST = 8


class ProductsOfRuns(Pattern):
    """Products of one value with consecutive parts of a tensor are one product with all of them.

    cat([a * x[:, 1:2], a * x[:, 2:3], b * c], 1)   ==>   cat([a * x[:, 1:3], b * c], 1)

    So for any pointwise function of two operands, for a stack of selects, and where both operands are
    consecutive parts. A loop over all pairs of n fields takes n products instead of n * n / 2. Values
    are the same bit for bit; gradients of what occurs in many pairs are added up in another order.
    """

    direction = Direction.HORIZONTAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Cat, Stack})
    conditions = (
        "the same function, each result used here alone",
        "parts of one tensor along the dim of the cat or stack",
        "the other operand stays, of size 1 along that dim, or is such parts too",
    )

    def matches(self, graph: GraphView, join: Cat | Stack) -> Iterator[Match]:
        products = products_in(graph, join)
        if products is None:
            return
        rows = _as_rows(graph, join)
        runs = _runs(graph, rows, products)
        views = [node for op in products for node in _views(graph, op)]
        if len(runs) < len(products) and undisturbed(graph, join.node, *views):
            shown = {"products": len(products), "runs": len(runs)}
            yield match(
                join, *(op.node for op in products), runs=runs, dim=rows.dim, parameters=shown
            )

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        dim, stacks = m.dim, isinstance(m.anchor, Stack)
        parts = []
        for run in m.runs:
            if len(run) == 1:
                node = run[0].node
                parts.append(edit.unsqueeze(node, dim) if stacks else node)
                continue
            rank = edit.view.ndim(run[0].node)
            left, right = (
                _whole(edit, side, dim, rank if stacks else None)
                for side in ([op.left for op in run], [op.right for op in run])
            )
            parts.append(_apply(edit, run[0], left, right))
        whole = edit.reshape(edit.cat(parts, dim), edit.view.spec(m.anchor.node).shape)
        edit.replace(m.anchor.node, whole)


class PairProducts(Pattern):
    """Products of many pairs of few values are one product of two gathers.

    stack([a * b, a * c, b * c], 1)   ==>   x[:, [0, 0, 1]] * x[:, [1, 2, 2]]   x = stack([a, b, c], 1)

    So for any pointwise function of two operands. Operands that are cut from a few tensors are
    gathered from a cat of those. Values are the same bit for bit, gradients but for their order.
    """

    direction = Direction.HORIZONTAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Cat, Stack})
    conditions = (
        f"{_AT_LEAST} pairs or more, of values half as many or fewer (or cut from as few)",
        "the same function, each result used here alone",
        "operands of one shape; in a cat, of size 1 along its dim",
    )

    def matches(self, graph: GraphView, join: Cat | Stack) -> Iterator[Match]:
        products = products_in(graph, join)
        if products is None or len(products) < _AT_LEAST:
            return
        sides = pairs_in(graph, _as_rows(graph, join), products)
        if sides is None:
            return
        views = [node for rows in sides for node in rows.via]
        if undisturbed(graph, join.node, *views):
            nodes = [op.node for op in products]
            shown = {"pairs": len(nodes)}
            yield match(join, *nodes, sides=sides, like=products[0], parameters=shown)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        found = _apply(edit, m.like, *gather_pairs(edit, m.sides))
        edit.replace(m.anchor.node, edit.reshape(found, edit.view.spec(m.anchor.node).shape))


def pairs_in(
    graph: GraphView, join: Cat | Stack, products: Sequence[Binary]
) -> tuple[Rows, Rows] | None:
    """Both operands of all products as rows of few tables; None where they are not, or of another
    shape than the products."""
    shape = graph.spec(products[0].node).shape
    lefts = [op.left for op in products if isinstance(op.left, fx.Node)]
    rights = [op.right for op in products if isinstance(op.right, fx.Node)]
    if len(lefts) < len(products) or len(rights) < len(products):
        return None
    if not all(same_shape(graph.spec(node).shape, shape) for node in (*lefts, *rights)):
        return None
    sides = pairs_of(graph, lefts, rights, join.dim, stacks=isinstance(join, Stack))
    if sides is None or any(2 * len(rows.tables) > len(products) for rows in sides):
        return None
    return sides


def products_in(graph: GraphView, join: Cat | Stack) -> list[Binary] | None:
    """The inputs of the join as one pointwise function, each computed for the join alone."""
    ops = [graph.producer(node, Binary) for node in join.inputs]
    found = [op for op in ops if op is not None]
    if len(found) < max(2, len(ops)) or is_written(graph, join.node):
        return None
    operands = [v for op in found for v in (op.left, op.right) if isinstance(v, fx.Node)]
    nodes = [op.node for op in found]
    alike = len({(op.function, repr(op.params), graph.region(op.node)) for op in found}) == 1
    if not alike or not _is_plain(found[0]) or is_written(graph, *nodes, *operands):
        return None
    if not one_type(graph, join.node, *nodes, *operands):
        return None
    if graph.region(join.node) != graph.region(nodes[0]):
        return None
    alone = all(batchable(graph, node) and _feeds_only(graph, node, join) for node in nodes)
    return found if alone and undisturbed(graph, join.node, *nodes) else None


def _as_rows(graph: GraphView, join: Cat | Stack) -> Cat | Stack:
    """A cat of rows (..., 1, n) along their last dim as one along the dim before, which has the same
    elements in the same order."""
    shapes = [graph.spec(node).shape for node in join.inputs]
    last = len(shapes[0]) - 1
    if not isinstance(join, Cat) or join.dim != last or last == 0:
        return join
    rows = all(static(shape[-2]) == 1 and same_shape(shape, shapes[0]) for shape in shapes)
    if not rows or not can_reshape_to(graph.spec(join.node).shape):
        return join
    return replace(join, dim=last - 1)


def _is_plain(op: Binary) -> bool:
    """No factor that a kernel may round in its own way."""
    params = dict(op.params)
    return params.get("alpha", 1) == 1 and params.get("rounding_mode") is None


def _feeds_only(graph: GraphView, node: fx.Node, join: Cat | Stack) -> bool:
    """The value is used by the join alone; ATen-IR has an unsqueeze between, if it is a stack."""
    user = next(iter(node.users))
    if len(node.users) != 1:
        return False
    between = isinstance(join, Stack) and isinstance(graph.read(user), Reshape)
    return user is join.node or (between and list(user.users) == [join.node])


def _runs(graph: GraphView, join: Cat | Stack, products: Sequence[Binary]) -> list[list[Binary]]:
    """The products in order, in runs that may become one product each."""
    found: list[list[Binary]] = []
    relation: tuple[str | None, str | None] | None = None
    for op in products:
        if found:
            last = found[-1][-1]
            step = tuple(
                _relation(graph, join, *pair)
                for pair in ((last.left, op.left), (last.right, op.right))
            )
            fits = None not in step and "follows" in step and _widths_agree(graph, join, op, step)
            if fits and relation in (None, step):
                found[-1].append(op)
                relation = (step[0], step[1])
                continue
        found.append([op])
        relation = None
    return found


def _relation(graph: GraphView, join: Cat | Stack, before: Operand, value: Operand) -> str | None:
    """`same` for an operand that stays, `follows` for the next part of a tensor, else None."""
    if not isinstance(before, fx.Node) or not isinstance(value, fx.Node):
        return "same" if type(before) is type(value) and before == value else None
    if before is value:
        place = join.dim - (graph.ndim(join.node) - graph.ndim(value))
        stays = isinstance(join, Stack) or place < 0 or static(graph.shape(value)[place]) == 1
        return "same" if stays else None
    first, second = part_of(graph, before), part_of(graph, value)
    if first is None or second is None or graph.ndim(first.source) != graph.ndim(join.node):
        return None
    kinds = [(part.source, part.dim, part.drops, part.width) for part in (first, second)]
    along = (first.dim, first.drops) == (join.dim, isinstance(join, Stack))
    return "follows" if along and kinds[0] == kinds[1] and first.stop == second.start else None


def _widths_agree(
    graph: GraphView, join: Cat | Stack, op: Binary, step: Sequence[str | None]
) -> bool:
    """In a cat, parts are as wide as the product: not one of size 1 and the other wider."""
    if isinstance(join, Stack):
        return True
    operands = (op.left, op.right)
    following = [v for v, how in zip(operands, step, strict=True) if how == "follows"]
    width = static(graph.shape(op.node)[join.dim])
    return all(
        isinstance(v, fx.Node) and static(graph.shape(v)[join.dim]) == width for v in following
    )


def _views(graph: GraphView, op: Binary) -> list[fx.Node]:
    """The views that cut out the operands."""
    parts = [part_of(graph, v) for v in (op.left, op.right) if isinstance(v, fx.Node)]
    return [node for part in parts if part is not None for node in part.nodes]


def _whole(edit: GraphEditor, values: Sequence[Operand], dim: int, rank: int | None) -> Operand:
    """One operand of a run: what stays, or all parts at once.

    `rank`: of the members of a stack, which gets the new dim `dim`; None for a cat.
    """
    first, last = values[0], values[-1]
    if not isinstance(first, fx.Node) or not isinstance(last, fx.Node):
        return first
    if first is values[1]:
        if rank is None:
            return first
        # Broadcasting aligns dims from the right: to the left of the first there is none to add.
        missing = rank - edit.view.ndim(first)
        return edit.unsqueeze(first, dim - missing) if dim >= missing else first
    begin, end = part_of(edit.view, first), part_of(edit.view, last)
    assert begin is not None
    assert end is not None
    return edit.slice(begin.source, dim, begin.start, end.stop)


def _apply(edit: GraphEditor, op: Binary, left: Operand, right: Operand) -> fx.Node:
    """The function of other operands, in the spelling of `op`."""
    given = {name: value for name, value in op.params if name in op.node.kwargs}
    dtype = edit.view.spec(op.node).dtype
    return edit.pointwise(op.node.target, left, right, dtype=dtype, **given)
