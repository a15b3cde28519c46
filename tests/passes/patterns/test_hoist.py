"""Pointwise functions moved to the whole of what was cut or is put together."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx

from passwright.passes.dialect import Dialect
from passwright.passes.graph import GraphView
from passwright.passes.ops import Unary
from passwright.passes.pattern import Exactness
from passwright.passes.patterns.hoist import UnaryAboveSplit, UnaryBelowCat
from passwright.passes.testing import rewrite

ABOVE, BELOW = UnaryAboveSplit(), UnaryBelowCat()


def pieces(s: Any, several: fx.Node) -> list[fx.Node]:
    count = len(several.meta["example_value"])
    return [s.call(operator.getitem, several, i) for i in range(count)]


def hidden(s: Any, *values: fx.Node) -> None:
    """Outputs behind an op with a layout of its own: nobody sees the strides of the values."""
    s.output(*(s.call(torch.cat, [value, value]) for value in values))


def unaries(module: fx.GraphModule) -> int:
    return len(list(GraphView(module.graph).ops(Unary)))


# ---- before and after


def test_above_a_split(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(3, 7, requires_grad=True)
    hidden(s, *(s.call(torch.tanh, p) for p in pieces(s, s.call(torch.split, x, 3, 1))))
    assert applied(s, ABOVE).after[:3] == [
        "pw0_tanh = tanh(x0)",
        "pw1_split = split(pw0_tanh, [3, 3, 1], dim=1)",
        "pw2_getitem = getitem(pw1_split, 0)",
    ]


def test_above_an_unbind(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(3, 2, 4, requires_grad=True)
    hidden(s, *(s.call("clamp", p, -1, max=0.5) for p in pieces(s, s.call(torch.unbind, x, 1))))
    result = applied(s, ABOVE)
    assert result.calls == [".clamp", "unbind", "getitem", "getitem", "cat", "cat"]
    assert ".clamp(x0, -1, max=0.5)" in result.after[0]


def test_below_a_cat(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.input(3, 2, requires_grad=True), s.input(3, 5, requires_grad=True)
    s.output(s.call(torch.cat, [s.call(torch.sigmoid, x), s.call(torch.sigmoid, y)], 1))
    assert applied(s, BELOW).after == [
        "pw0_cat = cat([x0, x1], dim=1)",
        "pw1_sigmoid = sigmoid(pw0_cat)",
        "return (pw1_sigmoid)",
    ]


def test_below_a_stack(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.input(3, 2, requires_grad=True), s.input(3, 2, requires_grad=True)
    one, two = s.call(F.gelu, x, approximate="tanh"), s.call(F.gelu, y, approximate="tanh")
    s.output(s.call(torch.stack, [one, two, one], -1))
    assert applied(s, BELOW).after == [
        "pw0_stack = stack([x0, x1, x0], dim=2)",
        "pw1_gelu = gelu(pw0_stack, approximate=tanh)",
        "return (pw1_gelu)",
    ]


def test_a_function_with_another_type(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.input(3, 2, dtype=torch.int64), s.input(3, 2, dtype=torch.int64)
    s.output(s.call(torch.cat, [s.call(torch.sqrt, x), s.call(torch.sqrt, y)]))
    assert applied(s, BELOW).calls == ["cat", "sqrt"]


def test_other_layouts(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(3, 4, stride=(1, 3), requires_grad=True)
    hidden(s, *(s.call(torch.neg, p) for p in pieces(s, s.call(torch.split, x, 2, 1))))
    assert applied(s, ABOVE).calls[:2] == ["neg", "split"]


def test_rounding_may_differ() -> None:
    assert {ABOVE.exactness, BELOW.exactness} == {Exactness.REASSOCIATING}
    assert not any(pattern.cleanup for pattern in (ABOVE, BELOW))


# ---- spellings and dialects


@pytest.mark.parametrize("dialect", Dialect)
def test_spellings(dialect: Dialect) -> None:
    def above(x: Tensor) -> list[Tensor]:
        a, b = x.split(3, 1)
        c, d = torch.chunk(x, 2, dim=-1)
        e, f = x.unbind(0)
        g, h = torch.split(x, [2, 4], dim=1)
        values = [torch.tanh(a), b.tanh(), F.tanh(c), torch.tanh(input=d)]
        values += [F.relu(e), torch.relu(f), -g, torch.neg(h)]
        return [torch.cat([value, value]) for value in values]

    # Traced with gradients, ATen-IR would also hold what the backward graph keeps of each result.
    grad = dialect is Dialect.TORCH
    x, y = (torch.randn(2, 6, requires_grad=grad) for _ in range(2))
    result = rewrite(above, [x], ABOVE, dialect=dialect)
    assert (unaries(result.original), unaries(result.module)) == (8, 4)
    result.check()

    def below(x: Tensor, y: Tensor) -> list[Tensor]:
        return [
            torch.cat([x.relu(), F.relu(y)], 1),
            torch.concat((torch.tanh(x), F.tanh(y)), dim=-1),
            torch.stack([x.exp(), torch.exp(y)]),
            torch.cat([x.sin()[:, None], torch.sin(y).unsqueeze(1)], 1),
        ]

    result = rewrite(below, [x, y], BELOW, dialect=dialect)
    assert (unaries(result.original), unaries(result.module)) == (8, 4)
    result.check()


def test_dynamic() -> None:
    def fn(x: Tensor) -> Tensor:
        a, b = x.chunk(2, 1)
        values = [torch.cat([v, v]) for v in (a.tanh(), b.tanh())]
        return torch.cat([values[0].sin(), values[1].sin()], 1)

    x = torch.randn(5, 8)
    torch._dynamo.mark_dynamic(x, 0)
    result = rewrite(fn, [x], ABOVE, BELOW, dynamic=None)
    assert (unaries(result.original), unaries(result.module)) == (4, 2)
    result.check()
    rewrite(fn, [x.clone()], ABOVE, BELOW, dynamic=True).check()


# ---- what must be left alone


def other_functions(s: Any, a: fx.Node, b: fx.Node) -> list[fx.Node]:
    return [s.call(torch.tanh, a), s.call(torch.sin, b)]


def other_arguments(s: Any, a: fx.Node, b: fx.Node) -> list[fx.Node]:
    return [s.call(torch.clamp, a, 0, 1), s.call(torch.clamp, b, 0, 2)]


def one_bare(s: Any, a: fx.Node, b: fx.Node) -> list[fx.Node]:
    return [s.call(torch.tanh, a), b]


def in_two_grad_modes(s: Any, a: fx.Node, b: fx.Node) -> list[fx.Node]:
    first = s.call(torch.tanh, a)
    s.call(torch._C._set_grad_enabled, False)
    second = s.call(torch.tanh, b)
    s.call(torch._C._set_grad_enabled, True)
    return [first, second]


def in_two_autocasts(s: Any, a: fx.Node, b: fx.Node) -> list[fx.Node]:
    cast = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, None)
    first = s.call(torch.tanh, a)
    s.call(torch.amp.autocast_mode._exit_autocast, cast)
    return [first, s.call(torch.tanh, b)]


def written_between(s: Any, a: fx.Node, b: fx.Node) -> list[fx.Node]:
    first = s.call(torch.tanh, a)
    s.call("mul_", first, 2)
    return [first, s.call(torch.tanh, b)]


CASES = [
    *(other_functions, other_arguments, one_bare),
    *(in_two_grad_modes, in_two_autocasts, written_between),
]


@pytest.mark.parametrize("case", CASES)
def test_left_alone(sketch: Any, applied: Any, case: Callable[..., list[fx.Node]]) -> None:
    s = sketch()
    hidden(s, *case(s, *pieces(s, s.call(torch.split, s.input(2, 4), 2, 1))))
    assert applied(s, ABOVE).labels == []
    s = sketch()
    s.output(s.call(torch.cat, case(s, s.input(2, 4), s.input(2, 4))))
    assert applied(s, BELOW).labels == []


def test_pieces_used_otherwise(sketch: Any, applied: Any) -> None:
    s = sketch()
    a, b = pieces(s, s.call(torch.split, s.input(2, 4), 2, 1))
    hidden(s, s.call(torch.tanh, a), s.call(torch.tanh, b), b)
    assert applied(s, ABOVE).labels == []
    s = sketch()
    several = s.call(torch.split, s.input(2, 6), 2, 1)
    hidden(s, *(s.call(torch.tanh, s.call(operator.getitem, several, i)) for i in (0, 2)))
    assert applied(s, ABOVE).labels == []


def test_results_seen_outside(sketch: Any, applied: Any) -> None:
    """Each would have to be copied out of the whole."""
    s = sketch()
    s.output(*(s.call(torch.tanh, p) for p in pieces(s, s.call(torch.split, s.input(2, 4), 2, 1))))
    assert applied(s, ABOVE).labels == []


def test_inputs_used_otherwise(sketch: Any, applied: Any) -> None:
    s = sketch()
    a, b = s.call(torch.tanh, s.input(2, 4)), s.call(torch.tanh, s.input(2, 4))
    s.output(s.call(torch.cat, [a, b]), s.call(torch.sin, b))
    assert applied(s, BELOW).labels == []


def test_a_write_to_an_input(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.call(torch.sin, s.input(2, 4)), s.input(2, 4)
    a, b = s.call(torch.tanh, x), s.call(torch.tanh, y)
    s.call("mul_", x, 2)
    s.output(s.call(torch.cat, [a, b]), x)
    assert applied(s, BELOW).labels == []


def test_types_that_a_cat_would_mix(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.input(2, 4, dtype=torch.int64), s.input(2, 4)
    s.output(s.call(torch.cat, [s.call(torch.tanh, x), s.call(torch.tanh, y)]))
    assert applied(s, BELOW).labels == []
