"""Chains of reshapes and permutes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from passwright.passes.dialect import Dialect
from passwright.passes.graph import GraphView
from passwright.passes.ops import Permute, Reshape
from passwright.passes.patterns.reshapes import (
    MergePermutes,
    MergeReshapes,
    RemoveIdentityPermute,
    RemoveIdentityReshape,
    ReshapeOfPermute,
)
from passwright.passes.testing import Rewritten, rewrite

MERGE, SAME, TURN, STAY, MIX = (
    MergeReshapes(),
    RemoveIdentityReshape(),
    MergePermutes(),
    RemoveIdentityPermute(),
    ReshapeOfPermute(),
)
ALL = (MERGE, SAME, TURN, STAY, MIX)
aten = torch.ops.aten


def hidden(s: Any, *values: fx.Node) -> None:
    """Outputs behind an op with a layout of its own: nobody sees the strides of the values."""
    s.output(*(s.call(torch.cat, [value, value]) for value in values))


def movements(module: fx.GraphModule) -> tuple[int, int]:
    view = GraphView(module.graph)
    return len(list(view.ops(Reshape))), len(list(view.ops(Permute)))


def leaves(result: Rewritten, reshapes: int, permutes: int = 0) -> None:
    assert movements(result.module) == (reshapes, permutes)
    result.check()


# ---- before and after


def test_reshapes_merge(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(2, 6, 4, requires_grad=True)
    flat = s.call("flatten", x)
    hidden(s, s.call("view", s.call(torch.reshape, flat, (4, 12)), 4, 3, 4))
    result = applied(s, MERGE)
    assert result.after == [
        "pw0_reshape = reshape(x0, [4, 3, 4])",
        "cat = cat([pw0_reshape, pw0_reshape])",
        "return (cat)",
    ]


def test_there_and_back_is_nothing(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(2, 6, requires_grad=True)
    y = s.input(3, 4, 5, requires_grad=True)
    turned = s.call(torch.permute, y, [2, 0, 1])
    hidden(s, s.call("view", s.call("view", x, 12), 2, 6), s.call("permute", turned, 1, 2, 0))
    result = applied(s, MERGE, TURN)
    assert result.calls == ["cat", "cat"]
    assert len(result.labels) == 2


def test_permutes_merge(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(2, 3, 4, requires_grad=True)
    hidden(s, s.call("transpose", s.call(torch.permute, x, [1, 0, 2]), 1, 2))
    assert applied(s, TURN).after == [
        "pw0_permute = permute(x0, [1, 2, 0])",
        "cat = cat([pw0_permute, pw0_permute])",
        "return (cat)",
    ]


def test_keys_of_an_attention_stay_as_inductor_knows_them(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, q = s.input(2, 6, 4, 8, requires_grad=True), s.input(2, 4, 6, 8, requires_grad=True)
    keys = s.call("transpose", s.call("transpose", x, 1, 2), -2, -1)
    hidden(s, s.call(torch.matmul, q, keys))
    assert not applied(s, TURN).labels
    # Anything but heads: three dims.
    s = sketch()
    y, p = s.input(6, 2, 8, requires_grad=True), s.input(2, 5, 8, requires_grad=True)
    turned = s.call("transpose", s.call("transpose", y, 0, 1), -2, -1)
    hidden(s, s.call(torch.matmul, p, turned))
    assert applied(s, TURN).labels


def test_identities_go(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(2, 1, 1, 6, requires_grad=True)
    values = [
        s.call("view", x, 2, 1, 1, 6),
        s.call(torch.permute, x, [0, 1, 2, 3]),
        s.call("transpose", x, 2, 1),  # two dims of size 1
        s.call(torch.squeeze, s.call(torch.sin, x), 0),  # not of size 1
    ]
    hidden(s, *values)
    result = applied(s, SAME, STAY)
    assert result.calls == ["sin", "cat", "cat", "cat", "cat"]


def test_a_permute_of_ones_is_a_reshape(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(3, 4, requires_grad=True)
    first = s.call(torch.transpose, s.call("unsqueeze", x, 1), 0, 1)
    second = s.call("view", s.call(torch.permute, s.call(torch.sin, first), [1, 0, 2]), 12)
    hidden(s, first, second)
    result = applied(s, MIX)
    assert sorted(result.calls) == ["cat", "cat", "reshape", "reshape", "sin"]


def test_a_shared_reshape_goes_when_all_its_users_are_reshapes(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 6, requires_grad=True)
    flat = s.call("flatten", x)
    hidden(s, s.call("view", flat, 8, 3), s.call("view", flat, 3, 8))
    assert applied(s, MERGE).calls == ["reshape", "reshape", "cat", "cat"]


# ---- strides


def test_view_of_strided_memory_keeps_its_meaning(sketch: Any, applied: Any) -> None:
    """A reshape that copied may become a view, or none; whoever needs rows still gets them."""
    s = sketch()
    x = s.input(3, 4, 2, requires_grad=True, stride=(1, 3, 12))
    flat = s.call("reshape", x, 24)  # copies
    back = s.call("view", flat, 3, 4, 2)
    s.output(s.call("view", back, 12, 2), s.call("permute", back, 2, 0, 1))
    applied(s, *ALL)

    s = sketch()
    x = s.input(4, 6, requires_grad=True)
    turned = s.call("t", x)
    copied = s.call("reshape", turned, 24)
    s.output(s.call("view", copied, 4, 6))
    result = applied(s, *ALL)
    assert result.count("reshape") == 1
    assert result.module(*result.inputs)[0].is_contiguous()


def test_a_copy_that_many_read_stays(sketch: Any, applied: Any) -> None:
    """x itself is turned: two GEMMs would each put it right again."""
    s = sketch()
    x, w = s.input(4, 6, stride=(1, 4)), s.input(3, 6)
    back = s.call("view", s.call("reshape", x, 24), 4, 6)
    hidden(s, *(s.call(torch.nn.functional.linear, back, w) for _ in range(2)))
    assert applied(s, *ALL).labels == []


def test_a_copy_is_not_made_twice(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 6, stride=(1, 4), requires_grad=True)
    flat = s.call("reshape", x, 24)
    hidden(s, s.call("view", flat, 8, 3), s.call("view", flat, 3, 8))
    assert applied(s, *ALL).labels == []


# ---- what must be left alone


def test_other_users_of_the_first(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 6)
    flat, turned = s.call("flatten", x), s.call("t", s.call(torch.sin, x))
    hidden(
        s,
        flat,
        s.call("view", flat, 8, 3),
        turned,
        s.call("permute", s.call(torch.unsqueeze, turned, 0), 1, 0, 2),
        s.call("view", s.call("t", x), 6, 4),
    )
    result = applied(s, MERGE, TURN)
    assert result.labels == []


def test_writes_between(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 6)
    value = s.call(torch.permute, s.call(torch.sin, x), [1, 0])
    copied = s.call("reshape", value, 24)
    s.call("mul_", value, 2)
    hidden(s, s.call("view", copied, 3, 8), value)
    assert applied(s, *ALL).labels == []


def test_writes_through_a_view_are_seen(sketch: Any, applied: Any) -> None:
    s = sketch()
    value = s.call(torch.sin, s.input(4, 6))
    view = s.call("view", s.call("view", value, 24), 4, 6)
    s.call("mul_", view, 2)
    hidden(s, value, view)
    applied(s, *ALL)


def test_outputs_stay_objects_of_their_own(sketch: Any, applied: Any) -> None:
    """`x.view(x.shape)` returned is not `x`: the caller may change the one's shape in place."""
    s = sketch()
    x = s.input(4, 6)
    y = s.call(torch.sin, x)
    s.output(s.call("view", x, 4, 6), y, s.call(torch.permute, y, [0, 1]))
    assert applied(s, *ALL).labels == []


def test_a_value_without_gradient_stays_so(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 6, requires_grad=True)
    s.call(torch._C._set_grad_enabled, False)
    values = [s.call("view", x, 4, 6), s.call("t", s.call("t", x)), s.call("view", x, 24)]
    s.call(torch._C._set_grad_enabled, True)
    values[2] = s.call("view", values[2], 3, 8)
    hidden(s, *(s.call(torch.mul, value, value) for value in values))
    assert applied(s, *ALL).labels == []


def test_shapes_changed_in_place_are_left_alone(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 6)
    flat = s.call("view", x, 24)
    back = s.call("view", flat, 4, 6)
    s.call("t_", back)
    hidden(s, x, back)
    assert applied(s, *ALL, gradients=False).labels == []


def test_a_permute_of_more_than_ones_is_no_reshape(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(3, 1, 4)
    hidden(s, s.call("reshape", s.call("permute", x, 2, 1, 0), 12), s.call("transpose", x, 0, 2))
    assert applied(s, MIX, STAY).labels == []


# ---- spellings


def flattened(x: Tensor) -> list[Tensor]:
    """x (2, 3, 4) as (6, 4), each time by one reshape of any spelling."""
    y = torch.empty(6, 4)
    return [
        x.view(6, 4),
        x.view((6, -1)),
        x.reshape(-1, 4),
        x.reshape([6, 4]),
        torch.reshape(x, (6, 4)),
        torch.reshape(input=x, shape=(-1, 4)),
        x.flatten(0, 1),
        torch.flatten(x, end_dim=1),
        x.flatten(start_dim=-3, end_dim=-2),
        x.view_as(y),
        x.reshape_as(y),
    ]


def widened(y: Tensor) -> list[Tensor]:
    """y (6, 4) with more dims, each time by one reshape."""
    return [
        y.view(2, 3, 4),
        y.unsqueeze(1),
        torch.unsqueeze(y, dim=-1),
        y[:, None],
        y[None],
        y[..., None],
        y[:, None, :],
        y.unflatten(0, (2, 3)),
        torch.unflatten(y, 0, [2, 3]),
        y.unflatten(dim=-2, sizes=(-1, 3)),
        y.reshape(1, 6, 4),
    ]


def squeezed(x: Tensor) -> list[Tensor]:
    """x (1, 6, 1, 4) with fewer dims."""
    return [
        x.squeeze(),
        torch.squeeze(x),
        x.squeeze(0),
        x.squeeze(-2),
        torch.squeeze(x, dim=2),
        x.squeeze((0, 2)),
        torch.squeeze(x, (0, -2)),
    ]


def turned(x: Tensor) -> list[Tensor]:
    """x (2, 3, 4) with dims in another order."""
    return [
        x.permute(1, 0, 2),
        x.permute((2, 0, 1)),
        torch.permute(x, [0, 2, 1]),
        torch.permute(x, dims=(-2, -1, 0)),
        x.transpose(0, 1),
        torch.transpose(x, -1, 0),
        torch.transpose(x, dim0=1, dim1=2),
        x.swapaxes(0, 1),
        torch.swapdims(x, 0, 2),
        x.mT,
        torch.movedim(x, 0, 2),
        x.moveaxis((0, -1), (1, 0)),
    ]


@pytest.mark.parametrize("dialect", Dialect)
def test_spellings(dialect: Dialect) -> None:
    """Every spelling merges with a plain reshape or permute behind or before it."""

    def fn(x: Tensor, y: Tensor) -> list[Tensor]:
        values = [v.reshape(3, 8) for v in flattened(x)]
        values += [v.reshape(3, 8) for v in widened(y)]
        values += [v.reshape(3, 8) for v in squeezed(y.reshape(1, 6, 1, 4).relu())]
        values += widened(y.sin().reshape(24).reshape(6, 4))
        return [torch.cat([value, value]) for value in values]

    x, y = torch.randn(2, 3, 4, requires_grad=True), torch.randn(6, 4, requires_grad=True)
    result = rewrite(fn, [x, y], *ALL, dialect=dialect)
    before = movements(result.original)[0]
    singles = (
        len(widened(y)) + len(flattened(x)) + len(widened(y)) + len(squeezed(y.view(1, 6, 1, 4)))
    )
    assert before == 2 * (singles - len(widened(y))) + len(widened(y)) + 3
    leaves(result, reshapes=singles + 1)


@pytest.mark.parametrize("dialect", Dialect)
def test_spellings_of_permutes(dialect: Dialect) -> None:
    def fn(x: Tensor) -> list[Tensor]:
        return [torch.cat([v.permute(2, 0, 1)] * 2) for v in turned(x)]

    x = torch.randn(2, 3, 4, requires_grad=True)
    result = rewrite(fn, [x], *ALL, dialect=dialect)
    number = len(turned(x))
    nothing = sum(v.permute(2, 0, 1).stride() == x.stride() for v in turned(x))
    left = number - nothing
    leaves(result, reshapes=0, permutes=left)


# ---- symbolic sizes


def test_symbolic_sizes() -> None:
    def fn(x: Tensor, y: Tensor) -> list[Tensor]:
        b, n = y.shape[:2]
        values = [
            x.flatten(1).view(b, 6, 2),  # merges: one symbolic size
            x.view(b, 12).view(b, 3, 4),  # nothing is left
            x.transpose(1, 2).transpose(2, 1),  # nothing is left
            x.unsqueeze(1).transpose(0, 1).sin(),  # one reshape
            y.view(b * n, 4).view(b, n, 2, 2),  # two symbolic sizes: stays
        ]
        return [torch.cat([value, value]) for value in values]

    x, y = torch.randn(5, 3, 4, requires_grad=True), torch.randn(5, 7, 4, requires_grad=True)
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.mark_dynamic(y, 0)
    torch._dynamo.mark_dynamic(y, 1)
    result = rewrite(fn, [x, y], *ALL, dynamic=None)
    leaves(result, reshapes=4)
    rewrite(fn, [x.detach().clone(), y.detach().clone()], *ALL, dynamic=True).check()


def test_empty_tensors(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(0, 4, requires_grad=True)
    flat = s.call("view", x, 2, 0)
    hidden(s, s.call("view", flat, 0, 4), s.call("view", s.call("view", x, 0), 0, 2))
    assert applied(s, *ALL).calls == ["reshape", "cat", "cat"]


@pytest.mark.parametrize("pattern", ALL)
def test_no_pattern_goes_round_for_ever(
    sketch: Any, applied: Callable[..., Rewritten], pattern: Any
) -> None:
    s = sketch()
    x = value = s.input(2, 1, 3, requires_grad=True)
    for dims in ([1, 0, 2], [0, 1, 2], [2, 1, 0], [1, 0, 2]):
        value = s.call(torch.permute, value, dims)
        value = s.call("reshape", value, *[1, 6] if value is not x else [6])
        value = s.call("reshape", value, 2, 1, 3)
    hidden(s, value)
    applied(s, pattern)
