"""Names and kinds of ops."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from passwright.features import schema
from passwright.features.words import is_view, kind, word
from passwright.passes.graph import GraphView
from passwright.passes.random_graphs import random_graph
from passwright.passes.sketch import Sketch

Call = Callable[[Sketch, fx.Node], fx.Node]


def called(make: Call) -> tuple[GraphView, fx.Node]:
    """A call on an input (4, 8), in a graph of its own."""
    s = Sketch()
    node = make(s, s.input(4, 8))
    s.output(node)
    return s.view(), node


def given(_: Sketch, x: fx.Node) -> fx.Node:
    return x


def transposed(s: Sketch, x: fx.Node) -> fx.Node:
    return s.call(torch.permute, x, (1, 0))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda s, x: s.call(F.linear, x, s.input(16, 8)), "product"),
        (lambda s, x: s.call(torch.matmul, x, s.input(8, 3)), "product"),
        (lambda s, x: s.call(torch.einsum, "ij,jk->ik", x, s.input(8, 3)), "product"),
        (lambda s, x: s.call(torch.relu, x), "pointwise"),
        (lambda s, x: s.call("relu_", s.call("clone", x)), "pointwise"),
        (lambda s, x: s.call(operator.add, x, 1), "pointwise"),
        (lambda s, x: s.call(F.dropout, x, 0.5, True), "pointwise"),
        (lambda s, x: s.call("sum", x, 1), "reduction"),
        (lambda s, x: s.call(torch.softmax, x, -1), "reduction"),
        (lambda s, x: s.call(F.layer_norm, x, (8,)), "reduction"),
        (lambda s, x: s.call(torch.cat, [x, x], 0), "movement"),
        (lambda s, x: s.call(torch.stack, [x, x], 0), "movement"),
        (lambda s, x: s.call("double", x), "movement"),
        (lambda s, x: s.call(F.embedding, s.input(4, dtype=torch.int64), x), "lookup"),
        (transposed, "view"),
        (lambda s, x: s.call(torch.split, x, 4, 1), "view"),
        (lambda s, x: s.call(operator.getitem, s.call(torch.split, x, 4, 1), 0), "view"),
        (lambda s, x: s.call("view", x, 2, 16), "view"),
        (lambda s, x: s.call("contiguous", x), "view"),
        (lambda s, x: s.call("clone", x), "movement"),
        (lambda s, x: s.call(torch.clone, x, memory_format=torch.contiguous_format), "movement"),
        (lambda s, x: s.call("contiguous", transposed(s, x)), "movement"),
        (lambda s, x: s.call("reshape", transposed(s, x), 32), "movement"),
        (lambda s, x: s.call("reshape", x, 32), "view"),
        (lambda s, x: s.call(torch.cumsum, x, 0), "other"),
        (given, "other"),
    ],
)  # fmt: skip
def test_kinds(make: Call, expected: str) -> None:
    assert kind(*called(make)) == expected


def test_views_are_told_from_copies_by_their_memory() -> None:
    assert is_view(*called(transposed))
    assert not is_view(*called(lambda s, x: s.call("reshape", transposed(s, x), 32)))
    # Shares memory, and yet is no view.
    assert not is_view(*called(lambda s, x: s.call("relu_", x)))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda s, x: s.call(F.linear, x, s.input(16, 8)), "Linear"),
        (lambda s, x: s.call(torch.relu, x), "Unary relu"),
        (lambda s, x: s.call(F.relu, x), "Unary relu"),
        (lambda s, x: s.call("relu", x), "Unary relu"),
        (lambda s, x: s.call(torch.mul, x, x), "Binary mul"),
        (lambda s, x: s.call(operator.mul, x, x), "Binary mul"),
        (lambda s, x: s.call("chunk", x, 2, 1), "Split"),
        (lambda s, x: s.call("sum", x, 1), "Reduce sum"),
        (lambda s, x: s.call("cumsum", x, 1), ".cumsum"),
        (lambda s, x: s.call(torch.cumsum, x, 1), "cumsum"),
        (given, "placeholder"),
    ],
)
def test_words(make: Call, expected: str) -> None:
    assert word(*called(make)) == expected


def test_every_node_of_random_graphs_has_a_word_and_a_known_kind() -> None:
    seen = set()
    for seed in range(12):
        view = GraphView(random_graph(seed).module.graph)
        words = {node: word(view, node) for node in view.nodes()}
        assert all(words.values())
        # A word that held a place in memory would be another one in the next process.
        assert not any("0x" in found for found in words.values())
        seen |= {kind(view, node) for node in words}
    assert seen <= set(schema.KINDS)
    assert len(seen) > 4
