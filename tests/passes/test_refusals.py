"""What the editor refuses: other types, cycles, crossed writes, effects, other gradients."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.sketch import assert_outcome, nested_splits, outcome, snapshot

aten = torch.ops.aten


Change = Callable[[GraphEditor, fx.Node, fx.Node], Any]


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (lambda e, x: e.call(torch.sum, x), "would change"),
        (lambda e, x: e.reshape(x, (4, 3)), "would change"),
        (lambda e, x: e.call("double", x), "would change"),
        (lambda e, x: e.call(torch.max, x, 0), "would change"),
        (lambda e, x: e.call(torch.empty_like, x, device="meta"), "would change"),
        (lambda e, x: e.call("to_sparse", x), "would change"),
    ],
    ids=["rank", "shape", "dtype", "outputs", "device", "layout"],
)
def test_a_value_of_another_type_is_refused(sketch: Any, new: Any, reason: str) -> None:
    s = sketch()
    x = s.input(3, 4)
    a = s.call(torch.sin, x)
    s.output(a)
    editor = GraphEditor(s.view())
    before = snapshot(s.graph)
    with pytest.raises(IllegalRewrite, match=reason), editor.step([a]):
        editor.replace(a, new(editor, x))
    assert snapshot(s.graph) == before


def refused(s: Any, nodes: list[fx.Node], change: Callable[[GraphEditor], Any], match: str) -> None:
    """The step raises IllegalRewrite with this text and leaves no trace."""
    editor = GraphEditor(s.view())
    before = snapshot(s.graph)
    with pytest.raises(IllegalRewrite, match=match), editor.step(nodes):
        change(editor)
    assert snapshot(s.graph) == before


def test_a_cycle_is_refused(sketch: Any) -> None:
    s = sketch()
    x = s.input(3)
    a = s.call(torch.sin, x)
    b = s.call(torch.neg, a)
    c = s.call(torch.neg, b)
    s.output(c)
    refused(s, [a, c], lambda e: e.replace(a, c), "depend on itself")
    refused(s, [a, b], lambda e: e.replace(a, e.call(torch.neg, b)), "depend on itself")


def test_a_batch_of_dependent_members_is_refused(sketch: Any) -> None:
    """Directly dependent, so that the batch itself is an early user; and through another node."""
    for between in ([], [torch.neg], [torch.neg, torch.cos]):
        s = sketch()
        x = s.input(3)
        a = value = s.call(torch.sin, x)
        for target in between:
            value = s.call(target, value)
        b = s.call(torch.sin, value)
        s.output(s.call(torch.exp, b))
        for order in ([a, b], [b, a]):
            refused(s, order, lambda e, o=order: _batched(e, *o), "depend on itself")  # type: ignore[misc]


@pytest.mark.parametrize(
    "between",
    [
        lambda s, x, _y: s.call("add_", x, 1),
        lambda s, x, _y: s.call(F.relu, x, True),
        lambda s, x, _y: s.call(operator.setitem, x, 0, 1.0),
        lambda s, x, _y: s.call("mul_", s.call(operator.getitem, x, 0), 2),
        lambda s, x, y: s.call("copy_", s.call("view", x, -1), s.call("view", y, -1)),
        lambda s, x, y: s.call(torch.exp, y, out=x),
    ],
    ids=["method", "inplace", "setitem", "view", "copy", "out"],
)
def test_members_on_both_sides_of_a_write_are_refused(sketch: Any, between: Any) -> None:
    s = sketch()
    x, y = s.input(2, 3), s.input(2, 3)
    a = s.call(torch.sin, x)
    between(s, x, y)
    b = s.call(torch.sin, x)
    s.output(a, b)

    def change(editor: GraphEditor) -> None:
        wide = editor.call(torch.sin, editor.stack([x, x], 0))
        for old, new in zip((a, b), editor.unbind(wide, 0), strict=True):
            editor.replace(old, new)

    refused(s, [a, b], change, "writes")
    refused(s, [b], lambda e: e.replace(b, a), "written|writes")
    # Nor if the pattern forgets to name a node that it replaces.
    refused(s, [b], change, "writes")


def test_a_write_elsewhere_does_no_harm(sketch: Any) -> None:
    s = sketch()
    x, y = s.input(2, 3), s.input(2, 3)
    a = s.call(torch.sin, x)
    s.call("add_", y, 1)
    b = s.call(torch.sin, x)
    s.output(a, b)
    editor = GraphEditor(s.view())
    with editor.step([a, b]):
        wide = editor.call(torch.sin, editor.stack([x, x], 0))
        for old, new in zip((a, b), editor.unbind(wide, 0), strict=True):
            editor.replace(old, new)
    editor.finish()


def test_sinking_across_a_write_is_refused(sketch: Any) -> None:
    s = sketch()
    x, y, z = s.input(3), s.input(3), s.input(3)
    a = s.call(torch.sin, x)
    s.call(torch.add, a, z)
    s.call("add_", z, 1)
    b = s.call(torch.sin, s.call(torch.cos, y))
    s.output(*(n for n in s.graph.nodes if n.name in ("add", "sin_1")), z)
    refused(s, [a, b], lambda e: _batched(e, a, b), "would cross")


def test_sinking_a_random_or_unknown_op_is_refused(sketch: Any) -> None:
    for target, args in ((F.dropout, (0.5, True)), (print, ())):
        s = sketch()
        x, y = s.input(3), s.input(3)
        a = s.call(torch.sin, x)
        c = s.call(torch.exp, a)
        s.call(target, c, *args)
        b = s.call(torch.sin, s.call(torch.cos, y))
        s.output(c, b)
        refused(s, [a, b], lambda e, a=a, b=b: _batched(e, a, b), "may not")  # type: ignore[misc]


def test_a_write_to_unknown_memory_does_not_sink(sketch: Any) -> None:
    s = sketch()
    x, y, z = s.input(3), s.input(3), s.input(3)
    a = s.call(torch.sin, x)
    del z.meta[s.key]
    written = s.graph.call_method("add_", (z, a))
    s.graph.call_function(torch.neg, (z,))
    b = s.call(torch.sin, s.call(torch.cos, y))
    s.output(b, written)
    refused(s, [a, b], lambda e: _batched(e, a, b), "nobody knows")


@pytest.mark.parametrize(
    ("between", "legal"),
    [
        (lambda _s, _z: None, True),
        (lambda s, _z: s.call(torch.neg, s.input_), True),
        (lambda s, z: s.call(torch.neg, z), False),
        (lambda s, z: s.call("view", z, -1), False),
        (lambda s, z: s.call("mul_", z, 2), False),
        (lambda s, z: s.call(torch.exp, s.input_, out=z), False),
        (lambda s, z: s.call(print, z), False),
    ],
    ids=["nothing", "elsewhere", "read", "view", "write", "out", "unknown"],
)
def test_a_write_sinks_only_past_what_does_not_see_it(
    sketch: Any, between: Any, legal: bool
) -> None:
    s = sketch()
    x, y, z = s.input(3), s.input(3), s.input(3)
    s.input_ = y
    a = s.call(torch.sin, x)
    s.call("add_", z, s.call(torch.exp, a))
    between(s, z)
    b = s.call(torch.sin, s.call(torch.cos, y))
    s.output(b, *(n for n in s.graph.nodes if n.name in ("neg", "view")), z)
    if not legal:
        refused(s, [a, b], lambda e: _batched(e, a, b), "may not|cross|reads before|writes")
        return
    module, inputs = s.module(), [torch.rand(3) for _ in range(3)]
    expected = outcome(module, *inputs)
    by_name = {node.name: node for node in module.graph.nodes}
    editor = GraphEditor(GraphView(module.graph))
    with editor.step([by_name["sin"], by_name["sin_1"]]):
        _batched(editor, by_name["sin"], by_name["sin_1"])
    editor.finish()
    assert_outcome(module, expected, *inputs)


def test_sinking_out_of_a_region_is_refused(sketch: Any) -> None:
    s = sketch()
    x, y = s.input(3), s.input(3)
    a = s.call(torch.sin, x)
    early = s.call(torch.exp, a)
    enter = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, None)
    b = s.call(torch.sin, s.call(torch.cos, y))
    s.call(torch.amp.autocast_mode._exit_autocast, enter)
    s.output(early, b)
    refused(s, [a, b], lambda e: _batched(e, a, b), "region")


def _batched(editor: GraphEditor, *members: fx.Node) -> None:
    wide = editor.call(members[0].target, editor.stack([m.args[0] for m in members], 0))
    for old, new in zip(members, editor.unbind(wide, 0), strict=True):
        editor.replace(old, new)


def test_nodes_of_several_grad_modes_are_refused(sketch: Any) -> None:
    s = sketch()
    x = s.input(3, requires_grad=True)
    a = s.call(torch.sin, x)
    s.call(torch._C._set_grad_enabled, False)
    b = s.call(torch.sin, x)
    s.call(torch._C._set_grad_enabled, True)
    c = s.call(torch.sin, x)
    s.output(a, b, c)
    refused(s, [a, b], lambda e: _batched(e, a, b), "grad mode")
    refused(s, [a, c], lambda e: _batched(e, a, c), "grad mode")
    refused(s, [b], lambda e: e.replace(b, a), "gradient")
    # The step names only one of the nodes that it replaces.
    refused(s, [b], lambda e: e.replace(a, e.call(torch.sin, x)), "grad")


def test_a_value_made_without_gradient_is_not_taken_for_one_with(sketch: Any) -> None:
    s = sketch()
    x = s.input(3, requires_grad=True)
    s.call(torch._C._set_grad_enabled, False)
    b = s.call(torch.neg, s.call(torch.neg, x))
    s.call(torch._C._set_grad_enabled, True)
    c = s.call(torch.mul, b, x)
    s.output(c)
    refused(s, [b], lambda e: e.replace(b, x), "gradient")


def test_a_stale_match_is_refused(sketch: Any) -> None:
    s = sketch()
    x, outer, a, b, inner, c, d = nested_splits(s)
    view = s.view()
    editor = GraphEditor(view)

    def merge() -> None:
        with editor.step([outer, a, b, inner, c, d]):
            for old, new in zip((a, c, d), editor.split(x, [4, 3, 5], 1), strict=True):
                editor.replace(old, new)

    merge()
    after = snapshot(s.graph)
    with pytest.raises(IllegalRewrite, match="no longer"):
        merge()
    sin = next(node for node in view.nodes() if node.name == "sin")
    with pytest.raises(IllegalRewrite, match="no longer"), editor.step([sin]):
        editor.replace(sin, editor.call(torch.sin, a))
    assert [row[:6] for row in snapshot(s.graph)] == [row[:6] for row in after]  # type: ignore[index]
    editor.finish()
    with pytest.raises(IllegalRewrite, match="no longer"):
        merge()
    assert s.graph.lint() is None


def test_an_inserted_effect_is_refused_where_it_would_change_order(sketch: Any) -> None:
    s = sketch()
    x = s.input(3)
    s.call(torch.rand_like, x)
    a = s.call(torch.sin, x)
    s.output(a)
    refused(s, [a], lambda e: e.replace(a, e.call(torch.rand_like, x)), "random|effect")
    refused(s, [a], lambda e: e.call("add_", x, 1), "effect")


def test_a_lost_gradient_is_refused(sketch: Any) -> None:
    s = sketch()
    x = s.input(3, requires_grad=True)
    s.call(torch._C._set_grad_enabled, False)
    b = s.call(torch.sin, x)
    s.call(torch._C._set_grad_enabled, True)
    c = s.call(torch.sin, x)
    s.output(c)
    refused(s, [c], lambda e: e.replace(c, b), "no gradient")
    refused(s, [c], lambda e: e.replace(c, e.call(torch.sin, b)), "no gradient")
