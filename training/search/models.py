"""The search problem of a real model: sequences of macros, measured by worker processes.

A macro is a pattern everywhere (`bench_macros.Macro`); `plan` is what the planner would do. Sequences that
make the same graphs are measured once, whatever their order: that, and not a rule about which macros
commute, tells equal ones, since whether two macros commute depends on what was done before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import fx

from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.pattern import Direction
from passwright.passes.table import default_table
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.plan import Plan
from passwright.training.bench_macros import CLEAN_UP, Macros, open_macros
from passwright.training.farm import Farm
from passwright.training.model_plan import ModelPlan, settled
from passwright.training.proposals import Graphs, foretold, planned
from passwright.training.records import Record
from passwright.training.search.space import Labels

PLANNED = "plan"
#: Seconds of timing: of one plan in the search, and of the winner again.
_SECONDS, _CONFIRM_SECONDS = 2.0, 6.0
_MOST_STARTS = 6


class ModelProblem:
    """One model on one device. `told` hears every record as it comes."""

    def __init__(
        self,
        captured: Sequence[fx.GraphModule],
        device: DeviceDescriptor,
        farm: Farm,
        *,
        training: bool,
        told: Callable[[Sequence[Record]], None] = lambda _: None,
    ) -> None:
        self._graphs = Graphs(captured, device, training)
        self._farm, self._told = farm, told
        self._table = default_table()
        self._made: dict[Labels, ModelPlan] = {}
        self._gains: dict[str, float | None] = {}
        with torch.set_grad_enabled(training):
            self._planned = next(iter(planned(self._graphs)), ModelPlan())
            opened = {
                macro for graph in captured for macro in open_macros(graph.graph, self._table)
            }
        self._macros = {macro.label: macro for macro in sorted({*opened, CLEAN_UP})}

    # ---- the problem

    @property
    def alphabet(self) -> Labels:
        return (PLANNED, *self._macros) if self._planned.steps else tuple(self._macros)

    @property
    def starts(self) -> Sequence[Labels]:
        """Nothing, the plan, both directions in table order, and the single macros that promise most."""
        horizontal = {p.name() for p in self._table if p.direction is Direction.HORIZONTAL}
        sides = [label for label, macro in self._macros.items() if macro.pattern in horizontal]
        others = [label for label in self._macros if label not in sides]
        found: list[Labels] = [()]
        if self._planned.steps:
            found.append((PLANNED,))
        found += [tuple((*sides, *others)[:12]), tuple((*others, *sides)[:12])]
        single = sorted((self.score((label,)) or 0.0, label) for label in self._macros)[::-1]
        found += [(label,) for gain, label in single[:_MOST_STARTS] if gain > 0]
        return list(dict.fromkeys(found))

    def score(self, sequence: Labels) -> float | None:
        predicted = self.plan_of(sequence).predicted
        return predicted.mean if predicted else None

    def commute(self, one: str, other: str) -> bool:
        return False

    def measure(self, sequences: Sequence[Labels]) -> Sequence[float | None]:
        plans = {plan.key: plan for plan in map(self.plan_of, sequences)}
        fresh = [plan for key, plan in plans.items() if key not in self._gains]
        for record in self._records(fresh, _SECONDS):
            self._gains[record.result] = record.gain
        nothing = self.plan_of(()).key
        self._gains[nothing] = 0.0  # by definition; what was measured says how far compiles differ
        return [self._gains[self.plan_of(sequence).key] for sequence in sequences]

    def confirm(self, sequences: Sequence[Labels]) -> Sequence[float | None]:
        plans = [self.plan_of(sequence) for sequence in sequences]
        # What is not surely faster is not better than doing nothing.
        return [
            None if r.gain is None or r.lower is None else r.gain if r.lower > 0 else 0.0
            for r in self._records(plans, _CONFIRM_SECONDS)
        ]

    # ---- sequences and plans

    def plan_of(self, sequence: Labels) -> ModelPlan:
        """The steps of the sequence, and what is predicted of them; of one that is refused, nothing."""
        if sequence not in self._made:
            with torch.set_grad_enabled(self._graphs.training):
                self._made[sequence] = self._plan(sequence)
        return self._made[sequence]

    def _plan(self, sequence: Labels) -> ModelPlan:
        wanted = ModelPlan(
            tuple(self._steps(graph, sequence) for graph in self._graphs.captured), by="search"
        )
        try:
            plan, after = settled(self._graphs.captured, wanted)
        except IllegalRewrite:
            plan, after = settled(self._graphs.captured, ModelPlan())
        by = "search" if plan.steps else "nothing"
        return replace(plan, by=by, predicted=foretold(self._graphs, after))

    def _steps(self, graph: fx.GraphModule, sequence: Labels) -> Plan:
        fingerprint = GraphView(graph.graph).fingerprint
        macros = Macros(clone_for_compile(graph).graph, self._table)
        planned = self._planned.of(fingerprint)
        labels: list[str] = []
        for number, label in enumerate(sequence):
            if label == PLANNED:
                labels += macros.replay(planned) if planned else []
                continue
            if number == 0:
                labels += macros.perform(CLEAN_UP)
            labels += macros.perform(self._macros[label])
        empty = Plan(fingerprint, training=self._graphs.training)
        return Plan.from_text(empty.to_text() + "\n".join(labels) + "\n")

    def _records(self, plans: Sequence[ModelPlan], seconds: float) -> list[Record]:
        found = self._farm.records(plans, seconds=seconds)
        self._told(found)
        return found
