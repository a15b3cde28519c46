"""Splits that need not be, or not as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import one_grad_mode, only_user, undisturbed
from passwright.passes.ops import Piece, Slice, Split, Unbind
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.spec import static


class MergeNestedSplits(Pattern):
    """A piece or slice that is split again along the same dim becomes pieces of one split.

    split(x, [4, 8])[1] -> split([3, 5])   ==>   split(x, [4, 3, 5])[1:3]
    x[4:12] -> split([3, 5])               ==>   split(x, [4, 3, 5, ...])[1:3]

    Known from Optimus' merge_splits_pass.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Split})
    cleanup = True
    conditions = ("same dim", "the piece or slice has no other user", "no writes between")

    def matches(self, graph: GraphView, inner: Split) -> Iterator[Match]:
        if not only_user(graph, inner.input, inner.node) or not graph.pieces(inner):
            return
        piece = graph.producer(inner.input, Piece)
        split = graph.producer(piece.input, Split) if piece else None
        if piece is not None and (split is None or not is_single(graph, split, piece)):
            return
        outer = split or graph.producer(inner.input, Slice)
        if outer is None or outer.dim != inner.dim:
            return
        if undisturbed(graph, outer.node, inner.input, inner.node):
            yield match(inner, outer, inner.input, outer=outer, piece=piece)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        inner: Split = m.anchor
        if isinstance(m.outer, Split):
            finer = refine(edit, m.outer, m.piece.index, inner.sizes)
        else:
            finer = edit.split_range(m.outer.input, m.outer.start, inner.sizes, inner.dim)
        for index, pieces in (edit.view.pieces(inner) or {}).items():
            for piece in pieces:
                edit.replace(piece.node, finer[index])


class RemoveSinglePieceSplit(Pattern):
    """A split into one piece is its input; an unbind of a dim of size 1 only drops the dim.

    split(x, [12])[0]   ==>   x
    unbind(x, 1)[0]   ==>   reshape(x)   where x is (4, 1, 6)

    Known from Optimus' remove_split_with_size_one_pass.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Split, Unbind})
    cleanup = True
    conditions = ("one output", "its users run in the same grad mode")

    def matches(self, graph: GraphView, op: Split | Unbind) -> Iterator[Match]:
        count = len(op.sizes) if isinstance(op, Split) else op.count
        taken = graph.pieces(op) if count == 1 else None
        if not taken:
            return
        nodes = [op.node, *(piece.node for piece in taken[0])]
        users = [user for piece in taken[0] for user in piece.node.users]
        if isinstance(op, Split):
            found = undisturbed(graph, *nodes) and one_grad_mode(graph, *nodes, *users)
        else:
            shape = graph.shape(op.input)
            found = undisturbed(graph, *nodes) and sum(static(s) is None for s in shape) < 2
        if found:
            yield match(op, *nodes, pieces=taken[0])

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        whole = m.anchor.input
        if isinstance(m.anchor, Unbind):
            whole = edit.reshape(whole, edit.view.shape(m.pieces[0].node))
        for piece in m.pieces:
            edit.replace(piece.node, whole)


class LonePieceToSlice(Pattern):
    """A split of which one piece is used becomes a slice.

    split(x, [4, 8, 4])[1]   ==>   x[4:12]

    Never worse, in the backward graph neither: both gradients are one tensor padded with zeros.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Split})
    cleanup = True
    conditions = ("one piece used of two or more", "no writes between")

    def matches(self, graph: GraphView, split: Split) -> Iterator[Match]:
        if _used(graph, split) == 1 < len(split.sizes):
            yield from _to_slices(graph, split)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        slice_pieces(m, edit)


class PiecesToSlices(Pattern):
    """A split of which several pieces are used, but fewer than half, becomes slices.

    split(x, 4)[1], split(x, 4)[4]   ==>   x[4:8], x[16:20]   where x has 6 or more pieces

    Forward both are views. Backward the split gathers all gradients in one cat, zeros for what is
    unused, while each slice adds a padded tensor: whether that pays depends on the sizes. Known
    from Optimus' split_cat_to_slices_pass.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Split})
    conditions = ("two or more pieces used, fewer than half", "no writes between")

    def matches(self, graph: GraphView, split: Split) -> Iterator[Match]:
        if 2 <= _used(graph, split) < len(split.sizes) / 2:
            yield from _to_slices(graph, split)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        slice_pieces(m, edit)


def is_single(graph: GraphView, split: Split, piece: Piece) -> bool:
    """The split is used through its pieces alone, and this piece is taken from it once."""
    return len((graph.pieces(split) or {}).get(piece.index, ())) == 1


def refine(edit: GraphEditor, split: Split, at: int, sizes: Sequence[int]) -> list[fx.Node]:
    """Splits once, with piece `at` cut into pieces of these sizes, which are returned.

    All users of the other pieces are moved over.
    """
    before, after = split.sizes[:at], split.sizes[at + 1 :]
    merged = edit.split(split.input, [*before, *sizes, *after], split.dim)
    for index, pieces in (edit.view.pieces(split) or {}).items():
        for piece in pieces:
            if index != at:
                edit.replace(piece.node, merged[index if index < at else index + len(sizes) - 1])
    return merged[at : at + len(sizes)]


def slice_pieces(m: Match, edit: GraphEditor) -> None:
    """Replaces all used pieces of the matched split by slices."""
    split, starts = m.anchor, m.anchor.starts
    for index, pieces in m.taken.items():
        start = starts[index]
        part = edit.slice(split.input, split.dim, start, start + split.sizes[index])
        for piece in pieces:
            edit.replace(piece.node, part)


def _used(graph: GraphView, split: Split) -> int:
    """How many pieces are used; 0 if the split is used in another way."""
    return len(graph.pieces(split) or ())


def _to_slices(graph: GraphView, split: Split) -> Iterator[Match]:
    taken = graph.pieces(split) or {}
    nodes = [split.node, *(piece.node for pieces in taken.values() for piece in pieces)]
    # A piece as long as the input would become the input itself, whose grad mode may be another.
    if sum(split.sizes) not in split.sizes and undisturbed(graph, *nodes):
        yield match(split, *nodes, taken=taken)
