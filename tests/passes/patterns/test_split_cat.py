"""Cats of what was one tensor before it was cut."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.split_cat import (
    CatOfPieces,
    MergeConsecutivePieces,
    MergeSharedPieces,
)
from passwright.passes.testing import rewrite

WHOLE, MERGE, SHARED = CatOfPieces(), MergeConsecutivePieces(), MergeSharedPieces()
aten = torch.ops.aten


def cut(
    s: Any, x: fx.Node, sizes: Any, dim: int = 1, taken: Iterable[int] | None = None
) -> list[fx.Node]:
    several = s.call(torch.split, x, sizes, dim)
    count = len(several.meta["example_value"])
    return [
        s.call(operator.getitem, several, i) for i in (range(count) if taken is None else taken)
    ]


def cat(s: Any, *values: fx.Node, dim: int = 1) -> fx.Node:
    return s.call(torch.cat, list(values), dim)


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


# ---- the whole cat


def test_cat_of_all_pieces_is_the_input(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 12, requires_grad=True)
    largest(s, cat(s, *cut(s, x, [4, 3, 5])))
    assert applied(s, WHOLE).after == ["amax = amax(x0)", "return (amax)"]


def test_cat_of_a_run_of_pieces_is_a_slice(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 12, requires_grad=True)
    largest(s, cat(s, *cut(s, x, [4, 3, 5], taken=(1, 2))))
    assert applied(s, WHOLE).after == [
        "pw0_narrow = narrow(x0, 1, 4, 8)",
        "amax = amax(pw0_narrow)",
        "return (amax)",
    ]


def test_other_users_keep_their_pieces(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 12, requires_grad=True)
    parts = cut(s, x, 4)
    largest(s, cat(s, *parts), s.call(torch.sin, parts[1]), cat(s, *parts[:2]))
    assert applied(s, WHOLE).after == [
        "pw0_narrow = narrow(x0, 1, 0, 8)",
        "split = split(x0, 4, 1)",
        "getitem_1 = getitem(split, 1)",
        "sin = sin(getitem_1)",
        "amax = amax(x0)",
        "amax_1 = amax(sin)",
        "amax_2 = amax(pw0_narrow)",
        "return (amax, amax_1, amax_2)",
    ]


def test_pieces_of_pieces_slices_and_columns(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 12, requires_grad=True)
    head, tail = cut(s, x, [5, 7])
    middle = s.call(operator.getitem, tail, (slice(None), slice(0, 4)))
    column = s.call(torch.unsqueeze, s.call("select", x, 1, -3), -1)
    end = s.call("narrow", x, -1, 10, 2)
    shared = s.call(torch.cos, tail)
    largest(s, cat(s, *cut(s, head, 2), middle, column, end), shared)
    assert applied(s, WHOLE).after == [
        "split = split(x0, [5, 7], 1)",
        "getitem_1 = getitem(split, 1)",
        "cos = cos(getitem_1)",
        "amax = amax(x0)",
        "amax_1 = amax(cos)",
        "return (amax, amax_1)",
    ]


def test_a_visible_cat_stays_a_copy_with_its_strides(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 12, requires_grad=True)
    s.output(cat(s, *cut(s, x, 4, taken=(0, 1))))
    result = applied(s, WHOLE)
    assert result.calls == ["narrow", "clone"]


def test_cat_of_one_tensor_is_that_tensor(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 12, requires_grad=True)
    largest(s, cat(s, s.call(torch.sin, x)))
    assert applied(s, WHOLE).after == ["sin = sin(x0)", "amax = amax(sin)", "return (amax)"]


# ---- runs inside a longer cat


def test_neighbours_are_cut_out_as_one_piece(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.input(4, 12, requires_grad=True), s.input(4, 2)
    a, b, c, d = cut(s, x, 3)
    largest(s, cat(s, b, c, y, d), s.call(torch.sin, a))
    assert applied(s, MERGE, SHARED).after == [
        "pw0_split = split(x0, [3, 6, 3], dim=1)",
        "pw1_getitem = getitem(pw0_split, 0)",
        "pw2_getitem = getitem(pw0_split, 1)",
        "pw3_getitem = getitem(pw0_split, 2)",
        "pw4_cat = cat([pw2_getitem, x1, pw3_getitem], dim=1)",
        "sin = sin(pw1_getitem)",
        "amax = amax(pw4_cat)",
        "amax_1 = amax(sin)",
        "return (amax, amax_1)",
    ]


def test_runs_of_two_tensors_and_of_slices_in_one_cat(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.input(4, 12, requires_grad=True), s.input(4, 12, requires_grad=True)
    a, b, c, d = cut(s, x, 3)
    slices = [s.call("narrow", y, 1, start, 2) for start in (2, 4, 6, 0)]
    s.output(cat(s, c, d, *slices, a, b))
    result = applied(s, MERGE)
    assert result.after == [
        "pw0_narrow = narrow(x1, 1, 2, 6)",
        "pw1_split = split(x0, [6, 6], dim=1)",
        "pw2_getitem = getitem(pw1_split, 0)",
        "pw3_getitem = getitem(pw1_split, 1)",
        "narrow_3 = .narrow(x1, 1, 0, 2)",
        "pw4_cat = cat([pw3_getitem, pw0_narrow, narrow_3, pw2_getitem], dim=1)",
        "return (pw4_cat)",
    ]


def test_shared_neighbours_are_sliced_beside_their_other_users(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.input(4, 12, requires_grad=True), s.input(4, 2)
    a, b, c = cut(s, x, 3, taken=(0, 1, 2))
    largest(s, cat(s, a, b, c, y), s.call(torch.sin, b))
    assert found(s, WHOLE, MERGE) == 0
    assert applied(s, SHARED).after == [
        "pw0_narrow = narrow(x0, 1, 0, 9)",
        "pw1_cat = cat([pw0_narrow, x1], dim=1)",
        "split = split(x0, 3, 1)",
        "getitem_1 = getitem(split, 1)",
        "sin = sin(getitem_1)",
        "amax = amax(pw1_cat)",
        "amax_1 = amax(sin)",
        "return (amax, amax_1)",
    ]
    assert WHOLE.cleanup
    assert MERGE.cleanup
    assert not SHARED.cleanup


def test_pieces_that_come_twice_are_shared(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 12, requires_grad=True)
    a, b, c = cut(s, x, 4)
    s.output(cat(s, a, b, c, b))
    assert found(s, MERGE) == 0
    assert applied(s, SHARED).after[0] == "split = split(x0, 4, 1)"
    # The whole of x is an input of the cat now, and b stays.
    assert applied(s, SHARED).after[-2] == "pw0_cat = cat([x0, getitem_1], dim=1)"


def test_an_empty_piece_between_is_no_gap(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.input(4, 12, requires_grad=True), s.input(4, 1)
    a, _, b, c = cut(s, x, [4, 0, 5, 3])
    largest(s, cat(s, a, b, y, c))
    assert applied(s, MERGE).count("cat") == 1


# ---- what must not match


def other_order(s: Any, x: fx.Node) -> list[fx.Node]:
    return [cat(s, *reversed(cut(s, x, 4)))]


def gap(s: Any, x: fx.Node) -> list[fx.Node]:
    return [cat(s, *cut(s, x, 3, taken=(0, 2)))]


def overlap(s: Any, x: fx.Node) -> list[fx.Node]:
    return [cat(s, s.call("narrow", x, 1, 0, 4), s.call("narrow", x, 1, 3, 4))]


def other_dim(s: Any, x: fx.Node) -> list[fx.Node]:
    return [cat(s, *cut(s, x, 6), dim=0)]


def split_of_rows(s: Any, x: fx.Node) -> list[fx.Node]:
    return [cat(s, *cut(s, x, 2, 0))]


def two_sources(s: Any, x: fx.Node) -> list[fx.Node]:
    return [cat(s, *cut(s, x, 6, taken=(0,)), *cut(s, s.call(torch.sin, x), 6, taken=(1,)))]


def in_place_on_the_result(s: Any, x: fx.Node) -> list[fx.Node]:
    return [s.call("mul_", cat(s, *cut(s, x, 4)), 2)]


def in_place_on_the_source(s: Any, x: fx.Node) -> list[fx.Node]:
    y = s.call(torch.sin, x)
    result = cat(s, *cut(s, y, 4))
    s.call("mul_", y, 2)
    return [result]


def unknown_op_on_the_source(s: Any, x: fx.Node) -> list[fx.Node]:
    y = s.call(torch.sin, x)
    result = cat(s, *cut(s, y, 4))
    return [result, s.call(aten.relu, y)]


def without_gradient(s: Any, x: fx.Node) -> list[fx.Node]:
    s.call(torch._C._set_grad_enabled, False)
    parts = cut(s, x, 4)
    s.call(torch._C._set_grad_enabled, True)
    return [cat(s, *parts)]


def result_without_gradient(s: Any, x: fx.Node) -> list[fx.Node]:
    s.call(torch._C._set_grad_enabled, False)
    result = cat(s, *cut(s, x, 4))
    s.call(torch._C._set_grad_enabled, True)
    return [result]


@pytest.mark.parametrize(
    "case",
    [
        other_order,
        gap,
        overlap,
        other_dim,
        split_of_rows,
        two_sources,
        in_place_on_the_result,
        in_place_on_the_source,
        unknown_op_on_the_source,
        without_gradient,
        result_without_gradient,
    ],
)
def test_near_misses(sketch: Any, case: Any) -> None:
    s = sketch()
    s.output(*case(s, s.input(4, 12, requires_grad=True)))
    assert found(s, WHOLE, MERGE, SHARED) == 0


# ---- spellings, dialects, symbolic sizes


def straight(join: Any) -> Any:
    return lambda x: join(torch.split(x, 4, 1)).sum()


JOINS = (
    lambda parts: torch.cat(parts, 1),
    lambda parts: torch.cat(tensors=parts, dim=-1),
    lambda parts: torch.concat(parts, dim=1),
    lambda parts: torch.concatenate(parts, axis=1),
    lambda parts: torch.cat(list(parts), dim=1),
)


@pytest.mark.parametrize("dialect", list(Dialect))
def test_every_spelling_matches(dialect: Dialect) -> None:
    def all_of_them(x: Tensor) -> list[Tensor]:
        uneven = torch.cat(x.chunk(5, 1), 1).sum()
        selected = torch.cat([x[:, :4], x.narrow(1, 4, 4), x[..., 8:]], 1).sum()
        return [*(straight(join)(x) for join in JOINS), uneven, selected]

    result = rewrite(all_of_them, [torch.randn(4, 12, requires_grad=True)], WHOLE, dialect=dialect)
    result.check()
    assert set(result.calls) <= {"sum", ".sum", "aten.sum.default"}


def test_autocast_around_the_cat_changes_nothing() -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return torch.cat(torch.split(x, 4, 1), 1) @ w

    result = rewrite(fn, [torch.randn(4, 12), torch.randn(12, 3)], WHOLE)
    result.check(gradients=False)
    assert result.count("cat") == 0


def test_dynamic_batch() -> None:
    def fn(x: Tensor, y: Tensor) -> list[Tensor]:
        a, b, c = x.split(4, 1)
        return [torch.cat([a, b, c], 1).sum(), torch.cat([c, a, b, y], 1), a.sin().sum()]

    x, y = torch.randn(6, 12), torch.randn(6, 2)
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.mark_dynamic(y, 0)
    result = rewrite(fn, [x, y], WHOLE, MERGE, SHARED, dynamic=None)
    result.check()
    assert result.count("cat") == 1
    # Where every size is symbolic, nothing is known of the pieces' widths.
    result = rewrite(fn, [x, y], WHOLE, MERGE, SHARED, dynamic=True)
    result.check()
    assert result.count("cat") == 2
