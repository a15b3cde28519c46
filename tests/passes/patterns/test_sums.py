"""Chains of additions as one reduction or one product."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import Tensor

from passwright.passes.dialect import Dialect
from passwright.passes.patterns import SumOfMany, WeightedAddsAsMatmul
from passwright.passes.table import default_table
from passwright.passes.testing import rewrite

SUM, WEIGHTED = SumOfMany(), WeightedAddsAsMatmul()
CLEANUPS = [pattern for pattern in default_table() if pattern.cleanup]


def tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def labels(result: Any) -> list[str]:
    names = (SUM.name(), WEIGHTED.name())
    return [x.split(" @ ")[0] for x in result.labels if x.startswith(names)]


# ---- sum of parts


@pytest.mark.parametrize("dialect", list(Dialect))
def test_slices_in_any_order(dialect: Dialect) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        a, b, c, d = x.unbind(1)
        return torch.relu(sum([c, a, y, d, b]))  # type: ignore[call-overload]

    result = rewrite(fn, [tensor(5, 4, 6), tensor(5, 6)], SUM, *CLEANUPS, dialect=dialect)
    assert labels(result) == ["sum_of_many{terms=4}"]
    assert len([name for name in result.calls if "add" in name]) == 1
    assert len([name for name in result.calls if "sum" in name]) == 1
    assert not [name for name in result.calls if "stack" in name or "cat" in name]
    result.check()


def test_pieces_of_a_split_in_a_tree() -> None:
    def fn(x: Tensor) -> Tensor:
        a, b, c, d = x.split(3, 1)
        return torch.relu((a + b) + (c + d))

    result = rewrite(fn, [tensor(5, 12)], SUM, *CLEANUPS)
    assert labels(result) == ["sum_of_many{terms=4}"]
    assert result.calls == ["reshape", "sum", "relu"]
    result.check()


def test_dynamic_batch() -> None:
    def fn(x: Tensor) -> Tensor:
        a, b, c = x.unbind(1)
        return torch.relu(a + b + c)

    x = tensor(5, 3, 6)
    torch._dynamo.mark_dynamic(x, 0)
    result = rewrite(fn, [x], SUM, *CLEANUPS, dynamic=None)
    assert labels(result) == ["sum_of_many{terms=3}"]
    result.check()


def test_a_sum_that_is_seen_is_a_term(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 5, 6, requires_grad=True)
    parts = [s.call(torch.select, x, 0, i) for i in range(4)]
    seen = s.call(torch.add, parts[0], parts[1])
    total = s.call(torch.add, s.call(torch.add, seen, parts[2]), parts[3])
    s.output(total, seen)
    assert applied(s, SUM).labels == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda s, p: [p[0], p[1], s.call(torch.relu, p[2])], id="two parts"),
        pytest.param(lambda _, p: [p[0], p[1], p[3]], id="a gap"),
        pytest.param(lambda _, p: [p[0], p[0], p[1]], id="one part twice"),
        pytest.param(lambda s, p: [p[0], p[1], s.input(6, requires_grad=True)], id="broadcast"),
    ],
)
def test_other_terms_stay(sketch: Any, applied: Any, change: Any) -> None:
    s = sketch()
    x = s.input(4, 5, 6, requires_grad=True)
    terms = change(s, [s.call(torch.select, x, 0, i) for i in range(4)])
    s.output(s.call(torch.add, s.call(torch.add, terms[0], terms[1]), terms[2]))
    assert applied(s, SUM).labels == []


def test_other_additions_stay(sketch: Any, applied: Any) -> None:
    for last in {"alpha": 2}, None:
        s = sketch()
        x = s.input(3, 5, 6, requires_grad=True)
        a, b, c = (s.call(torch.select, x, 0, i) for i in range(3))
        inner = s.call(torch.add, a, b)
        s.output(s.call(torch.add, inner, c, **last) if last else s.call(torch.sub, inner, c))
        assert applied(s, SUM).labels == []


def test_integers_stay(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(3, 5, 6, dtype=torch.int64)
    a, b, c = (s.call(torch.select, x, 0, i) for i in range(3))
    s.output(s.call(torch.add, s.call(torch.add, a, b), c))
    assert applied(s, SUM).labels == []


def test_a_write_between(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.call(torch.relu, s.input(3, 5, 6))
    a, b, c = (s.call(torch.select, x, 0, i) for i in range(3))
    inner = s.call(torch.add, a, b)
    s.call("mul_", x, 2)
    s.output(s.call(torch.add, inner, c))
    assert applied(s, SUM).labels == []


# ---- weighted terms


@pytest.mark.parametrize("dialect", list(Dialect))
def test_columns_times_experts(dialect: Dialect) -> None:
    def fn(gate: Tensor, x: Tensor) -> Tensor:
        g = torch.softmax(gate, -1)
        return sum(g[:, i : i + 1] * x[i] for i in range(4))  # type: ignore[return-value]

    result = rewrite(fn, [tensor(5, 4), tensor(4, 5, 6)], WEIGHTED, *CLEANUPS, dialect=dialect)
    assert labels(result) == ["weighted_adds_as_matmul{terms=4}"]
    names = [name.split(".")[1] if "." in name else name for name in result.calls]
    assert not {"mul", "add", "cat", "stack", "slice"} & set(names)
    result.check()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda s, _, x: s.call(torch.relu, x), id="a term without weight"),
        pytest.param(lambda s, _, x: s.call(torch.mul, x, 2), id="a number"),
        pytest.param(lambda s, _, x: s.call(torch.mul, x, x), id="no column"),
        pytest.param(lambda s, g, _: s.call(torch.mul, g, s.input(5, 1)), id="no value"),
    ],
)
def test_terms_of_another_kind(sketch: Any, applied: Any, change: Any) -> None:
    s = sketch()
    gate, x = s.input(5, 3), [s.input(5, 6) for _ in range(3)]
    columns = [s.call(operator.getitem, gate, (slice(None), slice(i, i + 1))) for i in range(3)]
    terms = [s.call(torch.mul, g, v) for g, v in zip(columns[:2], x[:2], strict=True)]
    total = s.call(torch.add, s.call(torch.add, *terms), change(s, columns[2], x[2]))
    s.output(total)
    assert applied(s, WEIGHTED).labels == []


@pytest.mark.parametrize("how", ["autocast", "seen", "written"])
def test_weighted_refusals(sketch: Any, applied: Any, how: str) -> None:
    s = sketch()
    gate, x = s.input(5, 3), [s.call(torch.relu, s.input(5, 6)) for _ in range(3)]
    cast = None
    if how == "autocast":
        cast = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, True)
    columns = [s.call(operator.getitem, gate, (slice(None), slice(i, i + 1))) for i in range(3)]
    terms = [s.call(torch.mul, g, v) for g, v in zip(columns, x, strict=True)]
    if how == "written":
        s.call("add_", x[1], 1)
    total = s.call(torch.add, s.call(torch.add, *terms[:2]), terms[2])
    if cast is not None:
        s.call(torch.amp.autocast_mode._exit_autocast, cast)
    s.output(total, *(terms[:1] if how == "seen" else []))
    assert applied(s, WEIGHTED).labels == []
