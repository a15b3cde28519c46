"""Samples made of hand-made records: which steps a plan has, and what is left out."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from record_rows import record
from torch import fx

from passwright.features import schema
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate
from passwright.passes.table import PatternTable, default_table
from passwright.scheduler.device import describe_cpu
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.plan import SETTING, Plan, Step
from passwright.scheduler.sites import SiteReader
from passwright.training.labels import ZERO, Label, by_graph
from passwright.training.plan_text import graphs_key, plan_key, text_of
from passwright.training.records import Record, Status
from passwright.training.samples import PlanSample, WorkloadSamples, samples_of
from passwright.training.workloads.capture import captured
from passwright.training.workloads.exact import build_exact

DEVICE = describe_cpu("AVX2", threads=2, name="two cores", cache_bytes=32 << 20)
NAME = "own:norm_branches?fields=3@batch=4,precision=fp32,mode={mode},seed=0"
HALF = 0.02


@functools.cache
def graphs(train: bool = False) -> list[fx.GraphModule]:
    """Of three branches LayerNorm, Linear and an activation."""
    name = NAME.format(mode="train" if train else "infer")
    return captured(*build_exact(name, torch.device("cpu")), train=train)


def step_of(candidate: Candidate) -> Step:
    name = candidate.pattern.name()
    return Step(name, candidate.anchor, candidate.key, candidate.shown_parameters)


@functools.cache
def known_steps(train: bool = False) -> tuple[str, Step, Step, Step]:
    """The graph's fingerprint, a step, another that is there after it alone, and a third that is there
    with or without them."""
    with torch.set_grad_enabled(train):
        view = GraphView(clone_for_compile(graphs(train)[0]).graph)
        rewriter = Rewriter(view, default_table())
        there = rewriter.candidates(cleanup=False)
        for first in there:
            with rewriter.rehearsal():
                rewriter.apply(first)
                after = {c.order: c for c in rewriter.candidates(cleanup=False)}
            new = [c for order, c in after.items() if order not in {c.order for c in there}]
            kept = [c for c in there if c.order in after]
            if new and kept:
                return view.fingerprint, step_of(first), step_of(new[0]), step_of(kept[0])
    raise LookupError("no such steps in this graph")


def plan_record(*plans: Plan, **changes: Any) -> Record:
    """A record of these plans, which gained 0.1 unless told otherwise."""
    made = {
        "workload": NAME.format(mode="infer"),
        "graph": graphs_key([plan.fingerprint for plan in plans]),
        "plan": text_of(plans),
        "plan_key": plan_key(plans),
        "steps": sum(len(plan.steps) for plan in plans),
    }
    return record(**made | changes)


def records_of(*plans: Sequence[Step], **changes: Any) -> list[Record]:
    fingerprint = known_steps()[0]
    return [plan_record(Plan(fingerprint, steps=tuple(steps)), **changes) for steps in plans]


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Labels of the candidates that are looked at."""
    seen: list[str] = []
    read = SiteReader.read

    def counting(self: SiteReader, rewriter: Rewriter, candidates: Any, *rest: Any) -> Any:
        seen.extend(candidate.label for candidate in candidates)
        return read(self, rewriter, candidates, *rest)

    monkeypatch.setattr(SiteReader, "read", counting)
    return seen


def numbers(found: WorkloadSamples) -> list[tuple[int, ...]]:
    return [plan.steps for plan in found.plans]


def patterns(found: WorkloadSamples) -> list[str]:
    return [site.example.pattern for site in found.steps]


def test_steps_of_plans_that_begin_alike_are_looked_at_once(looked_at: list[str]) -> None:
    _, a, b, _ = known_steps()
    found = samples_of(records_of([a], [a, b], [a, b], [a]), graphs(), DEVICE)
    assert numbers(found) == [(0,), (0, 1), (0, 1), (0,)]
    assert patterns(found) == [a.pattern, b.pattern]
    assert looked_at == [a.label, b.label]


def test_a_longer_plan_first_tells_the_shorter_one_too(looked_at: list[str]) -> None:
    _, a, b, _ = known_steps()
    assert numbers(samples_of(records_of([a, b], [a]), graphs(), DEVICE)) == [(0, 1), (0,)]
    assert looked_at == [a.label, b.label]


def test_a_step_after_others_is_another_step(looked_at: list[str]) -> None:
    _, a, _, c = known_steps()
    found = samples_of(records_of([c], [a, c], [a]), graphs(), DEVICE)
    assert numbers(found) == [(0,), (1, 2), (1,)]
    assert patterns(found) == [c.pattern, a.pattern, c.pattern]
    assert looked_at == [c.label, a.label, c.label]


def test_each_step_is_seen_on_the_graph_that_those_before_left() -> None:
    _, a, b, _ = known_steps()
    found = samples_of(records_of([a, b]), graphs(), DEVICE)
    place = schema.GRAPH.index("log_nodes")
    seen = [float(site.example.graph[place]) for site in found.steps]

    view = GraphView(clone_for_compile(graphs()[0]).graph)
    rewriter = Rewriter(view, default_table())
    expected = []
    for step in (a, b):
        expected.append(math.log1p(len(list(view.nodes()))))
        candidate = rewriter.find(step.anchor, step.key)
        assert candidate is not None
        rewriter.apply(candidate)
    assert seen == pytest.approx(expected)
    assert seen[0] != seen[1]


def test_the_graph_is_left_as_it_was() -> None:
    fingerprint, a, b, _ = known_steps()
    samples_of(records_of([a, b]), graphs(), DEVICE)
    assert GraphView(graphs()[0].graph).fingerprint == fingerprint


# ---- what is left out, and what is not


def test_a_plan_with_a_step_that_is_not_found_is_left_out() -> None:
    _, a, b, _ = known_steps()
    gone = Step("batch_linears", "0" * 12, "0" * 12, "{members=3}")
    found = samples_of(records_of([a, gone], [gone], [b], [a, b]), graphs(), DEVICE)
    assert numbers(found) == [(0, 1)]


def test_a_plan_of_a_graph_that_is_not_there_is_left_out() -> None:
    fingerprint, a, _, _ = known_steps()
    there, elsewhere = (Plan(name, steps=(a,)) for name in (fingerprint, "0" * 24))
    found = samples_of(
        [plan_record(elsewhere), plan_record(there, elsewhere), plan_record(there)],
        graphs(),
        DEVICE,
    )
    assert numbers(found) == [(0,)]


def test_a_graph_without_steps_plays_no_part() -> None:
    fingerprint, a, _, _ = known_steps()
    plans = Plan(fingerprint, steps=(a,)), Plan("0" * 24, level="aten")
    assert numbers(samples_of([plan_record(*plans)], graphs(), DEVICE)) == [(0,)]


def test_a_plan_that_sets_inductor_as_well_is_left_out() -> None:
    """What it gains is not what its steps gain."""
    _, a, _, _ = known_steps()
    setting = Step("combo_kernels", SETTING, "on")
    found = samples_of(records_of([a, setting], [setting], [a]), graphs(), DEVICE)
    assert numbers(found) == [(0,)]


def test_a_refused_step_is_one_that_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from passwright.passes.errors import IllegalRewrite

    def refuse(*_: Any) -> None:
        raise IllegalRewrite("not here")

    _, a, _, _ = known_steps()
    records = records_of([a], [])
    monkeypatch.setattr(Rewriter, "apply", refuse)
    found = samples_of(records, graphs(), DEVICE)
    assert numbers(found) == [()]
    assert found.steps == ()


def test_a_pattern_that_the_table_has_not_is_not_found() -> None:
    _, a, _, _ = known_steps()
    table = PatternTable([p for p in default_table() if p.name() != a.pattern])
    assert numbers(samples_of(records_of([a]), graphs(), DEVICE, table)) == []


def test_censored_records_are_left_out(looked_at: list[str]) -> None:
    _, a, _, _ = known_steps()
    censored = records_of([a], status=Status.CENSORED, gain=None)
    found = samples_of([*censored, *records_of([])], graphs(), DEVICE)
    assert numbers(found) == [()]
    assert not looked_at


def test_an_empty_plan_has_no_steps() -> None:
    [empty] = records_of([])
    assert empty.plan == ""
    found = samples_of([empty], graphs(), DEVICE)
    assert numbers(found) == [()]
    assert found.steps == ()


# ---- labels and names


def test_labels_are_those_of_the_records() -> None:
    _, a, b, _ = known_steps()
    [gains] = records_of([a], gain=0.3, proposed_by="search")
    [same] = records_of([a, b], status=Status.SAME_CODE, gain=0.0, proposed_by="prefix")
    found = samples_of([gains, same], graphs(), DEVICE)
    label = Label(0.3, pytest.approx(0.3 - HALF), pytest.approx(0.3 + HALF), 0.01)
    assert found.plans == (
        PlanSample((0,), label, "search"),
        PlanSample((0, 1), ZERO, "prefix"),
    )
    assert found.plans[1].label.gain == 0


def test_the_samples_say_of_what_they_are() -> None:
    found = samples_of(records_of([], family="f", kind="cut", device="some GPU"), graphs(), DEVICE)
    about = (found.workload, found.family, found.kind, found.device)
    assert about == (NAME.format(mode="infer"), "f", "cut", "some GPU")


@pytest.mark.parametrize("train", [False, True])
def test_steps_are_looked_at_in_the_grad_mode_of_the_compile(
    train: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patterns may ask whether gradients are wanted."""
    fingerprint, a, _, _ = known_steps(train)
    modes = []
    read = SiteReader.read

    def noting(*arguments: Any) -> Any:
        modes.append(torch.is_grad_enabled())
        return read(*arguments)

    monkeypatch.setattr(SiteReader, "read", noting)
    made = plan_record(Plan(fingerprint, training=train, steps=(a,)), train=train)
    with torch.set_grad_enabled(not train):
        samples_of([made], graphs(train), DEVICE)
        assert torch.is_grad_enabled() is not train
    assert modes == [train]


def test_training_is_seen_as_such() -> None:
    fingerprint, a, _, _ = known_steps(True)
    made = plan_record(Plan(fingerprint, training=True, steps=(a,)), train=True)
    with torch.no_grad():
        found = samples_of([made], graphs(True), DEVICE)
    assert numbers(found) == [(0,)]
    assert found.steps[0].example.graph[schema.GRAPH.index("is_training")] == 1
    assert found.steps[0].example.nodes[:, schema.NODE.index("needs_grad")].any()


def test_the_same_records_give_the_same_samples() -> None:
    _, a, b, c = known_steps()
    records = records_of([a, b], [c], [a])
    first, second = (samples_of(records, graphs(), DEVICE) for _ in range(2))
    assert first.plans == second.plans
    for one, other in zip(first.steps, second.steps, strict=True):
        assert one.analytic == other.analytic
        assert np.array_equal(one.example.site, other.example.site)
        assert np.array_equal(one.example.nodes, other.example.nodes)


def test_records_that_share_graph_levels_and_device_belong_together() -> None:
    usual = record("a")
    others = [
        record("a", device="another"),
        record("a", workload="own:other@batch=8,precision=fp32,mode=infer,seed=0"),
        record("a", graph="0" * 24),
        record("a", levels="torch+aten"),
    ]
    again = record("b")
    found = by_graph([usual, *others, again])
    assert found == [[usual, again], *([other] for other in others)]
