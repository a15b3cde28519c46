"""Linears with one input or output feature, as pointwise arithmetic."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.dense_fields import LinearOfOne, LinearsOfOne, LinearToOne
from passwright.passes.testing import rewrite

aten = torch.ops.aten
OF_ONE, TO_ONE, SIDE_BY_SIDE = LinearOfOne(), LinearToOne(), LinearsOfOne()


def linear(s: Any, x: Any, out: int, width: int, bias: bool = True, **kwargs: Any) -> Any:
    weight = s.input(out, width, requires_grad=True, **kwargs)
    return s.call(F.linear, x, weight, s.input(out, requires_grad=True, **kwargs) if bias else None)


@pytest.mark.parametrize("shape", [(5,), (5, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_of_one(sketch: Any, applied: Any, shape: tuple[int, ...], bias: bool) -> None:
    s = sketch()
    s.output(linear(s, s.input(*shape, 1, requires_grad=True), 4, 1, bias))
    result = applied(s, OF_ONE)
    assert result.calls == ["reshape", "mul", *(["add"] if bias else [])]


@pytest.mark.parametrize("shape", [(5,), (5, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_to_one(sketch: Any, applied: Any, shape: tuple[int, ...], bias: bool) -> None:
    s = sketch()
    s.output(linear(s, s.input(*shape, 7, requires_grad=True), 1, 7, bias))
    result = applied(s, TO_ONE)
    assert result.calls == ["reshape", "mul", "sum", *(["add"] if bias else [])]


@pytest.mark.parametrize("pattern", [OF_ONE, TO_ONE], ids=lambda p: p.name())
def test_aten(sketch: Any, applied: Any, pattern: Any) -> None:
    s = sketch(Dialect.ATEN)
    out, width = (4, 1) if pattern is OF_ONE else (1, 4)
    turned = s.call(aten.t.default, s.input(out, width))
    s.output(s.call(aten.addmm.default, s.input(out), s.input(5, width), turned))
    result = applied(s, pattern)
    assert result.count("aten.mul.Tensor") == 1
    assert result.count("aten.addmm.default") == 0


@pytest.mark.parametrize("pattern", [OF_ONE, TO_ONE, SIDE_BY_SIDE], ids=lambda p: p.name())
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_are_rounded_once(
    sketch: Any, applied: Any, pattern: Any, dtype: torch.dtype
) -> None:
    s = sketch()
    out, width = (1, 64) if pattern is TO_ONE else (4, 1)
    xs = [s.input(5, width, requires_grad=True, dtype=dtype) for _ in range(2)]
    s.output(*(linear(s, x, out, width, dtype=dtype) for x in xs))
    result = applied(s, pattern, gradients=False)
    x, *_ = result.inputs
    assert result.count("to") == 0
    assert result.count(".to") >= 4
    actual, expected = result.module(*result.inputs), result.original(*result.inputs)
    for got, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=2 * torch.finfo(x.dtype).eps, atol=1e-6)


def test_side_by_side(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(5, 6, requires_grad=True)
    every = slice(None)
    cuts = [s.call(operator.getitem, x, (every, slice(i, i + 1))) for i in range(3)]
    s.output(s.call(torch.stack, [linear(s, cut, 4, 1) for cut in cuts], 1))
    result = applied(s, SIDE_BY_SIDE)
    assert result.labels[0].startswith("linears_of_one{members=3} @ ")
    assert result.count("linear") == 0
    assert result.count("mul") == 1
    assert result.count("add") == 1


def test_near_misses(sketch: Any, groups: Any) -> None:
    def counts(make: Any) -> list[int]:
        s = sketch()
        s.output(linear(s, s.input(5, 1), 4, 1), make(s))
        view = s.view()
        ops = [view.read(node) for node in view.nodes()]
        found = [
            sum(len(list(p.matches(view, op))) for op in ops if type(op) in p.anchors)
            for p in (OF_ONE, TO_ONE)
        ]
        return [*found, *groups(s, SIDE_BY_SIDE)]

    assert counts(lambda s: linear(s, s.input(5, 1), 4, 1)) == [2, 0, 2]
    assert counts(lambda s: linear(s, s.input(5, 1), 3, 1)) == [2, 0]
    assert counts(lambda s: linear(s, s.input(5, 1), 4, 1, bias=False)) == [2, 0]
    assert counts(lambda s: linear(s, s.input(5, 2), 4, 2)) == [1, 0]
    assert counts(lambda s: linear(s, s.input(5, 2), 1, 2)) == [1, 1]
    assert counts(lambda s: linear(s, s.input(1), 4, 1)) == [1, 0]
    assert counts(lambda s: linear(s, s.input(6, 1), 4, 1)) == [2, 0]
    assert counts(lambda s: s.call("relu_", linear(s, s.input(5, 1), 4, 1))) == [1, 0]


def test_autocast_is_left_alone(sketch: Any) -> None:
    """There a Linear has 16 bits, and a product has not."""
    for way in "graph", "caller", "none":
        s = sketch()
        x = s.input(5, 1)
        if way == "graph":
            cast = s.call(
                torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, True
            )
        y = linear(s, x, 4, 1)
        if way == "graph":
            s.call(torch.amp.autocast_mode._exit_autocast, cast)
        s.output(y)
        view = s.view()
        op = view.read(y)
        with torch.autocast("cpu", enabled=way == "caller"):
            assert bool(list(OF_ONE.matches(view, op))) is (way == "none"), way


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fields = nn.ModuleList(nn.Linear(1, 4) for _ in range(3))
        self.last = nn.Linear(12, 1)

    def forward(self, x: Tensor) -> Tensor:
        rows = [field(x[:, i : i + 1]) for i, field in enumerate(self.fields)]
        return self.last(torch.cat(rows, 1))


@pytest.mark.parametrize("patterns", [(OF_ONE, TO_ONE), (SIDE_BY_SIDE,)], ids=["alone", "together"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_modules(patterns: Any, dynamic: bool) -> None:
    x = torch.randn(6, 5)
    if dynamic:
        torch._dynamo.mark_dynamic(x, 0)
    result = rewrite(Dense(), [x], *patterns, dynamic=None)
    assert result.count("linear") == (0 if OF_ONE in patterns else 1)
    result.check()
