"""Prefixes of what is planned for a model, over all of its graphs and IR levels.

The steps of Torch-IR come first, of all graphs, then their settings of Inductor, then the steps of the
levels below, forward before backward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from passwright.scheduler.commands.plan import PlannedGraph
from passwright.scheduler.gain import Interval
from passwright.scheduler.plan import Plan, Step, joint_gain

TORCH, ATEN, INDUCTOR = LEVELS = ("torch", "aten", "inductor")
#: As the setting has them, down to each level.
Down = Literal["torch", "torch+aten", "torch+aten+inductor"]
_DOWN: tuple[Down, ...] = ("torch", "torch+aten", "torch+aten+inductor")


@dataclass(frozen=True)
class Placed:
    """A step, and the plan that it belongs to."""

    #: Which of the model's graphs, from 1 on.
    graph: int
    plan: Plan
    step: Step
    #: Share of the model's ops at this level that the plan is about: its gain is of these alone.
    weight: float = 1.0


def plans_of(planned: Sequence[PlannedGraph]) -> list[tuple[int, Plan]]:
    """(number of the graph, plan) of all levels, each plan once."""
    found: dict[tuple[str, str], tuple[int, Plan]] = {}
    for number, graph in enumerate(planned, 1):
        for plan in (graph.plan, *(applied.plan for applied in graph.below)):
            if plan is not None:
                found.setdefault((plan.level, plan.fingerprint), (number, plan))
    return list(found.values())


def alike(planned: Iterable[PlannedGraph]) -> Counter[str]:
    """How many graphs, of all levels, have each fingerprint."""
    return Counter(
        plan.fingerprint
        for graph in planned
        for plan in (graph.plan, *(applied.plan for applied in graph.below))
        if plan is not None
    )


def in_order(
    planned: Sequence[PlannedGraph], counts: Mapping[str, int] | None = None
) -> list[Placed]:
    """Every step, in the order in which they are numbered. `counts`: how many graphs are like each that is
    planned, by fingerprint, if it is not one."""
    plans, counts = plans_of(planned), counts or {}
    total = dict.fromkeys(LEVELS, 0)
    for _, plan in plans:
        total[plan.level] += plan.ops_before * counts.get(plan.fingerprint, 1)
    rewrites: list[Placed] = []
    settings: list[Placed] = []
    below: list[Placed] = []
    for graph, plan in plans:
        ops = plan.ops_before * counts.get(plan.fingerprint, 1)
        weight = ops / total[plan.level] if total[plan.level] else 1.0
        for step in plan.steps:
            kind = below if plan.level != TORCH else settings if step.is_setting else rewrites
            kind.append(Placed(graph, plan, step, weight))
    return [*rewrites, *settings, *below]


def first_steps(order: Sequence[Placed], count: int) -> list[Plan]:
    """The plans that have one of the first `count` steps, without the later ones."""
    taken: dict[tuple[str, str], tuple[Plan, list[Step]]] = {}
    for placed in order[:count]:
        key = (placed.plan.level, placed.plan.fingerprint)
        taken.setdefault(key, (placed.plan, []))[1].append(placed.step)
    return [plan.replaced(steps=tuple(steps), left=()) for plan, steps in taken.values()]


def levels_of(plans: Sequence[Plan]) -> Down:
    """The levels that have to be looked at to apply these plans, as the setting has it."""
    deepest = max((LEVELS.index(plan.level) for plan in plans), default=0)
    return _DOWN[deepest]


def has_predictions(steps: Iterable[Step]) -> bool:
    """Whether a plan says what its steps gain. One that was read from text does not: all is zero."""
    gains = (gain for step in steps for gain in (step.gain, step.to_go))
    return any(gain.mean or gain.lower or gain.upper for gain in gains)


def gain_of(steps: Sequence[Placed]) -> Interval:
    """What steps one after the other are predicted to gain on the whole model; gains of several graphs
    count by their share of the ops."""
    found = Interval(0.0, 0.0, 0.0)
    for fingerprint in dict.fromkeys(placed.plan.fingerprint for placed in steps):
        own = [placed for placed in steps if placed.plan.fingerprint == fingerprint]
        joint = joint_gain([one.step for one in own], independent=own[0].plan.independent)
        weight = own[0].weight
        found = Interval(
            found.mean + weight * joint.mean,
            found.lower + weight * joint.lower,
            found.upper + weight * joint.upper,
        )
    return found
