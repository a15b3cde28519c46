"""Cats of very many parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import batchable
from passwright.passes.ops import Cat
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match

#: Inductor makes a cat of more parts than this in another way: a kernel for each part, or one giant.
PARTS = 8
#: Where that makes a difference.
DEVICES = frozenset({"cuda"})


class CatInGroups(Pattern):
    """A cat of many parts becomes a cat of cats of at most 8 parts.

    cat([a, b, ..., i, j])   ==>   cat([cat([a, b, ...]), cat([..., i, j])])

    So that no giant kernel comes of it. Groups are as even as may be; by that they are told from
    nested cats that flatten_nested_cats is to spread out.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Cat})
    conditions = ("more than 8 parts", "CUDA")

    def matches(self, graph: GraphView, cat: Cat) -> Iterator[Match]:
        there = graph.spec(cat.node).device.type in DEVICES
        if len(cat.inputs) > PARTS and there and batchable(graph, cat.node):
            yield match(cat, parameters={"parts": PARTS})

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        cat: Cat = m.anchor
        parts = list(cat.inputs)
        while len(parts) > PARTS:
            bounds = accumulate(group_sizes(len(parts)), initial=0)
            parts = [edit.cat(parts[start:stop], cat.dim) for start, stop in pairwise(bounds)]
        edit.replace(cat.node, edit.cat(parts, cat.dim))


def group_sizes(count: int) -> Sequence[int]:
    """`count` in as few even groups as may be, the larger ones first: 26 is 7 + 7 + 6 + 6."""
    groups = -(-count // PARTS)
    small, larger = divmod(count, groups)
    return [small + 1] * larger + [small] * (groups - larger)


def is_grouped(graph: GraphView, outer: fx.Node) -> bool:
    """The cat looks as CatInGroups leaves it, and should stay so."""
    cat = graph.producer(outer, Cat)
    if cat is None or graph.spec(outer).device.type not in DEVICES:
        return False
    inner = [graph.producer(value, Cat) for value in cat.inputs]
    sizes = [len(part.inputs) if part and part.dim == cat.dim else 0 for part in inner]
    return sum(sizes) > PARTS and sizes == group_sizes(sum(sizes))
