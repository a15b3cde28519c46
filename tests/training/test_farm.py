"""Several plans at once: answers in the order of the questions, failures as censored records."""

from __future__ import annotations

import multiprocessing
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
