"""Which plans of a model are worth measuring: what the planner would do, stock orders, parts of both, and
random walks.

A gain model learns from what it did not choose as well: steps that lose, steps that lose alone and pay
later, and the same steps in another order. So every proposal comes with what it differs from by little: a
plan's prefixes, and the plan with one step less.
"""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx

from passwright.passes.address import digest
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate, Direction, Exactness
from passwright.passes.table import PatternTable, default_table
from passwright.scheduler.cost import GraphCost
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.estimate import Estimate, gain_between
from passwright.scheduler.gain import Interval
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.optimize import Scheduler
from passwright.scheduler.plan import Plan, Step
from passwright.scheduler.settings import Settings
from passwright.training.macros import CLEAN_UP, Macro, Macros, open_macros
from passwright.training.model_plan import ModelPlan, fingerprints, settled

log = logging.getLogger(__name__)

#: Steps of the longest random walk; half of all walks are shorter than a quarter of it.
_LONGEST = 12
#: Seconds for planning each graph, so many that rehearsals run out first and the machine's load does not
#: matter; and rounds over all macros.
_PLAN_SECONDS, _ROUNDS = 600.0, 2
#: Lower bound from which on the bold plan takes steps.
_BOLD = -0.05
#: A source is at its end when so many of its plans in a row are known: of a small graph there are few.
_FRUITLESS = 12


@dataclass(frozen=True)
class Graphs:
    """The graphs of one model, and where they are to run."""

    captured: Sequence[fx.GraphModule]
    device: DeviceDescriptor
    training: bool


def propose(graphs: Graphs, *, count: int, seed: int = 0) -> list[ModelPlan]:
    """Up to so many plans, each making other graphs than all before it, doing nothing first.

    The same graphs and seed give the same proposals. Of every kind there are some before there are many
    of any.
    """
    draw = random.Random(digest("proposals", seed, *fingerprints(graphs.captured)))
    with torch.set_grad_enabled(graphs.training):
        nothing, _ = settled(graphs.captured, ModelPlan())
        found = {nothing.key: replace(nothing, predicted=Interval(0.0, 0.0, 0.0))}
        sources = [planned(graphs), _stock(graphs), _walks(graphs, draw)]
        parts_seed = draw.random()  # of their own, whatever comes in between
        derived: list[Iterator[ModelPlan]] = []
        while sources or derived:
            for queue in (sources, derived):
                for source in list(queue):
                    if len(found) >= count:
                        return list(found.values())
                    plan = _next_new(source, graphs, found)
                    if plan is None:
                        queue.remove(source)
                    elif queue is sources and plan.steps > 1:
                        derived.append(_parts(plan, random.Random(f"{parts_seed} {plan.key}")))
    return list(found.values())


def _next_new(
    source: Iterator[ModelPlan], graphs: Graphs, found: dict[str, ModelPlan]
) -> ModelPlan | None:
    """The source's next plan that makes other graphs; None at its end, or if so many in a row made none."""
    for wanted in itertools.islice(source, _FRUITLESS):
        try:
            plan, after = settled(graphs.captured, wanted)
        except IllegalRewrite:
            continue
        if plan.key not in found and plan.steps:
            plan = replace(plan, predicted=foretold(graphs, after))
            found[plan.key] = plan
            return plan
    return None


def foretold(graphs: Graphs, after: Sequence[fx.GraphModule]) -> Interval:
    """What the analytic model says the rewritten graphs gain, 90 %."""
    return gain_between(_estimate(graphs, graphs.captured), _estimate(graphs, after))


def _estimate(graphs: Graphs, modules: Sequence[fx.GraphModule]) -> Estimate:
    parts: dict[object, object] = {}
    kernels, call = 0, 0.0
    for number, module in enumerate(modules):
        view = GraphView(module.graph)
        found = GraphCost(view, graphs.device, training=graphs.training).estimate()
        # Nodes of a copy have the names of the original, and are the same kernels.
        parts |= {(number, str(node)): seconds for node, seconds in found.parts.items()}
        kernels, call = kernels + found.kernels, call + found.call
    return Estimate(parts, kernels, call)  # type: ignore[arg-type]


# ---- sources


def planned(graphs: Graphs) -> Iterator[ModelPlan]:
    """What the planner does, and what it does if it takes what is merely likely."""
    for by, gain in (("predicted", None), ("bold", _BOLD)):
        settings = Settings(time_budget=_PLAN_SECONDS, levels="torch")
        if gain is not None:
            settings = replace(settings, min_gain=gain, min_plan_gain=gain)
        scheduler = Scheduler.of(settings)
        plans = []
        for graph in graphs.captured:
            there = clone_for_compile(graph)
            fingerprint = GraphView(graph.graph).fingerprint
            try:
                plan = scheduler.plan_graph(there.graph, training=graphs.training)
            except Exception:  # a compile goes on without, too
                log.warning("planning failed", exc_info=True)
                continue
            plans.append(plan.replaced(fingerprint=fingerprint))
        yield ModelPlan(tuple(plans), by=by)


def _stock(graphs: Graphs) -> Iterator[ModelPlan]:
    """Patterns everywhere, in fixed orders: one direction alone, then one before the other."""
    table = default_table()
    horizontal = {p.name() for p in table if p.direction is Direction.HORIZONTAL}
    orders: list[Callable[[Macro], tuple[object, ...] | None]] = [
        lambda m: (m,) if m.pattern in horizontal else None,
        lambda m: (m,) if m.pattern not in horizontal else None,
        lambda m: (m.pattern not in horizontal, m),
        lambda m: (m.pattern in horizontal, m),
    ]
    for order in orders:
        yield ModelPlan(tuple(_everywhere(graphs, table, order)), by="stock")
    # One pattern everywhere, each in turn.
    seen: dict[Macro, None] = {}
    for graph in graphs.captured:
        seen |= dict.fromkeys(open_macros(graph.graph, table))
    for macro in seen:
        yield ModelPlan(tuple(_everywhere(graphs, table, _only(macro))), by="stock")


def _only(macro: Macro) -> Callable[[Macro], tuple[object, ...] | None]:
    return lambda other: (other,) if other == macro else None


def _everywhere(
    graphs: Graphs, table: PatternTable, order: Callable[[Macro], tuple[object, ...] | None]
) -> Iterator[Plan]:
    """Macros by that order, those without a place in it left out, until nothing changes any more."""
    for graph in graphs.captured:
        macros = Macros(clone_for_compile(graph).graph, table)
        labels = macros.perform(CLEAN_UP)
        for _ in range(_ROUNDS):
            ranked = [(order(m), m) for m in macros.open()]
            for _, macro in sorted(((key, m) for key, m in ranked if key), key=lambda x: x[0]):
                labels += macros.perform(macro)
        yield _plan(graph, labels, graphs.training)


def _walks(graphs: Graphs, draw: random.Random) -> Iterator[ModelPlan]:
    """Random candidates, patterns drawn evenly; half of the walks follow one pattern for a while."""
    table = default_table()
    for _ in range(200):
        length = 1 + int(_LONGEST * draw.random() ** 2)
        plans = []
        for graph in graphs.captured:
            there = clone_for_compile(graph)
            rewriter = Rewriter(GraphView(there.graph), table)
            plans.append(_plan(graph, _walk(rewriter, length, draw), graphs.training))
        yield ModelPlan(tuple(plans), by="walk")


def _walk(rewriter: Rewriter, length: int, draw: random.Random) -> list[str]:
    labels: list[str] = []
    habit = draw.random() < 0.5
    last = ""
    while len(labels) < length:
        by_pattern: dict[str, list[Candidate]] = {}
        for candidate in rewriter.candidates(cleanup=False):
            if candidate.pattern.exactness is not Exactness.RELAXED:
                by_pattern.setdefault(candidate.pattern.name(), []).append(candidate)
        if not by_pattern:
            break
        names = sorted(by_pattern)
        last = last if habit and last in names else draw.choice(names)
        chosen = draw.choice(sorted(by_pattern[last], key=lambda c: c.order))
        try:
            rewriter.apply(chosen)
        except IllegalRewrite:
            break
        labels.append(chosen.label)
    return labels


def _parts(plan: ModelPlan, draw: random.Random) -> Iterator[ModelPlan]:
    """Prefixes and the plan with one step less, in turn, drawn at random."""
    places = [(p, n) for p, found in enumerate(plan.plans) for n in range(len(found.steps))]
    draw.shuffle(places)
    for number, at in places:
        steps = plan.plans[number].steps
        yield _with(plan, number, (*steps[:at], *steps[at + 1 :]), "ablation")
        if at:
            yield _with(plan, number, steps[:at], "prefix")


def _with(plan: ModelPlan, number: int, steps: tuple[Step, ...], by: str) -> ModelPlan:
    plans = list(plan.plans)
    plans[number] = plans[number].replaced(steps=steps)
    return ModelPlan(tuple(plans), by=by)


def _plan(graph: fx.GraphModule, labels: Sequence[str], training: bool) -> Plan:
    """The steps of these labels."""
    empty = Plan(GraphView(graph.graph).fingerprint, training=training)
    return Plan.from_text(empty.to_text() + "\n".join(labels) + "\n")
