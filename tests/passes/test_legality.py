"""Side conditions: independence, memory, strides, sizes, each against brute force or an example."""

from __future__ import annotations

import operator
import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.appearance import must_copy
from passwright.passes.errors import IllegalRewrite
from passwright.passes.gradients import gets_gradient
from passwright.passes.graph import GraphView
from passwright.passes.legality import (
    agreement,
    batchable,
    between_writes,
    consecutive,
    escapes,
    independent_groups,
    is_written,
    one_grad_mode,
    only_user,
    parting_write,
    same,
    same_device,
    same_shape,
    same_type,
    static_shape,
    undisturbed,
)
from passwright.passes.ops import Op, Unary
from passwright.passes.spec import Spec, spec_of
from passwright.passes.strides import observes_strides
from passwright.passes.testing import capture


def reachable(start: fx.Node) -> set[fx.Node]:
    """All that depends on a node."""
    found: set[fx.Node] = set()
    pending = list(start.users)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.users
    return found


@pytest.mark.parametrize("seed", range(30))
def test_groups_are_independent_and_as_few_as_can_be(sketch: Any, seed: int) -> None:
    draw = random.Random(seed)
    s = sketch()
    nodes = [s.input(2) for _ in range(2)]
    for _ in range(draw.randrange(3, 40)):
        width = draw.choice((1, 2, len(nodes)))
        nodes.append(s.call(torch.add, *(draw.choice(nodes[-width:]) for _ in range(2))))
    s.output(nodes[-1])
    calls = [node for node in nodes if node.op == "call_function"]
    members = sorted(draw.sample(calls, draw.randrange(1, len(calls) + 1)))
    groups = independent_groups(s.view(), members)
    assert sorted(node for group in groups for node in group) == members
    for group in groups:
        assert group == sorted(group)
        for node in group:
            assert not reachable(node) & set(group)
    # As few groups as the longest chain of members has links: no fewer would do.
    longest: dict[fx.Node, int] = {}
    for node in members:
        above = [longest[other] for other in longest if node in reachable(other)]
        longest[node] = 1 + max(above, default=0)
    assert len(groups) == max(longest.values())


def test_groups_of_none_and_one(sketch: Any) -> None:
    s = sketch()
    node = s.call(torch.sin, s.input(2))
    s.output(node)
    assert independent_groups(s.view(), [node]) == [[node]]
    assert independent_groups(s.view(), []) == [[]]


def unknown(value: torch.Tensor) -> torch.Tensor:
    """A function of nobody's module."""
    return value + 1


STRIDES = {
    "output": (lambda _s, a: a, True),
    "view": (lambda s, a: s.call("view", a, -1), True),
    "is_contiguous": (lambda s, a: s.call("is_contiguous", a), True),
    "stride": (lambda s, a: s.call("stride", a), True),
    "as_strided": (lambda s, a: s.call(torch.as_strided, a, (2,), (1,)), True),
    "unsafe view": (lambda s, a: s.call(torch.ops.aten._unsafe_view.default, a, [12]), True),
    "view of type": (lambda s, a: s.call("view", a, torch.int32), True),
    "complex": (lambda s, a: s.call(torch.view_as_complex, s.call("view", a, 3, 2, 2)), True),
    "pointwise": (lambda s, a: s.call(torch.exp, a), True),
    "pointwise, view": (lambda s, a: s.call("view", s.call(torch.exp, a), -1), True),
    "unknown": (lambda s, a: s.call(unknown, a), True),
    "piece": (lambda s, a: s.call(operator.getitem, s.call(torch.split, a, 2, 1), 0), True),
    "transposed": (lambda s, a: s.call("t", a), True),
    "cat": (lambda s, a: s.call(torch.cat, [a, a]), False),
    "stack": (lambda s, a: s.call(torch.stack, [a, a]), False),
    "linear": (lambda s, a: s.call(F.linear, a, s.input(5, 4)), False),
    "norm": (lambda s, a: s.call(F.layer_norm, a, [4]), False),
    "cat of views": (
        lambda s, a: s.call(torch.cat, [s.call("t", s.call(torch.exp, a))] * 2),
        False,
    ),
}


@pytest.mark.parametrize("name", STRIDES)
def test_who_observes_strides(sketch: Any, name: str) -> None:
    use, expected = STRIDES[name]
    s = sketch()
    a = s.call(torch.sin, s.input(3, 4))
    s.output(use(s, a))
    assert observes_strides(s.view(), a) is expected


ESCAPES = {
    "output": (lambda _s, a: a, True),
    "view": (lambda s, a: s.call("view", a, -1), True),
    "piece": (lambda s, a: s.call(operator.getitem, s.call(torch.split, a, 2, 1), 0), True),
    "view of a view": (lambda s, a: s.call("t", s.call(torch.narrow, a, 0, 0, 2)), True),
    "unknown": (lambda s, a: s.call(unknown, a), True),
    "in place": (lambda s, a: s.call("add_", a, 1), True),
    "copy": (lambda s, a: s.call(torch.clone, a), False),
    "pointwise": (lambda s, a: s.call(torch.exp, s.call("view", a, -1)), False),
    "contiguous": (lambda s, a: s.call("contiguous", a), True),
    "contiguous copy": (lambda s, a: s.call("contiguous", s.call("t", a)), False),
    "reshape copy": (lambda s, a: s.call("reshape", s.call("t", a), -1), False),
}


@pytest.mark.parametrize("name", ESCAPES)
def test_whose_memory_escapes(sketch: Any, name: str) -> None:
    use, expected = ESCAPES[name]
    s = sketch()
    a = s.call(torch.sin, s.input(3, 4))
    s.output(use(s, a))
    assert escapes(s.view(), a) is expected


def test_writes(sketch: Any) -> None:
    s = sketch()
    x, y = s.input(3, 4), s.input(3, 4)
    view_of_x = s.call("view", x, -1)
    a = s.call(torch.sin, x)
    write = s.call("add_", view_of_x, 1)
    b, c = s.call(torch.sin, x), s.call(torch.sin, y)
    written = s.call("mul_", c, 2)
    s.output(a, b, c)
    view = s.view()
    assert is_written(view, x)
    assert is_written(view, view_of_x)
    assert is_written(view, y, x)
    assert not is_written(view, y)
    assert not is_written(view, a, b)
    assert not is_written(view, x, besides=write)
    assert is_written(view, c)
    assert batchable(view, a)
    assert not batchable(view, c)
    assert not batchable(view, written)
    assert between_writes(view, [a, b]) == [[a], [b]]
    assert between_writes(view, [b, c]) == [[b], [c]] or between_writes(view, [b, c]) == [[b, c]]
    assert parting_write(view, [a, b]) is write
    assert parting_write(view, [b, c]) is None
    assert parting_write(view, [a, c]) is None
    assert undisturbed(view, a, view_of_x)
    assert not undisturbed(view, a, b)


def test_a_result_that_no_gradient_reaches(sketch: Any) -> None:
    """amax saves its result. Written over, it is an error only if somebody wants the gradient."""
    s = sketch()
    x, y = s.input(4, 8, requires_grad=True), s.input(4, 8, requires_grad=True)
    first, second = (s.call(torch.amax, s.call(torch.mul, v, 2.0), 0) for v in (x, y))
    kept_first = s.call(torch.relu, first)
    s.call("add_", second, 0.5)
    kept, lost = s.call(torch.relu, first), s.call(torch.relu, second)
    s.call(torch.exp, lost)
    s.output(kept, kept_first, s.call("detach", lost))
    view = s.view()
    assert gets_gradient(view, kept)
    assert not gets_gradient(view, lost)
    assert between_writes(view, [kept, lost]) == [[kept], [lost]]
    assert between_writes(view, [kept_first, kept]) == [[kept_first, kept]]


def test_members_that_agree(sketch: Any) -> None:
    s = sketch()
    x, y, w = s.input(3, 4), s.input(3, 4), s.input(3, 4, requires_grad=True)
    double, wide = s.input(3, 4, dtype=torch.float64), s.input(3, 5)
    members = [s.call(torch.sin, v) for v in (x, y, double, wide, w)]
    s.call("add_", x, 1)
    members.append(s.call(torch.sin, x))
    enter = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, None)
    members.append(s.call(torch.sin, y))
    s.call(torch.amp.autocast_mode._exit_autocast, enter)
    s.call(torch._C._set_grad_enabled, False)
    members.append(s.call(torch.sin, y))
    s.output(*members)
    view = s.view()
    keys = [agreement(view, op, op.input) for op in view.ops(Unary)]
    assert len(keys) == len(members)
    assert keys[0] == keys[1]
    assert len(set(keys)) == len(keys) - 2
    # What a write parts has one key; the groups are parted afterwards.
    assert keys[0] == keys[5]
    assert between_writes(view, [members[0], members[1], members[5]])[-1] == [members[5]]
    assert one_grad_mode(view, *members[:7])
    assert not one_grad_mode(view, members[0], members[-1])


def test_only_user(sketch: Any) -> None:
    s = sketch()
    x = s.input(3)
    a = s.call(torch.sin, x)
    b = s.call(torch.add, a, a)
    c = s.call(torch.exp, b)
    s.output(c, b)
    view = s.view()
    assert only_user(view, a, b)
    assert not only_user(view, b, c)
    assert not only_user(view, x, b)


def test_consecutive() -> None:
    assert consecutive([])
    assert consecutive([4])
    assert consecutive([4, 5, 6])
    assert not consecutive([4, 6])
    assert not consecutive([5, 4])
    assert not consecutive([4, 4])


def test_types_and_devices() -> None:
    def of(*shape: int, **kwargs: Any) -> Any:
        return spec_of(torch.empty(shape, **kwargs))

    assert same_type(of(2, 3), of(2, 3))
    assert same_type(of(2, 3), spec_of(torch.empty(3, 2).t()))
    assert not same_type(of(2, 3), of(3, 2))
    assert not same_type(of(2, 3), of(2, 3, 1))
    assert not same_type(of(2), of(2, dtype=torch.float64))
    assert not same_type(of(2), of(2, device="meta"))
    assert not same_type(of(2), None)
    assert same_type(None, None)
    assert same_type((of(2), of(3)), (of(2), of(3)))
    assert not same_type((of(2), of(3)), (of(2),))
    assert not same_type((of(2), of(3)), of(2))
    assert same_device(torch.device("cuda"), torch.device("cuda:1"))
    assert not same_device(torch.device("cuda:0"), torch.device("cuda:1"))
    assert not same_device(torch.device("cpu"), torch.device("cuda:0"))


def test_symbolic_sizes_equal_only_themselves() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sin(), y.sin(), x.cos(), (x[0] + 1).sin()

    module, _ = capture(fn, [torch.ones(5, 4), torch.ones(7, 4)], dynamic=True)
    view = GraphView(module.graph)
    fake = next(n for n in module.graph.nodes if n.op == "call_method").meta["example_value"]
    guards = len(fake.fake_mode.shape_env.guards)
    first, second, third, row = (view.spec(n) for n in module.graph.output_node().args[0])
    assert same_shape(first.shape, third.shape)
    assert not same_shape(first.shape, second.shape)
    assert not same(first.shape[0], 5)
    assert same(4, 4)
    assert not same(4, 5)
    assert same_type(first, third)
    assert not same_type(first, second)
    assert static_shape(view, module.graph.output_node()) is None
    assert first.key() == third.key()
    assert first.key() != second.key()
    assert first.is_contiguous
    assert row.ndim == 1
    assert len(fake.fake_mode.shape_env.guards) == guards


def test_strides_of_dims_that_do_not_matter() -> None:
    def of(shape: tuple[int, ...], stride: tuple[int, ...]) -> Spec:
        found = spec_of(torch.empty_strided(shape, stride))
        assert isinstance(found, Spec)
        return found

    assert of((1, 4), (4, 1)).same_strides(of((1, 4), (99, 1)))
    assert of((0, 4), (4, 1)).same_strides(of((0, 4), (1, 7)))
    assert not of((2, 4), (4, 1)).same_strides(of((2, 4), (1, 2)))
    assert of((1, 4), (99, 1)).is_contiguous
    assert not of((2, 4), (1, 2)).is_contiguous


def test_what_only_a_copy_hides(sketch: Any) -> None:
    """Sharing and strides, asked about values that stand in the graph already."""
    s = sketch()
    x = s.input(3, 4)
    a, b = s.call(torch.sin, x), s.call(torch.sin, x)
    turned = s.call("t", s.call("contiguous", s.call("t", b)))
    inner = s.call(torch.exp, b)
    part = s.call(torch.narrow, x, 0, 0, 2)
    again = s.call(torch.narrow, x, 0, 0, 2)
    fresh = s.call(torch.clone, part)
    s.output(a, s.call(torch.cat, [inner, b, turned]), part)
    view = s.view()

    def copies(old: fx.Node, new: fx.Node, *inserted: fx.Node) -> bool:
        return must_copy(view, old, new, inserted=inserted)

    assert copies(a, b), "two outputs would be one"
    assert not copies(a, b, b), "made for this place alone"
    assert copies(a, turned), "other strides"
    assert not copies(b, turned), "a cat sees no strides"
    assert not copies(part, again), "the same memory"
    with pytest.raises(IllegalRewrite, match="shares memory"):
        copies(part, fresh, fresh)


def test_ops_are_values(sketch: Any) -> None:
    s = sketch()
    a = s.call(torch.sin, s.input(3))
    s.output(a)
    view = s.view()
    assert view.read(a) is view.read(a)
    assert view.read(a) == Unary(a, "sin", a.args[0], ())
    assert isinstance(view.read(a), Op)
