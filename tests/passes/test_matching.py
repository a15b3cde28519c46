"""Finding and performing candidates: broken patterns, clean-up, rehearsal, order, replay."""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from sine_patterns import Endless, RaisesAt, RaisesInMatches, RemoveDoubleNegation, SineOfSine

from passwright.passes.dialect import Dialect
from passwright.passes.editor import GraphEditor
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.ops import Op, Split, Unary
from passwright.passes.pattern import (
    Candidate,
    Direction,
    Exactness,
    Match,
    Pattern,
    match,
)
from passwright.passes.patterns.splits import MergeNestedSplits
from passwright.passes.table import PatternTable
from passwright.passes.testing import text


def sines(s: Any, count: int = 2) -> Any:
    """A chain of sines with a split in front and an addition behind."""
    value = s.call(operator.getitem, s.call(torch.split, s.input(4, 6), 3, 1), 0)
    for _ in range(count):
        value = s.call(torch.sin, value)
    s.output(s.call(torch.add, value, 1))
    return s


def state(view: GraphView) -> list[object]:
    rows = [(n, n.name, str(n.args), tuple(n.users), id(n.meta.get("example_value")))
            for n in view.graph.nodes]  # fmt: skip
    return [rows, [view.address(node) for node in view.nodes()]]


@pytest.mark.parametrize("point", range(5))
def test_a_pattern_that_raises_is_an_illegal_rewrite(sketch: Any, point: int) -> None:
    view = sines(sketch()).view()
    rewriter = Rewriter(view, PatternTable([RaisesAt(point)]))
    before = state(view)
    (candidate,) = rewriter.candidates()
    with pytest.raises(IllegalRewrite, match=r"raises_at failed.*in the middle"):
        rewriter.apply(candidate)
    assert state(view) == before
    assert [c.label for c in rewriter.candidates()] == [candidate.label]


def test_an_illegal_rewrite_keeps_its_own_words(sketch: Any) -> None:
    class WrongShape(SineOfSine):
        def rewrite(self, m: Match, edit: GraphEditor) -> None:
            edit.replace(m.anchor.node, edit.call(torch.sum, m.anchor.input))

    view = sines(sketch()).view()
    rewriter = Rewriter(view, PatternTable([WrongShape()]))
    before = state(view)
    with pytest.raises(IllegalRewrite, match="would change"):
        rewriter.apply(rewriter.candidates()[0])
    assert state(view) == before


def test_an_interrupt_is_let_through_and_leaves_the_graph_whole(sketch: Any) -> None:
    class Interrupts(SineOfSine):
        def rewrite(self, m: Match, edit: GraphEditor) -> None:
            super().rewrite(m, edit)
            raise KeyboardInterrupt

    view = sines(sketch()).view()
    rewriter = Rewriter(view, PatternTable([Interrupts()]))
    before = state(view)
    with pytest.raises(KeyboardInterrupt):
        rewriter.apply(rewriter.candidates()[0])
    assert state(view) == before


def test_a_pattern_that_fails_while_it_looks_is_ignored(
    sketch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    view = sines(sketch(), 3).view()
    broken = RaisesInMatches()
    rewriter = Rewriter(view, PatternTable([broken, SineOfSine()]))
    with caplog.at_level(logging.WARNING):
        found = [rewriter.candidates() for _ in range(3)]
    assert [{c.pattern.name() for c in cs} for cs in found] == [{"sine_of_sine"}] * 3
    assert broken.asked == 1
    assert len(caplog.records) == 1, "one warning, not one a node"
    message = caplog.records[0].getMessage()
    assert "raises_in_matches" in message
    assert "leave it out" in message


def test_a_pattern_that_declares_no_anchors_is_ignored(sketch: Any) -> None:
    class Undeclared(Pattern):
        def matches(self, graph: GraphView, anchor: Op) -> Iterator[Match]:
            return iter(())

        def rewrite(self, m: Match, edit: GraphEditor) -> None:
            raise NotImplementedError

    view = sines(sketch()).view()
    assert len(Rewriter(view, PatternTable([Undeclared(), SineOfSine()])).candidates()) == 1


def test_a_rehearsal_leaves_no_trace(sketch: Any) -> None:
    s = sines(sketch(), 4)
    view = s.view()
    rewriter = Rewriter(view, PatternTable([SineOfSine(), RemoveDoubleNegation()]))
    before, labels = state(view), [c.label for c in rewriter.candidates()]
    for candidate in rewriter.candidates():
        with rewriter.rehearsal():
            rewriter.apply(candidate)
            assert state(view) != before
        assert state(view) == before

    def fail() -> None:
        with rewriter.rehearsal():
            rewriter.apply(rewriter.candidates()[0])
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert state(view) == before
    assert [c.label for c in rewriter.candidates()] == labels


def test_a_rehearsal_after_a_step_keeps_the_step(sketch: Any) -> None:
    view = sines(sketch(), 4).view()
    rewriter = Rewriter(view, PatternTable([SineOfSine()]))
    rewriter.apply(rewriter.candidates()[0])
    between = [row[:3] for row in state(view)[0]]  # type: ignore[index]
    with rewriter.rehearsal():
        rewriter.apply(rewriter.candidates()[0])
    assert [row[:3] for row in state(view)[0]] == between  # type: ignore[index]
    rewriter.editor.finish()
    assert sum(".cos" in line or " cos(" in line for line in text(view.graph)) == 1


def test_clean_up_is_part_of_the_step(sketch: Any) -> None:
    class SplitSine(SineOfSine):
        """Leaves a double negation behind."""

        def rewrite(self, m: Match, edit: GraphEditor) -> None:
            new = edit.call(torch.cos, m.inner.input)
            edit.replace(m.anchor.node, edit.call(torch.neg, edit.call(torch.neg, new)))

    view = sines(sketch()).view()
    rewriter = Rewriter(view, PatternTable([SplitSine(), RemoveDoubleNegation()]))
    assert [c.pattern.name() for c in rewriter.candidates(cleanup=False)] == ["split_sine"]
    assert not rewriter.candidates(cleanup=True)
    before = state(view)
    record = rewriter.apply(rewriter.candidates()[0])
    assert [n.target for n in record.inserted] == [torch.cos]
    assert [n.target for n in record.removed] == [torch.sin, torch.sin]
    rewriter.editor.rollback()
    assert state(view) == before
    rewriter.apply(rewriter.candidates()[0])
    rewriter.editor.finish()
    assert text(view.graph) == [
        "split = split(x0, 3, 1)",
        "getitem = getitem(split, 0)",
        "pw0_cos = cos(getitem)",
        "add = add(pw0_cos, 1)",
        "return (add)",
    ]


def test_an_endless_clean_up_ends(sketch: Any) -> None:
    view = sines(sketch()).view()
    rewriter = Rewriter(view, PatternTable([SineOfSine(), Endless()]))
    rewriter.apply(next(c for c in rewriter.candidates() if not c.pattern.cleanup))
    rewriter.editor.finish()
    assert sum(" cos(" in line for line in text(view.graph)) == 1


def test_a_failing_clean_up_does_not_undo_the_step(sketch: Any) -> None:
    class BadCleanUp(RemoveDoubleNegation):
        def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
            if anchor.function == "cos":
                yield match(anchor)

        def rewrite(self, m: Match, edit: GraphEditor) -> None:
            edit.replace(m.anchor.node, edit.call(torch.sum, m.anchor.input))

    view = sines(sketch()).view()
    rewriter = Rewriter(view, PatternTable([SineOfSine(), BadCleanUp()]))
    rewriter.apply(next(c for c in rewriter.candidates() if not c.pattern.cleanup))
    rewriter.editor.finish()
    assert sum(" cos(" in line for line in text(view.graph)) == 1


def test_a_clean_up_that_is_interrupted_undoes_the_step_too(sketch: Any) -> None:
    class Interrupts(RemoveDoubleNegation):
        def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
            if anchor.function == "cos":
                raise KeyboardInterrupt
            yield from ()

    view = sines(sketch()).view()
    rewriter = Rewriter(view, PatternTable([SineOfSine(), Interrupts()]))
    before = state(view)
    (candidate,) = rewriter.candidates()
    with pytest.raises(KeyboardInterrupt):
        rewriter.apply(candidate)
    assert state(view) == before


def test_a_candidate_can_be_found_again(sketch: Any) -> None:
    view, other = (sines(sketch(), 4).view() for _ in range(2))
    first = Rewriter(view, PatternTable([SineOfSine()]))
    second = Rewriter(other, PatternTable([SineOfSine()]))
    for candidate in first.candidates():
        again = second.find(candidate.anchor, candidate.key)
        assert again is not None
        assert again.label == candidate.label
        assert again.match.anchor.node.name == candidate.match.anchor.node.name
    assert second.find("nowhere", "nothing") is None
    assert second.find(first.candidates()[0].anchor, "nothing") is None


def test_steps_are_independent_of_what_was_done_elsewhere(sketch: Any) -> None:
    """A later step keeps its address when an earlier one is left out of a plan."""

    def build() -> GraphView:
        s = sketch()
        outputs = []
        for _ in range(2):
            value = s.input(4, 6)
            for _ in range(2):
                value = s.call(torch.sin, value)
            outputs.append(s.call(torch.add, value, 1))
        s.output(*outputs)
        view: GraphView = s.view()
        return view

    full, part = Rewriter(build(), PatternTable([SineOfSine()])), None
    labels = [c.label for c in full.candidates()]
    assert len(labels) == 2
    full.apply(full.candidates()[0])
    assert [c.label for c in full.candidates()] == labels[1:]
    part = Rewriter(build(), PatternTable([SineOfSine()]))
    found = part.find(*labels[1].split(" @ ")[1].split(":"))
    assert found is not None
    part.apply(found)
    assert [c.label for c in part.candidates()] == labels[:1]


def test_overlapping_candidates_conflict_and_the_second_is_refused(sketch: Any) -> None:
    view = sines(sketch(), 3).view()
    rewriter = Rewriter(view, PatternTable([SineOfSine()]))
    first, second = rewriter.candidates()
    assert first.conflicts(second)
    assert second.conflicts(first)
    rewriter.apply(first)
    after = state(view)[1]
    with pytest.raises(IllegalRewrite):
        rewriter.apply(second)
    assert state(view)[1] == after
    rewriter.editor.finish()
    view.graph.lint()


def test_candidates_near_some_nodes(sketch: Any) -> None:
    view = sines(sketch(), 3).view()
    rewriter = Rewriter(view, PatternTable([SineOfSine()]))
    everywhere = rewriter.candidates()
    anchors = [c.match.anchor.node for c in everywhere]
    assert rewriter.candidates([]) == []
    (found,) = rewriter.candidates(anchors[:1])
    assert found.label == everywhere[0].label


def test_patterns_of_another_level_are_left_out(sketch: Any) -> None:
    class OnlyAten(SineOfSine):
        levels = frozenset({Dialect.ATEN})

    view = sines(sketch()).view()
    assert not Rewriter(view, PatternTable([OnlyAten()])).candidates()


def test_labels_tell_matches_at_one_anchor_apart(sketch: Any) -> None:
    class Twice(Pattern):
        direction = Direction.VERTICAL
        exactness = Exactness.BITWISE
        anchors = frozenset({Split})

        def matches(self, graph: GraphView, anchor: Split) -> Iterator[Match]:
            for way in ("left", "right"):
                yield match(anchor, parameters={"way": way})

        def rewrite(self, m: Match, edit: GraphEditor) -> None:
            raise NotImplementedError

    view = sines(sketch()).view()
    found = Rewriter(view, PatternTable([Twice()])).candidates()
    assert len(found) == 2
    assert {c.shown_parameters for c in found} == {"{way=left}", "{way=right}"}
    assert len({c.key for c in found}) == 2
    assert len({c.anchor for c in found}) == 1


def test_roles() -> None:
    anchor = Op(node=None)  # type: ignore[arg-type]
    found = Match(anchor, (), {"inner": 3})
    assert found.inner == 3
    with pytest.raises(AttributeError, match="outer"):
        _ = found.outer


def test_the_sweep_is_a_candidate_like_any_other(sketch: Any) -> None:
    s = sketch()
    x = s.input(2, 12)
    outer = s.call(torch.split, x, [4, 8], 1)
    inner = s.call(torch.split, s.call(operator.getitem, outer, 1), [3, 5], 1)
    s.output(*(s.call(torch.sin, s.call(operator.getitem, inner, i)) for i in range(2)))
    view = s.view()
    rewriter = Rewriter(view, PatternTable([MergeNestedSplits(), RemoveDoubleNegation()]))
    sweep = rewriter.sweep()
    assert isinstance(sweep, Candidate)
    before = state(view)
    with rewriter.rehearsal():
        assert rewriter.apply(sweep).inserted
        assert not rewriter.candidates(cleanup=True)
    assert state(view) == before
    again = rewriter.find(sweep.anchor, sweep.key)
    assert again is not None
    assert again.label == sweep.label


def test_one_pattern_alone_is_asked(sketch: Any) -> None:
    class Other(SineOfSine):
        asked = 0

        def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
            type(self).asked += 1
            return super().matches(graph, anchor)

    rewriter = Rewriter(sines(sketch()).view(), PatternTable([SineOfSine(), Other()]))
    everything = [c.label for c in rewriter.candidates()]
    Other.asked = 0
    with rewriter.only("sine_of_sine"):
        (found,) = rewriter.candidates(cleanup=False)
        assert found.pattern.name() == "sine_of_sine"
        assert rewriter.find(found.anchor, found.key) == found
    assert Other.asked == 0
    assert [c.label for c in rewriter.candidates()] == everything
    assert Other.asked


def test_clean_up_goes_on_where_one_pattern_alone_is_asked(sketch: Any) -> None:
    s = sketch()
    s.output(s.call(torch.neg, s.call(torch.neg, s.input(4, 6))))
    rewriter = Rewriter(s.view(), PatternTable([RemoveDoubleNegation()]))
    with rewriter.only("sine_of_sine"):
        assert rewriter.candidates() == []
        assert rewriter.candidates(cleanup=True)
