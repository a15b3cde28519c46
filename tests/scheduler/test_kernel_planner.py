"""Choosing among kernels: the surest gain first, nothing that conflicts, and the same again by replay."""

from __future__ import annotations

import itertools

import pytest
from kernel_views import Recorder, chains, kernel

from passwright.passes.inductor.kernels import KernelView
from passwright.passes.inductor.pattern import When
from passwright.passes.inductor.table import kernel_patterns
from passwright.scheduler.device import describe_gpu
from passwright.scheduler.kernel_cost import KernelCost
from passwright.scheduler.kernel_planner import KernelPlanner, KernelReplayer, candidates
from passwright.scheduler.plan import CUT_SHORT, Plan
from passwright.scheduler.settings import Settings

H200 = describe_gpu("NVIDIA H200")


def planned(view: KernelView, recorder: Recorder | None = None, **settings: object) -> Plan:
    planner = KernelPlanner(kernel_patterns(), H200, Settings(**settings))  # type: ignore[arg-type]
    editor = recorder or Recorder()
    for when in When:
        planner.choose(view, when, editor)
    return planner.plan(view.fingerprint, len(view), len(view))


def test_independent_small_kernels_are_put_together() -> None:
    recorder = Recorder()
    plan = planned(chains(*[2] * 6), recorder)
    done = [set(members) for _, members in recorder.done]
    assert plan.steps
    assert plan.predicted.lower > 0.3
    assert set().union(*done) == {f"{letter}{n}" for letter in "abcdef" for n in range(2)}
    assert all(not a & b for a, b in itertools.combinations(done, 2))


def test_large_kernels_gain_nothing() -> None:
    moved = 2 * (1 << 22) * 4
    view = KernelView([kernel(f"k{n}", elements=1 << 22, moved=moved) for n in range(2)])
    assert not planned(view).steps
    assert planned(view).left


def test_what_is_refused_is_left_out_with_the_reason() -> None:
    plan = planned(chains(1, 1), Recorder(refuse=["combine", "fuse"]))
    assert not plan.steps
    assert {item.reason for item in plan.left} == {"no combine here", "no fuse here"}


def test_a_wide_cat_is_kept_apart_where_it_costs() -> None:
    def steps(width: int) -> list[str]:
        cat = kernel("cat", elements=2048 * width, parts=26, moved=2 * 2048 * width * 4)
        norm = kernel("norm", "reduction", elements=2048, reduced=width, moved=cat.moved)
        view = KernelView([cat, norm], {"norm": ["cat"]})
        return [step.pattern for step in planned(view).steps]

    assert steps(2048) == ["keep_cats_apart"]
    assert steps(512) == []  # a row that is held as a whole: the cat is computed once


def test_the_time_budget_ends_it() -> None:
    planner = KernelPlanner(
        kernel_patterns(), H200, Settings(time_budget=0.5), clock=itertools.count().__next__
    )
    planner.choose(chains(1, 1, 1), When.AFTER_FUSION, Recorder())
    plan = planner.plan("f", 3, 3)
    assert not plan.steps
    assert plan.stopped == CUT_SHORT


def test_a_plan_replays_from_its_text() -> None:
    view = chains(*[2] * 5)
    recorder, again = Recorder(), Recorder()
    plan = planned(view, recorder)
    replayer = KernelReplayer(Plan.from_text(plan.to_text()), kernel_patterns())
    for when in When:
        replayer.choose(view, when, again)
    assert again.done == recorder.done
    replayed = replayer.plan(view.fingerprint, 10, 10)
    assert [s.label for s in replayed.steps] == [s.label for s in plan.steps]
    assert not replayed.skipped


def test_steps_without_a_counterpart_are_skipped_and_named() -> None:
    plan = planned(chains(*[2] * 5))
    replayer = KernelReplayer(plan, kernel_patterns())
    for when in When:
        replayer.choose(chains(1, 1), when, Recorder())
    replayed = replayer.plan("f", 2, 2)
    assert len(replayed.skipped) == len(plan.steps)
    assert "not found among these kernels" in replayed.skipped[0]


def test_a_cpu_has_no_such_choices() -> None:
    assert candidates(chains(1, 1), kernel_patterns(), When.AFTER_FUSION, "cpu") == []


def test_gains_are_of_the_whole_graph() -> None:
    """The same pair gains less in a graph that takes longer."""
    gains = []
    for others in (0, 1):
        product = kernel("p", "extern", flops=1e10, dtype="float32")
        view = KernelView([kernel("a"), kernel("b"), *[product] * others])
        [pair] = candidates(view, kernel_patterns()[:1], When.AFTER_FUSION, "cuda")
        gains.append(KernelCost(view, H200).gain(pair).mean)
    assert gains[0] > 10 * gains[1] > 0


@pytest.mark.parametrize("kind", ["extern", "template"])
def test_products_take_their_arithmetic(kind: str) -> None:
    small, large = (
        KernelCost(KernelView([product := kernel("p", kind, flops=flops, dtype="float32")]), H200)
        .seconds(product)
        .total
        for flops in (1e6, 1e12)
    )
    assert large > 100 * small
