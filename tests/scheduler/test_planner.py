"""Planning policy, with a gain model that says what the test wants it to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from told_gains import Says, by_pattern, captured_chains, exactly, rewriter_of
from torch import fx
from toy_patterns import ExpToLog, Lossy, SinToCos, TanhOfTanh, TanhToSin

from passwright.passes.editor import GraphEditor
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate, Match, Pattern
from passwright.passes.table import PatternTable
from passwright.passes.testing import text
from passwright.scheduler.gain import (
    OUT_OF_TIME,
    GainModel,
    Interval,
    Prediction,
)
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.plan import Plan
from passwright.scheduler.planner import Planner
from passwright.scheduler.settings import Settings


@pytest.fixture(scope="module")
def chains() -> fx.GraphModule:
    return captured_chains()


def plan(
    module: fx.GraphModule,
    model: GainModel | Callable[[Candidate], Any],
    *patterns: Pattern,
    clock: Callable[[], float] = lambda: 0.0,
    **settings: Any,
) -> tuple[Plan, list[str]]:
    """The plan, and the calls of the graph that it leaves."""
    model = model if isinstance(model, GainModel) else Says(model)
    rewriter = rewriter_of(module, *patterns)
    found = Planner(rewriter, model, Settings(**settings), training=False, clock=clock).plan()
    rewriter.editor.finish()
    rewriter.view.graph.lint()
    lines = text(rewriter.view.graph)[:-1]
    return found, [line.split(" = ")[1].partition("(")[0] for line in lines]


def names(found: Plan) -> list[str]:
    return [step.pattern for step in found.steps]


def reasons(found: Plan) -> dict[str, str]:
    return {left.label.partition(" ")[0]: left.reason for left in found.left}


def test_nothing_is_done_where_nothing_gains(chains):
    found, calls = plan(chains, lambda _: 0.0)
    assert found.steps == ()
    assert calls == ["tanh", "tanh", "exp", "exp"]
    assert found.stopped == "no candidate expected to gain"
    assert (found.ops_before, found.ops_after) == (4, 4)
    assert set(reasons(found).values()) == {"gain not certain enough"}


def test_what_gains_is_done_until_nothing_is_left(chains):
    found, calls = plan(chains, by_pattern(exp_to_log=0.3), ExpToLog())
    assert names(found) == ["exp_to_log"] * 2
    assert calls.count("log") == 2
    assert found.stopped == "no candidate left"
    assert found.predicted == exactly(0.6)


def test_a_round_asks_once_about_all_candidates(chains):
    model = Says(by_pattern(tanh_to_sin=0.2, sin_to_cos=0.2, exp_to_log=0.2))
    found, calls = plan(chains, model)
    rounds = [asked for asked in model.asked if asked != ["clean_up"]]
    assert rounds == [
        ["exp_to_log", "exp_to_log", "tanh_to_sin", "tanh_to_sin"],
        ["sin_to_cos", "sin_to_cos"],
    ]
    assert names(found)[-2:] == ["sin_to_cos"] * 2, "a later round sees what an earlier one made"
    assert calls == ["cos", "cos", "log", "log"]


def test_the_largest_lower_bound_goes_first(chains):
    wide = Prediction(Interval(0.9, 0.05, 2.0), Interval(0.9, 0.05, 2.0))
    found, _ = plan(chains, by_pattern(exp_to_log=wide, tanh_to_sin=0.2), TanhToSin(), ExpToLog())
    assert names(found) == ["tanh_to_sin"] * 2 + ["exp_to_log"] * 2


def test_of_two_that_conflict_the_better_is_done(chains):
    say = by_pattern(tanh_of_tanh=0.5, tanh_to_sin=0.3)
    found, calls = plan(chains, say, TanhOfTanh(), TanhToSin())
    assert names(found) == ["tanh_of_tanh"]
    assert "erf" in calls
    assert reasons(found)["tanh_to_sin"].startswith("conflicts with tanh_of_tanh @ ")


def test_a_candidate_that_waits_for_certainty_says_so(chains):
    unsure, worse = Interval(0.2, -0.1, 0.5), Interval(-0.3, -0.4, -0.2)
    say = by_pattern(
        exp_to_log=Prediction(unsure, unsure),
        tanh_to_sin=Prediction(worse, worse),
        tanh_of_tanh=Prediction(exactly(0), exactly(0), refused="strides can be seen"),
    )
    found, _ = plan(chains, say, ExpToLog(), TanhToSin(), TanhOfTanh())
    assert reasons(found) == {
        "exp_to_log": "gain not certain enough",
        "tanh_to_sin": "predicted slower",
        "tanh_of_tanh": "strides can be seen",
    }
    assert all(left.gain.mean for left in found.left if left.label.startswith("exp"))


def test_min_gain_is_the_users(chains):
    assert plan(chains, by_pattern(exp_to_log=0.05), min_gain=0.1)[0].steps == ()
    assert len(plan(chains, by_pattern(exp_to_log=0.05), min_gain=0.01)[0].steps) == 2


def test_a_way_is_followed_through_a_step_that_loses(chains):
    """tanh -> sin loses alone; sin -> cos then gains more."""

    def say(candidate: Candidate) -> float | Prediction:
        if candidate.pattern.name() == "sin_to_cos":
            return 0.5
        if candidate.pattern.name() == "tanh_to_sin":
            with rewriter.rehearsal():
                rewriter.apply(rewriter.find(candidate.anchor, candidate.key))
                [after] = rewriter.candidates([rewriter.view.at(candidate.anchor)])
            return Prediction(exactly(-0.1), exactly(0.4), ((after.anchor, after.key),))
        return 0.0

    rewriter = rewriter_of(chains)
    planner = Planner(rewriter, Says(say), Settings(), training=False)
    found = planner.plan()
    assert names(found) == ["tanh_to_sin", "sin_to_cos"] * 2
    assert [step.gain.mean for step in found.steps] == [-0.1, 0.5] * 2
    assert found.predicted.mean == pytest.approx(0.8)


def test_a_way_that_breaks_off_is_undone(chains):
    promise = Prediction(exactly(-0.1), exactly(0.4), (("nowhere", "nothing"),))
    found, calls = plan(chains, by_pattern(tanh_to_sin=promise), TanhToSin())
    assert found.steps == ()
    assert calls[:2] == ["tanh", "tanh"]
    assert set(reasons(found).values()) == {"what should have followed it is no longer there"}


def test_steps_at_the_end_that_prepared_nothing_are_undone(chains):
    """A model that promises and does not deliver, and a user who takes losses into account."""
    promise = Prediction(exactly(-0.1), exactly(0.2))
    say = by_pattern(tanh_to_sin=promise, exp_to_log=0.3)
    found, calls = plan(chains, say, TanhToSin(), ExpToLog(), min_gain=-0.2)
    assert names(found) == ["exp_to_log"] * 2
    assert calls.count("tanh") == 2
    assert reasons(found)["tanh_to_sin"] == "nothing that it prepared was worth doing"


def test_a_plan_may_be_cut_down_to_nothing(chains):
    promise = Prediction(exactly(-0.1), exactly(0.4))
    found, calls = plan(chains, lambda _: promise, TanhToSin(), min_gain=-1.0)
    assert found.steps == ()
    assert calls == ["tanh", "tanh", "exp", "exp"]
    assert found.ops_before == found.ops_after


def test_cleaning_up_alone_has_to_be_worth_a_plan(chains):
    class SinCleanUp(SinToCos):
        cleanup = True
        before, after = "tanh", torch.sin

    found, calls = plan(chains, by_pattern(clean_up=0.5), SinCleanUp())
    assert names(found) == ["clean_up"]
    assert calls.count("sin") == 2
    found, calls = plan(chains, by_pattern(clean_up=0.02), SinCleanUp(), min_plan_gain=0.03)
    assert found.steps == ()
    assert calls.count("tanh") == 2
    assert reasons(found) == {"clean_up": "nothing that it prepared was worth doing"}


def test_a_plan_that_may_as_well_lose_is_undone(chains):
    class SinCleanUp(SinToCos):
        cleanup = True
        before, after = "tanh", torch.sin

    unsure = Prediction(Interval(0.2, -0.01, 0.4), Interval(0.2, -0.01, 0.4))
    found, calls = plan(chains, by_pattern(clean_up=unsure), SinCleanUp())
    assert found.steps == ()
    assert calls.count("tanh") == 2


def test_max_steps(chains):
    found, _ = plan(chains, lambda _: 0.3, max_steps=2)
    assert len(found.steps) == 2
    assert found.stopped == "max_steps reached"
    assert "max_steps reached" in reasons(found).values()


def test_the_time_budget_ends_between_rounds(chains):
    seconds = iter(range(0, 1000, 10))
    found, _ = plan(
        chains, by_pattern(tanh_to_sin=0.2, sin_to_cos=0.2), clock=lambda: next(seconds),
        time_budget=15.0,
    )  # fmt: skip
    assert names(found) == ["tanh_to_sin"] * 2, "the first round was begun in time"
    assert found.stopped == "time budget reached: the plan so far"


def test_a_model_that_was_stopped_leaves_the_plan_so_far(chains):
    class Slow(Says):
        def predict(self, rewriter, candidates, *, training, ahead=True):
            found = super().predict(rewriter, candidates, training=training, ahead=ahead)
            if not self.late():
                return found
            unseen = Prediction(exactly(0), exactly(0), refused=OUT_OF_TIME)
            return [found[0], *[unseen] * (len(found) - 1)]

    # The start, the round's beginning, and then it is late.
    seconds = iter([0, 0, 0, *[99] * 99])
    found, _ = plan(chains, Slow(lambda _: 0.3), clock=lambda: next(seconds), time_budget=9.0)
    assert len(found.steps) == 1, "the one that was looked at in time"
    assert found.stopped == "time budget reached: the plan so far"
    assert OUT_OF_TIME in reasons(found).values()


def test_patterns_that_lower_precision_need_consent(chains):
    assert plan(chains, lambda _: 0.3, Lossy())[0].steps == ()
    assert names(plan(chains, lambda _: 0.3, Lossy(), relaxed=True)[0]) == ["lossy"] * 2


def test_a_candidate_that_turns_out_illegal_is_left_and_the_others_done(chains):
    class Refuses(ExpToLog):
        def rewrite(self, m: Match, edit: GraphEditor) -> None:
            raise IllegalRewrite("not here")

    found, calls = plan(chains, lambda _: 0.3, Refuses(), TanhToSin())
    assert names(found) == ["tanh_to_sin"] * 2
    assert calls.count("exp") == 2
    assert reasons(found)["refuses"] == "no longer legal after an earlier step"


def test_each_step_tells_what_it_changed(chains):
    found, _ = plan(chains, by_pattern(exp_to_log=0.3), ExpToLog())
    for step in found.steps:
        removed, inserted = step.diff
        assert removed.startswith("- ")
        assert "exp" in removed
        assert inserted.startswith("+ ")
        assert "log" in inserted


def test_plans_are_equal_byte_for_byte(chains):
    say = by_pattern(tanh_to_sin=0.2, sin_to_cos=0.25, exp_to_log=0.1)
    assert plan(chains, say)[0].to_json() == plan(chains, say)[0].to_json()


@pytest.mark.parametrize("relaxed", [True, False])
def test_what_lowers_precision_is_not_found_by_looking_ahead(
    chains: fx.GraphModule, relaxed: bool
) -> None:
    """As a follow-up of an exact step it is as little allowed as by itself."""

    class SinToRoot(Lossy):
        before = "sin"

    class Looks(Says):
        """Notes what there would be to do after each candidate."""

        def predict(self, rewriter: Rewriter, candidates: Any, **options: Any) -> Any:
            for candidate in candidates:
                with rewriter.rehearsal():
                    rewriter.apply(candidate)
                    later.update(c.pattern.name() for c in rewriter.candidates())
            return super().predict(rewriter, candidates, **options)

    later: set[str] = set()
    rewriter = Rewriter(
        GraphView(clone_for_compile(chains).graph), PatternTable([TanhToSin(), SinToRoot()])
    )
    settings = Settings(relaxed=relaxed)
    Planner(rewriter, Looks(by_pattern()), settings, training=False).plan()
    assert "tanh_to_sin" in later
    assert ("sin_to_root" in later) == relaxed


# ---- steps that lose alone, and steps that are likely
