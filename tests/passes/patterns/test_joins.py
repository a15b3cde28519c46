"""Views between the parts of a tensor and their stack or cat."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx

from passwright.passes.dialect import Dialect
from passwright.passes.patterns import PermuteBelowJoin, ReshapeBelowStack
from passwright.passes.table import default_table
from passwright.passes.testing import rewrite

PERMUTE, RESHAPE = PermuteBelowJoin(), ReshapeBelowStack()
BOTH = (PERMUTE, RESHAPE)
CLEANUPS = [pattern for pattern in default_table() if pattern.cleanup]


def selects(s: Any, *shape: int, count: int | None = None, **kwargs: Any) -> list[fx.Node]:
    x = s.input(*shape, requires_grad=True, **kwargs)
    return [s.call(torch.select, x, 0, i) for i in range(count or shape[0])]


def hidden(s: Any, *values: fx.Node) -> None:
    """Outputs behind an op with a layout of its own: nobody sees the strides of the values."""
    s.output(*(s.call(torch.cat, [value, value]) for value in values))


# ---- before and after


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_stack_of_transposes(sketch: Any, applied: Any, dim: int) -> None:
    s = sketch()
    turned = [s.call("t", part) for part in selects(s, 3, 4, 2)]
    hidden(s, s.call(torch.stack, turned, dim))
    result = applied(s, PERMUTE)
    assert result.calls == ["select", "select", "select", "stack", "permute", "cat"]


@pytest.mark.parametrize("dim", [0, 1])
def test_cat_of_transposes(sketch: Any, applied: Any, dim: int) -> None:
    s = sketch()
    turned = [s.call("t", part) for part in selects(s, 3, 4, 2)]
    hidden(s, s.call(torch.cat, turned, dim))
    result = applied(s, PERMUTE)
    assert result.calls == ["select", "select", "select", "cat", "permute", "cat"]


def test_the_copy_goes(sketch: Any, applied: Any) -> None:
    s = sketch()
    turned = [s.call("t", part) for part in selects(s, 3, 4, 2)]
    hidden(s, s.call(torch.stack, turned, 0))
    assert applied(s, *CLEANUPS).calls == ["permute", "cat"]


@pytest.mark.parametrize(
    ("shape", "view", "dim", "calls"),
    [
        pytest.param((4, 1), (4,), 1, ["stack", "reshape"], id="squeezed behind"),
        pytest.param((1, 4), (4,), 0, ["stack", "reshape"], id="squeezed in front"),
        pytest.param((4, 6), (4, 2, 3), 1, ["stack", "reshape"], id="divided behind"),
        pytest.param((4, 6), (24,), 0, ["stack", "reshape"], id="flattened"),
        pytest.param((4, 6), (4, 1, 6), 2, ["stack", "reshape"], id="unsqueezed"),
    ],
)
def test_stack_of_reshapes(
    sketch: Any, applied: Any, shape: Any, view: Any, dim: int, calls: list[str]
) -> None:
    s = sketch()
    shaped = [s.call("reshape", part, *view) for part in selects(s, 3, *shape)]
    s.output(s.call(torch.stack, shaped, dim))
    assert applied(s, RESHAPE).calls == ["select", "select", "select", *calls]


@pytest.mark.parametrize("dialect", list(Dialect))
def test_both_dialects(dialect: Dialect) -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.relu(torch.stack([part.squeeze(2) for part in x.unbind(0)], 2))

    x = torch.randn(3, 5, 4, 1, requires_grad=True)
    result = rewrite(fn, [x], *CLEANUPS, dialect=dialect)
    assert not [name for name in result.calls if "stack" in name or "aten.cat" in name]
    result.check()


def test_dynamic_batch() -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.relu(torch.stack([part.squeeze(2) for part in x.unbind(0)], 2))

    x = torch.randn(3, 5, 4, 1, requires_grad=True)
    torch._dynamo.mark_dynamic(x, 1)
    result = rewrite(fn, [x], RESHAPE, dynamic=None)
    assert len(result.labels) == 1
    result.check()


# ---- refusals


def test_parts_of_several_tensors(sketch: Any, applied: Any) -> None:
    s = sketch()
    parts = [selects(s, 3, 4, 2)[0] for _ in range(2)]
    turned = s.call(torch.stack, [s.call("t", part) for part in parts], 0)
    shaped = s.call(torch.stack, [s.call("reshape", part, 8) for part in parts], 0)
    hidden(s, turned, shaped)
    assert applied(s, *BOTH).labels == []


def test_parts_out_of_order(sketch: Any, applied: Any) -> None:
    s = sketch()
    parts = selects(s, 3, 4, 2)[::-1]
    turned = s.call(torch.stack, [s.call("t", part) for part in parts], 0)
    shaped = s.call(torch.stack, [s.call("reshape", part, 8) for part in parts], 0)
    hidden(s, turned, shaped)
    assert applied(s, *BOTH).labels == []


def test_one_part_is_not_turned(sketch: Any, applied: Any) -> None:
    """Nor is it where the first of them is not."""
    for plain in (0, 1):
        s = sketch()
        parts = selects(s, 2, 4, 4)
        turned = [part if i == plain else s.call("t", part) for i, part in enumerate(parts)]
        hidden(s, s.call(torch.stack, turned, 0))
        assert applied(s, *BOTH).labels == []


def test_parts_turned_in_other_ways(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(2, 4, 4, 4)
    first, second = (s.call(torch.select, x, 0, i) for i in range(2))
    turned = [s.call(torch.permute, first, [1, 0, 2]), s.call(torch.permute, second, [0, 2, 1])]
    hidden(s, s.call(torch.stack, turned, 0))
    assert applied(s, *BOTH).labels == []


def test_a_stack_inside_what_was_merged(sketch: Any, applied: Any) -> None:
    s = sketch()
    shaped = [s.call("reshape", part, 3, 8) for part in selects(s, 2, 4, 6)]
    hidden(s, s.call(torch.stack, shaped, 1))
    assert applied(s, RESHAPE).labels == []


def test_writes(sketch: Any, applied: Any) -> None:
    for target in "source", "result":
        s = sketch()
        x = s.call(torch.relu, s.input(2, 4, 6))
        parts = [s.call(torch.select, x, 0, i) for i in range(2)]
        turned = s.call(torch.stack, [s.call("t", part) for part in parts], 0)
        shaped = s.call(torch.stack, [s.call("reshape", part, 24) for part in parts], 0)
        for value in (x,) if target == "source" else (turned, shaped):
            s.call("add_", value, 1)
        hidden(s, turned, shaped)
        assert applied(s, *BOTH).labels == []


def test_several_readers_that_would_each_copy(sketch: Any, applied: Any) -> None:
    for readers in (1, 2):
        s = sketch()
        turned = [s.call("t", part) for part in selects(s, 3, 4, 2)]
        stacked = s.call(torch.stack, turned, 0)
        hidden(s, *(s.call("reshape", stacked, 24) for _ in range(readers)))
        assert len(applied(s, PERMUTE).labels) == (readers == 1)
