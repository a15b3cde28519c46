"""Embedding look-ups side by side.

An index outside its own table raises an error in eager mode. Joined tables leave no way to notice
one that still falls inside the whole, so the patterns assume that indices are valid.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence

import torch
from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import agreement, batchable, can_reshape_to, same
from passwright.passes.ops import Cat, Embedding, EmbeddingBag, Reshape, Stack
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.spec import static

#: Most places along a cat for which a constant holds the row offset of each.
_LONGEST_OFFSETS = 1024


class GatherEmbeddings(Pattern):
    """Look-ups that meet in a cat or stack become one look-up in one joined table.

    cat([emb(i_0, t_0), emb(i_1, t_1)], -1)
        ==>   emb(stack([i_0, i_1], -1) + [0, rows_0], cat([t_0, t_1])).reshape(...)

    The indices are joined as the rows were, so that nothing need be moved afterwards: stacked for a
    stack, concatenated for a cat along one of their own dims, and stacked last for a cat along the
    width. Each consecutive run of inputs that are look-ups is one match. Whoever else uses a member
    takes a view of the joined rows. The copy of the tables is what a gain model must weigh.
    """

    direction = Direction.HORIZONTAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Cat, Stack})
    conditions = (
        "tables of one width and type, with known numbers of rows",
        "indices of one type, each inside its own table (an error in eager mode goes unnoticed)",
        "no padding_idx, or one table for all (a joined table can have but one padding row)",
        "not a stack along the last dim",
        "no write to an index or a table between look-up and cat",
    )

    def matches(self, graph: GraphView, anchor: Cat | Stack) -> Iterator[Match]:
        if isinstance(anchor, Stack) and anchor.dim == graph.ndim(anchor.node) - 1:
            return
        ops = [lookup_behind(graph, node) for node in anchor.inputs]
        keys = [op and self._key(graph, anchor, op) for op in ops]
        first = 0
        for key, run in itertools.groupby(keys):
            size = len(list(run))
            members = [op for op in ops[first : first + size] if op is not None]
            if key is not None and len(set(members)) > 1 and fits_index(graph, members):
                shown = {"first": first, "members": size}
                yield match(anchor, *members, first=first, members=members, parameters=shown)
            first += size

    def _key(self, graph: GraphView, anchor: Cat | Stack, op: Embedding) -> Hashable | None:
        table, index = graph.spec(op.weight), graph.spec(op.index)
        read = (op.index, op.weight)
        symbolic = sum(static(size) is None for size in index.shape)
        if (
            not all(type(size) is int for size in table.shape)
            or (_joins_widths(graph, anchor) and symbolic > 1)
            or not batchable(graph, op.node)
            or {table.layout, index.layout} != {torch.strided}
            or graph.region(op.node) != graph.region(anchor.node)
            or graph.epoch(read, op.node) != graph.epoch(read, anchor.node)
        ):
            return None
        padding = None if op.padding_idx is None else (op.padding_idx, op.weight)
        types = (table.dtype, table.device, index.dtype, index.device)
        return (table.shape[1], types, padding, graph.needs_grad(op.node))

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        anchor, first, members = m.anchor, m.first, m.members
        after = first + len(members)
        index, table = _joined(edit, anchor, anchor.inputs[first:after], members)
        rows = edit.embedding(index, table, members[0].padding_idx)
        part = rows
        if _joins_widths(edit.view, anchor):
            *places, count, width = edit.view.shape(rows)
            part = edit.reshape(rows, (*places, count * width))
        others = [*anchor.inputs[:first], *anchor.inputs[after:]]
        if isinstance(anchor, Stack) and others:
            others = [edit.unsqueeze(node, anchor.dim) for node in others]
        whole = edit.cat([*others[:first], part, *others[first:]], anchor.dim)
        edit.replace(anchor.node, whole)
        if any(has_other_users(op.node, anchor.node) for op in members):
            for op, piece in zip(
                members, _pieces(edit, anchor, m.first, members, rows), strict=False
            ):
                if has_other_users(op.node, anchor.node):
                    own = edit.reshape(piece, edit.view.shape(op.node))
                    edit.replace(op.node, own, where=lambda user: user is not anchor.node)


class EmbeddingsOfOneTable(HorizontalPattern):
    """Look-ups in one table become one look-up of the stacked indices.

    emb(i_0, t), emb(i_1, t)   ==>   emb(stack([i_0, i_1]), t).unbind()

    Values keep every bit; the gradient of a row that several members pick is summed in another
    order.
    """

    exactness = Exactness.BITWISE
    anchors = frozenset({Embedding})
    conditions = ("the same table and padding_idx", "indices of one shape and type")

    def key(self, graph: GraphView, op: Embedding) -> Hashable | None:
        return (op.weight, op.padding_idx, agreement(graph, op, op.index, op.weight))

    def divide(self, graph: GraphView, ops: Sequence[Embedding]) -> Iterable[Sequence[Embedding]]:
        return (ops,) if len({op.index for op in ops}) > 1 else ()

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        index = edit.stack([op.index for op in m.members], 0)
        rows = edit.embedding(index, m.anchor.weight, m.anchor.padding_idx)
        for op, output in zip(m.members, edit.unbind(rows, 0), strict=True):
            edit.replace(op.node, output)


def lookup_behind(graph: GraphView, node: fx.Node) -> Embedding | None:
    """The look-up behind an input of the anchor, also where its places were given another shape."""
    op = graph.read(node)
    if isinstance(op, Reshape) and op.shape and same(op.shape[-1], graph.shape(op.input)[-1]):
        op = graph.read(op.input) if can_reshape_to(op.shape[:-1]) else None
    return op if isinstance(op, Embedding) else None


def _joins_widths(graph: GraphView, anchor: Cat | Stack) -> bool:
    """A cat along the dim of the embedded values."""
    return isinstance(anchor, Cat) and anchor.dim == graph.ndim(anchor.node) - 1


def fits_index(graph: GraphView, members: Sequence[Embedding | EmbeddingBag]) -> bool:
    """The index type can count the rows of all tables."""
    rows = sum(graph.shape(table)[0] for table in {op.weight for op in members})
    return rows <= torch.iinfo(graph.spec(members[0].index).dtype).max


def _joined(
    edit: GraphEditor, anchor: Cat | Stack, inputs: Sequence[fx.Node], members: Sequence[Embedding]
) -> tuple[fx.Node, fx.Node]:
    """(index, table) of the one look-up; a table that several members use is in it once."""
    table, starts = joined_table(edit, members)
    places = [
        edit.reshape(op.index, edit.view.shape(node)[:-1])
        for node, op in zip(inputs, members, strict=True)
    ]
    if isinstance(anchor, Stack) or _joins_widths(edit.view, anchor):
        return with_offsets(edit, edit.stack(places, anchor.dim), starts, anchor.dim), table
    sizes = [static(edit.view.shape(place)[anchor.dim]) for place in places]
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes) and sum(known) <= _LONGEST_OFFSETS:
        repeated = [start for start, size in zip(starts, known, strict=True) for _ in range(size)]
        return with_offsets(edit, edit.cat(places, anchor.dim), repeated, anchor.dim), table
    moved = [
        edit.add(place, start) if start else place
        for place, start in zip(places, starts, strict=True)
    ]
    return edit.cat(moved, anchor.dim), table


def joined_table(
    edit: GraphEditor, members: Sequence[Embedding | EmbeddingBag]
) -> tuple[fx.Node, list[int]]:
    """All tables one below the other, and where each member's table starts there; a table that
    several members use is in it once."""
    starts: dict[fx.Node, int] = {}
    total = 0
    for op in members:
        if op.weight not in starts:
            starts[op.weight] = total
            total += edit.view.shape(op.weight)[0]
    return edit.cat(list(starts), 0), [starts[op.weight] for op in members]


def with_offsets(edit: GraphEditor, index: fx.Node, starts: Sequence[int], dim: int) -> fx.Node:
    """`index` with `starts[i]` added at place i of `dim`: one constant, one addition."""
    if not any(starts):
        return index
    spec = edit.view.spec(index)
    offsets = edit.constant(starts, spec.dtype, index)
    shape = (len(starts), *(1 for _ in range(spec.ndim - dim - 1)))
    return edit.add(index, edit.reshape(offsets, shape))


def has_other_users(node: fx.Node, dead: fx.Node) -> bool:
    """Somebody besides `dead` takes the value (`dead` may do so through a reshape)."""
    return any(user is not dead and set(user.users) != {dead} for user in node.users)


def _pieces(
    edit: GraphEditor, anchor: Cat | Stack, first: int, members: Sequence[Embedding], rows: fx.Node
) -> list[fx.Node]:
    """What the members were to the anchor, as views of the joined rows; none for symbolic sizes."""
    if isinstance(anchor, Stack) or _joins_widths(edit.view, anchor):
        return edit.unbind(rows, anchor.dim)
    inputs = anchor.inputs[first : first + len(members)]
    sizes = [static(edit.view.shape(node)[anchor.dim]) for node in inputs]
    known = [size for size in sizes if size is not None]
    return edit.split(rows, known, anchor.dim) if len(known) == len(sizes) else []
