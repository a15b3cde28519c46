"""Slices and selects that follow each other, or are put together again."""

from __future__ import annotations

from collections.abc import Iterator

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import (
    is_written,
    only_user,
    same_gradient,
    stands_in,
    undisturbed,
    unseen,
)
from passwright.passes.ops import Cat, Piece, Select, Slice, Split, Stack
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.patterns.splits import is_single, refine
from passwright.passes.windows import (
    Window,
    can_be_made_of,
    cut_out,
    extent,
    is_one_view,
    join,
    parts_of_cat,
)


class MergeSlices(Pattern):
    """A slice or select of a slice along the same dim is one of the whole; a full slice is nothing.

    x[2:10][1:4]   ==>   x[3:6]
    x[2:10][1]     ==>   x[3]
    x[0:12]        ==>   x          where x is 12 long
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Slice, Select})
    cleanup = True
    conditions = ("same dim", "the first slice has no other user", "no writes between")

    def matches(self, graph: GraphView, part: Slice | Select) -> Iterator[Match]:
        if isinstance(part, Slice) and _is_full(graph, part):
            if stands_in(graph, part.node, part.input):
                yield match(part, inner=None)
            return
        inner = graph.producer(part.input, Slice)
        if inner is None or inner.dim != part.dim:
            return
        if only_user(graph, inner.node, part.node) and undisturbed(graph, inner.node, part.node):
            yield match(part, inner, inner=inner)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        part, inner = m.anchor, m.inner
        if inner is None:
            merged = part.input
        elif isinstance(part, Slice):
            start, stop = inner.start + part.start, inner.start + part.stop
            merged = edit.slice(inner.input, part.dim, start, stop)
        else:
            merged = edit.select(inner.input, part.dim, inner.start + part.index)
        edit.replace(part.node, merged)


class SliceOfPiece(Pattern):
    """A piece of a split that is only sliced becomes a piece of a finer split.

    split(x, [4, 8])[1][2:5]   ==>   split(x, [4, 2, 3, 3])[2]
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Slice})
    cleanup = True
    conditions = ("same dim", "the piece has no other user", "no writes between")

    def matches(self, graph: GraphView, part: Slice) -> Iterator[Match]:
        piece = graph.producer(part.input, Piece)
        split = graph.producer(piece.input, Split) if piece else None
        if piece is None or split is None or split.dim != part.dim or part.start == part.stop:
            return
        if not only_user(graph, piece.node, part.node) or not is_single(graph, split, piece):
            return
        if undisturbed(graph, split.node, piece.node, part.node):
            yield match(part, piece, split, piece=piece, split=split)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        part, width = m.anchor, m.split.sizes[m.piece.index]
        sizes = [part.start, part.stop - part.start, width - part.stop]
        finer = refine(edit, m.split, m.piece.index, [size for size in sizes if size])
        edit.replace(part.node, finer[1 if part.start else 0])


class CatOfColumns(Pattern):
    """Consecutive selects put back side by side, each with its dim, are a slice.

    stack([x[:, 1], x[:, 2], x[:, 3]], 1)   ==>   x[:, 1:4]

    A cat of unsqueezed selects reads as this stack; a cat of slices of width 1 is a case of
    cat_of_pieces. Known from Optimus' select_cat_aten_pass.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Stack})
    cleanup = True
    conditions = ("consecutive indices of one tensor", "stacked along their own dim", "no writes")

    def matches(self, graph: GraphView, stack: Stack) -> Iterator[Match]:
        yield from _stacked_selects(graph, stack, along=True)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        part: Window = m.part
        found = edit.slice(part.source, m.dim, part.start, part.stop)
        edit.replace(m.anchor.node, found)


class StackOfSelects(Pattern):
    """Consecutive selects stacked along another dim are a slice, permuted.

    stack([x[:, 1], x[:, 2]], 0)   ==>   x[:, 1:3].permute(1, 0, ...)

    The copy goes, but who reads the result reads it with strides. This is for what stack_of_unbind
    leaves: few columns of a wide tensor, or readers who would each make a copy.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Stack})
    conditions = (
        "two or more consecutive indices of one tensor",
        "stacked along another dim",
        "no outsider sees the stack's strides or memory",
        "no writes",
    )

    def matches(self, graph: GraphView, stack: Stack) -> Iterator[Match]:
        for found in _stacked_selects(graph, stack, along=False):
            source, result = graph.spec(found.part.source), graph.spec(stack.node)
            stride = list(source.stride)
            stride.insert(stack.dim, stride.pop(found.dim))
            if len(stack.inputs) > 1 and unseen(
                graph, stack.node, result.view(result.shape, stride)
            ):
                yield found

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        part, dim, target = m.part, m.dim, m.anchor.dim
        found = edit.slice(part.source, dim, part.start, part.stop)
        axes = [axis for axis in range(edit.view.ndim(found)) if axis != dim]
        found = edit.permute(found, [*axes[:target], dim, *axes[target:]])
        edit.replace(m.anchor.node, found)


class SliceOfCat(Pattern):
    """A slice of a cat is taken from the inputs in which it lies.

    cat([a, b, c])[0:4]    ==>   a              where each is 4 long
    cat([a, b, c])[5:7]    ==>   b[1:3]
    cat([a, b, c])[0:8]    ==>   cat([a, b])    if the cat has no other user
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Slice})
    cleanup = True
    conditions = (
        "same dim",
        "within one input, or the cat has no other user",
        "no outsider sees the slice's strides or memory",
        "no writes",
    )

    def matches(self, graph: GraphView, part: Slice) -> Iterator[Match]:
        cat = graph.producer(part.input, Cat)
        if cat is None or cat.dim != part.dim or part.start == part.stop:
            return
        windows = parts_of_cat(graph, cat, part.start, part.stop)
        whole = part.stop - part.start == extent(graph, cat.node, cat.dim)
        if whole or is_written(graph, cat.node, *cat.inputs):
            return
        if len(windows) > 1 and not only_user(graph, cat.node, part.node):
            return
        moves = can_be_made_of(graph, part.node, windows, cat.dim)
        if moves and undisturbed(graph, cat.node, part.node):
            yield match(part, cat, windows=windows)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        nodes = cut_out(edit, m.windows, m.anchor.dim)
        inputs = [node for part in m.windows for node in nodes[part]]
        edit.replace(m.anchor.node, edit.cat(inputs, m.anchor.dim))


class SelectOfCat(Pattern):
    """A select along the dim of a cat is a select of one input.

    cat([a, b])[:, 5]   ==>   b[:, 1]   where a is 4 long
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Select})
    cleanup = True
    conditions = ("same dim", "no outsider sees the select's strides or memory", "no writes")

    def matches(self, graph: GraphView, select: Select) -> Iterator[Match]:
        cat = graph.producer(select.input, Cat)
        if cat is None or cat.dim != select.dim or is_written(graph, cat.node, *cat.inputs):
            return
        for part in parts_of_cat(graph, cat, select.index, select.index + 1):
            shape = graph.spec(part.source)
            layout = shape.view(
                graph.shape(select.node),
                (*shape.stride[: cat.dim], *shape.stride[cat.dim + 1 :]),
            )
            alone = undisturbed(graph, cat.node, select.node)
            alone = alone and same_gradient(graph, select.node, part.source)
            if alone and unseen(graph, select.node, layout):
                yield match(select, cat, part=part)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        part: Window = m.part
        edit.replace(m.anchor.node, edit.select(part.source, m.anchor.dim, part.start))


def _is_full(graph: GraphView, part: Slice) -> bool:
    return part.start == 0 and part.stop == extent(graph, part.input, part.dim)


def _stacked_selects(graph: GraphView, stack: Stack, *, along: bool) -> Iterator[Match]:
    """A match if all inputs are consecutive selects; `along`: on the stack's own dim."""
    selects = [graph.producer(node, Select) for node in stack.inputs]
    first = selects[0]
    if first is None or (first.dim == stack.dim) != along:
        return
    parts = [
        Window(select.input, select.index, select.index + 1, (select.node,))
        if select is not None and select.dim == first.dim
        else None
        for select in selects
    ]
    part = join(parts)
    if part is not None and is_one_view(graph, stack.node, part, first.dim):
        yield match(stack, *part.via, part=part, dim=first.dim)
