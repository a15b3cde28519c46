"""The editor: what a step does, undoes and refuses, and what it keeps as outsiders see it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.dialect import Dialect
from passwright.passes.editor import GraphEditor
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.patterns.splits import MergeNestedSplits
from passwright.passes.testing import rewrite_graph, text

aten = torch.ops.aten


def snapshot(graph: fx.Graph) -> list[object]:
    """All that a user can tell of a graph: order, names, arguments, users in their order, metas."""
    return [
        (
            node,
            node.name,
            node.op,
            node.target,
            str(node.args),
            str(node.kwargs),
            tuple(node.users),
            tuple(node.all_input_nodes),
            {key: id(value) for key, value in node.meta.items()},
        )
        for node in graph.nodes
    ]


def run(module: fx.GraphModule, *inputs: torch.Tensor) -> Any:
    """What the graph computes on copies of the inputs, and what it left in them."""
    copies = [value.detach().clone().requires_grad_(value.requires_grad) for value in inputs]
    with torch.no_grad():
        return module(*copies), copies


def same(module: fx.GraphModule, expected: Any, *inputs: torch.Tensor) -> None:
    module.graph.lint()
    module.recompile()
    torch.testing.assert_close(run(module, *inputs), expected, rtol=0, atol=0, check_stride=True)


def nested(s: Any) -> tuple[fx.Node, ...]:
    """split(split(x, [4, 8])[1], [3, 5]) and a use of every piece."""
    x = s.input(2, 12)
    outer = s.call(torch.split, x, [4, 8], 1)
    a, b = (s.call(operator.getitem, outer, i) for i in range(2))
    inner = s.call(torch.split, b, [3, 5], 1)
    c, d = (s.call(operator.getitem, inner, i) for i in range(2))
    s.output(*(s.call(torch.sin, piece) for piece in (a, c, d)))
    return x, outer, a, b, inner, c, d


# ---- what a step does


def test_a_step_in_text(sketch: Any) -> None:
    s = sketch()
    nested(s)
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
    _, outer, a, b, inner, c, d = nested(s)
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
    expected = run(module, *inputs)
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
    same(module, expected, *inputs)


def test_early_users_of_an_existing_value_sink_too(sketch: Any) -> None:
    s = sketch()
    x = s.input(3)
    first = s.call(torch.sin, x)
    user = s.call(torch.exp, first)
    second = s.call(torch.sin, x)
    s.output(user, s.call(torch.neg, second))
    module, inputs = s.module(), [torch.rand(3)]
    expected = run(module, *inputs)
    editor = GraphEditor(GraphView(module.graph))
    first, user, second = (n for n in module.graph.nodes if n.name in ("sin", "exp", "sin_1"))
    with editor.step([first, second]):
        editor.replace(first, second)
    assert second < user
    editor.finish()
    same(module, expected, *inputs)


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


# ---- what a step undoes


class Interrupted(GraphEditor):
    """Raises at the n-th thing that a step does to the graph."""

    def __init__(self, view: GraphView, at: int) -> None:
        super().__init__(view)
        self.left = at

    def _tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise ZeroDivisionError("interrupted")

    def call(self, target: Any, *args: Any, spec: Any = None, **kwargs: Any) -> fx.Node:
        node = super().call(target, *args, spec=spec, **kwargs)
        self._tick()
        return node

    def _rewire(self, user: fx.Node, old: fx.Node, new: fx.Node) -> None:
        super()._rewire(user, old, new)
        self._tick()

    def _move_behind(self, member: fx.Node, place: fx.Node) -> fx.Node:
        moved = super()._move_behind(member, place)
        self._tick()
        return moved

    def _bury(self, node: fx.Node) -> None:
        super()._bury(node)
        self._tick()


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
        editor = Interrupted(view, points)
        try:
            batch(editor, members)
        except ZeroDivisionError:
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
    x, _, a, b, _, c, _ = nested(s)
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


# ---- what a step refuses


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
    expected = run(module, *inputs)
    by_name = {node.name: node for node in module.graph.nodes}
    editor = GraphEditor(GraphView(module.graph))
    with editor.step([by_name["sin"], by_name["sin_1"]]):
        _batched(editor, by_name["sin"], by_name["sin_1"])
    editor.finish()
    same(module, expected, *inputs)


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
    x, outer, a, b, inner, c, d = nested(s)
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


# ---- what a step keeps for outsiders


def finished(s: Any, nodes: str, change: Callable[..., Any]) -> fx.GraphModule:
    """Performs the change on the nodes with these names, and checks that values stay the same."""
    module = s.module()
    shapes = [node.meta["example_value"] for node in module.graph.find_nodes(op="placeholder")]
    torch.manual_seed(0)
    inputs = [torch.empty_strided(v.shape, v.stride()).copy_(torch.rand(v.shape)) for v in shapes]
    expected = run(module, *inputs)
    editor = GraphEditor(GraphView(module.graph))
    by_name = {node.name: node for node in module.graph.nodes}
    chosen = [by_name[name] for name in nodes.split()]
    with editor.step(chosen):
        change(editor, *chosen)
    editor.finish()
    same(module, expected, *inputs)
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
    expected = run(module, *inputs)
    editor = GraphEditor(GraphView(module.graph))
    nodes = {node.name: node for node in module.graph.nodes}
    with editor.step([nodes["sin"], nodes["sin_1"]]):
        piece_of_wide(editor, nodes["sin"], nodes["sin_1"])
    with editor.step([nodes["cat"]]):
        editor.replace(nodes["cat"], nodes["exp"])
    editor.finish()
    same(module, expected, *inputs)


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
