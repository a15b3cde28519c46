"""Small patterns over sines, right and failing ones."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.ops import Unary
from passwright.passes.pattern import (
    Direction,
    Exactness,
    Match,
    Pattern,
    match,
)


class SineOfSine(Pattern):
    """sin(sin(x)) becomes cos(x), which is as wrong as it is short: only the machinery matters."""

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Unary})

    def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
        inner = graph.producer(anchor.input, Unary)
        if inner and anchor.function == inner.function == "sin":
            yield match(anchor, inner, inner=inner)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, edit.call(torch.cos, m.inner.input))


class RaisesAt(SineOfSine):
    """Raises at a chosen point of its rewrite."""

    def __init__(self, point: int) -> None:
        self.point = point

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        def pass_by(point: int) -> None:
            if point == self.point:
                raise RuntimeError("in the middle")

        pass_by(0)
        new = edit.call(torch.cos, m.inner.input)
        pass_by(1)
        further = edit.call(torch.neg, edit.call(torch.neg, new))
        pass_by(2)
        edit.replace(m.inner.node, new)
        pass_by(3)
        edit.replace(m.anchor.node, further)
        pass_by(4)


class RaisesInMatches(SineOfSine):
    """Fails while it looks."""

    asked = 0

    def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
        self.asked += 1
        yield from super().matches(graph, anchor)
        raise ZeroDivisionError("while looking")


class Endless(SineOfSine):
    """A clean-up that can be applied to its own result for ever."""

    cleanup = True

    def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
        if anchor.function == "cos":
            yield match(anchor)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, edit.call(torch.cos, m.anchor.input))


class RemoveDoubleNegation(Pattern):
    """neg(neg(x)) is x."""

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Unary})
    cleanup = True

    def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
        inner = graph.producer(anchor.input, Unary)
        if inner and anchor.function == inner.function == "neg":
            yield match(anchor, inner, inner=inner)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, m.inner.input)
