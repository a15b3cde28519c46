"""Where predictions cost most, and what is written about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from passwright.scheduler.sites import Site
from passwright.training import evaluation_table
from passwright.training.baselines import Analytic
from passwright.training.evaluate_run import evaluate
from passwright.training.failures import by_family, by_novelty, by_pattern
from passwright.training.gain_eval import WORKLOAD, held_out, plans_of
from passwright.training.gain_metrics import Plans
from passwright.training.model_card import card
from passwright.training.policy import controls, risk_coverage
from passwright.training.samples import WorkloadSamples
from tests.support.gains import samples


def plans(family: str, gains: list[float], predicted: list[float], *names: str) -> Plans:
    measured, said = np.array([0.0, *gains]), np.array([0.0, *predicted])
    sets = (frozenset[str](), *(frozenset({name}) for name in names))
    return Plans("own:m@x", family, measured, np.zeros(len(measured)), said, patterns=sets)


def test_the_family_that_costs_most_comes_first() -> None:
    wrong = plans("wrong", [0.5, -0.5], [-0.1, 0.1], "a", "b")
    right = plans("right", [0.5, -0.5], [0.4, -0.4], "a", "b")
    first, second = by_family([right, wrong, right])
    assert (first["family"], first["graphs"]) == ("wrong", 1)
    assert first["top1"] == pytest.approx(np.expm1(1.0))
    assert (second["family"], second["graphs"], second["top1"]) == ("right", 2, 0.0)
    assert first["tau"] == pytest.approx(-1.0)


def test_patterns_have_the_mean_error_of_plans_with_them() -> None:
    found = plans("f", [0.5, -0.5], [0.4, 0.1], "a", "b")
    assert by_pattern([found]) == [
        {"pattern": "b", "plans": 1, "error": pytest.approx(0.6), "bias": pytest.approx(-0.6)},
        {"pattern": "a", "plans": 1, "error": pytest.approx(0.1), "bias": pytest.approx(0.1)},
    ]


def test_plans_know_who_proposed_them_and_their_patterns() -> None:
    [one] = samples(1)
    found = plans_of(one, Analytic())
    assert found.by == ("nothing", *["walk"] * 9)
    assert found.patterns[0] == frozenset()
    assert found.patterns[1] == {one.steps[0].example.pattern}
    assert len(found.patterns) == len(found.gains)


def test_controls_are_plans_that_nobody_chose_by_predictions() -> None:
    known = [plans_of(one, Analytic()) for one in samples(6)]
    found = controls(known)
    assert set(found) == {"nothing", "random order"}
    assert found["nothing"].speedup == 1.0
    first = [one.gains[1] for one in known]
    assert found["random order"].speedup == pytest.approx(np.exp(np.mean(first)))


def test_patterns_that_were_held_out_are_told_apart() -> None:
    known = samples(6)

    def learn(_: Sequence[WorkloadSamples], seed: int) -> Analytic:
        return Analytic(seed)

    assert not any(any(plans.strange) for plans in held_out(known, learn, count=3))
    renamed = [replace(known[0], steps=tuple(map(strange, known[0].steps))), *known[1:]]
    first, *rest = held_out(renamed, learn, count=3)
    assert first.strange == (False, *[True] * 9)
    assert not any(any(plans.strange) for plans in rest)
    assert by_novelty([first, *rest])["new pattern"]["plans"] == 9


def strange(step: Site) -> Site:
    return replace(step, example=replace(step.example, pattern="unheard_of"))


def test_single_workloads_are_held_out_if_that_is_wanted() -> None:
    seen: list[set[str]] = []

    def learn(part: Sequence[WorkloadSamples], seed: int) -> Analytic:
        seen.append({one.workload for one in part})
        return Analytic(seed)

    known = [replace(one, family="one and the same") for one in samples(6)]
    held_out(known, learn, count=3, by=WORKLOAD)
    assert [len(names) for names in seen] == [4, 4, 4]
    seen.clear()
    held_out(known, learn, count=3)
    assert seen == [set()]


def test_the_surest_graphs_come_first() -> None:
    sure, unsure = plans("f", [0.3], [0.5], "a"), plans("f", [-0.2], [0.1], "a")
    rows = risk_coverage([unsure, sure, unsure, unsure])
    assert rows[1] == {"share": 0.25, "speedup": pytest.approx(np.exp(0.3)), "slower": 0.0}
    assert rows[-1]["share"] == 1.0
    assert rows[-1]["slower"] == 0.75
    assert risk_coverage([]) == []


def test_an_evaluation_and_a_model_are_told_of() -> None:
    known = samples(12)
    found = evaluate(known, ("ridge", "analytic"), folds=3)
    text = evaluation_table.markdown(found)
    assert "| ridge |" in text
    assert "| random order | 12 |" in text
    assert "Families whose first choices cost most" in text
    assert "Acting on the surest graphs alone" in text
    about = {
        "device": "d",
        "plans": 1,
        "workloads": 1,
        "families": ["f"],
        "passwright": "0",
        "seed": 0,
    }
    written = card(about, [plans_of(one, Analytic()) for one in known])
    assert "| come out slower than 0.98x | 0 | 0 |" in written
    assert "Intervals of 90 %" in written
