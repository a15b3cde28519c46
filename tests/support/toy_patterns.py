"""Toy patterns for tests of policy: they rewrite wrongly, and that is all such a test needs."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.ops import Unary
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match


class Rename(Pattern):
    """f(x) becomes g(x), which is wrong, and all that a test of policy needs."""

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Unary})
    before, after = "", torch.sin

    def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
        if anchor.function == self.before:
            yield match(anchor)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, edit.call(self.after, m.anchor.input))


class TanhToSin(Rename):
    """First half of a way of two steps."""

    before, after = "tanh", torch.sin


class SinToCos(Rename):
    """Second half of it."""

    before, after = "sin", torch.cos


class ExpToLog(Rename):
    """A step by itself."""

    before, after = "exp", torch.log


class Lossy(Rename):
    """Only where the user accepts it."""

    exactness = Exactness.RELAXED
    before, after = "exp", torch.sqrt


class TanhOfTanh(Pattern):
    """Takes two neighbours, so that it conflicts with what takes one of them."""

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Unary})

    def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
        inner = graph.producer(anchor.input, Unary)
        if inner and anchor.function == inner.function == "tanh":
            yield match(anchor, inner, inner=inner)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, edit.call(torch.erf, m.inner.input))
