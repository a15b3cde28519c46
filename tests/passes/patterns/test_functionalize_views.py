"""In-place ops on views of fresh values made pure."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from passwright.passes.graph import GraphView
from passwright.passes.ops import InplaceBinary
from passwright.passes.patterns.functionalize import OutOfPlace
from passwright.passes.testing import rewrite

PURE = OutOfPlace()


def fresh(s: Any) -> fx.Node:
    """A value of shape (4, 6) in memory of its own."""
    x = s.input(4, 3, requires_grad=True)
    return s.call(torch.cat, [x, s.call(torch.exp, x)], 1)


def right(s: Any, *shape: int) -> fx.Node:
    return s.call(torch.exp, s.input(*shape, requires_grad=True))


# ---- before and after


def test_a_view_is_overwritten(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = (s.input(1, 3, 2, requires_grad=True) for _ in range(2))
    view = s.call(torch.squeeze, s.call(torch.cat, [x, y], -1), 0)
    written = s.call(operator.iadd, view, s.input(3, 4, requires_grad=True))
    s.output(s.call(torch.sin, view), s.call(torch.relu, written))
    assert applied(s, PURE).after == [
        "cat = cat([x0, x1], -1)",
        "squeeze = squeeze(cat, 0)",
        "pw0_add = add(squeeze, x2, alpha=1)",
        "sin = sin(pw0_add)",
        "relu = relu(pw0_add)",
        "return (sin, relu)",
    ]


VIEWS: dict[str, Callable[[Any, fx.Node], fx.Node]] = {
    "view": lambda s, z: s.call("view", z, 6, 4),
    "transpose": lambda s, z: s.call("transpose", z, 0, 1),
    "narrow": lambda s, z: s.call(torch.narrow, z, 1, 1, 3),
    "select": lambda s, z: s.call(torch.select, z, 1, 2),
    "several": lambda s, z: s.call("squeeze", s.call("unsqueeze", s.call("permute", z, 1, 0), 0)),
}


@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.parametrize("spelling", ["add_", "mul_", "relu_"])
@pytest.mark.parametrize("view", list(VIEWS))
def test_views(sketch: Any, applied: Any, view: str, spelling: str, returned: bool) -> None:
    """Where somebody would see that the view was one of part of its base, the write stays."""
    s = sketch()
    value = VIEWS[view](s, fresh(s))
    operands = [] if spelling == "relu_" else [right(s, *value.meta[s.key].shape)]
    written = s.call(spelling, value, *operands)
    s.output(written if returned else s.call(torch.sum, s.call(torch.sin, written)))
    result = applied(s, PURE)
    assert len(result.labels) == (not returned or view not in ("narrow", "select"))


def test_the_base_is_read_before(sketch: Any, applied: Any) -> None:
    """As it was: by what keeps nothing of it."""
    s = sketch()
    z = fresh(s)
    view = s.call("view", z, 24)
    early = s.call(torch.add, z, 1)
    written = s.call("add_", view, right(s, 24))
    s.output(early, s.call(torch.sin, written))
    result = applied(s, PURE)
    assert len(result.labels) == 1


# ---- what must be left alone


def the_base_is_read_later(s: Any, z: fx.Node, view: fx.Node) -> fx.Node:
    return s.call(torch.add, z, s.call("reshape", s.call("add_", view, 1), 4, 6))


def the_base_is_returned(s: Any, z: fx.Node, view: fx.Node) -> fx.Node:
    s.call("add_", view, 1)
    return z


def another_view_before(s: Any, z: fx.Node, view: fx.Node) -> fx.Node:
    other = s.call("view", z, 3, 8)
    return s.call(torch.add, s.call("view", s.call("add_", view, 1), 3, 8), other)


def another_view_after(s: Any, z: fx.Node, view: fx.Node) -> fx.Node:
    s.call("add_", view, 1)
    return s.call(torch.sin, s.call("view", z, 3, 8))


def a_second_write(s: Any, z: fx.Node, view: fx.Node) -> fx.Node:
    s.call("add_", z, 1)
    return s.call("add_", view, 1)


def kept_by_a_reader_of_the_base(s: Any, z: fx.Node, view: fx.Node) -> fx.Node:
    """In training this is an error, and stays one."""
    kept = s.call(torch.mul, z, s.input(4, 6))
    return s.call(torch.add, s.call("view", s.call("add_", view, 1), 4, 6), kept)


def in_another_grad_mode(s: Any, z: fx.Node, _: fx.Node) -> fx.Node:
    s.call(torch._C._set_grad_enabled, False)
    view = s.call("view", z, 24)
    written = s.call("add_", view, 1)
    s.call(torch._C._set_grad_enabled, True)
    return s.call(torch.sin, written)


CASES = (
    *(the_base_is_read_later, the_base_is_returned, another_view_before, another_view_after),
    *(a_second_write, kept_by_a_reader_of_the_base, in_another_grad_mode),
)


@pytest.mark.parametrize("case", CASES)
def test_left_alone(sketch: Any, applied: Any, case: Callable[..., fx.Node]) -> None:
    s = sketch()
    x = s.input(4, 3)
    z = s.call(torch.cat, [x, s.call(torch.exp, x)], 1)
    s.output(case(s, z, s.call("view", z, 24)))
    assert applied(s, PURE, gradients=False).labels == []


def test_a_view_of_an_input(sketch: Any, applied: Any) -> None:
    s = sketch()
    s.output(s.call(torch.sin, s.call("add_", s.call("view", s.input(4, 6), 24), 1)))
    assert applied(s, PURE, gradients=False).labels == []


@pytest.mark.parametrize("cut", [torch.split, torch.chunk])
def test_a_piece(sketch: Any, applied: Any, cut: Any) -> None:
    """One of several views: an error in training, and stays one."""
    s = sketch()
    several = s.call(cut, s.call(torch.add, s.input(4, 6), 1), 2)
    s.output(s.call(torch.sin, s.call("add_", s.call(operator.getitem, several, 0), 1)))
    assert applied(s, PURE, gradients=False).labels == []


# ---- as models have it


class Attention(nn.Module):
    """The residual of an attention, added in place."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2)
        self.residual = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        across = x.transpose(0, 1)
        found, _ = self.attention(across, across, across)
        found = found.transpose(0, 1)
        found += self.residual(x)
        return torch.relu(found).flatten(1)


def test_residual_of_an_attention() -> None:
    x = torch.randn(5, 3, 4, requires_grad=True)
    result = rewrite(Attention(), [x], PURE)
    assert len(result.labels) == 1
    assert not list(GraphView(result.module.graph).ops(InplaceBinary))
    result.check()


def test_dynamic() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        z = torch.cat([x, x.exp()], 1).t()
        z += y
        return z.sin().sum(1)

    x, y = torch.randn(5, 4, requires_grad=True), torch.randn(8, 1, requires_grad=True)
    result = rewrite(fn, [x, y], PURE, dynamic=True)
    assert len(result.labels) == 1
    result.check()
