"""Products of pairs: run by run, or all at once from two gathers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from passwright.passes.dialect import Dialect
from passwright.passes.patterns import (
    CatOfRepeats,
    InnerProductsAsMatmul,
    PairProducts,
    ProductsOfRuns,
)
from passwright.passes.table import default_table
from passwright.passes.testing import Rewritten, rewrite

RUNS, PAIRS, REPEATS, INNER = (
    ProductsOfRuns(),
    PairProducts(),
    CatOfRepeats(),
    InnerProductsAsMatmul(),
)
CLEANUPS = [pattern for pattern in default_table() if pattern.cleanup]
FIELDS = 5
ALL_PAIRS = list(itertools.combinations(range(FIELDS), 2))


def fields(rows: int = 4) -> Tensor:
    return torch.randn(rows, FIELDS, 3, requires_grad=True)


def check(result: Rewritten) -> None:
    """Every bit of the values is the same; gradients are added up in another order."""
    result.bitwise = True
    result.check()


def stacked(x: Tensor) -> Tensor:
    parts = x.unbind(1)
    return torch.stack([parts[i] * parts[j] for i, j in ALL_PAIRS], 1)


def catted(x: Tensor) -> Tensor:
    parts = x.split(1, 1)
    values = [torch.tanh(part) for part in parts]
    return torch.cat([values[i] * parts[j] for i, j in ALL_PAIRS], 1)


def in_one_row(x: Tensor) -> Tensor:
    """Products (b, 1, n) put together along their last dim."""
    parts = x.split(1, 1)
    return torch.cat([parts[i] * parts[j] for i, j in ALL_PAIRS], -1)


def field_aware(x: Tensor) -> Tensor:
    """Each field has vectors of its own for every other field."""
    tables = [x + i for i in range(FIELDS)]
    return torch.stack([tables[j][:, i] * tables[i][:, j] for i, j in ALL_PAIRS], dim=1)


def listed(x: Tensor) -> Tensor:
    values = [torch.tanh(part) for part in x.split(1, 1)]
    p = torch.cat([values[i] for i, _ in ALL_PAIRS], dim=1)
    q = torch.cat([values[j] for _, j in ALL_PAIRS], dim=1)
    return torch.sum(p * q, dim=2, keepdim=True)


def own(result: Rewritten) -> list[str]:
    names = tuple(pattern.name() for pattern in (RUNS, PAIRS, REPEATS, INNER))
    return [label.split(" @ ")[0] for label in result.labels if label.startswith(names)]


def calls(result: Rewritten) -> list[str]:
    """Names in either dialect: `aten.mul.Tensor` is mul."""
    return [name.split(".")[1] if name.startswith("aten.") else name for name in result.calls]


@pytest.fixture(params=list(Dialect), ids=[dialect.name.lower() for dialect in Dialect])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    found: Dialect = request.param
    return found


# ---- run by run


@pytest.mark.parametrize("fn", [stacked, catted, in_one_row])
def test_one_product_for_each_field(fn: Callable[..., Tensor], dialect: Dialect) -> None:
    result = rewrite(fn, [fields()], RUNS, *CLEANUPS, dialect=dialect)
    assert own(result) == ["products_of_runs{products=10,runs=4}"]
    assert calls(result).count("mul") == FIELDS - 1
    assert not {"stack"} & set(calls(result))
    check(result)


def test_a_number_and_parts(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(2, 4, 3, requires_grad=True)
    parts = [s.call(torch.select, x, 1, i) for i in range(4)]
    s.output(s.call(torch.stack, [s.call(torch.mul, 2, part) for part in parts], 1))
    result = applied(s, RUNS)
    assert result.calls == ["mul"]


def test_two_runs_side_by_side(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(2, 5, 3, requires_grad=True)
    parts = [s.call(torch.narrow, x, 1, i, 1) for i in range(5)]
    products = [s.call(torch.sub, parts[i], parts[i + 2]) for i in range(3)]
    s.output(s.call(torch.cat, products, 1))
    result = applied(s, RUNS)
    assert result.calls == ["narrow", "narrow", "sub"]


def test_wide_parts(sketch: Any, applied: Any) -> None:
    """A value of size 1 along the cat's dim meets parts of width 2."""
    s = sketch()
    x, y = s.input(2, 6, 3, requires_grad=True), s.input(2, 1, 3, requires_grad=True)
    parts = [s.call(torch.narrow, x, 1, i, 2) for i in (0, 2, 4)]
    s.output(s.call(torch.cat, [s.call(torch.mul, part, y) for part in parts], 1))
    assert applied(s, RUNS).calls == ["mul"]


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_operands_of_lower_rank(sketch: Any, applied: Any, shape: tuple[int, ...]) -> None:
    for dim in (0, 1, 2):
        s = sketch()
        sizes = [2, 3]
        sizes.insert(dim, 4)
        x, y = s.input(*sizes, requires_grad=True), s.input(*shape, requires_grad=True)
        parts = [s.call(torch.select, x, dim, i) for i in range(4)]
        s.output(s.call(torch.stack, [s.call(torch.add, part, y) for part in parts], dim))
        result = applied(s, RUNS)
        assert result.count("add") == 1
        assert result.count("stack") == 0


@pytest.mark.parametrize(
    ("join", "products"),
    [
        pytest.param("cat", lambda _, p, y: [(p[0], y), (p[2], y)], id="a gap"),
        pytest.param("cat", lambda _, p, y: [(p[1], y), (p[0], y)], id="reversed"),
        pytest.param("cat", lambda _, p, y: [(p[0], y), (y, p[1])], id="other side"),
        pytest.param("stack", lambda _, p, y: [(p[0], y), (p[1], y)], id="a dim more"),
        pytest.param(
            "cat",
            lambda s, p, y: [(p[0], s.call(torch.relu, y)), (p[1], y)],
            id="other value",
        ),
    ],
)
def test_no_run(sketch: Any, applied: Any, join: str, products: Any) -> None:
    s = sketch()
    x, y = s.input(2, 4, 3), s.input(2, 1, 3)
    parts = [s.call(torch.narrow, x, 1, i, 1) for i in range(4)]
    found = [s.call(torch.mul, *pair) for pair in products(s, parts, y)]
    s.output(s.call(getattr(torch, join), found, 1))
    assert applied(s, RUNS).labels == []


def test_a_wide_value_and_narrow_parts(sketch: Any, applied: Any) -> None:
    """Where a part is broadcast along the cat's dim, all parts at once would be too few."""
    s = sketch()
    x, y = s.input(2, 4, 3), s.input(2, 2, 3)
    parts = [s.call(torch.narrow, x, 1, i, 1) for i in range(4)]
    s.output(s.call(torch.cat, [s.call(torch.mul, part, y) for part in parts], 1))
    assert applied(s, RUNS).labels == []


@pytest.mark.parametrize("how", ["seen", "written", "alpha", "function", "types"])
def test_refusals(sketch: Any, applied: Any, how: str) -> None:
    s = sketch()
    x, y = s.call(torch.relu, s.input(2, 9, 3)), s.input(2, 1, 3)
    if how == "types":
        y = s.input(2, 1, 3, dtype=torch.float64)
    parts = [s.call(torch.narrow, x, 1, i, 1) for i in range(9)]
    functions = [torch.add if how == "function" and i % 2 else torch.sub for i in range(9)]
    given = {"alpha": 3} if how == "alpha" else {}
    found = [s.call(fn, part, y, **given) for fn, part in zip(functions, parts, strict=True)]
    if how == "written":
        s.call("add_", x, 1)
    s.output(s.call(torch.cat, found, 1), *(found[:1] if how == "seen" else []))
    assert applied(s, RUNS, PAIRS).labels == []


# ---- all at once


@pytest.mark.parametrize("fn", [stacked, catted, in_one_row, field_aware])
def test_two_gathers(fn: Callable[..., Tensor], dialect: Dialect) -> None:
    result = rewrite(fn, [fields()], PAIRS, *CLEANUPS, dialect=dialect)
    assert own(result) == ["pair_products{pairs=10}"]
    names = calls(result)
    assert (names.count("index_select"), names.count("mul"), names.count("stack")) == (2, 1, 0)
    check(result)


def test_both_gathers_from_one_table() -> None:
    result = rewrite(field_aware, [fields()], PAIRS)
    assert result.count("cat") == 1


@pytest.mark.parametrize("pattern", [RUNS, PAIRS, REPEATS, INNER])
def test_dynamic_batch(pattern: Any) -> None:
    x = fields(6)
    torch._dynamo.mark_dynamic(x, 0)
    fn = listed if pattern in (REPEATS, INNER) else stacked
    result = rewrite(fn, [x], pattern, *CLEANUPS, dynamic=None)
    assert len(own(result)) == (2 if pattern is REPEATS else 1)
    result.check()


def test_values_that_do_not_repeat(sketch: Any, applied: Any) -> None:
    s = sketch()
    values = [(s.input(2, 3), s.input(2, 3)) for _ in range(8)]
    s.output(s.call(torch.stack, [s.call(torch.mul, *pair) for pair in values], 1))
    assert applied(s, PAIRS, RUNS).labels == []


def test_few_rows_of_a_large_table(sketch: Any, applied: Any) -> None:
    for rows, count in ((32, 1), (33, 0)):
        s = sketch()
        x = s.input(2, rows, 3, requires_grad=True)
        parts = [s.call(torch.select, x, 1, i) for i in range(8)]
        pairs = [s.call(torch.mul, parts[i], parts[-1 - i]) for i in range(8)]
        s.output(s.call(torch.stack, pairs, 1))
        assert len(applied(s, PAIRS).labels) == count


# ---- repeated inputs


def test_repeated_inputs_are_gathered(dialect: Dialect) -> None:
    result = rewrite(listed, [fields()], REPEATS, dialect=dialect)
    assert own(result) == ["cat_of_repeats{inputs=10}"] * 2
    assert calls(result).count("index_select") == 2
    check(result)


@pytest.mark.parametrize(
    ("order", "width"),
    [
        pytest.param([0, 0, 0, 1, 1, 2, 2], 1, id="seven inputs"),
        pytest.param([0, 0, 1, 1, 2, 3, 4, 4], 1, id="five values"),
        pytest.param([0, 0, 0, 0, 1, 1, 1, 1], 2, id="wide values"),
    ],
)
def test_other_cats_stay(sketch: Any, applied: Any, order: list[int], width: int) -> None:
    s = sketch()
    values = [s.input(2, width, 3) for _ in range(5)]
    s.output(s.call(torch.cat, [values[i] for i in order], 1))
    assert applied(s, REPEATS).labels == []


def test_a_written_value_is_not_gathered(sketch: Any, applied: Any) -> None:
    s = sketch()
    values = [s.call(torch.relu, s.input(2, 1, 3)) for _ in range(2)]
    joined = s.call(torch.cat, values * 4, 1)
    s.call("add_", values[0], 1)
    s.output(joined)
    assert applied(s, REPEATS).labels == []


def test_integers_are_not_gathered(sketch: Any, applied: Any) -> None:
    s = sketch()
    values = [s.input(2, 1, dtype=torch.int64) for _ in range(2)]
    s.output(s.call(torch.cat, values * 4, 1))
    assert applied(s, REPEATS).labels == []


# ---- inner products


def from_products(x: Tensor) -> Tensor:
    return stacked(x).sum(-1)


@pytest.mark.parametrize("fn", [listed, from_products])
def test_inner_products(fn: Callable[..., Tensor], dialect: Dialect) -> None:
    result = rewrite(fn, [fields()], INNER, *CLEANUPS, dialect=dialect)
    assert own(result) == ["inner_products_as_matmul{pairs=10}"]
    names = calls(result)
    assert names.count("matmul") + names.count("bmm") == 1
    assert not {"mul", "sum"} & set(names)
    result.check()


@pytest.mark.parametrize("how", ["dim", "seen", "function", "autocast", "sparse"])
def test_inner_product_refusals(sketch: Any, applied: Any, how: str) -> None:
    s = sketch()
    values = [s.input(2, 1, 3) for _ in range(12 if how == "sparse" else 4)]
    cast = None
    if how == "autocast":
        cast = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, True)
    if how == "sparse":
        p, q = s.call(torch.cat, values[:6] + values[:2], 1), s.call(torch.cat, values[4:], 1)
    else:
        p, q = s.call(torch.cat, values * 2, 1), s.call(torch.cat, values[::-1] * 2, 1)
    product = s.call(torch.add if how == "function" else torch.mul, p, q)
    total = s.call(torch.sum, product, dim=1 if how == "dim" else 2)
    if cast is not None:
        s.call(torch.amp.autocast_mode._exit_autocast, cast)
    s.output(total, *([product] if how == "seen" else []))
    assert applied(s, INNER).labels == []
