"""How much arithmetic nodes do, against hand counts."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.graph import GraphView
from passwright.passes.spec import Spec
from passwright.passes.testing import capture
from passwright.scheduler.work import exponentials, op_name, product_flops, product_items


def captured(fn, *inputs) -> tuple[GraphView, list[fx.Node]]:
    view = GraphView(capture(fn, inputs)[0].graph)
    return view, [n for n in view.nodes() if n.op.startswith("call")]


def product(fn, *inputs) -> tuple[float, int]:
    """Operations and items of the last product in a function."""
    view, nodes = captured(fn, *inputs)
    spec = view.spec(nodes[-1])
    assert isinstance(spec, Spec)
    return product_flops(view, nodes[-1], spec), product_items(nodes[-1], spec)


def counted(fn) -> float:
    view, nodes = captured(fn, torch.rand(4, 4))
    return exponentials(nodes, view)


def test_moving_and_adding_takes_no_exponential():
    assert counted(lambda x: torch.relu(x.reshape(2, 8) * 3 + 1)) == 0


def test_functions_are_weighed_in_exponentials():
    assert counted(torch.exp) == 1
    assert 1 < counted(torch.sigmoid) < counted(torch.tanh) < counted(F.mish)
    assert counted(torch.tanh) == counted(lambda x: (x + 1).tanh()) == counted(torch.tanh_)


def test_functions_side_by_side_add_up():
    both = counted(lambda x: torch.tanh(x) + torch.exp(x))
    assert both == pytest.approx(counted(torch.tanh) + 1)


def test_a_function_of_a_function_waits_also_through_a_view_or_a_sum():
    for between in (lambda y: y, lambda y: y.reshape(2, 8), lambda y: y * 2 + 1):
        found = counted(lambda x, between=between: torch.exp(between(torch.exp(x))))
        assert found > 2.5


def test_products_count_two_operations_for_a_multiply_add():
    a, b = torch.rand(6, 5), torch.rand(5, 7)
    plain = 2 * 6 * 5 * 7
    assert product(torch.mm, a, b) == (plain, 1)
    assert product(lambda a, b: torch.tensordot(a, b, dims=([1], [0])), a, b)[0] == pytest.approx(
        plain
    )
    assert product(lambda a, b: F.linear(a, b), a, torch.rand(7, 5)) == (plain, 1)
    assert product(lambda a, b: torch.einsum("bk,kn->bn", a, b), a, b) == (plain, 1)


def test_a_batched_product_consists_of_items():
    a, b = torch.rand(3, 2, 6, 5), torch.rand(3, 2, 5, 7)
    assert product(torch.matmul, a, b) == (6 * 2 * 6 * 5 * 7, 6)
    assert product(torch.bmm, a[0], b[0]) == (2 * 2 * 6 * 5 * 7, 2)


def test_an_op_has_one_name_in_every_spelling():
    _, nodes = captured(lambda x: torch.tanh(x).tanh(), torch.rand(2))
    assert [op_name(node) for node in nodes] == ["tanh", "tanh"]
