"""Bags of embeddings: look-ups of which the rows are summed up at once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import agreement, batchable, only_user, undisturbed
from passwright.passes.ops import Embedding, EmbeddingBag, Reduce
from passwright.passes.pattern import TORCH_IR, Direction, Exactness, Match, Pattern, match
from passwright.passes.patterns.embeddings import fits_index, joined_table, with_offsets
from passwright.passes.precision import autocasts
from passwright.passes.spec import static

_EXACT = frozenset({torch.float32, torch.float64})


class BatchBags(HorizontalPattern):
    """Bags in tables of one width become one call in the joined table.

    bag(i_0, t_0), bag(i_1, t_1)
        ==>   bag((stack(i) + [[[0]], [[rows_0]]]).reshape(2 * batch, length), cat(t)).reshape(...).unbind()
    bag(i_0, t_0, o_0), bag(i_1, t_1, o_1)
        ==>   bag(cat([i_0, i_1 + rows_0]), cat(t), cat([o_0, o_1 + len(i_0)])).reshape(...).unbind()

    Bags of one table are a case of it, for which no table is copied.
    """

    exactness = Exactness.REASSOCIATING
    anchors = frozenset({EmbeddingBag})
    levels = frozenset({TORCH_IR})
    conditions = (
        "tables of one width and type, with known numbers of rows; one mode",
        "as many bags each; bags of one length, or flat indices of known length",
        "sample weights in all or in none",
        "indices inside their own table (an error in eager mode goes unnoticed)",
        "no padding_idx, or one table for all",
    )

    def key(self, graph: GraphView, op: EmbeddingBag) -> Hashable | None:
        table, index = graph.spec(op.weight), graph.spec(op.index)
        if not all(type(size) is int for size in table.shape):
            return None
        padding = None if op.padding_idx is None else (op.padding_idx, op.weight)
        kind = (op.mode, padding, table.shape[1], table.dtype, table.device, index.dtype)
        if op.offsets is None:
            if static(index.shape[1]) is None:
                return None
            return (kind, agreement(graph, op, op.index, op.sample_weights))
        if static(index.shape[0]) is None or graph.spec(op.offsets).dtype != index.dtype:
            return None
        weights = op.sample_weights and graph.spec(op.sample_weights).dtype
        return (kind, weights, agreement(graph, op, op.offsets))

    def divide(
        self, graph: GraphView, ops: Sequence[EmbeddingBag]
    ) -> Iterable[Sequence[EmbeddingBag]]:
        places = sum(graph.spec(op.index).numel for op in ops)
        largest = torch.iinfo(graph.spec(ops[0].index).dtype).max
        return (ops,) if fits_index(graph, ops) and places <= largest else ()

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        bags, width = edit.view.shape(m.anchor.node)
        together = _flat if m.anchor.offsets is not None else _regular
        rows = together(edit, m.members)
        joined = edit.reshape(rows, (len(m.members), bags, width))
        for op, output in zip(m.members, edit.unbind(joined, 0), strict=True):
            edit.replace(op.node, output)


class BagAsSum(Pattern):
    """A bag of rows is a look-up and a sum, which a compiler fuses with what follows.

    bag(i, t, mode="mean")   ==>   emb(i, t).mean(1)   where i is (bags, length)
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({EmbeddingBag})
    levels = frozenset({TORCH_IR})
    conditions = (
        "a sum or mean (the gradient of a maximum is shared among equals)",
        "bags of one known length",
        "no padding_idx (a look-up has the row, if no gradient for it)",
        "sample weights in float32 and float64 alone, no autocast",
    )

    def matches(self, graph: GraphView, op: EmbeddingBag) -> Iterator[Match]:
        if op.mode == "max" or op.offsets is not None or op.padding_idx is not None:
            return
        if not static(graph.shape(op.index)[1]) or autocasts(graph, op.node):
            return
        if op.sample_weights is not None and graph.spec(op.node).dtype not in _EXACT:
            return
        if batchable(graph, op.node):
            yield match(op)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        op: EmbeddingBag = m.anchor
        rows = edit.embedding(op.index, op.weight)
        if op.sample_weights is not None:
            rows = edit.mul(rows, edit.unsqueeze(op.sample_weights, 2))
        edit.replace(op.node, edit.reduce(op.mode, rows, [1], False))


class SumAsBag(Pattern):
    """The sum or mean of looked-up rows is a bag, in one call that keeps no rows.

    emb(i, t).sum(1)   ==>   bag(i, t, mode="sum")   where i is (bags, length)

    On a GPU its gradient sorts the indices, where others add row by row to memory that is contended.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Reduce})
    levels = frozenset({TORCH_IR})
    conditions = (
        "a sum or mean over the second of two index dims, its length known",
        "the rows have no other user",
        "no padding_idx (a bag leaves the row out)",
        "no autocast",
    )

    def matches(self, graph: GraphView, reduce: Reduce) -> Iterator[Match]:
        op = graph.producer(reduce.input, Embedding)
        if op is None or op.padding_idx is not None or reduce.function not in ("sum", "mean"):
            return
        index = graph.spec(op.index)
        if index.ndim != 2 or reduce.dims != (1,) or not static(index.shape[1]):
            return
        if not all(batchable(graph, node) for node in (op.node, reduce.node)):
            return
        if autocasts(graph, reduce.node) or graph.region(op.node) != graph.region(reduce.node):
            return
        if only_user(graph, op.node, reduce.node) and undisturbed(graph, op.node, reduce.node):
            yield match(reduce, op, lookup=op)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        rows = _bag(edit, m.lookup.index, m.lookup.weight, None, m.anchor.function)
        edit.replace(m.anchor.node, edit.unsqueeze(rows, 1) if m.anchor.keepdim else rows)


def _regular(edit: GraphEditor, members: Sequence[EmbeddingBag]) -> fx.Node:
    """(k * bags, width) for indices (bags, length)."""
    table, starts = joined_table(edit, members)
    bags, length = edit.view.shape(members[0].index)
    shape = (len(members) * bags, length)
    index = with_offsets(edit, edit.stack([op.index for op in members], 0), starts, 0)
    weights = [op.sample_weights for op in members if op.sample_weights is not None]
    factors = edit.reshape(edit.stack(weights, 0), shape) if weights else None
    return _bag(edit, edit.reshape(index, shape), table, None, members[0], factors)


def _flat(edit: GraphEditor, members: Sequence[EmbeddingBag]) -> fx.Node:
    """(k * bags, width) for flat indices with offsets."""
    table, starts = joined_table(edit, members)
    lengths = [edit.view.shape(op.index)[0] for op in members]
    before = [0, *accumulate(lengths)][:-1]
    index = edit.cat([_plus(edit, op.index, at) for op, at in zip(members, starts, strict=True)], 0)
    offsets = [op.offsets for op in members if op.offsets is not None]
    joined = edit.cat([_plus(edit, o, at) for o, at in zip(offsets, before, strict=True)], 0)
    weights = [op.sample_weights for op in members if op.sample_weights is not None]
    factors = edit.cat(weights, 0) if weights else None
    return _bag(edit, index, table, joined, members[0], factors)


def _plus(edit: GraphEditor, x: fx.Node, number: int) -> fx.Node:
    return edit.add(x, number) if number else x


def _bag(
    edit: GraphEditor,
    index: fx.Node,
    table: fx.Node,
    offsets: fx.Node | None,
    like: EmbeddingBag | str,
    sample_weights: fx.Node | None = None,
) -> fx.Node:
    """A call with the mode and the padding of the op `like`, or of this mode and without."""
    mode, padding = (like, None) if isinstance(like, str) else (like.mode, like.padding_idx)
    more: dict[str, Any] = {} if padding is None else {"padding_idx": padding}
    if sample_weights is not None:
        more["per_sample_weights"] = sample_weights
    return edit.call(F.embedding_bag, index, table, offsets, mode=mode, **more)
