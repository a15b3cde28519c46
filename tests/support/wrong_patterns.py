"""Patterns that are wrong in one way each, for tests of the conformance suite.

Most change the graph behind the editor's back: it would refuse what they do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.ops import Binary, Unary
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match


class Twins(Pattern):
    """The same function of the same value, computed once; as it should be."""

    direction = Direction.HORIZONTAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Unary})

    def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
        for user in graph.users(anchor.input):
            twin = graph.producer(user, Unary)
            if (
                twin is None
                or not user.users
                or user <= anchor.node
                or twin.function != anchor.function
            ):
                continue
            if twin.params == anchor.params and self.fits(graph, anchor, twin):
                yield match(anchor, twin, twin=twin, parameters=self.parameters())

    def fits(self, graph: GraphView, first: Unary, second: Unary) -> bool:
        return True

    def parameters(self) -> dict[str, object]:
        return {}

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.twin.node, m.anchor.node)


class FickleTwins(Twins):
    """Finds something every other time."""

    def __init__(self) -> None:
        self.times = itertools.count()

    def fits(self, graph: GraphView, first: Unary, second: Unary) -> bool:
        return next(self.times) % 2 == 0


class TwinsOfOneSpelling(Twins):
    """Knows `torch.tanh` but not `x.tanh()`."""

    def fits(self, graph: GraphView, first: Unary, second: Unary) -> bool:
        return first.node.target is torch.tanh


class GuardingTwins(Twins):
    """Asks a symbolic size for its value."""

    def fits(self, graph: GraphView, first: Unary, second: Unary) -> bool:
        return graph.shape(first.input)[0] != 3


class TwinsByName(Twins):
    """A step that no other process finds again."""

    numbers = itertools.count()

    def parameters(self) -> dict[str, object]:
        return {"number": next(self.numbers)}


class StaleTwins(Twins):
    """Changes the graph behind the editor's back, whatever lies between the two.

    It does not even name the second one among the nodes of the match.
    """

    def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
        for found in super().matches(graph, anchor):
            yield match(anchor, twin=found.twin)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        m.twin.node.replace_all_uses_with(m.anchor.node)
        edit.view.forget(m.anchor.node.users)


class TwinsOfAnyType(StaleTwins):
    """Takes a value in another type for the value."""

    def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
        for op in list(graph.ops(Unary)):
            alike = op.function == anchor.function and anchor.node < op.node and op.node.users
            if alike and _source(op.input) is _source(anchor.input):
                yield match(anchor, op, twin=op)


def _source(node: fx.Node) -> fx.Node:
    return node.all_input_nodes[0] if node.target == "to" else node


class LostGradient(Pattern):
    """tanh(x) becomes tanh(x.detach()) + 0 * x: the value is right."""

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Unary})

    def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
        if anchor.function == "tanh" and anchor.input.op == "placeholder":
            yield match(anchor)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        x = m.anchor.input
        still = edit.call(torch.tanh, edit.call("detach", x))
        edit.replace(m.anchor.node, edit.call(torch.add, still, edit.call(torch.mul, x, 0)))


class SameMemory(Pattern):
    """x * 1 becomes x itself, also where it is returned."""

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Binary})

    def matches(self, graph: GraphView, anchor: Binary) -> Iterator[Match]:
        if anchor.function == "mul" and anchor.right == 1 and anchor.node.users:
            yield match(anchor)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        m.anchor.node.replace_all_uses_with(m.anchor.left)
        edit.view.forget(m.anchor.left.users)


class OtherStrides(Pattern):
    """f(x) becomes f(x.contiguous()), which lies in memory in another order."""

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Unary})

    def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
        if anchor.input.op == "placeholder":
            yield match(anchor)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        x = m.anchor.input
        m.anchor.node.replace_input_with(x, edit.call("contiguous", x))
        edit.view.forget([m.anchor.node])
