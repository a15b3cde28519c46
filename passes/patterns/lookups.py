"""Embedding look-ups that are independent of each other, wherever their rows go.

Those that meet in one cat or stack are `embeddings.GatherEmbeddings`. As there, indices are assumed
to be valid.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence

import torch

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import agreement
from passwright.passes.ops import Embedding
from passwright.passes.pattern import Exactness, Match
from passwright.passes.patterns.embeddings import fits_index, joined_table, with_offsets
from passwright.passes.spec import Size, static

#: A larger table takes longer to copy than its look-up to launch, on any device.
_LARGEST_TABLE = 2**25


class EmbeddingsOfManyTables(HorizontalPattern):
    """Look-ups in tables of one width become one look-up in the joined table.

    emb(i_0, t_0), emb(i_1, t_1)   ==>   emb(stack([i_0, i_1]) + [[0], [rows_0]], cat([t_0, t_1])).unbind()

    The copy of the tables is what a gain model must weigh.
    """

    exactness = Exactness.BITWISE
    anchors = frozenset({Embedding})
    conditions = (
        "tables of one width and type, with known numbers of rows, each below 32 MiB",
        "indices of one shape and type, each inside its own table (errors go unnoticed)",
        "no padding_idx (a joined table can have but one padding row)",
    )

    def key(self, graph: GraphView, op: Embedding) -> Hashable | None:
        if op.padding_idx is not None or not _can_be_copied(graph, op):
            return None
        table = graph.spec(op.weight)
        return (table.shape[1], table.dtype, table.device, agreement(graph, op, op.index))

    def divide(self, graph: GraphView, ops: Sequence[Embedding]) -> Iterable[Sequence[Embedding]]:
        return (ops,) if len({op.weight for op in ops}) > 1 and fits_index(graph, ops) else ()

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        table, starts = joined_table(edit, m.members)
        index = with_offsets(edit, edit.stack([op.index for op in m.members], 0), starts, 0)
        rows = edit.embedding(index, table)
        for op, output in zip(m.members, edit.unbind(rows, 0), strict=True):
            edit.replace(op.node, output)


class WidenEmbeddings(HorizontalPattern):
    """Look-ups by one index in tables of equally many rows become one look-up in a wide table.

    emb(i, t_0), emb(i, t_1)   ==>   emb(i, cat([t_0, t_1], 1)).split([width_0, width_1], -1)

    Field-aware factorization machines have as many such tables as fields.
    """

    exactness = Exactness.BITWISE
    anchors = frozenset({Embedding})
    conditions = (
        "the same index and padding_idx",
        "tables of one type and one number of rows, each below 32 MiB",
    )

    def key(self, graph: GraphView, op: Embedding) -> Hashable | None:
        if not _can_be_copied(graph, op):
            return None
        table = graph.spec(op.weight)
        kind = (table.shape[0], table.dtype, table.device)
        return (op.index, op.padding_idx, kind, agreement(graph, op, op.index))

    def divide(self, graph: GraphView, ops: Sequence[Embedding]) -> Iterable[Sequence[Embedding]]:
        return (ops,) if len({op.weight for op in ops}) > 1 else ()

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        tables = list(dict.fromkeys(op.weight for op in m.members))
        widths = [edit.view.shape(table)[1] for table in tables]
        wide = edit.embedding(m.anchor.index, edit.cat(tables, 1), m.anchor.padding_idx)
        pieces = edit.split(wide, widths, edit.view.ndim(wide) - 1)
        for op in m.members:
            edit.replace(op.node, pieces[tables.index(op.weight)])


class UnequalEmbeddingsOfOneTable(HorizontalPattern):
    """Look-ups in one table by indices of unequal shape become one look-up of all places.

    emb(i, t), emb(j, t)   ==>   a, b = emb(cat([i, j], 1), t).split([1, 50], 1)

    for i (batch, 1) and j (batch, 50), or i (batch): an item and the history of such items. Values
    keep every bit; the gradient of a row that several members pick is summed in another order.
    """

    exactness = Exactness.BITWISE
    anchors = frozenset({Embedding})
    conditions = (
        "the same table and padding_idx",
        "indices of one type and one first dim, the other dims known",
        "not all of one shape (see embeddings_of_one_table)",
    )

    def key(self, graph: GraphView, op: Embedding) -> Hashable | None:
        index = graph.spec(op.index)
        if not index.shape or any(static(size) is None for size in index.shape[1:]):
            return None
        if 0 in index.shape:
            return None
        kind = (str(index.shape[0]), index.dtype, index.device)
        return (op.weight, op.padding_idx, kind, agreement(graph, op, op.weight))

    def divide(self, graph: GraphView, ops: Sequence[Embedding]) -> Iterable[Sequence[Embedding]]:
        by_index = {op.index: op for op in reversed(ops)}
        members = sorted(by_index.values(), key=lambda op: op.node)
        shapes = {graph.spec(op.index).key() for op in members}
        return (members,) if len(shapes) > 1 else ()

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        batch: Size = edit.view.shape(m.anchor.index)[0]
        counts = [math.prod(edit.view.shape(op.index)[1:]) for op in m.members]
        places = [
            edit.reshape(op.index, (batch, count))
            for op, count in zip(m.members, counts, strict=True)
        ]
        rows = edit.embedding(edit.cat(places, 1), m.anchor.weight, m.anchor.padding_idx)
        for op, piece in zip(m.members, edit.split(rows, counts, 1), strict=True):
            edit.replace(op.node, edit.reshape(piece, edit.view.shape(op.node)))


def _can_be_copied(graph: GraphView, op: Embedding) -> bool:
    """A table of known size for which a copy is no more work than a look-up."""
    table = graph.spec(op.weight)
    known = table.layout is torch.strided and all(type(size) is int for size in table.shape)
    return known and table.nbytes <= _LARGEST_TABLE
