"""Replaying plans: whole, edited, in another order, and on a graph that has changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import fx
from toy_patterns import ExpToLog, SinToCos, TanhOfTanh, TanhToSin

from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Pattern
from passwright.passes.table import PatternTable
from passwright.passes.testing import capture, text
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.optimize import Scheduler
from passwright.scheduler.plan import CUT_SHORT, Plan
from passwright.scheduler.planner import Planner, replay
from passwright.scheduler.settings import Settings
from passwright.scheduler.store import PlanStore

PATTERNS = (TanhToSin(), SinToCos(), ExpToLog())


@pytest.fixture(scope="module")
def chains() -> fx.GraphModule:
    """tanh(tanh(x)), exp(x) and exp(y)."""

    def fn(x: Any, y: Any) -> Any:
        return torch.tanh(torch.tanh(x)), torch.exp(x), torch.exp(y)

    module, _ = capture(fn, (torch.randn(4), torch.randn(4)))
    return module


def rewriter_of(module: fx.GraphModule, *patterns: Pattern) -> Rewriter:
    return Rewriter(GraphView(clone_for_compile(module).graph), PatternTable(patterns or PATTERNS))


@pytest.fixture
def plan(always_gains_model):
    """`plan(module, *patterns)`: a plan that takes all there is, and the calls that it leaves."""

    def make(module: fx.GraphModule, *patterns: Pattern) -> tuple[Plan, list[str]]:
        rewriter = rewriter_of(module, *patterns)
        found = Planner(rewriter, always_gains_model, Settings(), training=False).plan()
        rewriter.editor.finish()
        return found, calls(text(rewriter.view.graph))

    return make


def calls(lines: list[str]) -> list[str]:
    return [line.split(" = ")[1].partition("(")[0] for line in lines[:-1]]


@pytest.fixture
def whole(chains, plan):
    """A plan of six steps and the calls that it leads to."""
    return plan(chains)


def replayed(module: fx.GraphModule, given: Plan, *patterns: Pattern) -> tuple[Plan, list[str]]:
    rewriter = rewriter_of(module, *patterns)
    found = replay(given, rewriter)
    rewriter.editor.finish()
    lines = text(rewriter.view.graph)
    return found, lines


def test_a_plan_replays(chains, whole):
    found, lines = replayed(chains, whole[0])
    assert [s.label for s in found.steps] == [s.label for s in whole[0].steps]
    assert [s.diff for s in found.steps] == [s.diff for s in whole[0].steps]
    assert found.skipped == ()
    assert found.origin == "replayed"
    assert calls(lines) == whole[1]


def test_the_text_of_a_plan_replays_and_may_be_edited(chains, whole):
    text_of = whole[0].to_text()
    assert replayed(chains, Plan.from_text(text_of))[1] == replayed(chains, whole[0])[1]
    lines = [line for line in text_of.splitlines() if not line.startswith("exp_to_log")]
    found, graph = replayed(chains, Plan.from_text("\n".join(lines)))
    assert found.skipped == ()
    assert "exp" in " ".join(graph)
    assert "cos" in " ".join(graph)


def test_steps_may_change_places(chains, whole):
    given = whole[0]
    other = sorted(given.steps, key=lambda s: s.pattern == "exp_to_log")
    assert other != list(given.steps)
    found, graph = replayed(chains, given.replaced(steps=tuple(other)))
    assert found.skipped == ()
    assert sorted(calls(graph)) == sorted(whole[1])


def test_steps_that_are_not_found_are_skipped_and_named(chains, whole):
    given = whole[0]
    last = given.steps[-1]
    missing = replace(last, anchor="0123456789ab")
    found, _ = replayed(chains, given.replaced(steps=(*given.steps[:-1], missing)))
    assert [step.label for step in found.steps] == [step.label for step in given.steps[:-1]]
    assert found.skipped == (f"{missing.label}: not found in this graph",)


def test_what_depended_on_a_missing_step_is_skipped_too(chains, whole):
    given = whole[0]
    first = next(s for s in given.steps if s.pattern == "tanh_to_sin")
    rest = tuple(step for step in given.steps if step is not first)
    found, _ = replayed(chains, given.replaced(steps=rest))
    assert len(found.skipped) == 1
    assert found.skipped[0].startswith("sin_to_cos @ ")


def test_a_step_whose_ground_another_took_is_skipped(chains, plan):
    first, _ = plan(chains, TanhOfTanh())
    second, _ = plan(chains, TanhToSin())
    both = first.replaced(steps=(*first.steps, *second.steps))
    found, _ = replayed(chains, both, TanhOfTanh(), TanhToSin())
    assert found.steps[0].pattern == "tanh_of_tanh"
    assert found.skipped
    assert len(found.steps) + len(found.skipped) == 3


def test_a_plan_of_another_graph_changes_nothing(whole):
    module, _ = capture(lambda x: torch.tanh(x) + 1, (torch.randn(3, 3),))
    found, lines = replayed(module, whole[0])
    assert found.steps == ()
    assert len(found.skipped) == len(whole[0].steps)
    assert "tanh" in lines[0]


def test_a_plan_cut_short_is_kept_to_be_seen_and_made_anew(tmp_path, built):
    module, _ = built("own:split_cat", False)

    def optimized(**settings: object) -> Plan:
        options = {"plan_directory": str(tmp_path), **settings}
        found = Scheduler.of(Settings.resolve(options, {})).optimize(clone_for_compile(module))[1]
        assert found is not None
        return found

    short = optimized(time_budget=0)
    assert short.stopped == CUT_SHORT
    assert [kept.stopped for _, kept in PlanStore(tmp_path)] == [CUT_SHORT]
    assert optimized(mode="replay").steps == short.steps
    whole = optimized()
    assert whole.stopped != CUT_SHORT
    assert len(whole.steps) > len(short.steps)
    assert [kept.steps for _, kept in PlanStore(tmp_path)] == [whole.steps]
