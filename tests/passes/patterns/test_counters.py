"""Counters side by side."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import fx

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.counters import BatchCounters

COUNTERS = BatchCounters()


def counters(s: Any, count: int, dtype: torch.dtype = torch.int64) -> list[fx.Node]:
    return [s.input(dtype=dtype) for _ in range(count)]


def test_before_and_after(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, *state = s.input(3), *counters(s, 3)
    for value in state:
        s.call("add_", value, 1)
    s.output(s.call(torch.sin, x))
    result = applied(s, COUNTERS)
    assert [label.split(" @ ")[0] for label in result.labels] == ["batch_counters{members=3}"]
    assert result.after == [
        "pw0__foreach_add_ = _foreach_add_([x1, x2, x3], 1)",
        "sin = sin(x0)",
        "return (sin)",
    ]


def test_spellings_and_shapes(sketch: Any, applied: Any) -> None:
    s = sketch()
    state = [s.input(*shape) for shape in ((), (3,), (2, 2), (4,))]
    s.call("add_", state[0], 1)
    s.call("add_", state[1], other=1, alpha=1)
    s.call(operator.iadd, state[2], 1)
    s.call("__iadd__", state[3], 1)
    s.output(s.call(torch.sin, s.input(3)))
    assert applied(s, COUNTERS).count("_foreach_add_") == 1


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(("add_", 2), id="another number"),
        pytest.param(("add_", True), id="a boolean"),
        pytest.param(("sub_", 1), id="another function"),
        pytest.param(("mul_", 1), id="a product"),
    ],
)
def test_near_misses(sketch: Any, groups: Any, call: tuple[str, Any]) -> None:
    s = sketch()
    first, second = counters(s, 2)
    s.call("add_", first, 1)
    s.call(call[0], second, call[1])
    s.output(s.call(torch.sin, s.input(3)))
    assert groups(s, COUNTERS) == []


def test_types_alpha_and_tensors(sketch: Any, groups: Any) -> None:
    s = sketch()
    first, second, third = counters(s, 3)
    s.call("add_", first, 1)
    s.call("add_", s.input(), 1)  # a float
    s.call("add_", second, 1, alpha=2)
    s.call("add_", third, s.input(dtype=torch.int64))
    s.output(s.call(torch.sin, s.input(3)))
    assert groups(s, COUNTERS) == []


@pytest.mark.parametrize("touched", ["result", "returned", "read", "twice", "view"])
def test_who_else_sees_it(sketch: Any, groups: Any, applied: Any, touched: str) -> None:
    s = sketch()
    state = counters(s, 3)
    target = s.call("view", state[0], 1) if touched == "view" else state[0]
    outputs = [s.call("add_", target, 1)]
    for value in state[1:]:
        s.call("add_", value, 1)
    if touched == "twice":
        s.call("add_", state[0], 1)
    seen = {"result": outputs[0], "returned": state[0], "read": s.call(torch.neg, state[0])}
    if touched != "read":
        s.graph.erase_node(seen["read"])
    s.output(*([seen[touched]] if touched in seen else [s.input(3)]))
    assert groups(s, COUNTERS) == [2]
    applied(s, COUNTERS)


def test_fresh_values_are_no_state(sketch: Any, groups: Any) -> None:
    s = sketch()
    for _ in range(2):
        s.call("add_", s.call(torch.sin, s.input(3)), 1)
    s.output(s.input(3))
    assert groups(s, COUNTERS) == []


def test_what_autograd_records(sketch: Any, groups: Any) -> None:
    s = sketch()
    s.call(torch._C._set_grad_enabled, False)
    for _ in range(2):
        s.call("add_", s.input(3, requires_grad=True), 1)
    s.call(torch._C._set_grad_enabled, True)
    s.output(s.call(torch.sin, s.input(3, requires_grad=True)))
    assert groups(s, COUNTERS) == []


def test_regions(sketch: Any, groups: Any, applied: Any) -> None:
    s = sketch()
    state = counters(s, 4)
    for value in state[:2]:
        s.call("add_", value, 1)
    s.call(torch._C._set_grad_enabled, False)
    for value in state[2:]:
        s.call("add_", value, 1)
    s.call(torch._C._set_grad_enabled, True)
    s.output(s.call(torch.sin, s.input(3)))
    assert groups(s, COUNTERS) == [2, 2]
    applied(s, COUNTERS)


def test_torch_ir_only() -> None:
    assert frozenset({Dialect.TORCH}) == COUNTERS.levels
