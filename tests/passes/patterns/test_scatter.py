"""Rows added into small tables: the backward graphs of embeddings and of indexing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx

from passwright.passes.dialect import Dialect
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Exactness
from passwright.passes.patterns.scatter import ScatterAsMaskedSum, ScatterAsProduct
from passwright.passes.table import PatternTable
from passwright.scheduler import inductor
from passwright.scheduler.graph_pass import lower_decomposed

aten = torch.ops.aten
SUM, PRODUCT = ScatterAsMaskedSum(), ScatterAsProduct()
EACH = pytest.mark.parametrize("pattern", [SUM, PRODUCT], ids=lambda p: p.name())
ADDED = [
    pytest.param(aten.index_put.default, id="index_put"),
    pytest.param(aten._unsafe_index_put.default, id="unsafe"),
    pytest.param(aten.index_add.default, id="index_add"),
    pytest.param(aten._unsafe_masked_index_put_accumulate.default, id="masked"),
]


def added(
    s: Any, target: Any, rows: int = 4, count: int = 64, width: int = 3, **kwargs: Any
) -> Any:
    """`count` rows added into zeros; indices from 0 to 3."""
    zeros = s.call(aten.full.default, [rows, width], 0, dtype=torch.float32)
    index = kwargs.pop("index", None) or s.input(count, dtype=torch.int64)
    values = kwargs.pop("values", None) or s.input(count, width)
    if target is aten.index_add.default:
        return s.call(target, zeros, 0, index, values)
    if target is aten._unsafe_masked_index_put_accumulate.default:
        mask = s.call(aten.unsqueeze.default, s.call(aten.ne.Scalar, index, 2), 1)
        return s.call(target, zeros, mask, [index], values)
    return s.call(target, zeros, [index], values, True)


def matches(s: Any, pattern: Any) -> int:
    view = s.view()
    ops = [view.read(node) for node in view.nodes()]
    return sum(len(list(pattern.matches(view, op))) for op in ops if type(op) in pattern.anchors)


@EACH
@pytest.mark.parametrize("target", ADDED)
@pytest.mark.parametrize("below", [0, -3], ids=["positive", "negative"])
def test_index_put(sketch: Any, applied: Any, pattern: Any, target: Any, below: int) -> None:
    """Negative indices count from the end, but for index_add, which has none."""
    s = sketch(Dialect.ATEN)
    index = s.input(64, dtype=torch.int64)
    if below and target is not aten.index_add.default:
        index = s.call(aten.add.Tensor, index, below)
    s.output(added(s, target, index=index))
    result = applied(s, pattern)
    assert result.labels[0].startswith(pattern.name())
    assert not any("index" in call for call in result.calls)


@EACH
@pytest.mark.parametrize("padding", [-1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_embedding_gradient(
    sketch: Any, applied: Any, pattern: Any, padding: int, dtype: torch.dtype
) -> None:
    s = sketch(Dialect.ATEN)
    gradient, index = s.input(16, 8, 3, dtype=dtype), s.input(16, 8, dtype=torch.int64)
    s.output(s.call(aten.embedding_dense_backward.default, gradient, index, 5, padding, False))
    result = applied(s, pattern)
    assert result.count("aten.embedding_dense_backward.default") == 0
    assert bool(result.module(*result.inputs)[0][2].any()) is (padding != 2)


@EACH
def test_a_table_of_more_dims(sketch: Any, applied: Any, pattern: Any) -> None:
    s = sketch(Dialect.ATEN)
    zeros = s.call(aten.full.default, [4, 3, 2], 0.0)
    index, values = s.input(8, 16, dtype=torch.int32), s.input(8, 16, 3, 2)
    s.output(s.call(aten.index_put.default, zeros, [index], values, True))
    assert applied(s, pattern).labels


def test_an_index_outside_goes_to_the_nearest_row(sketch: Any, applied: Any) -> None:
    """As the masked op has it where its mask is true."""
    s = sketch(Dialect.ATEN)
    index = s.call(aten.mul.Tensor, s.input(64, dtype=torch.int64), 3)
    target = aten._unsafe_masked_index_put_accumulate.default
    s.output(added(s, target, rows=4, index=index))
    assert applied(s, SUM).labels


def test_only_the_row_of_a_value_that_is_not_finite(sketch: Any, applied: Any) -> None:
    s = sketch(Dialect.ATEN)
    index, values = s.input(64, dtype=torch.int64), s.input(64, 3)
    s.output(
        added(
            s, aten.index_put.default, index=index, values=s.call(aten.reciprocal.default, values)
        )
    )
    result = applied(s, SUM)
    places, numbers = (value.clone() for value in result.inputs)
    numbers[5] = 0
    sums = result.module(places, numbers)[0]
    spoilt = ~sums.isfinite().all(1)
    assert spoilt.nonzero().flatten().tolist() == [int(places[5])]
    assert PRODUCT.exactness is Exactness.RELAXED


@EACH
def test_near_misses(sketch: Any, pattern: Any) -> None:
    def found(change: str) -> bool:
        s = sketch(Dialect.ATEN)
        zeros = s.call(aten.full.default, [4, 3], 1.0 if change == "ones" else 0.0)
        if change == "a given tensor":
            zeros = s.input(4, 3)
        index, values = s.input(64, dtype=torch.int64), s.input(64, 3)
        if change == "few":
            index, values = s.input(24, dtype=torch.int64), s.input(24, 3)
        if change == "broadcast":
            values = s.input(1, 3)
        if change == "written":
            s.call(aten.add_.Tensor, zeros, 1)
        accumulates = change != "overwrites"
        s.output(s.call(aten.index_put.default, zeros, [index], values, accumulates))
        return matches(s, pattern) == 1

    assert found("nothing")
    for change in ("ones", "a given tensor", "few", "broadcast", "written", "overwrites"):
        assert not found(change), change


def test_many_rows(sketch: Any) -> None:
    for rows, fits in (64, [1, 1]), (65, [0, 1]), (1024, [0, 1]), (1025, [0, 0]):
        s = sketch(Dialect.ATEN)
        s.output(added(s, aten.index_put.default, rows=rows, count=16 * 1025))
        small = rows * 16 * 1025 <= 2**24
        assert [matches(s, SUM), matches(s, PRODUCT)] == [fits[0], fits[1] and int(small)], rows


def test_products_that_round_are_refused(sketch: Any) -> None:
    """TF32 has 10 bits of mantissa; sums under a mask have them all."""
    for precision, found in ("highest", 1), ("high", 0):
        s = sketch(Dialect.ATEN)
        zeros = s.call(aten.full.default, [4, 3], 0.0, device="cuda")
        index = s.input(64, dtype=torch.int64, device="cuda")
        values = s.input(64, 3, device="cuda")
        s.output(s.call(aten.index_put.default, zeros, [index], values, True))
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(precision)
        try:
            assert [matches(s, SUM), matches(s, PRODUCT)] == [1, found]
        finally:
            torch.set_float32_matmul_precision(before)


@EACH
def test_in_the_backward_of_inductor(pattern: Any) -> None:
    """There the gradient of an embedding is taken apart already; all that we insert is known."""
    labels: list[str] = []

    def run(graph: fx.Graph) -> None:
        rewriter = Rewriter(GraphView(graph), PatternTable([pattern]))
        for candidate in rewriter.candidates():
            rewriter.apply(candidate)
            labels.append(candidate.label)
        rewriter.editor.finish()
        lower_decomposed(graph)

    def model(i: Tensor, w: Tensor, j: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return F.embedding(i, w, padding_idx=2).tanh(), v[j].exp()

    def compiled(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        ours = inductor.graph_pass(run, lambda: pattern.name())
        return inductor.compile_with_inductor(
            gm, inputs, passes={"post_grad_custom_pre_pass": ours}
        )

    index, more = torch.randint(0, 6, (32, 4)), torch.randint(-6, 6, (128,))
    w, v = torch.randn(6, 8, requires_grad=True), torch.randn(6, 3, requires_grad=True)
    expected = torch.autograd.grad(sum(map(torch.sum, model(index, w, more, v))), (w, v))
    with inductor.fresh_cache():
        found = torch.compile(model, backend=compiled)(index, w, more, v)
        actual = torch.autograd.grad(sum(map(torch.sum, found)), (w, v))
    assert len(labels) == 2
    torch.testing.assert_close(actual, expected)
    assert not actual[0][2].any()
