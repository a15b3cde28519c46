"""What a step of the editor undoes, when it fails or is taken back."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.interrupted import InterruptedEditor, Interruption
from passwright.passes.matching import Rewriter
from passwright.passes.random_graphs import random_graph
from passwright.passes.sketch import nested_splits, snapshot
from passwright.passes.table import default_table
from passwright.passes.testing import text

aten = torch.ops.aten


def branches(s: Any) -> list[fx.Node]:
    """Four branches with early users, an in-place op beside them, and a custom meta."""
    x, other = s.input(4, 8), s.input(4)
    chunks = s.call(torch.chunk, x, 4, 1)
    members = []
    for index in range(4):
        piece = s.call(operator.getitem, chunks, index)
        members.append(s.call(torch.sin, piece))
        early = s.call(torch.exp, members[-1])
        s.call(torch.neg, early)
        s.call("add_", other, 1)
    s.output(*members, other, *(n for n in s.graph.nodes if n.name.startswith("neg")))
    for number, node in enumerate(s.graph.nodes):
        node.meta["stack_trace"] = f"line {number}"
    return members


def batch(editor: GraphEditor, members: list[fx.Node]) -> None:
    with editor.step(members, "batch"):
        wide = editor.call(torch.sin, editor.stack([m.args[0] for m in members], 0))
        for old, new in zip(members, editor.unbind(wide, 0), strict=True):
            editor.replace(old, new)


def test_rollback_at_every_point(sketch: Any) -> None:
    s = sketch()
    members = branches(s)
    module = s.module()
    members = [n for n in module.graph.nodes if n.name in {m.name for m in members}]
    view = GraphView(module.graph)
    before, code = snapshot(module.graph), module.code
    addresses = [view.address(node) for node in module.graph.nodes]
    ops = [view.read(node) for node in module.graph.nodes]
    points = 0
    while True:
        points += 1
        editor = InterruptedEditor(view, points)
        try:
            batch(editor, members)
        except Interruption:
            assert snapshot(module.graph) == before, f"after interruption {points}"
            assert [view.address(node) for node in module.graph.nodes] == addresses
            assert [view.read(node) for node in module.graph.nodes] == ops
        else:
            break
    assert points > 25, points
    assert snapshot(module.graph) != before
    editor.rollback()
    assert snapshot(module.graph) == before
    module.recompile()
    assert module.code == code


def test_rollback_to_a_mark_keeps_what_came_before(sketch: Any) -> None:
    s = sketch()
    x, _, a, b, _, c, _ = nested_splits(s)
    editor = GraphEditor(s.view())
    with editor.step([a]):
        editor.replace(a, editor.slice(x, 1, 0, 4))
    between, mark = snapshot(s.graph), editor.mark()
    with editor.step([c]):
        editor.replace(c, editor.slice(b, 1, 0, 3))
    assert snapshot(s.graph) != between
    editor.rollback(mark)
    # Users may come in another order while a plan is under way; all else is as it was.
    assert [row[:6] for row in snapshot(s.graph)] == [row[:6] for row in between]  # type: ignore[index]


def test_a_step_inside_a_failing_step_is_undone_with_it(sketch: Any) -> None:
    s = sketch()
    x = s.input(3)
    a, b = s.call(torch.sin, x), s.call(torch.cos, x)
    s.output(a, b)
    editor = GraphEditor(s.view())
    before = snapshot(s.graph)

    def change() -> None:
        with editor.step([a]):
            editor.replace(a, editor.call(torch.sin, x))
            with editor.step([b]):
                editor.replace(b, editor.call(torch.cos, x))
            raise ValueError("outer")

    with pytest.raises(ValueError, match="outer"):
        change()
    assert snapshot(s.graph) == before


def test_a_call_that_fails_leaves_nothing_even_if_the_pattern_goes_on(sketch: Any) -> None:
    s = sketch()
    x = s.input(3)
    a = s.call(torch.sin, x)
    s.output(a)
    view = s.view()
    editor = GraphEditor(view)
    with editor.step([a]) as record:
        with pytest.raises(IllegalRewrite, match="cannot be computed"):
            editor.call(torch.mm, x, x)
        with pytest.raises(IllegalRewrite, match="cannot be computed"):
            editor.call("view", x, 5)
        new = editor.call(torch.sin, x)
        editor.replace(a, new)
    assert record.inserted == [new]
    editor.finish()
    assert text(s.graph) == ["pw0_sin = sin(x0)", "return (pw0_sin)"]


def test_finish_undoes_everything_where_a_shape_was_foretold_wrong(sketch: Any) -> None:
    s = sketch()
    x = s.input(3, 4)
    a = s.call(torch.sin, x)
    s.output(a)
    view = s.view()
    before = snapshot(s.graph)
    editor = GraphEditor(view)
    for wrong in (
        lambda: editor.call(torch.t, x, spec=view.spec(x).fresh((3, 4))),
        lambda: editor.call(torch.exp, x, spec=view.spec(x).fresh((3, 4), torch.float64)),
    ):
        with editor.step([a]):
            new = wrong()
            editor.replace(
                a,
                editor.reshape(new, (3, 4))
                if view.spec(new).dtype is torch.float32
                else editor.call(torch.exp, new, spec=view.spec(x).fresh((3, 4))),
            )
        with pytest.raises(IllegalRewrite, match="foretold"):
            editor.finish()
        assert snapshot(s.graph) == before


def test_finish_refuses_visible_strides_that_were_foretold_wrong(sketch: Any) -> None:
    s = sketch()
    x = s.input(3, 4)
    a = s.call(torch.sin, x)
    s.output(a)
    view = s.view()
    before = snapshot(s.graph)
    editor = GraphEditor(view)
    with editor.step([a]):
        turned = editor.call(
            torch.clone, editor.permute(x, [1, 0]), spec=view.spec(x).fresh((4, 3))
        )
        editor.replace(a, editor.permute(turned, [1, 0]), where=lambda user: user.op != "output")
        editor.replace(
            a,
            editor.call(
                torch.sin,
                editor.call(torch.t, turned, spec=view.spec(x)),
                spec=view.spec(a).fresh((3, 4)),
            ),
        )
    with pytest.raises(IllegalRewrite, match="foretold"):
        editor.finish()
    assert snapshot(s.graph) == before


@pytest.mark.parametrize("seed", range(6))
def test_addresses_find_what_a_walk_over_the_graph_finds(seed: int) -> None:
    view = GraphView(random_graph(seed).module.graph)
    rewriter = Rewriter(view, default_table())
    seen = {view.address(node) for node in view.nodes()}

    def agrees() -> None:
        nodes = list(view.nodes())
        seen.update(map(view.address, nodes))
        for address in seen:
            walked = next((node for node in nodes if view.address(node) == address), None)
            assert view.at(address) is walked

    done = 0
    for candidate in rewriter.candidates():
        current = rewriter.find(candidate.anchor, candidate.key)
        if current is None:
            continue
        try:
            with rewriter.rehearsal():
                rewriter.apply(current)
                agrees()
            agrees()
            if done % 2 == 0:
                rewriter.apply(current)
        except IllegalRewrite:
            continue
        done += 1
        agrees()
    assert done > 1
    rewriter.editor.finish()
    agrees()
    assert view.at("no such address") is None


def test_a_move_and_its_undoing_leave_nothing_remembered_of_the_order(sketch: Any) -> None:
    s = sketch()
    members = branches(s)
    view = GraphView(s.module().graph)
    members = [n for n in view.graph.nodes if n.name in {m.name for m in members}]
    editor = GraphEditor(view)

    def order() -> list[str]:
        return view.memo("order", lambda: [node.name for node in view.nodes()])

    before = list(order())
    mark = editor.mark()
    editor._move_behind(members[0], members[-1])
    moved = list(order())
    assert moved.index(members[0].name) == moved.index(members[-1].name) + 1
    editor.rollback(mark)
    assert order() == before
