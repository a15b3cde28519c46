"""The search problem of a real model: sequences of macros, measured by worker processes.

A macro is a pattern everywhere (`macros.Macro`); `plan` is what the planner would do. Sequences that
make the same graphs are measured once, whatever their order: that, and not a rule about which macros
commute, tells equal ones, since whether two macros commute depends on what was done before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import fx

from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.pattern import Direction
from passwright.passes.table import default_table
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.plan import Plan
from passwright.training.farm import Farm
from passwright.training.macros import CLEAN_UP, Macro, Macros, open_macros
from passwright.training.model_plan import ModelPlan, settled
from passwright.training.proposals import Graphs, foretold, planned
from passwright.training.records import Record
from passwright.training.search.space import Labels
from passwright.training.search.states import PLANNED, States, leading

#: Seconds of timing: of one plan in the search, and of the winner again.
_SECONDS, _CONFIRM_SECONDS = 2.0, 6.0
_MOST_STARTS = 6


class Sequences:
    """Plans that sequences of macros make of the graphs of a model.

    A sequence says what to do and not where, so that it can be done on other graphs than it was found on.
    Each step is then performed there under its own side conditions, and refused where they do not hold.
    """

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs
        self._table = default_table()
        self._made: dict[Labels, ModelPlan] = {}

    @cached_property
    def planned(self) -> ModelPlan:
        """What the planner would do."""
        with torch.set_grad_enabled(self._graphs.training):
            return next(iter(planned(self._graphs)), ModelPlan())

    def plan_of(self, sequence: Labels) -> ModelPlan:
        """The steps of the sequence, and what is predicted of them; of one that is refused, nothing."""
        if sequence not in self._made:
            with torch.set_grad_enabled(self._graphs.training):
                self._made[sequence] = self._plan(sequence)
        return self._made[sequence]

    def is_made(self, sequence: Labels) -> bool:
        """Whether the plan of the sequence costs no time."""
        return sequence in self._made

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
        labels: list[str] = []
        for label in leading(sequence):
            if label == PLANNED:
                found = self.planned.of(fingerprint)
                labels += macros.replay(found) if found else []
            else:
                labels += macros.perform(Macro.parse(label))
        empty = Plan(fingerprint, training=self._graphs.training)
        return Plan.from_text(empty.to_text() + "\n".join(labels) + "\n")


class ModelProblem:
    """One model on one device. `told` hears every record as it comes; `left` says how many seconds there
    are, all the time in the world if not given. When they are over, nothing new is planned, and what is not
    measured yet has no gain.
    """

    def __init__(
        self,
        captured: Sequence[fx.GraphModule],
        device: DeviceDescriptor,
        farm: Farm,
        *,
        training: bool,
        told: Callable[[Sequence[Record]], None] = lambda _: None,
        left: Callable[[], float] | None = None,
    ) -> None:
        graphs = Graphs(captured, device, training)
        self._sequences = Sequences(graphs)
        self._states = States(graphs, lambda: self._sequences.planned)
        self._training = training
        self._farm, self._told, self._left = farm, told, left
        self._table = default_table()
        self._gains: dict[str, float | None] = {}
        with torch.set_grad_enabled(training):
            opened = {
                macro for graph in captured for macro in open_macros(graph.graph, self._table)
            }
        self._macros = {macro.label: macro for macro in sorted({*opened, CLEAN_UP})}

    # ---- the problem

    @property
    def alphabet(self) -> Labels:
        return (PLANNED, *self._macros) if self._sequences.planned.steps else tuple(self._macros)

    @property
    def starts(self) -> Sequence[Labels]:
        """Nothing, the plan, both directions in table order, and the single macros that promise most."""
        horizontal = {p.name() for p in self._table if p.direction is Direction.HORIZONTAL}
        sides = [label for label, macro in self._macros.items() if macro.pattern in horizontal]
        others = [label for label in self._macros if label not in sides]
        found: list[Labels] = [()]
        if self._sequences.planned.steps:
            found.append((PLANNED,))
        found += [tuple((*sides, *others)[:12]), tuple((*others, *sides)[:12])]
        single = sorted((self.score((label,)) or 0.0, label) for label in self._macros)[::-1]
        found += [(label,) for gain, label in single[:_MOST_STARTS] if gain > 0]
        return list(dict.fromkeys(found))

    def score(self, sequence: Labels) -> float | None:
        if self._is_over():
            return None
        with torch.set_grad_enabled(self._training):
            return self._states.predicted(sequence).mean

    def commute(self, one: str, other: str) -> bool:
        return False

    def result(self, sequence: Labels) -> str | None:
        """The graphs that the sequence makes; None where there is no time to find out."""
        if self._is_over():
            return None
        with torch.set_grad_enabled(self._training):
            return self._states.reach(sequence)

    def effective(self, sequence: Labels) -> Labels:
        """The sequence without labels that do nothing where they stand."""
        if self._is_over():
            return sequence
        with torch.set_grad_enabled(self._training):
            return self._states.effective(sequence)

    def measure(self, sequences: Sequence[Labels]) -> Sequence[float | None]:
        plans = {plan.key: plan for plan in self._planned(sequences)}
        fresh = [plan for key, plan in plans.items() if key not in self._gains]
        for record in self._records(fresh, _SECONDS):
            self._gains[record.result] = record.gain
        nothing = self.plan_of(()).key
        self._gains[nothing] = 0.0  # by definition; what was measured says how far compiles differ
        return [
            self._gains.get(self.plan_of(sequence).key)
            if self._sequences.is_made(sequence)
            else None
            for sequence in sequences
        ]

    def confirm(self, sequences: Sequence[Labels]) -> Sequence[float | None]:
        plans = [self.plan_of(sequence) for sequence in sequences]
        found = {record.result: record for record in self._records(plans, _CONFIRM_SECONDS)}
        return [_surely(found.get(plan.key)) for plan in plans]

    def plan_of(self, sequence: Labels) -> ModelPlan:
        """The plan of the model's graphs (`Sequences.plan_of`)."""
        return self._sequences.plan_of(sequence)

    # ---- time

    def _is_over(self) -> bool:
        return self._left is not None and self._left() <= 0

    def _planned(self, sequences: Sequence[Labels]) -> list[ModelPlan]:
        """The plans of those for which there is time."""
        return [
            self.plan_of(sequence)
            for sequence in sequences
            if self._sequences.is_made(sequence) or not self._is_over()
        ]

    def _records(self, plans: Sequence[ModelPlan], seconds: float) -> list[Record]:
        if self._left is None:
            found = self._farm.records(plans, seconds=seconds)
        else:
            found = self._farm.records(plans, seconds=seconds, within=self._left())
        self._told(found)
        return found


def _surely(record: Record | None) -> float | None:
    """The gain; what is not surely faster is not better than doing nothing."""
    if record is None or record.gain is None or record.lower is None:
        return None
    return record.gain if record.lower > 0 else 0.0
