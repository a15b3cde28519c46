"""Chains of additions: `a + b + c + ...`, also as Python's `sum` writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import (
    batchable,
    can_reshape_to,
    is_written,
    same,
    same_shape,
    undisturbed,
)
from passwright.passes.ops import Binary, Op
from passwright.passes.parts import Part, part_of
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.precision import one_type, sum_may_be_product
from passwright.passes.spec import static

#: Two terms are one addition, as cheap as a reduction.
_AT_LEAST = 3


class SumOfMany(Pattern):
    """Added parts of one tensor are one sum over the dim along which they lie.

    a + b + c + d, of which a, b and c are slices of x   ==>   stack([a, b, c], dim).sum(dim) + d

    Stacked along the dim that was cut they are a view, and the additions one reduction.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Binary})
    conditions = (
        f"{_AT_LEAST} terms or more that are consecutive parts of one tensor, in any order",
        "terms of one shape and type, floating point",
        "the sums between have no other user",
    )

    def matches(self, graph: GraphView, op: Binary) -> Iterator[Match]:
        chain = added(graph, op)
        if chain is None or not all(_is_like(graph, op.node, term) for term in chain.terms):
            return
        run = _longest_run(graph, chain.terms)
        if len(run) >= _AT_LEAST and undisturbed(graph, *chain.nodes, *chain.terms):
            rest = list(chain.terms)
            for term in run:
                rest.remove(term)
            yield match(op, *chain.nodes, run=run, rest=rest, parameters={"terms": len(run)})

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        part = part_of(edit.view, m.run[0])
        assert part is not None
        total = edit.reduce("sum", edit.stack(m.run, part.dim), [part.dim], keepdim=False)
        for term in m.rest:
            total = edit.add(total, term)
        edit.replace(m.anchor.node, total)


class WeightedAddsAsMatmul(Pattern):
    """A weighted sum written term by term becomes a matrix product with one row.

    g[:, 0:1] * a + g[:, 1:2] * b + g[:, 2:3] * c   ==>   matmul(g[:, None], stack([a, b, c], 1))[:, 0]

    For values that are a batch already: then the stack is a view. In a multi-gate mixture of experts
    the products of several tasks become one (see tall_matmuls).
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Binary})
    conditions = (
        f"{_AT_LEAST} terms or more, each a column times a value of the sum's shape",
        "one floating-point type; the products and sums have no other user",
        "no autocast, and no TF32 in place of float32",
    )

    def matches(self, graph: GraphView, op: Binary) -> Iterator[Match]:
        chain = added(graph, op)
        shape = graph.spec(op.node).shape
        if chain is None or len(shape) < 2 or not can_reshape_to(shape):
            return
        pairs = [_weighted(graph, op.node, term) for term in chain.terms]
        found = [pair for pair in pairs if pair is not None]
        if len(found) < max(len(pairs), _AT_LEAST):
            return
        operands = [node for pair in found for node in pair]
        if is_written(graph, *operands) or not undisturbed(graph, *chain.nodes, *chain.terms):
            return
        if sum_may_be_product(graph, op.node, *operands):
            nodes = (*chain.nodes, *chain.terms)
            yield match(op, *nodes, pairs=found, parameters={"terms": len(found)})

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        shape = edit.view.spec(m.anchor.node).shape
        last = len(shape) - 1
        weights = edit.cat([weight for weight, _ in m.pairs], last)
        values = edit.stack([value for _, value in m.pairs], last)
        y = edit.matmul(edit.unsqueeze(weights, last), values)
        edit.replace(m.anchor.node, edit.reshape(y, shape))


@dataclass(frozen=True)
class Chain:
    """Additions that lead to one sum: their nodes, the last one first, and the terms in order."""

    nodes: tuple[fx.Node, ...]
    terms: tuple[fx.Node, ...]


def added(graph: GraphView, op: Binary) -> Chain | None:
    """The chain that ends in `op`; None where `op` is no addition, or inside a longer chain."""
    if not _adds(graph, op, op.node) or not graph.spec(op.node).dtype.is_floating_point:
        return None
    users = list(op.node.users)
    if len(users) == 1 and _adds(graph, graph.read(users[0]), op.node):
        return None
    nodes, terms, pending = [op.node], [], _operands(op)
    while pending:
        term = pending.pop(0)
        inner = graph.read(term)
        if isinstance(inner, Binary) and len(term.users) == 1 and _adds(graph, inner, op.node):
            nodes.append(term)
            pending = _operands(inner) + pending
        else:
            terms.append(term)
    return Chain(tuple(nodes), tuple(terms))


def _adds(graph: GraphView, op: Op | None, like: fx.Node) -> bool:
    """A plain addition of tensors, or of a tensor and 0, with a result like that of `like`."""
    if not isinstance(op, Binary) or op.function != "add" or dict(op.params).get("alpha", 1) != 1:
        return False
    numbers = [value for value in (op.left, op.right) if not isinstance(value, fx.Node)]
    if any(value != 0 for value in numbers) or not batchable(graph, op.node):
        return False
    alike = _is_like(graph, op.node, like) and graph.region(op.node) == graph.region(like)
    # A sum of which no gradient is wanted may be a term, not a part of one that has a gradient.
    return alike and graph.needs_grad(op.node) == graph.needs_grad(like)


def _operands(op: Binary) -> list[fx.Node]:
    return [value for value in (op.left, op.right) if isinstance(value, fx.Node)]


def _is_like(graph: GraphView, node: fx.Node, other: fx.Node) -> bool:
    """Tensors of equal shape, type and device."""
    shapes = (graph.spec(node).shape, graph.spec(other).shape)
    return same_shape(*shapes) and one_type(graph, node, other)


def _longest_run(graph: GraphView, terms: Sequence[fx.Node]) -> list[fx.Node]:
    """The largest set of terms that are consecutive parts of one tensor, in the tensor's order."""
    best: list[fx.Node] = []
    kinds: dict[tuple[fx.Node, int, bool, int], dict[int, fx.Node]] = {}
    for term in terms:
        part = part_of(graph, term)
        if part is not None:
            kinds.setdefault(_kind(part), {}).setdefault(part.start, term)
    for kind, members in kinds.items():
        run: list[fx.Node] = []
        for start in sorted(members):
            follows = start - kind[-1] in members
            run = [*run, members[start]] if follows else [members[start]]
            best = run if len(run) > len(best) else best
    return best


def _kind(part: Part) -> tuple[fx.Node, int, bool, int]:
    """Equal for parts that may follow one another; the width is last."""
    return (part.source, part.dim, part.drops, part.width)


def _weighted(graph: GraphView, like: fx.Node, term: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """(column, value) where the term is their product and nothing else sees it."""
    op = graph.producer(term, Binary)
    if op is None or op.function != "mul" or len(term.users) != 1 or not batchable(graph, term):
        return None
    if graph.region(term) != graph.region(like):
        return None
    left, right = op.left, op.right
    if not isinstance(left, fx.Node) or not isinstance(right, fx.Node):
        return None
    shape = graph.spec(like).shape
    for column, value in (left, right), (right, left):
        sizes = graph.spec(column).shape
        narrow = len(sizes) == len(shape) and static(sizes[-1]) == 1 and static(shape[-1]) != 1
        if narrow and all(map(same, sizes[:-1], shape[:-1])) and _is_like(graph, value, like):
            return column, value
    return None
