"""Macro actions: one pattern everywhere in a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.ops import Unary
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.sketch import Sketch
from passwright.passes.table import PatternTable, default_table
from passwright.scheduler.plan import Plan, Step
from passwright.training.macros import (
    CLEAN_UP,
    NOTHING,
    PLANNED,
    Macro,
    State,
    apply_macro,
    apply_state,
    open_macros,
)


class Choice(Pattern):
    """tanh becomes sin or cos, alone or with its neighbour: wrong, and all that a test needs."""

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Unary})

    def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
        if anchor.function != "tanh":
            return
        inner = graph.producer(anchor.input, Unary)
        for form in ("sin", "cos"):
            if inner and inner.function == "tanh":
                shown = {"form": form, "members": 2}
                yield match(anchor, inner, parameters=shown, source=inner.input, form=form)
            shown = {"form": form, "members": 1}
            yield match(anchor, parameters=shown, source=anchor.input, form=form)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, edit.call(getattr(torch, m.form), m.source))


class Lossy(Pattern):
    """Only where the user accepts it; refuses the first that it is asked for."""

    direction = Direction.VERTICAL
    exactness = Exactness.RELAXED
    anchors = frozenset({Unary})
    refused: ClassVar[set[str]] = set()

    def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
        if anchor.function == "exp":
            yield match(anchor)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        if m.anchor.node.name in self.refused:
            raise IllegalRewrite("not this one")
        edit.replace(m.anchor.node, edit.call(torch.log, m.anchor.input))


def chain(*functions: Any) -> fx.Graph:
    s = Sketch()
    value = s.input(4, 6)
    for function in functions:
        value = s.call(function, value)
    s.output(value)
    return s.module().graph


def calls(graph: fx.Graph) -> list[str]:
    return [getattr(n.target, "__name__", "") for n in graph.nodes if n.op == "call_function"]


TOYS = PatternTable([Choice(), Lossy()])


@pytest.mark.parametrize(
    "macro", [Macro("a"), Macro("a", "own"), Macro("a", "", True), Macro("a", "own", True)]
)
def test_labels_are_read_back(macro: Macro) -> None:
    assert Macro.parse(macro.label) == macro
    for state in (NOTHING, PLANNED, State((macro,)), State((Macro("b"), macro), planned=True)):
        assert State.parse(state.label) == state


def test_what_is_no_label_is_refused() -> None:
    with pytest.raises(ValueError, match="no macro"):
        State.parse("a + b{")


def test_states_beside_a_state() -> None:
    a, b = Macro("a"), Macro("b")
    assert NOTHING.then(a).then(b) == State((a, b))
    assert State((a, b), planned=True).shorter() == [State((b,), True), State((a,), True)]


def test_choices_are_macros_of_their_own() -> None:
    found = open_macros(chain(torch.tanh, torch.tanh), TOYS)
    assert found == [
        Macro("choice", "cos"),
        Macro("choice", "cos", True),
        Macro("choice", "sin"),
        Macro("choice", "sin", True),
    ]
    # One member is no choice.
    single = open_macros(chain(torch.tanh, torch.relu, torch.tanh), TOYS)
    assert single == [Macro("choice", "cos"), Macro("choice", "sin")]


def test_relaxed_patterns_are_offered_to_those_who_ask() -> None:
    graph = chain(torch.exp)
    assert open_macros(graph, TOYS) == []
    assert open_macros(graph, TOYS, relaxed=True) == [Macro("lossy")]


def test_most_members_or_fewest() -> None:
    graph = chain(torch.tanh, torch.tanh)
    assert len(apply_macro(graph, Macro("choice", "sin"), TOYS)) == 1
    assert calls(graph) == ["sin"]
    graph = chain(torch.tanh, torch.tanh)
    assert len(apply_macro(graph, Macro("choice", "cos", True), TOYS)) == 2
    assert calls(graph) == ["cos", "cos"]


def test_a_refused_candidate_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = chain(torch.exp, torch.relu, torch.exp)
    first = next(node for node in graph.nodes if node.op == "call_function")
    monkeypatch.setattr(Lossy, "refused", {first.name})
    assert len(apply_macro(graph, Macro("lossy"), TOYS)) == 1
    assert calls(graph) == ["exp", "relu", "log"]


def test_a_macro_without_candidates_does_nothing() -> None:
    graph = chain(torch.relu)
    before = str(graph)
    assert apply_macro(graph, Macro("choice", "sin"), TOYS) == []
    assert apply_macro(graph, Macro("unknown"), TOYS) == []
    assert apply_macro(graph, CLEAN_UP, TOYS) == []
    assert str(graph) == before


# ---- real patterns


def towers(training: bool = False) -> fx.GraphModule:
    """Three Linears of one shape with a ReLU each, and two of another."""
    s = Sketch()
    found = []
    for number in range(5):
        width = 8 if number < 3 else 5
        x = s.input(4, width, requires_grad=training)
        w = s.input(6, width, requires_grad=training)
        found.append(s.call(torch.relu, s.call(F.linear, x, w)))
    s.output(s.call(torch.cat, found, dim=1))
    return s.module()


@pytest.mark.parametrize("training", [False, True])
def test_a_macro_takes_all_groups_and_keeps_the_values(training: bool) -> None:
    module = towers(training)
    inputs = [
        torch.randn(n.meta["example_value"].shape, requires_grad=training)
        for n in module.graph.nodes
        if n.op == "placeholder"
    ]
    expected = module(*inputs)
    labels = apply_macro(module.graph, Macro("batch_linears"), default_table())
    assert len(labels) == 2
    assert all(label.startswith("batch_linears") for label in labels)
    assert "linear" not in calls(module.graph)
    module.recompile()
    # Rounded otherwise, as by another kernel.
    torch.testing.assert_close(module(*inputs), expected)


def test_a_state_gives_the_same_graph_every_time() -> None:
    state = State((Macro("batch_linears"), Macro("batch_unaries")))
    graphs = [towers().graph for _ in range(2)]
    labels = [apply_state(graph, state, default_table()) for graph in graphs]
    assert labels[0] == labels[1]
    assert {label.partition("{")[0] for label in labels[0]} >= {"batch_linears", "batch_unaries"}
    first, second = (GraphView(graph).fingerprint for graph in graphs)
    assert first == second != GraphView(towers().graph).fingerprint


def test_a_planned_state_replays_the_plan_of_its_graph() -> None:
    from passwright.passes.matching import Rewriter

    table = default_table()
    graph = towers().graph
    rewriter = Rewriter(GraphView(graph), table)
    chosen = next(c for c in rewriter.candidates() if c.pattern.name() == "batch_linears")
    step = Step("batch_linears", chosen.anchor, chosen.key)
    plan = Plan(rewriter.view.fingerprint, steps=(step,))
    other = Plan("0123", steps=(step,))
    labels = apply_state(graph, PLANNED.then(Macro("batch_unaries")), table, [other, plan])
    assert labels[0].startswith("batch_linears")
    assert labels[1].startswith("batch_unaries")
    untouched = towers().graph
    assert apply_state(untouched, PLANNED, table, [other]) == []
