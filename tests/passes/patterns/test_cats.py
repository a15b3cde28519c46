"""Cats that are cut up again, or poured into another cat."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.cats import FlattenNestedCats, SplitCatIntoCats, SplitOfCat
from passwright.passes.testing import rewrite

FLATTEN, APART, INTO_CATS = FlattenNestedCats(), SplitOfCat(), SplitCatIntoCats()
ALL = (FLATTEN, APART, INTO_CATS)


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


def wide(s: Any, *widths: int) -> list[fx.Node]:
    return [s.input(4, width, requires_grad=True) for width in widths]


# ---- cats of cats


def test_cat_of_cats_is_one_cat(sketch: Any, applied: Any) -> None:
    s = sketch()
    a, b, c, d = wide(s, 2, 3, 4, 5)
    s.output(cat(s, cat(s, cat(s, a, b), c), d))
    assert applied(s, FLATTEN).after == [
        "pw0_cat = cat([x0, x1, x2, x3], dim=1)",
        "return (pw0_cat)",
    ]


def test_inner_cat_that_comes_twice(sketch: Any, applied: Any) -> None:
    s = sketch()
    a, b, c = wide(s, 2, 3, 4)
    inner = cat(s, a, b)
    s.output(cat(s, inner, c, inner))
    assert applied(s, FLATTEN).after[0] == "pw0_cat = cat([x0, x1, x2, x0, x1], dim=1)"


def test_inner_cat_of_two_outer_ones(sketch: Any, applied: Any) -> None:
    s = sketch()
    a, b, c = wide(s, 2, 3, 4)
    inner = cat(s, a, b)
    outer = cat(s, c, inner)
    s.output(outer, cat(s, inner, outer))
    result = applied(s, FLATTEN)
    assert result.after == [
        "pw0_cat = cat([x2, x0, x1], dim=1)",
        "pw1_cat = cat([x0, x1, pw0_cat], dim=1)",
        "return (pw0_cat, pw1_cat)",
    ]


def test_pieces_of_a_cat_joined_again_come_from_its_inputs(sketch: Any, applied: Any) -> None:
    s = sketch()
    a, b = wide(s, 6, 6)
    parts = cut(s, cat(s, a, b), 4)
    s.output(cat(s, *reversed(parts)))
    assert applied(s, FLATTEN).after == [
        "pw0_split = split(x1, [2, 4], dim=1)",
        "pw1_split = split(x0, [4, 2], dim=1)",
        "pw2_getitem = getitem(pw1_split, 0)",
        "pw3_getitem = getitem(pw1_split, 1)",
        "pw4_getitem = getitem(pw0_split, 0)",
        "pw5_getitem = getitem(pw0_split, 1)",
        "pw6_cat = cat([pw5_getitem, pw3_getitem, pw4_getitem, pw2_getitem], dim=1)",
        "return (pw6_cat)",
    ]


def other_dim(s: Any) -> list[fx.Node]:
    a, b, c = wide(s, 2, 3, 5)
    return [cat(s, cat(s, a, b), c, dim=0)]


def read_elsewhere(s: Any) -> list[fx.Node]:
    a, b, c = wide(s, 2, 3, 5)
    inner = cat(s, a, b)
    return [cat(s, inner, c), s.call(torch.sin, inner)]


def returned(s: Any) -> list[fx.Node]:
    a, b, c = wide(s, 2, 3, 5)
    inner = cat(s, a, b)
    return [cat(s, inner, c), inner]


def too_many_copies(s: Any) -> list[fx.Node]:
    a, b, c = wide(s, 2, 3, 4)
    inner = cat(s, a, b, c)
    return [cat(s, inner, inner, inner)]


def written_between(s: Any) -> list[fx.Node]:
    a, b, c = wide(s, 2, 3, 5)
    d = s.call(torch.sin, a)
    inner = cat(s, d, b)
    s.call("mul_", d, 2)
    return [cat(s, inner, c)]


def made_without_gradient(s: Any) -> list[fx.Node]:
    a, b, c = wide(s, 2, 3, 5)
    s.call(torch._C._set_grad_enabled, False)
    inner = cat(s, a, b)
    s.call(torch._C._set_grad_enabled, True)
    return [cat(s, inner, c)]


@pytest.mark.parametrize(
    "case",
    [other_dim, read_elsewhere, returned, too_many_copies, written_between, made_without_gradient],
)
def test_nested_cats_left_alone(sketch: Any, case: Any) -> None:
    s = sketch()
    s.output(*case(s))
    assert found(s, FLATTEN) == 0


# ---- splits of cats


def test_pieces_that_are_inputs(sketch: Any, applied: Any) -> None:
    s = sketch()
    a, b, c = wide(s, 2, 3, 4)
    largest(s, *cut(s, cat(s, a, b, c), [2, 3, 4]))
    result = applied(s, APART)
    assert result.before[0] == "cat = cat([x0, x1, x2], 1)"
    assert result.after == [
        "amax = amax(x0)",
        "amax_1 = amax(x1)",
        "amax_2 = amax(x2)",
        "return (amax, amax_1, amax_2)",
    ]


def test_other_users_keep_the_cat(sketch: Any, applied: Any) -> None:
    s = sketch()
    a, b, c = wide(s, 2, 3, 4)
    joined = cat(s, a, b, c)
    largest(s, joined, *cut(s, joined, [2, 2, 1, 4]))
    assert applied(s, APART).after == [
        "cat = cat([x0, x1, x2], 1)",
        "split = split(cat, [2, 2, 1, 4], 1)",
        "getitem_1 = getitem(split, 1)",
        "getitem_2 = getitem(split, 2)",
        "amax = amax(cat)",
        "amax_1 = amax(x0)",
        "amax_2 = amax(getitem_1)",
        "amax_3 = amax(getitem_2)",
        "amax_4 = amax(x2)",
        "return (amax, amax_1, amax_2, amax_3, amax_4)",
    ]


def test_pieces_within_inputs_split_the_inputs(sketch: Any, applied: Any) -> None:
    s = sketch()
    a, b = wide(s, 4, 6)
    largest(s, *cut(s, cat(s, a, b), 2))
    result = applied(s, APART)
    assert sorted(result.calls) == ["amax"] * 5 + ["getitem"] * 5 + ["split"] * 2


def test_one_spanning_piece_is_a_smaller_cat(sketch: Any, applied: Any) -> None:
    s = sketch()
    a, b, c = wide(s, 2, 3, 4)
    largest(s, *cut(s, cat(s, a, b, c), [2, 7]))
    assert found(s, INTO_CATS) == 0
    assert applied(s, APART).after == [
        "pw0_cat = cat([x1, x2], dim=1)",
        "amax = amax(x0)",
        "amax_1 = amax(pw0_cat)",
        "return (amax, amax_1)",
    ]


def test_several_spanning_pieces_are_smaller_cats(sketch: Any, applied: Any) -> None:
    s = sketch()
    a, b, c, d = wide(s, 2, 3, 4, 1)
    largest(s, *cut(s, cat(s, a, b, c, d), 5))
    assert found(s, APART) == 0
    assert not INTO_CATS.cleanup
    assert applied(s, INTO_CATS).after == [
        "pw0_cat = cat([x0, x1], dim=1)",
        "pw1_cat = cat([x2, x3], dim=1)",
        "amax = amax(pw0_cat)",
        "amax_1 = amax(pw1_cat)",
        "return (amax, amax_1)",
    ]


def split_along_rows(s: Any) -> list[fx.Node]:
    return cut(s, cat(s, *wide(s, 2, 3)), 2, 0)


def piece_returned(s: Any) -> list[fx.Node]:
    return cut(s, cat(s, *wide(s, 2, 3)), [2, 3])


def strides_seen(s: Any) -> list[fx.Node]:
    parts = cut(s, cat(s, *wide(s, 2, 3)), [2, 3])
    return [s.call(torch.relu, part) for part in parts]


def input_written(s: Any) -> list[fx.Node]:
    a, b = wide(s, 2, 3)
    c = s.call(torch.sin, a)
    parts = cut(s, cat(s, c, b), [2, 3])
    s.call("mul_", c, 2)
    return [s.call(torch.amax, part) for part in parts]


def piece_written(s: Any) -> list[fx.Node]:
    s.call(torch._C._set_grad_enabled, False)
    first, second = cut(s, cat(s, *wide(s, 2, 3)), [2, 3])
    s.call("mul_", first, 2)
    return [s.call(torch.amax, part) for part in (first, second)]


def gradient_of_the_other_input(s: Any) -> list[fx.Node]:
    # The second piece is marked as requiring grad for the first one's sake.
    a, b = s.input(4, 2, requires_grad=True), s.input(4, 3)
    return [s.call(torch.amax, cut(s, cat(s, a, b), [2, 3], taken=(1,))[0])]


@pytest.mark.parametrize(
    "case",
    [
        split_along_rows,
        piece_returned,
        strides_seen,
        input_written,
        piece_written,
        gradient_of_the_other_input,
    ],
)
def test_splits_of_cats_left_alone(sketch: Any, case: Any) -> None:
    s = sketch()
    s.output(*case(s))
    assert found(s, APART, INTO_CATS) == 0


# ---- dialects, symbolic sizes


def several(x: Tensor, y: Tensor, z: Tensor) -> list[Tensor]:
    flat = torch.cat([torch.concat((x, y), dim=-1), z], 1)
    a, b, c = torch.cat([x, y, z], dim=1).split([2, 3, 4], dim=-1)
    d, e = torch.chunk(torch.concatenate([x, y, z], 1), 2, 1)
    return [flat, a.amax(), b.amax(), c.amax(), d.amax(), e.amax()]


@pytest.mark.parametrize("dialect", list(Dialect))
def test_both_dialects(dialect: Dialect) -> None:
    inputs = [torch.randn(4, width, requires_grad=True) for width in (2, 3, 4)]
    result = rewrite(several, inputs, *ALL, dialect=dialect)
    result.check()
    cats = [line for line in result.after if " = cat(" in line or "aten.cat" in line]
    # What is left is the flat one and the first half, which is x and y.
    assert len(cats) == 2
    assert not any("split" in name or "chunk" in name for name in result.calls)


def test_dynamic_batch() -> None:
    inputs = [torch.randn(6, width) for width in (2, 3, 4)]
    for value in inputs:
        torch._dynamo.mark_dynamic(value, 0)
    result = rewrite(several, inputs, *ALL, dynamic=None)
    result.check()
    assert result.count("cat") == 2
    rewrite(several, inputs, *ALL, dynamic=True).check()
