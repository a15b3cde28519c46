"""Planning policy where errors of steps are independent, as a learned model's are: what is likely, what
opens the way to more, and how sure a plan has to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from told_gains import PATTERNS, Says, SaysApart, by_pattern, captured_chains, exactly
from torch import fx

from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate
from passwright.passes.table import PatternTable
from passwright.scheduler.gain import CANCELLING, GainModel, Interval, Prediction, together
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.plan import CUT_SHORT, Plan
from passwright.scheduler.planner import Planner
from passwright.scheduler.settings import Settings


@pytest.fixture(scope="module")
def chains() -> fx.GraphModule:
    return captured_chains()


def opens(gain: float, to_go: float) -> Prediction:
    return Prediction(exactly(gain), exactly(to_go))


def planned_with(model: GainModel, chains: fx.GraphModule, **settings: Any) -> Plan:
    rewriter = Rewriter(GraphView(clone_for_compile(chains).graph), PatternTable(PATTERNS))
    return Planner(rewriter, model, Settings(**settings), training=False).plan()


def patterns_of(plan: Plan) -> list[str]:
    return [step.pattern for step in plan.steps if step.pattern != "clean_up"]


def test_a_step_that_loses_alone_is_taken_for_what_follows(chains: fx.GraphModule) -> None:
    said = by_pattern(tanh_to_sin=opens(-0.2, 0.3), sin_to_cos=0.5, exp_to_log=-0.3)
    plan = planned_with(SaysApart(said), chains)
    assert "tanh_to_sin" in patterns_of(plan)
    assert patterns_of(plan).count("sin_to_cos") >= patterns_of(plan).count("tanh_to_sin") > 0
    assert plan.independent
    assert plan.predicted.mean == pytest.approx(sum(step.gain.mean for step in plan.steps))


def test_one_whose_promise_is_not_kept_is_left_out_of_the_middle(chains: fx.GraphModule) -> None:
    said = by_pattern(tanh_to_sin=opens(-0.2, 0.3), sin_to_cos=-0.1, exp_to_log=0.2)
    plan = planned_with(SaysApart(said), chains)
    assert patterns_of(plan) == ["exp_to_log", "exp_to_log"]
    [left] = {item.reason for item in plan.left if item.label.startswith("tanh_to_sin")}
    assert left == "what it prepared is not worth it"


def test_when_time_is_up_nothing_is_done_over(chains: fx.GraphModule) -> None:
    now, opened = [0.0], [0]
    gains = by_pattern(tanh_to_sin=opens(-0.2, 0.3), sin_to_cos=-0.1, exp_to_log=opens(0.5, 0.25))

    def say(candidate: Candidate) -> Any:
        opened[0] += candidate.pattern.name() == "sin_to_cos"
        if opened[0] == 3:  # both openers were taken, and what follows is predicted
            now[0] = 1e9
        return gains(candidate)

    def planned_by(clock: Callable[[], float]) -> Plan:
        rewriter = Rewriter(GraphView(clone_for_compile(chains).graph), PatternTable(PATTERNS))
        return Planner(rewriter, SaysApart(say), Settings(), training=False, clock=clock).plan()

    late = planned_by(lambda: now[0])
    assert late.stopped == CUT_SHORT
    assert patterns_of(late) == ["tanh_to_sin", "tanh_to_sin", "exp_to_log", "exp_to_log"]
    assert patterns_of(planned_by(lambda: 0.0)) == ["exp_to_log", "exp_to_log"]


def test_likely_steps_are_taken_if_together_they_are_sure(chains: fx.GraphModule) -> None:
    likely = Interval(0.1, -0.03, 0.23)
    said = by_pattern(exp_to_log=Prediction(likely, likely), tanh_to_sin=-0.1)
    assert patterns_of(planned_with(Says(said), chains)) == []
    assert patterns_of(planned_with(SaysApart(said), chains)) == ["exp_to_log", "exp_to_log"]
    # Two such are not sure enough for who wants more.
    assert patterns_of(planned_with(SaysApart(said), chains, min_gain=0.04)) == []


def test_how_cautious_one_has_to_be_is_the_models_to_say(chains: fx.GraphModule) -> None:
    unsure = Prediction(Interval(0.2, -0.1, 0.5), Interval(0.2, -0.1, 0.5))

    def model(caution: float) -> GainModel:
        found = SaysApart(by_pattern(exp_to_log=unsure))
        found.caution = caution
        return found

    # Two steps of 0.2, each 0.3 above its lower bound: together 0.4, and 0.42 above theirs.
    assert patterns_of(planned_with(model(1.0), chains)) == []
    assert patterns_of(planned_with(model(0.5), chains)) == ["exp_to_log", "exp_to_log"]


def test_errors_of_very_many_steps_are_not_taken_to_cancel_out() -> None:
    step = Interval(0.1, -0.1, 0.4)
    known = together([step] * CANCELLING, independent=True)
    root = CANCELLING**0.5
    assert known.mean - known.lower == pytest.approx(0.2 * root)
    assert known.upper - known.mean == pytest.approx(0.3 * root)
    more = together([step] * (CANCELLING + 10), independent=True)
    assert more.mean == pytest.approx(known.mean + 1.0)
    assert more.mean - more.lower == pytest.approx(0.2 * root + 2.0)
    # So what is no more than likely adds nothing that is sure.
    assert more.lower < known.lower
