"""Several plans at once: answers in the order of the questions, failures as censored records."""

from __future__ import annotations

import multiprocessing
import time
from functools import partial

import collecting
import pytest

from passwright.training.farm import Farm
from passwright.training.model_plan import ModelPlan
from passwright.training.processes import ProcessWorker
from passwright.training.records import Status


def farm(**how: float) -> Farm:
    context = multiprocessing.get_context("fork")
    launch = partial(ProcessWorker, context, collecting.work)
    return Farm(collecting.NAMES[0], ["cpu"], 2, launch=launch, **how)  # type: ignore[arg-type]


def test_answers_come_in_order() -> None:
    plans = [ModelPlan(key=f"{n}", by="search") for n in range(7)]
    with farm() as workers:
        found = workers.records(plans)
        again = workers.records(plans[:1])
    assert [r.result for r in found] == [plan.key for plan in plans]
    assert {r.status for r in found} == {Status.MEASURED}
    assert again[0].result == "0"


@pytest.mark.parametrize("what", [collecting.CRASH, collecting.HANG])
def test_a_bad_plan_costs_one_record(what: str) -> None:
    keys = ["a", what, "b", "c"]
    with farm(patience=3.0) as workers:
        found = workers.records([ModelPlan(key=key, by="search") for key in keys])
    assert [r.status for r in found] == [
        Status.MEASURED,
        Status.CENSORED,
        Status.MEASURED,
        Status.MEASURED,
    ]
    assert found[1].why


def test_what_is_not_done_in_time_is_left_out() -> None:
    plans = [ModelPlan(key=key, by="search") for key in ("a", "hang 1", "hang 2", "b")]
    with farm(patience=60.0) as workers:
        workers.records(plans[:1])  # so that two workers are there
        start = time.monotonic()
        found = workers.records(plans, within=2.0)
        assert time.monotonic() - start < 5.0
        # Nobody got to the last one, and nothing is said about those that were cut off.
        assert [r.result for r in found] == ["a"]
        assert [r.result for r in workers.records(plans[3:], within=30.0)] == ["b"]
        assert workers.records(plans, within=0.0) == []


def test_a_plan_that_is_late_by_itself_is_censored() -> None:
    with farm(patience=1.0) as workers:
        [found] = workers.records([ModelPlan(key=collecting.HANG, by="search")], within=60.0)
    assert found.status == Status.CENSORED
    assert "longer than it may" in found.why
