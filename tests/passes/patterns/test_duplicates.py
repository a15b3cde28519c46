"""The same value computed twice."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.duplicates import MergeDuplicates

MERGE = MergeDuplicates()
aten = torch.ops.aten


def test_any_spelling(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 6, dtype=torch.int64)
    first, second = s.call("float", x), s.call("to", x, torch.float32)
    s.output(s.call(torch.sin, first), s.call(torch.cos, second))
    result = applied(s, MERGE)
    assert result.after == [
        "float_1 = .float(x0)",
        "sin = sin(float_1)",
        "cos = cos(float_1)",
        "return (sin, cos)",
    ]
    assert [sorted(line[0] for line in diff) for diff in result.diffs] == [["-"]]


def test_chains_and_gradients(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, w = s.input(4, 6, requires_grad=True), s.input(6, 6, requires_grad=True)
    values = [s.call(torch.sin, s.call(F.linear, x, w)) for _ in range(3)]
    s.output(
        *(s.call(f, v) for f, v in zip((torch.neg, torch.exp, torch.cos), values, strict=True))
    )
    assert applied(s, MERGE).calls == ["linear", "sin", "neg", "exp", "cos"]


def test_several_outputs(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 6, requires_grad=True)
    cuts = s.call(torch.split, x, 3, 1), s.call("chunk", x, 2, dim=-1)
    pieces = [s.call(operator.getitem, cut, 1) for cut in cuts]
    s.output(s.call(torch.sin, pieces[0]), s.call(torch.cos, pieces[1]))
    assert applied(s, MERGE).calls == ["split", "getitem", "sin", "cos"]


def test_calls_that_nobody_reads(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 6, requires_grad=True)
    values = [s.call(torch.cumsum, x, 1), s.call(torch.cumsum, x, 1), s.call(torch.cumsum, x, 0)]
    y = s.call(torch.sin, x)  # read, so that its users are looked at
    values += [s.call(torch.cumsum, y, dim=1), s.call(torch.cumsum, y, dim=1)]
    s.output(*(s.call(torch.neg, s.call(torch.mul, v, n)) for n, v in enumerate(values)))
    assert applied(s, MERGE).count("cumsum") in (3, 4)


@pytest.mark.parametrize("dialect", list(Dialect))
def test_both_dialects(sketch: Any, applied: Any, dialect: Dialect) -> None:
    s = sketch(dialect)
    torch_ir = dialect is Dialect.TORCH
    sin, cos = (torch.sin, torch.cos) if torch_ir else (aten.sin.default, aten.cos.default)
    x = s.input(4, 6)
    s.output(s.call(cos, s.call(sin, x)), s.call(sin, s.call(sin, x)))
    assert len(applied(s, MERGE).calls) == 3


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param((torch.add, 1), (torch.add, 1.0), id="integer and float"),
        pytest.param((torch.add, 1), (torch.add, True), id="integer and boolean"),
        pytest.param((torch.mul, 0.0), (torch.mul, -0.0), id="signed zeros"),
        pytest.param((torch.sum, 0), (torch.sum, 1), id="dim"),
        pytest.param((torch.cumsum, 0), (torch.cumsum, 1), id="dim of an unread call"),
        pytest.param((torch.sum, 0), (torch.mean, 0), id="function"),
        pytest.param(("to", torch.float32), ("to", torch.float64), id="type"),
    ],
)
def test_unequal_arguments(
    sketch: Any, applied: Any, first: tuple[Any, ...], second: tuple[Any, ...]
) -> None:
    s = sketch()
    x = s.input(4, 4, dtype=torch.float16 if first[0] == "to" else torch.float32)
    values = [s.call(target, x, *rest) for target, *rest in (first, second)]
    s.output(*(s.call(torch.sin, value) for value in values))
    assert applied(s, MERGE).labels == []


def test_operands_in_another_order(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.input(4), s.input(4)
    s.output(s.call(torch.sin, s.call(torch.sub, x, y)), s.call(torch.sin, s.call(torch.sub, y, x)))
    assert applied(s, MERGE).labels == []


def test_strides_differ(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 4)
    kinds = torch.contiguous_format, torch.preserve_format
    y = s.call(torch.permute, x, [1, 0])
    copies = [s.call(torch.clone, y, memory_format=kind) for kind in kinds]
    s.output(*(s.call("view", copy, -1) if n == 0 else copy for n, copy in enumerate(copies)))
    assert applied(s, MERGE).labels == []


@pytest.mark.parametrize("late", [False, True])
def test_results_seen_from_outside(sketch: Any, applied: Any, late: bool) -> None:
    """An outsider may write into one of them and not the other."""
    s = sketch()
    x = s.input(4)
    first, second = s.call(torch.sin, x), s.call(torch.sin, x)
    s.output(second if late else first, s.call(torch.neg, first if late else second))
    assert applied(s, MERGE).labels == []


@pytest.mark.parametrize("what", ["input", "result", "second"])
def test_writes(sketch: Any, applied: Any, what: str) -> None:
    s = sketch()
    x = s.input(4)
    first = s.call(torch.sin, x)
    if what == "result":
        s.call("add_", first, 1)
    if what == "input":
        s.call("add_", x, 1)
    second = s.call(torch.sin, x)
    if what == "second":
        s.call("add_", second, 1)
    s.output(s.call(torch.neg, first), s.call(torch.exp, second))
    assert applied(s, MERGE).labels == []


def test_a_write_after_both(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4)
    values = [s.call(torch.sin, x), s.call(torch.sin, x)]
    s.call("add_", x, 1)
    s.output(*(s.call(torch.neg, s.call(torch.mul, v, n)) for n, v in enumerate(values)))
    assert applied(s, MERGE).count("sin") == 1


def test_views_of_what_is_written(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 4)
    views = [s.call("view", x, 16), s.call("view", x, 16)]
    s.call("add_", views[0], 1)
    s.output(*(s.call(torch.sin, view) for view in views))
    assert applied(s, MERGE).labels == []


def test_random_numbers(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 4)
    drops = [s.call(F.dropout, x, 0.5, True), s.call(F.dropout, x, 0.5, True)]
    rand = [s.call(torch.rand_like, x), s.call(torch.rand_like, x)]
    s.output(*(s.call(torch.sin, value) for value in (*drops, *rand)))
    view = s.view()
    assert not [m for n in view.nodes() if (op := view.read(n)) for m in MERGE.matches(view, op)]


def test_regions(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, requires_grad=True)
    first = s.call(torch.sin, x)
    s.call(torch._C._set_grad_enabled, False)
    second = s.call(torch.sin, x)
    s.call(torch._C._set_grad_enabled, True)
    cast = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, None)
    third = s.call(torch.sin, x)
    s.call(torch.amp.autocast_mode._exit_autocast, cast)
    s.output(*(s.call(torch.neg, value) for value in (first, second, third)))
    assert applied(s, MERGE).labels == []


def test_hooks(sketch: Any) -> None:
    """A hook changes the gradient of one of them."""
    s = sketch()
    x = s.input(4, requires_grad=True)
    values = [s.call(torch.sin, x), s.call(torch.sin, x)]
    s.graph.call_method("register_hook", (values[0], torch.neg))
    s.output(*(s.call(torch.neg, value) for value in values))
    view = s.view()
    assert not [m for n in view.nodes() if (op := view.read(n)) for m in MERGE.matches(view, op)]
