"""Splits that need not be, or not as they are."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.splits import (
    LonePieceToSlice,
    MergeNestedSplits,
    PiecesToSlices,
    RemoveSinglePieceSplit,
)
from passwright.passes.testing import rewrite

NESTED, SINGLE = MergeNestedSplits(), RemoveSinglePieceSplit()
LONE, FEW = LonePieceToSlice(), PiecesToSlices()
ALL = (NESTED, SINGLE, LONE, FEW)
aten = torch.ops.aten


def cut(
    s: Any, x: fx.Node, sizes: Any, dim: int = 1, taken: Iterable[int] | None = None
) -> list[fx.Node]:
    several = s.call(torch.split, x, sizes, dim)
    count = len(several.meta["example_value"])
    return [
        s.call(operator.getitem, several, i) for i in (range(count) if taken is None else taken)
    ]


def found(s: Any, *patterns: Any) -> int:
    """Number of matches in the sketched graph."""
    view = s.view()
    ops = [view.read(node) for node in view.nodes()]
    return sum(
        len(list(p.matches(view, op))) for p in patterns for op in ops if type(op) in p.anchors
    )


# ---- splits of splits


def test_piece_split_again_becomes_pieces_of_the_first_split(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 12, requires_grad=True)
    first, second = cut(s, x, [4, 8])
    s.output(first, *cut(s, second, [3, 5]))
    result = applied(s, NESTED)
    assert result.before == [
        "split = split(x0, [4, 8], 1)",
        "getitem = getitem(split, 0)",
        "getitem_1 = getitem(split, 1)",
        "split_1 = split(getitem_1, [3, 5], 1)",
        "getitem_2 = getitem(split_1, 0)",
        "getitem_3 = getitem(split_1, 1)",
        "return (getitem, getitem_2, getitem_3)",
    ]
    assert result.after == [
        "pw0_split = split(x0, [4, 3, 5], dim=1)",
        "pw1_getitem = getitem(pw0_split, 0)",
        "pw2_getitem = getitem(pw0_split, 1)",
        "pw3_getitem = getitem(pw0_split, 2)",
        "return (pw1_getitem, pw2_getitem, pw3_getitem)",
    ]


def test_slice_split_again_becomes_pieces_of_one_split(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 12, requires_grad=True)
    s.output(*cut(s, s.call("narrow", x, 1, 4, 7), [3, 4]))
    assert applied(s, NESTED).after == [
        "pw0_split = split(x0, [4, 3, 4, 1], dim=1)",
        "pw1_getitem = getitem(pw0_split, 1)",
        "pw2_getitem = getitem(pw0_split, 2)",
        "return (pw1_getitem, pw2_getitem)",
    ]


def test_three_levels_of_splits_become_one(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 24, requires_grad=True)
    left, right = cut(s, x, 12)
    a, b = cut(s, left, 6)
    s.output(*cut(s, a, 4), b, *cut(s, right, [2, 10]))
    result = applied(s, NESTED)
    assert result.count("split") == 1
    assert result.after[0] == "pw0_split = split(x0, [4, 2, 6, 2, 10], dim=1)"


@pytest.mark.parametrize("dialect", list(Dialect))
def test_pieces_taken_twice_and_not_at_all(sketch: Any, applied: Any, dialect: Dialect) -> None:
    s = sketch(dialect)
    x = s.input(4, 12, requires_grad=True)
    split = aten.split_with_sizes.default if dialect is Dialect.ATEN else torch.split
    outer = s.call(split, x, [2, 8, 2], 1)
    again = [s.call(operator.getitem, outer, 0) for _ in range(2)]
    inner = s.call(split, s.call(operator.getitem, outer, 1), [3, 4, 1], 1)
    ends = [s.call(operator.getitem, inner, i) for i in (2, 0, 2)]
    s.output(*again, *ends)
    result = applied(s, NESTED)
    assert result.after[0].endswith(
        "(x0, [2, 3, 4, 1, 2], 1)" if dialect is Dialect.ATEN else "(x0, [2, 3, 4, 1, 2], dim=1)"
    )
    assert len(result.after) == len(("split", "three pieces", "", "", "return"))


def test_nested_splits_left_alone(sketch: Any) -> None:
    s = sketch()
    x = s.input(6, 12)
    other_dim = cut(s, cut(s, x, 6)[0], 3, 0)
    shared = cut(s, x, 6)[1]
    kept = [*other_dim, shared, *cut(s, shared, 3)]
    plain = s.call(torch.relu, cut(s, x, 6)[0])
    s.output(*kept, *cut(s, plain, 2))
    assert found(s, NESTED) == 0


def test_write_between_the_splits_is_a_barrier(sketch: Any) -> None:
    def outcome(write: bool) -> int:
        s = sketch()
        x = s.call(torch.relu, s.input(4, 12))
        first, second = cut(s, x, 6)
        if write:
            s.call("add_", x, 1)
        s.output(first, *cut(s, second, 3))
        return found(s, NESTED)

    assert outcome(write=False) == 1
    assert outcome(write=True) == 0


def test_grad_mode_between_the_splits_is_a_barrier(sketch: Any) -> None:
    s = sketch()
    x = s.input(4, 12, requires_grad=True)
    first, second = cut(s, x, 6)
    s.call(torch._C._set_grad_enabled, False)
    inner = cut(s, second, 3)
    s.call(torch._C._set_grad_enabled, True)
    s.output(first, *inner)
    assert found(s, NESTED) == 0


# ---- one piece


def test_split_into_one_piece_is_its_input(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 12, requires_grad=True)
    whole = cut(s, x, 12, 1, (0, 0))
    chunk = s.call("chunk", s.call(torch.sin, x), 1, -1)
    s.output(*(s.call(torch.cos, y) for y in whole), s.call(operator.getitem, chunk, 0))
    assert applied(s, SINGLE).after == [
        "sin = sin(x0)",
        "cos = cos(x0)",
        "cos_1 = cos(x0)",
        "return (cos, cos_1, sin)",
    ]


def test_unbind_of_a_dim_of_size_one_drops_the_dim(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 1, 6, requires_grad=True)
    s.output(s.call(operator.getitem, s.call(torch.unbind, x, 1), 0))
    assert applied(s, SINGLE).after == ["pw0_reshape = reshape(x0, [4, 6])", "return (pw0_reshape)"]


def test_single_pieces_left_alone(sketch: Any) -> None:
    s = sketch()
    x = s.input(4, 12, requires_grad=True)
    two = cut(s, x, 6)
    s.call(torch._C._set_grad_enabled, False)
    # Outside, the piece is a value without a gradient, and the input is not.
    one = cut(s, s.call(torch.sin, x), 12)
    s.call(torch._C._set_grad_enabled, True)
    s.output(*two, *one)
    assert found(s, SINGLE) == 0


# ---- slices instead of pieces


def test_lone_piece_is_a_slice(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 16, requires_grad=True)
    first, second = cut(s, x, [4, 8, 4], 1, (1, 1))
    s.output(s.call(torch.sin, first), second)
    assert applied(s, LONE, FEW).after == [
        "pw0_narrow = narrow(x0, 1, 4, 8)",
        "sin = sin(pw0_narrow)",
        "return (sin, pw0_narrow)",
    ]


def test_few_pieces_are_slices(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 20, requires_grad=True)
    s.output(*cut(s, x, 4, 1, (1, 4)))
    assert applied(s, LONE, FEW).after == [
        "pw0_narrow = narrow(x0, 1, 4, 4)",
        "pw1_narrow = narrow(x0, 1, 16, 4)",
        "return (pw0_narrow, pw1_narrow)",
    ]


def test_half_of_the_pieces_stay_pieces(sketch: Any) -> None:
    s = sketch()
    x = s.input(4, 16)
    s.output(*cut(s, x, 4, 1, (1, 3)), *cut(s, x, 16))
    assert found(s, LONE, FEW) == 0


def test_only_clean_up_never_adds_a_gradient() -> None:
    assert [p.cleanup for p in ALL] == [True, True, True, False]


# ---- spellings, dialects, symbolic sizes


def nested(split: Any) -> Any:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        first, second = split(x)
        return (first, *second.split([3, 5], dim=-1))

    return fn


SPELLINGS = (
    lambda x: torch.split(x, [4, 8], 1),
    lambda x: torch.split(x, split_size_or_sections=[4, 8], dim=-1),
    lambda x: torch.split(tensor=x, split_size_or_sections=[4, 8], dim=1),
    lambda x: torch.split_with_sizes(x, [4, 8], dim=1),
    lambda x: x.split((4, 8), -1),
    lambda x: x.split_with_sizes([4, 8], 1),
    lambda x: x.tensor_split([4], dim=1),
    lambda x: torch.tensor_split(x, (4,), dim=-1),
)


@pytest.mark.parametrize("dialect", list(Dialect))
def test_every_spelling_matches_once(dialect: Dialect) -> None:
    def all_of_them(x: Tensor) -> list[tuple[Tensor, ...]]:
        return [nested(split)(x) for split in SPELLINGS]

    inputs = [torch.randn(4, 12, requires_grad=True)]
    result = rewrite(all_of_them, inputs, NESTED, dialect=dialect)
    result.check()
    assert sum("[4, 3, 5]" in line for line in result.after) == len(SPELLINGS)


def test_uneven_last_piece_by_chunk_and_by_width() -> None:
    def fn(x: Tensor) -> list[Tensor]:
        a, b, c = x.chunk(3, dim=1)
        d, e, f = torch.split(x, 4, 1)
        return [a, b, *c.split(1, 1), d, e, *torch.chunk(f, 2, -1)]

    result = rewrite(fn, [torch.randn(3, 10, requires_grad=True)], NESTED)
    result.check()
    sizes = [line.partition("[")[2].partition("]")[0] for line in result.after if "= split" in line]
    assert sizes == ["4, 4, 1, 1", "4, 4, 1, 1"]


def test_dynamic_batch() -> None:
    def fn(x: Tensor) -> list[Tensor]:
        first, second = x.split([4, 8], 1)
        whole = x.split(12, 1)[0]
        dropped = x[:, None].unbind(1)[0]
        few = x.chunk(6, 1)
        return [first, *second.split([3, 5], 1), whole.sin(), dropped.cos(), few[1], few[4]]

    x = torch.randn(6, 12)
    torch._dynamo.mark_dynamic(x, 0)
    result = rewrite(fn, [x], *ALL, dynamic=None)
    result.check()
    assert {label.partition(" ")[0] for label in result.labels} == {p.name() for p in ALL} - {
        LONE.name()
    }
