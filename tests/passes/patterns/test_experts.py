"""Weighted sums of experts, as products and sums or as matrix products."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from passwright.passes.dialect import Dialect
from passwright.passes.patterns import (
    BatchWeightedSums,
    MatmulAsWeightedSum,
    TallMatmuls,
    WeightedSumAsMatmul,
)
from passwright.passes.testing import rewrite

BATCH, AS_MATMUL, AS_SUM = BatchWeightedSums(), WeightedSumAsMatmul(), MatmulAsWeightedSum()


def mixture(s: Any, *gates: Any, values: Any, keepdim: bool = False) -> list[Any]:
    """The weighted sum of the values for each gate (b, e), as products and a sum."""
    columns = [s.call("unsqueeze", gate, -1) for gate in gates]
    products = [s.call(torch.mul, column, values) for column in columns]
    return [s.call(torch.sum, product, dim=1, keepdim=keepdim) for product in products]


def inputs(s: Any, gates: int = 3, **kwargs: Any) -> tuple[list[Any], Any]:
    made = [s.input(5, 4, requires_grad=True, **kwargs) for _ in range(gates)]
    return made, s.input(5, 4, 6, requires_grad=True, **kwargs)


# ---- before and after


@pytest.mark.parametrize("keepdim", [False, True])
def test_tasks_share_one_product(sketch: Any, applied: Any, keepdim: bool) -> None:
    s = sketch()
    gates, values = inputs(s)
    s.output(*mixture(s, *gates, values=values, keepdim=keepdim))
    result = applied(s, BATCH)
    assert [label.split(" @ ")[0] for label in result.labels] == ["batch_weighted_sums{members=3}"]
    assert (result.count("matmul"), result.count("mul"), result.count("sum")) == (1, 0, 0)


def test_one_sum_is_a_product_with_one_row(sketch: Any, applied: Any) -> None:
    s = sketch()
    gates, values = inputs(s, 1)
    s.output(*mixture(s, *gates, values=values))
    result = applied(s, AS_MATMUL)
    # Gate as a row, product, and the row taken off again.
    assert result.calls == [".unsqueeze", "reshape", "matmul", "reshape"]


def test_rows_become_one_product_later(sketch: Any, applied: Any) -> None:
    s = sketch()
    gates, values = inputs(s, 2)
    s.output(*mixture(s, *gates, values=values))
    result = applied(s, AS_MATMUL, TallMatmuls())
    assert result.count("matmul") == 1


@pytest.mark.parametrize("row", [True, False])
def test_product_of_few_terms_is_a_sum(sketch: Any, applied: Any, row: bool) -> None:
    s = sketch()
    left, right = ((5, 1, 4), (5, 4, 6)) if row else ((5, 6, 4), (5, 4, 1))
    operands = [s.input(*shape, requires_grad=True) for shape in (left, right)]
    s.output(s.call(torch.matmul, *operands))
    result = applied(s, AS_SUM)
    assert result.labels[0].startswith("matmul_as_weighted_sum{terms=4}")
    assert result.calls == ["reshape", "mul", "sum"]
    assert f"[{1 if row else 2}], True)" in result.after[-2]


@pytest.mark.parametrize("dialect", list(Dialect))
def test_both_dialects(dialect: Dialect) -> None:
    def fn(gates: list[Tensor], x: Tensor) -> Tensor:
        return torch.cat([(gate.unsqueeze(-1) * x).sum(1) for gate in gates], 1)

    given = [[torch.randn(5, 4) for _ in range(3)], torch.randn(5, 4, 6)]
    for pattern in (BATCH, AS_MATMUL):
        result = rewrite(fn, given, pattern, dialect=dialect)
        assert len(result.labels) == (1 if pattern is BATCH else 3)
        result.check()


def test_dynamic_batch() -> None:
    def fn(gates: list[Tensor], x: Tensor) -> list[Tensor]:
        first = [torch.relu((gate.unsqueeze(-1) * x).sum(1)) for gate in gates]
        return [*first, torch.relu(torch.matmul(gates[0].unsqueeze(1), x))]

    x = torch.randn(5, 4, 6, requires_grad=True)
    gates = [torch.randn(5, 4, requires_grad=True) for _ in range(3)]
    for value in (x, *gates):
        torch._dynamo.mark_dynamic(value, 0)
    result = rewrite(fn, [gates, x], BATCH, AS_SUM, dynamic=None)
    names = sorted(label.partition("{")[0] for label in result.labels)
    assert names == ["batch_weighted_sums", "matmul_as_weighted_sum"]
    result.check()


# ---- refusals


def found(s: Any, pattern: Any) -> int:
    view = s.view()
    ops = [view.read(node) for node in view.nodes()]
    anchors = [op for op in ops if type(op) in pattern.anchors]
    return sum(len(list(pattern.matches(view, op))) for op in anchors)


def test_products_that_are_seen_stay(sketch: Any) -> None:
    s = sketch()
    gates, values = inputs(s, 2)
    products = [s.call(torch.mul, s.call("unsqueeze", g, -1), values) for g in gates]
    s.output(*products, *(s.call(torch.sum, product, dim=1) for product in products))
    assert [found(s, pattern) for pattern in (BATCH, AS_MATMUL)] == [0, 0]


@pytest.mark.parametrize(
    ("weights", "values", "dim"),
    [
        pytest.param((5, 4, 1), (5, 4, 6), 2, id="another dim"),
        pytest.param((5, 4, 6), (5, 4, 6), 1, id="no column"),
        pytest.param((5, 1, 1), (5, 4, 6), 1, id="one weight for all"),
        pytest.param((5, 4, 1), (5, 4, 1), 1, id="values of width 1"),
        pytest.param((4, 1), (5, 4, 6), 1, id="weights without batch"),
        pytest.param((5, 4, 1), (5, 4, 6), (0, 1), id="two dims"),
    ],
)
def test_other_sums_stay(sketch: Any, weights: Any, values: Any, dim: Any) -> None:
    s = sketch()
    operands = [[s.input(*weights), s.input(*values)] for _ in range(2)]
    products = [s.call(torch.mul, *pair) for pair in operands]
    s.output(*(s.call(torch.sum, product, dim=dim) for product in products))
    assert [found(s, pattern) for pattern in (BATCH, AS_MATMUL)] == [0, 0]


def test_mean_is_no_weighted_sum(sketch: Any) -> None:
    s = sketch()
    gates, values = inputs(s, 1)
    product = s.call(torch.mul, s.call("unsqueeze", gates[0], -1), values)
    s.output(s.call(torch.mean, product, dim=1))
    assert found(s, AS_MATMUL) == 0


def test_written_operands(sketch: Any) -> None:
    s = sketch()
    gates, values = inputs(s, 2)
    values = s.call(torch.relu, values)
    sums = mixture(s, gates[0], values=values)
    s.call("add_", values, 1)
    s.output(*sums, *mixture(s, gates[1], values=values))
    assert [found(s, pattern) for pattern in (BATCH, AS_MATMUL)] == [0, 0]


def test_autocast_would_change_the_type(sketch: Any) -> None:
    s = sketch()
    gates, values = inputs(s, 2)
    s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, True)
    sums = mixture(s, *gates, values=values)
    product = s.call(torch.matmul, s.call("unsqueeze", gates[0], 1), values)
    s.output(*sums, product)
    assert [found(s, pattern) for pattern in (BATCH, AS_MATMUL, AS_SUM)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        pytest.param((5, 2, 4), (5, 4, 6), id="two rows"),
        pytest.param((5, 1, 17), (5, 17, 6), id="many terms"),
        pytest.param((1, 4), (4, 6), id="no leading dim"),
        pytest.param((1, 1, 4), (5, 4, 6), id="broadcast"),
        pytest.param((5, 1, 4), (5, 4, 1), id="one number"),
    ],
)
def test_other_products_stay(sketch: Any, left: Any, right: Any) -> None:
    s = sketch()
    s.output(s.call(torch.matmul, s.input(*left), s.input(*right)))
    assert found(s, AS_SUM) == 0


def test_sixteen_bits_are_added_up_in_float32(sketch: Any, applied: Any) -> None:
    s = sketch()
    operands = [s.input(*shape, dtype=torch.bfloat16) for shape in ((5, 1, 4), (5, 4, 6))]
    s.output(s.call(torch.matmul, *operands))
    result = applied(s, AS_SUM)
    assert result.calls[-3:] == ["mul", "sum", ".to"]
    assert result.calls.count(".to") == 3


def test_tf32_is_no_float32(sketch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> Any:
        s = sketch()
        weights, values = s.input(5, 4, 1, device="cuda"), s.input(5, 4, 6, device="cuda")
        products = [s.call(torch.mul, weights, values) for _ in range(2)]
        s.output(*(s.call(torch.sum, product, dim=1) for product in products))
        return s

    for precision, count in (("highest", 2), ("high", 0)):
        monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda value=precision: value)
        assert found(build(), AS_MATMUL) == count
