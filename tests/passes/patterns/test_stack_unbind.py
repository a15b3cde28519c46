"""Stacks and cats of parts of one tensor, and the way back."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from passwright.passes.dialect import Dialect
from passwright.passes.errors import IllegalRewrite
from passwright.passes.patterns.stack_unbind import (
    CatOfUnbind,
    StackOfPieces,
    StackOfUnbind,
    UnbindOfStack,
)

SLICES, PIECES, UNBIND, CAT = StackOfUnbind(), StackOfPieces(), UnbindOfStack(), CatOfUnbind()
ALL = (SLICES, PIECES, UNBIND, CAT)
aten = torch.ops.aten


def pieces_of(s: Any, node: fx.Node, which: slice = slice(None)) -> list[fx.Node]:
    indices = range(len(node.meta["example_value"]))[which]
    return [s.call(operator.getitem, node, i) for i in indices]


def unbound(s: Any, x: fx.Node, dim: int, which: slice = slice(None)) -> list[fx.Node]:
    return pieces_of(s, s.call(torch.unbind, x, dim), which)


def cut(s: Any, x: fx.Node, width: int, dim: int, which: slice = slice(None)) -> list[fx.Node]:
    return pieces_of(s, s.call(torch.split, x, width, dim), which)


def hidden(s: Any, *values: fx.Node) -> None:
    """Outputs behind an op with a layout of its own: nobody sees the strides of the values."""
    s.output(*(s.call(torch.cat, [value, value]) for value in values))


def found(s: Any, pattern: Any) -> int:
    """Number of matches in the sketched graph."""
    view = s.view()
    anchors = [view.read(node) for node in view.nodes()]
    return sum(len(list(pattern.matches(view, a))) for a in anchors if type(a) in pattern.anchors)


# ---- before and after


def test_stack_of_all_slices_is_a_permute(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(3, 4, 2, requires_grad=True)
    hidden(s, s.call(torch.stack, unbound(s, x, 1), dim=0))
    assert applied(s, SLICES).after == [
        "pw0_permute = permute(x0, [1, 0, 2])",
        "cat = cat([pw0_permute, pw0_permute])",
        "return (cat)",
    ]


def test_stack_along_the_unbound_dim_is_the_tensor(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(3, 4, 2, requires_grad=True)
    hidden(s, s.call(torch.stack, unbound(s, x, -2), dim=1))
    assert applied(s, SLICES).after == ["cat = cat([x0, x0])", "return (cat)"]


def test_run_of_slices_is_a_slice_and_others_keep_theirs(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(6, 2, requires_grad=True)
    first, *others = unbound(s, x, 0, slice(1, 5))
    hidden(s, s.call(torch.stack, others), s.call(torch.sin, first))
    assert applied(s, SLICES).after == [
        "pw0_narrow = narrow(x0, 0, 2, 3)",
        "unbind = unbind(x0, 0)",
        "getitem = getitem(unbind, 1)",
        "sin = sin(getitem)",
        "cat = cat([pw0_narrow, pw0_narrow])",
        "cat_1 = cat([sin, sin])",
        "return (cat, cat_1)",
    ]


def test_stack_of_pieces_is_a_reshape_and_a_permute(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(3, 8, requires_grad=True)
    hidden(s, s.call(torch.stack, cut(s, x, 2, 1), dim=0), s.call(torch.stack, cut(s, x, 4, 1), 2))
    assert applied(s, PIECES).after == [
        "pw0_reshape = reshape(x0, [3, 2, 4])",
        "pw1_permute = permute(pw0_reshape, [0, 2, 1])",
        "pw2_reshape = reshape(x0, [3, 4, 2])",
        "pw3_permute = permute(pw2_reshape, [1, 0, 2])",
        "cat = cat([pw3_permute, pw3_permute])",
        "cat_1 = cat([pw1_permute, pw1_permute])",
        "return (cat, cat_1)",
    ]


def test_run_of_pieces(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(3, 9, requires_grad=True)  # an uneven last piece
    hidden(s, s.call(torch.stack, cut(s, x, 2, 1, slice(1, 4)), dim=1))
    assert applied(s, PIECES).after == [
        "pw0_narrow = narrow(x0, 1, 2, 6)",
        "pw1_reshape = reshape(pw0_narrow, [3, 3, 2])",
        "cat = cat([pw1_reshape, pw1_reshape])",
        "return (cat)",
    ]


def test_slices_of_a_stack_are_what_was_stacked(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.input(3, 2, requires_grad=True), s.input(3, 2, requires_grad=True)
    stack = s.call(torch.stack, [s.call(torch.sin, x), s.call(torch.cos, y)], dim=1)
    hidden(s, *unbound(s, stack, 1), s.call(torch.select, stack, 1, 0))
    result = applied(s, UNBIND)
    assert result.calls == ["sin", "cos", "cat", "cat", "cat"]
    assert len(result.labels) == 1  # clean-up near the first step finds the select


def test_other_users_keep_the_stack(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.input(3, 2), s.input(3, 2)
    stack = s.call(torch.stack, [x, y])
    hidden(s, stack, *unbound(s, stack, 0))
    assert applied(s, UNBIND).calls == ["stack", "cat", "cat", "cat"]


def test_cat_of_all_slices_is_one_reshape(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(3, 4, 2, requires_grad=True)
    slices = unbound(s, x, 0)
    s.output(s.call(torch.cat, slices, 1), s.call(torch.cat, slices, 0))
    result = applied(s, CAT)
    assert sorted(result.calls) == ["clone", "permute", "reshape", "reshape"]


def test_cat_of_pieces_along_another_dim(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(3, 8, requires_grad=True)
    s.output(s.call(torch.cat, cut(s, x, 2, 1), 0))
    assert applied(s, CAT).after == [
        "pw0_reshape = reshape(x0, [3, 4, 2])",
        "pw1_permute = permute(pw0_reshape, [1, 0, 2])",
        "pw2_reshape = reshape(pw1_permute, [12, 2])",
        "return (pw2_reshape)",
    ]


def test_within_a_longer_cat_only_what_needs_no_copy(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.input(3, 4, 2, requires_grad=True), s.input(3, 5)
    s.output(s.call(torch.cat, [y, *unbound(s, x, 1), y], 1))
    assert applied(s, CAT).after == [
        "pw0_reshape = reshape(x0, [3, 8])",
        "pw1_cat = cat([x1, pw0_reshape, x1], dim=1)",
        "return (pw1_cat)",
    ]
    s = sketch()
    x, y = s.input(4, 3, 2, requires_grad=True), s.input(3, 5)
    s.output(s.call(torch.cat, [y, *unbound(s, x, 0)], 1))
    assert found(s, CAT) == 0


def test_an_output_stays_a_tensor_of_its_own(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(3, 4, requires_grad=True)
    s.output(s.call(torch.stack, unbound(s, x, 0)), s.call(torch.stack, unbound(s, x, 1)))
    result = applied(s, SLICES)
    assert sorted(result.calls) == ["clone", "clone", "permute"]
    first, second = result.module(*result.inputs)
    assert first.data_ptr() != result.inputs[0].data_ptr()
    assert second.is_contiguous()


def test_a_cat_of_rank_4_hands_channels_last_on(sketch: Any, applied: Any) -> None:
    """The permuted tensor looks like an image, channels last, and so would a cat of it."""
    s = sketch()
    x = s.input(2, 5, 6, 3, requires_grad=True)
    stack = s.call(torch.stack, unbound(s, x, 3), 1)
    s.output(s.call("view", s.call(torch.cat, [stack, stack]), 4, 90))
    assert applied(s, SLICES).calls == ["permute", "clone", "cat", ".view"]


@pytest.mark.parametrize("how", ["written", "returned"])
def test_a_reshape_that_copied_does_not_come_to_share_memory(
    sketch: Any, applied: Any, how: str
) -> None:
    """Below the stack, x is turned back: without the stack the reshape would be a view of y."""
    s = sketch()
    y = s.call(torch.sin, s.input(3, 4))
    stack = s.call(torch.stack, unbound(s, y, 1), 0)
    flat = s.call("reshape", s.call("t", stack), 12)
    if how == "written":
        s.call("mul_", flat, 2)
        hidden(s, y, flat)
    else:
        s.output(y, flat)
    with pytest.raises(IllegalRewrite, match="come to share"):
        applied(s, SLICES)


def test_aten(sketch: Any, applied: Any) -> None:
    s = sketch(Dialect.ATEN)
    x, y = s.input(3, 8, 2, requires_grad=True), s.input(3, 2)
    node = s.call(aten.unbind.int, x, 1)
    slices = [s.call(operator.getitem, node, i) for i in range(8)]
    flat = s.call(aten.cat.default, [s.call(aten.unsqueeze.default, p, 0) for p in slices])
    node = s.call(aten.split_with_sizes.default, x, [4, 4], 1)
    pieces = [s.call(operator.getitem, node, i) for i in range(2)]
    stacked = s.call(aten.cat.default, [s.call(aten.unsqueeze.default, p, 2) for p in pieces], 2)
    pair = s.call(aten.cat.default, [s.call(aten.unsqueeze.default, p, 0) for p in (y, y)])
    again = s.call(aten.unbind.int, pair)
    values = [flat, stacked, s.call(operator.getitem, again, 1)]
    values.append(s.call(aten.cat.default, slices, -1))
    s.output(*(s.call(aten.cat.default, [value, value]) for value in values))
    result = applied(s, *ALL)
    assert not {"aten.unbind.int", "aten.split_with_sizes.default", "aten.unsqueeze.default"} & set(
        result.calls
    )
    assert result.count("aten.cat.default") == 4
    assert len(result.labels) == 4


# ---- what must be left alone


def reversed_order(s: Any, x: fx.Node) -> fx.Node:
    return s.call(torch.stack, unbound(s, x, 0)[::-1])


def one_twice(s: Any, x: fx.Node) -> fx.Node:
    slices = unbound(s, x, 0)
    return s.call(torch.stack, [*slices, slices[-1]])


def one_left_out(s: Any, x: fx.Node) -> fx.Node:
    slices = unbound(s, x, 0)
    return s.call(torch.stack, [*slices[:2], *slices[3:]])


def one_of_another(s: Any, x: fx.Node) -> fx.Node:
    return s.call(torch.stack, [*unbound(s, x, 0)[:3], *unbound(s, s.call(torch.sin, x), 0)[3:]])


def one_through_an_op(s: Any, x: fx.Node) -> fx.Node:
    first, *others = unbound(s, x, 0)
    return s.call(torch.stack, [s.call(torch.neg, first), *others])


def along_two_dims(s: Any, x: fx.Node) -> fx.Node:
    return s.call(torch.stack, [*unbound(s, x, 0)[:2], unbound(s, x, 1)[2]])


def unequal_pieces(s: Any, x: fx.Node) -> fx.Node:
    node = s.call(torch.split, x, [1, 1, 2], 0)
    pieces = [s.call(operator.getitem, node, i) for i in range(3)]
    return s.call(torch.stack, [pieces[0], pieces[1], s.call(torch.narrow, x, 0, 3, 1)])


def a_small_share(s: Any, x: fx.Node) -> fx.Node:
    wide = s.call(torch.cat, [x, x, x])
    return s.call(torch.stack, unbound(s, wide, 0)[2:4])


def written_between(s: Any, x: fx.Node) -> fx.Node:
    value = s.call(torch.sin, x)
    slices = [s.call(torch.select, value, 0, i) for i in range(4)]
    s.call("mul_", value, 2)
    return s.call(torch.stack, slices)


def written_later(s: Any, x: fx.Node) -> fx.Node:
    value = s.call(torch.sin, x)
    stack = s.call(torch.stack, unbound(s, value, 0))
    s.call("mul_", value, 2)
    return stack


def result_written(s: Any, x: fx.Node) -> fx.Node:
    stack = s.call(torch.stack, unbound(s, x, 0))
    s.call("mul_", stack, 2)
    return stack


def without_gradient(s: Any, x: fx.Node) -> fx.Node:
    slices = unbound(s, x, 0)
    s.call(torch._C._set_grad_enabled, False)
    stack = s.call(torch.stack, slices)
    s.call(torch._C._set_grad_enabled, True)
    return stack


@pytest.mark.parametrize(
    "case",
    [
        *(reversed_order, one_twice, one_left_out, one_of_another, one_through_an_op),
        *(along_two_dims, unequal_pieces, a_small_share, written_between, written_later),
        *(result_written, without_gradient),
    ],
)
def test_stacks_left_alone(sketch: Any, applied: Any, case: Callable[..., fx.Node]) -> None:
    s = sketch()
    hidden(s, case(s, s.input(4, 4, requires_grad=True)))
    assert applied(s, SLICES, PIECES).labels == []


def test_a_stack_that_many_would_copy_is_left_alone(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, w = s.input(3, 4, 2), s.input(5, 2)
    stack = s.call(torch.stack, unbound(s, x, 1), 0)
    hidden(s, *(s.call(torch.nn.functional.linear, stack, w) for _ in range(2)))
    assert applied(s, SLICES).labels == []


def test_unbinds_left_alone(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.input(2, 2, requires_grad=True), s.input(2, 2, requires_grad=True)
    other_dim = unbound(s, s.call(torch.stack, [x, y], 1), 0)
    returned = unbound(s, s.call(torch.stack, [x, y], 0), 0)
    value = s.call(torch.sin, x)
    early = unbound(s, s.call(torch.stack, [value, y], 0), 0)
    s.call("mul_", value, 2)
    s.call(torch._C._set_grad_enabled, False)
    blind = s.call(torch.stack, [x, y], 0)
    s.call(torch._C._set_grad_enabled, True)
    blind_slices = unbound(s, blind, 0)
    barred = [s.call(torch.cat, [v, v]) for v in (*other_dim, *early, *blind_slices)]
    s.output(*returned, *barred)
    assert applied(s, UNBIND).labels == []


def test_cats_left_alone(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(4, 4, 2, requires_grad=True)
    slices = unbound(s, x, 0)
    y, z = s.call(torch.sin, x), s.call(torch.cos, x)
    cats = [
        s.call(torch.cat, slices[::-1], 1),
        # Two runs, each of which would be copied before the cat copies both.
        s.call(torch.cat, [*unbound(s, y, 0), *unbound(s, z, 0)], 1),
        # Consecutive pieces along the cat's own dim are another pattern's.
        s.call(torch.cat, cut(s, x, 1, 2), 2),
    ]
    value = s.call(torch.sin, x)
    late = [s.call(torch.select, value, 0, i) for i in range(4)]
    s.call("mul_", value, 2)
    s.output(*cats, s.call(torch.cat, late, 1))
    assert applied(s, CAT).labels == []


def test_a_value_without_gradient_stays_so(sketch: Any, applied: Any) -> None:
    """No view of `x` must stand for a stack made where no gradient was recorded."""
    s = sketch()
    x = s.input(3, 4, requires_grad=True)
    s.call(torch._C._set_grad_enabled, False)
    stack, turned = (s.call(torch.stack, unbound(s, x, 0), dim) for dim in (0, 1))
    s.call(torch._C._set_grad_enabled, True)
    hidden(s, s.call(torch.mul, stack, x), s.call(torch.matmul, x, turned))
    assert applied(s, SLICES).labels == []
