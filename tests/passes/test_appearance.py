"""What the editor keeps for outsiders: strides, shared memory, metas, the dialect."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from passwright.passes.dialect import Dialect
from passwright.passes.editor import GraphEditor
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.sketch import assert_outcome, outcome, snapshot

aten = torch.ops.aten


def refused(s: Any, nodes: list[fx.Node], change: Callable[[GraphEditor], Any], match: str) -> None:
    """The step raises IllegalRewrite with this text and leaves no trace."""
    editor = GraphEditor(s.view())
    before = snapshot(s.graph)
    with pytest.raises(IllegalRewrite, match=match), editor.step(nodes):
        change(editor)
    assert snapshot(s.graph) == before


def finished(s: Any, nodes: str, change: Callable[..., Any]) -> fx.GraphModule:
    """Performs the change on the nodes with these names, and checks that values stay the same."""
    module = s.module()
    shapes = [node.meta["example_value"] for node in module.graph.find_nodes(op="placeholder")]
    torch.manual_seed(0)
    inputs = [torch.empty_strided(v.shape, v.stride()).copy_(torch.rand(v.shape)) for v in shapes]
    expected = outcome(module, *inputs)
    editor = GraphEditor(GraphView(module.graph))
    by_name = {node.name: node for node in module.graph.nodes}
    chosen = [by_name[name] for name in nodes.split()]
    with editor.step(chosen):
        change(editor, *chosen)
    editor.finish()
    assert_outcome(module, expected, *inputs)
    return module


def piece_of_wide(editor: GraphEditor, *members: fx.Node) -> None:
    """Each member (sin of something of shape (2, 3)) becomes a part of one wide tensor."""
    inputs = [member.args[0] for member in members]
    wide = editor.call(torch.sin, editor.cat(inputs, 1))
    for old, new in zip(members, editor.split(wide, [3] * len(members), 1), strict=True):
        editor.replace(old, new)


@pytest.mark.parametrize(
    ("observer", "copies"),
    [
        (lambda _s, a: a, 2),
        (lambda s, a: s.call("view", a, 6), 2),
        (lambda s, a: s.call("view", s.call(torch.exp, a), 6), 2),
        (lambda s, a: s.call(torch.transpose, a, 0, 1), 2),
        (lambda s, a: s.call(torch.as_strided, a, (3,), (2,), 1), 2),
        (lambda s, a: s.call(torch.cat, [a, a], 1), 0),
        (lambda s, a: s.call(torch.mm, a, s.call(torch.t, a)), None),
    ],
    ids=["output", "view", "view-of-exp", "transpose", "as_strided", "cat", "mm"],
)
def test_strides_stay_as_outsiders_see_them(sketch: Any, observer: Any, copies: int | None) -> None:
    s = sketch()
    x, y = s.input(2, 3), s.input(2, 3)
    a, b = s.call(torch.sin, x), s.call(torch.sin, y)
    s.output(observer(s, a), observer(s, b))
    module = finished(s, "sin sin_1", piece_of_wide)
    cloned = [n for n in module.graph.nodes if n.target is torch.clone]
    assert copies is None or len(cloned) == copies


@pytest.mark.parametrize(
    ("view", "copies"),
    [
        (lambda s, a: s.call("view", s.call("view", a, 2, 1, 3), 2, 3, 1), 0),
        (lambda s, a: s.call("view", s.call("permute", a, 1, 0), 3, 1, 2), 0),
        (lambda s, a: s.call("reshape", s.call("view", a, 1, 2, 3), 6), 0),
        (lambda s, a: s.call("view", s.call("view", a, 2, 1, 3), 6), 2),
        (lambda s, a: s.call("view", s.call(torch.exp, s.call("view", a, 1, 2, 3)), 6), 2),
    ],
    ids=["views", "view-of-permute", "reshape-of-view", "too-far", "view-of-exp-of-view"],
)
def test_a_view_that_other_strides_allow_too(sketch: Any, view: Any, copies: int) -> None:
    s = sketch()
    inputs = s.input(2, 3), s.input(2, 3)
    values = [view(s, s.call(torch.sin, x)) for x in inputs]
    s.output(*(s.call(torch.cat, [value]) for value in values))
    module = finished(s, "sin sin_1", piece_of_wide)
    assert len([n for n in module.graph.nodes if n.target is torch.clone]) == copies


def test_a_view_that_is_seen_itself(sketch: Any) -> None:
    s = sketch()
    values = [s.call("view", s.call(torch.sin, s.input(2, 3)), 2, 1, 3) for _ in range(2)]
    s.output(values[0], s.call(torch.cat, [values[1]]))
    module = finished(s, "sin sin_1", piece_of_wide)
    assert len([n for n in module.graph.nodes if n.target is torch.clone]) == 1


def test_strides_that_no_copy_restores_are_refused(sketch: Any) -> None:
    s = sketch()
    x = s.input(3, 2)
    turned = s.call(torch.t, x)
    a = s.call(torch.sin, turned)
    s.output(a)
    assert a.meta["example_value"].stride() == (1, 2)

    def change(editor: GraphEditor) -> None:
        editor.replace(a, editor.call(torch.sin, editor.contiguous_copy(turned)))

    refused(s, [a], change, "visible outside")


def test_layout_is_followed_through_several_steps(sketch: Any) -> None:
    """A step that nobody sees changes strides further down; the next step may not rely on them."""
    s = sketch()
    x, y = s.input(2, 3), s.input(2, 3)
    a, b = s.call(torch.sin, x), s.call(torch.sin, y)
    c, d = s.call(torch.exp, a), s.call(torch.exp, b)
    e = s.call(torch.cat, [s.call(torch.narrow, c, 1, 0, 1), s.call(torch.narrow, c, 1, 1, 2)], 1)
    s.output(e, s.call(torch.cat, [d, d]))
    module = s.module()
    inputs = [torch.rand(2, 3), torch.rand(2, 3)]
    expected = outcome(module, *inputs)
    editor = GraphEditor(GraphView(module.graph))
    nodes = {node.name: node for node in module.graph.nodes}
    with editor.step([nodes["sin"], nodes["sin_1"]]):
        piece_of_wide(editor, nodes["sin"], nodes["sin_1"])
    with editor.step([nodes["cat"]]):
        editor.replace(nodes["cat"], nodes["exp"])
    editor.finish()
    assert_outcome(module, expected, *inputs)


def shares(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def test_outputs_do_not_come_to_share_memory(sketch: Any) -> None:
    s = sketch()
    x = s.input(2, 3)
    a, b = s.call(torch.sin, x), s.call(torch.sin, x)
    c = s.call(torch.clone, x)
    s.output(a, b, c)

    def change(editor: GraphEditor, *nodes: fx.Node) -> None:
        first, second, copy = nodes
        new = editor.call(torch.sin, copy.args[0])
        editor.replace(first, new)
        editor.replace(second, new)
        editor.replace(copy, copy.args[0])

    module = finished(s, "sin sin_1 clone", change)
    given = torch.rand(2, 3)
    first, second, third = module(given)
    assert not shares(first, second)
    assert not shares(third, given)


def test_outputs_that_share_memory_go_on_sharing_it(sketch: Any) -> None:
    s = sketch()
    x = s.input(4, 3)
    piece = s.call(torch.narrow, x, 0, 0, 2)
    y = s.call(torch.sin, x)
    whole, part = s.call(torch.neg, y), None
    part = s.call(operator.getitem, whole, 0)
    s.output(piece, whole, part)
    refused(
        s, [piece], lambda e: e.replace(piece, e.contiguous_copy(e.slice(x, 0, 0, 2))), "shares"
    )
    refused(s, [part], lambda e: e.replace(part, e.call(torch.neg, e.select(y, 0, 0))), "shares")


def test_memory_that_somebody_writes_is_not_shared(sketch: Any) -> None:
    s = sketch()
    x = s.input(2, 3)
    a = s.call(torch.clone, x)
    s.call("add_", a, 1)
    b = s.call(torch.clone, x)
    s.output(a, b)
    refused(s, [a], lambda e: e.replace(a, x), "written")

    s = sketch()
    x = s.input(2, 3)
    y = s.call(torch.sin, x)
    b = s.call(torch.clone, y)
    c = s.call(torch.exp, b)
    s.call("add_", y, 1)
    s.output(c)
    refused(s, [b], lambda e: e.replace(b, y), "written")


def test_as_strided_sees_the_whole_memory(sketch: Any) -> None:
    """A piece with the right strides still lies at another offset."""
    s = sketch()
    x, y = s.input(2, 3), s.input(2, 3)
    a, b = s.call(torch.sin, x), s.call(torch.sin, y)
    s.output(s.call(torch.add, b, s.call(torch.as_strided, b, (2, 3), (3, 1), 0)), a)

    def change(editor: GraphEditor, *members: fx.Node) -> None:
        wide = editor.call(torch.sin, editor.stack([m.args[0] for m in members], 0))
        for old, new in zip(members, editor.unbind(wide, 0), strict=True):
            editor.replace(old, new)

    finished(s, "sin sin_1", change)


def test_several_outputs_at_once_keep_their_appearance(sketch: Any) -> None:
    s = sketch()
    x = s.input(4, 3)
    parts = s.call(torch.split, x, 2, 0)
    s.output(*(s.call("view", s.call(operator.getitem, parts, i), 6) for i in range(2)))

    def turned(editor: GraphEditor) -> None:
        copy = editor.contiguous_copy(editor.permute(x, [1, 0]))
        editor.replace(parts, editor.split(editor.permute(copy, [1, 0]), [2, 2], 0)[0].args[0])

    refused(s, [parts], turned, "visible|shares|outside")


def test_storage_is_followed_from_foretold_to_computed_specs(sketch: Any) -> None:
    """One node's spec is foretold by a builder, the next one's found with fake tensors."""
    s = sketch()
    x = s.input(2, 3)
    a = s.call(torch.sin, x)
    s.output(a)
    view = s.view()
    editor = GraphEditor(view)
    with editor.step([a]):
        foretold = editor.contiguous_copy(x)
        computed = editor.call("t", foretold)
        assert view.storages([computed]) == view.storages([foretold])
        part = editor.call(operator.getitem, editor.call("split", x, 1), 0)
        assert view.storages([part]) == view.storages([x])
        assert view.storages([editor.call(torch.exp, foretold)]) != view.storages([foretold])


def test_the_users_own_nodes_keep_their_metas(sketch: Any) -> None:
    s = sketch()
    x = s.input(2, 3)
    a = s.call(torch.sin, x)
    unknown = s.graph.call_function(torch.exp, (x,))
    s.output(a, unknown)
    editor = GraphEditor(s.view())
    before = snapshot(s.graph)
    with pytest.raises(IllegalRewrite, match="no fake tensor"), editor.step([a]):
        editor.call(torch.neg, unknown)
    assert snapshot(s.graph) == before


def test_dialect_of_what_is_inserted(sketch: Any) -> None:
    s = sketch(Dialect.ATEN)
    x = s.input(4, 6)
    a = s.call(aten.sin.default, x)
    s.output(a)
    editor = GraphEditor(s.view())
    with editor.step([a]):
        parts = editor.split(editor.call(aten.sin.default, x), [2, 4], 1)
        editor.replace(a, editor.cat(parts, 1))
    editor.finish()
    assert [str(n.target) for n in s.graph.nodes if n.op == "call_function"] == [
        "aten.sin.default",
        "aten.split_with_sizes.default",
        "<built-in function getitem>",
        "<built-in function getitem>",
        "aten.cat.default",
    ]
    assert all("val" in node.meta for node in s.graph.nodes if node.op != "output")


def test_pieces_that_do_not_overlap_may_part(sketch: Any) -> None:
    """Two outputs in one memory, but not in the same place of it: nobody can tell."""
    s = sketch()
    x, y = s.input(3, 4), s.input(3, 4)
    a, b = s.call(torch.sin, x), s.call(torch.cos, y)
    both = s.call(torch.unbind, s.call(torch.stack, [a, b]))
    s.output(*(s.call(operator.getitem, both, i) for i in range(2)))

    def change(editor: GraphEditor, first: fx.Node, second: fx.Node) -> None:
        for old, new in ((first, "sin"), (second, "cos")):
            editor.replace(old, next(n for n in editor.view.nodes() if n.name == new))

    module = finished(s, "getitem getitem_1", change)
    assert not [n for n in module.graph.nodes if n.target in (torch.stack, torch.unbind)]
