"""Equal pieces put together in another order, which is a permutation of axes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.interleave import InterleavePieces
from passwright.passes.testing import rewrite

INTERLEAVE = InterleavePieces()
aten = torch.ops.aten


def reordered(s: Any, x: fx.Node, width: int, order: Sequence[int], dim: int = 1) -> fx.Node:
    several = s.call(torch.split, x, width, dim)
    count = len(several.meta["example_value"])
    pieces = [s.call(operator.getitem, several, i) for i in range(count)]
    return s.call(torch.cat, [pieces[i] for i in order], dim)


def found(s: Any) -> int:
    view = s.view()
    ops = [view.read(node) for node in view.nodes()]
    return sum(
        len(list(INTERLEAVE.matches(view, op))) for op in ops if type(op) in INTERLEAVE.anchors
    )


def by_columns(rows: int, columns: int) -> list[int]:
    return [row * columns + column for column in range(columns) for row in range(rows)]


def test_grid_read_by_columns_is_a_permute(sketch: Any, applied: Any) -> None:
    s = sketch()
    s.output(reordered(s, s.input(4, 12, requires_grad=True), 2, by_columns(2, 3)))
    result = applied(s, INTERLEAVE)
    assert result.before[-2] == (
        "cat = cat([getitem, getitem_3, getitem_1, getitem_4, getitem_2, getitem_5], 1)"
    )
    assert result.after == [
        "pw0_reshape = reshape(x0, [4, 2, 3, 2])",
        "pw1_permute = permute(pw0_reshape, [0, 2, 1, 3])",
        "pw2_reshape = reshape(pw1_permute, [4, 12])",
        "return (pw2_reshape)",
    ]


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 2), (2, 6), (4, 4)])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_every_grid_and_dim(sketch: Any, applied: Any, rows: int, columns: int, dim: int) -> None:
    s = sketch()
    shape = [2, 3, 4]
    shape[dim] = rows * columns * 2
    x = s.input(*shape, requires_grad=True)
    s.output(reordered(s, x, 2, by_columns(rows, columns), dim), s.call(torch.sin, x))
    result = applied(s, INTERLEAVE)
    assert "cat" not in result.calls


def test_slices_and_single_columns(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 6, requires_grad=True)
    first, *slices = [s.call("narrow", x, 1, i, 1) for i in by_columns(3, 2)[:3]]
    columns = [s.call(torch.unsqueeze, s.call(torch.select, x, 1, i), 1) for i in (1, 3, 5)]
    s.output(s.call(torch.cat, [first, *slices, *columns], dim=-1))
    assert applied(s, INTERLEAVE).calls == ["reshape", "permute", "reshape"]


@pytest.mark.parametrize(
    ("width", "order"),
    [
        (2, [0, 1, 2, 3, 4, 5]),
        (2, [5, 4, 3, 2, 1, 0]),
        (2, [0, 3, 1, 4, 5, 2]),
        (2, [0, 3, 1, 4, 2]),
        (2, [0, 3, 1, 4, 2, 5, 0]),
        (2, [1, 4, 0, 3, 2, 5]),
        (5, [0, 2, 1]),
    ],
    ids=["in order", "backwards", "irregular", "not all", "one twice", "from 1", "uneven"],
)
def test_other_orders_stay_cats(sketch: Any, width: int, order: list[int]) -> None:
    s = sketch()
    s.output(reordered(s, s.input(4, 12), width, order))
    assert found(s) == 0


def test_not_where_the_cat_dissolves_otherwise(sketch: Any) -> None:
    s = sketch()
    x = s.input(4, 12)
    first = reordered(s, x, 2, by_columns(2, 3))
    second = reordered(s, first, 2, by_columns(3, 2))
    s.output(second)
    # The first is split once more; only the second is the end of the chain.
    assert found(s) == 1
    s = sketch()
    x = s.input(4, 12)
    s.output(s.call(torch.cat, [reordered(s, x, 2, by_columns(2, 3)), x], 1))
    assert found(s) == 0


def test_written_source_or_result(sketch: Any) -> None:
    s = sketch()
    x = s.call(torch.sin, s.input(4, 12))
    kept = reordered(s, x, 2, by_columns(2, 3))
    s.call("mul_", x, 2)
    written = s.call("mul_", reordered(s, s.input(4, 12), 2, by_columns(2, 3)), 2)
    s.output(kept, written)
    assert found(s) == 0


@pytest.mark.parametrize("dialect", list(Dialect))
def test_both_dialects_and_gradients(dialect: Dialect) -> None:
    def fn(x: Tensor) -> list[Tensor]:
        evens, odds = x.chunk(8, 1)[::2], torch.split(x, 2, -1)[1::2]
        return [torch.cat([*evens, *odds], dim=1), torch.concat([*x[:, :8].split(2, 1)], 1).sin()]

    result = rewrite(fn, [torch.randn(3, 16, requires_grad=True)], INTERLEAVE, dialect=dialect)
    result.check()
    assert result.after[0].endswith("[3, 4, 2, 2])")


def test_dynamic_batch() -> None:
    def fn(x: Tensor) -> Tensor:
        parts = x.split(2, 1)
        return torch.cat([parts[i] for i in (0, 3, 1, 4, 2, 5)], 1)

    x = torch.randn(5, 12)
    torch._dynamo.mark_dynamic(x, 0)
    result = rewrite(fn, [x], INTERLEAVE, dynamic=None)
    result.check()
    assert result.calls == ["reshape", "permute", "reshape"]
    rewrite(fn, [x], INTERLEAVE, dynamic=True).check()
