"""Splits of splits."""

from __future__ import annotations

from collections.abc import Iterator

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import only_user
from passwright.passes.ops import Piece, Split
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match


class MergeNestedSplits(Pattern):
    """A piece that is split again along the same dim becomes pieces of the first split.

    split(x, [4, 8])[1] -> split([3, 5])   ==>   split(x, [4, 3, 5])[1:3]

    Also known as Optimus' merge_splits_pass.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Split})
    cleanup = True
    conditions = ("same dim", "the piece has no other user", "sizes known")

    def matches(self, graph: GraphView, inner: Split) -> Iterator[Match]:
        piece = graph.producer(inner.input, Piece)
        outer = piece and graph.producer(piece.input, Split)
        if not piece or not outer or outer.dim != inner.dim:
            return
        if only_user(graph, piece.node, inner.node) and graph.pieces(outer) and graph.pieces(inner):
            yield match(inner, outer, piece, outer=outer, piece=piece)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        outer, inner, at = m.outer, m.anchor, m.piece.index
        sizes = [*outer.sizes[:at], *inner.sizes, *outer.sizes[at + 1 :]]
        merged = edit.split(outer.input, sizes, outer.dim)
        extra = len(inner.sizes) - 1
        for index, pieces in edit.view.pieces(outer).items():
            for piece in pieces:
                if index != at:
                    edit.replace(piece.node, merged[index if index < at else index + extra])
        for index, pieces in edit.view.pieces(inner).items():
            for piece in pieces:
                edit.replace(piece.node, merged[at + index])
