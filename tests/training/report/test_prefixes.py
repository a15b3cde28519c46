"""Steps of all graphs and levels in one order, prefixes of them, and plans that are applied as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from record_rows import plan_of
from torch import nn

from passwright.scheduler.commands.models import Subject
from passwright.scheduler.commands.plan import PlannedGraph, plan_model
from passwright.scheduler.gain import Interval
from passwright.scheduler.optimize import Applied, collect_plans
from passwright.scheduler.plan import SETTING, Plan, Step
from passwright.scheduler.settings import Settings
from passwright.training.report.measure_steps import Timed
from passwright.training.report.model_content import DEFAULT, PASSWRIGHT, Variant
from passwright.training.report.parts import left_parts, measured_parts, reason_for, step_parts
from passwright.training.report.prefixes import (
    Placed,
    alike,
    first_steps,
    gain_of,
    in_order,
    levels_of,
    plans_of,
)
from passwright.training.report.replaying import replaying


def planned(torch_plan: Plan, *below: Plan) -> PlannedGraph:
    applied = tuple(Applied(plan, Path("x.json"), stored=False, seconds=0.1) for plan in below)
    return PlannedGraph(torch_plan, below=applied)


def aten(*patterns: str, graph: str, ops: int = 10) -> Plan:
    return plan_of(*patterns, graph=graph).replaced(level="aten", ops_before=ops)


@pytest.fixture
def two_graphs() -> list[PlannedGraph]:
    setting = Step("combo_kernels", SETTING, "k")
    first = plan_of("a", "b", graph="g1").replaced(ops_before=30)
    first = first.replaced(steps=(*first.steps, setting))
    second = plan_of("c", graph="g2").replaced(ops_before=10)
    kernels = plan_of("k", graph="g4").replaced(level="inductor", ops_before=5)
    return [planned(first, aten("d", graph="g3"), kernels), planned(second)]


def names(order: list[Placed]) -> list[str]:
    return [placed.step.pattern for placed in order]


def test_rewrites_come_before_settings_and_those_before_levels_below(
    two_graphs: list[PlannedGraph],
) -> None:
    order = in_order(two_graphs)
    assert names(order) == ["a", "b", "c", "combo_kernels", "d", "k"]
    assert [placed.graph for placed in order] == [1, 1, 2, 1, 1, 1]
    assert [placed.weight for placed in order] == [0.75, 0.75, 0.25, 0.75, 1.0, 1.0]
    assert [part.level for part in step_parts(order)][-2:] == ["aten", "inductor"]


def test_graphs_that_are_alike_count_once(two_graphs: list[PlannedGraph]) -> None:
    assert len(plans_of([*two_graphs, two_graphs[0]])) == len(plans_of(two_graphs))


def test_graphs_weigh_as_often_as_they_come(two_graphs: list[PlannedGraph]) -> None:
    again = [*two_graphs, two_graphs[1]]
    counts = alike(again)
    assert (counts["g1"], counts["g2"], counts["g3"]) == (1, 2, 1)
    weights = {placed.step.pattern: placed.weight for placed in in_order(two_graphs, counts)}
    assert (weights["a"], weights["c"]) == (30 / 50, 20 / 50)


def test_a_prefix_holds_its_steps_alone(two_graphs: list[PlannedGraph]) -> None:
    order = in_order(two_graphs)

    def of(count: int) -> list[list[str]]:
        return [[step.pattern for step in plan.steps] for plan in first_steps(order, count)]

    assert of(0) == []
    assert of(1) == [["a"]]
    assert of(3) == [["a", "b"], ["c"]]
    assert of(6) == [["a", "b", "combo_kernels"], ["c"], ["d"], ["k"]]
    depths = [levels_of(first_steps(order, count)) for count in (0, 4, 5, 6)]
    assert depths == ["torch", "torch", "torch+aten", "torch+aten+inductor"]


def gains(*numbers: tuple[float, float, float], plan: Plan, weight: float = 1.0) -> list[Placed]:
    return [
        Placed(1, plan, Step("p", str(at), "k", gain=Interval(*three)), weight)
        for at, three in enumerate(numbers)
    ]


def test_gains_of_a_graph_count_by_its_share() -> None:
    small = gains((0.4, 0.2, 0.6), plan=plan_of(graph="small"), weight=0.25)
    large = gains((0.1, 0.0, 0.2), plan=plan_of(graph="large"), weight=0.75)
    found = gain_of([*small, *large])
    assert found.mean == pytest.approx(0.25 * 0.4 + 0.75 * 0.1)
    assert found.lower == pytest.approx(0.05)
    assert gain_of([]) == Interval(0.0, 0.0, 0.0)


def test_errors_that_are_independent_cancel_out() -> None:
    plan = plan_of(graph="g").replaced(independent=True)
    found = gain_of(gains((0.1, 0.0, 0.2), (0.1, 0.0, 0.2), plan=plan))
    assert found.mean - found.lower == pytest.approx(0.1 * 2**0.5)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Step("clean_up", "graph", "all"), "always helps"),
        (Step("combo_kernels", SETTING, "k"), "a setting of Inductor"),
        (Step("p", "a", "k"), "holds no predictions"),
        (Step("p", "a", "k", gain=Interval(0.1, 0.05, 0.2)), "at least 1.05x"),
        (
            Step("p", "a", "k", gain=Interval(-0.1, -0.2, 0.0), to_go=Interval(0.3, 0.2, 0.4)),
            r"loses by itself \(0.90x\), but opens the way to 1.35x",
        ),
        (
            Step("p", "a", "k", gain=Interval(0.1, -0.1, 0.3), to_go=Interval(0.2, 0.1, 0.3)),
            "with what can follow it, at least 1.11x",
        ),
        (
            Step("p", "a", "k", gain=Interval(0.1, -0.1, 0.3), to_go=Interval(0.2, -0.1, 0.3)),
            "plan as a whole is sure",
        ),
        (
            Step("p", "a", "k", to_go=Interval(0.3, 0.2, 0.4), way=2),
            r"together .*\(2 more\): 1.35x",
        ),
    ],
)
def test_every_step_has_a_reason(step: Step, words: str) -> None:
    import re

    assert re.search(words, reason_for(step))


def test_parts_follow_each_other_and_end_with_the_whole(two_graphs: list[PlannedGraph]) -> None:
    order = in_order(two_graphs)
    variants = {name: Variant(name, 1.0, 9) for name in (DEFAULT, PASSWRIGHT, "2", "4")}
    timed = Timed(variants, same={"2": DEFAULT}, why={"4": "RuntimeError: no"})
    parts = measured_parts(order, [2, 4, 6], timed)
    assert [(p.first, p.last, p.title) for p in parts] == [
        (1, 2, "steps 1 to 2"),
        (3, 4, "steps 3 to 4"),
        (5, 6, "steps 5 to 6"),
    ]
    assert parts[0].found is not None
    assert parts[0].found.same_code
    assert parts[1].why == "RuntimeError: no"
    assert parts[2].why == "what it builds on was not measured"
    assert all(part.predicted is None for part in parts)  # these plans are as read from text


def test_what_was_left_comes_likeliest_first() -> None:
    from passwright.scheduler.plan import LeftOut

    plan = plan_of("a").replaced(
        left=(
            LeftOut("x", "no", Interval(0.1, 0.0, 0.2)),
            LeftOut("y", "no", Interval(0.5, 0.0, 0.9)),
        )
    )
    assert [item.label for item in left_parts([planned(plan)])] == ["y", "x"]


# ---- plans as they are


class Split(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = torch.cat([torch.relu(piece) for piece in x.split(8, dim=1)], dim=1)
        return x


@pytest.mark.inductor
def test_plans_are_applied_by_fingerprint_and_nothing_else_is_chosen(tmp_path: Path) -> None:
    x = torch.randn(16, 64)
    subject = Subject("toy", Split(), (x,), train=False)
    settings = Settings(plan_directory=str(tmp_path), levels="torch")
    [graph] = plan_model(subject, settings)
    assert graph.plan is not None
    first = first_steps(in_order([graph]), 1)
    labels: dict[str, Any] = {}
    for name, plans in (
        ("one", first),
        ("none", []),
        ("text", [Plan.from_text(first[0].to_text())]),
    ):
        torch._dynamo.reset()
        with collect_plans() as found:
            result = torch.compile(subject.module, backend=replaying(plans, settings))(x)
        torch.testing.assert_close(result, subject.module(x))
        labels[name] = [step.label for applied in found for step in applied.plan.steps]
    assert labels["one"] == labels["text"] == [first[0].steps[0].label]
    assert labels["none"] == []
    # The plan that is kept is still whole.
    [again] = plan_model(subject, settings)
    assert again.plan == graph.plan
