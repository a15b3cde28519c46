"""The search problem of a real model: sequences become plans, equal graphs are measured once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from passwright.scheduler.device import describe_gpu
from passwright.training.collect_worker import censored
from passwright.training.model_plan import ModelPlan
from passwright.training.records import Record, Status
from passwright.training.search.models import PLANNED, ModelProblem
from passwright.training.search.study import search
from passwright.training.workloads import build
from passwright.training.workloads.capture import captured

NAME = "own:norm_branches?fields=4@batch=32,precision=fp32,mode=infer,seed=0"


class FakeFarm:
    """Measures what the steps of a plan are said to gain."""

    def __init__(self, gains: dict[str, float]) -> None:
        self.gains = gains
        self.asked: list[ModelPlan] = []

    def records(self, plans: Sequence[ModelPlan], *, seconds: float = 2.0) -> list[Record]:
        self.asked += plans
        return [self._record(plan) for plan in plans]

    def _record(self, plan: ModelPlan) -> Record:
        patterns = {step.pattern for p in plan.plans for step in p.steps}
        found = censored(NAME, plan, "refused", "", "cpu")
        if "batch_branches" in patterns:
            return found
        gain = sum(self.gains.get(pattern, 0.0) for pattern in patterns)
        return replace(found, status=Status.MEASURED, why="", gain=gain, lower=gain, upper=gain)


@pytest.fixture(scope="module")
def graphs() -> Any:
    module, inputs = build("own:norm_branches?fields=4", batch=32)
    return captured(module, inputs, train=False)


@pytest.fixture
def farm() -> FakeFarm:
    return FakeFarm({"batch_linears": 0.4, "batch_layer_norms": -0.1, "linear_to_one": 0.05})


@pytest.fixture
def problem(graphs: Any, farm: FakeFarm) -> ModelProblem:
    device = describe_gpu("NVIDIA H200")
    return ModelProblem(graphs, device, farm, training=False)  # type: ignore[arg-type]


def test_the_alphabet_and_the_starts(problem: ModelProblem) -> None:
    assert PLANNED in problem.alphabet
    assert any(label.startswith("batch_linears") for label in problem.alphabet)
    starts = problem.starts
    assert starts[0] == ()
    assert (PLANNED,) in starts
    assert len(set(starts)) == len(starts)


def test_a_sequence_becomes_steps(problem: ModelProblem) -> None:
    label = next(a for a in problem.alphabet if a.startswith("batch_linears"))
    plan = problem.plan_of((label,))
    assert "batch_linears" in {s.pattern for p in plan.plans for s in p.steps}
    assert plan.by == "search"
    assert problem.score((label,)) == plan.predicted.mean  # type: ignore[union-attr]
    assert problem.plan_of(()).steps == 0


def test_what_makes_the_same_graphs_is_measured_once(problem: ModelProblem, farm: FakeFarm) -> None:
    label = next(a for a in problem.alphabet if a.startswith("batch_linears"))
    twice = problem.measure([(label,), (label, label), ()])
    assert twice[0] == twice[1] == pytest.approx(0.4)
    assert twice[2] == 0.0
    assert len(farm.asked) == 2
    assert problem.measure([(label,)]) == [twice[0]]
    assert len(farm.asked) == 2
    branches = next(a for a in problem.alphabet if a.startswith("batch_branches"))
    assert problem.measure([(branches,)]) == [None]
    assert problem.confirm([(label,)]) == [pytest.approx(0.4)]
    assert len(farm.asked) == 4  # confirming measures anew


def test_the_search_finds_what_is_best(problem: ModelProblem) -> None:
    outcome = search(problem, trials=14, seed=0, batch=2)
    assert outcome.best is not None
    assert any(label.startswith("batch_linears") for label in outcome.best) or outcome.best == (
        PLANNED,
    )
    assert outcome.gain >= 0.4
    assert outcome.trials <= 15
