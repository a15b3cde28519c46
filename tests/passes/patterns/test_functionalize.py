"""In-place ops made pure."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from passwright.passes.dialect import Dialect
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.ops import InplaceUnary, Unary
from passwright.passes.patterns.functionalize import OutOfPlace
from passwright.passes.patterns.linears import BatchLinears
from passwright.passes.patterns.pointwise import BatchUnaries
from passwright.passes.patterns.stack_unbind import (
    CatOfUnbind,
    StackOfPieces,
    StackOfUnbind,
    UnbindOfStack,
)
from passwright.passes.table import PatternTable
from passwright.passes.testing import rewrite, text

PURE = OutOfPlace()


def linear(s: Any, x: fx.Node) -> fx.Node:
    return s.call(F.linear, x, s.input(4, 4, requires_grad=True), s.input(4, requires_grad=True))


# ---- before and after


def test_later_users_take_the_new_value(sketch: Any, applied: Any) -> None:
    s = sketch()
    z = linear(s, s.input(3, 4, requires_grad=True))
    early = s.call(torch.add, z, 1)
    written = s.call(F.relu, z, inplace=True)
    s.output(early, s.call(torch.mul, z, 2), s.call(torch.sin, written))
    assert applied(s, PURE).after == [
        "linear = linear(x0, x1, x2)",
        "pw0_relu = relu(linear)",
        "add = add(linear, 1)",
        "mul = mul(pw0_relu, 2)",
        "sin = sin(pw0_relu)",
        "return (add, mul, sin)",
    ]


def test_outputs_stay_one_tensor(sketch: Any, applied: Any) -> None:
    """Returned under both of its names, the value is still one tensor."""
    s = sketch()
    z = linear(s, s.input(3, 4, requires_grad=True))
    s.output(z, s.call("relu_", z))
    result = applied(s, PURE)
    assert result.calls == ["linear", "relu"]
    first, second = result.module(*result.inputs)
    assert first is second


def test_an_unused_result(sketch: Any, applied: Any) -> None:
    s = sketch()
    z = linear(s, s.input(3, 4, requires_grad=True))
    s.call(torch.relu_, z)
    s.output(s.call(torch.sin, z))
    assert applied(s, PURE).calls == ["linear", "relu", "sin"]


def test_the_step_can_be_undone(sketch: Any) -> None:
    s = sketch()
    z = linear(s, s.input(3, 4))
    s.call(torch.relu_, z)
    s.output(s.call(torch.sin, z))
    view = s.view()
    before, writes = text(s.graph), len(view.writes)
    rewriter = Rewriter(view, PatternTable([PURE]))
    with rewriter.rehearsal():
        rewriter.apply(rewriter.candidates()[0])
        assert not view.writes
        found = [view.address(node) for node in view.nodes()]
        assert len(set(found)) == len(found)
    assert (text(s.graph), len(view.writes)) == (before, writes)
    assert len(rewriter.candidates()) == 1


# ---- spellings


def written(x: Tensor, w: Tensor) -> list[Tensor]:
    """Every function that may be made pure, in every spelling, on a fresh value each."""
    fresh = [F.linear(x, w) for _ in range(23)]
    results = [
        F.relu(fresh[0], inplace=True),
        F.relu(fresh[1], True),
        fresh[2].relu_(),
        torch.relu_(fresh[3]),
        F.relu_(fresh[4]),
        F.relu6(fresh[5], inplace=True),
        F.silu(fresh[6], inplace=True),
        F.mish(fresh[7], inplace=True),
        F.elu(fresh[8], 0.5, inplace=True),
        F.leaky_relu(fresh[9], negative_slope=0.2, inplace=True),
        F.hardtanh(fresh[10], -0.5, 0.5, True),
        F.hardsigmoid(fresh[11], inplace=True),
        F.hardswish(fresh[12], inplace=True),
        F.celu(fresh[13], alpha=2.0, inplace=True),
        F.selu(fresh[14], inplace=True),
        torch.tanh_(fresh[15]),
        fresh[16].tanh_(),
        torch.sigmoid_(fresh[17]),
        fresh[18].neg_(),
        torch.abs_(fresh[19]),
        fresh[20].clamp_(-0.5, 0.5),
        torch.clamp_(fresh[21], max=0.5),
        (fresh[22] + 10).sqrt_(),
    ]
    return [result * 2 for result in results]


def test_spellings() -> None:
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    result = rewrite(written, [x, w], PURE)
    before, after = GraphView(result.original.graph), GraphView(result.module.graph)
    assert len(list(before.ops(InplaceUnary))) == 23
    assert len(list(after.ops(InplaceUnary))) == 0
    assert len(list(after.ops(Unary))) == 23
    assert not after.writes
    result.check()


class Tower(nn.Module):
    """Two Linears with what usually stands between them."""

    def __init__(self, norm: bool) -> None:
        super().__init__()
        middle = [nn.BatchNorm1d(6)] if norm else []
        self.layers = nn.Sequential(
            nn.Linear(4, 6), *middle, nn.ReLU(inplace=True), nn.Linear(6, 5), nn.ReLU(inplace=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Towers(nn.Module):
    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.towers = nn.ModuleList(Tower(norm) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([tower(p) for tower, p in zip(self.towers, x.chunk(3, 1), strict=True)], 1)


@pytest.mark.parametrize("norm", [False, True])
def test_towers(norm: bool) -> None:
    x = torch.randn(8, 12, requires_grad=True)
    result = rewrite(Towers(norm), [x], PURE)
    assert not list(GraphView(result.module.graph).ops(InplaceUnary))
    result.check()


def test_towers_can_then_be_batched() -> None:
    x = torch.randn(8, 12, requires_grad=True)
    batch = (BatchLinears(), BatchUnaries())
    tidy = (StackOfPieces(), StackOfUnbind(), UnbindOfStack(), CatOfUnbind())
    blocked = rewrite(Towers(), [x], *batch, *tidy)
    assert blocked.count("baddbmm") == 0
    result = rewrite(Towers(), [x], PURE, *batch, *tidy)
    assert (result.count("baddbmm"), result.count("relu"), result.count("unbind")) == (2, 2, 0)
    result.check()


@pytest.mark.parametrize("grad", [False, True])
def test_regions(grad: bool) -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        with torch.set_grad_enabled(grad), torch.autocast("cpu", torch.bfloat16):
            return torch.relu_(F.linear(x, w)).tanh_().float() * 2

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    result = rewrite(fn, [x, w], PURE)
    # Of two writes the second overwrites what the first keeps for its gradient.
    assert result.labels == []
    result.check(gradients=False)


def test_dynamic() -> None:
    x = torch.randn(8, 12)
    result = rewrite(Towers(), [x], PURE, dynamic=True)
    assert not list(GraphView(result.module.graph).ops(InplaceUnary))
    result.check()


def test_aten_is_functional_already() -> None:
    assert Dialect.ATEN not in PURE.levels
    assert PURE.normalizes


# ---- what must be left alone


def on_an_input(s: Any, x: fx.Node) -> fx.Node:
    return s.call("relu_", x)


def on_a_view_of_an_input(s: Any, x: fx.Node) -> fx.Node:
    return s.call("relu_", s.call("view", x, 12))


def on_a_view(s: Any, x: fx.Node) -> fx.Node:
    z = s.call(torch.add, x, 1)
    s.call("relu_", s.call(torch.select, z, 0, 1))
    return z


def with_a_view_before(s: Any, x: fx.Node) -> fx.Node:
    z = s.call(torch.add, x, 1)
    view = s.call("view", z, 12)
    s.call("relu_", z)
    return view


def with_a_view_after(s: Any, x: fx.Node) -> fx.Node:
    z = s.call(torch.add, x, 1)
    return s.call("view", s.call("relu_", z), 12)


def with_a_user_that_keeps_it(s: Any, x: fx.Node) -> fx.Node:
    """In training this is an error, and stays one."""
    z = s.call(torch.add, x, 1)
    kept = s.call(torch.mul, z, x)
    s.call("relu_", z)
    return s.call(torch.add, kept, z)


def of_a_result_that_is_kept(s: Any, x: fx.Node) -> fx.Node:
    return s.call("relu_", s.call(torch.sigmoid, x))


def written_before(s: Any, x: fx.Node) -> fx.Node:
    z = s.call(torch.add, x, 1)
    s.call("mul_", z, 2)
    return s.call("relu_", z)


def written_after(s: Any, x: fx.Node) -> fx.Node:
    z = s.call(torch.add, x, 1)
    s.call("relu_", z)
    return s.call("mul_", z, 2)


def into_an_out_argument(s: Any, x: fx.Node) -> fx.Node:
    z = s.call(torch.add, x, 1)
    s.call(torch.add, x, 2, out=z)
    return s.call("relu_", z)


def across_grad_modes(s: Any, x: fx.Node) -> fx.Node:
    z = s.call(torch.add, x, 1)
    s.call(torch._C._set_grad_enabled, False)
    s.call("relu_", z)
    s.call(torch._C._set_grad_enabled, True)
    return s.call(torch.mul, z, 2)


def exponential(s: Any, x: fx.Node) -> fx.Node:
    """Autocast would run exp, but not exp_, in float32."""
    return s.call("exp_", s.call(torch.add, x, 1))


@pytest.mark.parametrize(
    "case",
    [
        *(on_an_input, on_a_view_of_an_input, on_a_view, with_a_view_before, with_a_view_after),
        *(with_a_user_that_keeps_it, of_a_result_that_is_kept, written_before, written_after),
        *(into_an_out_argument, across_grad_modes, exponential),
    ],
)
def test_left_alone(sketch: Any, applied: Any, case: Callable[..., fx.Node]) -> None:
    s = sketch()
    value = case(s, s.input(3, 4))
    s.output(value)
    assert applied(s, PURE, gradients=False).labels == []


# ---- two operands


@pytest.mark.parametrize("spelling", ["add_", "sub_", "mul_", "div_", operator.iadd])
def test_in_place_with_a_second_operand(sketch: Any, applied: Any, spelling: Any) -> None:
    """`logit += other`, as public models add up their parts."""
    s = sketch()
    z = linear(s, s.input(3, 4, requires_grad=True))
    written = s.call(spelling, z, s.call(torch.exp, s.input(4)))
    s.output(s.call(torch.sin, z), s.call(torch.cos, written))
    result = applied(s, PURE)
    name = getattr(spelling, "__name__", str(spelling)).strip("_").removeprefix("i")
    assert result.calls.count(name) == 1
    assert [line.split(" = ")[1] for line in result.after[-3:-1]] == [
        f"sin(pw0_{name})",
        f"cos(pw0_{name})",
    ]


def test_in_place_with_a_number(sketch: Any, applied: Any) -> None:
    s = sketch()
    z = linear(s, s.input(3, 4, requires_grad=True))
    s.output(s.call("add_", z, 2, alpha=3))
    result = applied(s, PURE)
    assert result.after[-2:] == ["pw0_add = add(linear, 2, alpha=3)", "return (pw0_add)"]


@pytest.mark.parametrize(
    "right",
    [
        lambda s, _: s.input(3, 4, dtype=torch.float64),
        lambda _, z: z,
        lambda s, _: s.input(3, 4, dtype=torch.int64),
    ],
    ids=["wider", "of the same memory", "integers"],
)
def test_other_second_operands_stay_in_place(sketch: Any, applied: Any, right: Any) -> None:
    s = sketch()
    z = linear(s, s.input(3, 4))
    s.output(s.call("add_", z, right(s, z)))
    result = applied(s, PURE, gradients=False)
    assert result.after == result.before


def test_an_input_is_overwritten_all_the_same(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(3, 4)
    s.output(s.call("add_", x, 1))
    result = applied(s, PURE)
    assert result.after == result.before
