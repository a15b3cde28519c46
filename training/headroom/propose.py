"""What the search may try: start points and neighbours, made on clones of the captured graphs.

Nothing is compiled here. Each proposal comes with a hash of the graphs that it makes, by which the search
knows that it has seen them, and with what they are predicted to take, by which it puts them in order.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import fx

from passwright.passes.address import digest
from passwright.passes.graph import GraphView
from passwright.passes.pattern import Direction
from passwright.passes.table import PatternTable, default_table
from passwright.scheduler.cost import GraphCost
from passwright.scheduler.device import DeviceDescriptor, describe
from passwright.scheduler.estimate import Seconds
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.optimize import Scheduler
from passwright.scheduler.plan import Plan
from passwright.scheduler.settings import Settings
from passwright.training.headroom.greedy import Proposal
from passwright.training.headroom.worker import Task
from passwright.training.macros import (
    CLEAN_UP,
    NOTHING,
    PLANNED,
    Macro,
    State,
    apply_macro,
    apply_state,
    open_macros,
)

log = logging.getLogger(__name__)

#: How often all macros are gone through to apply everything, and seconds for it.
_ROUNDS, _EVERYTHING_SECONDS = 3, 20.0
#: Seconds for planning each graph.
_PLAN_SECONDS = 45.0


class Workbench:
    """The graphs of a model as they are after a state, and what they are predicted to take."""

    def __init__(
        self,
        graphs: Sequence[fx.GraphModule],
        task: Task,
        device: DeviceDescriptor | None = None,
    ) -> None:
        self.graphs = [clone_for_compile(graph) for graph in graphs]
        self.task = task
        self._device = device or describe(torch.device(task.device))

    def copy(self) -> Workbench:
        return Workbench(self.graphs, self.task, self._device)

    def after(self, macro: Macro, table: PatternTable) -> Workbench | None:
        """A copy with the macro performed on all graphs; None where it changes nothing, or fails."""
        there = self.copy()
        try:
            steps = [apply_macro(graph.graph, macro, table) for graph in there.graphs]
        except Exception:  # a pattern may be anybody's code
            log.warning("%s: macro %s failed", self.task.title, macro.label, exc_info=True)
            return None
        return there if any(steps) else None

    def open(self, table: PatternTable) -> list[Macro]:
        """Macros with a candidate in some graph."""
        relaxed = self.task.relaxed
        found = (open_macros(g.graph, table, relaxed=relaxed) for g in self.graphs)
        return sorted({macro for macros in found for macro in macros})

    def seconds(self) -> Seconds:
        """Predicted seconds by what takes them."""
        total = Seconds()
        for graph in self.graphs:
            cost = GraphCost(
                GraphView(graph.graph),
                self._device,
                training=self.task.train,
                folds=self.task.fold,
            )
            estimate = cost.estimate()
            total = total.plus(Seconds(launch=estimate.call))
            for part in estimate.parts.values():
                total = total.plus(part)
        return total

    def proposal(self, state: State) -> Proposal:
        key = digest(*(GraphView(graph.graph).fingerprint for graph in self.graphs))
        return Proposal(state, key, self.seconds().total)


def starts(
    captured: Sequence[fx.GraphModule], task: Task, directory: Path
) -> tuple[list[Plan], list[Proposal]]:
    """The planner's plans, and proposals: nothing, the plan, everything, and what the cost model
    would do with macros."""
    table = default_table()
    with _grad_mode(task):
        plain = Workbench(captured, task)
        plans = _plans(plain.copy(), directory)
        planned = rewritten(captured, task, PLANNED, plans)
        proposals = [plain.proposal(NOTHING), planned.proposal(PLANNED)]
        order, best = _by_gain(plain.copy(), table)
        proposals.append(_everything(plain.copy(), order, table))
        proposals += best
    return plans, proposals


def neighbours(
    captured: Sequence[fx.GraphModule],
    task: Task,
    plans: Sequence[Plan],
    of: State,
    seconds: float,
) -> tuple[list[Proposal], bool]:
    """One macro more, then one less; and whether the seconds did not suffice for all."""
    table, deadline = default_table(), time.monotonic() + seconds
    found: list[Proposal] = []
    with _grad_mode(task):
        here = rewritten(captured, task, of, plans)
        for macro in [*here.open(table), CLEAN_UP]:
            there = here.after(macro, table)
            if there is not None:
                found.append(there.proposal(of.then(macro)))
            if time.monotonic() > deadline:
                return found, True
        for state in of.shorter():
            found.append(rewritten(captured, task, state, plans).proposal(state))
            if time.monotonic() > deadline:
                return found, True
    return found, False


def rewritten(
    captured: Sequence[fx.GraphModule], task: Task, state: State, plans: Sequence[Plan]
) -> Workbench:
    """The graphs after the state."""
    bench = Workbench(captured, task)
    for graph in bench.graphs:
        apply_state(graph.graph, state, default_table(), plans)
    return bench


def _plans(bench: Workbench, directory: Path) -> list[Plan]:
    """What the planner would do at Torch-IR with the analytic model."""
    settings = Settings(
        relaxed=bench.task.relaxed,
        fold_parameters=bench.task.fold,
        seed=bench.task.seed,
        plan_directory=str(directory / "plans"),
        time_budget=_PLAN_SECONDS,
    )
    scheduler = Scheduler.of(settings)
    try:
        training = bench.task.train
        return [scheduler.plan_graph(graph.graph, training=training) for graph in bench.graphs]
    except Exception:  # it leaves the graph untouched in a compile, too
        log.warning("%s: planning failed", bench.task.title, exc_info=True)
        return []


def _by_gain(bench: Workbench, table: PatternTable) -> tuple[list[Macro], list[Proposal]]:
    """Macros in the order of predicted gain, horizontal ones first; and the state that takes the macro
    with the largest predicted gain again and again."""
    horizontal = {p.name() for p in table if p.direction is Direction.HORIZONTAL}
    deadline = time.monotonic() + _EVERYTHING_SECONDS
    order: list[Macro] = []
    bench = bench.after(CLEAN_UP, table) or bench
    state, now = NOTHING, bench.seconds().total
    while time.monotonic() < deadline:
        judged: list[tuple[float, Macro, Workbench]] = []
        for macro in bench.open(table):
            there = bench.after(macro, table)
            if there is not None:
                judged.append((there.seconds().total, macro, there))
        judged.sort(key=lambda item: item[:2])
        if not order:
            macros = [macro for _, macro, _ in judged]
            order = sorted(macros, key=lambda macro: macro.pattern not in horizontal)
        if not judged or judged[0][0] >= now:
            break
        now, macro, bench = judged[0]
        state = state.then(macro)
    return order, [bench.proposal(state)] if state != NOTHING else []


def _everything(bench: Workbench, order: Sequence[Macro], table: PatternTable) -> Proposal:
    """All macros in that order, then whatever they opened, until none changes anything."""
    state, deadline = NOTHING, time.monotonic() + _EVERYTHING_SECONDS
    bench = bench.after(CLEAN_UP, table) or bench
    for _ in range(_ROUNDS):
        opened = bench.open(table)
        known = [macro for macro in order if macro in opened]
        before = state
        for macro in [*known, *(macro for macro in opened if macro not in known)]:
            if time.monotonic() > deadline:
                break
            there = bench.after(macro, table)
            if there is not None:
                state, bench = state.then(macro), there
        if state == before:
            break
    if state == NOTHING:
        state = State((CLEAN_UP,))
    return bench.proposal(state)


@contextmanager
def _grad_mode(task: Task) -> Iterator[None]:
    """As it is when the graph is compiled: planning asks whether gradients are wanted."""
    with torch.set_grad_enabled(task.train):
        yield
