"""Cats that are cut up again, or poured into another cat."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import is_written, only_user, same_gradient, undisturbed
from passwright.passes.ops import Cat, Piece, Slice, Split
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.patterns.big_cats import is_grouped
from passwright.passes.windows import (
    Window,
    atoms,
    can_be_made_of,
    cut_out,
    extent,
    is_whole,
    parts_of_cat,
    window,
)


class FlattenNestedCats(Pattern):
    """A cat that only flows into cats along its own dim, whole or in parts, is spread out in them.

    cat([cat([a, b]), c])                   ==>   cat([a, b, c])
    cat(reversed(split(cat([a, b]), ...)))  ==>   cat of b and a, cut where a piece ends

    One copy less. Left alone where the cats together would get more inputs than before.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Cat})
    cleanup = True
    conditions = (
        "same dim",
        "known sizes",
        "no other kind of user",
        "not more inputs in all",
        "not a large cat in even groups (see cat_in_groups)",
        "no writes",
    )

    def matches(self, graph: GraphView, inner: Cat) -> Iterator[Match]:
        whole = parts_of_cat(graph, inner, 0, extent(graph, inner.node, inner.dim) or 0)
        readers = _reading_cats(graph, inner) if len(whole) > 1 else None
        # A source that is written later may not be split: autograd would forbid the write.
        if not readers or is_written(graph, inner.node, *inner.inputs, *readers[0]):
            return
        outers, views = readers
        if any(is_grouped(graph, outer) for outer in outers):
            return
        poured = [_poured(graph, inner, graph.producer(node, Cat)) for node in outers]
        windows = [w for each in poured for parts in each.values() for w in parts]
        pieces = atoms(graph, windows, inner.dim)
        grown = sum(len(pieces[w]) for w in windows) - sum(map(len, poured))
        if grown > len(inner.inputs) or not undisturbed(graph, inner.node, *outers, *views):
            return
        if all(_keeps_gradient(graph, *pair) for pair in zip(outers, poured, strict=True)):
            yield match(inner, *outers, *views, outers=outers, windows=windows)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        inner = m.anchor
        nodes = cut_out(edit, m.windows, inner.dim)
        for outer in m.outers:
            # One outer cat may flow into the next, so look at it as it is by now.
            cat = edit.view.producer(outer, Cat)
            assert cat is not None
            poured = _poured(edit.view, inner, cat)
            inputs: list[fx.Node] = []
            for position, node in enumerate(cat.inputs):
                parts = poured.get(position)
                inputs += [node] if parts is None else [n for w in parts for n in nodes[w]]
            edit.replace(outer, edit.cat(inputs, cat.dim))


class SplitOfCat(Pattern):
    """A piece of a cat that is one of its inputs, or lies within one, is taken from there.

    split(cat([a, b]), [4, 8])   ==>   a, b                       where a is 4 long and b 8
    split(cat([a, b]), 2)        ==>   split(a, 2), split(b, 2)   if the cat has no other user

    One piece that spans several inputs becomes a smaller cat, if the large one then goes.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Split})
    cleanup = True
    conditions = ("same dim", "no outsider sees the piece's strides or memory", "no writes")

    def matches(self, graph: GraphView, split: Split) -> Iterator[Match]:
        cat, parts = _movable(graph, split)
        if cat is None:
            return
        spanning = sum(len(part) > 1 for part in parts.values())
        if not (_dies(graph, cat, split, parts) and spanning <= 1):
            whole = {i for i, p in parts.items() if len(p) == 1 and is_whole(graph, p[0], cat.dim)}
            parts = {i: p for i, p in parts.items() if i in whole}
        if parts:
            yield _apart(graph, split, cat, parts)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        take_apart(m, edit)


class SplitCatIntoCats(Pattern):
    """A cat that is only split becomes several smaller cats, one for each piece.

    split(cat([a, b, c, d]), 8)   ==>   cat([a, b]), cat([c, d])   where each is 4 long

    The same bytes in more kernels, each independent of the others.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Split})
    conditions = (
        "same dim",
        "the cat has no other user",
        "two or more pieces span several inputs",
        "no outsider sees the pieces' strides or memory",
        "no writes",
    )

    def matches(self, graph: GraphView, split: Split) -> Iterator[Match]:
        cat, parts = _movable(graph, split)
        spanning = sum(len(part) > 1 for part in parts.values())
        if cat is not None and spanning > 1 and _dies(graph, cat, split, parts):
            yield _apart(graph, split, cat, parts)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        take_apart(m, edit)


def take_apart(m: Match, edit: GraphEditor) -> None:
    """Makes the matched pieces of a split from the parts of a cat's inputs."""
    windows = [window for parts in m.parts.values() for window in parts]
    nodes = cut_out(edit, windows, m.anchor.dim)
    for index, pieces in m.taken.items():
        inputs = [node for part in m.parts[index] for node in nodes[part]]
        whole = edit.cat(inputs, m.anchor.dim)
        for piece in pieces:
            edit.replace(piece.node, whole)


def _reading_cats(graph: GraphView, inner: Cat) -> tuple[list[fx.Node], list[fx.Node]] | None:
    """The cats that read `inner` along its dim and the views between; None if others read it."""
    outers: dict[fx.Node, None] = {}
    views: dict[fx.Node, None] = {}
    pending = [inner.node]
    while pending:
        for user in pending.pop().users:
            op = graph.read(user)
            if isinstance(op, Cat) and op.dim == inner.dim:
                outers[user] = None
            elif isinstance(op, Piece) or (isinstance(op, Split | Slice) and op.dim == inner.dim):
                views[user] = None
                pending.append(user)
            else:
                return None
    return sorted(outers), list(views)


def _poured(graph: GraphView, inner: Cat, outer: Cat | None) -> dict[int, list[Window]]:
    """Input positions of `outer` that are parts of `inner`, as windows of the inputs of `inner`."""
    found: dict[int, list[Window]] = {}
    for position, node in enumerate(outer.inputs if outer else ()):
        part = window(graph, node, inner.dim)
        if part is not None and part.source is inner.node:
            found[position] = parts_of_cat(graph, inner, part.start, part.stop)
    return found


def _keeps_gradient(graph: GraphView, outer: fx.Node, poured: dict[int, list[Window]]) -> bool:
    """The outer cat needs a gradient before and after; False if some part cannot be poured."""
    if not all(poured.values()):
        return False
    cat = graph.producer(outer, Cat)
    kept = [node for at, node in enumerate(cat.inputs if cat else ()) if at not in poured]
    sources = [part.source for parts in poured.values() for part in parts]
    return same_gradient(graph, outer, *kept, *sources)


def _movable(graph: GraphView, split: Split) -> tuple[Cat | None, dict[int, list[Window]]]:
    """The cat that is split, and for each used piece that may move: the parts it consists of."""
    cat, taken = graph.producer(split.input, Cat), graph.pieces(split)
    if cat is None or cat.dim != split.dim or not taken:
        return None, {}
    if is_written(graph, cat.node, *cat.inputs):
        return None, {}
    nodes = [piece.node for pieces in taken.values() for piece in pieces]
    if not undisturbed(graph, cat.node, split.node, *nodes):
        return None, {}
    movable = {}
    for index, pieces in taken.items():
        start, size = split.starts[index], split.sizes[index]
        parts = parts_of_cat(graph, cat, start, start + size)
        if all(can_be_made_of(graph, piece.node, parts, cat.dim) for piece in pieces):
            movable[index] = parts
    return cat, movable


def _dies(graph: GraphView, cat: Cat, split: Split, parts: dict[int, list[Window]]) -> bool:
    """Nothing needs the cat any more once these pieces are moved."""
    return (
        only_user(graph, cat.node, split.node)
        and parts.keys() == (graph.pieces(split) or {}).keys()
    )


def _apart(graph: GraphView, split: Split, cat: Cat, parts: dict[int, list[Window]]) -> Match:
    taken = {index: (graph.pieces(split) or {})[index] for index in parts}
    nodes = [piece.node for pieces in taken.values() for piece in pieces]
    return match(split, cat, *nodes, cat=cat, taken=taken, parts=parts)
