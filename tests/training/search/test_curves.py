"""Curves of samplers on a model: everybody starts alike, and nothing is measured twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from passwright.scheduler.device import describe_gpu
from passwright.training.collect_worker import censored
from passwright.training.model_plan import ModelPlan
from passwright.training.records import Record, Status
from passwright.training.search import curve_runs
from passwright.training.search.curve_runs import Curve, Job, Remembering, confirmed, curve, rows_of
from passwright.training.search.models import ModelProblem
from passwright.training.store import Store
from passwright.training.workloads import build
from passwright.training.workloads.capture import captured

NAME = "own:norm_branches?fields=4@batch=32,precision=fp32,mode=infer,seed=0"


class FakeFarm:
    """Says that each step gains a tenth."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def records(self, plans: Sequence[ModelPlan], *, seconds: float = 2.0) -> list[Record]:
        self.asked += [plan.key for plan in plans]
        return [
            replace(
                censored(NAME, plan, "", "", "cpu"), status=Status.MEASURED, gain=plan.steps / 10
            )
            for plan in plans
        ]


@pytest.mark.parametrize("sampler", ["local", "tpe", "random"])
def test_a_curve_never_falls_and_nothing_is_measured_twice(sampler: str, tmp_path: Path) -> None:
    module, inputs = build("own:norm_branches?fields=4", batch=32)
    graphs = captured(module, inputs, train=False)
    farm: Any = FakeFarm()
    with Store(tmp_path) as store:
        source: Any = Remembering(farm, store)

        def fresh() -> ModelProblem:
            return ModelProblem(graphs, describe_gpu("NVIDIA H200"), source, training=False)

        found = curve(fresh(), sampler, trials=6, seed=0, batch=2)
        assert found.complete
        assert len(found.gains) == len(found.trials) >= 6
        assert found.gains == sorted(found.gains)
        assert found.gains[-1] > 0
        assert len(set(farm.asked)) == len(farm.asked) == len(store.records())
        # The same again measures nothing.
        before = len(farm.asked)
        assert curve(fresh(), sampler, trials=6, seed=0, batch=2) == found
        assert len(farm.asked) == before


def test_what_others_measure_meanwhile_is_not_measured_again(tmp_path: Path) -> None:
    one, two = FakeFarm(), FakeFarm()
    plans = [ModelPlan(key=name) for name in ("a", "b", "c")]
    here, there = tmp_path / "here", tmp_path / "there"
    with Store(here) as store, Store(there) as other:
        ours: Any = Remembering(one, store, (there,))  # type: ignore[arg-type]
        theirs: Any = Remembering(two, other, (here,))  # type: ignore[arg-type]
        ours.records(plans[:1])
        assert theirs.records(plans[:2]) == ours.records(plans[:2])
        assert (one.asked, two.asked) == (["a"], ["b"])
        picky = Remembering(one, store, (there,), lambda record: record.result != "b")  # type: ignore[arg-type]
        picky.records(plans[:2])
        assert one.asked == ["a", "b"]


@pytest.mark.parametrize("sampler", ["local", "random"])
def test_a_curve_goes_on_from_the_trials_that_it_had(sampler: str, tmp_path: Path) -> None:
    module, inputs = build("own:norm_branches?fields=4", batch=32)
    graphs = captured(module, inputs, train=False)
    farm: Any = FakeFarm()

    def fresh() -> ModelProblem:
        return ModelProblem(graphs, describe_gpu("NVIDIA H200"), farm, training=False)

    first = curve(fresh(), sampler, trials=4, seed=0, batch=2)
    asked = len(farm.asked)
    again = curve(fresh(), sampler, trials=4, seed=0, batch=2, begun=first.trials)
    assert again == first
    assert len(farm.asked) == asked
    longer = curve(fresh(), sampler, trials=6, seed=0, batch=2, begun=first.trials)
    assert longer.trials[:4] == first.trials
    assert len(longer.gains) == 6
    # What has no place in this search begins anew.
    other = curve(fresh(), sampler, trials=4, seed=0, batch=2, begun=[(("gone",), 0.1)])
    assert ("gone",) not in dict(other.trials)
    assert len(other.gains) == 4


def test_the_best_after_so_many_trials() -> None:
    found = Curve()
    told = ((("a",), 0.1), (("b",), None), (("c",), 0.05), ((), -0.1), (("d",), 0.3), (("e",), 0.2))
    for sequence, gain in told:
        found.told(sequence, gain)
    assert found.gains == [0.1, 0.1, 0.1, 0.1, 0.3, 0.3]
    assert found.best(1) == [("a",)]
    assert found.best(4) == [("a",), ("c",)]
    assert found.best(6) == [("d",), ("e",), ("a",)]


class Wavering(FakeFarm):
    """Says another gain at each time: by the key of a plan."""

    def __init__(self, gains: dict[str, list[float | None]]) -> None:
        super().__init__()
        self._left = {key: list(values) for key, values in gains.items()}

    def records(self, plans: Sequence[ModelPlan], *, seconds: float = 2.0) -> list[Record]:
        return [
            replace(record, gain=self._left[record.result].pop(0))
            for record in super().records(plans, seconds=seconds)
        ]


def test_what_was_found_is_chosen_and_measured_again() -> None:
    module, inputs = build("own:norm_branches?fields=4", batch=32)
    problem = ModelProblem(
        captured(module, inputs, train=False),
        describe_gpu("NVIDIA H200"),
        FakeFarm(),  # type: ignore[arg-type]
        training=False,
    )
    plans = {(label,): problem.plan_of((label,)) for label in problem.alphabet}
    different = {plan.key: sequence for sequence, plan in plans.items() if plan.steps}
    one, two, three = list(different.values())[:3]
    gains: dict[str, list[float | None]] = {
        plans[one].key: [0.5, 0.1, 0.3, 0.2],
        plans[two].key: [0.4, 0.6, 0.6, 0.6],
        plans[three].key: [-0.1, None, 0.9, 0.9],
    }
    farm: Any = Wavering(gains)
    nothing, first, second, slow = confirmed(problem, farm, [[], [one, two], [two], [three]])
    # Each was measured four times, however often it was found.
    assert len(farm.asked) == 12
    assert first["steps"] == [step.label for plan in plans[one].plans for step in plan.steps]
    # What chose it does not count.
    assert (first["gains"], first["gain"]) == ([0.1, 0.3, 0.2], 0.2)
    assert second["gain"] == 0.6
    assert nothing["gain"] == slow["gain"] == 0.0
    assert slow["steps"] == []


@pytest.mark.inductor
def test_rows_of_a_model_and_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curve_runs, "_BEST", 1)
    monkeypatch.setattr(curve_runs, "_AGAIN", 2)
    job = Job(NAME, "cpu", 1, tmp_path / "plans", (), {"local": 4, "random": 3}, (3,), together=2)
    said: list[str] = []
    rows = rows_of(job, [], said.append)
    assert [(row["sampler"], row["complete"]) for row in rows] == [
        ("local", True),
        ("random", True),
    ]
    assert set(rows[0]["confirmed"]) == {"3", str(len(rows[0]["gains"]))}
    assert any("local: 3 trials" in line for line in said)
    measured = len(Store(tmp_path / "plans").records())
    assert rows_of(job, rows) == rows
    row = rows[0]
    assert len(row["sequences"]) == len(row["measured"]) == len(row["gains"])
    half = {**row, "complete": False} | {
        name: row[name][:2] for name in ("gains", "sequences", "measured")
    }
    (again, _) = rows_of(job, [half, rows[1]])
    assert again["complete"]
    assert again["sequences"][:2] == row["sequences"][:2]
    measured = len(Store(tmp_path / "plans").records())
    assert rows_of(replace(job, until=0.0), []) == []
    # What there is no time for stays, with all that is known of it.
    assert rows_of(replace(job, until=0.0), [half, rows[1]]) == [half, rows[1]]
    assert len(Store(tmp_path / "plans").records()) == measured
