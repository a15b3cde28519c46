"""Kinds, bytes and sizes of single nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from passwright.features import schema
from passwright.features.facts import Fact, Sizes, fact, product_sizes
from passwright.passes.graph import GraphView
from passwright.passes.random_graphs import random_graph
from passwright.passes.sketch import Sketch

Make = Callable[[Sketch], fx.Node]


def fact_of(make: Make) -> Fact:
    s = Sketch()
    node = make(s)
    s.output(node)
    return fact(s.view(), node)


def product(target: Any, *shapes: tuple[int, ...], **options: Any) -> Make:
    """A call on inputs of these shapes."""
    return lambda s: s.call(target, *(s.input(*shape) for shape in shapes), **options)


def einsum(equation: str, *shapes: tuple[int, ...]) -> Make:
    return lambda s: s.call(torch.einsum, equation, *(s.input(*shape) for shape in shapes))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (product(F.linear, (2, 3, 16), (32, 16)), (1, 6, 32, 16)),
        (product(F.linear, (4, 16), (32, 16), (32,)), (1, 4, 32, 16)),
        (product(torch.mm, (4, 5), (5, 6)), (1, 4, 6, 5)),
        (product(torch.bmm, (3, 4, 5), (3, 5, 6)), (3, 4, 6, 5)),
        (product(torch.matmul, (2, 3, 4, 5), (2, 3, 5, 6)), (6, 4, 6, 5)),
        (product(torch.matmul, (4, 5), (3, 5, 6)), (3, 4, 6, 5)),
        (product(torch.matmul, (3, 4, 5), (5, 6)), (1, 12, 6, 5)),
        (einsum("ij,kj->ik", (4, 5), (6, 5)), (1, 4, 6, 5)),
        (einsum("bij,bjk->bik", (3, 4, 5), (3, 5, 6)), (3, 4, 6, 5)),
        (einsum("bij,bjk->bki", (3, 4, 5), (3, 5, 6)), (3, 4, 6, 5)),
        (einsum("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), (1, 2, 5, 12)),
        (product(F.conv1d, (2, 4, 10), (6, 2, 3), groups=2), (2, 16, 3, 6)),
        (product(F.conv2d, (1, 3, 8, 8), (5, 3, 3, 3), padding=1), (1, 64, 5, 27)),
        (
            product(F.scaled_dot_product_attention, (2, 4, 6, 8), (2, 4, 6, 8), (2, 4, 6, 8)),
            (8, 6, 6, 8),
        ),
        (
            product(F.scaled_dot_product_attention, (2, 4, 6, 8), (2, 4, 10, 8), (2, 4, 10, 16)),
            (8, 6, 10, 8),
        ),
    ],
)  # fmt: skip
def test_sizes_of_products(make: Make, expected: tuple[float, ...]) -> None:
    found = fact_of(make)
    assert found.kind == "product"
    assert found.sizes == pytest.approx(expected)


def test_a_spelling_does_not_change_the_sizes() -> None:
    as_bmm = fact_of(product(torch.bmm, (3, 4, 5), (3, 5, 6)))
    assert fact_of(einsum("bij,bjk->bik", (3, 4, 5), (3, 5, 6))) == as_bmm
    as_linear = fact_of(lambda s: s.call(F.linear, s.input(2, 4, 5), s.input(6, 5)))
    assert fact_of(product(torch.matmul, (2, 4, 5), (5, 6))) == as_linear


def test_work_is_the_number_of_multiplications() -> None:
    assert Sizes(3, 4, 6, 5).work == 360


def test_a_product_that_is_one_number_has_no_sizes() -> None:
    assert fact_of(einsum("i,i->", (4,), (4,))) == Fact("product", 4, None)


def test_an_empty_product() -> None:
    assert fact_of(product(F.linear, (0, 16), (32, 16))).sizes == Sizes(1, 0, 32, 16)
    assert fact_of(product(torch.bmm, (0, 4, 5), (0, 5, 6))).sizes == Sizes(0, 0, 6, 5)


def test_what_is_no_product_has_bytes_alone() -> None:
    assert fact_of(product(torch.relu, (4, 8))) == Fact("pointwise", 128, None)
    assert fact_of(product(torch.cumsum, (4, 8), dim=0)) == Fact("other", 128, None)


def test_the_bytes_of_several_outputs_are_counted_together() -> None:
    found = fact_of(product(torch.split, (4, 8), split_size_or_sections=3, dim=1))
    assert found == Fact("view", 128, None)


@pytest.mark.parametrize("seed", range(16))
def test_random_graphs(seed: int) -> None:
    view = GraphView(random_graph(seed).module.graph)
    for node in view.nodes():
        found = fact(view, node)
        assert found.kind in schema.KINDS
        assert found.nbytes >= 0
        if found.kind != "product":
            assert found.sizes is None
        if found.sizes is not None:
            assert min(found.sizes) >= 0
            assert found.sizes == product_sizes(view, node)
        if view.read(node) is None:
            assert found.kind == "other"


def test_the_sizes_of_a_product_make_up_its_result() -> None:
    """However it is spelled: products, rows and columns are the elements of the result."""
    seen = 0
    for seed in range(30):
        view = GraphView(random_graph(seed).module.graph)
        for node in view.nodes():
            sizes = fact(view, node).sizes
            if sizes is not None and type(view.read(node)).__name__ != "Attention":
                seen += 1
                expected = view.spec(node).numel
                assert sizes.products * sizes.m * sizes.n == pytest.approx(expected), node
    assert seen > 20
