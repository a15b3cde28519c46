"""What a step of the editor does to a graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from passwright.passes.editor import GraphEditor
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.patterns.splits import MergeNestedSplits
from passwright.passes.sketch import assert_outcome, nested_splits, outcome
from passwright.passes.testing import rewrite_graph, text

aten = torch.ops.aten


def test_a_step_in_text(sketch: Any) -> None:
    s = sketch()
    nested_splits(s)
    result = rewrite_graph(s.module(), [torch.rand(2, 12)], MergeNestedSplits())
    assert result.before == [
        "split = split(x0, [4, 8], 1)",
        "getitem = getitem(split, 0)",
        "getitem_1 = getitem(split, 1)",
        "split_1 = split(getitem_1, [3, 5], 1)",
        "getitem_2 = getitem(split_1, 0)",
        "getitem_3 = getitem(split_1, 1)",
        "sin = sin(getitem)",
        "sin_1 = sin(getitem_2)",
        "sin_2 = sin(getitem_3)",
        "return (sin, sin_1, sin_2)",
    ]
    assert result.after == [
        "pw0_split = split(x0, [4, 3, 5], dim=1)",
        "pw1_getitem = getitem(pw0_split, 0)",
        "pw2_getitem = getitem(pw0_split, 1)",
        "pw3_getitem = getitem(pw0_split, 2)",
        "sin = sin(pw1_getitem)",
        "sin_1 = sin(pw2_getitem)",
        "sin_2 = sin(pw3_getitem)",
        "return (sin, sin_1, sin_2)",
    ]
    result.check()


def test_the_record_tells_what_was_inserted_removed_and_replaced(sketch: Any) -> None:
    s = sketch()
    _, outer, a, b, inner, c, d = nested_splits(s)
    view = s.view()
    editor = GraphEditor(view)
    addresses = [view.address(node) for node in (a, c, d)]
    with editor.step([outer, a, b, inner, c, d], "merge") as record:
        pieces = editor.split(view.read(outer).input, [4, 3, 5], 1)
        for old, new in zip((a, c, d), pieces, strict=True):
            editor.replace(old, new)
    assert set(record.removed) == {outer, a, b, inner, c, d}
    assert record.inserted == [pieces[0].args[0], *pieces]
    assert record.replaced == list(zip((a, c, d), pieces, strict=True))
    assert [view.address(piece) for piece in pieces] == addresses
    minus, plus = record.diff()[:6], record.diff()[6:]
    assert all(line.startswith("- %") for line in minus)
    assert [line.split(" : ")[0] for line in plus] == ["+ %split_2", "+ %getitem_4", "+ %getitem_5",
                                                      "+ %getitem_6"]  # fmt: skip
    # Until `finish` the dead lie in the graph without arguments; afterwards they are gone.
    assert all(view.is_buried(node) and not node.args for node in record.removed)
    editor.finish()
    assert not {outer, a, b, inner, c, d} & set(view.graph.nodes)
    assert all("example_value" in node.meta for node in view.nodes() if node.op != "output")


def test_a_call_stands_as_early_as_it_may(sketch: Any) -> None:
    s = sketch()
    x, y = s.input(4), s.input(4)
    a = s.call(torch.sin, x)
    b = s.call(torch.cos, y)
    c = s.call(torch.add, a, b)
    s.output(c)
    editor = GraphEditor(s.view())
    with editor.step([c]):
        early = editor.call(torch.exp, x)
        middle = editor.call(torch.mul, a, early)
        editor.replace(c, editor.call(torch.add, middle, b))
    assert [node.name for node in s.graph.nodes] == [
        "x0", "x1", "exp", "sin", "mul", "cos", "add_1", "add", "output",
    ]  # fmt: skip


def test_a_call_stays_in_its_region(sketch: Any) -> None:
    s = sketch()
    x = s.input(4, 4)
    enter = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, None)
    a = s.call(torch.mm, x, x)
    s.call(torch.amp.autocast_mode._exit_autocast, enter)
    s.output(a)
    view = s.view()
    editor = GraphEditor(view)
    with editor.step([a]):
        new = editor.linear(x, editor.call(torch.t, x), None)
        # The builder cannot know of the autocast; the fake tensor does.
        assert view.spec(new).dtype is torch.bfloat16
        editor.replace(a, new)
    assert enter < new < a
    assert view.region(new) == view.region(a)
    editor.finish()


def test_early_users_sink(sketch: Any) -> None:
    s = sketch()
    x, y = s.input(2, 4), s.input(2, 4)
    a = s.call(torch.sin, x)
    user = s.call(torch.exp, a)
    further = s.call(torch.neg, user)
    b = s.call(torch.sin, s.call(torch.cos, y))
    s.output(further, b)
    module, inputs = s.module(), [torch.rand(2, 4), torch.rand(2, 4)]
    expected = outcome(module, *inputs)
    editor = GraphEditor(GraphView(module.graph))
    a, user, further, b = (
        n for n in module.graph.nodes if n.name in ("sin", "exp", "neg", "sin_1")
    )
    with editor.step([a, b]):
        both = editor.call(torch.sin, editor.stack([a.args[0], b.args[0]], 0))
        for old, new in zip((a, b), editor.unbind(both, 0), strict=True):
            editor.replace(old, new)
    assert both < user < further
    editor.finish()
    assert_outcome(module, expected, *inputs)


def test_early_users_of_an_existing_value_sink_too(sketch: Any) -> None:
    s = sketch()
    x = s.input(3)
    first = s.call(torch.sin, x)
    user = s.call(torch.exp, first)
    second = s.call(torch.sin, x)
    s.output(user, s.call(torch.neg, second))
    module, inputs = s.module(), [torch.rand(3)]
    expected = outcome(module, *inputs)
    editor = GraphEditor(GraphView(module.graph))
    first, user, second = (n for n in module.graph.nodes if n.name in ("sin", "exp", "sin_1"))
    with editor.step([first, second]):
        editor.replace(first, second)
    assert second < user
    editor.finish()
    assert_outcome(module, expected, *inputs)


def test_replace_for_some_users_only(sketch: Any) -> None:
    s = sketch()
    x = s.input(3)
    a = s.call(torch.sin, x)
    first, second = s.call(torch.exp, a), s.call(torch.neg, a)
    s.output(first, second)
    view = s.view()
    editor = GraphEditor(view)
    with editor.step([a]) as record:
        new = editor.call(torch.sin, x)
        editor.replace(a, new, where=lambda user: user is first)
    assert (first.args, second.args) == ((new,), (a,))
    assert a not in record.removed
    living = [view.address(node) for node in view.nodes()]
    assert len(set(living)) == len(living), "two living values with one address"


def test_remove_takes_out_an_effect_that_was_replaced(sketch: Any) -> None:
    s = sketch()
    x = s.input(3)
    a = s.call(torch.sin, x)
    b = s.call(F.relu, a, True)
    s.output(b)
    editor = GraphEditor(s.view())
    with pytest.raises(IllegalRewrite, match="still has users"), editor.step([b]):
        editor.remove(b)
    with editor.step([b]) as record:
        editor.replace(b, editor.call(F.relu, a), undoing=b)
        editor.remove(b)
    assert b in record.removed
    editor.finish()
    assert text(s.graph) == [
        "sin = sin(x0)",
        "pw0_relu = relu(sin)",
        "return (pw0_relu)",
    ]


def test_names_depend_on_the_result_alone(sketch: Any) -> None:
    """Also after rehearsals, which use names up."""

    def build(rehearsals: int) -> list[str]:
        s = sketch()
        x = s.input(3)
        a = s.call(torch.sin, x)
        s.output(a)
        editor = GraphEditor(s.view())
        for _ in range(rehearsals):
            with editor.step([a]):
                editor.replace(a, editor.call(torch.sin, x))
            editor.rollback()
        with editor.step([a]):
            editor.replace(a, editor.call(torch.sin, x))
        editor.finish()
        return [node.name for node in s.graph.nodes]

    assert build(0) == build(3)


def test_changes_need_a_step(sketch: Any) -> None:
    s = sketch()
    x = s.input(3)
    a = s.call(torch.sin, x)
    s.output(a)
    editor = GraphEditor(s.view())
    for change in (
        lambda: editor.call(torch.sin, x),
        lambda: editor.replace(a, x),
        lambda: editor.remove(s.graph.output_node()),
    ):
        with pytest.raises(RuntimeError, match=r"editor\.step"):
            change()
