"""From plans to the parts of a report: steps in order with the reason for each, what was measured of them,
what was left."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from passwright.passes.matching import CleanUp
from passwright.scheduler.commands.plan import PlannedGraph
from passwright.scheduler.plan import Plan, Step
from passwright.training.report.measure_steps import Timed
from passwright.training.report.model_content import (
    DEFAULT,
    NO_PLAN,
    PASSWRIGHT,
    REPLAYED,
    GraphPart,
    LeftPart,
    Part,
    StepPart,
)
from passwright.training.report.prefixes import Placed, gain_of, has_predictions

# ---- what the plan says


def graph_part(number: int, planned: PlannedGraph, alike: int = 1) -> GraphPart:
    """A graph with its plan at the level of Torch-IR, not drawn yet; so many graphs are like it."""
    plan = planned.plan
    assert plan is not None
    return replace(
        _part(number, plan, planned.stored, planned.planning_seconds),
        seconds_before=planned.seconds_before or None,
        seconds_after=planned.seconds_after or None,
        alike=alike,
    )


def below_parts(
    planned: Sequence[PlannedGraph], counts: Mapping[str, int]
) -> tuple[GraphPart, ...]:
    """The graphs of the levels below. `counts`: how many of the model's graphs have each fingerprint."""
    return tuple(
        replace(
            _part(number, applied.plan, applied.stored, applied.seconds),
            alike=counts.get(applied.plan.fingerprint, 1),
        )
        for number, graph in enumerate(planned, 1)
        for applied in graph.below
    )


def _part(number: int, plan: Plan, stored: bool, seconds: float) -> GraphPart:
    return GraphPart(
        number,
        plan.level,
        plan.fingerprint,
        plan.ops_before,
        plan.ops_after,
        plan.predicted,
        plan.origin,
        # A plan that the user gave was not found in the store.
        stored and plan.origin != REPLAYED and plan.stopped != NO_PLAN,
        plan.stopped,
        seconds,
        skipped=plan.skipped,
        text=plan.to_text(),
    )


def step_parts(order: Sequence[Placed]) -> tuple[StepPart, ...]:
    """Every step, numbered."""
    return tuple(
        StepPart(
            number,
            placed.graph,
            placed.plan.level,
            placed.step.pattern,
            placed.step.label,
            reason_for(placed.step),
            placed.step.gain,
            placed.step.to_go,
            placed.step.is_setting,
            placed.step.diff,
        )
        for number, placed in enumerate(order, 1)
    )


def left_parts(planned: Sequence[PlannedGraph]) -> tuple[LeftPart, ...]:
    """Every candidate that was not chosen, the likeliest first."""
    plans = [
        (number, plan)
        for number, graph in enumerate(planned, 1)
        for plan in (graph.plan, *(applied.plan for applied in graph.below))
        if plan is not None
    ]
    found = [
        LeftPart(number, plan.level, item.label, item.reason, item.gain)
        for number, plan in plans
        for item in plan.left
    ]
    return tuple(sorted(found, key=lambda item: (-item.gain.mean, item.label)))


def reason_for(step: Step) -> str:
    """Why a step was chosen, as far as its predictions tell."""
    gain, to_go = step.gain, step.to_go
    if step.pattern == CleanUp.name():
        return "clean-up is free and always helps, so it comes before every choice"
    if step.is_setting:
        return "a setting of Inductor that was measured to gain on this kind of device"
    if step.way:
        with_them = f"{_x(to_go.mean)}, surely {_x(to_go.lower)}"
        return f"chosen together with what follows it ({step.way} more): {with_them} together"
    if not (gain.mean or gain.upper or to_go.upper):
        return "given by a plan file, which holds no predictions"
    if gain.lower > 0:
        return f"surely gains by itself: at least {_x(gain.lower)}"
    if gain.mean < 0 < to_go.mean:
        return (
            f"loses by itself ({_x(gain.mean)}), but opens the way to {_x(to_go.mean)}"
            f" (surely {_x(to_go.lower)})"
        )
    if to_go.lower > 0:
        return f"not sure by itself; with what can follow it, at least {_x(to_go.lower)}"
    return "likely by itself, and the plan as a whole is sure: errors of single steps cancel out"


def _x(gain: float) -> str:
    return f"{math.exp(gain):.2f}x"


# ---- what was measured of it


def measured_parts(order: Sequence[Placed], lengths: Sequence[int], timed: Timed) -> list[Part]:
    """What each measured prefix adds to the one before it; the last is the whole."""
    parts, before, done = [], DEFAULT, 0
    known = has_predictions(placed.step for placed in order)
    for length in lengths:
        name = PASSWRIGHT if length == len(order) else str(length)
        at = timed.same.get(name, name)
        timing = timed.comparison.timings.get(at) if timed.comparison else None
        variant = timed.variants.get(name)
        failed = timed.why.get(before, "") and "what it builds on was not measured"
        parts.append(
            Part(
                done + 1,
                length,
                f"step {length}" if length == done + 1 else f"steps {done + 1} to {length}",
                gain_of(order[done:length]) if known else None,
                gain_of(order[:length]) if known else None,
                timed.gain(before, name),
                timed.gain(DEFAULT, name),
                timing.median if timing else None,
                variant.kernels if variant else None,
                timed.why.get(name, "") or failed,
            )
        )
        before, done = name, length
    return parts
