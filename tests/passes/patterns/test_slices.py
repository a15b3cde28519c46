"""Slices and selects that follow each other, or are put together again."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.slices import (
    CatOfColumns,
    MergeSlices,
    SelectOfCat,
    SliceOfCat,
    SliceOfPiece,
    StackOfSelects,
)
from passwright.passes.testing import rewrite

MERGE, PIECE, COLUMNS = MergeSlices(), SliceOfPiece(), CatOfColumns()
STACK, SELECT, SLICE = StackOfSelects(), SelectOfCat(), SliceOfCat()
ALL = (MERGE, PIECE, COLUMNS, STACK, SELECT, SLICE)


def cut(s: Any, x: fx.Node, sizes: Any, taken: Iterable[int]) -> list[fx.Node]:
    several = s.call(torch.split, x, sizes, 1)
    return [s.call(operator.getitem, several, i) for i in taken]


def narrow(s: Any, x: fx.Node, start: int, stop: int, dim: int = 1) -> fx.Node:
    return s.call(torch.narrow, x, dim, start, stop - start)


def select(s: Any, x: fx.Node, index: int, dim: int = 1) -> fx.Node:
    return s.call(torch.select, x, dim, index)


def cat(s: Any, *values: fx.Node) -> fx.Node:
    return s.call(torch.cat, list(values), 1)


def wide(s: Any, *widths: int) -> list[fx.Node]:
    return [s.input(4, width, requires_grad=True) for width in widths]


def largest(s: Any, *values: fx.Node) -> None:
    """The largest number of each is returned: nobody sees the strides of the values."""
    s.output(*(s.call(torch.amax, value) for value in values))


def found(s: Any, *patterns: Any) -> int:
    """Number of matches in the sketched graph."""
    view = s.view()
    ops = [view.read(node) for node in view.nodes()]
    return sum(
        len(list(p.matches(view, op))) for p in patterns for op in ops if type(op) in p.anchors
    )


# ---- slices of slices and of pieces


def test_slice_of_slice_is_one_slice(sketch: Any, applied: Any) -> None:
    s = sketch()
    (x,) = wide(s, 12)
    s.output(narrow(s, narrow(s, x, 2, 10), 1, 4), select(s, narrow(s, x, 3, 9), 2))
    assert applied(s, MERGE).after == [
        "pw0_narrow = narrow(x0, 1, 3, 3)",
        "pw1_select = select(x0, 1, 5)",
        "return (pw0_narrow, pw1_select)",
    ]


def test_full_slice_is_nothing(sketch: Any, applied: Any) -> None:
    s = sketch()
    (x,) = wide(s, 12)
    y = s.call(torch.sin, x)
    s.output(narrow(s, y, 0, 12), s.call(operator.getitem, y, (slice(None), slice(0, 99))))
    assert applied(s, MERGE).after == ["sin = sin(x0)", "return (sin, sin)"]


def test_slice_of_a_piece_refines_the_split(sketch: Any, applied: Any) -> None:
    s = sketch()
    (x,) = wide(s, 12)
    first, second = cut(s, x, [4, 8], (0, 1))
    s.output(first, narrow(s, second, 2, 5))
    assert applied(s, PIECE).after == [
        "pw0_split = split(x0, [4, 2, 3, 3], dim=1)",
        "pw1_getitem = getitem(pw0_split, 0)",
        "pw2_getitem = getitem(pw0_split, 2)",
        "return (pw1_getitem, pw2_getitem)",
    ]


def test_slices_left_alone(sketch: Any) -> None:
    s = sketch()
    (x,) = wide(s, 12)
    shared = narrow(s, x, 2, 10)
    twice = cut(s, x, 6, (0, 0))
    other_dim = narrow(s, narrow(s, x, 2, 10), 0, 2, 0)
    piece = narrow(s, twice[0], 1, 3)
    written = s.call(torch.sin, x)
    inner = narrow(s, written, 2, 10)
    s.call("mul_", written, 2)
    outer = narrow(s, inner, 0, 3)
    s.output(shared, narrow(s, shared, 1, 2), other_dim, piece, twice[1], outer)
    assert found(s, MERGE, PIECE) == 0


def test_full_slice_without_gradient_stays(sketch: Any) -> None:
    s = sketch()
    y = s.call(torch.sin, *wide(s, 12))
    s.call(torch._C._set_grad_enabled, False)
    full = narrow(s, y, 0, 12)
    s.call(torch._C._set_grad_enabled, True)
    s.output(full)
    assert found(s, MERGE) == 0


# ---- columns


def test_columns_side_by_side_are_a_slice(sketch: Any, applied: Any) -> None:
    s = sketch()
    (x,) = wide(s, 12)
    stacked = s.call(torch.stack, [select(s, x, i) for i in (3, 4, 5)], -1)
    joined = cat(s, *(s.call(torch.unsqueeze, select(s, x, i), 1) for i in (0, 1)))
    largest(s, stacked, joined)
    assert applied(s, COLUMNS, STACK).after == [
        "pw0_narrow = narrow(x0, 1, 0, 2)",
        "pw1_narrow = narrow(x0, 1, 3, 3)",
        "amax = amax(pw1_narrow)",
        "amax_1 = amax(pw0_narrow)",
        "return (amax, amax_1)",
    ]


def test_all_columns_are_the_tensor_and_others_keep_theirs(sketch: Any, applied: Any) -> None:
    s = sketch()
    (x,) = wide(s, 3)
    columns = [select(s, x, i) for i in range(3)]
    largest(s, s.call(torch.stack, columns, 1), s.call(torch.sin, columns[2]))
    assert applied(s, COLUMNS).after == [
        "select_2 = select(x0, 1, 2)",
        "sin = sin(select_2)",
        "amax = amax(x0)",
        "amax_1 = amax(sin)",
        "return (amax, amax_1)",
    ]


def test_columns_stacked_as_rows_are_a_permuted_slice(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 12, 3, requires_grad=True)
    largest(s, s.call(torch.stack, [select(s, x, i) for i in (3, 4)], 0))
    assert not STACK.cleanup
    assert applied(s, COLUMNS, STACK).after == [
        "pw0_narrow = narrow(x0, 1, 3, 2)",
        "pw1_permute = permute(pw0_narrow, [1, 0, 2])",
        "amax = amax(pw1_permute)",
        "return (amax)",
    ]


def test_columns_left_alone(sketch: Any) -> None:
    s = sketch()
    x = s.input(4, 12, 3, requires_grad=True)
    y = s.call(torch.sin, x)
    picks = [
        [select(s, x, i) for i in (4, 3)],
        [select(s, x, i) for i in (3, 5)],
        [select(s, x, 3), select(s, y, 4)],
        [select(s, x, 1, 0), narrow(s, x, 2, 3)],
    ]
    stacks = [s.call(torch.stack, pick, 1) for pick in picks[:3]]
    # Strides of a permuted slice would be seen.
    seen = s.call(torch.stack, [select(s, x, i) for i in (3, 4)], 0)
    s.output(*stacks, *picks[3], seen)
    assert found(s, COLUMNS, STACK) == 0


# ---- parts of cats


def test_slice_of_a_cat_comes_from_one_input(sketch: Any, applied: Any) -> None:
    s = sketch()
    joined = cat(s, *wide(s, 4, 4, 4))
    largest(s, narrow(s, joined, 0, 4), narrow(s, joined, 5, 7), joined)
    assert applied(s, SLICE).after == [
        "pw0_narrow = narrow(x1, 1, 1, 2)",
        "cat = cat([x0, x1, x2], 1)",
        "amax = amax(x0)",
        "amax_1 = amax(pw0_narrow)",
        "amax_2 = amax(cat)",
        "return (amax, amax_1, amax_2)",
    ]


def test_slice_over_several_inputs_is_a_smaller_cat(sketch: Any, applied: Any) -> None:
    s = sketch()
    largest(s, narrow(s, cat(s, *wide(s, 4, 4, 4)), 0, 10))
    assert applied(s, SLICE).after == [
        "pw0_narrow = narrow(x2, 1, 0, 2)",
        "pw1_cat = cat([x0, x1, pw0_narrow], dim=1)",
        "amax = amax(pw1_cat)",
        "return (amax)",
    ]


def test_select_of_a_cat_comes_from_one_input(sketch: Any, applied: Any) -> None:
    s = sketch()
    largest(s, select(s, cat(s, *wide(s, 4, 4, 4)), -3))
    assert applied(s, SELECT).after == [
        "pw0_select = select(x2, 1, 1)",
        "amax = amax(pw0_select)",
        "return (amax)",
    ]


def shared_by_several(s: Any) -> list[fx.Node]:
    joined = cat(s, *wide(s, 4, 4, 4))
    return [s.call(torch.amax, value) for value in (narrow(s, joined, 0, 8), joined)]


def returned(s: Any) -> list[fx.Node]:
    joined = cat(s, *wide(s, 4, 4))
    return [narrow(s, joined, 0, 4), select(s, joined, 1)]


def strides_seen(s: Any) -> list[fx.Node]:
    part = narrow(s, cat(s, *wide(s, 4, 4)), 0, 4)
    return [s.call("is_contiguous", part)]


def other_dim(s: Any) -> list[fx.Node]:
    joined = cat(s, *wide(s, 4, 4))
    return [s.call(torch.amax, v) for v in (narrow(s, joined, 0, 2, 0), select(s, joined, 1, 0))]


def input_written(s: Any) -> list[fx.Node]:
    y = s.call(torch.sin, *wide(s, 4))
    joined = cat(s, y, *wide(s, 4))
    parts = [narrow(s, joined, 0, 4), select(s, joined, 1)]
    s.call("mul_", y, 2)
    return [s.call(torch.amax, part) for part in parts]


def gradient_of_the_other_input(s: Any) -> list[fx.Node]:
    joined = cat(s, *wide(s, 4), s.input(4, 4))
    return [s.call(torch.amax, v) for v in (narrow(s, joined, 4, 8), select(s, joined, 5))]


@pytest.mark.parametrize(
    "case",
    [
        shared_by_several,
        returned,
        strides_seen,
        other_dim,
        input_written,
        gradient_of_the_other_input,
    ],
)
def test_parts_of_cats_left_alone(sketch: Any, case: Any) -> None:
    s = sketch()
    s.output(*case(s))
    assert found(s, SLICE, SELECT) == 0


# ---- spellings, dialects, symbolic sizes


def nested(x: Tensor) -> list[Tensor]:
    return [
        x[:, 2:10][:, 1:4],
        x.narrow(1, 2, 8).narrow(dim=-1, start=1, length=3),
        torch.narrow(x, 1, -10, 8)[..., 1:4],
        x[:, 2:10][:, 3],
        torch.select(x[:, 2:10], 1, 3),
        x[:, 2:10].select(-1, -5),
        torch.stack([x[:, 3], x.select(1, 4)], dim=1).amax(),
        torch.cat([x[:, 3].unsqueeze(1), x[:, 4][:, None]], dim=-1).amax(),
    ]


@pytest.mark.parametrize("dialect", list(Dialect))
def test_every_spelling_matches(dialect: Dialect) -> None:
    result = rewrite(nested, [torch.randn(4, 12, requires_grad=True)], *ALL, dialect=dialect)
    result.check()
    kinds = [name.removeprefix("aten.").partition(".")[0] or name for name in result.calls]
    # Tracing to ATen-IR leaves a detach at each amax, an alias since torch 2.14.
    assert sorted(kind for kind in kinds if kind not in ("detach", "alias")) == sorted(
        ["slice" if dialect is Dialect.ATEN else "narrow"] * 5
        + ["select"] * 3
        + ["amax" if dialect is Dialect.ATEN else ".amax"] * 2
    )


def test_dynamic_batch() -> None:
    def fn(x: Tensor, y: Tensor) -> list[Tensor]:
        joined = torch.cat([x, y], 1)
        return [*nested(x), joined[:, 2:4].amax(), joined[:, 13].amax(), x.split(6, 1)[1][:, 1:3]]

    x, y = torch.randn(6, 12), torch.randn(6, 3)
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.mark_dynamic(y, 0)
    result = rewrite(fn, [x, y], *ALL, dynamic=None)
    result.check()
    assert result.count("cat") + result.count("stack") == 0
    rewrite(fn, [x, y], *ALL, dynamic=True).check()
