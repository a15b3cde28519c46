"""Rows added up by an index into a small table: the gradient of an embedding.

Added one by one, as an index_put does it, rows of one index wait for each other, and in 16 bits each
addition rounds. For a small table with many indices these patterns do all the additions of a row in
one sum.

There is no pattern that sorts the indices first: sums of stretches as differences of running sums
lose more bits than another order of additions does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import batchable, is_written, static_shape, undisturbed
from passwright.passes.ops import EmbeddingGradient, IndexAdd
from passwright.passes.pattern import ATEN_IR, Direction, Exactness, Match, Pattern, match
from passwright.passes.precision import sum_may_be_product

aten = torch.ops.aten
_FILLS: dict[Any, int] = {aten.full.default: 1, aten.new_full.default: 2, aten.full_like.default: 1}
_ZEROS = (aten.zeros.default, aten.new_zeros.default, aten.zeros_like.default)


class ScatterAsMaskedSum(Pattern):
    """Rows added into a table of very few rows are sums under a mask, one for each row.

    zeros(r, d).index_put([i], v, accumulate=True)   ==>   where(i == arange(r)[:, None], v, 0).sum(1)

    It reads the values once for each row of the table, from a cache if it can, and writes no masks.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({EmbeddingGradient, IndexAdd})
    levels = frozenset({ATEN_IR})
    conditions = (
        "into zeros that nobody writes, along the first dim",
        "at most 64 rows, and 16 times as many indices",
        "all sizes known; one floating-point type",
    )

    def matches(self, graph: GraphView, op: EmbeddingGradient | IndexAdd) -> Iterator[Match]:
        found = _scatter(graph, op)
        if found is not None and found.rows <= 64 and found.count >= 16 * found.rows:
            yield match(op, scatter=found)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        values = edit.reshape(m.scatter.values, (1, m.scatter.count, m.scatter.width))
        hits = edit.unsqueeze(_hits(edit, m.scatter), 2)
        zero = edit.constant([0.0], edit.view.spec(values).dtype, values)
        masked = edit.call(aten.where.self, hits, values, zero)
        total = edit.reduce("sum", masked, [1], False)
        edit.replace(m.anchor.node, edit.reshape(total, edit.view.shape(m.anchor.node)))


class ScatterAsProduct(Pattern):
    """Rows added into a small table are the product of a matrix of ones and zeros with the rows.

    zeros(r, d).index_put([i], v, accumulate=True)   ==>   mm((i == arange(r)[:, None]).to(v), v)

    Relaxed because zero times infinity is no zero: one row that is not finite spoils the whole
    table, not its own row alone. It is not a licence for TF32: where float32 products may be rounded
    to it there is no match.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.RELAXED
    anchors = frozenset({EmbeddingGradient, IndexAdd})
    levels = frozenset({ATEN_IR})
    conditions = (
        "into zeros that nobody writes, along the first dim",
        "at most 1024 rows, and 8 times as many indices; 16 million zeros and ones at most",
        "all sizes known; one floating-point type, of which a product loses no bits (no TF32)",
    )

    def matches(self, graph: GraphView, op: EmbeddingGradient | IndexAdd) -> Iterator[Match]:
        found = _scatter(graph, op)
        if found is None or found.rows > 1024 or found.count < 8 * found.rows:
            return
        small = found.rows * found.count <= 2**24
        if small and sum_may_be_product(graph, op.node, found.values):
            yield match(op, scatter=found)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        values = edit.reshape(m.scatter.values, (m.scatter.count, m.scatter.width))
        ones = edit.convert(_hits(edit, m.scatter), edit.view.spec(values).dtype)
        total = edit.matmul(ones, values)
        edit.replace(m.anchor.node, edit.reshape(total, edit.view.shape(m.anchor.node)))


@dataclass(frozen=True)
class _Scatter:
    """`count` rows of `width` numbers, added into a table of `rows` rows of zeros."""

    op: EmbeddingGradient | IndexAdd
    values: fx.Node
    rows: int
    count: int
    width: int


def _scatter(graph: GraphView, op: EmbeddingGradient | IndexAdd) -> _Scatter | None:
    values = op.gradient if isinstance(op, EmbeddingGradient) else op.values
    table, index, added = (static_shape(graph, n) for n in (op.node, op.index, values))
    if not table or index is None or added is None or added != (*index, *table[1:]):
        return None
    spec, count = graph.spec(op.node), math.prod(index)
    kinds = {(s.dtype, s.device, s.layout) for s in (spec, graph.spec(values))}
    if len(kinds) > 1 or not spec.dtype.is_floating_point or 0 in (count, *table):
        return None
    if graph.spec(op.index).device != spec.device or not batchable(graph, op.node):
        return None
    if isinstance(op, IndexAdd):
        if op.mask is not None and not _is_one_each(graph, op.mask, index):
            return None
        if not _is_zeros(op.destination) or is_written(graph, op.destination):
            return None
        if not undisturbed(graph, op.destination, op.node):
            return None
    return _Scatter(op, values, table[0], count, math.prod(table[1:]))


def _is_one_each(graph: GraphView, mask: fx.Node, index: tuple[int, ...]) -> bool:
    """The mask is one boolean an index, with dims of size 1 behind."""
    shape = static_shape(graph, mask)
    if shape is None or graph.spec(mask).dtype is not torch.bool:
        return False
    return shape[: len(index)] == index and set(shape[len(index) :]) <= {1}


def _is_zeros(node: fx.Node) -> bool:
    if node.target in _ZEROS:
        return True
    place = _FILLS.get(node.target)
    return place is not None and len(node.args) > place and node.args[place] in (0, 0.0, False)


def _hits(edit: GraphEditor, scatter: _Scatter) -> fx.Node:
    """Booleans (rows, count): the index is this row."""
    op, rows, count = scatter.op, scatter.rows, scatter.count
    dtype = edit.view.spec(op.index).dtype
    index = edit.reshape(op.index, (1, count))
    wanted: fx.Node | None = None
    if isinstance(op, EmbeddingGradient):
        if op.padding_idx is not None:
            wanted = edit.call(aten.ne.Scalar, index, op.padding_idx)
    else:
        if op.mask is not None:
            wanted = edit.reshape(op.mask, (1, count))
            # Not clamp, which Inductor only knows before this graph is made.
            lowest, highest = (edit.constant([n], dtype, index) for n in (-rows, rows - 1))
            index = edit.call(aten.maximum.default, index, lowest)
            index = edit.call(aten.minimum.default, index, highest)
        from_end = edit.call(aten.lt.Scalar, index, 0)
        index = edit.call(aten.where.self, from_end, edit.add(index, rows), index)
    numbers = edit.constant(range(rows), dtype, index)
    hits = edit.call(aten.eq.Tensor, index, edit.reshape(numbers, (rows, 1)))
    return hits if wanted is None else edit.call(aten.bitwise_and.Tensor, hits, wanted)
