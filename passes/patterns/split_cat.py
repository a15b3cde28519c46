"""Cats of what was one tensor before it was cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import (
    consecutive,
    is_written,
    only_user,
    undisturbed,
)
from passwright.passes.ops import Cat, Piece, Split
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.patterns.splits import is_single
from passwright.passes.windows import Window, cut, extent, is_one_view, join, runs, window


class CatOfPieces(Pattern):
    """A cat of consecutive parts of one tensor is a slice of it, and of all its parts the tensor.

    cat([x[0:4], x[4:8]])   ==>   x[0:8]
    cat(split(x, 4))        ==>   x

    Parts are pieces of splits, slices and selects with the dim put back, at any depth. Known from
    Optimus' merge_getitem_cat_pass and select_cat_aten_pass. A cat of one tensor counts as well.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Cat})
    cleanup = True
    conditions = ("parts in order, without gaps", "cut along the cat's dim", "no writes")

    def matches(self, graph: GraphView, cat: Cat) -> Iterator[Match]:
        whole = _all_of_one(graph, cat)
        if whole is not None and is_one_view(graph, cat.node, whole, cat.dim):
            yield match(cat, *whole.via, whole=whole)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        whole = m.whole
        part = edit.slice(whole.source, m.anchor.dim, whole.start, whole.stop)
        edit.replace(m.anchor.node, part)


class MergeConsecutivePieces(Pattern):
    """Neighbours in a cat that were neighbours before the cut are cut out as one piece.

    cat([y, *split(x, 4)[1:3], split(x, 4)[0]])   ==>   cat([y, p[1], p[0]]), p = split(x, [4, 8])
    cat([y, x[0:4], x[4:8]])                      ==>   cat([y, x[0:8]])

    Where others use a piece, see merge_shared_pieces.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Cat})
    cleanup = True
    conditions = ("cut along the cat's dim", "used in the cat alone, once", "no writes between")

    def matches(self, graph: GraphView, cat: Cat) -> Iterator[Match]:
        found = _lone_runs(graph, cat)
        via = [node for run in found for node in run.via]
        if found and not is_written(graph, cat.node) and undisturbed(graph, cat.node, *via):
            yield match(cat, *via, runs=found)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        merged: dict[int, fx.Node] = {}
        for run in m.runs:
            if run.split is None:
                merged[run.at.start] = edit.slice(run.source, m.anchor.dim, run.start, run.stop)
        for split in dict.fromkeys(run.split for run in m.runs if run.split is not None):
            merged |= _coarsen(edit, split, [run for run in m.runs if run.split == split])
        _recat(edit, m.anchor, m.runs, merged)


class MergeSharedPieces(Pattern):
    """As merge_consecutive_pieces, where other users keep the pieces.

    cat([y, p0, p1]), p0 + p1, p0, p1 = split(x, 4)   ==>   cat([y, x[0:8]]), p0 + p1

    The cat gets fewer inputs; backward, x gets one more gradient to add up.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Cat})
    conditions = ("cut along the cat's dim", "some piece has another user", "no writes between")

    def matches(self, graph: GraphView, cat: Cat) -> Iterator[Match]:
        windows = [window(graph, node, cat.dim) for node in cat.inputs]
        found = [_Run.of(windows, at) for at in runs(windows) if len(at) > 1]
        via = [node for run in found for node in run.via]
        if not found or len(found[0].at) == len(windows) or _lone_runs(graph, cat):
            return
        if not is_written(graph, cat.node) and undisturbed(graph, cat.node, *via):
            yield match(cat, *via, runs=found)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        dim = m.anchor.dim
        merged = {r.at.start: edit.slice(r.source, dim, r.start, r.stop) for r in m.runs}
        _recat(edit, m.anchor, m.runs, merged)


@dataclass(frozen=True)
class _Run:
    """Neighbouring inputs of a cat, at positions `at`, that are [start, stop) of one source."""

    at: range
    source: fx.Node
    start: int
    stop: int
    via: tuple[fx.Node, ...]
    #: The split of which all of them are pieces, and their indices there.
    split: Split | None = None
    indices: tuple[int, ...] = ()

    @classmethod
    def of(cls, windows: list[Window | None], at: range, **more: Any) -> _Run:
        whole = join(windows[at.start : at.stop])
        assert whole is not None
        return cls(at, whole.source, whole.start, whole.stop, whole.via, **more)


def _all_of_one(graph: GraphView, cat: Cat) -> Window | None:
    """The part of one tensor that the cat's result is."""
    if len(cat.inputs) > 1:
        windows: list[Window] = []
        for node in cat.inputs:
            found = window(graph, node, cat.dim)
            if found is None or (windows and not windows[-1].precedes(found)):
                return None
            windows.append(found)
        return join(windows)
    size = extent(graph, cat.node, cat.dim)
    return None if size is None else Window(cat.inputs[0], 0, size)


def _lone_runs(graph: GraphView, cat: Cat) -> list[_Run]:
    """Runs of two or more inputs that nobody else uses; none if all of the cat is one run."""
    times = Counter(cat.inputs)
    cuts = [cut(graph, node, cat.dim) if times[node] == 1 else None for node in cat.inputs]
    for position, part in enumerate(cuts):
        if part is not None and not _is_lone(graph, part, cat):
            cuts[position] = None
    found = []
    for at in runs(cuts):
        if 1 < len(at) < len(cuts):
            pieces = [graph.producer(cat.inputs[position], Piece) for position in at]
            splits = {piece.input if piece else None for piece in pieces}
            split = graph.producer(splits.pop(), Split) if len(splits) == 1 else None
            indices = tuple(piece.index for piece in pieces if piece)
            # Pieces of size 0 may be missing in between.
            split = split if consecutive(indices) else None
            found.append(_Run.of(cuts, at, split=split, indices=indices))
    return found


def _is_lone(graph: GraphView, part: Window, cat: Cat) -> bool:
    """The part is used in the cat alone, and is taken from its split once."""
    *before, last = part.via
    if not only_user(graph, last, cat.node):
        return False
    piece = graph.producer(last, Piece)
    split = graph.producer(piece.input, Split) if piece else None
    if piece is not None and split is not None:
        return is_single(graph, split, piece)
    return all(only_user(graph, a, b) for a, b in pairwise([*before, last]))


def _coarsen(edit: GraphEditor, split: Split, found: list[_Run]) -> dict[int, fx.Node]:
    """Splits once, with each run in one piece; returns the pieces by the run's first position."""
    first_index = {run.indices[0]: run for run in found}
    inside = {index for run in found for index in run.indices[1:]}
    sizes: list[int] = []
    place: dict[int, int] = {}
    for index, size in enumerate(split.sizes):
        if index in inside:
            sizes[-1] += size
        else:
            place[index] = len(sizes)
            sizes.append(size)
    merged = edit.split(split.input, sizes, split.dim)
    for index, pieces in (edit.view.pieces(split) or {}).items():
        for piece in pieces:
            if index not in inside and index not in first_index:
                edit.replace(piece.node, merged[place[index]])
    return {run.at.start: merged[place[index]] for index, run in first_index.items()}


def _recat(edit: GraphEditor, cat: Cat, found: list[_Run], merged: dict[int, fx.Node]) -> None:
    """The cat with one input for each run, and the other inputs as they are by now."""
    inside = {position for run in found for position in run.at}
    current = edit.view.producer(cat.node, Cat)
    assert current is not None
    inputs = [
        merged.get(position, node)
        for position, node in enumerate(current.inputs)
        if position in merged or position not in inside
    ]
    edit.replace(cat.node, edit.cat(inputs, cat.dim))
